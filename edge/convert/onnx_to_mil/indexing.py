"""Slices, gathers and scatters. Indices are made positive: since iOS 17 MIL takes no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator

if TYPE_CHECKING:
    from edge.convert.onnx_to_mil.values import Array


@operator("Slice", types="moved")
def cut(node: Node) -> Any:
    """Ranges of axes; attributes before opset 10, constant inputs since."""
    made = node.var()
    for axis, (start, stop, step) in sorted(_ranges(node).items()):
        size = node.shape()[axis]
        places = range(*slice(start, stop, step).indices(size))
        if not places:
            return _empty(node)
        made = taken(node, made, axis, places)
    return made


def _empty(node: Node) -> Any:
    """A tensor without elements is no MIL variable but a constant: Concat drops it."""
    import numpy as np
    from onnx import helper

    sizes = list(node.shape())
    for axis, bounds in _ranges(node).items():
        sizes[axis] = len(range(*slice(*bounds).indices(sizes[axis])))
    return np.zeros(sizes, helper.tensor_dtype_to_np_dtype(node.value(0).type))


def _ranges(node: Node) -> dict[int, tuple[int | None, int | None, int]]:
    if node.opset < 10:
        starts, stops = ([int(n) for n in node.attribute(name, [])] for name in ("starts", "ends"))
        axes = [int(n) for n in node.attribute("axes", range(len(starts)))]
        steps = [1] * len(starts)
    else:
        starts, stops = node.ints(1, "starts"), node.ints(2, "ends")
        axes = node.ints(3, "axes") if node.has(3) else list(range(len(starts)))
        steps = node.ints(4, "steps") if node.has(4) else [1] * len(starts)
    if 0 in steps:
        node.refuse("a step of 0")
    found = {}
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        place = node.positive(axis)
        found[place] = _bounds(start, stop, step, node.shape()[place])
    return found


def _bounds(start: int, stop: int, step: int, size: int) -> tuple[int | None, int | None, int]:
    """ONNX clamps ends to [-1, size] after counting negative ones from the back."""
    first = start + size if start < 0 else start
    last = stop + size if stop < 0 else stop
    if step > 0:
        return min(max(first, 0), size), min(max(last, 0), size), step
    low = min(max(last, -1), size - 1)
    return min(max(first, 0), size - 1), None if low < 0 else low, step


def taken(node: Node, x: Any, axis: int, places: range) -> Any:
    """``places`` of one axis."""
    rank, sizes = len(x.shape), [int(size) for size in x.shape]
    if places == range(sizes[axis]):
        return x
    if places.step < 0:
        import numpy as np

        return gathered(node, x, np.array(places, np.int32), axis)
    begin, stride = [0] * rank, [1] * rank
    ends = list(sizes)
    begin[axis], ends[axis], stride[axis] = places.start, places[-1] + 1, places.step
    return node.op("slice_by_index", x=x, begin=begin, end=ends, stride=stride)


def gathered(node: Node, x: Any, places: Array, axis: int) -> Any:
    """Constant ``places`` (not negative) of one axis, of booleans too."""
    through = node.cast(x, "int32") if node.dtype(x) == "bool" else x
    made = node.op("gather", x=through, indices=node.const(places), axis=axis)
    return node.cast(made, node.dtype(x))


def positive_indices(node: Node, index: int, size: int) -> Any:
    """Input ``index`` as indices into ``size`` values, none of them negative."""
    import numpy as np

    if node.constant(index):
        array = node.array(index, "indices")
        if array.size and not -size <= array.min() <= array.max() < size:
            node.refuse(f"an index outside of {size} values")
        return node.const(np.where(array < 0, array + size, array).astype(np.int32))
    given = node.var(index)
    low = node.op("less", x=given, y=node.const(np.int32(0)))
    shifted = node.op("add", x=given, y=node.const(np.int32(size)))
    return node.op("select", cond=low, a=shifted, b=given)


@operator("Gather", types="moved")
def gather(node: Node) -> Any:
    """Slices of an axis by index."""
    axis = node.axis(0)
    indices = positive_indices(node, 1, node.shape()[axis])
    return _moved(node, "gather", indices=indices, axis=axis)


@operator("GatherElements", since=11, types="moved")
def gather_elements(node: Node) -> Any:
    """Elements of an axis by index, in the shape of the indices."""
    axis = node.axis(0)
    _same_but(node, axis, node.shape(1))
    indices = positive_indices(node, 1, node.shape()[axis])
    return _moved(node, "gather_along_axis", indices=indices, axis=axis)


def _same_but(node: Node, axis: int, shape: tuple[int, ...]) -> None:
    """MIL wants the sizes of all other axes equal; ONNX takes smaller ones too."""
    own = node.shape()
    if any(a != b for place, (a, b) in enumerate(zip(own, shape, strict=True)) if place != axis):
        node.refuse(f"no rule for indices of shape {shape} into {own}: other axes must be whole")


def _moved(node: Node, kind: str, **arguments: Any) -> Any:
    """A gather; booleans go through int32, which MIL's gathers take."""
    x = node.var()
    made = node.op(kind, x=node.cast(x, "int32") if node.dtype(x) == "bool" else x, **arguments)
    return node.cast(made, node.dtype(x))


@operator("GatherND", since=11, types="moved")
def gather_nd(node: Node) -> Any:
    """Slices by tuples of indices."""
    batch = int(node.attribute("batch_dims", 0))
    if batch and node.target < 17:
        node.refuse("batch_dims needs the target iOS17")
    indices = _positive_tuples(node, 1, batch)
    return _moved(node, "gather_nd", indices=indices, batch_dims=batch or None)


def _positive_tuples(node: Node, index: int, batch: int = 0) -> Any:
    """Tuples of indices, none negative: sizes differ by place in the tuple."""
    import numpy as np

    width = node.shape(index)[-1]
    sizes = np.array(node.shape()[batch : batch + width], np.int32)
    if node.constant(index):
        array = node.array(index, "indices")
        if (array < -sizes).any() or (array >= sizes).any():
            node.refuse("an index outside of the tensor")
        return node.const(np.where(array < 0, array + sizes, array).astype(np.int32))
    given = node.var(index)
    low = node.op("less", x=given, y=node.const(np.int32(0)))
    shifted = node.op("add", x=given, y=node.const(sizes))
    return node.op("select", cond=low, a=shifted, b=given)


MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Any:
    """Updates put (or added, ...) at tuples of indices."""
    return _scatter(node, "scatter_nd", indices=_positive_tuples(node, 1))


@operator("ScatterElements", since=11)
def scatter_elements(node: Node) -> Any:
    """Updates put (or added, ...) at indices of one axis."""
    axis = node.axis(0)
    _same_but(node, axis, node.shape(1))
    indices = positive_indices(node, 1, node.shape()[axis])
    return _scatter(node, "scatter_along_axis", indices=indices, axis=axis)


def _scatter(node: Node, kind: str, **arguments: Any) -> Any:
    reduction = node.attribute("reduction", "none")
    if reduction not in MODES:
        node.refuse(f"no rule for reduction = {reduction!r}")
    if node.type() == "bool":
        node.refuse("no rule for booleans")
    data, updates = node.var(0), node.var(2)
    return node.op(kind, data=data, updates=updates, mode=MODES[reduction], **arguments)
