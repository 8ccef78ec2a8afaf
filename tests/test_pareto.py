"""Pareto plots: what is on a front, where things lie, and that labels do not collide."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import pareto
from edge.choice import BYTES, DECIBELS, TIMES
from edge.pareto import Axis, Point, front, plot, scale

SIZE, TIME = Axis("size", BYTES), Axis("p50", TIMES)
SQNR = Axis("SQNR", DECIBELS, more_is_better=True)


def point(x: float, y: float, name: str = "int8", series: str = "x64") -> Point:
    return Point(series, name, x, y)


# -------------------------------------------------------------------------------- fronts
def test_a_front_is_what_nothing_beats() -> None:
    small, quick, both = point(1, 9), point(9, 1), point(4, 4)
    beaten, equal_size = point(5, 5), point(9, 2)
    found = front([beaten, quick, equal_size, both, small])
    assert found == [small, both, quick]
    assert front([small, quick, both], more_is_better=True) == [small]
    assert front([small, point(9, 10)], more_is_better=True) == [small, point(9, 10)]
    assert front([]) == []


coordinates = st.integers(0, 6).map(float)
some_points = st.lists(st.builds(point, coordinates, coordinates), min_size=1, max_size=8)


@given(some_points, st.booleans())
def test_a_front_by_its_definition(points: list[Point], more: bool) -> None:
    def beats(one: Point, other: Point) -> bool:
        as_good = one.x <= other.x and (one.y >= other.y if more else one.y <= other.y)
        return as_good and (one.x, one.y) != (other.x, other.y)

    wanted = {(p.x, p.y) for p in points if not any(beats(other, p) for other in points)}
    found = front(points, more_is_better=more)
    assert [(p.x, p.y) for p in found] == sorted(wanted)


def test_the_line_goes_round_what_the_front_beats() -> None:
    points = [point(1e6, 3e6), point(2e6, 1e6, "source"), point(2e6, 5e6, "fp16")]
    drawn = plot(points, SIZE, TIME, [("x64", "x64")])
    (line,) = drawn.fronts
    small, quick = drawn.marks[0], drawn.marks[1]
    assert line.path == (f"M{small.x:g} 24H{small.x:g}V{small.y:g}H{quick.x:g}V{quick.y:g}H836")
    (line,) = plot(points[:1], SIZE, SQNR, [("x64", "x64")]).fronts
    assert line.path.startswith(f"M{small.x:g} 380".partition(" ")[0][:1])
    assert " 380H" in line.path


def test_every_series_has_its_own_front_and_equal_ones_are_one_line() -> None:
    points = [point(1e6, 20, series=name) for name in ("a", "b")]
    assert len(plot(points, SIZE, SQNR, [("a", "a"), ("b", "b")]).fronts) == 1
    points[1] = replace(points[1], y=30)
    drawn = plot(points, SIZE, SQNR, [("a", "a on pi"), ("b", "b")])
    assert [line.color for line in drawn.fronts] == [0, 1]
    assert drawn.legend == ((0, "a on pi"), (1, "b"))


# -------------------------------------------------------------------------------- scales
def test_an_axis_begins_at_zero_and_ends_above_the_largest() -> None:
    found = scale([2.0, 10.0], 0, 100)
    assert (found.low, found.log) == (0.0, False)
    assert found.at(0) == 0
    assert found.at(10) < 100
    assert found.ticks() == [0, 2, 4, 6, 8, 10]
    assert scale([2.0, 10.0], 0, 100, zero=False).low == pytest.approx(1.2)
    assert scale([-5.0, 10.0], 0, 100).low < -5


def test_far_apart_is_logarithmic() -> None:
    found = scale([1e3, 3e6], 0, 100)
    assert found.log
    assert found.ticks() == [1e3, 1e4, 1e5, 1e6]
    assert 0 < found.at(1e3) < found.at(3e6) < 100
    assert scale([9e6, 3e8], 0, 100).ticks() == [1e7, 2e7, 5e7, 1e8, 2e8]


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [5.0], [-3.0], [1e15], [1e-6, 1e15]])
def test_degenerate_figures_have_a_scale(values: list[float]) -> None:
    for zero in (True, False):
        found = scale(values, 0, 100, zero=zero)
        assert all(0 <= found.at(value) <= 100 for value in values)
        assert 1 < len(found.ticks()) <= pareto.TICKS + 3


@given(st.lists(st.floats(1e-6, 1e15), min_size=1, max_size=6), st.booleans())
def test_ticks_are_few_rising_and_on_the_axis(values: list[float], zero: bool) -> None:
    found = scale(values, 0, 100, zero=zero)
    places = [found.at(value) for value in found.ticks()]
    assert places == sorted(places)
    assert all(-0.1 <= place <= 100.1 for place in places)
    assert len(places) <= pareto.TICKS + 3
    assert all(math.isfinite(found.at(value)) for value in values)


def test_ticks_share_a_unit() -> None:
    drawn = plot([point(830_000, 24), point(3_170_000, 131)], SIZE, SQNR, [("x64", "x64")])
    assert [tick.text for tick in drawn.x_ticks] == ["0 MB", "1 MB", "2 MB", "3 MB"]
    assert [tick.text for tick in drawn.y_ticks] == ["0 dB", "50 dB", "100 dB"]


def test_what_differs_in_nothing_stands_above_all() -> None:
    points = [point(2e6, math.inf, "source"), point(1e6, 60.0)]
    drawn = plot(points, SIZE, SQNR, [("x64", "x64")])
    source, int8 = drawn.marks
    assert source.y < int8.y
    assert drawn.y_ticks[-1] == pareto.Tick(source.y, "equal")
    assert all(tick.at > source.y + 10 for tick in drawn.y_ticks[:-1])
    alone = plot(points[:1], SIZE, SQNR, [("x64", "x64")])
    assert math.isfinite(alone.marks[0].y)
    zero = plot([points[0], point(1e6, 0.0)], SIZE, SQNR, [("x64", "x64")])
    assert zero.marks[0].y < zero.marks[1].y


# -------------------------------------------------------------------------------- labels
def test_what_several_series_have_at_one_place_is_one_mark() -> None:
    points = [replace(point(1e6, 20, series=name), tip=name) for name in ("a", "b")]
    legend = [(name, name) for name in "abcd"]
    (mark,) = plot(points, SIZE, SQNR, legend).marks
    assert (mark.label, mark.tip) == ("a, b/int8", "a\nb")
    many = [point(1e6, 20, series=name) for name in "abcd"]
    (mark,) = plot(many, SIZE, SQNR, legend).marks
    assert mark.label == "4 targets/int8"
    chosen = replace(points[0], chosen=True)
    two = plot([chosen, points[1]], SIZE, SQNR, legend).marks
    assert [(mark.label, mark.chosen) for mark in two] == [("b/int8", False), ("a/int8", True)]


@given(
    st.lists(
        st.builds(Point, st.sampled_from("ab"), st.sampled_from(["source", "int8-weights"]),
                  st.integers(1, 30).map(float), st.integers(0, 30).map(float), st.booleans()),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_labels_do_not_collide_and_chosen_ones_have_one(points: list[Point]) -> None:
    drawn = plot(points, SIZE, TIME, [("a", "a"), ("b", "b")])
    assert all(mark.label for mark in drawn.marks if mark.chosen)
    boxes = [
        pareto._box(mark.label_x, mark.label_y, mark.anchor, mark.label)
        for mark in drawn.marks
        if mark.label and not mark.chosen
    ]
    assert not any(pareto._overlap(*pair) for pair in itertools.combinations(boxes, 2))
    for mark in drawn.marks:
        assert pareto.LEFT <= mark.x <= pareto.RIGHT
        assert pareto.TOP <= mark.y <= pareto.BOTTOM


def test_intervals_are_on_the_drawing() -> None:
    wide = replace(point(1e6, 5e6), low=1e6, high=30e6)
    (mark,) = plot([wide], SIZE, TIME, [("x64", "x64")]).marks
    assert mark.high is not None
    assert mark.low is not None
    assert pareto.TOP <= mark.high < mark.y < mark.low <= pareto.BOTTOM
