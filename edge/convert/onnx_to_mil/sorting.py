"""Largest and smallest, by value and by place."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator


@operator("ArgMax", "ArgMin")
def place_of_extreme(node: Node) -> Any:
    """The first place of the extreme along ``axis``; the last one by the reversed tensor."""
    kind = "reduce_argmax" if node.kind == "ArgMax" else "reduce_argmin"
    axis, keep = node.axis(0), bool(node.attribute("keepdims", 1))
    x = node.var()
    if not int(node.attribute("select_last_index", 0)):
        return node.op(kind, x=x, axis=axis, keep_dims=keep)
    import numpy as np

    back = node.op(kind, x=node.op("reverse", x=x, axes=[axis]), axis=axis, keep_dims=keep)
    last = node.const(np.int32(node.shape()[axis] - 1))
    return node.op("sub", x=last, y=back)


@operator("TopK")
def top(node: Node) -> Any:
    """The k largest (or smallest) along ``axis``, in order, and their places."""
    count = node.ints(1, "k")[0] if node.opset >= 10 else int(node.attribute("k"))
    largest = bool(node.attribute("largest", 1))
    node.attribute("sorted")  # in order is right for "in any order" too
    axis = node.axis(-1)
    if not 1 <= count <= node.shape()[axis]:
        node.refuse(f"k = {count} of {node.shape()[axis]}")
    return list(node.op("topk", x=node.var(), k=count, axis=axis, ascending=not largest))
