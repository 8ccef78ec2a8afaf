"""Products, normalizations, reductions and softmax."""

from __future__ import annotations

from edge.convert.coreml_provider.rule import FLOAT, FLOAT16, INT32, Params, constant, typed
from edge.convert.coreml_provider.view import UNKNOWN, Node

SOFTMAX_OF_ONE_AXIS = 13  # opset from which Softmax does not flatten


def matmul(node: Node, params: Params) -> str:
    """``gemm_op_builder.cc``: NeuralNetwork wants 2D and a constant B.

    ML Programs fail on a 1D operand beside another rank (apple/coremltools#2263).
    """
    first, second = len(node.shape(0)), len(node.shape(1))
    if params.mlprogram:
        mixed = 1 in {first, second} and first != second
        return "one operand is 1D" if mixed else ""
    if reason := constant(node, 1):
        return reason
    return "" if first == second == 2 else "operands are not 2D"


def gemm(node: Node, _params: Params) -> str:
    """``gemm_op_builder.cc``: constant B and C, transA 0, alpha and beta 1, C of one row."""
    if reason := constant(node, 1):
        return reason
    plain = not node.number("transA", 0) and node.real("alpha", 1.0) == 1.0
    if not plain or node.real("beta", 1.0) != 1.0:
        return "transA, alpha or beta"
    if len(node.inputs) != 3:
        return ""
    if reason := constant(node, 2):
        return reason
    columns = node.shape(1)[0 if node.number("transB", 0) else 1]
    rows = {(), (1,), (columns,), (1, columns)}
    return "" if node.shape(2) in rows else "C is no scalar and no row"


def normalization_inputs(node: Node, params: Params) -> str:
    """``normalization_op_builder.cc``: ML Program; equal types, float or float16."""
    if not params.mlprogram:
        return "only ML Programs have it"
    kind = node.value(0).dtype
    others = [node.value(1), *node.inputs[2:3]]
    if any(each.dtype != kind for each in others):
        return "the inputs' types differ"
    return typed(node, 0, (FLOAT, FLOAT16))


def normalization(node: Node, _params: Params) -> str:
    """``normalization_op_builder.cc``: one output, constant scale and bias, stash_type 1."""
    if len(node.outputs) != 1:
        return "outputs of training"
    if node.kind != "InstanceNormalization" and node.number("stash_type", 1) != 1:
        return "stash_type is not 1"
    return constant(node, 1) or (constant(node, 2) if len(node.inputs) > 2 else "")


def batch_normalization(node: Node, _params: Params) -> str:
    """``batch_norm_op_builder.cc``: inference, rank 4, initializers."""
    if len(node.outputs) != 1:
        return "outputs of training"
    if len(node.shape()) != 4:
        return f"rank {len(node.shape())}, not 4"
    if node.number("spatial", 1) != 1:
        return "not spatial"
    missing = [index for index in range(1, 5) if not node.value(index).initializer]
    return f"input {missing[0]} is no initializer" if missing else ""


def lrn(node: Node, _params: Params) -> str:
    """``LRN_op_builder.cc``: rank 3 or 4."""
    rank = len(node.shape())
    return "" if rank in {3, 4} else f"rank {rank}, not 3 or 4"


def reduction(node: Node, params: Params) -> str:
    """``reduction_op_builder.cc``: constant axes; NeuralNetwork has ReduceSum and ReduceMean.

    Axes in a tensor's raw data count as none where noop_with_empty_axes is looked at.
    """
    if not params.mlprogram and node.kind not in {"ReduceSum", "ReduceMean"}:
        return "only ML Programs have it"
    axes = node.value(1)
    if axes.exists and (reason := constant(node, 1)):
        return reason
    empty = axes.tensor is None or not axes.tensor.int64_data
    noop = node.number("noop_with_empty_axes", 0) != 0
    return "noop_with_empty_axes" if empty and noop and not params.mlprogram else ""


def argmax(node: Node, params: Params) -> str:
    """``argmax_op_builder.cc``: NeuralNetwork folds a Cast to int32 in, if nobody else reads."""
    if node.number("select_last_index", 0) != 0:
        return "select_last_index"
    if params.mlprogram or len(node.readers) < 2:
        return ""
    casts = [each for each in node.readers if each.kind == "Cast"]
    shared = any(each.number("to", 0) == INT32 for each in casts)
    return "read by a Cast to int32 and by others" if shared else ""


def softmax(node: Node, _params: Params) -> str:
    """``softmax_op_builder.cc``: before opset 13 a static shape."""
    dynamic = node.since < SOFTMAX_OF_ONE_AXIS and UNKNOWN in node.shape()
    return "dynamic shape before opset 13" if dynamic else ""
