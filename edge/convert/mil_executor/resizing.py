"""Resizing of the last two dimensions."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation


@operation("upsample_nearest_neighbor")
def upsample_nearest(a: Arguments) -> Any:
    """Elements repeated a whole number of times."""
    import numpy as np

    factors = [float(a[f"scale_factor_{name}"]) for name in ("height", "width")]
    if any(factor % 1 for factor in factors):
        raise NotImplementedError("upsample_nearest_neighbor by a broken factor")
    tall = np.repeat(a["x"], int(factors[0]), axis=-2)
    return np.repeat(tall, int(factors[1]), axis=-1)


@operation("resize_bilinear")
def resize_bilinear(a: Arguments) -> Any:
    """Between the four nearest, by the grid of ``sampling_mode``."""
    x = a["x"]
    for axis, name in ((-2, "height"), (-1, "width")):
        size = int(a[f"target_size_{name}"])
        x = _along(x, axis, _grid(x.shape[axis], size, a["sampling_mode"]))
    return x


@operation("upsample_bilinear")
def upsample_bilinear(a: Arguments) -> Any:
    """The same, to a multiple of the size."""
    x = a["x"]
    for axis, name in ((-2, "height"), (-1, "width")):
        size = int(x.shape[axis] * float(a[f"scale_factor_{name}"]))
        corners = bool(a["align_corners"])
        half = a.get("half_pixel_centers")
        if not corners and half is False:
            raise NotImplementedError("upsample_bilinear without half_pixel_centers")
        mode = "STRICT_ALIGN_CORNERS" if corners else "UNALIGN_CORNERS"
        x = _along(x, axis, _grid(x.shape[axis], size, mode))
    return x


def _grid(size: int, resized: int, mode: str) -> Any:
    """Places in the input, as Core ML's documentation of resize_bilinear has them."""
    import numpy as np

    place = np.arange(resized, dtype=np.float64)
    if mode in {"STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"}:
        if resized == 1:
            found = place + ((size - 1) / 2 if mode == "ALIGN_CORNERS" else 0)
        else:
            found = place * (size - 1) / (resized - 1)
    elif mode == "DEFAULT":
        found = place * size / resized
    elif mode == "UNALIGN_CORNERS":
        found = (place + 0.5) * size / resized - 0.5
    else:
        raise NotImplementedError(f"resize_bilinear with {mode}")
    return np.clip(found, 0, size - 1)


def _along(x: Any, axis: int, places: Any) -> Any:
    import numpy as np

    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    share = (places - low).reshape([-1] + [1] * (-1 - axis))
    return np.take(x, low, axis=axis) * (1 - share) + np.take(x, high, axis=axis) * share
