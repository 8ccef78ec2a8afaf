"""The report as files: comparisons, choices of precision, and ONNX Runtime beside Core ML.

As JSON, CSV, Markdown and HTML.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from edge import errors, pareto, report, report_sides, report_variants
from edge.choice import Variant
from edge.choice_record import ChoiceRecord
from edge.report import Comparison, Row, clean
from edge.report_sides import Sides
from edge.results import ModelId, Size

SCHEMA_VERSION = 3  # 2: choices beside comparisons; 3: sides, provider of a row
TEMPLATE = "report"
PAGE = "report.html"
FRAME = {
    "width": pareto.WIDTH, "height": pareto.HEIGHT, "left": pareto.LEFT, "right": pareto.RIGHT,
    "top": pareto.TOP, "bottom": pareto.BOTTOM,
}  # fmt: skip


# --------------------------------------------------------------------------------- JSON
def to_json(
    comparisons: Sequence[Comparison],
    choices: Sequence[ChoiceRecord] = (),
    sides: Sequence[Sides] = (),
) -> str:
    """All as one JSON text; infinities are strings, what is not known is null."""
    plain = {
        "schema": SCHEMA_VERSION,
        "comparisons": [asdict(item) for item in comparisons],
        "choices": [
            record.to_json() for each in report_variants.groups(choices) for record in each.records
        ],
        "sides": [report_sides.to_json(each) for each in sides],
    }
    text = json.dumps(_finite(plain), indent=2, sort_keys=True, allow_nan=False)
    return text + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------------------------- CSV
OF_VARIANTS = ("accuracy", "drop", "metric", "artifact_sha256", "reason")


def to_csv(
    comparisons: Sequence[Comparison],
    choices: Sequence[ChoiceRecord] = (),
    sides: Sequence[Sides] = (),
) -> str:
    """One line a row, plain numbers (ns, bytes), empty where not known; CRLF, as RFC 4180.

    ``kind``: ``bundle`` (a target on a device), ``variant`` (a precision that was tried for a
    target; the verdict is ``chosen`` or ``lost``) or ``framework`` (the source's own accuracy).
    ``sides`` has no line of its own: its ways are rows already. Texts that a spreadsheet would take
    for a formula begin with an apostrophe.
    """
    del sides
    text = io.StringIO()
    writer = csv.writer(text)
    columns = list(_flat(_EMPTY, Row("", "")))
    lines = [_flat(comparison, row) for comparison in comparisons for row in comparison.rows]
    for each in report_variants.groups(choices):
        lines += _framework(each)
        lines += [_variant(record, v) for record in each.records for v in record.variants]
    writer.writerow(columns)
    for line in lines:
        writer.writerow([_safe(line.get(name)) for name in columns])
    return text.getvalue()


_EMPTY = Comparison(ModelId("", "", ""), "", ())


def _flat(comparison: Comparison, row: Row) -> dict[str, Any]:
    model = comparison.model
    head = _head(model.name, model.version, model.sha256, comparison.samples_sha256)
    sizes: dict[str, Any] = {}
    for part in ("artifact", "runtime", "total"):
        size: Size | None = getattr(row.sizes, part) if row.sizes else None
        for kind in ("raw", "compressed"):
            sizes[f"{part}_{kind}_bytes"] = getattr(size, kind) if size else None
    plain = asdict(replace(row, sizes=None))
    del plain["sizes"]
    return {
        **head, **plain, **sizes, "evidence": "; ".join(row.evidence), "kind": "bundle",
        **dict.fromkeys(OF_VARIANTS),
    }  # fmt: skip


def _head(name: str, version: str, sha256: str, samples_sha256: str) -> dict[str, Any]:
    return {
        "model": name,
        "version": version,
        "model_sha256": sha256,
        "samples_sha256": samples_sha256,
    }


def _framework(choices: report_variants.Choices) -> list[dict[str, Any]]:
    model, told = choices.model, {(r.metric, r.source_accuracy): None for r in choices.records}
    head = _head(model.name, model.version, model.sha256, choices.samples_sha256)
    return [
        {**head, "kind": "framework", "metric": metric, "accuracy": accuracy}
        for metric, accuracy in told
        if accuracy is not None
    ]


SAME = ("max_abs", "sqnr_db", "p50_ns", "p50_low_ns", "p50_high_ns", "peak_bytes", "state",
        "precision", "accuracy", "drop")  # fmt: skip


def _variant(record: ChoiceRecord, variant: Variant) -> dict[str, Any]:
    model = record.model
    return {
        **_head(model.name, model.version, model.sha256, record.samples_sha256),
        **{name: getattr(variant, name) for name in SAME},
        "kind": "variant",
        "target": record.target,
        "device": record.device,
        "metric": record.metric,
        "artifact_raw_bytes": variant.artifact_raw,
        "artifact_compressed_bytes": variant.artifact_compressed,
        "artifact_sha256": variant.sha256,
        "verdict": "chosen" if variant.precision == record.chosen else "lost",
        "reason": record.reasons.get(variant.precision, ""),
    }


def _safe(value: Any) -> Any:
    """OWASP's rule on CSV injection; numbers stay numbers."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = clean(value)
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@|%") else text


# ----------------------------------------------------------------------------- Markdown
def to_markdown(
    comparisons: Sequence[Comparison],
    choices: Sequence[ChoiceRecord] = (),
    sides: Sequence[Sides] = (),
) -> str:
    """A table for each comparison and each model's precisions, as on the terminal."""
    blocks = [
        _table(report.title(each), report.COLUMNS, [report.cells(row) for row in each.rows])
        for each in comparisons
    ]
    for side in sides:
        rows = [report_sides.cells(way) for way in side.ways]
        table = _table(side.title, report_sides.COLUMNS, rows)
        blocks.append(f"{table}\n{_list(report_sides.notes(side))}")
    for each in report_variants.groups(choices):
        table = _table(each.title, report_variants.COLUMNS, report_variants.rows(each))
        blocks.append(f"{table}\n{_list(report_variants.notes(each))}")
    return "\n".join(blocks)


def _list(lines: Sequence[str]) -> str:
    return "".join(f"- {_markdown(line)}\n" for line in lines)


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    table = [columns, ("---",) * len(columns), *rows]
    lines = ["| " + " | ".join(map(_markdown, line)) + " |" for line in table]
    return f"## {_markdown(title)}\n\n" + "\n".join(lines) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", text)


# --------------------------------------------------------------------------------- HTML
def to_html(
    comparisons: Sequence[Comparison],
    choices: Sequence[ChoiceRecord] = (),
    sides: Sequence[Sides] = (),
) -> str:
    """One page that holds all it needs: no script, nothing from elsewhere, well-formed XML."""
    from edge.convert.render import render
    from edge.registry import Registry, product_root

    template = Registry(product_root()).template(TEMPLATE).path
    variables = {
        "frame": FRAME,
        "comparisons": [*map(_comparison, comparisons), *map(_side, sides)],
        "models": [_choices(each) for each in report_variants.groups(choices)],
    }
    with tempfile.TemporaryDirectory(prefix="edge-report-") as folder:
        render(template, Path(folder), variables)
        return (Path(folder) / PAGE).read_text(encoding="utf-8")


def _comparison(each: Comparison) -> dict[str, Any]:
    rows = [report.stacked(row) for row in each.rows]
    return {
        "title": report.title(each),
        "columns": list(rows[0]),
        "rows": [list(row.values()) for row in rows],
        "evidence": report.evidence(each),
    }


def _side(each: Sides) -> dict[str, Any]:
    """A table with its answer, as a comparison with its evidence."""
    rows = [report_sides.stacked(way) for way in each.ways]
    return {
        "title": each.title,
        "columns": list(rows[0]),
        "rows": [list(row.values()) for row in rows],
        "evidence": report_sides.notes(each),
    }


def _choices(each: report_variants.Choices) -> dict[str, Any]:
    columns, rows = report_variants.stacked(each)
    return {
        "title": each.title,
        "columns": columns,
        "rows": [{"cells": row, "chosen": row[-1] == report_variants.CHOSEN} for row in rows],
        "notes": report_variants.notes(each),
        "plots": report_variants.plots(each),
        "absent": report_variants.absent(each),
    }


WRITERS = {".json": to_json, ".csv": to_csv, ".md": to_markdown, ".html": to_html}


def write(
    path: Path,
    comparisons: Sequence[Comparison],
    choices: Sequence[ChoiceRecord] = (),
    sides: Sequence[Sides] = (),
) -> None:
    """Write by the suffix: .json, .csv, .md or .html; whole or not at all.

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
        part.write_bytes(writer(comparisons, choices, sides).encode("utf-8", "replace"))
        part.replace(path)
    except OSError as error:
        raise errors.UsageError(f"cannot write {path}: {error.strerror}") from error
