"""Golden samples: real inputs, and the outputs that the source gave for them.

Inputs come from the user's ``.npz`` or from a seeded generator; outputs from ONNX Runtime with
optimizations off, on the model as the user gave it. Inputs that are constant for the deployment
are fed here and left out of the samples: the deployed model does not have them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, samples
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@step(version=1, tools=("onnxruntime", "numpy"), timeout=1800)
def golden(out: Path, *, model: Path, inputs: list[dict[str, Any]], count: int, seed: int) -> Facts:
    """Samples from a seeded generator: ``count`` cases for ``inputs`` (BoundInput.to_json)."""
    import numpy as np

    generator = np.random.default_rng(seed)
    cases = [{each["name"]: draw(generator, each) for each in inputs} for _ in range(count)]
    return _write(out, model, inputs, cases)


@step(version=1, tools=("onnxruntime", "numpy"), timeout=1800)
def golden_from_file(
    out: Path, *, model: Path, inputs: list[dict[str, Any]], arrays: Path
) -> Facts:
    """Samples from the user's ``.npz``: ``name`` for one sample, ``name/0``, ``name/1`` for more.

    ``arrays`` is that file.
    """
    return _write(out, model, inputs, read_npz(arrays, inputs))


def draw(generator: np.random.Generator, spec: dict[str, Any]) -> Array:
    """One array for an input: constant, in its range, or in its dtype's usual range."""
    import numpy as np

    dtype = np.dtype(spec["dtype"])
    shape = tuple(spec["shape"])
    if spec["constant"] is not None:
        return np.full(shape, spec["constant"], dtype)
    low, high = spec["range"] or default_range(dtype)
    if dtype == np.bool_:
        return np.asarray(generator.integers(0, 2, shape), dtype)
    if dtype.kind in "iu":
        return generator.integers(int(low), int(high), shape, dtype, endpoint=True)
    return np.asarray(generator.random(shape) * (high - low) + low, dtype)


def default_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Where nothing is declared: [-1, 1] for floats, [0, 1] for integers, which often index."""
    return (-1.0, 1.0) if dtype.kind == "f" else (0.0, 1.0)


def read_npz(path: Path, inputs: list[dict[str, Any]]) -> list[dict[str, Array]]:
    """The cases of an ``.npz`` file; every wrong name, dtype and shape is said."""
    import zipfile

    import numpy as np

    try:
        with zipfile.ZipFile(path) as listed:
            size = sum(entry.file_size for entry in listed.infolist())
        if size > samples.MAX_TENSOR_BYTES:
            raise errors.UsageError(f"the samples would hold {size} bytes")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise errors.UsageError(
            f"cannot read the samples: {str(error).partition(',')[0]}",
            remedy="write a .npz with numpy.savez: NAME=array, or 'NAME/0', 'NAME/1' for several",
        ) from error
    varying = [each for each in inputs if each["constant"] is None]
    many = any("/" in name and name.rpartition("/")[2].isdigit() for name in arrays)
    count = len({n.rpartition("/")[2] for n in arrays}) if many else 1
    cases = []
    for index in range(count):
        case = {}
        for each in inputs:
            key = f"{each['name']}/{index}" if many else each["name"]
            case[each["name"]] = _checked(arrays, key, each)
        cases.append(case)
    extra = set(arrays) - {f"{e['name']}/{i}" if many else e["name"] for e in varying
                           for i in range(count)}  # fmt: skip
    if extra:
        raise errors.UsageError(f"the samples hold unknown arrays: {', '.join(sorted(extra))}")
    return cases


def _checked(arrays: dict[str, Array], key: str, spec: dict[str, Any]) -> Array:
    import numpy as np

    if spec["constant"] is not None:
        return np.full(tuple(spec["shape"]), spec["constant"], spec["dtype"])
    if key not in arrays:
        raise errors.UsageError(
            f"the samples have no array {key!r}",
            remedy=f"they hold: {', '.join(sorted(arrays)) or 'nothing'}",
        )
    array = arrays[key]
    if array.dtype.name != spec["dtype"] or list(array.shape) != spec["shape"]:
        raise errors.UsageError(
            f"the sample {key!r} is {array.dtype.name}{list(array.shape)}, "
            f"the model wants {spec['dtype']}{spec['shape']}"
        )
    return array.astype(spec["dtype"])  # this machine's byte order


def _write(
    out: Path, model: Path, inputs: list[dict[str, Any]], cases: list[dict[str, Array]]
) -> Facts:
    from edge.convert import run_model

    session = run_model.open_session(model, level="disabled")
    constant = {each["name"] for each in inputs if each["constant"] is not None}
    pairs = []
    for case in cases:
        outputs = run_model.run_session(session, case)
        pairs.append(({n: a for n, a in case.items() if n not in constant}, outputs))
    if pairs and not _same(pairs[0][1], run_model.run_session(session, cases[0])):
        raise errors.ModelRefused(
            "the model gives other outputs each time it is run (RandomNormal or the like); nothing "
            "could be proven about it",
            remedy="make the randomness an input, or give the operator a seed",
        )
    samples.write(out, pairs)
    odd = [n for _, outputs in pairs for n, a in outputs.items() if not run_model.finite(a)]
    return {"samples": len(pairs), "not_finite": sorted(set(odd))}


def _same(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return all(first[name].tobytes() == second[name].tobytes() for name in first)
