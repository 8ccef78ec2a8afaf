"""Convolutions and pools in one to three dimensions, one kernel position after the other.

Sums are float64, rounded once: no order of additions, this machine's least of all, is in them.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from edge.convert.mil_executor.registry import Arguments, operation

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def _ints(values: Any, default: list[int]) -> list[int]:
    return default if values is None else [int(n) for n in values]


def _padding(
    a: Arguments, sizes: Any, reach: list[int], strides: list[int]
) -> list[tuple[int, int]]:
    """(before, after) of each dimension, by ``pad_type``."""
    count, kind = len(reach), a["pad_type"]
    if kind == "valid":
        return [(0, 0)] * count
    if kind == "custom":
        flat = _ints(a["pad"], [0] * (2 * count))
        return list(zip(flat[::2], flat[1::2], strict=True))
    found = []
    for size, span, stride in zip(sizes, reach, strides, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + span - size)
        small, large = total // 2, total - total // 2
        found.append((small, large) if kind == "same" else (large, small))
    return found


def _counts(sizes: Any, reach: list[int], strides: list[int]) -> list[int]:
    return [(n - r) // s + 1 for n, r, s in zip(sizes, reach, strides, strict=True)]


def _at(x: Array, offset: Any, counts: list[int], strides: list[int]) -> Array:
    """What the kernel position ``offset`` sees, for all windows."""
    places = [
        slice(start, start + (count - 1) * stride + 1, stride)
        for start, count, stride in zip(offset, counts, strides, strict=True)
    ]
    return x[(slice(None), slice(None), *places)]


@operation("conv")
def conv(a: Arguments) -> Any:
    """Cross-correlation with groups, strides and dilations."""
    import numpy as np

    x, w = (np.asarray(a[name], np.float64) for name in ("x", "weight"))
    kernel, count = w.shape[2:], w.ndim - 2
    strides, dilations = (_ints(a[name], [1] * count) for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = _padding(a, x.shape[2:], reach, strides)
    wide = np.pad(x, [(0, 0), (0, 0), *pads])
    counts = _counts(wide.shape[2:], reach, strides)
    groups = int(a["groups"] if a["groups"] is not None else 1)
    parts: Any = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    total = np.zeros((x.shape[0], groups, parts.shape[1], int(np.prod(counts))))
    for offset in product(*(range(k) for k in kernel)):
        start = [o * d for o, d in zip(offset, dilations, strict=True)]
        seen = _at(wide, start, counts, strides).reshape(x.shape[0], groups, w.shape[1], -1)
        total += np.matmul(parts[(..., *offset)], seen)
    made = total.reshape(x.shape[0], w.shape[0], *counts)
    return made if a["bias"] is None else made + _channels(a["bias"], made.ndim)


def _channels(values: Any, rank: int) -> Any:
    import numpy as np

    return np.reshape(values, (1, -1) + (1,) * (rank - 2))


@operation("conv_transpose")
def conv_transpose(a: Arguments) -> Any:
    """Each input element spreads the kernel; then the pads are cut off."""
    import numpy as np

    if a["pad_type"] not in {"valid", "custom"}:
        raise NotImplementedError("conv_transpose with pad_type = same")
    x, w = (np.asarray(a[name], np.float64) for name in ("x", "weight"))
    kernel, count = w.shape[2:], w.ndim - 2
    strides, dilations = (_ints(a[name], [1] * count) for name in ("strides", "dilations"))
    groups = int(a["groups"] if a["groups"] is not None else 1)
    sizes = x.shape[2:]
    whole = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
    ]
    made = np.zeros((x.shape[0], w.shape[1] * groups, *whole))
    seen = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    parts: Any = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for offset in product(*(range(k) for k in kernel)):
        spread = np.matmul(np.swapaxes(parts[(..., *offset)], 1, 2), seen)
        start = [o * d for o, d in zip(offset, dilations, strict=True)]
        view = _at(made, start, list(sizes), strides)
        view += spread.reshape(view.shape)
    made = _cropped(a, made, count)
    # coremltools writes the shape that follows anyway; with another one MIL leaves the place open.
    if a["output_shape"] is not None and made.shape != tuple(a["output_shape"]):
        raise NotImplementedError("conv_transpose with an output_shape of its own")
    return made if a["bias"] is None else made + _channels(a["bias"], made.ndim)


def _cropped(a: Arguments, made: Array, count: int) -> Array:
    if a["pad_type"] == "valid":
        return made
    flat = _ints(a["pad"], [0] * (2 * count))
    places = [
        slice(before, size - after)
        for before, after, size in zip(flat[::2], flat[1::2], made.shape[2:], strict=True)
    ]
    return made[(slice(None), slice(None), *places)]


@operation("max_pool", "avg_pool", "l2_pool")
def pool(a: Arguments) -> Any:
    """The largest or the mean of each window, the padding counted or not."""
    import numpy as np

    x, kernel = a["x"], [int(n) for n in a["kernel_sizes"]]
    strides = _ints(a["strides"], [1] * len(kernel))
    if a["ceil_mode"] or a["op"] == "l2_pool":
        raise NotImplementedError("pools with ceil_mode, and l2_pool")
    pads = [(0, 0), (0, 0), *_padding(a, x.shape[2:], kernel, strides)]
    largest = a["op"] == "max_pool"
    wide = np.pad(x, pads, constant_values=-np.inf if largest else 0)
    counts = _counts(wide.shape[2:], kernel, strides)
    offsets = list(product(*(range(k) for k in kernel)))
    views = (_at(wide, offset, counts, strides) for offset in offsets)
    if largest:
        return np.maximum.reduce(list(views))
    total = sum(view.astype(np.float64) for view in views)
    if not a["exclude_padding_from_average"]:
        return total / len(offsets)
    inside = np.pad(np.ones((1, 1, *x.shape[2:])), pads)
    return total / sum(_at(inside, offset, counts, strides) for offset in offsets)
