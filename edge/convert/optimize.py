"""Optimize the graph offline with ONNX Runtime, so that a device does not have to.

``extended`` fuses nodes into ``com.microsoft`` operators that every CPU runs; ``all`` may also
choose the layout of the CPU that it runs on now (NCHWc on x86-64) and is then no portable file.
"""

from __future__ import annotations

from pathlib import Path

from edge import graph
from edge.convert import run_model
from edge.step import Facts, step


@step(version=1, tools=("onnx", "onnxruntime"), timeout=1800)
def optimize(out: Path, *, model: Path, level: str) -> Facts:
    """``model.onnx`` optimized at ``level`` (disabled, basic, extended, all), external data in.

    Facts as ``edge.graph.facts``, and ``level``.
    """
    import onnx

    raw = out / "optimized.onnx"
    settings = run_model.options(level)
    settings.optimized_model_filepath = str(raw)
    run_model.create(model, settings)
    optimized = onnx.load(raw)
    raw.unlink()
    graph.save(optimized, out / "model.onnx")
    return {**graph.facts(optimized), "level": level}
