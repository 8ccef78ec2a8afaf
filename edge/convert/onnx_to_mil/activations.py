"""Activations: one input, one output of the same shape."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.elementwise import natural_log
from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator


@operator("Relu")
def relu(node: Node) -> Any:
    """max(x, 0); integers since opset 14, which MIL's relu does not take."""
    x = node.var()
    if node.dtype(x) == "int32":
        return node.op("maximum", x=x, y=_zero(node))
    return node.op("relu", x=x)


def _zero(node: Node) -> Any:
    import numpy as np

    return node.const(np.int32(0))


@operator("LeakyRelu", types="floats")
def leaky_relu(node: Node) -> Any:
    """x, or alpha x where x < 0."""
    return node.op("leaky_relu", x=node.var(), alpha=float(node.attribute("alpha", 0.01)))


@operator("PRelu", types="floats")
def prelu(node: Node) -> Any:
    """x, or slope x where x < 0. MIL's own has one slope a channel, and in images only."""
    x, rank = node.var(), node.rank()
    if node.constant(1):
        slope = node.array(1, "slope")
        channels = node.shape()[1] if rank == 4 else 0
        wide = (1,) * (rank - slope.ndim) + slope.shape
        if channels and wide == (1, channels) + (1,) * (rank - 2):
            return node.op("prelu", x=x, alpha=slope.reshape(-1).astype("float32"))
    negative = node.op("mul", x=x, y=node.var(1))
    return node.op("select", cond=node.op("less", x=x, y=0.0), a=negative, b=x)


@operator("Elu", types="floats")
def elu(node: Node) -> Any:
    """x, or alpha (e^x - 1) where x < 0."""
    return node.op("elu", x=node.var(), alpha=float(node.attribute("alpha", 1.0)))


@operator("Selu", types="floats")
def selu(node: Node) -> Any:
    """Gamma elu(x), with ONNX's own constants."""
    alpha = float(node.attribute("alpha", 1.67326319217681884765625))
    gamma = float(node.attribute("gamma", 1.05070102214813232421875))
    return node.op("mul", x=node.op("elu", x=node.var(), alpha=alpha), y=gamma)


@operator("Celu", since=12, types="floats")
def celu(node: Node) -> Any:
    """max(0, x) + min(0, alpha (e^(x / alpha) - 1))."""
    alpha = float(node.attribute("alpha", 1.0))
    x = node.var()
    curve = node.op("exp", x=node.op("real_div", x=x, y=alpha))
    low = node.op("mul", x=node.op("sub", x=curve, y=1.0), y=alpha)
    return node.op("add", x=node.op("relu", x=x), y=node.op("minimum", x=low, y=0.0))


@operator("ThresholdedRelu", since=10, types="floats")
def thresholded_relu(node: Node) -> Any:
    """X where x > alpha, else 0. MIL's own operation keeps x at alpha itself, so not that."""
    x = node.var()
    above = node.op("greater", x=x, y=float(node.attribute("alpha", 1.0)))
    return node.op("mul", x=x, y=node.cast(above, "fp32"))


@operator("HardSigmoid", types="floats")
def hard_sigmoid(node: Node) -> Any:
    """max(0, min(1, alpha x + beta))."""
    alpha, beta = float(node.attribute("alpha", 0.2)), float(node.attribute("beta", 0.5))
    return node.op("sigmoid_hard", x=node.var(), alpha=alpha, beta=beta)


@operator("HardSwish", since=14, types="floats")
def hard_swish(node: Node) -> Any:
    """X max(0, min(1, x / 6 + 1/2))."""
    x = node.var()
    return node.op("mul", x=x, y=node.op("sigmoid_hard", x=x, alpha=1 / 6, beta=0.5))


@operator("Softplus", types="floats")
def softplus(node: Node) -> Any:
    """ln(1 + e^x)."""
    return node.op("softplus", x=node.var())


@operator("Softsign", types="floats")
def softsign(node: Node) -> Any:
    """X / (1 + |x|)."""
    return node.op("softsign", x=node.var())


@operator("Mish", since=18, types="floats")
def mish(node: Node) -> Any:
    """X tanh(ln(1 + e^x))."""
    x = node.var()
    return node.op("mul", x=x, y=node.op("tanh", x=node.op("softplus", x=x)))


@operator("Gelu", since=20, types="floats")
def gelu(node: Node) -> Any:
    """Exact, or with tanh where the node says so."""
    modes = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}
    asked = node.attribute("approximate", "none")
    if asked not in modes:
        node.refuse(f"no rule for approximate = {asked!r}")
    return node.op("gelu", x=node.var(), mode=modes[asked])


@operator("Swish", since=24, types="floats")
def swish(node: Node) -> Any:
    """X sigmoid(alpha x)."""
    x, alpha = node.var(), float(node.attribute("alpha", 1.0))
    inner = x if alpha == 1 else node.op("mul", x=x, y=alpha)
    return node.op("mul", x=x, y=node.op("sigmoid", x=inner))


@operator("Softmax", "LogSoftmax", until=12, types="floats")
def softmax_flat(node: Node) -> Any:
    """Before opset 13: over all dimensions from ``axis`` on, as one."""
    shape = node.shape()
    axis = node.positive(int(node.attribute("axis", 1)), rank=len(shape))
    x = node.var()
    if axis == len(shape) - 1:
        return _softmax(node, x, axis)
    flat = node.op("reshape", x=x, shape=[*shape[:axis], -1] if axis else [1, -1])
    return node.op("reshape", x=_softmax(node, flat, -1), shape=list(shape))


@operator("Softmax", "LogSoftmax", since=13, types="floats")
def softmax(node: Node) -> Any:
    """Over one dimension."""
    return _softmax(node, node.var(), node.axis(-1))


def _softmax(node: Node, x: Any, axis: int) -> Any:
    if node.kind == "Softmax":
        return node.op("softmax", x=x, axis=axis)
    # x - max - ln sum e^(x - max): the logarithm of a softmax is -inf where that underflows.
    low = node.op("sub", x=x, y=node.op("reduce_max", x=x, axes=[axis], keep_dims=True))
    total = node.op("reduce_sum", x=node.op("exp", x=low), axes=[axis], keep_dims=True)
    return node.op("sub", x=low, y=natural_log(node, total))


@operator("Dropout")
def dropout(node: Node) -> Any:
    """Nothing, in inference: the mask is all true. Before opset 10 it has no meaning then."""
    import numpy as np

    node.attribute("ratio")
    node.attribute("seed")
    if node.has(2) and bool(node.array(2, "training_mode")):
        node.refuse("training_mode drops at random")
    return [node.value(0), np.ones(node.shape(), np.bool_) if node.opset >= 10 else None]
