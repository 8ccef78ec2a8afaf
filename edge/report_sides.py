"""ONNX Runtime beside Core ML: the ways of running one model on one Apple device, in one table.

A way is what the Swift runner was given as ``--provider``. Records of other runners, threads or
samples are not compared. The last line says whether Core ML is worth it, where figures allow that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from edge import log
from edge.bench_apple import COLD
from edge.report import (
    DASH,
    clean,
    decibels,
    heading,
    interval,
    size_text,
    target_text,
    time_text,
    worst,
)
from edge.results import ModelId, Record

RUNNER = "swift"
ORT = ("CPUExecutionProvider", "XnnpackExecutionProvider")
BY_PROVIDER = "CoreMLExecutionProvider"  # alone, or with a colon and the compute units
NATIVE = "coreml:"
IN_SYSTEM = "in the system"
COLUMNS = (
    "way", "target", "model", "runtime", "load", "load, kept", "first run",
    "p50 (95 % interval)", "times as fast", "cores busy", "peak memory", "SQNR", "CoreML parts",
    "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """The newest record of one way; times in ns, sizes in bytes, None is not known.

    ``load_ns`` is where something had to be compiled or nothing is kept, ``kept_ns`` where what
    was compiled before was loaded. ``parts``: nodes that the CoreML provider ran; what it fused
    is one. ``speed``: the base's median through this one's.
    """

    provider: str
    record: Record
    load_ns: float | None
    kept_ns: float | None
    parts: int | None
    speed: float | None = None

    @property
    def native(self) -> bool:
        """Whether Core ML ran it without ONNX Runtime."""
        return self.provider.startswith(NATIVE)

    @property
    def cores(self) -> float | None:
        """Processor cores that the timed loops kept busy; Core ML takes no number of threads."""
        return self.record.summary.cpu_share

    @property
    def by_core_ml(self) -> bool:
        """Whether Core ML ran any of it: a provider that took no node left all to the CPU."""
        return self.provider not in ORT and self.parts != 0

    @property
    def sure(self) -> bool:
        """Whether its time may be compared."""
        summary = self.record.summary
        return bool(self.record.verdict) and None not in (summary.low_ns, summary.high_ns)


@dataclass(frozen=True)
class Sides:
    """The ways of one model with the same samples and threads on one device, in a fixed order."""

    model: ModelId
    samples_sha256: str
    device: str
    threads: int | None
    ways: tuple[Way, ...]

    @property
    def title(self) -> str:
        """What the table is of."""
        model = self.model
        named = heading(model.name, model.version, model.sha256, self.samples_sha256)
        threads = (
            "" if self.threads is None else f", {self.threads} thread{'s' * (self.threads > 1)}"
        )
        return f"ONNX Runtime and Core ML on {clean(self.device)}{threads}: {named}"


def sides(records: Iterable[Record]) -> tuple[Sides, ...]:
    """Groups with at least two ways, one of them with Core ML; of each way the newest record."""
    groups: dict[tuple[str, ...], dict[tuple[str, str, str], Record]] = {}
    for record in sorted(records, key=lambda each: each.created):
        if record.runner == RUNNER and is_way(provider(record)):
            model, threads = record.model, str(_threads(record))
            key = (model.name, model.version, model.sha256, record.samples_sha256)
            found = groups.setdefault((*key, record.device, threads), {})
            found[provider(record), record.target, precision(record)] = record
    made = [_sides(list(found.values())) for _, found in sorted(groups.items())]
    return tuple(each for each in made if _worth_a_table(each))


def provider(record: Record) -> str:
    """What the runner was given as ``--provider``."""
    return str(record.options.get("provider", ""))


def precision(record: Record) -> str:
    """What the way's model was made at."""
    return str(record.options.get("precision", ""))


def is_way(name: str) -> bool:
    """Whether that is one of the ways that are compared here."""
    return name in ORT or name.partition(":")[0] == BY_PROVIDER or name.startswith(NATIVE)


def _worth_a_table(found: Sides) -> bool:
    return len(found.ways) > 1 and any(way.provider not in ORT for way in found.ways)


def _threads(record: Record) -> int | None:
    threads = record.options.get("threads")
    return threads if isinstance(threads, int) else None


def _sides(records: Sequence[Record]) -> Sides:
    first = records[0]
    base = next((each for each in records if provider(each) == ORT[0]), None)
    ways = sorted((_way(each, base) for each in records), key=_order)
    return Sides(first.model, first.samples_sha256, first.device, _threads(first), tuple(ways))


def _order(way: Way) -> tuple[int, str, str]:
    name = way.provider
    kind = 3 if way.native else 2
    target = target_text(way.record.target, precision(way.record))
    return (ORT.index(name) if name in ORT else kind, name, target)


def _way(record: Record, base: Record | None) -> Way:
    cached = record.options.get("cached")
    known = cached if isinstance(cached, list) and len(cached) == len(record.load_ns) else None
    loads = list(zip(record.load_ns, known or [None] * len(record.load_ns), strict=True))
    return Way(
        provider=provider(record),
        record=record,
        load_ns=_median([*_cold(record), *(ns for ns, kept in loads if kept is not True)]),
        kept_ns=_median([ns for ns, kept in loads if kept is True]),
        parts=_parts(record),
        speed=_speed(record, base),
    )


def _cold(record: Record) -> list[int]:
    """The load that compiled, where the timed ones found what it kept."""
    cold = record.options.get(COLD)
    return [cold] if isinstance(cold, int) else []


def _median(values: Sequence[int]) -> float | None:
    return float(median(values)) if values else None


def _parts(record: Record) -> int | None:
    """None where the run was not profiled."""
    providers = record.options.get("providers")
    if not isinstance(providers, dict) or not providers:
        return None
    part = providers.get(BY_PROVIDER)
    nodes = part.get("nodes") if isinstance(part, dict) else 0
    return nodes if isinstance(nodes, int) else None


def _speed(record: Record, base: Record | None) -> float | None:
    if base is None or record.summary.median_ns <= 0:
        return None
    return base.summary.median_ns / record.summary.median_ns


# ---------------------------------------------------------------------------- for a person
def cells(way: Way) -> tuple[str, ...]:
    """The texts of a row, one for each of ``COLUMNS``."""
    record, summary = way.record, way.record.summary
    sqnr = worst(record.outputs)[1]
    return (
        clean(way.provider),
        target_text(record.target, precision(record)),
        size_text(record.sizes.artifact),
        IN_SYSTEM if way.native else size_text(record.sizes.runtime),
        time_text(way.load_ns),
        time_text(way.kept_ns),
        time_text(median(record.first_ns) if record.first_ns else None),
        interval(summary.median_ns, summary.low_ns, summary.high_ns),
        DASH if way.speed is None else f"{way.speed:.2f}",
        DASH if way.cores is None else f"{way.cores:.1f}",
        DASH if record.peak_bytes is None else log.human_bytes(record.peak_bytes),
        DASH if sqnr is None else decibels(sqnr),
        DASH if way.parts is None else str(way.parts),
        clean(record.verdict.kind),
    )


def answer(found: Sides) -> str:
    """Whether Core ML is worth it, in one sentence; what the figures do not allow is not said."""
    base = _fastest([way for way in found.ways if way.provider in ORT])
    other = _fastest([way for way in found.ways if way.by_core_ml])
    if base is None or other is None:
        return "no answer: a way of either kind with a valid measurement is missing"
    names = clean(other.provider), clean(base.provider)
    if _apart(other, base):
        return f"Core ML is worth it here: {_faster(other, base)}{_but(other, found.threads)}"
    if _apart(base, other):
        return f"ONNX Runtime is good enough here: {_faster(base, other)}"
    return (
        f"nothing that these measurements show: the intervals of {names[0]} and {names[1]} overlap"
    )


def _faster(fast: Way, slow: Way) -> str:
    ratio = _time(slow) / _time(fast)
    return f"{clean(fast.provider)} is {ratio:.2f} times as fast as {clean(slow.provider)}"


def _but(fast: Way, threads: int | None) -> str:
    """What makes the comparison unequal: more cores than ONNX Runtime was given threads."""
    if threads is None or fast.cores is None or fast.cores < threads + 0.5:
        return ""
    given = f"{threads} thread{'s' * (threads > 1)}"
    return (
        f", with {fast.cores:.1f} cores busy where ONNX Runtime had {given}: "
        "measure with more --threads as well"
    )


def _fastest(ways: Sequence[Way]) -> Way | None:
    return min((way for way in ways if way.sure), key=_time, default=None)


def _time(way: Way) -> float:
    return way.record.summary.median_ns


def _apart(fast: Way, slow: Way) -> bool:
    """Whether the whole interval of one lies below that of the other."""
    high, low = fast.record.summary.high_ns, slow.record.summary.low_ns
    return high is not None and low is not None and high < low


def to_json(found: Sides) -> dict[str, Any]:
    """What the table says, with the ids of its records; times in ns."""
    ways = [
        {
            "provider": way.provider,
            "target": way.record.target,
            "record": way.record.id,
            "load_ns": way.load_ns,
            "kept_ns": way.kept_ns,
            "parts": way.parts,
            "speed": way.speed,
            "cores": way.cores,
        }
        for way in found.ways
    ]
    return {
        "model": asdict(found.model),
        "samples_sha256": found.samples_sha256,
        "device": found.device,
        "threads": found.threads,
        "ways": ways,
        "answer": answer(found),
    }


def stacked(way: Way) -> dict[str, str]:
    """The cells for a terminal, where so many columns do not fit: several lines in a cell."""
    cell = dict(zip(COLUMNS, cells(way), strict=True))
    return {
        "way\ntarget": f"{cell['way']}\n{cell['target']}",
        "model\nruntime": f"{cell['model']}\n{cell['runtime']}",
        "load\nload, kept\nfirst run": "\n".join(
            cell[name] for name in ("load", "load, kept", "first run")
        ),
        "p50\n(95 % interval)": cell["p50 (95 % interval)"].replace(" (", "\n("),
        "times as fast\ncores busy": f"{cell['times as fast']}\n{cell['cores busy']}",
        "peak memory": cell["peak memory"],
        "SQNR": cell["SQNR"],
        "CoreML\nparts": cell["CoreML parts"],
        "verdict": cell["verdict"],
    }


def show(found: Sequence[Sides]) -> None:
    """Print the tables with their answers."""
    for each in found:
        rows = [stacked(way) for way in each.ways]
        log.table(each.title, tuple(rows[0]), [list(row.values()) for row in rows])
        log.say(f"  {answer(each)}")
