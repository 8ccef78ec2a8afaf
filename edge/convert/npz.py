"""The user's arrays: ``.npz`` files, read without trusting them.

Every size is known before memory is taken: numpy's own reader allocates what an array's header
claims, whatever the file holds. No pickle is opened, and only plain numbers are accepted.
"""

from __future__ import annotations

import lzma
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edge import errors, samples

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# What a damaged or hostile archive makes zipfile and numpy raise.
UNREADABLE = (
    OSError, ValueError, EOFError, RuntimeError, OverflowError, MemoryError, TypeError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error,
    lzma.LZMAError,
)  # fmt: skip


def read_npz(path: Path, inputs: list[dict[str, Any]]) -> list[dict[str, Array]]:
    """The cases of an ``.npz`` file, inputs that are constant included.

    ``inputs`` are BoundInput.to_json values. Raises :class:`errors.UsageError` for every wrong
    name, dtype and shape.
    """
    names = [each["name"] for each in inputs if each["constant"] is None]
    groups = grouped(read_arrays(path), names, "samples")
    return [{e["name"]: _one(group, e, key) for e in inputs} for key, group in groups]


def _one(group: dict[str, Array], spec: dict[str, Any], number: str) -> Array:
    import numpy as np

    if spec["constant"] is not None:
        return np.full(tuple(spec["shape"]), spec["constant"], spec["dtype"])
    array = group[spec["name"]]
    if array.dtype.name != spec["dtype"] or not fits(array.shape, spec["shape"]):
        raise misfit(f"the sample {spec['name'] + number!r}", array, spec)
    return array


def fits(shape: tuple[int, ...], wanted: list[int | str | None]) -> bool:
    """True when ``shape`` has the sizes ``wanted``; a symbol or None is any size above zero."""
    return len(shape) == len(wanted) and all(
        size == want if isinstance(want, int) else size > 0
        for size, want in zip(shape, wanted, strict=True)
    )


def misfit(what: str, array: Array, spec: dict[str, Any]) -> errors.UsageError:
    """The error for an array that is no value of its input."""
    return errors.UsageError(
        f"{what} is {array.dtype.name}{list(array.shape)}, "
        f"the model wants {spec['dtype']}{spec['shape']}"
    )


def grouped(
    arrays: dict[str, Array], names: list[str], what: str
) -> list[tuple[str, dict[str, Array]]]:
    """One mapping by input name for each of ``NAME/0``, ``NAME/1`` ..., or one for plain names.

    Each with what its names were followed by: ``/0``, or nothing. ``what`` names the arrays in
    messages. Raises :class:`errors.UsageError` for missing and unknown names.
    """
    numbers = {number for name in names for number in _numbers(arrays, name)}
    keys = (
        [f"/{n}" for n in range(len(numbers))] if numbers and not set(names) & set(arrays) else [""]
    )
    groups = []
    for key in keys:
        for name in names:
            if name + key not in arrays:
                raise errors.UsageError(
                    f"the {what} have no array {name + key!r}",
                    remedy=f"they hold: {', '.join(sorted(arrays))[:500] or 'nothing'}",
                )
        groups.append((key, {name: arrays[name + key] for name in names}))
    if extra := set(arrays) - {name + key for name in names for key in keys}:
        raise errors.UsageError(f"the {what} hold unknown arrays: {', '.join(sorted(extra))[:500]}")
    return groups


def _numbers(arrays: Iterable[str], name: str) -> set[int]:
    """The numbers that follow ``name/``, spelled as we spell them."""
    tails = (key.removeprefix(f"{name}/") for key in arrays if key.startswith(f"{name}/"))
    return {
        int(t) for t in tails if t.isascii() and t.isdigit() and len(t) < 10 and t == f"{int(t)}"
    }


def read_arrays(
    path: Path, *, what: str = "samples", limit: int = samples.MAX_TENSOR_BYTES
) -> dict[str, Array]:
    """All arrays of an ``.npz`` file by name, in this machine's byte order.

    ``what`` names them in messages; ``limit`` in bytes bounds what they may hold together.
    Raises :class:`errors.UsageError` when the file is no such archive, is damaged, or holds
    anything but plain numbers.
    """
    try:
        with zipfile.ZipFile(path) as archive, warnings.catch_warnings():
            # Headers written by Python 2 are read too, with a warning.
            warnings.filterwarnings("ignore", "Reading `.npy`", UserWarning)
            return _read_members(archive, what, limit)
    except UNREADABLE as error:
        raise errors.UsageError(
            f"cannot read the {what}: {_words(error)}",
            remedy="write a .npz with numpy.savez: NAME=array, or 'NAME/0', 'NAME/1' for several",
        ) from error


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition(",")[0][:300]


def _read_members(archive: zipfile.ZipFile, what: str, limit: int) -> dict[str, Array]:
    members = archive.infolist()
    if len(members) > samples.MAX_TENSORS:
        raise ValueError(f"{len(members)} arrays are more than {samples.MAX_TENSORS}")
    if (size := sum(member.file_size for member in members)) > limit:
        raise errors.UsageError(f"the {what} would hold {size} bytes; {limit} are possible")
    arrays: dict[str, Array] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in arrays:
            raise ValueError(f"{member.filename!r} is no array of its own")
        with archive.open(member) as stream:
            arrays[name] = _read_array(stream, member.file_size, name)
    return arrays


def _read_array(stream: IO[bytes], size: int, name: str) -> Array:
    import numpy as np
    from numpy.lib import format as npy

    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise ValueError(f"{name!r} is in a version of the format for records")
    shape, fortran, dtype = readers[version](stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"{name!r} holds {dtype}: no plain numbers")
    left = size - stream.tell()
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != left:
        raise ValueError(f"{name!r} says {dtype}{list(shape)} but holds {left} bytes")
    flat = np.frombuffer(stream.read(left), dtype)
    array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return array.astype(dtype.newbyteorder("="))
