"""Pad: constants by MIL's own operation where it takes the type, all other modes by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.convert.onnx_to_mil.indexing import gathered, taken
from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator

if TYPE_CHECKING:
    from edge.convert.onnx_to_mil.values import Array


@operator("Pad", types="moved")
def pad(node: Node) -> Any:
    """Elements before and after; negative numbers cut. Pads are an input since opset 11."""
    mode = node.attribute("mode", "constant")
    fronts, backs = _pads(node)
    x = node.var()
    for axis, (front, back) in enumerate(zip(fronts, backs, strict=True)):
        size = int(x.shape[axis])
        kept = range(max(0, -front), size - max(0, -back))
        if not kept:
            node.refuse("an empty tensor")
        x = taken(node, x, axis, kept)
    added = [(max(0, front), max(0, back)) for front, back in zip(fronts, backs, strict=True)]
    if mode == "constant":
        return _constant(node, x, added)
    if mode not in {"reflect", "edge", "wrap"}:
        node.refuse(f"no rule for mode = {mode!r}")
    return _by_index(node, x, added, mode)


def _pads(node: Node) -> tuple[list[int], list[int]]:
    rank = node.rank()
    if node.opset < 11:
        flat, axes = [int(n) for n in node.attribute("pads", [])], list(range(rank))
    else:
        flat = node.ints(1, "pads")
        given = node.ints(3, "axes") if node.has(3) else list(range(rank))
        axes = [node.positive(axis) for axis in given]
    fronts, backs = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        fronts[axis], backs[axis] = flat[place], flat[place + len(axes)]
    return fronts, backs


def _fill(node: Node) -> Any:
    if node.opset < 11:
        return node.attribute("value", 0.0)
    return node.array(2, "the value").reshape(-1)[0].item() if node.has(2) else 0


def _constant(node: Node, x: Any, added: list[tuple[int, int]]) -> Any:
    value = _fill(node)
    if not any(front or back for front, back in added):
        return x
    if node.dtype(x) == "fp32":
        flat = [size for pair in added for size in pair]
        # MIL's pad counts from the last dimension; what is not padded in front is left out.
        while len(flat) > 2 and flat[:2] == [0, 0]:
            flat = flat[2:]
        return node.op("pad", x=x, pad=flat, mode="constant", constant_val=float(value))
    return _with_blocks(node, x, added, value)


def _with_blocks(node: Node, x: Any, added: list[tuple[int, int]], value: Any) -> Any:
    """Integers and booleans, which MIL's pad does not take: constants before and after."""
    import numpy as np

    kind = np.bool_ if node.dtype(x) == "bool" else np.int32
    for axis, sizes in enumerate(added):
        shape = [int(size) for size in x.shape]
        parts = []
        for size in sizes:
            block: Array = np.full([*shape[:axis], size, *shape[axis + 1 :]], value, kind)
            parts.append(node.const(block) if size else None)
        values = [each for each in (parts[0], x, parts[1]) if each is not None]
        x = node.op("concat", values=values, axis=axis) if len(values) > 1 else x
    return x


def _by_index(node: Node, x: Any, added: list[tuple[int, int]], mode: str) -> Any:
    if node.has(2):
        node.array(2, "the value")  # means nothing here, but must not be computed
    for axis, (front, back) in enumerate(added):
        size = int(x.shape[axis])
        if mode == "reflect" and max(front, back) >= size:
            node.refuse(f"reflects more than the {size} elements that are there")
        if front or back:
            x = gathered(node, x, _source(size, front, back, mode), axis)
    return x


def _source(size: int, front: int, back: int, mode: str) -> Array:
    import numpy as np

    return np.pad(np.arange(size, dtype=np.int32), (front, back), mode=mode)  # type: ignore[call-overload,no-any-return]


@operator("CenterCropPad", since=18, types="moved")
def center_crop_pad(node: Node) -> Any:
    """Cut or padded with zeros around the middle, to the sizes asked for."""
    asked = node.ints(1, "the shape")
    axes = [node.positive(int(axis)) for axis in node.attribute("axes", range(node.rank()))]
    x, added = node.var(), [(0, 0)] * node.rank()
    for axis, size in zip(axes, asked, strict=True):
        own = int(x.shape[axis])
        if size < own:
            start = (own - size) // 2
            x = taken(node, x, axis, range(start, start + size))
        front = max(0, size - own) // 2
        added[axis] = (front, max(0, size - own) - front)
    if node.dtype(x) != "fp32":
        return _with_blocks(node, x, added, 0)
    flat = [size for pair in added for size in pair]
    return node.op("pad", x=x, pad=flat, mode="constant", constant_val=0.0) if any(flat) else x
