"""Parity: metrics against hand-computed values, the tolerance rule, and what nothing forgives."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge import errors, parity
from edge.parity import OutputParity, Tolerance, compare, measure, verdict

f32 = np.float32
LOOSE = Tolerance(max_abs=1e30)


def array(*values: float, dtype: Any = f32) -> Any:
    return np.array(values, dtype)


def reasons(expected: Any, actual: Any, tolerance: Tolerance) -> tuple[str, ...]:
    return verdict(measure(expected, actual, tolerance), tolerance)


# ------------------------------------------------------------------------------ figures
def test_figures_of_a_known_pair() -> None:
    found = compare(array(1, 2, 4, dtype="f8"), array(1, 2.5, 4, dtype="f8"))
    assert found.max_abs == 0.5
    assert found.max_rel == 0.25
    assert found.sqnr_db == pytest.approx(10 * math.log10(21 / 0.25))
    assert (found.exact, found.mismatches, found.elements) == (False, 1, 3)


def test_relative_differences_have_a_floor() -> None:
    found = compare(array(0, 1), array(1e-4, 1), floor=1e-3)
    assert found.max_rel == pytest.approx(0.1, rel=1e-6)
    assert found.floor == 1e-3


def test_identical_is_exact_and_infinite() -> None:
    found = compare(array(1, -2), array(1, -2), name="y")
    assert (found.exact, found.max_abs, found.sqnr_db, found.name) == (True, 0, math.inf, "y")


def test_negative_zero_is_equal_but_not_the_same_bits() -> None:
    found = compare(array(0.0, 1), array(-0.0, 1))
    assert (found.exact, found.mismatches, found.sqnr_db) == (False, 0, math.inf)


def test_zero_by_zero_is_said() -> None:
    found = compare(array(0, 0), array(0, 0))
    assert found.sqnr_db is None
    assert found.note == parity.ZERO_BY_ZERO
    assert verdict(found, Tolerance(sqnr_db=40)) == ()


def test_noise_without_signal_is_minus_infinity() -> None:
    found = compare(array(0, 0), array(0, 1e-9))
    assert found.sqnr_db == -math.inf
    assert "SQNR -inf dB < 40 dB" in verdict(found, Tolerance(sqnr_db=40))[0]


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_sqnr_neither_over_nor_underflows(scale: float) -> None:
    expected = array(1, 2, 3, dtype="f8") * scale
    assert compare(expected, expected * 1.01).sqnr_db == pytest.approx(40, abs=1e-6)


def test_an_infinite_difference_of_finite_values_fails() -> None:
    allowing = Tolerance(max_abs=1e300, max_rel=10.0)  # 10 * 1e308 is infinite too
    found = measure(array(1e308, dtype="f8"), array(-1e308, dtype="f8"), allowing)
    assert (found.max_abs, found.sqnr_db, found.abs_beyond) == (math.inf, -math.inf, math.inf)
    assert verdict(found, allowing)


def test_chunks_do_not_change_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    expected = random.standard_normal((37, 11)).astype(f32)
    actual = expected + random.standard_normal((37, 11)).astype(f32) / 100
    whole = compare(expected, actual, rel_allowed=1e-3)
    monkeypatch.setattr(parity, "CHUNK", 16)
    parts = compare(expected, actual, rel_allowed=1e-3)
    assert parts.sqnr_db == pytest.approx(whole.sqnr_db)
    assert replace(parts, sqnr_db=whole.sqnr_db) == whole


def test_a_view_and_another_byte_order_are_read_as_values() -> None:
    base = np.arange(12, dtype=f32).reshape(3, 4)
    assert compare(base.T, base.T.astype(">f4")).exact


# ------------------------------------------------------------------------------- argmax
def test_argmax_agreement_counts_rows() -> None:
    expected = np.array([[0, 1], [1, 0], [0, 1], [0, 1]], f32)
    actual = np.array([[0, 2], [0, 1], [0, 2], [0, 2]], f32)
    assert compare(expected, actual).argmax == 0.75


def test_argmax_of_a_tie_is_no_error() -> None:
    assert compare(array(3, 3, 1), array(2.9, 3, 1)).argmax == 1.0


def test_argmax_of_a_row_with_nan_never_agrees() -> None:
    assert compare(array(math.nan, 1), array(math.nan, 1)).argmax == 0.0
    assert compare(array(1, 5), array(1, math.nan)).argmax == 0.0


@pytest.mark.parametrize("shape", [(), (3, 1), (0, 4)])
def test_argmax_is_undefined_without_rows_of_two(shape: tuple[int, ...]) -> None:
    zeros = np.zeros(shape, f32)
    assert compare(zeros, zeros).argmax is None


# --------------------------------------------------------------------- NaN and infinities
def test_nan_at_the_same_places_is_counted_and_left_out() -> None:
    found = compare(array(math.nan, 1), array(math.nan, 1.5))
    assert (found.nan_expected, found.nan_actual, found.nan_agree) == (1, 1, True)
    assert found.max_abs == 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_element_fails_the_loosest_tolerance(bad: float) -> None:
    loosest = Tolerance(max_abs=1e30, max_rel=1e30, sqnr_db=-1e9, argmax=0.0)
    assert reasons(array(1, 2, 3), array(1, bad, 3), loosest)
    assert reasons(array(1, bad, 3), array(1, 2, 3), loosest)


def test_infinities_need_the_same_sign() -> None:
    found = compare(array(math.inf, 1), array(-math.inf, 1))
    assert (found.inf_expected, found.inf_actual, found.inf_agree) == (1, 1, False)
    assert verdict(found, LOOSE) == ("infinities: 1, expected 1, not the same",)


def test_all_nan_is_never_a_pass() -> None:
    nothing = array(math.nan, math.nan)
    assert reasons(nothing, nothing, LOOSE) == (parity.NOTHING_FINITE,)


def test_nan_moved_within_a_chunk_is_seen() -> None:
    found = compare(array(math.nan, 1), array(1, math.nan))
    assert not found.nan_agree
    assert "NaN: 1, expected 1, at other places" in verdict(found, LOOSE)[0]


# --------------------------------------------------------------------------- structure
def test_another_dtype_and_shape_are_both_said() -> None:
    found = compare(np.zeros((2, 3), f32), np.zeros((3, 2), "f2"))
    assert verdict(found, LOOSE) == ("dtype float16, not float32", "shape [3, 2], not [2, 3]")


def test_another_float_dtype_still_gets_figures() -> None:
    found = compare(array(1, 2), array(1, 2, dtype="f2"))
    assert (found.max_abs, found.exact) == (0, False)
    assert verdict(found, LOOSE) == ("dtype float16, not float32",)


def test_an_empty_output_is_equal_to_an_empty_output() -> None:
    found = compare(np.zeros((0, 4), f32), np.zeros((0, 4), f32))
    assert (found.note, found.max_abs) == (parity.EMPTY, None)
    assert verdict(found, Tolerance()) == ()


def test_texts_are_refused() -> None:
    with pytest.raises(errors.RunFailed, match="no plain numbers"):
        compare(np.array(["a"]), np.array(["a"]))


# ---------------------------------------------------------------------------- integers
@pytest.mark.parametrize(
    ("dtype", "low", "high", "gap"),
    [
        ("int64", -(2**63), 2**63 - 1, 2**64 - 1),
        ("uint64", 0, 2**64 - 1, 2**64 - 1),
        ("int8", -128, 127, 255),
        ("int64", 2**60, 2**60 + 1, 1),  # equal as float64
    ],
)
def test_integer_differences_are_exact(dtype: str, low: int, high: int, gap: int) -> None:
    found = compare(np.array([low, 5], dtype), np.array([high, 5], dtype))
    assert (found.mismatches, found.max_abs) == (1, float(gap))
    assert found.sqnr_db is None


def test_integers_must_be_equal_unless_one_is_allowed() -> None:
    expected, actual = np.array([1, 2], "u1"), np.array([1, 3], "u1")
    assert "uint8 must be equal" in reasons(expected, actual, Tolerance(max_abs=0.9))[0]
    assert reasons(expected, actual, Tolerance(max_abs=1)) == ()
    assert "more than max_abs 1" in reasons(expected, actual + 1, Tolerance(max_abs=1))[0]


def test_booleans_must_be_equal_whatever_is_allowed() -> None:
    expected = np.array([True, False])
    assert reasons(expected, ~expected, Tolerance(max_abs=5)) == (
        "2 of 2 elements differ, by up to 1: bool must be equal",
    )


def test_a_bool_that_is_no_bool_is_seen() -> None:
    assert compare(np.array([True]), np.array([2], "u1").view(bool)).mismatches == 1


# ---------------------------------------------------------------------------- tolerance
def test_the_reason_names_figure_and_limit() -> None:
    found = reasons(array(0.5, 1), array(0.5031, 1), Tolerance(max_abs=1e-4))
    assert found == ("max_abs 3.10e-03 > 0.0001",)


def test_max_abs_alone_and_max_rel_alone() -> None:
    expected, actual = array(1000, 1), array(1001, 1)
    assert reasons(expected, actual, Tolerance(max_abs=0.5))
    assert reasons(expected, actual, Tolerance(max_rel=2e-3)) == ()
    assert "of max(|expected|, 0.001)" in reasons(expected, actual, Tolerance(max_rel=5e-4))[0]


def test_both_add_up_element_by_element() -> None:
    # Neither limit alone holds for all elements, their sum does for each: numpy.allclose.
    expected, actual = array(1000, 0.01), array(1000.9, 0.0109)
    both = Tolerance(max_abs=1e-3, max_rel=1e-3)
    assert reasons(expected, actual, both) == ()
    assert reasons(expected, array(1000.9, 0.012), both) == (
        "max_abs 9.00e-01 > 0.001 and max_rel 2.00e-01 > 0.001 of max(|expected|, 0.001)",
    )


def test_without_the_allowance_the_verdict_is_stricter() -> None:
    both = Tolerance(max_abs=1e-3, max_rel=1e-3)
    plain = compare(array(1000, 0.01), array(1000.9, 0.0109))
    assert verdict(plain, both)
    assert verdict(compare(array(1000, 0), array(1000.9, 0)), both) == ()


def test_a_larger_floor_than_the_limits_is_not_believed() -> None:
    found = compare(array(0.01), array(0.02), floor=10.0)
    assert verdict(found, Tolerance(max_rel=0.01))


def test_no_limit_means_equal_values() -> None:
    assert reasons(array(1), array(1), Tolerance()) == ()
    assert "no tolerance is given" in reasons(array(1), array(1 + 1e-6), Tolerance())[0]


def test_argmax_and_sqnr_are_limits_of_their_own() -> None:
    expected = np.array([[1.0, 0.9], [0, 1]], f32)
    actual = np.array([[0.9, 1.0], [0, 1]], f32)
    assert reasons(expected, actual, Tolerance(argmax=0.5)) == ()
    found = reasons(expected, actual, Tolerance(max_abs=1, argmax=0.99, sqnr_db=60))
    assert found == (
        "SQNR 21.5 dB < 60 dB",
        "argmax agrees in 50.00% < 99.00% of the rows",
    )


@pytest.mark.parametrize(
    "limits",
    [
        {"max_abs": math.nan}, {"max_abs": -1.0}, {"max_rel": math.inf}, {"floor": 0.0},
        {"floor": math.nan}, {"argmax": 1.01}, {"sqnr_db": math.nan},
    ],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(limits))):
        Tolerance(**limits)


FLOATS = hnp.arrays(f32, 6, elements=st.floats(-1e4, 1e4, width=32))
LIMITS = st.floats(0, 10)


@given(FLOATS, FLOATS, LIMITS, LIMITS)
def test_the_rule_is_that_of_allclose(e: Any, a: Any, max_abs: float, max_rel: float) -> None:
    tolerance = Tolerance(max_abs=max_abs, max_rel=max_rel, floor=1e-30)
    gap = np.abs(a.astype("f8") - e) - (max_abs + max_rel * np.abs(e.astype("f8")))
    if np.any(np.abs(gap) < 1e-6):  # on the very edge, rounding may say either
        return
    assert (reasons(e, a, tolerance) == ()) == bool(np.all(gap <= 0))


@given(hnp.arrays(st.sampled_from(["f2", "f4", "f8"]), 5), hnp.arrays("f4", 5))
def test_no_values_break_it_and_json_keeps_it(e: Any, a: Any) -> None:
    found = compare(e, a, rel_allowed=0.1)
    text = json.dumps(found.to_json(), allow_nan=False)
    assert OutputParity.from_json(json.loads(text)) == found
    assert isinstance(verdict(found, LOOSE), tuple)


# --------------------------------------------------------------------------------- JSON
def test_infinities_are_strings_in_json() -> None:
    plain = compare(array(1, 2), array(1, 2)).to_json()
    assert (plain["sqnr_db"], plain["argmax"], plain["rel_allowed"]) == ("inf", 1.0, None)
    assert plain["shape_expected"] == [2]


@pytest.mark.parametrize(
    "change",
    [
        {"max_abs": "large"}, {"exact": 1}, {"elements": 1.5}, {"shape_actual": ["2"]},
        {"elements": True}, {"unknown": 1}, {"name": None},
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused(change: dict[str, Any]) -> None:
    plain = compare(array(1, 2), array(1, 2)).to_json()
    with pytest.raises(errors.StoreDamaged):
        OutputParity.from_json(plain | change)


@pytest.mark.parametrize("data", [None, [], "text", {}])
def test_what_is_no_record_is_refused(data: object) -> None:
    with pytest.raises(errors.StoreDamaged):
        OutputParity.from_json(data)
