"""Resize and Upsample.

Nearest is a gather, linear and cubic are products with a constant matrix for each axis: exact for
every mode. Where MIL has an operation for the same, that is taken: it is faster.
"""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil import sampling
from edge.convert.onnx_to_mil.indexing import gathered
from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.sampling import Axis

# MIL's name for what ONNX calls by another, where output sizes are exact multiples.
SAMPLING = {"half_pixel": "UNALIGN_CORNERS", "align_corners": "STRICT_ALIGN_CORNERS",
            "asymmetric": "DEFAULT"}  # fmt: skip


@operator("Upsample", since=7, until=9, types="floats")
def upsample(node: Node) -> Any:
    """Scales are an attribute in opset 7, an input in 9; places are i / scale, rounded down."""
    scales = node.attribute("scales") if node.opset < 9 else node.array(1, "scales").reshape(-1)
    axes = [_scaled_axis(n, float(s)) for n, s in zip(node.shape(), scales, strict=True)]
    mode = node.attribute("mode", "nearest")
    if mode in {"linear", "bilinear"}:
        return _linear(node, axes, "asymmetric")
    return _nearest(node, axes, "asymmetric", "floor")


@operator("Resize", since=10, until=10, types="floats")
def resize_10(node: Node) -> Any:
    """As Upsample, and to fewer pixels too."""
    scales = node.array(1, "scales").reshape(-1)
    axes = [_scaled_axis(n, float(s)) for n, s in zip(node.shape(), scales, strict=True)]
    if node.attribute("mode", "nearest") == "linear":
        return _linear(node, axes, "asymmetric")
    if any((sampling.coordinates(axis, "asymmetric") % 1).any() for axis in axes if axis.scale < 1):
        node.refuse(
            "opset 10 does not say what is nearest between two pixels, and runtimes differ",
            "export with opset 11 or newer",
        )
    return _nearest(node, axes, "asymmetric", "floor")


@operator("Resize", since=11, types="floats")
def resize(node: Node) -> Any:
    """By scales or sizes; regions (tf_crop_and_resize) and antialiasing are refused."""
    mode = node.attribute("mode", "nearest")
    transform = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    axes = _axes(node)
    for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value"):
        node.attribute(name)
    if int(node.attribute("antialias", 0)) and any(axis.scale < 1 for axis in axes):
        node.refuse("no rule for antialias")
    if transform not in sampling.TRANSFORMS:
        node.refuse(f"no rule for coordinate_transformation_mode = {transform!r}")
    if _unclear(axes, mode, transform):
        node.refuse(f"{transform} to this size: ONNX and its runtimes differ in what it means")
    if mode == "nearest":
        if rounding not in sampling.ROUNDINGS:
            node.refuse(f"no rule for nearest_mode = {rounding!r}")
        return _nearest(node, axes, transform, rounding)
    if mode == "linear":
        return _linear(node, axes, transform)
    if mode != "cubic":
        node.refuse(f"no rule for mode = {mode!r}")
    return _cubic(node, axes, transform)


def _scaled_axis(size: int, scale: float) -> Axis:
    from math import floor

    return Axis(size, floor(size * scale), scale)


def _unclear(axes: list[Axis], mode: str, transform: str) -> bool:
    """Whether ONNX's evaluator (of its specification) and ONNX Runtime place pixels differently.

    align_corners: by the broken size that the scale gives, or by the whole one. pytorch_half_pixel:
    a single pixel of a broken size lies at -1/2 or elsewhere, which a cubic sees even when whole.
    """
    if transform == "align_corners":
        return not all(map(_whole, axes))
    single = [axis for axis in axes if axis.resized == 1 and axis.scale != 1]
    odd = mode == "cubic" or not all(map(_whole, single))
    return transform == "pytorch_half_pixel" and bool(single) and odd


def _whole(axis: Axis) -> bool:
    """Whether the scale gives the new size, with nothing cut off."""
    return abs(axis.size * axis.scale - axis.resized) < 1e-6 * axis.resized


def _axes(node: Node) -> list[Axis]:
    """All axes of the input; those that the node does not name stay as they are."""
    sizes = node.shape()
    named = [int(n) for n in node.attribute("axes", range(len(sizes)))]
    places = [node.positive(axis) for axis in named]
    found = [Axis(size, size, 1.0) for size in sizes]
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if node.has(2) and node.value(2).shape != (0,):
        scales = node.array(2, "scales").reshape(-1)
        for place, scale in zip(places, scales, strict=True):
            found[place] = _scaled_axis(sizes[place], float(scale))
        return found
    asked = node.ints(3, "sizes")
    ratios = [size / sizes[place] for place, size in zip(places, asked, strict=True)]
    for place, size, ratio in zip(places, asked, ratios, strict=True):
        found[place] = Axis(sizes[place], size, ratio)
        if policy != "stretch":
            one = min(ratios) if policy == "not_larger" else max(ratios)
            found[place] = Axis(sizes[place], int(sizes[place] * one + 0.5), one)
    return found


def _nearest(node: Node, axes: list[Axis], transform: str, rounding: str) -> Any:
    x = node.var()
    places = [sampling.nearest(axis, transform, rounding) for axis in axes]
    factors = [_repeats(axis, place) for axis, place in zip(axes, places, strict=True)]
    if len(axes) == 4 and factors[:2] == [1, 1] and None not in factors[2:]:
        return node.op(
            "upsample_nearest_neighbor",
            x=x,
            scale_factor_height=factors[2],
            scale_factor_width=factors[3],
        )
    for place, (axis, found) in enumerate(zip(axes, places, strict=True)):
        if found.tolist() != list(range(axis.size)):
            x = gathered(node, x, found, place)
    return x


def _repeats(axis: Axis, places: Any) -> int | None:
    """How often each element is repeated, where all are equally often."""
    factor = axis.resized // axis.size
    plain = [place for place in range(axis.size) for _ in range(factor)]
    return factor if places.tolist() == plain else None


def _linear(node: Node, axes: list[Axis], transform: str) -> Any:
    unchanged = all(axis.size == axis.resized for axis in axes[:-2])
    exact = all(axis.scale == axis.resized / axis.size for axis in axes)
    if transform == "pytorch_half_pixel" and all(axis.resized > 1 for axis in axes[-2:]):
        transform = "half_pixel"
    enough = all(axis.resized > 1 and axis.size > 1 for axis in axes[-2:])
    if len(axes) == 4 and unchanged and exact and enough and transform in SAMPLING:
        return node.op(
            "resize_bilinear",
            x=node.var(),
            target_size_height=axes[-2].resized,
            target_size_width=axes[-1].resized,
            sampling_mode=SAMPLING[transform],
        )
    return _by_matrix(node, axes, [sampling.linear(axis, transform) for axis in axes])


def _cubic(node: Node, axes: list[Axis], transform: str) -> Any:
    a = float(node.attribute("cubic_coeff_a", -0.75))
    outside = bool(node.attribute("exclude_outside", 0))
    matrices = [sampling.cubic(axis, transform, a, exclude_outside=outside) for axis in axes]
    return _by_matrix(node, axes, matrices)


def _by_matrix(node: Node, axes: list[Axis], matrices: list[Any]) -> Any:
    """Each axis that changes is multiplied by its matrix, as the last one."""
    x, rank = node.var(), len(axes)
    for place, (axis, matrix) in enumerate(zip(axes, matrices, strict=True)):
        if axis.size == axis.resized and axis.scale == 1:
            continue
        swap = [n for n in range(rank) if n != place] + [place]
        back = [swap.index(n) for n in range(rank)]
        moved = x if swap == sorted(swap) else node.op("transpose", x=x, perm=swap)
        made = node.op("matmul", x=moved, y=node.const(matrix.T))
        x = made if swap == sorted(swap) else node.op("transpose", x=made, perm=back)
    return x
