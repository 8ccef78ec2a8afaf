"""ONNX Runtime beside Core ML: the ways of running one model on one Apple device, in one table.

A way is what the Swift runner was given as ``--provider``. Records of other runners, threads or
samples are not compared. The last line says whether Core ML is worth it, where figures allow that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from edge import log
from edge.bench_apple import COLD, LOST
from edge.report import (
    DASH,
    clean,
    decibels,
    heading,
    interval,
    said,
    size_text,
    target_text,
    threads,
    threads_text,
    time_text,
    worst,
)
from edge.results import ModelId, Record

RUNNER = "swift"
ORT = ("CPUExecutionProvider", "XnnpackExecutionProvider")
BY_PROVIDER = "CoreMLExecutionProvider"  # alone, or with a colon and the compute units
NATIVE = "coreml:"
IN_SYSTEM = "in the system"
NOTICEABLE = 1.05  # times as fast; less than that is no reason to choose
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
    """The ways of one model with the same samples and threads on one device, in a fixed order.

    ``lost``: ways that failed when the newest of these was measured, and why.
    """

    model: ModelId
    samples_sha256: str
    device: str
    threads: int | None
    ways: tuple[Way, ...]
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """What the table is of."""
        model = self.model
        named = heading(model.name, model.version, model.sha256, self.samples_sha256)
        given = "" if self.threads is None else f", {threads_text(self.threads)}"
        return f"ONNX Runtime and Core ML on {clean(self.device)}{given}: {named}"


def sides(records: Iterable[Record]) -> tuple[Sides, ...]:
    """Groups with at least two ways, one of them with Core ML; of each way the newest record."""
    groups: dict[tuple[str, ...], dict[tuple[str, str, str], Record]] = {}
    for record in sorted(records, key=lambda each: each.created):
        if record.runner == RUNNER and is_way(provider(record)):
            model, given = record.model, str(threads(record))
            key = (model.name, model.version, model.sha256, record.samples_sha256)
            found = groups.setdefault((*key, record.device, given), {})
            found[provider(record), record.target, precision(record)] = record
    made = [_sides(list(found.values())) for _, found in sorted(groups.items())]
    return tuple(each for each in made if _worth_a_table(each))


def provider(record: Record) -> str:
    """What the runner was given as ``--provider``."""
    return said(record, "provider")


def precision(record: Record) -> str:
    """What the way's model was made at."""
    return said(record, "precision")


def is_way(name: str) -> bool:
    """Whether that is one of the ways that are compared here."""
    return name in ORT or name.partition(":")[0] == BY_PROVIDER or name.startswith(NATIVE)


def _worth_a_table(found: Sides) -> bool:
    names = [way.provider for way in found.ways] + [name for name, _ in found.lost]
    return len(names) > 1 and any(name not in ORT for name in names)


def _sides(records: Sequence[Record]) -> Sides:
    first, lost = records[0], _lost(records)
    # What a way had measured before it failed is no figure of how it is now.
    there = [each for each in records if provider(each) not in lost]
    base = next((each for each in there if provider(each) == ORT[0]), None)
    return Sides(
        first.model,
        first.samples_sha256,
        first.device,
        threads(first),
        tuple(sorted((_way(each, base) for each in there), key=_order)),
        tuple(lost.items()),
    )


def _lost(records: Sequence[Record]) -> dict[str, str]:
    """Ways that gave no measurement when they were tried last, and why."""
    found: dict[str, str] = {}
    for record in sorted(records, key=lambda each: each.created):
        found.pop(provider(record), None)
        told = record.options.get(LOST)
        if isinstance(told, Mapping):
            found |= {str(name): str(why) for name, why in told.items()}
    return found


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
    """What the figures allow to say of the user's question, in one sentence.

    Which side runs faster, by how much, and what that costs in loading, memory, precision and
    cores; whether it is worth that only the user knows.
    """
    base = _fastest([way for way in found.ways if way.provider in ORT])
    other = _fastest([way for way in found.ways if way.by_core_ml])
    if base is None or other is None:
        return "no answer: a way of either kind with a valid measurement is missing"
    fast, slow = (base, other) if _time(base) < _time(other) else (other, base)
    if not _apart(fast, slow):
        return (
            "ONNX Runtime and Core ML run equally fast here, as far as this was measured: the "
            f"intervals of {clean(other.provider)} and {clean(base.provider)} overlap"
        )
    ratio = _time(slow) / _time(fast)
    faster = f"{clean(fast.provider)} is {ratio:.2f} times as fast as {clean(slow.provider)}"
    if ratio < NOTICEABLE:
        return f"no difference that would be noticed: {faster}"
    sides_of = {True: "Core ML runs faster here", False: "ONNX Runtime runs faster here"}
    costs = [*_costs(fast, slow), *_unequal(fast, found.threads)]
    return f"{sides_of[fast is other]}: {'; '.join([faster + _as_fast(fast, found), *costs])}"


def _as_fast(fast: Way, found: Sides) -> str:
    """Ways of the same side whose intervals do not tell them from the fastest."""
    same = [
        clean(way.provider)
        for way in found.ways
        if way is not fast and way.sure and way.by_core_ml == fast.by_core_ml
        if not _apart(fast, way)
    ]
    return f" (and so are {', '.join(same)})" if same else ""


def _costs(fast: Way, slow: Way) -> Iterator[str]:
    """What the faster way is worse in."""
    load, other = fast.load_ns, slow.load_ns
    if load and other and load > 1.5 * other:
        yield f"its first load takes {time_text(load)} (the other's {time_text(other)})"
    peak, others = fast.record.peak_bytes, slow.record.peak_bytes
    if peak and others and peak > 1.2 * others:
        yield f"its memory peaks at {log.human_bytes(peak)} ({log.human_bytes(others)})"
    noise, less = worst(fast.record.outputs)[1], worst(slow.record.outputs)[1]
    if noise is not None and less is not None and noise < less - 1:
        yield f"its outputs have {decibels(noise)} ({decibels(less)})"


def _unequal(fast: Way, count: int | None) -> Iterator[str]:
    """What makes the comparison unequal: more cores than ONNX Runtime was given threads."""
    if count is not None and fast.cores is not None and fast.cores >= count + 0.5:
        yield (
            f"{fast.cores:.1f} cores were busy where ONNX Runtime had {threads_text(count)}, "
            "measure with more --threads as well"
        )


def notes(found: Sides) -> list[str]:
    """The answer, and a line for each way that gave no measurement."""
    lost = [f"{clean(name)}: no measurement: {clean(why)}" for name, why in found.lost]
    return [answer(found), *lost]


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
        "lost": dict(found.lost),
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
        for line in notes(each):
            log.say(f"  {line}")
