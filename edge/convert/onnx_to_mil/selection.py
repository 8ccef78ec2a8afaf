"""Triangles, one-hot vectors, ranges: what builds or masks tensors by place."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator


@operator("Trilu", since=14, types="moved")
def triangle(node: Node) -> Any:
    """The upper or lower triangle from the k-th diagonal on; the rest is zero."""
    import numpy as np

    offset = node.ints(1, "k")[0] if node.has(1) else 0
    ones = np.ones(node.shape()[-2:], np.bool_)
    upper = bool(node.attribute("upper", 1))
    mask = np.triu(ones, offset) if upper else np.tril(ones, offset)
    x = node.var()
    if node.dtype(x) == "bool":
        return node.op("logical_and", x=x, y=node.const(mask))
    zero = np.float32(0) if node.dtype(x) == "fp32" else np.int32(0)
    whole = np.broadcast_to(mask, node.shape()).copy()
    return node.op("select", cond=node.const(whole), a=x, b=node.const(zero))


@operator("EyeLike", since=9, types="moved")
def eye_like(node: Node) -> Any:
    """Ones on a diagonal: a constant, since only the input's shape is read."""
    import numpy as np
    from onnx import helper

    kind = int(node.attribute("dtype", node.value(0).type))
    rows, columns = node.shape()
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return np.eye(rows, columns, int(node.attribute("k", 0)), dtype=dtype)


@operator("OneHot", since=9, types="moved")
def one_hot(node: Node) -> Any:
    """Vectors with one value that differs; indices outside give none, which equality says."""
    import numpy as np

    depth = node.ints(1, "depth")[0]
    rank = node.rank() + 1
    axis = node.positive(int(node.attribute("axis", -1)), rank=rank)
    given = node.cast(node.var(0), "int32")
    negative = node.op("less", x=given, y=node.const(np.int32(0)))
    shifted = node.op("add", x=given, y=node.const(np.int32(depth)))
    indices = node.op("select", cond=negative, a=shifted, b=given)
    wide = node.op("expand_dims", x=indices, axes=[axis])
    places = np.arange(depth, dtype=np.int32).reshape([-1 if n == axis else 1 for n in range(rank)])
    hit = node.op("equal", x=wide, y=node.const(places))
    return _chosen(node, hit)


def _chosen(node: Node, hit: Any) -> Any:
    values = node.array(2, "the values")
    off, on = (node.const(each) for each in values.reshape(-1))
    if values.dtype.kind == "b":
        low, high = bool(values[0]), bool(values[1])
        if low == high:
            node.refuse("both values are the same")
        return hit if high else node.op("logical_not", x=hit)
    shape = [int(size) for size in hit.shape]
    wide = node.op("fill", shape=shape, value=on)
    return node.op("select", cond=hit, a=wide, b=off)


@operator("ReverseSequence", since=10, types="moved")
def reverse_sequence(node: Node) -> Any:
    """Each row's first elements in reverse, by constant lengths: a gather by place."""
    import numpy as np

    lengths = node.ints(1, "the lengths")
    time, batch = int(node.attribute("time_axis", 0)), int(node.attribute("batch_axis", 1))
    if {time, batch} != {0, 1}:
        node.refuse("no rule for axes other than 0 and 1")
    places = np.broadcast_to(
        np.arange(node.shape()[time])[:, None], (node.shape()[time], len(lengths))
    )
    own = np.array(lengths)[None]
    turned = np.where(places < own, own - 1 - places, places).astype(np.int32)
    order = turned if time == 0 else turned.T
    shape = node.shape()
    whole = np.broadcast_to(order.reshape(*shape[:2], *[1] * (len(shape) - 2)), shape).copy()
    return node.op("gather_along_axis", x=node.var(), indices=node.const(whole), axis=time)
