"""Explicit Q/DQ as TensorRT takes it, and the proof that a graph is that.

TensorRT quantizes symmetrically: zero points are 0, activations and weights int8, and a bias is
never quantized (its DequantizeLinear takes int8, int4 and fp8 alone). ONNX Runtime's quantizer
writes biases as int32 with a DequantizeLinear, whose value is exactly int32 times scale: they
become that float constant here, and nothing else changes. Whoever else reads the graph computes
the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.step import Facts, step

if TYPE_CHECKING:
    import onnx

REMEDY = (
    'the target needs [int8] activations = "int8", weights = "int8", symmetric_activations = true, '
    'symmetric_weights = true, format = "qdq"'
)


@step(version=1, tools=("onnx", "numpy"), timeout=1800)
def tensorrt_qdq(out: Path, *, model: Path) -> Facts:
    """``model.onnx`` with float biases, whose Q/DQ pairs TensorRT takes.

    Facts: ``biases`` (that became float), ``quantize``, ``dequantize`` (nodes that are left).
    Raises :class:`errors.ModelRefused` for asymmetric or unsigned quantization, naming the node.
    """
    import onnx

    loaded = onnx.load(model)
    biases = _float_biases(loaded.graph)
    counts = check(loaded)
    graph.save(loaded, out / "model.onnx")
    return {"biases": biases, **counts}


def _float_biases(body: onnx.GraphProto) -> int:
    """Replace each DequantizeLinear of an int32 constant by its value; how many."""
    import onnx
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in body.initializer}
    found = [
        node
        for node in body.node
        if node.op_type == "DequantizeLinear"
        and node.input[0] in constants
        and constants[node.input[0]].data_type == onnx.TensorProto.INT32
    ]
    for node in found:
        value = _dequantized(node, constants)
        body.initializer.append(numpy_helper.from_array(value, node.output[0]))
        body.node.remove(node)
    _drop_unread(body, {name for node in found for name in node.input})
    return len(found)


def _dequantized(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> Any:
    """The float values of a quantized bias: one dimension, one scale or one for each element."""
    import numpy as np
    from onnx import numpy_helper

    arrays = [numpy_helper.to_array(constants[name]) for name in node.input]
    if len(arrays) == 3 and arrays[2].any():
        raise _refused(node, "its zero point is not 0")
    value, scale = arrays[:2]
    return (value.astype(scale.dtype) * scale).astype(np.result_type(scale))


def _drop_unread(body: onnx.GraphProto, names: set[str]) -> None:
    read = {name for node in body.node for name in node.input}
    read |= {value.name for value in body.output}
    for tensor in [each for each in body.initializer if each.name in names - read]:
        body.initializer.remove(tensor)


def check(loaded: onnx.ModelProto) -> dict[str, int]:
    """Counts of Q and DQ nodes; :class:`errors.ModelRefused` for one that TensorRT refuses."""
    constants = {tensor.name: tensor for tensor in loaded.graph.initializer}
    counts = {"quantize": 0, "dequantize": 0}
    for node in loaded.graph.node:
        if node.op_type in ("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"):
            raise _refused(node, "TensorRT takes explicit Q/DQ pairs alone")
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            _symmetric(node, constants)
            counts[node.op_type.removesuffix("Linear").lower()] += 1
    return counts


def _symmetric(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> None:
    import onnx
    from onnx import numpy_helper

    # Without a zero point the type is uint8, by the operator's own default.
    zero = constants.get(node.input[2]) if len(node.input) > 2 else None
    if zero is None:
        raise _refused(node, "it has no constant zero point, so it is uint8")
    allowed = {onnx.TensorProto.INT8, onnx.TensorProto.INT4, onnx.TensorProto.FLOAT8E4M3FN}
    if zero.data_type not in allowed:
        kind = onnx.TensorProto.DataType.Name(zero.data_type).lower()
        raise _refused(node, f"it quantizes to {kind}")
    if numpy_helper.to_array(zero).astype("float32").any():
        raise _refused(node, "its zero point is not 0")


def _refused(node: onnx.NodeProto, why: str) -> errors.ModelRefused:
    return errors.ModelRefused(
        f"TensorRT does not take the {node.op_type} {node.name or node.output[0]!r}: {why}",
        remedy=REMEDY,
    )
