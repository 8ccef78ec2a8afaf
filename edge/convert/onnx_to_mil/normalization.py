"""Normalizations: by MIL's own operation where it says the same, by its definition otherwise."""

from __future__ import annotations

from math import prod
from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator


@operator("BatchNormalization", types="floats")
def batch_normalization(node: Node) -> Any:
    """(x - mean) / sqrt(var + epsilon) scale + bias, in inference."""
    node.attribute("momentum")
    node.attribute("spatial")
    if int(node.attribute("training_mode", 0)):
        node.refuse("training_mode computes statistics")
    epsilon = float(node.attribute("epsilon", 1e-5))
    if 3 <= node.rank() <= 5 and all(node.constant(place) for place in range(1, 5)):
        gamma, beta, mean, variance = (node.array(place, "statistics") for place in range(1, 5))
        return node.op(
            "batch_norm",
            x=node.var(),
            mean=mean.astype("float32"),
            variance=variance.astype("float32"),
            gamma=gamma.astype("float32"),
            beta=beta.astype("float32"),
            epsilon=epsilon,
        )
    shape = [1, -1] + [1] * (node.rank() - 2)
    gamma, beta, mean, variance = (
        node.op("reshape", x=node.var(place), shape=shape) for place in range(1, 5)
    )
    low = node.op("sub", x=node.var(), y=mean)
    return _scaled(node, _over_root(node, low, variance, epsilon), gamma, beta)


def _over_root(node: Node, x: Any, variance: Any, epsilon: float) -> Any:
    """X / sqrt(variance + epsilon)."""
    return node.op("real_div", x=x, y=node.op("sqrt", x=node.op("add", x=variance, y=epsilon)))


def _scaled(node: Node, x: Any, gamma: Any | None, beta: Any | None) -> Any:
    if gamma is not None:
        x = node.op("mul", x=x, y=gamma)
    return x if beta is None else node.op("add", x=x, y=beta)


def _standardized(node: Node, x: Any, axes: list[int], epsilon: float) -> Any:
    low = node.op("sub", x=x, y=node.op("reduce_mean", x=x, axes=axes, keep_dims=True))
    variance = node.op("reduce_mean", x=node.op("mul", x=low, y=low), axes=axes, keep_dims=True)
    return _over_root(node, low, variance, epsilon)


@operator("InstanceNormalization", types="floats")
def instance_normalization(node: Node) -> Any:
    """Each channel of each sample by its own mean and variance."""
    epsilon = float(node.attribute("epsilon", 1e-5))
    if 3 <= node.rank() <= 4 and node.constant(1) and node.constant(2):
        gamma, beta = (node.array(place, "scale").astype("float32") for place in (1, 2))
        return node.op("instance_norm", x=node.var(), gamma=gamma, beta=beta, epsilon=epsilon)
    made = _standardized(node, node.var(), list(range(2, node.rank())), epsilon)
    shape = [1, -1] + [1] * (node.rank() - 2)
    gamma, beta = (node.op("reshape", x=node.var(place), shape=shape) for place in (1, 2))
    return _scaled(node, made, gamma, beta)


@operator("LayerNormalization", since=17, types="floats")
def layer_normalization(node: Node) -> Any:
    """All dimensions from ``axis`` on by their mean and variance."""
    _single_precision(node)
    axis, epsilon = node.axis(-1), float(node.attribute("epsilon", 1e-5))
    axes, sizes = list(range(axis, node.rank())), node.shape()[axis:]
    given = [place for place in (1, 2) if node.has(place)]
    if node.output_used(1) or node.output_used(2):
        return _with_statistics(node, axes, epsilon)
    if all(node.constant(place) and node.shape(place) == sizes for place in given):
        arrays = [node.array(place, "scale").astype("float32") for place in given]
        gamma, beta = (*arrays, None, None)[:2]
        return node.op(
            "layer_norm", x=node.var(), axes=axes, gamma=gamma, beta=beta, epsilon=epsilon
        )
    made = _standardized(node, node.var(), axes, epsilon)
    return _scaled(node, made, node.var(1), node.var(2) if node.has(2) else None)


def _with_statistics(node: Node, axes: list[int], epsilon: float) -> list[Any]:
    """The result, the mean and 1 / sqrt(variance + epsilon)."""
    x = node.var()
    mean = node.op("reduce_mean", x=x, axes=axes, keep_dims=True)
    low = node.op("sub", x=x, y=mean)
    variance = node.op("reduce_mean", x=node.op("mul", x=low, y=low), axes=axes, keep_dims=True)
    inverse = _over_root(node, node.const(_one()), variance, epsilon)
    made = node.op("mul", x=low, y=inverse)
    bias = node.var(2) if node.has(2) else None
    return [_scaled(node, made, node.var(1), bias), mean, inverse]


def _one() -> Any:
    import numpy as np

    return np.float32(1)


def _single_precision(node: Node) -> None:
    if int(node.attribute("stash_type", 1)) != 1:
        node.refuse("no rule for a stash_type other than float")


@operator("RMSNormalization", since=23, types="floats")
def rms_normalization(node: Node) -> Any:
    """X / sqrt(mean(x^2) + epsilon) scale, over all dimensions from ``axis`` on."""
    _single_precision(node)
    axis, epsilon = node.axis(-1), float(node.attribute("epsilon", 1e-5))
    axes, x = list(range(axis, node.rank())), node.var()
    squares = node.op("reduce_mean", x=node.op("mul", x=x, y=x), axes=axes, keep_dims=True)
    return _scaled(node, _over_root(node, x, squares, epsilon), node.var(1), None)


@operator("GroupNormalization", since=18, types="floats")
def group_normalization(node: Node) -> Any:
    """Groups of channels; scale and bias are per group in opset 18, per channel since 21."""
    if node.opset >= 21:
        _single_precision(node)
    groups, epsilon = int(node.attribute("num_groups", 1)), float(node.attribute("epsilon", 1e-5))
    shape = node.shape()
    flat = node.op("reshape", x=node.var(), shape=[shape[0], groups, -1])
    made = _standardized(node, flat, [2], epsilon)
    scales = [node.var(place) for place in (1, 2)]
    if node.opset < 21:
        by_group = [node.op("reshape", x=each, shape=[1, groups, 1]) for each in scales]
        return node.op("reshape", x=_scaled(node, made, *by_group), shape=list(shape))
    whole = node.op("reshape", x=made, shape=list(shape))
    wide = [1, shape[1]] + [1] * (len(shape) - 2)
    by_channel = [node.op("reshape", x=each, shape=wide) for each in scales]
    return _scaled(node, whole, *by_channel)


@operator("MeanVarianceNormalization", types="floats")
def mean_variance_normalization(node: Node) -> Any:
    """(x - mean) / (sqrt(mean of squares - mean squared) + 1e-9), as ONNX defines it."""
    axes = [node.positive(int(axis)) for axis in node.attribute("axes", [0, 2, 3])]
    x = node.var()
    mean = node.op("reduce_mean", x=x, axes=axes, keep_dims=True)
    squares = node.op("reduce_mean", x=node.op("mul", x=x, y=x), axes=axes, keep_dims=True)
    variance = node.op("sub", x=squares, y=node.op("mul", x=mean, y=mean))
    deviation = node.op("add", x=node.op("sqrt", x=variance), y=1e-9)
    return node.op("real_div", x=node.op("sub", x=x, y=mean), y=deviation)


@operator("LpNormalization", types="floats")
def lp_normalization(node: Node) -> Any:
    """X over the sum of |x| or the root of the sum of squares along ``axis``."""
    axis, order, x = node.axis(-1), int(node.attribute("p", 2)), node.var()
    if order == 1:
        norm = node.op("reduce_l1_norm", x=x, axes=[axis], keep_dims=True)
    else:
        squares = node.op("reduce_sum_square", x=x, axes=[axis], keep_dims=True)
        norm = node.op("sqrt", x=squares)
    # Where all are zero ONNX gives zero: 0 / 1.
    empty = node.cast(node.op("equal", x=norm, y=0.0), "fp32")
    return node.op("real_div", x=x, y=node.op("add", x=norm, y=empty))


@operator("LRN", types="floats")
def local_response(node: Node) -> Any:
    """X / (bias + alpha / size sum of squares over ``size`` channels)^beta.

    By a pool over channels: where the window of an even size lies, MIL's own does not say.
    """
    size, alpha = int(node.attribute("size")), float(node.attribute("alpha", 1e-4))
    beta, bias = float(node.attribute("beta", 0.75)), float(node.attribute("bias", 1.0))
    shape, x = node.shape(), node.var()
    flat = [shape[0], 1, shape[1], prod(shape[2:])]
    squares = node.op("reshape", x=node.op("mul", x=x, y=x), shape=flat)
    front = (size - 1) // 2
    wide = node.op("pad", x=squares, pad=[front, size - 1 - front, 0, 0], mode="constant")
    mean = node.op("avg_pool", x=wide, kernel_sizes=[size, 1], strides=[1, 1], pad_type="valid")
    scaled = node.op("add", x=node.op("mul", x=mean, y=alpha), y=bias)
    base = node.op("reshape", x=scaled, shape=list(shape))
    return node.op("real_div", x=x, y=node.op("pow", x=base, y=beta))
