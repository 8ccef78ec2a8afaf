"""Golden samples of an ONNX model, as the two steps of a build make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.convert.golden import draw_samples, onnx_golden
from edge.samples import INDEX


def drawn(folder: Path, inputs: list[dict[str, Any]], *, count: int, seed: int = 0) -> Path:
    """The index of seeded inputs in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_samples.function(folder, inputs=inputs, count=count, seed=seed)
    return folder / INDEX


def golden(
    folder: Path, model: Path, inputs: list[dict[str, Any]], *, count: int, seed: int = 0
) -> dict[str, Any]:
    """Golden samples in ``folder``, their inputs drawn beside it; the facts."""
    cases = drawn(folder.with_name(f"{folder.name}-inputs"), inputs, count=count, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    facts = onnx_golden.function(folder, model=model, cases=cases, inputs=inputs)
    assert facts is not None
    return facts
