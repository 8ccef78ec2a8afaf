"""Operations that move values."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation


@operation("reshape")
def reshape(a: Arguments) -> Any:
    """Another shape; 0 keeps a size, -1 is what remains."""
    import numpy as np

    asked = [int(n) for n in np.reshape(a["shape"], -1)]
    wanted = [a["x"].shape[place] if size == 0 else size for place, size in enumerate(asked)]
    return np.reshape(a["x"], wanted)


@operation("transpose")
def transpose(a: Arguments) -> Any:
    """Dimensions in another order."""
    import numpy as np

    return np.transpose(a["x"], [int(n) for n in a["perm"]])


@operation("expand_dims")
def expand_dims(a: Arguments) -> Any:
    """With dimensions of size 1."""
    import numpy as np

    return np.expand_dims(a["x"], tuple(int(n) for n in a["axes"]))


@operation("squeeze")
def squeeze(a: Arguments) -> Any:
    """Without dimensions of size 1."""
    import numpy as np

    axes = None if a["axes"] is None else tuple(int(n) for n in a["axes"])
    return np.squeeze(a["x"], axes)


@operation("concat")
def concat(a: Arguments) -> Any:
    """One behind the other."""
    import numpy as np

    if a["interleave"]:
        whole = np.stack(a["values"], axis=int(a["axis"]) + 1)
        return whole.reshape(_joined(a["values"], int(a["axis"])))
    return np.concatenate(a["values"], axis=int(a["axis"]))


def _joined(values: Any, axis: int) -> list[int]:
    shape = list(values[0].shape)
    shape[axis] *= len(values)
    return shape


@operation("stack")
def stack(a: Arguments) -> Any:
    """Along a new dimension."""
    import numpy as np

    return np.stack(a["values"], axis=int(a["axis"]))


@operation("split")
def split(a: Arguments) -> Any:
    """Parts along an axis."""
    import numpy as np

    if a["split_sizes"] is None:
        parts = np.split(a["x"], int(a["num_splits"]), axis=int(a["axis"]))
    else:
        ends = np.cumsum(a["split_sizes"])[:-1]
        parts = np.split(a["x"], ends, axis=int(a["axis"]))
    return tuple(parts)


@operation("tile")
def tile(a: Arguments) -> Any:
    """Repeated."""
    import numpy as np

    return np.tile(a["x"], [int(n) for n in a["reps"]])


@operation("fill")
def fill(a: Arguments) -> Any:
    """One value everywhere."""
    import numpy as np

    return np.full([int(n) for n in a["shape"]], a["value"])


@operation("reverse")
def reverse(a: Arguments) -> Any:
    """Back to front along axes."""
    import numpy as np

    axes = range(a["x"].ndim) if a["axes"] is None else [int(n) for n in a["axes"]]
    return np.flip(a["x"], tuple(axes))


@operation("shape")
def shape(a: Arguments) -> Any:
    """Sizes."""
    return a["x"].shape


@operation("pad")
def pad(a: Arguments) -> Any:
    """Elements before and after the last dimensions."""
    import numpy as np

    flat = [int(n) for n in a["pad"]]
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    whole = [(0, 0)] * (a["x"].ndim - len(pairs)) + pairs
    if a["mode"] == "constant":
        return np.pad(a["x"], whole, constant_values=a["constant_val"])
    if a["mode"] == "reflect":
        return np.pad(a["x"], whole, mode="reflect")
    return np.pad(a["x"], whole, mode="edge")


@operation("depth_to_space", "pixel_shuffle")
def depth_to_space(a: Arguments) -> Any:
    """Channels into blocks: depth_to_space takes the block first, pixel_shuffle the channel."""
    import numpy as np

    x, first = a["x"], a["op"] == "depth_to_space"
    block = int(a["block_size"] if first else a["upscale_factor"])
    n, c, h, w = x.shape
    inner = c // block**2
    if first:
        whole = np.transpose(x.reshape(n, block, block, inner, h, w), (0, 3, 4, 1, 5, 2))
    else:
        whole = np.transpose(x.reshape(n, inner, block, block, h, w), (0, 1, 4, 2, 5, 3))
    return whole.reshape(n, inner, h * block, w * block)


@operation("space_to_depth")
def space_to_depth(a: Arguments) -> Any:
    """Blocks into channels, the block first."""
    import numpy as np

    x, block = a["x"], int(a["block_size"])
    n, c, h, w = x.shape
    whole = x.reshape(n, c, h // block, block, w // block, block)
    moved = np.transpose(whole, (0, 3, 5, 1, 2, 4))
    return moved.reshape(n, c * block**2, h // block, w // block)


@operation("slice_by_index")
def slice_by_index(a: Arguments) -> Any:
    """A range of each dimension; masks leave bounds out, or take one element."""
    x = a["x"]
    count = x.ndim
    begin, end = ([int(n) for n in a[name]] for name in ("begin", "end"))
    stride = [1] * count if a["stride"] is None else [int(n) for n in a["stride"]]
    no_begin, no_end, single = (
        _mask(a[f"{name}_mask"], count) for name in ("begin", "end", "squeeze")
    )
    places: list[Any] = []
    for at in range(count):
        if single[at]:
            places.append(begin[at])
            continue
        start = None if no_begin[at] else begin[at]
        stop = None if no_end[at] else end[at]
        places.append(slice(start, stop, stride[at]))
    return x[tuple(places)]


def _mask(given: Any, count: int) -> list[bool]:
    return [False] * count if given is None else [bool(each) for each in given]


@operation("crop")
def crop(a: Arguments) -> Any:
    """Without rows and columns at the edges."""
    (top, bottom), (left, right) = (
        [int(n) for n in a[f"crop_{side}"]] for side in ("height", "width")
    )
    x = a["x"]
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]


@operation("slice_by_size")
def slice_by_size(a: Arguments) -> Any:
    """``size`` elements from ``begin`` on; -1 is all that follow."""
    places = []
    for start, size in zip(a["begin"], a["size"], strict=True):
        places.append(slice(int(start), None if int(size) == -1 else int(start) + int(size)))
    return a["x"][tuple(places)]
