"""One comparison of targets and devices for the same model and the same samples.

Rows of different models (by hash) or different golden samples never share a table. What is
planned is never shown as built; what is built and not measured has sizes only. Figures of
different runners stand in rows of their own that name the runner.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from edge import errors, log
from edge.parity import OutputParity
from edge.results import ModelId, Record, Size, Sizes

DASH = "-"
NOT_MEASURED = "not measured"
PLANNED = "planned, not built"
OLDER = "of an older build"
SCHEMA_VERSION = 1


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
    runner: str | None = None
    threads: int | None = None
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
    """Rows of one model and one set of golden samples, sorted by target, device and runner."""

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
    return (row.target, row.device or "", row.runner or "", row.state, row.record or "")


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
    threads = record.options.get("threads")
    return Row(
        record.target,
        "measured",
        device=record.device,
        runner=record.runner,
        threads=threads if isinstance(threads, int) else None,
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
        _clean(row.target),
        _clean(row.device or DASH),
        _runner(row),
        *(_size(size) for size in sizes),
        _time(row.load_ns),
        _time(row.first_ns),
        _interval(row),
        _time(row.p90_ns),
        _time(row.p99_ns),
        DASH if row.peak_bytes is None else log.human_bytes(row.peak_bytes),
        DASH if row.throughput is None else f"{row.throughput:.4g}",
        DASH if row.max_abs is None else f"{row.max_abs:.2g}",
        DASH if row.sqnr_db is None else _decibels(row.sqnr_db),
        f"{verdict} ({row.note})" if row.note else verdict,
    )


def _runner(row: Row) -> str:
    if row.threads is None:
        return _clean(row.runner or DASH)
    return f"{_clean(row.runner or DASH)}, {row.threads} thread{'s' * (row.threads > 1)}"


def _clean(text: str) -> str:
    """Names come from files and devices: nothing in them may steer a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _size(size: Size | None) -> str:
    if size is None:
        return DASH
    return f"{log.human_bytes(size.raw)} ({log.human_bytes(size.compressed)})"


def _time(ns: float | None) -> str:
    return DASH if ns is None else log.human_ns(ns)


def _interval(row: Row) -> str:
    if row.p50_ns is None or row.p50_low_ns is None or row.p50_high_ns is None:
        return _time(row.p50_ns)
    low, high = log.human_ns(row.p50_low_ns), log.human_ns(row.p50_high_ns)
    unit = high.partition(" ")[2]
    return f"{log.human_ns(row.p50_ns)} ({low.removesuffix(f' {unit}')} to {high})"


def _decibels(ratio: float) -> str:
    return f"{ratio:.1f} dB" if math.isfinite(ratio) else str(ratio)


def title(comparison: Comparison) -> str:
    """What a table is of: model, version, and the hashes that its rows share."""
    model = comparison.model
    hashes = f"model {model.sha256[:12]}, samples {comparison.samples_sha256[:12]}"
    return f"{_clean(model.name)} {_clean(model.version)} ({hashes})"


def _stacked(row: Row) -> dict[str, str]:
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
        rows = [_stacked(row) for row in comparison.rows]
        texts = [list(row.values()) for row in rows]
        log.table(title(comparison), tuple(rows[0]), texts)
    for comparison in comparisons:
        for row in comparison.rows:
            for text in row.evidence:
                log.say(f"  {_clean(row.target)} on {_clean(row.device or DASH)}: {_clean(text)}")


# ------------------------------------------------------------------------- for files
def to_json(comparisons: Sequence[Comparison]) -> str:
    """All comparisons as one JSON text; infinities are strings, what is not known is null."""
    plain = {"schema": SCHEMA_VERSION, "comparisons": [asdict(item) for item in comparisons]}
    text = json.dumps(_finite(plain), indent=2, sort_keys=True, allow_nan=False)
    return text + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """One line a row, plain numbers (ns, bytes), empty where not known; CRLF, as RFC 4180.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    lines = [_flat(comparison, row) for comparison in comparisons for row in comparison.rows]
    writer.writerow(_flat(_EMPTY, Row("", "")))
    for line in lines:
        writer.writerow([_safe(value) for value in line.values()])
    return text.getvalue()


_EMPTY = Comparison(ModelId("", "", ""), "", ())


def _flat(comparison: Comparison, row: Row) -> dict[str, Any]:
    model = comparison.model
    head = {"model": model.name, "version": model.version, "model_sha256": model.sha256}
    head["samples_sha256"] = comparison.samples_sha256
    sizes: dict[str, Any] = {}
    for part in ("artifact", "runtime", "total"):
        size: Size | None = getattr(row.sizes, part) if row.sizes else None
        for kind in ("raw", "compressed"):
            sizes[f"{part}_{kind}_bytes"] = getattr(size, kind) if size else None
    plain = asdict(replace(row, sizes=None))
    del plain["sizes"]
    return {**head, **plain, **sizes, "evidence": "; ".join(row.evidence)}


def _safe(value: Any) -> Any:
    """OWASP's rule on CSV injection; numbers stay numbers."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = _clean(value)
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@|%") else text


def to_markdown(comparisons: Sequence[Comparison]) -> str:
    """A table for each comparison, with the same cells as on the terminal."""
    blocks = []
    for comparison in comparisons:
        table = [COLUMNS, ("---",) * len(COLUMNS), *(cells(row) for row in comparison.rows)]
        lines = ["| " + " | ".join(map(_markdown, line)) + " |" for line in table]
        blocks.append(f"## {_markdown(title(comparison))}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(blocks)


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", text)


WRITERS = {".json": to_json, ".csv": to_csv, ".md": to_markdown}


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Write by the suffix: .json, .csv or .md; whole or not at all.

    Raises :class:`errors.UsageError` for another suffix or when it cannot be written.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise errors.UsageError(
            f"a report cannot be written as {path.suffix or path.name!r}",
            remedy=f"name a file with one of {', '.join(WRITERS)}",
        )
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(writer(comparisons).encode("utf-8", "replace"))
        part.replace(path)
    except OSError as error:
        raise errors.UsageError(f"cannot write {path}: {error.strerror}") from error
