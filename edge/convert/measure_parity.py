"""Hold the outputs of a stage against the golden ones, as facts that a gate can judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge import config, errors, parity, samples
from edge.job import Job
from edge.step import Facts, step
from edge.store import Result


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


def against_golden(job: Job, ran: Result, tolerance: config.Tolerance) -> Result:
    """What ``ran`` gave (outputs in the samples' form) held against the golden outputs."""
    return job.step(
        measure_parity,
        actual=ran.tree(samples.INDEX),
        golden=job.samples.tree(samples.INDEX),
        tolerance=tolerance.model_dump(),
    )


def hold(job: Job, held: Result, what: str, *, remedy: str) -> list[dict[str, Any]]:
    """Facts ``outputs`` of ``held``.

    Raises :class:`errors.ParityFailed` with ``what`` and the first reason when they are outside
    the tolerance.
    """
    if reasons := held.facts["reasons"]:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise errors.ParityFailed(
            f"{job.target.name}/{job.model.name}: {what}: {reasons[0]}{more}", remedy=remedy
        )
    outputs: list[dict[str, Any]] = held.facts["outputs"]
    return outputs
