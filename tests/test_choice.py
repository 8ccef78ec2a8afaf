"""Precision by budget: every rule on its own, and what holds for all variants and limits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from edge import errors
from edge.choice import (
    BYTES,
    Decision,
    Limits,
    Variant,
    choose,
    excluded,
    figures,
)

SOURCE = Variant(
    "source", "made", artifact_raw=3_170_000, artifact_compressed=1_200_000, sqnr_db=130.0,
    max_abs=1e-6, accuracy=0.97, drop=0.0, p50_ns=1.7e6, p50_low_ns=1.65e6, p50_high_ns=1.75e6,
    peak_bytes=60_000_000, sha256="aa" * 32,
)  # fmt: skip
FP16 = replace(
    SOURCE, precision="fp16", artifact_raw=1_600_000, sqnr_db=62.0, p50_ns=1.72e6,
    p50_low_ns=1.68e6, p50_high_ns=1.8e6, sha256="bb" * 32,
)  # fmt: skip
INT8 = replace(
    SOURCE, precision="int8", artifact_raw=830_000, sqnr_db=24.0, accuracy=0.96, drop=0.01,
    p50_ns=0.9e6, p50_low_ns=0.85e6, p50_high_ns=0.95e6, peak_bytes=40_000_000, sha256="cc" * 32,
)  # fmt: skip
SLOW = replace(INT8, p50_ns=2.6e6, p50_low_ns=2.5e6, p50_high_ns=2.7e6)
FAILED = Variant("int4-weights", "failed", "could not be made: no MatMul with constant weights")
BROKEN = Variant("int8-weights", "broken", "MatMulNBits fails in ORT format from 1.28 on")
UNTIMED: dict[str, Any] = {"p50_ns": None, "p50_low_ns": None, "p50_high_ns": None}


def pick(*variants: Variant, **limits: Any) -> Decision:
    return choose(variants, Limits(**limits), target="linux-x64")


def refused(*variants: Variant, **limits: Any) -> str:
    with pytest.raises(errors.BudgetExceeded) as caught:
        pick(*variants, **limits)
    assert caught.value.exit_code == 1
    assert caught.value.remedy
    assert "\n" not in caught.value.message
    return caught.value.message


# ------------------------------------------------------------------------------ who wins
def test_the_smallest_wins_and_every_other_one_has_its_reason() -> None:
    found = pick(SOURCE, FP16, INT8, FAILED, BROKEN)
    assert found.chosen == INT8
    assert found.reasons == {
        "source": "larger than int8: 3.17 MB against 0.83 MB",
        "fp16": "larger than int8: 1.6 MB against 0.83 MB",
        "int4-weights": "could not be made: no MatMul with constant weights",
        "int8-weights": "the target cannot run it: MatMulNBits fails in ORT format from 1.28 on",
    }
    assert found.warnings == ()


def test_the_fastest_wins() -> None:
    found = pick(SOURCE, FP16, INT8, prefer="p50")
    assert found.chosen == INT8
    assert found.reasons["source"] == "slower than int8 (p50 1.7 ms against 0.9 ms)"


def test_overlapping_intervals_are_the_same_speed_and_size_decides() -> None:
    found = pick(SOURCE, FP16, prefer="p50")
    assert found.chosen == FP16
    assert found.reasons["source"] == (
        "larger than fp16: 3.17 MB against 1.6 MB, and as fast within the 95 % intervals"
    )


def test_all_are_held_against_the_fastest_one() -> None:
    """Overlapping is not transitive: the second overlaps both, the third not the first."""
    first = replace(SOURCE, precision="int8", p50_ns=1.0, p50_low_ns=0.8, p50_high_ns=1.2)
    second = replace(SOURCE, precision="fp16", p50_ns=1.3, p50_low_ns=1.1, p50_high_ns=1.5)
    third = replace(SOURCE, artifact_raw=1, p50_ns=1.6, p50_low_ns=1.4, p50_high_ns=1.8)
    found = pick(first, second, third, prefer="p50")
    assert found.chosen == second
    assert found.reasons["source"] == "slower than int8 (p50 1.6 ns against 1 ns)"


def test_equal_sizes_go_to_the_faster_then_to_the_higher_sqnr_then_to_the_first() -> None:
    same = replace(SOURCE, precision="fp16")
    assert pick(SOURCE, replace(same, p50_ns=1e6, p50_low_ns=None)).chosen.precision == "source"
    quick = replace(same, p50_ns=1e6, p50_low_ns=0.9e6, p50_high_ns=1.1e6)
    assert pick(SOURCE, quick).chosen == quick
    better = replace(same, sqnr_db=math.inf)
    found = pick(SOURCE, better)
    assert found.chosen == better
    assert found.reasons == {"source": "lower SQNR than fp16: 130 dB against inf dB"}
    found = pick(same, SOURCE)
    assert found.chosen == SOURCE
    assert found.reasons == {"fp16": "equal to source in size, speed and SQNR, which comes first"}


def test_among_equal_sizes_speed_comes_before_sqnr() -> None:
    quick = replace(INT8, artifact_raw=SOURCE.artifact_raw)
    found = pick(SOURCE, quick)
    assert found.chosen == quick
    assert found.reasons == {"source": "slower than int8 (p50 1.7 ms against 0.9 ms)"}


def test_of_equal_medians_the_better_known_one_is_the_yardstick() -> None:
    sure = replace(BROKEN, state="made", p50_ns=10.0, p50_low_ns=9.0, p50_high_ns=11.0)
    vague = replace(FP16, p50_ns=10.0, p50_low_ns=5.0, p50_high_ns=15.0)
    late = replace(INT8, artifact_raw=1, p50_ns=14.0, p50_low_ns=13.0, p50_high_ns=15.0)
    reasons = pick(vague, sure, late, prefer="p50").reasons
    assert reasons["int8"] == "slower than int8-weights (p50 14 ns against 10 ns)"


def test_intervals_that_touch_overlap() -> None:
    late = replace(INT8, p50_ns=1.8e6, p50_low_ns=SOURCE.p50_high_ns, p50_high_ns=1.9e6)
    found = pick(SOURCE, late, prefer="p50")
    assert found.chosen == late
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("missing", "prefer", "reason"),
    [
        ("artifact_raw", "size", "size was not measured, that of source was"),
        ("p50_ns", "p50", "p50 was not measured, that of source was"),
    ],
)
def test_what_was_not_measured_does_not_win(missing: str, prefer: str, reason: str) -> None:
    gone: dict[str, Any] = {missing: None}
    found = pick(SOURCE, replace(INT8, **gone), prefer=prefer)
    assert found.chosen == SOURCE
    assert found.reasons == {"int8": reason}


def test_nothing_timed_leaves_the_smallest_even_where_the_fastest_is_wanted() -> None:
    found = pick(replace(SOURCE, **UNTIMED), replace(INT8, **UNTIMED), prefer="p50")
    assert found.chosen.precision == "int8"
    assert found.reasons == {"source": "larger than int8: 3.17 MB against 0.83 MB"}
    assert found.warnings == (
        "p50 was to decide and was not measured: size did",
        "the speed of int8 was not measured: it may be slower than source",
    )


# -------------------------------------------------------------------- slower than the source
def test_a_slower_one_cannot_win_where_speed_is_wanted() -> None:
    found = pick(SOURCE, SLOW, prefer="p50")
    assert found.chosen == SOURCE
    assert found.reasons == {"int8": "slower than source (p50 2.6 ms against 1.7 ms)"}
    said = refused(SOURCE, SLOW, prefer="p50", max_size=1_000_000)
    assert "the nearest is int8: slower than source (p50 2.6 ms against 1.7 ms)" in said


def test_a_slower_one_wins_by_size_with_a_warning_in_figures() -> None:
    found = pick(SOURCE, SLOW)
    assert found.chosen == SLOW
    assert found.warnings == ("int8 is slower than source (p50 2.6 ms against 1.7 ms)",)


def test_unknown_speed_is_a_warning() -> None:
    assert pick(SOURCE, replace(INT8, **UNTIMED)).warnings == (
        "the speed of int8 was not measured: it may be slower than source",
    )
    assert pick(replace(SOURCE, **UNTIMED), INT8).warnings == (
        "the speed of source was not measured: int8 may be slower",
    )
    assert pick(replace(SOURCE, **UNTIMED)).warnings == ()
    assert pick(INT8).warnings == ("the speed of source was not measured: int8 may be slower",)
    assert pick(replace(INT8, **UNTIMED)).warnings != ()


def test_a_source_that_the_target_cannot_run_is_no_yardstick() -> None:
    assert pick(replace(SOURCE, state="broken"), SLOW, prefer="p50").chosen == SLOW


# -------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    ("limit", "value", "figure", "reason", "unknown"),
    [
        ("max_size", 1_000_000, "artifact_raw", "size 3.17 MB > 1 MB", "size"),
        ("max_p50", 1e6, "p50_ns", "p50 1.7 ms > 1 ms", "p50"),
        ("max_peak_memory", 50_000_000, "peak_bytes", "peak memory 60 MB > 50 MB", "peak memory"),
        ("min_sqnr", 140, "sqnr_db", "SQNR 130 dB < 140 dB", "SQNR"),
        ("max_drop", 0.005, "drop", "accuracy drop 0.02 > 0.005", "accuracy drop"),
    ],
)
def test_beyond_a_limit_exactly_at_it_and_not_measured(
    limit: str, value: float, figure: str, reason: str, unknown: str
) -> None:
    limits = Limits(**{limit: value})  # type: ignore[arg-type]
    worse = replace(SOURCE, drop=0.02)
    assert excluded([worse], limits) == {"source": reason}
    figures_: dict[str, Any] = {figure: value}
    assert excluded([replace(worse, **figures_)], limits) == {}
    figures_[figure] = None
    wanted = reason.rpartition("> ")[2].rpartition("< ")[2]
    assert excluded([replace(worse, **figures_)], limits) == {
        "source": f"{unknown} was not measured, {limit} is {wanted}"
    }


def test_every_limit_that_is_missed_is_named() -> None:
    found = pick(SOURCE, INT8, min_sqnr=30, max_drop=0.001)
    assert found.chosen == SOURCE
    assert found.reasons == {"int8": "SQNR 24 dB < 30 dB; accuracy drop 0.01 > 0.001"}


def test_a_drop_is_not_judged_by_the_last_bit() -> None:
    drop = 0.97 - 0.96
    assert drop > 0.01
    assert pick(replace(INT8, drop=drop), max_drop=0.01).chosen.precision == "int8"


@pytest.mark.parametrize(
    "wrong",
    [{"prefer": "speed"}, {"max_size": -1}, {"max_p50": math.nan}, {"min_sqnr": math.inf},
     {"max_drop": -0.1}],
)  # fmt: skip
def test_limits_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"precision": "int3"}, {"state": "done"}, {"sqnr_db": math.nan}, {"artifact_raw": -1},
     {"p50_ns": math.inf}, {"accuracy": math.nan}, {"drop": -math.inf}, {"peak_bytes": -1},
     {"max_abs": math.nan}],
)  # fmt: skip
def test_figures_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.RunFailed):
        replace(INT8, **wrong)


def test_one_variant_a_precision() -> None:
    with pytest.raises(errors.RunFailed, match="same precision"):
        pick(INT8, INT8)


# -------------------------------------------------------------------------- nearest miss
def test_the_nearest_miss_is_the_smallest_of_the_furthest() -> None:
    said = refused(SOURCE, FP16, INT8, FAILED, max_size=1_000_000, min_sqnr=40)
    assert said == (
        "linux-x64: none of the 4 precisions tried is within the limits (1 failed, "
        "or cannot run there); the nearest is int8: SQNR 24 dB < 40 dB"
    )
    said = refused(SOURCE, FP16, INT8, max_size=1_500_000, min_sqnr=70)
    assert said.endswith("the nearest is fp16: size 1.6 MB > 1.5 MB; SQNR 62 dB < 70 dB")


def test_a_variant_is_as_far_off_as_its_furthest_miss() -> None:
    """int8 misses one limit by a tenth and one by far, source one by half."""
    said = refused(SOURCE, INT8, max_size=2_100_000, min_sqnr=26.7, max_drop=0.001)
    assert "the nearest is source: size 3.17 MB > 2.1 MB" in said


def test_what_was_not_measured_is_the_furthest_miss() -> None:
    said = refused(SOURCE, replace(INT8, drop=None), max_size=900_000, max_drop=0.02)
    assert "the nearest is source: size 3.17 MB > 0.9 MB" in said
    said = refused(replace(SOURCE, drop=None), max_drop=0)
    assert said.endswith("the nearest is source: accuracy drop was not measured, max_drop is 0")


def test_nothing_made_says_why() -> None:
    said = refused(FAILED, BROKEN)
    assert "int4-weights: could not be made: no MatMul" in said
    assert "int8-weights: the target cannot run it: MatMulNBits" in said
    assert "none of the 0 precisions" in refused()


# ------------------------------------------------------------------------------- figures
def test_figures_share_a_unit_and_differ() -> None:
    assert figures(3_170_000, 830_000, BYTES) == ("3.17 MB", "0.83 MB")
    assert figures(1_000_001, 1_000_000, BYTES) == ("1.000001 MB", "1 MB")
    assert figures(5, 5, BYTES) == ("5 B", "5 B")
    assert figures(0, 0, BYTES) == ("0 B", "0 B")
