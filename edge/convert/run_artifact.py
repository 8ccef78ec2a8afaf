"""Run an artifact on the golden inputs with the very ONNX Runtime release that it is for."""

from __future__ import annotations

from pathlib import Path

from edge import samples
from edge.convert import run_model
from edge.step import Facts, step


@step(version=1, tools=("onnxruntime", "numpy"), timeout=1800)
def run_artifact(out: Path, *, model: Path, golden: Path) -> Facts:
    """The artifact's outputs, in the samples' form (``samples.tsv`` and raw files).

    ``golden`` is the index file of the golden samples, ``model`` a ``.onnx`` or ``.ort`` file,
    which is run as it is: nothing is optimized again. Facts: ``runtime``, ``not_finite``.
    """
    import onnxruntime

    session = run_model.open_session(model, level="disabled")
    pairs = [
        (case, run_model.run_session(session, case))
        for case in samples.cases(golden.parent, "input")
    ]
    samples.write(out, pairs)
    odd = {name for _, outs in pairs for name, a in outs.items() if not run_model.finite(a)}
    return {"runtime": onnxruntime.__version__, "not_finite": sorted(odd)}
