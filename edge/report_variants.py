"""Which precision each target got, and why the others lost: one table a model and its samples.

The records lie beside the bundles (``edge.choice_record``). Times of different devices never
share a Pareto front; targets where nothing was timed have a plot of accuracy or SQNR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge import choice, errors, log
from edge.choice import BYTES, DECIBELS, PLAIN, TIMES, Limits, Variant, figures
from edge.choice_record import SUFFIX, ChoiceRecord, ModelRef
from edge.pareto import Axis, Plot, Point, plot
from edge.report import DASH, clean, decibels, heading, interval, size_text
from edge.results import Size

FRAMEWORK = "source framework"
CHOSEN = "chosen"
COLUMNS = (
    "target", "precision", "size", "SQNR", "max abs", "accuracy (drop)", "p50 (95 % interval)",
    "peak memory", "verdict",
)  # fmt: skip
# Figures beyond these come from damaged files; no axis could hold them.
SMALLEST, LARGEST = 1e-6, 1e15


@dataclass(frozen=True)
class Choices:
    """The records of one model and one set of golden samples, sorted by target."""

    model: ModelRef
    samples_sha256: str
    records: tuple[ChoiceRecord, ...]

    @property
    def title(self) -> str:
        """What the table is of."""
        model = self.model
        named = heading(model.name, model.version, model.sha256, self.samples_sha256)
        return f"Precision of {named}"


def read_all(folder: Path) -> list[ChoiceRecord]:
    """The records below ``folder`` (MODEL/VERSION/TARGET.choice.json), by their paths.

    One that is damaged, or of another target than its name says, is left out with a warning.
    """
    found = []
    for path in sorted(folder.glob(f"*/*/*{SUFFIX}")):
        if path.name.startswith("."):
            continue
        try:
            record = ChoiceRecord.read(path)
        except errors.StoreDamaged as error:
            log.warn(f"{error.message}; {error.remedy}")
            continue
        if path.name != record.target + SUFFIX:
            log.warn(f"{path} is the record of another target, {clean(record.target):.60}")
            continue
        found.append(record)
    return found


def groups(records: Iterable[ChoiceRecord]) -> tuple[Choices, ...]:
    """Records by model and samples, whatever order they come in."""
    found: dict[tuple[str, ...], list[ChoiceRecord]] = {}
    for record in records:
        model = record.model
        key = (model.name, model.version, model.sha256, record.samples_sha256)
        found.setdefault(key, []).append(record)
    return tuple(
        Choices(same[0].model, same[0].samples_sha256, tuple(sorted(same, key=lambda r: r.target)))
        for _, same in sorted(found.items())
    )


# ------------------------------------------------------------------------- for a person
def rows(choices: Choices) -> list[tuple[str, ...]]:
    """The texts of the table, one for each of ``COLUMNS``; what is not known is a dash.

    First what the source framework itself reaches, then every variant of every target.
    """
    told = {(r.metric, r.source_accuracy): None for r in choices.records}
    first = [
        (DASH, FRAMEWORK, DASH, DASH, DASH, f"{accuracy:.4g}", DASH, DASH, clean(metric or DASH))
        for metric, accuracy in told
        if accuracy is not None
    ]
    return first + [
        cells(record, variant) for record in choices.records for variant in record.variants
    ]


def cells(record: ChoiceRecord, variant: Variant) -> tuple[str, ...]:
    """The texts of one variant."""
    size = None
    if variant.artifact_raw is not None and variant.artifact_compressed is not None:
        size = Size(variant.artifact_raw, variant.artifact_compressed)
    raw = DASH if variant.artifact_raw is None else log.human_bytes(variant.artifact_raw)
    return (
        clean(record.target),
        variant.precision,
        size_text(size) if size else raw,
        DASH if variant.sqnr_db is None else decibels(variant.sqnr_db),
        DASH if variant.max_abs is None else f"{variant.max_abs:.2g}",
        _accuracy(variant),
        interval(variant.p50_ns, variant.p50_low_ns, variant.p50_high_ns),
        DASH if variant.peak_bytes is None else log.human_bytes(variant.peak_bytes),
        clean(verdict(record, variant)),
    )


def _accuracy(variant: Variant) -> str:
    if variant.accuracy is None:
        return DASH
    drop = "" if variant.drop is None else f" ({variant.drop:.2g})"
    return f"{variant.accuracy:.4g}{drop}"


def verdict(record: ChoiceRecord, variant: Variant) -> str:
    """``chosen``, or why it lost."""
    chosen = variant.precision == record.chosen
    return CHOSEN if chosen else record.reasons[variant.precision]


def notes(choices: Choices) -> list[str]:
    """What was wanted of each target, where it was measured, and what to be aware of."""
    lines = []
    for record in choices.records:
        where = "not timed" if record.device is None else f"timed on {record.device}"
        wanted = {"size": "the smallest", "p50": "the fastest"}[record.limits.prefer]
        lines.append(f"{record.target}: {wanted}{_limits(record.limits)}; {where}")
        if record.chosen is None:
            lines.append(f"{record.target}: nothing was within the limits")
        lines += [f"{record.target}: warning: {text}" for text in record.warnings]
    return [clean(line) for line in lines]


def _limits(limits: Limits) -> str:
    known = ((rule, getattr(limits, rule.limit)) for rule in choice.RULES)
    said = [
        f"{rule.name} {'at least' if rule.more_is_better else 'at most'} "
        + figures(limit, limit, rule.units)[0]
        for rule, limit in known
        if limit is not None
    ]
    return f" with {', '.join(said)}" if said else ""


STACKED = tuple(map(COLUMNS.index, ("size", "accuracy (drop)", "p50 (95 % interval)")))


def stacked(choices: Choices) -> tuple[list[str], list[list[str]]]:
    """Columns and rows where width is scarce: what is in brackets has a line of its own."""
    columns = [*COLUMNS]
    columns[COLUMNS.index("size")] = "size (compressed)"
    columns, *lines = [
        [text.replace(" (", "\n(") if at in STACKED else text for at, text in enumerate(row)]
        for row in (columns, *rows(choices))
    ]
    return columns, lines


def show(records: Sequence[ChoiceRecord]) -> None:
    """Print a table for each model and its samples, then what was wanted and warnings."""
    for each in groups(records):
        log.table(each.title, *stacked(each))
        for line in notes(each):
            log.say(f"  {line}")


# -------------------------------------------------------------------------------- plots
AXES = {
    "p50_ns": Axis("p50, with its 95 % interval", TIMES),
    "accuracy": Axis("accuracy", PLAIN, more_is_better=True, zero=False),
    "sqnr_db": Axis("SQNR against the golden outputs", DECIBELS, more_is_better=True),
}


def plots(choices: Choices) -> list[Plot]:
    """Size against p50 of the targets that were timed; of the others accuracy, else SQNR."""
    found = []
    for figure, axis in AXES.items():
        records = [record for record in choices.records if _axis(record) == figure]
        points = [
            _point(record, variant, figure)
            for record in records
            for variant in record.variants
            if _on_plot(variant, figure)
        ]
        if points:
            legend = [(record.target, _who(record)) for record in records]
            found.append(plot(points, Axis("size of the artifact", BYTES), axis, legend))
    return found


def _axis(record: ChoiceRecord) -> str | None:
    """The first figure that one of the variants can be plotted by."""
    return next((name for name in AXES if any(_on_plot(v, name) for v in record.variants)), None)


def _on_plot(variant: Variant, figure: str) -> bool:
    y = getattr(variant, figure)
    best = figure == "sqnr_db" and y is not None and y > LARGEST
    return variant.state == "made" and _drawable(variant.artifact_raw) and (best or _drawable(y))


def _drawable(value: float | None) -> bool:
    return value is not None and (value == 0 or SMALLEST <= abs(value) <= LARGEST)


def _point(record: ChoiceRecord, variant: Variant, figure: str) -> Point:
    y, span = getattr(variant, figure), variant.span
    shown = span is not None and figure == "p50_ns" and all(map(_drawable, span))
    low, high = span if span and shown else (None, None)
    named = dict(zip(COLUMNS, cells(record, variant), strict=True))
    facts = [f"{key} {text}" for key, text in named.items() if key in FACTS and text != DASH]
    tip = f"{named['target']}/{named['precision']}: {', '.join(facts)}; {named['verdict']}"
    chosen = variant.precision == record.chosen
    x = float(variant.artifact_raw or 0)
    y = float("inf") if y > LARGEST else float(y)
    return Point(record.target, variant.precision, x, y, chosen, low, high, tip)


FACTS = ("size", "SQNR", "accuracy (drop)", "p50 (95 % interval)", "peak memory")


def _who(record: ChoiceRecord) -> str:
    return record.target if record.device is None else f"{record.target} on {record.device}"


def absent(choices: Choices) -> list[str]:
    """Variants that were made and are on no plot: what they would be drawn by is not known."""
    return [
        clean(f"{record.target}/{variant.precision}")
        for record in choices.records
        for variant in record.variants
        if variant.state == "made" and not ((axis := _axis(record)) and _on_plot(variant, axis))
    ]
