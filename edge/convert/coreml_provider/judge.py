"""Which operators there are, and what is asked of a node.

The rows are ``op_builder_factory.cc`` (CreateOpBuilderRegistrations) of release 1.29.0. Operators
are found by their name alone, whatever their domain (``helper.cc``, GetOpBuilder).
"""

from __future__ import annotations

from edge.convert.coreml_provider import elementwise, linear, shapes, windows
from edge.convert.coreml_provider.rule import Params, Row, common, float_input, mlprogram_only
from edge.convert.coreml_provider.view import Node

BUILDERS = "onnxruntime/core/providers/coreml/builders/impl"
ACTIVATION, BINARY, CAST, CLIP = (
    f"{name}_op_builder.cc" for name in ("activation", "binary", "cast", "clip")
)
CONV, GEMM, NORMALIZATION = (f"{name}_op_builder.cc" for name in ("conv", "gemm", "normalization"))
POOL, REDUCTION, SQUEEZE, UNARY = (
    f"{name}_op_builder.cc" for name in ("pool", "reduction", "squeeze", "unary")
)
MLPROGRAM = (mlprogram_only,)

_ACTIVATIONS = {
    **{name: Row(ACTIVATION, least=6) for name in ("Sigmoid", "Tanh", "Relu", "LeakyRelu")},
    "PRelu": Row(ACTIVATION, (elementwise.prelu,), least=6),
    "Gelu": Row(ACTIVATION, MLPROGRAM, least=6),
    "Elu": Row(ACTIVATION, MLPROGRAM, least=6),
    "Softplus": Row(ACTIVATION, MLPROGRAM),
    "HardSigmoid": Row(ACTIVATION, (elementwise.hard_sigmoid,), least=6),
    "QuickGelu": Row("quick_gelu_op_builder.cc", MLPROGRAM),
}
_ELEMENTWISE = {
    **{name: Row(UNARY) for name in ("Reciprocal", "Sqrt")},
    **{name: Row(UNARY, MLPROGRAM) for name in ("Erf", "Round", "Exp", "Sin", "Cos")},
    "Ceil": Row(UNARY, MLPROGRAM, trivial=True),
    **{
        name: Row(BINARY, inputs=(elementwise.binary_inputs,), least=7)
        for name in ("Add", "Div", "Mul", "Max", "Pow", "Sub")
    },
    "And": Row("logical_op_builder.cc", MLPROGRAM, (elementwise.logical_inputs,)),
    "Where": Row("where_op_builder.cc", MLPROGRAM, (elementwise.where_inputs,)),
    "Cast": Row(CAST, (elementwise.cast,), (elementwise.cast_inputs,), trivial=True),
    "Clip": Row(CLIP, (elementwise.clip,)),
    "Identity": Row("identity_op_builder.cc", trivial=True),
}
_WINDOWS = {
    "Conv": Row(CONV, (windows.conv,)),
    "FusedConv": Row(CONV, (windows.fused_conv, windows.conv)),
    "ConvTranspose": Row("convtranspose_op_builder.cc", (windows.conv_transpose,)),
    **{
        name: Row(POOL, (windows.pool,))
        for name in ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
    },
    "GridSample": Row("gridsample_op_builder.cc", (mlprogram_only, windows.grid_sample)),
    "Resize": Row("resize_op_builder.cc", (windows.resize,), least=11, empty_inputs=True),
}
_LINEAR = {
    "Gemm": Row(GEMM, (linear.gemm,)),
    "MatMul": Row(GEMM, (linear.matmul,)),
    **{
        f"{name}Normalization": Row(
            NORMALIZATION, (linear.normalization,), (linear.normalization_inputs,)
        )
        for name in ("Group", "Instance", "Layer")
    },
    "BatchNormalization": Row("batch_norm_op_builder.cc", (linear.batch_normalization,), least=7),
    "LRN": Row("LRN_op_builder.cc", (linear.lrn,), mlprogram=False),
    **{
        f"Reduce{name}": Row(REDUCTION, (linear.reduction,))
        for name in ("Max", "Mean", "Min", "Prod", "Sum")
    },
    "ArgMax": Row("argmax_op_builder.cc", (linear.argmax,)),
    "Softmax": Row("softmax_op_builder.cc", (linear.softmax,)),
}
_SHAPES = {
    "Concat": Row("concat_op_builder.cc", (shapes.concat,)),
    "DepthToSpace": Row("depthtospace_op_builder.cc", (shapes.depth_to_space,)),
    "Flatten": Row("flatten_op_builder.cc", (shapes.flatten,), mlprogram=False, trivial=True),
    "Gather": Row("gather_op_builder.cc", (shapes.gather,), (shapes.gather_inputs,)),
    "GatherND": Row(
        "gather_nd_op_builder.cc", (mlprogram_only, shapes.gather_nd), (shapes.gather_nd_inputs,)
    ),
    "Pad": Row("pad_op_builder.cc", (shapes.pad,), (shapes.pad_inputs,), least=11),
    "Reshape": Row("reshape_op_builder.cc", (shapes.reshape,), least=5, trivial=True),
    "Shape": Row("shape_op_builder.cc", (shapes.shape,), (shapes.shape_inputs,)),
    "Slice": Row("slice_op_builder.cc", (shapes.slice_,), (shapes.slice_inputs,), least=10),
    "Split": Row("split_op_builder.cc", (shapes.split,)),
    "Squeeze": Row(SQUEEZE, (shapes.squeeze,), trivial=True),
    "Unsqueeze": Row(SQUEEZE, (shapes.squeeze,), trivial=True),
    "Tile": Row("tile_op_builder.cc", (shapes.tile,), (shapes.tile_inputs,), trivial=True),
    "Transpose": Row("transpose_op_builder.cc", trivial=True),
}
ROWS: dict[str, Row] = {**_ACTIVATIONS, **_ELEMENTWISE, **_WINDOWS, **_LINEAR, **_SHAPES}


def judge(node: Node, params: Params) -> str:
    """Why the provider refuses the node, "" when it does not (BaseOpBuilder::IsOpSupported)."""
    row = ROWS.get(node.kind)
    if row is None:
        return "no such operator in the provider"
    if reason := common(node, params, row):
        return reason
    rules = (*(row.inputs or (float_input,)), *row.impl)
    return next((reason for rule in rules if (reason := rule(node, params))), "")
