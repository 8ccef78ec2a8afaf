"""Gathers and scatters; indices outside are an error here, whatever hardware does with them."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation


@operation("gather")
def gather(a: Arguments) -> Any:
    """Slices of one axis."""
    import numpy as np

    if int(a.get("batch_dims") or 0):
        raise NotImplementedError("gather with batch_dims")
    return np.take(a["x"], a["indices"], axis=int(a["axis"]))


@operation("gather_along_axis")
def gather_along_axis(a: Arguments) -> Any:
    """Elements of one axis."""
    import numpy as np

    return np.take_along_axis(a["x"], a["indices"], axis=int(a["axis"]))


@operation("gather_nd")
def gather_nd(a: Arguments) -> Any:
    """Slices by tuples."""
    import numpy as np

    x, indices, batch = a["x"], np.asarray(a["indices"]), int(a.get("batch_dims") or 0)
    if not batch:
        return x[tuple(np.moveaxis(indices, -1, 0))]
    lead = x.shape[:batch]
    flat_x = x.reshape(-1, *x.shape[batch:])
    flat = indices.reshape(-1, *indices.shape[batch:])
    rows = [row[tuple(np.moveaxis(at, -1, 0))] for row, at in zip(flat_x, flat, strict=True)]
    return np.stack(rows).reshape(*lead, *rows[0].shape)


MODES = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum",
         "min": "minimum"}  # fmt: skip


def _put(data: Any, places: Any, updates: Any, mode: str) -> Any:
    import numpy as np

    made = np.array(data)
    if mode == "update":
        made[places] = updates
    else:
        getattr(np, MODES[mode]).at(made, places, updates)
    return made


@operation("scatter_nd")
def scatter_nd(a: Arguments) -> Any:
    """Updates at tuples of indices."""
    import numpy as np

    return _put(a["data"], tuple(np.moveaxis(a["indices"], -1, 0)), a["updates"], a["mode"])


@operation("scatter_along_axis")
def scatter_along_axis(a: Arguments) -> Any:
    """Updates at indices of one axis."""
    import numpy as np

    indices = np.asarray(a["indices"])
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[int(a["axis"])] = indices
    return _put(a["data"], tuple(places), a["updates"], a["mode"])


@operation("scatter")
def scatter(a: Arguments) -> Any:
    """Slices at indices of one axis."""
    import numpy as np

    axis = int(a["axis"])
    places = (slice(None),) * axis + (np.asarray(a["indices"]),)
    return _put(a["data"], places, a["updates"], a["mode"])


@operation("band_part")
def band_part(a: Arguments) -> Any:
    """The diagonals from ``lower`` below to ``upper`` above; -1 is all of them."""
    import numpy as np

    x = a["x"]
    rows, columns = np.indices(x.shape[-2:], sparse=True)
    low, high = int(a["lower"]), int(a["upper"])
    kept = ((low < 0) | (rows - columns <= low)) & ((high < 0) | (columns - rows <= high))
    return np.where(kept, x, np.zeros((), x.dtype))


@operation("non_zero")
def non_zero(a: Arguments) -> Any:
    """Places of what is not zero."""
    import numpy as np

    return np.argwhere(a["x"])


@operation("range_1d")
def range_1d(a: Arguments) -> Any:
    """From start to end by steps."""
    import numpy as np

    return np.arange(a["start"], a["end"], a["step"])


@operation("one_hot")
def one_hot(a: Arguments) -> Any:
    """Vectors with one value that differs."""
    import numpy as np

    size = int(a["one_hot_vector_size"])
    hit = np.arange(size) == np.asarray(a["indices"])[..., None]
    made: Any = np.where(hit, a["on_value"], a["off_value"])
    return np.moveaxis(made, -1, int(a["axis"]))
