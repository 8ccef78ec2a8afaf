"""Operators that move values or say shapes; sizes are all known, so those are constants."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator


@operator("Shape", types="moved")
def shape(node: Node) -> Any:
    """The sizes, from ``start`` to ``end`` since opset 15: a constant."""
    import numpy as np

    start, end = node.attribute("start", 0), node.attribute("end", None)
    return np.array(node.shape()[start:end], np.int64)


@operator("Size", types="moved")
def size(node: Node) -> Any:
    """The number of elements: a constant."""
    import numpy as np

    return np.array(np.prod(node.shape(), dtype=np.int64), np.int64)


@operator("Reshape", types="moved")
def reshape(node: Node) -> Any:
    """Another shape; 0 keeps a size (unless ``allowzero``), -1 is what remains."""
    asked = node.ints(1, "the shape")
    if int(node.attribute("allowzero", 0)) and 0 in asked:
        node.refuse("an empty tensor")
    known = node.shape()
    if any(size == 0 and place >= len(known) for place, size in enumerate(asked)):
        node.refuse(f"shape {asked} keeps a size that the input does not have")
    wanted = [known[place] if size == 0 else size for place, size in enumerate(asked)]
    return reshaped(node, node.var(), wanted)


def reshaped(node: Node, x: Any, wanted: list[int]) -> Any:
    """``x`` in another shape; a scalar too, for which MIL's reshape has no word."""
    if wanted:
        return node.op("reshape", x=x, shape=wanted)
    return node.op("squeeze", x=x) if len(x.shape) else x


@operator("Flatten", types="moved")
def flatten(node: Node) -> Any:
    """Two dimensions: those before ``axis``, and those from it on."""
    from math import prod

    sizes = node.shape()
    axis = int(node.attribute("axis", 1))
    place = axis if axis >= 0 else axis + len(sizes)
    return node.op("reshape", x=node.var(), shape=[prod(sizes[:place]), prod(sizes[place:])])


@operator("Transpose", types="moved")
def transpose(node: Node) -> Any:
    """Dimensions in another order; without ``perm`` in the opposite one."""
    order = node.attribute("perm", list(reversed(range(node.rank()))))
    if not order:
        return node.value(0)
    return node.op("transpose", x=node.var(), perm=[int(place) for place in order])


@operator("Squeeze", types="moved")
def squeeze(node: Node) -> Any:
    """Without dimensions of size 1; axes are an input since opset 13."""
    axes = node.ints_either("axes", 1, moved=13)
    if axes is None:
        axes = [place for place, each in enumerate(node.shape()) if each == 1]
    places = sorted(node.positive(axis) for axis in axes)
    if not places:
        return node.value(0)
    return node.op("squeeze", x=node.var(), axes=places)


@operator("Unsqueeze", types="moved")
def unsqueeze(node: Node) -> Any:
    """With dimensions of size 1; axes are an input since opset 13."""
    axes = node.ints_either("axes", 1, moved=13) or []
    rank = node.rank() + len(axes)
    places = sorted(node.positive(axis, rank=rank) for axis in axes)
    if not places:
        return node.value(0)
    return node.op("expand_dims", x=node.var(), axes=places)


@operator("Concat", types="moved")
def concat(node: Node) -> Any:
    """One behind the other along ``axis``; inputs without elements add nothing."""
    places = [at for at in range(len(node.inputs)) if 0 not in node.shape(at)]
    if not places:
        node.refuse("all inputs are empty")
    axis = node.axis(0, rank=node.rank(places[0]))
    values = [node.var(place) for place in places]
    return values[0] if len(values) == 1 else node.op("concat", values=values, axis=axis)


@operator("Split", types="moved")
def split(node: Node) -> Any:
    """Parts along ``axis``: sizes are an input since opset 13, their number counts since 18."""
    axis = node.axis(0)
    sizes = node.ints_either("split", 1, moved=13) or _equal_parts(node, node.shape()[axis])
    if sum(sizes) != node.shape()[axis] or len(sizes) != len(node.proto.output):
        node.refuse(f"parts of {sizes} do not make {node.shape()[axis]}")
    if len(sizes) == 1:
        return [node.value(0)]
    return list(node.op("split", x=node.var(), split_sizes=sizes, axis=axis))


def _equal_parts(node: Node, whole: int) -> list[int]:
    count = len(node.proto.output)
    if node.opset >= 18:
        count = int(node.attribute("num_outputs", count))
        part = -(-whole // count)
        return [part] * (count - 1) + [whole - part * (count - 1)]
    if whole % count:
        node.refuse(f"{whole} has no {count} equal parts")
    return [whole // count] * count


@operator("Tile", types="moved")
def tile(node: Node) -> Any:
    """The tensor, repeated."""
    return node.op("tile", x=node.var(), reps=node.ints(1, "repeats"))


@operator("Expand", since=8, types="moved")
def expand(node: Node) -> Any:
    """Broadcast to a shape, and that to the tensor's own."""
    import numpy as np

    own = node.shape()
    whole = np.broadcast_shapes(own, tuple(node.ints(1, "the shape")))
    wide = (1,) * (len(whole) - len(own)) + own
    x = node.var()
    if wide != own:
        x = node.op("reshape", x=x, shape=list(wide))
    if wide == whole:
        return x
    return node.op("tile", x=x, reps=[w // n for w, n in zip(whole, wide, strict=True)])


@operator("DepthToSpace", types="floats")
def depth_to_space(node: Node) -> Any:
    """Channels into blocks of pixels: DCR is MIL's depth_to_space, CRD its pixel_shuffle."""
    block, mode = int(node.attribute("blocksize", 1)), node.attribute("mode", "DCR")
    if mode == "CRD":
        return node.op("pixel_shuffle", x=node.var(), upscale_factor=block)
    return node.op("depth_to_space", x=node.var(), block_size=block)


@operator("SpaceToDepth", types="floats")
def space_to_depth(node: Node) -> Any:
    """Blocks of pixels into channels."""
    return node.op("space_to_depth", x=node.var(), block_size=int(node.attribute("blocksize", 1)))
