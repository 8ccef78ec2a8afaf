"""One comparison of targets and devices for the same model and the same samples.

Rows of different models (by hash) or different golden samples never share a table. What is
planned is never shown as built; what is built and not measured has sizes only. Figures of
different runners stand in rows of their own that name the runner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edge import errors, log
from edge.parity import OutputParity
from edge.placement import CPU
from edge.results import ModelId, Record, Size, Sizes

DASH = "-"
NOT_MEASURED = "not measured"
PLANNED = "planned, not built"
OLDER = "of an older build"


@dataclass(frozen=True)
class Built:
    """What a manifest says: ``state`` built or planned; ``manifest_sha256`` is its own hash."""

    state: str
    target: str
    model: ModelId
    samples_sha256: str
    manifest_sha256: str
    sizes: Sizes


@dataclass(frozen=True)
class Row:
    """One target on one device. Times in ns, sizes in bytes; None is not known or not measured.

    ``state``: measured, ``NOT_MEASURED`` or ``PLANNED``. ``note`` says when the measured bundle
    is not the one built last. ``max_abs`` and ``sqnr_db`` are the worst of all outputs.
    """

    target: str
    state: str
    device: str | None = None
    precision: str | None = None
    runner: str | None = None
    threads: int | None = None
    provider: str | None = None
    sizes: Sizes | None = None
    load_ns: float | None = None
    first_ns: float | None = None
    p50_ns: float | None = None
    p50_low_ns: float | None = None
    p50_high_ns: float | None = None
    p90_ns: float | None = None
    p99_ns: float | None = None
    peak_bytes: int | None = None
    throughput: float | None = None
    max_abs: float | None = None
    sqnr_db: float | None = None
    verdict: str | None = None
    evidence: tuple[str, ...] = ()
    note: str = ""
    record: str | None = None
    created: str | None = None
    runtime: str | None = None
    runs: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Rows of one model and its golden samples by target, device, runner, provider, precision."""

    model: ModelId
    samples_sha256: str
    rows: tuple[Row, ...]


def built(manifest: Mapping[str, Any], manifest_sha256: str) -> Built:
    """What a manifest says of sizes; :class:`errors.UsageError` when it does not say it."""
    try:
        model = ModelId(*(str(manifest["model"][key]) for key in ("name", "version", "sha256")))
        sizes = [_size_of(manifest["sizes"][part]) for part in ("artifact", "runtime", "total")]
        if sizes[0] is None:
            raise ValueError("no size of the artifact")
        return Built(
            str(manifest["state"]),
            str(manifest["target"]["name"]),
            model,
            str(manifest["samples"]["sha256"]),
            manifest_sha256,
            Sizes(sizes[0], sizes[1], sizes[2]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise errors.UsageError(
            f"a manifest does not say what it should: {error!r}", remedy="build the bundle again"
        ) from error


def _size_of(entry: Mapping[str, Any] | None) -> Size | None:
    return None if entry is None else Size(int(entry["raw"]), int(entry["compressed"]))


def compare(records: Iterable[Record], bundles: Iterable[Built]) -> tuple[Comparison, ...]:
    """Group records and built bundles by model and samples, in a fixed order.

    A bundle of a model and samples for whose target there is no record gets a row of sizes.
    """
    known = list(bundles)
    groups: dict[tuple[ModelId, str], list[Row]] = {}
    measured = set()
    for record in records:
        key = (record.model, record.samples_sha256)
        groups.setdefault(key, []).append(_measured(record, known))
        measured.add((*key, record.target))
    for bundle in known:
        key = (bundle.model, bundle.samples_sha256)
        if (*key, bundle.target) not in measured or bundle.state != "built":
            groups.setdefault(key, []).append(_unmeasured(bundle))
    return tuple(
        Comparison(model, samples, tuple(sorted(rows, key=_order)))
        for (model, samples), rows in sorted(groups.items(), key=_group_order)
    )


def _group_order(group: tuple[tuple[ModelId, str], list[Row]]) -> tuple[str, ...]:
    (model, samples), _ = group
    return (model.name, model.version, model.sha256, samples)


def _order(row: Row) -> tuple[str, ...]:
    known = (row.device, row.runner, row.provider, row.precision)
    return (row.target, *(each or "" for each in known), row.state, row.record or "")


def _unmeasured(bundle: Built) -> Row:
    if bundle.state != "built":  # its sizes are not those of what will be built
        return Row(bundle.target, PLANNED)
    return Row(bundle.target, NOT_MEASURED, sizes=bundle.sizes)


def _measured(record: Record, bundles: Sequence[Built]) -> Row:
    summary = record.summary
    now = [
        bundle.manifest_sha256
        for bundle in bundles
        if (bundle.target, bundle.model, bundle.samples_sha256)
        == (record.target, record.model, record.samples_sha256)
    ]
    max_abs, sqnr_db = worst(record.outputs)
    return Row(
        record.target,
        "measured",
        device=record.device,
        precision=said(record, "precision") or None,
        runner=record.runner,
        threads=threads(record),
        provider=said(record, "provider") or None,
        sizes=record.sizes,
        load_ns=float(median(record.load_ns)) if record.load_ns else None,
        first_ns=float(median(record.first_ns)) if record.first_ns else None,
        p50_ns=summary.median_ns,
        p50_low_ns=summary.low_ns,
        p50_high_ns=summary.high_ns,
        p90_ns=summary.p90_ns,
        p99_ns=summary.p99_ns,
        peak_bytes=record.peak_bytes,
        throughput=summary.throughput,
        max_abs=max_abs,
        sqnr_db=sqnr_db,
        verdict=record.verdict.kind,
        evidence=record.verdict.evidence,
        note=OLDER if now and record.manifest_sha256 not in now else "",
        record=record.id,
        created=record.created,
        runtime=record.runtime,
        runs=summary.runs,
    )


def said(record: Record, name: str) -> str:
    """A text of a record's options; empty where it has none."""
    return str(record.options.get(name) or "")


def threads(record: Record) -> int | None:
    """The number of threads that was asked for; None where it is not known."""
    found = record.options.get("threads")
    return found if isinstance(found, int) else None


def worst(outputs: Sequence[OutputParity]) -> tuple[float | None, float | None]:
    """Largest max_abs and smallest SQNR (dB) of outputs; None where no output has one."""
    differences = [output.max_abs for output in outputs if output.max_abs is not None]
    ratios = [output.sqnr_db for output in outputs if output.sqnr_db is not None]
    return max(differences, default=None), min(ratios, default=None)


# ------------------------------------------------------------------------- for a person
COLUMNS = (
    "target", "device", "runner", "artifact", "runtime", "total", "load", "first run",
    "p50 (95 % interval)", "p90", "p99", "peak memory", "runs/s", "max abs", "SQNR", "verdict",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """The texts of a row, one for each of ``COLUMNS``; what is not known is a dash."""
    known = row.sizes
    sizes = (known.artifact, known.runtime, known.total) if known else (None, None, None)
    verdict = row.verdict or row.state
    return (
        target_text(row.target, row.precision),
        clean(row.device or DASH),
        _runner(row),
        *(size_text(size) for size in sizes),
        time_text(row.load_ns),
        time_text(row.first_ns),
        interval(row.p50_ns, row.p50_low_ns, row.p50_high_ns),
        time_text(row.p90_ns),
        time_text(row.p99_ns),
        DASH if row.peak_bytes is None else log.human_bytes(row.peak_bytes),
        DASH if row.throughput is None else f"{row.throughput:.4g}",
        DASH if row.max_abs is None else f"{row.max_abs:.2g}",
        DASH if row.sqnr_db is None else decibels(row.sqnr_db),
        f"{verdict} ({row.note})" if row.note else verdict,
    )


def target_text(target: str, precision: str | None) -> str:
    """A target, with the precision of what was measured where that is not the source's."""
    return clean(target if precision in (None, "", "source") else f"{target}, {precision}")


def threads_text(count: int) -> str:
    """A number of threads in words."""
    return f"{count} thread{'s' * (count > 1)}"


def _runner(row: Row) -> str:
    parts = [row.runner or DASH]
    if row.threads is not None:
        parts.append(threads_text(row.threads))
    if row.provider not in (None, CPU):
        parts.append(str(row.provider))
    return clean(", ".join(parts))


def clean(text: str) -> str:
    """Names come from files and devices: nothing in them may steer a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def size_text(size: Size | None) -> str:
    """Raw bytes, compressed in brackets."""
    if size is None:
        return DASH
    return f"{log.human_bytes(size.raw)} ({log.human_bytes(size.compressed)})"


def time_text(ns: float | None) -> str:
    """Nanoseconds for a person, or a dash."""
    return DASH if ns is None else log.human_ns(ns)


def interval(ns: float | None, low: float | None, high: float | None) -> str:
    """A median in ns with its 95 % interval: ``1.24 ms (1.2 to 1.28 ms)``."""
    if ns is None or low is None or high is None:
        return time_text(ns)
    first, last = log.human_ns(low), log.human_ns(high)
    unit = last.partition(" ")[2]
    return f"{log.human_ns(ns)} ({first.removesuffix(f' {unit}')} to {last})"


def decibels(ratio: float) -> str:
    """An SQNR with one decimal; infinities as they are."""
    return f"{ratio:.1f} dB" if math.isfinite(ratio) else str(ratio)


def title(comparison: Comparison) -> str:
    """What a table is of: model, version, and the hashes that its rows share."""
    model = comparison.model
    return heading(model.name, model.version, model.sha256, comparison.samples_sha256)


def heading(name: str, version: str, sha256: str, samples_sha256: str) -> str:
    """Model, version, and short hashes of the model and its samples."""
    hashes = f"model {sha256[:12]}, samples {samples_sha256[:12]}"
    return clean(f"{name} {version} ({hashes})")


def stacked(row: Row) -> dict[str, str]:
    """The cells for a terminal, where sixteen columns do not fit: several lines in a cell."""
    cell = dict(zip(COLUMNS, cells(row), strict=True))
    where = [text for name in ("target", "device", "runner") if (text := cell[name]) != DASH]
    sizes = ("artifact", "runtime", "total")
    return {
        "target\ndevice\nrunner": "\n".join(where),
        **{f"{name}\n(compressed)": cell[name].replace(" (", "\n(") for name in sizes},
        "load\nfirst run": f"{cell['load']}\n{cell['first run']}",
        "p50\n(95 % interval)": cell["p50 (95 % interval)"].replace(" (", "\n("),
        "p90\np99": f"{cell['p90']}\n{cell['p99']}",
        "peak memory\nruns/s": f"{cell['peak memory']}\n{cell['runs/s']}",
        "max abs\nSQNR": f"{cell['max abs']}\n{cell['SQNR']}",
        "verdict": cell["verdict"].replace(" (", "\n("),
    }


def show(comparisons: Sequence[Comparison]) -> None:
    """Print the tables, sizes raw with compressed in brackets, and the evidence of verdicts."""
    for comparison in comparisons:
        rows = [stacked(row) for row in comparison.rows]
        texts = [list(row.values()) for row in rows]
        log.table(title(comparison), tuple(rows[0]), texts)
    for comparison in comparisons:
        for text in evidence(comparison):
            log.say(f"  {text}")


def evidence(comparison: Comparison) -> list[str]:
    """Why figures may not be believed: a line for each finding."""
    return [
        f"{clean(row.target)} on {clean(row.device or DASH)}: {clean(text)}"
        for row in comparison.rows
        for text in row.evidence
    ]
