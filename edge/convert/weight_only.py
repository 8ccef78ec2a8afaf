"""Weight-only quantization: MatMul with constant weights becomes MatMulNBits (com.microsoft).

The weights are quantized block by block along the summed axis, by the very kernels that
``onnxruntime.quantization.matmul_nbits_quantizer`` calls. That module itself is not used: it
needs onnx_ir, sets up logging for the whole process when imported, is called
matmul_4bits_quantizer up to onnxruntime 1.21, leaves Gemm alone, and writes a weight that two
nodes share twice under one name. The bytes are the same (tests/convert/test_weight_only.py).

A Gemm is MatMul and Add where its weights and scales are constant. What would not become smaller
stays as it is. 8 bits need onnxruntime 1.23: 1.22 loads them and fails in the first run, 1.21
refuses to load ("Only 4b quantization is supported").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.convert import graph_values, run_model
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

DOMAIN = "com.microsoft"
BITS = (4, 8)
BLOCK_SIZES = (16, 32, 64, 128, 256)  # what the kernels take
OLDEST = {4: (1, 19), 8: (1, 23)}  # releases that run the result, tried one by one


@dataclass(frozen=True)
class Scheme:
    """How weights are quantized: bits each, values a block, with or without a zero point."""

    bits: int
    block_size: int
    symmetric: bool


@dataclass
class Progress:
    """What has been done: nodes that were quantized, why others were left, weights by key.

    ``weights`` are those of the present graph, ``stems`` their names in all of them.
    """

    quantized: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    weights: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stems: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Product:
    """A product with constant weights: ``weights`` [K, N], and a bias that is added, or ""."""

    node: onnx.NodeProto
    weights: Array
    bias: str = ""
    bias_scale: float = 1.0


@step(version=1, tools=("onnx", "onnxruntime", "numpy"), timeout=1800)
def weight_only(out: Path, *, model: Path, bits: int, block_size: int, symmetric: bool) -> Facts:
    """``model.onnx`` with the constant 2-D weights of MatMul and Gemm in 4 or 8 bits.

    Facts: ``quantized`` (names of nodes), ``left`` (why, by node), ``bytes_before`` and
    ``bytes_after`` (of the files). Raises :class:`errors.UsageError` for bits or a block size that
    there are not, :class:`errors.ModelRefused` for weights with NaN or infinity, where there is
    nothing to quantize, and for a release of onnxruntime that cannot run the result.
    """
    scheme = _scheme(bits, block_size, symmetric=symmetric)
    loaded = graph.read(model)
    graph_values.drop_initializer_inputs(loaded)
    graph_values.constants_to_initializers(loaded.graph)
    graph_values.name_nodes(loaded.graph)
    progress = Progress()
    for body in graph_values.walk(loaded.graph):
        _quantize_graph(body, loaded.graph, scheme, progress)
    if not progress.quantized:
        raise errors.ModelRefused(
            "nothing to quantize: no MatMul with constant weights",
            remedy=next((f"{n}: {why}" for n, why in progress.left.items()), ""),
        )
    _drop_unread_weights(loaded)
    _import_domain(loaded)
    graph.save(loaded, out / "model.onnx")
    run_model.open_session(out / "model.onnx", level="all")
    return {
        "quantized": progress.quantized,
        "left": progress.left,
        "bytes_before": model.stat().st_size,
        "bytes_after": (out / "model.onnx").stat().st_size,
    }


def _scheme(bits: int, block_size: int, *, symmetric: bool) -> Scheme:
    import onnxruntime as ort

    for what, value, known in (("bits", bits, BITS), ("block_size", block_size, BLOCK_SIZES)):
        if value not in known:
            raise errors.UsageError(
                f"weight-only quantization has no {what} = {value}",
                remedy=f"one of {', '.join(map(str, known))}",
            )
    release = tuple(int(part) for part in ort.__version__.split(".")[:2])
    if release < OLDEST[bits]:
        oldest = ".".join(map(str, OLDEST[bits]))
        raise errors.ModelRefused(
            f"onnxruntime {ort.__version__} does not run MatMulNBits with {bits} bits",
            remedy=f"pin onnxruntime {oldest} or newer in the target, or use 4 bits",
        )
    return Scheme(bits, block_size, symmetric)


def _quantize_graph(
    body: onnx.GraphProto, main: onnx.GraphProto, scheme: Scheme, progress: Progress
) -> None:
    """Quantize the nodes of one graph; weights of its own or of the main graph."""
    progress.weights.clear()
    if body is not main:
        graph_values.name_nodes(body)
    for node in list(body.node):
        found = _product(node, body, main)
        if isinstance(found, str):
            if found:
                progress.left[node.name] = found
            continue
        _refuse_not_finite(found)
        if _bytes(found.weights, scheme) >= found.weights.nbytes:
            progress.left[node.name] = "its weights would not become smaller"
            continue
        _replace(body, found, scheme, progress)
        progress.quantized.append(node.name)


def _product(node: onnx.NodeProto, body: onnx.GraphProto, main: onnx.GraphProto) -> Product | str:
    """The product that a node computes; why it is left, or "" for any other operator."""
    import onnx

    if node.op_type not in {"MatMul", "Gemm"} or graph_values.plain_domain(node.domain):
        return ""
    tensors = {**graph_values.initializers(main), **graph_values.initializers(body)}
    tensor = tensors.get(node.input[1])
    if tensor is None:
        return "its weights are no constant"
    weights = onnx.numpy_helper.to_array(tensor)
    if weights.ndim != 2:
        return f"its weights have {weights.ndim} dimensions, not 2"
    if weights.dtype.name not in {"float32", "float16"}:
        return f"its weights are {onnx.TensorProto.DataType.Name(tensor.data_type).lower()}"
    return Product(node, weights) if node.op_type == "MatMul" else _gemm(node, weights)


def _gemm(node: onnx.NodeProto, weights: Array) -> Product | str:
    """Gemm, alpha * A * B' + beta * C: alpha goes into the weights, beta into a Mul."""
    import numpy as np
    import onnx

    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if values.get("transA"):
        return "its input is transposed (transA)"
    array = weights.T if values.get("transB") else weights
    array = array * np.asarray(values.get("alpha", 1.0), weights.dtype)
    beta = float(values.get("beta", 1.0))
    bias = node.input[2] if len(node.input) > 2 and beta else ""
    return Product(node, np.ascontiguousarray(array), bias, beta)


def _refuse_not_finite(product: Product) -> None:
    import numpy as np

    if not np.isfinite(product.weights).all():
        raise errors.ModelRefused(
            f"the weights {product.node.input[1]!r} of {product.node.name!r} hold NaN or infinity",
            remedy="train or export the model again: its outputs cannot be right either",
        )


def _bytes(weights: Array, scheme: Scheme) -> int:
    """Bytes of quantized weights, scales and zero points."""
    rows, columns = weights.shape
    blocks = -(-rows // scheme.block_size)
    points = 0 if scheme.symmetric else columns * -(-blocks * scheme.bits // 8)
    packed = columns * blocks * scheme.block_size * scheme.bits // 8
    return int(packed + columns * blocks * weights.dtype.itemsize + points)


# ----------------------------------------------------------------------------------- nodes
def _replace(body: onnx.GraphProto, product: Product, scheme: Scheme, progress: Progress) -> None:
    """Put MatMulNBits, and the Add of a bias, in the place of the node."""
    import onnx

    node = product.node
    position = list(body.node).index(node)
    rows, columns = product.weights.shape
    names = _weights(body, product, scheme, progress)
    output = node.output[0]
    made = onnx.helper.make_node(
        "MatMulNBits",
        [node.input[0], *names],
        [f"{output}_product" if product.bias else output],
        name=f"{node.name}_Q{scheme.bits}",
        domain=DOMAIN,
        K=rows,
        N=columns,
        bits=scheme.bits,
        block_size=scheme.block_size,
    )
    nodes = [made, *_bias_nodes(body, product, made.output[0])]
    body.node.remove(node)
    for offset, each in enumerate(nodes):
        body.node.insert(position + offset, each)


def _bias_nodes(body: onnx.GraphProto, product: Product, output: str) -> Iterator[onnx.NodeProto]:
    import numpy as np
    import onnx

    node, bias = product.node, product.bias
    if bias and product.bias_scale != 1.0:
        scale = np.asarray(product.bias_scale, product.weights.dtype)
        bias = f"{node.output[0]}_scaled_bias"
        body.initializer.append(onnx.numpy_helper.from_array(scale, f"{bias}_scale"))
        yield onnx.helper.make_node(
            "Mul", [product.bias, f"{bias}_scale"], [bias], name=f"{node.name}_scale_bias"
        )
    if bias:
        yield onnx.helper.make_node(
            "Add", [output, bias], [node.output[0]], name=f"{node.name}_bias"
        )


def _weights(
    body: onnx.GraphProto, product: Product, scheme: Scheme, progress: Progress
) -> tuple[str, ...]:
    """Names of packed weights, scales and zero points in ``body``; shared ones are made once."""
    import onnx

    key = f"{product.node.input[1]}{_attributes(product.node)}"
    if key not in progress.weights:
        made = quantize(product.weights, scheme)
        # Two Gemms may read one weight with another transB or alpha.
        stem = f"{product.node.input[1]}_Q{scheme.bits}"
        stem += f"_{len(progress.stems)}" if stem in progress.stems else ""
        progress.stems.add(stem)
        names = (stem, f"{stem}_scales", f"{stem}_zero_points")[: len(made)]
        body.initializer.extend(map(onnx.numpy_helper.from_array, made, names))
        progress.weights[key] = names
    return progress.weights[key]


def _attributes(node: onnx.NodeProto) -> str:
    import onnx

    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return f" {values.get('transB', 0)} {values.get('alpha', 1.0)}"


def quantize(weights: Array, scheme: Scheme) -> tuple[Array, ...]:
    """Packed weights, scales and (when not symmetric) zero points of ``weights`` [K, N].

    ``weights`` are float32 or float16, so are the scales [N, blocks]; packed weights are uint8
    [N, blocks, bytes of a block], zero points uint8 [N, bytes of a row].
    """
    import numpy as np
    from onnxruntime.capi import _pybind_state as native

    rows, columns = weights.shape
    size, bits = scheme.block_size, scheme.bits
    blocks = -(-rows // size)
    padded = np.zeros((blocks * size, columns), weights.dtype)
    padded[:rows] = weights
    packed = np.zeros((columns, blocks, size * bits // 8), np.uint8)
    points = np.zeros((columns, -(-blocks * bits // 8)), np.uint8)
    scales = np.zeros((columns, blocks), weights.dtype)
    kernel = getattr(native, f"quantize_matmul_{bits}bits")
    kernel(packed, padded, scales, points, size, columns, rows, scheme.symmetric)
    return (packed, scales) if scheme.symmetric else (packed, scales, points)


# ----------------------------------------------------------------------------------- model
def _drop_unread_weights(model: onnx.ModelProto) -> None:
    """Initializers that no graph reads any more."""
    bodies = list(graph_values.walk(model.graph))
    read = {name for body in bodies for node in body.node for name in node.input}
    read |= {value.name for body in bodies for value in body.output}
    for body in bodies:
        for tensor in [each for each in body.initializer if each.name not in read]:
            body.initializer.remove(tensor)


def _import_domain(model: onnx.ModelProto) -> None:
    import onnx

    if DOMAIN not in {entry.domain for entry in model.opset_import}:
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
