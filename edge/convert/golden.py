"""Samples: real inputs for a model, and the outputs that an ONNX source gave for them.

Inputs come from the user's ``.npz`` or from a seeded generator. Golden outputs come from the
source itself: for an ONNX file from ONNX Runtime with optimizations off, on the model as the user
gave it; for other sources from their framework (``edge.sources``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import samples
from edge.convert import run_model
from edge.convert.npz import read_npz
from edge.sources.framework import write_golden
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@step(version=1, tools=("numpy",), timeout=900)
def draw_samples(out: Path, *, inputs: list[dict[str, Any]], count: int, seed: int) -> Facts:
    """Inputs from a seeded generator: ``count`` cases for ``inputs`` (BoundInput.to_json)."""
    import numpy as np

    generator = np.random.default_rng(seed)
    cases = [{each["name"]: draw(generator, each) for each in inputs} for _ in range(count)]
    samples.write(out, [(case, {}) for case in cases])
    return {"samples": count}


@step(version=1, tools=("numpy",), timeout=900)
def read_samples(out: Path, *, inputs: list[dict[str, Any]], arrays: Path) -> Facts:
    """Inputs from the user's ``.npz``: ``name`` for one sample, ``name/0``, ``name/1`` for more.

    ``arrays`` is that file.
    """
    cases = read_npz(arrays, inputs)
    samples.write(out, [(case, {}) for case in cases])
    return {"samples": len(cases)}


@step(version=2, tools=("onnxruntime", "numpy"), timeout=1800)
def onnx_golden(out: Path, *, model: Path, cases: Path, inputs: list[dict[str, Any]]) -> Facts:
    """Golden samples of an ONNX source: ``cases`` is the index file of the inputs.

    Facts as :func:`edge.sources.framework.write_golden`.
    """
    session = run_model.open_session(model, level="disabled")
    names = [output.name for output in session.get_outputs()]

    def run(case: Mapping[str, Array]) -> list[Array]:
        return list(run_model.run_session(session, dict(case)).values())

    return write_golden(out, run, cases=cases, inputs=inputs, names=names)


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
