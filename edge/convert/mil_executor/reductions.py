"""Reductions and sorting."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation

KINDS = {"reduce_sum": "sum", "reduce_mean": "mean", "reduce_max": "max", "reduce_min": "min",
         "reduce_prod": "prod"}  # fmt: skip


def _axes(a: Arguments) -> tuple[int, ...] | None:
    return None if a["axes"] is None else tuple(int(n) for n in a["axes"])


@operation(*KINDS)
def reduce(a: Arguments) -> Any:
    """Numpy's own over axes; floats in float64, rounded once."""
    import numpy as np

    x = np.asarray(a["x"])
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    return getattr(np, KINDS[a["op"]])(wide, axis=_axes(a), keepdims=bool(a["keep_dims"]))


@operation("reduce_l1_norm")
def l1(a: Arguments) -> Any:
    """The sum of |x|."""
    import numpy as np

    return np.sum(np.abs(a["x"]), axis=_axes(a), keepdims=bool(a["keep_dims"]))


@operation("reduce_sum_square")
def sum_square(a: Arguments) -> Any:
    """The sum of squares."""
    import numpy as np

    return np.sum(np.square(a["x"]), axis=_axes(a), keepdims=bool(a["keep_dims"]))


@operation("reduce_l2_norm")
def l2(a: Arguments) -> Any:
    """The root of the sum of squares."""
    import numpy as np

    return np.sqrt(sum_square(a))


@operation("reduce_log_sum")
def log_sum(a: Arguments) -> Any:
    """The logarithm of the sum."""
    import numpy as np

    return np.log(np.sum(a["x"], axis=_axes(a), keepdims=bool(a["keep_dims"])))


@operation("reduce_log_sum_exp")
def log_sum_exp(a: Arguments) -> Any:
    """Ln of the sum of e^x, from the largest on."""
    import numpy as np

    x, axes = a["x"], _axes(a)
    top = np.max(x, axis=axes, keepdims=True)
    found = top + np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True))
    return found if a["keep_dims"] else np.squeeze(found, axes)


@operation("reduce_argmax", "reduce_argmin")
def place(a: Arguments) -> Any:
    """The first place of the extreme."""
    import numpy as np

    kind = np.argmax if a["op"] == "reduce_argmax" else np.argmin
    return kind(a["x"], axis=int(a["axis"]), keepdims=bool(a["keep_dims"]))


@operation("cumsum")
def cumsum(a: Arguments) -> Any:
    """Sums up to each element; ``exclusive`` without it, ``reverse`` from the end."""
    import numpy as np

    x, axis = a["x"], int(a["axis"])
    turned = np.flip(x, axis) if a["reverse"] else x
    total = np.cumsum(turned, axis=axis, dtype=x.dtype)
    if a["exclusive"]:
        total = total - turned
    return np.flip(total, axis) if a["reverse"] else total


@operation("topk")
def topk(a: Arguments) -> Any:
    """The k largest and their places; the first of equal ones first."""
    import numpy as np

    x, axis = a["x"], int(a["axis"])
    order = np.argsort(x if a["ascending"] else -x, axis=axis, kind="stable")
    taken = np.take(order, range(int(a["k"])), axis=axis)
    values = np.take_along_axis(x, taken, axis=axis)
    return (values, taken) if a.get("return_indices") is not False else (values,)
