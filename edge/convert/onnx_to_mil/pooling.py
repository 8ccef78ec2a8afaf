"""Pools over windows and over everything."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.windows import Window, window


@operator("GlobalAveragePool", "GlobalMaxPool", types="floats")
def global_pool(node: Node) -> Any:
    """The mean or the largest of each channel."""
    kind = "reduce_mean" if node.kind == "GlobalAveragePool" else "reduce_max"
    return node.op(kind, x=node.var(), axes=list(range(2, node.rank())), keep_dims=True)


@operator("MaxPool", types="floats")
def max_pool(node: Node) -> Any:
    """The largest of each window; its place (the second output) is refused."""
    if node.output_used(1):
        node.refuse("no rule for the output Indices")
    node.attribute("storage_order")
    w = _window(node)
    return _pool(node, "max_pool", node.var(), _without_ceil(node, w))


@operator("AveragePool", types="floats")
def average_pool(node: Node) -> Any:
    """The mean of each window, with or without the padding.

    With ``ceil_mode`` ONNX never counts what lies beyond the padding: where a window reaches there,
    the sums are divided by counts made now.
    """
    w = _window(node)
    counted = bool(int(node.attribute("count_include_pad", 0)))
    grown = _without_ceil(node, w)
    if grown == w or not counted:
        return _pool(node, "avg_pool", node.var(), grown, exclude_padding_from_average=not counted)
    return _recounted(node, w, grown)


def _window(node: Node) -> Window:
    found = window(node, tuple(int(n) for n in node.attribute("kernel_shape")))
    if set(found.dilations) != {1}:
        node.refuse("no rule for dilations: MIL's pools have none")
    return found


def _without_ceil(node: Node, w: Window) -> Window:
    """``ceil_mode`` as more padding behind: a last window counts that begins inside."""
    from dataclasses import replace

    if not int(node.attribute("ceil_mode", 0)):
        return w
    after = list(w.after)
    for place, size in enumerate(node.shape()[2:]):
        kernel, stride = w.kernel[place], w.strides[place]
        padded = size + w.before[place] + w.after[place]
        count = -(-(padded - kernel) // stride) + 1
        if (count - 1) * stride >= size + w.before[place]:
            count -= 1
        after[place] += max(0, (count - 1) * stride + kernel - padded)
    return replace(w, after=tuple(after))


def _pool(node: Node, kind: str, x: Any, w: Window, **more: Any) -> Any:
    # MIL says nothing of windows that lie in the padding alone.
    for before, after, kernel in zip(w.before, w.after, w.kernel, strict=True):
        if before >= kernel or after >= kernel:
            node.refuse("a window lies in the padding alone")
    return node.op(
        kind,
        x=x,
        kernel_sizes=list(w.kernel),
        strides=list(w.strides),
        pad_type="custom",
        pad=w.pads,
        **more,
    )


def _recounted(node: Node, w: Window, grown: Window) -> Any:
    """The mean over the kernel's whole size, scaled to the elements that ONNX counts."""
    import numpy as np

    mean = _pool(node, "avg_pool", node.var(), grown, exclude_padding_from_average=False)
    counts = np.ones((1, 1, *mean.shape[2:]), np.float32)
    for place, size in enumerate(node.shape()[2:]):
        starts = np.arange(mean.shape[place + 2]) * w.strides[place]
        limit = size + w.before[place] + w.after[place]
        inside = np.minimum(starts + w.kernel[place], limit) - starts
        shape = [1] * (2 + len(w.kernel))
        shape[place + 2] = -1
        counts = counts * (w.kernel[place] / inside).reshape(shape)
    return node.op("mul", x=mean, y=node.const(counts.astype(np.float32)))
