"""Hold the outputs of a stage against the golden ones, as facts that a gate can judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge import parity, samples
from edge.step import Facts, step


@step(version=1, tools=("numpy",), timeout=900)
def measure_parity(out: Path, *, actual: Path, golden: Path, tolerance: dict[str, Any]) -> Facts:
    """Facts ``outputs``: one ``OutputParity.to_json`` for each output of each sample.

    ``actual`` and ``golden`` are index files (``samples.tsv``); ``tolerance`` are the fields of
    :class:`edge.parity.Tolerance`. Facts ``reasons``: why outputs are not within tolerance,
    each naming sample and output; empty when all are.
    """
    del out  # facts only
    limits = parity.Tolerance(**tolerance)
    found = {
        (t.sample, t.index): t for t in samples.read_index(actual.parent) if t.role == "output"
    }
    measured, reasons = [], []
    for tensor in samples.read_index(golden.parent):
        if tensor.role != "output":
            continue
        where = f"sample {tensor.sample}, output {tensor.name!r}"
        other = found.pop((tensor.sample, tensor.index), None)
        if other is None:
            reasons.append(f"{where}: missing")
            continue
        if other.name != tensor.name:
            reasons.append(f"{where}: is called {other.name!r}")
        expected = samples.read_tensor(golden.parent, tensor)
        result = parity.measure(expected, samples.read_tensor(actual.parent, other), limits)
        measured.append({**result.to_json(), "sample": tensor.sample, "name": tensor.name})
        reasons += [f"{where}: {why}" for why in parity.verdict(result, limits)]
    reasons += [f"sample {s}, output {t.name!r}: not expected" for (s, _), t in found.items()]
    return {"outputs": measured, "reasons": reasons}
