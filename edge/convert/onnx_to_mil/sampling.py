"""Where the pixels of a resized tensor come from: ONNX's formulas for Resize, axis by axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge.convert.onnx_to_mil.values import Array

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric")  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """One axis: ``size`` elements become ``resized``, by ``scale`` (resized / size, or so)."""

    size: int
    resized: int
    scale: float


def coordinates(axis: Axis, transform: str) -> Array:
    """The place in the input of each output element, float64."""
    import numpy as np

    place = np.arange(axis.resized, dtype=np.float64)
    if transform == "asymmetric":
        return place / axis.scale
    if transform == "align_corners":
        span = max(1, axis.resized - 1)
        return place * (axis.size - 1) / span if axis.resized > 1 else place * 0.0
    if transform == "pytorch_half_pixel" and axis.resized <= 1:
        return place * 0.0 - 0.5
    middle = (place + 0.5) / axis.scale - 0.5
    if transform == "half_pixel_symmetric":
        # The output is moved by half of what rounding its size cut off.
        whole = axis.scale * axis.size
        middle = middle + axis.size / 2 * (1 - axis.resized / whole)
    return middle


def nearest(axis: Axis, transform: str, rounding: str) -> Array:
    """Index of the nearest input element, int32."""
    import numpy as np

    x = coordinates(axis, transform)
    if rounding == "floor":
        found = np.floor(x)
    elif rounding == "ceil":
        found = np.ceil(x)
    elif rounding == "round_prefer_floor":
        found = np.ceil(x - 0.5)
    else:
        found = np.floor(x + 0.5)
    return np.clip(found, 0, axis.size - 1).astype(np.int32)


def linear(axis: Axis, transform: str) -> Array:
    """Weights of input elements for each output element: float32 [resized, size]."""
    import numpy as np

    x = coordinates(axis, transform)
    low = np.floor(x)
    return _weights(axis, [(low, 1 - (x - low)), (low + 1, x - low)])


def cubic(axis: Axis, transform: str, a: float, *, exclude_outside: bool) -> Array:
    """As :func:`linear`, by the cubic kernel with coefficient ``a`` (Keys 1981)."""
    import numpy as np

    x = coordinates(axis, transform)
    low = np.floor(x)
    taps = []
    for offset in (-1, 0, 1, 2):
        distance = np.abs(x - (low + offset))
        near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
        weight = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
        if exclude_outside:
            outside = (low + offset < 0) | (low + offset >= axis.size)
            weight = np.where(outside, 0.0, weight)
        taps.append((low + offset, weight))
    if exclude_outside:
        total = sum(weight for _, weight in taps)
        taps = [(place, weight / total) for place, weight in taps]
    return _weights(axis, taps)


def _weights(axis: Axis, taps: list[tuple[Array, Array]]) -> Array:
    import numpy as np

    made = np.zeros((axis.resized, axis.size), np.float64)
    rows = np.arange(axis.resized)
    for places, weights in taps:
        columns = np.clip(places, 0, axis.size - 1).astype(np.int64)
        np.add.at(made, (rows, columns), weights)
    return made.astype(np.float32)
