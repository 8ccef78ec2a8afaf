"""Calibration data: what activations are measured on before they are quantized.

From the user's ``.npz``, or a folder of them, into the samples' form. What an array may be, for
an input that the model takes as ``[4, 3, 32, 32]``:

1. that shape: one sample; ``NAME/0``, ``NAME/1`` ... hold several, each of that shape;
2. one more leading axis, ``[N, 4, 3, 32, 32]``: N samples;
3. a multiple of the bound batch, ``[4 * N, 3, 32, 32]``: rows in order, N samples. Rows that
   would be left over are an error: the user should know that they were not looked at.

Where the model's dimension is symbolic, any size fits it and samples may differ (ragged).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, samples
from edge.convert import npz
from edge.step import Facts, step
from edge.store import File, as_file, hash_file

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Case = dict[str, Array]

WHAT = "calibration data"
MAX_FILES = 10_000


def calibration_file(path: Path) -> tuple[File, list[str]]:
    """What the step takes for ``path``: its ``arrays`` and its ``files``.

    For a folder the first ``.npz`` of it with all others as companions, and the names of all;
    for a file that one, and no names. Raises :class:`errors.UsageError`.
    """
    if not path.is_dir():
        return as_file(path), []
    found = sorted(each for each in path.glob("*.npz") if each.is_file())
    if not found or len(found) > MAX_FILES:
        raise errors.UsageError(
            f"the folder of calibration data {path} holds {len(found)} .npz files",
            remedy=f"put 1 to {MAX_FILES} files there, each written with numpy.savez",
        )
    first = as_file(found[0], tuple((each.name, hash_file(each)[0]) for each in found[1:]))
    return first, [each.name for each in found]


@step(version=1, tools=("numpy",), timeout=900)
def calibration(
    out: Path, *, arrays: Path, files: list[str], inputs: list[dict[str, Any]], limit: int
) -> Facts:
    """Samples (inputs only, those that are constant left out) from the user's arrays.

    ``arrays`` and ``files`` are those of :func:`calibration_file`; ``inputs`` are
    BoundInput.to_json values, whose shapes may hold symbols (str) or None where the model's
    stay free. Of more than ``limit`` samples, that many are taken, evenly spread over all: data
    is often sorted by class. Facts: ``samples``, ``given``, ``ragged`` (shapes differ).
    Raises :class:`errors.UsageError` for wrong names, dtypes and shapes, no sample at all, and
    for NaN or infinity, naming array and sample.
    """
    varying = [each for each in inputs if each["constant"] is None]
    given = _read(arrays, files, varying)
    if not given:
        raise errors.UsageError(
            "the calibration data holds no sample",
            remedy="give some hundred real inputs, as the model will see them",
        )
    taken = spread(len(given), limit)
    for number in taken:
        _check_finite(number, given[number])
    samples.write(out, [(given[number], {}) for number in taken])
    shapes = {tuple(array.shape for array in given[number].values()) for number in taken}
    return {"samples": len(taken), "given": len(given), "ragged": len(shapes) > 1}


def spread(count: int, limit: int) -> list[int]:
    """At most ``limit`` of ``count`` indices, in order, at even distances."""
    if count <= limit:
        return list(range(count))
    return [index * count // limit for index in range(limit)]


def _read(arrays: Path, files: list[str], varying: list[dict[str, Any]]) -> list[Case]:
    given: list[Case] = []
    budget = samples.MAX_TENSOR_BYTES
    for path in [arrays.parent / _plain(name) for name in files] or [arrays]:
        where = f" of {path.name}" if files else ""
        held = npz.read_arrays(path, what=WHAT + where, limit=budget)
        budget -= sum(array.nbytes for array in held.values())
        for number, group in npz.grouped(held, [each["name"] for each in varying], WHAT + where):
            given += _cases(group, varying, number, where)
    return given


def _plain(name: str) -> str:
    if Path(name).name != name or name in (".", ".."):
        raise errors.UsageError(f"{name!r} is no name of a file of calibration data")
    return name


def _cases(group: Case, varying: list[dict[str, Any]], number: str, where: str) -> list[Case]:
    """The samples that one group of arrays holds; numbered ones hold one each."""
    parts = {}
    for each in varying:
        what = f"the array {each['name'] + number!r}{where} of the {WHAT}"
        parts[each["name"]] = _split(group[each["name"]], each, what, many=not number)
    counts = {name: len(found) for name, found in parts.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise errors.UsageError(f"the {WHAT}{where} has unequal numbers of samples: {said}")
    return [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]


def _split(array: Array, spec: dict[str, Any], what: str, *, many: bool) -> list[Array]:
    """``array`` as samples of an input, by the rules of the module's docstring."""
    shape = spec["shape"]
    right = array.dtype.name == spec["dtype"]
    if right and npz.fits(array.shape, shape):
        return [array]
    if right and many and array.ndim == len(shape) + 1 and npz.fits(array.shape[1:], shape):
        return list(array)
    batched = shape and isinstance(shape[0], int) and array.ndim == len(shape)
    if not (right and many and batched and npz.fits(array.shape[1:], shape[1:])):
        raise npz.misfit(what, array, spec)
    count, left = divmod(array.shape[0], shape[0])
    if left:
        raise errors.UsageError(
            f"{what} has {array.shape[0]} rows; the model takes {shape[0]} at a time, "
            f"so {left} would be left over",
            remedy=f"give a multiple of {shape[0]} rows",
        )
    return [array[shape[0] * n : shape[0] * (n + 1)] for n in range(count)]


def _check_finite(number: int, case: Case) -> None:
    import numpy as np

    for name, array in case.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            odd = "NaN" if np.isnan(array).any() else "infinity"
            raise errors.UsageError(
                f"the calibration data holds {odd} in {name!r}, sample {number}",
                remedy="leave such samples out: a range that includes them is no range",
            )
