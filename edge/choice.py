"""Which precision a target gets, by figures and limits, and why.

**The rules.** (1) Only a variant that was made and that the target can run may be chosen, and
only within every limit; a limit on a figure that was not measured excludes, it never passes.
(2) The smallest or the fastest of what is left wins, as ``Limits.prefer`` says; ties are broken
by the other of the two figures, then by SQNR, then by the order of ``PRECISIONS``. (3) Medians
whose 95 % intervals overlap are the same speed. (4) A variant that is slower than the source is
never chosen without a word (onnxruntime #12854 and #16009: int8 models several times slower than
float ones): with ``prefer="p50"`` that is one more limit, with ``"size"`` a warning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from edge import errors

PRECISIONS = ("source", "fp16", "int8", "int8-dynamic", "int8-weights", "int4-weights")
SOURCE = PRECISIONS[0]
STATES = ("made", "failed", "broken")
PREFER = ("size", "p50")
# 0.97 - 0.96 is more than 0.01 in binary: differences of fractions are not judged that finely.
SLACK = 1e-9


@dataclass(frozen=True)
class Variant:
    """One precision of a model for one target; a figure that was not measured is None.

    ``state``: made, failed (``why``: not made, or not right) or broken (``why``: the target's
    release cannot run it). ``artifact_*`` and ``peak_bytes`` in bytes, ``sqnr_db`` (infinite
    where nothing differs) and ``max_abs`` against the golden outputs, worst of all outputs;
    ``accuracy`` by the user's metric, ``drop``: the source's accuracy minus this one's; ``p50_*``
    in ns: median and its 95 % interval. ``sha256`` of the artifact, empty without one.

    Raises :class:`errors.RunFailed` for a figure that is none (NaN, a negative size or time).
    """

    precision: str
    state: str
    why: str = ""
    artifact_raw: int | None = None
    artifact_compressed: int | None = None
    sqnr_db: float | None = None
    max_abs: float | None = None
    accuracy: float | None = None
    drop: float | None = None
    p50_ns: float | None = None
    p50_low_ns: float | None = None
    p50_high_ns: float | None = None
    peak_bytes: int | None = None
    sha256: str = ""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS or self.state not in STATES:
            raise errors.RunFailed(f"{self.precision!r:.60} {self.state!r:.60} is no variant")
        for field in fields(self)[3:-1]:
            figure = getattr(self, field.name)
            if figure is not None and not _sound(field.name, figure):
                raise errors.RunFailed(f"{self.precision}: {field.name} is {figure}, no figure")

    @property
    def span(self) -> tuple[float, float] | None:
        """The 95 % interval of the median, ns; the median alone where there is no interval."""
        if self.p50_ns is None:
            return None
        low, high = self.p50_low_ns, self.p50_high_ns
        known = [value for value in (low, self.p50_ns, high) if value is not None]
        return min(known), max(known)


def _sound(name: str, figure: float) -> bool:
    if math.isinf(figure) and name not in ("sqnr_db", "max_abs"):
        return False
    return not math.isnan(figure) if name in ("sqnr_db", "accuracy", "drop") else figure >= 0


@dataclass(frozen=True)
class Limits:
    """What a variant must keep to, and what is wanted of those that do.

    ``prefer``: size or p50. ``max_size`` of the artifact and ``max_peak_memory`` in bytes,
    ``max_p50`` in ns, ``min_sqnr`` in dB, ``max_drop`` of the accuracy, in its own unit. None is
    no limit. Raises :class:`errors.ConfigError` for a limit that is none.
    """

    prefer: str = "size"
    max_size: int | None = None
    max_p50: float | None = None
    max_peak_memory: int | None = None
    min_sqnr: float | None = None
    max_drop: float | None = None

    def __post_init__(self) -> None:
        if self.prefer not in PREFER:
            raise errors.ConfigError(f"prefer = {self.prefer!r:.60} is neither size nor p50")
        for field in fields(self)[1:]:
            limit = getattr(self, field.name)
            low = -math.inf if field.name == "min_sqnr" else 0.0
            if limit is not None and not (math.isfinite(limit) and low <= limit):
                raise errors.ConfigError(
                    f"{field.name} = {limit} is no limit", remedy=f"give a number from {low:g} up"
                )


@dataclass(frozen=True)
class Decision:
    """``reasons``: by precision, why each of the others lost, in figures."""

    chosen: Variant
    reasons: Mapping[str, str]
    warnings: tuple[str, ...] = ()


# ------------------------------------------------------------------------------- figures
Units = tuple[tuple[str, float], ...]
BYTES: Units = ((" GB", 1e9), (" MB", 1e6), (" kB", 1e3), (" B", 1.0))
TIMES: Units = ((" s", 1e9), (" ms", 1e6), (" us", 1e3), (" ns", 1.0))
DECIBELS: Units = ((" dB", 1.0),)
PLAIN: Units = (("", 1.0),)


def figures(first: float, second: float, units: Units) -> tuple[str, str]:
    """Two figures in one unit, with as many digits as tell them apart: 3.17 MB, 0.83 MB."""
    largest = max(abs(first), abs(second))
    unit, scale = next((item for item in units if largest >= item[1]), units[-1])
    texts = [("", "")]
    for digits in range(3, 18):
        texts.append((f"{first / scale:.{digits}g}{unit}", f"{second / scale:.{digits}g}{unit}"))
        if texts[-1][0] != texts[-1][1] or first == second:
            break
    return texts[-1]


# -------------------------------------------------------------------------------- limits
@dataclass(frozen=True)
class _Rule:
    """A figure of ``Variant``: its limit in ``Limits``, and how both are spoken of."""

    figure: str
    limit: str
    name: str
    units: Units
    worse: str = ""

    @property
    def more_is_better(self) -> bool:
        """True for SQNR alone."""
        return self.limit == "min_sqnr"

    def span(self, variant: Variant) -> tuple[float, float] | None:
        """Between what the figure lies, lower is better; None where it was not measured."""
        if self.figure == "p50_ns":
            return variant.span
        value = getattr(variant, self.figure)
        if value is None:
            return None
        return (-value, -value) if self.more_is_better else (float(value), float(value))

    def losing(self, variant: Variant, best: Variant) -> str:
        """In figures, why ``variant`` is worse."""
        pair = figures(getattr(variant, self.figure), getattr(best, self.figure), self.units)
        return self.worse.format(best.precision, *pair)


SIZE = _Rule("artifact_raw", "max_size", "size", BYTES, "larger than {}: {} against {}")
SPEED = _Rule("p50_ns", "max_p50", "p50", TIMES, "slower than {} (p50 {} against {})")
SQNR = _Rule("sqnr_db", "min_sqnr", "SQNR", DECIBELS, "lower SQNR than {}: {} against {}")
RULES = (
    SIZE,
    SPEED,
    _Rule("peak_bytes", "max_peak_memory", "peak memory", BYTES),
    SQNR,
    _Rule("drop", "max_drop", "accuracy drop", PLAIN),
)


@dataclass(frozen=True)
class _Miss:
    """A limit that is not kept, in figures, and by how much of it (inf: not measured)."""

    text: str
    overshoot: float


def _misses(variant: Variant, limits: Limits, source: Variant | None) -> tuple[_Miss, ...]:
    found = [miss for rule in RULES if (miss := _miss(rule, variant, limits))]
    if limits.prefer == "p50" and source and _slower(variant, source):
        ratio = (variant.p50_ns or 0.0) / (source.p50_ns or 1.0)
        found.append(_Miss(SPEED.losing(variant, source), ratio - 1))
    return tuple(found)


def _miss(rule: _Rule, variant: Variant, limits: Limits) -> _Miss | None:
    limit, figure = getattr(limits, rule.limit), getattr(variant, rule.figure)
    if limit is None:
        return None
    if figure is None:
        wanted = figures(limit, limit, rule.units)[0]
        return _Miss(f"{rule.name} was not measured, {rule.limit} is {wanted}", math.inf)
    beyond = limit - figure if rule.more_is_better else figure - limit
    if beyond <= SLACK:
        return None
    is_, allowed = figures(figure, limit, rule.units)
    text = f"{rule.name} {is_} {'<' if rule.more_is_better else '>'} {allowed}"
    # With a limit of 0 there is no ratio: the difference itself has to do.
    return _Miss(text, beyond / (abs(limit) or 1.0))


def _slower(variant: Variant, source: Variant) -> bool:
    """Rule 4: both were measured, and the intervals do not overlap."""
    return bool(variant.span and source.span and variant.span[0] > source.span[1])


def excluded(variants: Iterable[Variant], limits: Limits) -> dict[str, str]:
    """By precision, why those that may not be chosen may not: not made, or beyond a limit."""
    known = _in_order(variants)
    said = {"failed": "", "broken": "the target cannot run it: "}
    reasons = {}
    for variant in known:
        if variant.state in said:
            reasons[variant.precision] = said[variant.state] + (variant.why or "no reason given")
        elif misses := _misses(variant, limits, _source(known)):
            reasons[variant.precision] = "; ".join(miss.text for miss in misses)
    return reasons


def _in_order(variants: Iterable[Variant]) -> list[Variant]:
    known = sorted(variants, key=lambda variant: PRECISIONS.index(variant.precision))
    if len({variant.precision for variant in known}) != len(known):
        raise errors.RunFailed("two variants are of the same precision")
    return known


def _source(variants: Iterable[Variant]) -> Variant | None:
    """What the others are held against: the source's precision, where the target runs it."""
    return next((v for v in variants if (v.precision, v.state) == (SOURCE, "made")), None)


# -------------------------------------------------------------------------------- choice
def choose(variants: Iterable[Variant], limits: Limits, *, target: str) -> Decision:
    """The best of the variants within all limits, whatever order they come in.

    Raises :class:`errors.BudgetExceeded` naming the nearest miss when there is none.
    """
    known = _in_order(variants)
    out = excluded(known, limits)
    pool = [variant for variant in known if variant.precision not in out]
    if not pool:
        raise _nothing(target, known, limits)
    chosen, lost = _narrowed(pool, limits)
    return Decision(chosen, out | lost, _warnings(chosen, _source(known), limits.prefer))


def _nothing(target: str, known: Sequence[Variant], limits: Limits) -> errors.BudgetExceeded:
    """The nearest miss is the variant whose furthest miss is the smallest."""
    source = _source(known)
    made = [(_misses(each, limits, source), each) for each in known if each.state == "made"]
    said = f"{target}: none of the {len(known)} precisions tried is within the limits"
    if len(made) < len(known):
        said += f" ({len(known) - len(made)} failed, or cannot run there)"
    if not made:
        reasons = excluded(known, limits)
        said += "".join(f"; {precision}: {reason}" for precision, reason in reasons.items())
        return errors.BudgetExceeded(said, remedy="see to what failed, or let more be tried")
    misses, nearest = min(
        made, key=lambda item: (max(miss.overshoot for miss in item[0]), len(item[0]))
    )
    texts = "; ".join(miss.text for miss in misses)
    return errors.BudgetExceeded(
        f"{said}; the nearest is {nearest.precision}: {texts}",
        remedy="loosen the limits that it misses, measure what was not, or let more be tried",
    )


def _narrowed(pool: list[Variant], limits: Limits) -> tuple[Variant, dict[str, str]]:
    """Rules 2 and 3: the one that is left, and why each of the others lost."""
    stages = (SIZE, SPEED, SQNR) if limits.prefer == "size" else (SPEED, SIZE, SQNR)
    reasons: dict[str, str] = {}
    for place, rule in enumerate(stages):
        lost = _lost(rule, pool)
        if place == 1 and rule is SIZE and all(variant.span for variant in pool):
            as_fast = ", and as fast within the 95 % intervals"
            lost = {precision: reason + as_fast for precision, reason in lost.items()}
        reasons |= lost
        pool = [variant for variant in pool if variant.precision not in lost]
    first, *others = pool
    equal = f"equal to {first.precision} in size, speed and SQNR, which comes first"
    return first, reasons | {variant.precision: equal for variant in others}


def _lost(rule: _Rule, pool: Sequence[Variant]) -> dict[str, str]:
    """Those beyond the best one's interval, which has no width but for times.

    Overlapping is not transitive: all are held against the best one, no other pairs are formed.
    """
    spans = {variant.precision: span for variant in pool if (span := rule.span(variant))}
    known = [variant for variant in pool if variant.precision in spans]
    if not known:
        return {}
    best = min(known, key=lambda each: (_middle(rule, each), spans[each.precision][::-1]))
    unknown = f"{rule.name} was not measured, that of {best.precision} was"
    limit = spans[best.precision][1]
    return {
        each.precision: rule.losing(each, best) if each in known else unknown
        for each in pool
        if each not in known or spans[each.precision][0] > limit
    }


def _middle(rule: _Rule, variant: Variant) -> float:
    value: float = getattr(variant, rule.figure)
    return -value if rule.more_is_better else value


def _warnings(chosen: Variant, source: Variant | None, prefer: str) -> tuple[str, ...]:
    name = chosen.precision
    asked = ("p50 was to decide and was not measured: size did",)
    untimed = asked if prefer == "p50" and chosen.span is None else ()
    if name == SOURCE:
        return untimed
    if chosen.span is None:
        return (*untimed, f"the speed of {name} was not measured: it may be slower than {SOURCE}")
    if source is None or source.span is None:
        return (f"the speed of {SOURCE} was not measured: {name} may be slower",)
    slower = _slower(chosen, source)
    return (f"{name} is {SPEED.losing(chosen, source)}",) if slower else ()
