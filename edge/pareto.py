"""Where everything of a Pareto plot lies: scales, ticks, fronts, and labels that do not collide.

Pure geometry: what goes in are points, what comes out are numbers in pixels of a drawing of
``WIDTH`` by ``HEIGHT`` (y downwards, as SVG has it) for a template to write down. A smaller x is
better; whether a smaller y is, the axis says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from edge.choice import Units, figures

WIDTH, HEIGHT = 860.0, 440.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 836.0, 24.0, 380.0
COLORS = 8  # series of a plot that can be told apart; more begin again with the first
LOG_FROM = 20.0  # largest over smallest, from which on an axis is logarithmic
TICKS = 6
LETTER, LINE = 6.6, 14.0  # an estimate of a label's letter and height at 12 px
MARK = 7.0  # half a mark's size


@dataclass(frozen=True)
class Axis:
    """What is on an axis. ``zero``: a linear one begins there."""

    title: str
    units: Units
    more_is_better: bool = False
    zero: bool = True


@dataclass(frozen=True)
class Point:
    """``name`` of ``series`` at x (finite) and y (finite, or inf: better than any figure).

    ``low`` to ``high``: the interval of y. ``tip``: what is said of it where it is pointed at.
    """

    series: str
    name: str
    x: float
    y: float
    chosen: bool = False
    low: float | None = None
    high: float | None = None
    tip: str = ""


@dataclass(frozen=True)
class Tick:
    """A place on an axis and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A drawn point; ``label`` is empty where there is no room for one."""

    x: float
    y: float
    color: int
    chosen: bool
    tip: str
    low: float | None = None
    high: float | None = None
    label: str = ""
    label_x: float = 0.0
    label_y: float = 0.0
    anchor: str = "start"


@dataclass(frozen=True)
class Front:
    """A line of stairs through what nothing beats, as an SVG path."""

    color: int
    path: str


@dataclass(frozen=True)
class Plot:
    """All that a template needs. ``legend``: colour and text of every series."""

    x: Axis
    y: Axis
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    fronts: tuple[Front, ...]
    marks: tuple[Mark, ...]
    legend: tuple[tuple[int, str], ...]


# ------------------------------------------------------------------------------- fronts
def front(points: Iterable[Point], *, more_is_better: bool = False) -> list[Point]:
    """Those that no other one beats in x or y without losing in the other, by rising x.

    Of equal ones the first stays.
    """
    sign = -1.0 if more_is_better else 1.0
    best = math.inf
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (each.x, sign * each.y)):
        if sign * point.y < best:
            kept.append(point)
            best = sign * point.y
    return kept


def _stairs(points: Sequence[tuple[float, float]], worst: float) -> str:
    """Around all that the front beats: from the edge where y is ``worst`` to the right one."""
    path = f"M{points[0][0]:g} {worst:g}"
    return path + "".join(f"H{x:g}V{y:g}" for x, y in points) + f"H{RIGHT:g}"


# ------------------------------------------------------------------------------- scales
@dataclass(frozen=True)
class Scale:
    """From values ``low`` to ``high`` onto pixels ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value, to a tenth."""
        form: Callable[[float], float] = math.log10 if self.log else float
        low, high = form(self.low), form(self.high)
        share = (form(max(value, self.low) if self.log else value) - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values between the ends: steps of 1, 2 or 5 times a power of ten."""
        if not self.log:
            step = _step((self.high - self.low) / TICKS)
            first, last = math.ceil(self.low / step), math.floor(self.high / step)
            return [place * step for place in range(first, last + 1)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        fine, coarse = (
            [
                v
                for power in powers
                for part in parts
                if self.low <= (v := part * 10.0**power) <= self.high
            ]
            for parts in ((1, 2, 5), (1,))
        )
        most = TICKS + 2
        return fine if len(fine) <= most else coarse[:: math.ceil(len(coarse) / most)]


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(part * power for part in (1, 2, 5, 10) if part * power >= least * (1 - 1e-9))


def scale(values: Sequence[float], start: float, end: float, *, zero: bool = True) -> Scale:
    """A scale with room around the (finite) values; logarithmic where they differ by far."""
    low, high = min(values), max(values)
    if zero and low > 0 and high / low > LOG_FROM:
        room = (high / low) ** 0.08
        return Scale(low / room, high * room, start, end, log=True)
    span = high - (min(low, 0.0) if zero else low) or abs(high) or 1.0
    bottom = low - 0.1 * span if low < 0 or not zero else 0.0
    return Scale(bottom, high + 0.1 * span, start, end)


def _ticks(found: Scale, units: Units) -> tuple[Tick, ...]:
    # All in the unit of the largest one.
    return tuple(
        Tick(found.at(value), figures(value, found.high, units)[0]) for value in found.ticks()
    )


# -------------------------------------------------------------------------------- plots
def plot(points: Sequence[Point], x: Axis, y: Axis, legend: Sequence[tuple[str, str]]) -> Plot:
    """The plot of at least one point; ``legend``: each series and its text, in order."""
    colors = {series: place % COLORS for place, (series, _) in enumerate(legend)}
    cap = _cap([point.y for point in points if math.isfinite(point.y)])
    shown = [replace(point, y=min(point.y, cap)) for point in points]
    across = scale([point.x for point in shown], LEFT, RIGHT, zero=x.zero)
    heights = [v for p in shown for v in (p.y, p.low, p.high) if v is not None]
    up = scale(heights, BOTTOM, TOP, zero=y.zero)
    y_ticks = _ticks(up, y.units)
    if any(math.isinf(point.y) for point in points):
        below = (tick for tick in y_ticks if tick.at > up.at(cap) + LINE)
        y_ticks = (*below, Tick(up.at(cap), "equal"))
    return Plot(
        x,
        y,
        _ticks(across, x.units),
        y_ticks,
        _fronts(shown, colors, (across, up), more_is_better=y.more_is_better),
        _labelled([_mark(*each, colors, (across, up)) for each in _merged(shown)]),
        tuple((colors[series], text) for series, text in legend),
    )


def _cap(finite: Sequence[float]) -> float:
    """Where infinity is drawn: what differs in nothing stands above all that does."""
    if not finite:
        return 1.0
    return max(finite) + ((max(finite) - min(*finite, 0.0)) * 0.15 or 1.0)


def _mark(point: Point, label: str, colors: dict[str, int], scales: tuple[Scale, Scale]) -> Mark:
    across, up = scales
    low, high = (None if v is None else up.at(v) for v in (point.low, point.high))
    x, y, color = across.at(point.x), up.at(point.y), colors[point.series]
    return Mark(x, y, color, point.chosen, point.tip, low, high, label)


def _fronts(
    points: Sequence[Point],
    colors: dict[str, int],
    scales: tuple[Scale, Scale],
    *,
    more_is_better: bool,
) -> tuple[Front, ...]:
    """One front a series (times of different devices have none in common), each line once."""
    across, up = scales
    paths: dict[str, int] = {}
    for series, color in colors.items():
        own = [point for point in points if point.series == series]
        kept = front(own, more_is_better=more_is_better)
        places = [(across.at(p.x), up.at(p.y)) for p in kept]
        if places:
            paths.setdefault(_stairs(places, BOTTOM if more_is_better else TOP), color)
    return tuple(Front(color, path) for path, color in paths.items())


def _merged(points: Sequence[Point]) -> list[tuple[Point, str]]:
    """Points with their labels; what several series have at one place is one point."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        groups.setdefault((point.x, point.y, point.name, point.chosen), []).append(point)
    found = []
    # What was chosen is drawn last, above the others.
    for same in sorted(groups.values(), key=lambda same: same[0].chosen):
        series = [point.series for point in same]
        who = ", ".join(series) if len(series) < 4 else f"{len(series)} targets"
        tips = "\n".join(point.tip for point in same)
        found.append((replace(same[0], tip=tips), f"{who}/{same[0].name}"))
    return found


# -------------------------------------------------------------------------------- labels
Box = tuple[float, float, float, float]  # left, top, right, bottom
# Above a point's sides first: a front runs up or down from it, and to the right.
PLACES = (
    (10, -9, "start"), (-10, -9, "end"), (14, 4, "start"), (-14, 4, "end"), (10, 18, "start"),
    (-10, 18, "end"), (0, -14, "middle"), (0, 25, "middle"), (14, -24, "start"),
    (14, 33, "start"), (-14, -24, "end"), (-14, 33, "end"),
)  # fmt: skip


def _labelled(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Labels where they cover nothing; a chosen one's is never left out."""
    taken = [(m.x - MARK, m.y - MARK, m.x + MARK, m.y + MARK) for m in marks]
    done: dict[int, Mark] = {}
    for place in sorted(range(len(marks)), key=lambda at: not marks[at].chosen):
        mark = marks[place]
        fits = (
            (x, y, anchor, box)
            for dx, dy, anchor in PLACES
            for x, y in [(mark.x + dx, mark.y + dy)]
            for box in [_box(x, y, anchor, mark.label)]
            if _inside(box) and not any(_overlap(box, other) for other in taken)
        )
        x, y, anchor, box = next(fits, (0.0, 0.0, "", None))
        if box is None and mark.chosen:
            anchor = "end" if mark.x > (LEFT + RIGHT) / 2 else "start"
            x, y = mark.x + (14 if anchor == "start" else -14), mark.y + 4
            box = _box(x, y, anchor, mark.label)
        if box is None:
            done[place] = replace(mark, label="")
            continue
        taken.append(box)
        done[place] = replace(mark, label_x=round(x, 1), label_y=round(y, 1), anchor=anchor)
    return tuple(done[place] for place in range(len(marks)))


def _box(x: float, y: float, anchor: str, text: str) -> Box:
    width = LETTER * len(text)
    left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    return left, y - LINE * 0.8, left + width, y + LINE * 0.25


def _inside(box: Box) -> bool:
    return box[0] >= LEFT and box[1] >= TOP - 12 and box[2] <= WIDTH and box[3] <= BOTTOM


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
