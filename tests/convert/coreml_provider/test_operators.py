"""The rows against what release 1.29.0 itself says that it has."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from edge.convert.coreml_provider.judge import ROWS

# tools/mobile_helpers/coreml_supported_mlprogram_ops.md in the wheel of onnxruntime 1.29.0 (the
# same in 1.30 to 1.32): operator -> its note, "" where there is none.
MLPROGRAM = {
    "Add": "", "And": "Both inputs must be bool.", "Argmax": "",
    "AveragePool": "Only 2D Pool is supported currently. 3D and 5D support can be added if needed.",
    "Cast": "", "Clip": "", "Concat": "",
    "Conv": "Only 1D/2D Conv is supported. Bias if provided must be constant.",
    "ConvTranspose": "Weight and bias must be constant. padding_type of SAME_UPPER/SAME_LOWER is "
    "not supported. kernel_shape must have default values. output_shape is not supported. "
    "output_padding must have default values.",
    "Cos": "", "DepthToSpace": "If 'mode' is 'CRD' the input must have a fixed shape.",
    "Ceil": "", "Div": "", "Elu": "", "Erf": "", "Exp": "",
    "GatherND": "batch_dims must be 0.", "Gemm": "Input B must be constant.", "Gelu": "",
    "GlobalAveragePool": "Only 2D Pool is supported currently. 3D and 5D support can be added if "
    "needed.",
    "GlobalMaxPool": "Only 2D Pool is supported currently. 3D and 5D support can be added if "
    "needed.",
    "GridSample": "4D input. 'mode' of 'linear' or 'zeros'. (mode==linear && "
    "padding_mode==reflection && align_corners==0) is not supported.",
    "GroupNormalization": "", "HardSigmoid": "", "Identity": "", "InstanceNormalization": "",
    "LayerNormalization": "", "LeakyRelu": "",
    "MatMul": "Only support for transA == 0, alpha == 1.0 and beta == 1.0 is currently "
    "implemented.",
    "MaxPool": "Only 2D Pool is supported currently. 3D and 5D support can be added if needed.",
    "Max": "", "Mul": "", "Pow": "Only supports cases when both inputs are fp32.", "PRelu": "",
    "Reciprocal": "this ask for a `epislon` (default 1e-4) where onnx don't provide",
    "ReduceSum": "", "ReduceMean": "", "ReduceMax": "", "Relu": "", "Reshape": "",
    "Resize": "See resize_op_builder.cc implementation. There are too many permutations to "
    "describe the valid combinations.",
    "Round": "", "Shape": "", "Sin": "",
    "Slice": "starts/ends/axes/steps must be constant initializers.",
    "Softplus": "", "Split": "If provided, `splits` must be constant.", "Sub": "", "Sigmoid": "",
    "Softmax": "", "Sqrt": "", "Squeeze": "", "Tanh": "",
    "Tile": "`repeats` may be a constant initializer or a runtime tensor (MLProgram only). Input "
    "rank up to 5.",
    "Transpose": "", "Unsqueeze": "", "Where": "`X`/`Y` branches must be float or float16.",
    "QuickGelu": "Produced by ORT's `QuickGeluFusion` optimizer pass. Decomposed into `mul` / "
    "`sigmoid` / `mul`.",
    "FusedConv": "Produced by ORT's `ConvActivationFusion` pass. Decomposed into `conv` + the "
    "fused activation (`Relu`, `Sigmoid`, `Tanh`, `LeakyRelu`, `Clip`, `HardSigmoid`).",
}  # fmt: skip
# The same for coreml_supported_neuralnetwork_ops.md.
NEURALNETWORK = {
    "Add": "", "ArgMax": "", "AveragePool": "Only 2D Pool is supported.",
    "BatchNormalization": "", "Cast": "", "Clip": "", "Concat": "",
    "Conv": "Only 1D/2D Conv is supported. Weights and bias should be constant.",
    "DepthToSpace": "Only DCR mode DepthToSpace is supported.", "Div": "", "Flatten": "",
    "Gather": "Input `indices` with scalar value is not supported.",
    "Gemm": "Input B should be constant.", "GlobalAveragePool": "Only 2D Pool is supported.",
    "GlobalMaxPool": "Only 2D Pool is supported.", "LeakyRelu": "", "LRN": "",
    "MatMul": "Input B should be constant.", "MaxPool": "Only 2D Pool is supported.", "Mul": "",
    "Pad": "Only constant mode and last two dim padding is supported. Input pads and "
    "constant_value should be constant. If provided, axes should be constant.",
    "Pow": "Only supports cases when both inputs are fp32.",
    "PRelu": "Input slope should be constant. Input slope should either have shape [C, 1, 1] or "
    "have 1 element.",
    "Reciprocal": "", "ReduceSum": "", "Relu": "", "Reshape": "",
    "Resize": "4D input. `coordinate_transformation_mode` == `asymmetric`. `mode` == `linear` or "
    "`nearest`. `nearest_mode` == `floor`. `exclude_outside` == false `scales` or `sizes` must be "
    "constant.",
    "Shape": "Attribute `start` with non-default value is not supported. Attribute `end` is not "
    "supported.",
    "Sigmoid": "",
    "Slice": "Inputs `starts`, `ends`, `axes`, and `steps` should be constant. Empty slice is not "
    "supported.",
    "Softmax": "", "Split": "If provided, `splits` must be constant.", "Squeeze": "", "Sqrt": "",
    "Sub": "", "Tanh": "", "Transpose": "",
}  # fmt: skip
# CreateOpBuilderRegistrations in the macOS library of the same release (build 2e2543fbe9):
# every call, by builder (docs/coreml-provider.md says how it was read).
REGISTERED = {
    "activation": "Sigmoid Tanh Relu PRelu LeakyRelu Gelu Softplus Elu HardSigmoid",
    "quick_gelu": "QuickGelu",
    "conv": "FusedConv Conv",
    "unary": "Erf Reciprocal Round Sqrt Exp Sin Cos Ceil",
    "binary": "Add Div Mul Max Pow Sub",
    "pool": "AveragePool GlobalAveragePool GlobalMaxPool MaxPool",
    "reduction": "ReduceMean ReduceMin ReduceMax ReduceProd ReduceSum",
    "batch_norm": "BatchNormalization",
    "normalization": "GroupNormalization InstanceNormalization LayerNormalization",
    "logical": "And",
    "argmax": "ArgMax",
    "cast": "Cast",
    "clip": "Clip",
    "concat": "Concat",
    "convtranspose": "ConvTranspose",
    "depthtospace": "DepthToSpace",
    "flatten": "Flatten",
    "gather": "Gather",
    "gather_nd": "GatherND",
    "gemm": "Gemm MatMul",
    "gridsample": "GridSample",
    "identity": "Identity",
    "LRN": "LRN",
    "pad": "Pad",
    "reshape": "Reshape",
    "resize": "Resize",
    "shape": "Shape",
    "slice": "Slice",
    "split": "Split",
    "softmax": "Softmax",
    "squeeze": "Squeeze Unsqueeze",
    "tile": "Tile",
    "transpose": "Transpose",
    "where": "Where",
}
# GetMinSupportedOpSet of the same library, by builder; Softplus has 1, all others not named 1.
LEAST = {
    "activation": 6, "batch_norm": 7, "binary": 7, "pad": 11, "reshape": 5, "resize": 11,
    "slice": 10,
}  # fmt: skip
# Builders whose IsTrivial says yes; the unary one does for Ceil alone.
TRIVIAL = "cast flatten identity reshape squeeze tile transpose"
WITHOUT_MLPROGRAM = {"Flatten", "LRN"}  # no SupportsMLProgram of their own
ONLY_MLPROGRAM = {
    "Gelu", "Softplus", "Elu", "QuickGelu", "FusedConv", "Erf", "Round", "Exp", "Sin", "Cos",
    "Ceil", "Max", "ReduceMin", "ReduceMax", "ReduceProd", "GroupNormalization",
    "InstanceNormalization", "LayerNormalization", "And", "ConvTranspose", "GatherND",
    "GridSample", "Unsqueeze", "Where",
}  # fmt: skip


def test_the_rows_are_the_registered_operators() -> None:
    found = defaultdict(set)
    for kind, row in ROWS.items():
        found[row.file.removesuffix("_op_builder.cc")].add(kind)
    assert found == {builder: set(kinds.split()) for builder, kinds in REGISTERED.items()}


def test_the_oldest_opset_is_each_builder_s() -> None:
    for builder, kinds in REGISTERED.items():
        for kind in kinds.split():
            least = 1 if kind == "Softplus" else LEAST.get(builder, 1)
            assert ROWS[kind].least == least, kind


def test_what_is_trivial_is_what_the_builders_say() -> None:
    trivial = {kind for builder in TRIVIAL.split() for kind in REGISTERED[builder].split()}
    assert {kind for kind, row in ROWS.items() if row.trivial} == trivial | {"Ceil"}


def test_the_list_of_ml_program_operators() -> None:
    listed = {{"Argmax": "ArgMax"}.get(kind, kind) for kind in MLPROGRAM}
    taken = {kind for kind, row in ROWS.items() if row.mlprogram}
    assert taken == set(ROWS) - WITHOUT_MLPROGRAM
    assert listed <= taken
    # What the list leaves out although the builder supports it.
    unlisted = {"BatchNormalization", "Gather", "Pad", "ReduceMin", "ReduceProd"}
    assert taken - listed == unlisted


def test_the_list_of_neural_network_operators() -> None:
    listed = set(NEURALNETWORK)
    taken = set(ROWS) - ONLY_MLPROGRAM
    assert listed <= taken
    assert taken - listed == {"HardSigmoid", "Identity", "ReduceMean", "Tile"}


def test_only_resize_takes_inputs_without_elements() -> None:
    assert {kind for kind, row in ROWS.items() if row.empty_inputs} == {"Resize"}


def test_the_table_of_the_docs_has_every_operator() -> None:
    docs = Path(__file__).parents[3] / "docs"
    text = (docs / "coreml-provider.md").read_text("utf-8")
    table = text.partition("## Rules by operator")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    found = [
        (kind, f"{row[0]}_op_builder.cc", row[2] != "no", row[3] != "no")
        for row in rows
        if len(row) == 4 and row[0] not in {"file", "---"}
        for kind in row[1].split()
    ]
    assert sorted(found) == sorted(
        (kind, row.file, kind not in WITHOUT_MLPROGRAM, kind not in ONLY_MLPROGRAM)
        for kind, row in ROWS.items()
    )
