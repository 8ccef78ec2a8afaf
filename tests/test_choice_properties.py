"""Precision by budget: what holds for all variants and limits."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from edge import errors
from edge.choice import PRECISIONS, SLACK, Decision, Limits, Variant, choose, excluded

TIMES = ("p50_ns", "p50_low_ns", "p50_high_ns")


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def a_variant(draw: st.DrawFn, precision: str) -> Variant:
    state = draw(st.sampled_from(["made", "made", "made", "failed", "broken"]))
    if state == "failed":
        return Variant(precision, state, "it broke")
    time = draw(maybe(st.integers(3, 12).map(float)))
    width = draw(maybe(st.integers(0, 3)))
    spread = time is not None and width is not None
    return Variant(
        precision, state, draw(st.sampled_from(["", "why"])),
        artifact_raw=draw(maybe(st.integers(0, 12))),
        sqnr_db=draw(maybe(st.integers(-3, 12).map(float) | st.just(math.inf))),
        drop=draw(maybe(st.integers(-2, 6).map(lambda n: n / 10))),
        peak_bytes=draw(maybe(st.integers(0, 12))), p50_ns=time,
        p50_low_ns=time - width if spread else None, p50_high_ns=time + width if spread else None,
    )  # fmt: skip


some_variants = st.lists(
    st.sampled_from(PRECISIONS), unique=True, min_size=1, max_size=len(PRECISIONS)
).flatmap(lambda names: st.tuples(*(a_variant(name) for name in names)))
some_limits = st.builds(
    Limits,
    prefer=st.sampled_from(["size", "p50"]),
    max_size=maybe(st.integers(0, 12)),
    max_p50=maybe(st.integers(0, 12).map(float)),
    max_peak_memory=maybe(st.integers(0, 12)),
    min_sqnr=maybe(st.integers(-3, 12).map(float)),
    max_drop=maybe(st.integers(0, 6).map(lambda n: n / 10)),
)


def decide(variants: tuple[Variant, ...], limits: Limits) -> Decision | str:
    try:
        return choose(variants, limits, target="t")
    except errors.BudgetExceeded as error:
        return error.message


def within(variant: Variant, limits: Limits) -> bool:
    """Written out apart from the code under test."""
    v, m = variant, limits
    most = ((v.artifact_raw, m.max_size), (v.p50_ns, m.max_p50),
            (v.peak_bytes, m.max_peak_memory), (v.drop, m.max_drop))  # fmt: skip
    kept = [
        limit is None or (figure is not None and figure <= limit + SLACK) for figure, limit in most
    ]
    kept.append(m.min_sqnr is None or (v.sqnr_db is not None and v.sqnr_db >= m.min_sqnr))
    return v.state == "made" and all(kept)


def slower_than_source(variant: Variant, variants: tuple[Variant, ...]) -> bool:
    source = next((v for v in variants if v.precision == "source" and v.state == "made"), None)
    if source is None or source.span is None or variant.span is None:
        return False
    return variant.span[0] > source.span[1]


@given(some_variants, some_limits)
def test_the_chosen_one_keeps_every_limit_and_every_loser_has_one_reason(
    variants: tuple[Variant, ...], limits: Limits
) -> None:
    found = decide(variants, limits)
    fit = [v for v in variants if within(v, limits)]
    if limits.prefer == "p50":
        fit = [v for v in fit if not slower_than_source(v, variants)]
    if isinstance(found, str):
        assert not fit
        return
    assert found.chosen in fit
    assert set(found.reasons) == {v.precision for v in variants} - {found.chosen.precision}
    assert all(found.reasons.values())
    sizes = [v.artifact_raw for v in fit if v.artifact_raw is not None]
    if limits.prefer == "size" and sizes:
        assert found.chosen.artifact_raw == min(sizes)
    times = [v.span[0] for v in fit if v.span]
    if limits.prefer == "p50" and times:
        highest = min((v.p50_ns or 0, v.span[1]) for v in fit if v.span)[1]
        assert found.chosen.span is not None
        assert found.chosen.span[0] <= highest
    if slower_than_source(found.chosen, variants):
        assert "slower than source (p50" in found.warnings[0]


@given(some_variants, some_limits, st.randoms(use_true_random=False))
def test_the_order_of_variants_does_not_matter(
    variants: tuple[Variant, ...], limits: Limits, shuffle: random.Random
) -> None:
    other = list(variants)
    shuffle.shuffle(other)
    assert decide(tuple(other), limits) == decide(variants, limits)


@st.composite
def with_a_dominated_one(draw: st.DrawFn) -> tuple[tuple[Variant, ...], Variant]:
    """Variants, and one more that is worse than one of them in all figures, or as good."""
    names = draw(st.permutations(PRECISIONS))
    variants = tuple(draw(a_variant(name)) for name in names[: draw(st.integers(1, 5))])
    model = draw(st.sampled_from(variants))
    assume(model.state == "made" and names[-1] != "source")
    worse: dict[str, Any] = {"artifact_raw": 1, "peak_bytes": 1, "drop": 0.1, "sqnr_db": -1.0}
    steps = {name: draw(st.integers(0, 3)) * step for name, step in worse.items()}
    steps |= dict.fromkeys(TIMES, draw(st.integers(0, 3)))
    values: dict[str, Any] = {
        name: None if (value := getattr(model, name)) is None else value + step
        for name, step in steps.items()
    }
    # What is as good in all figures wins where it stands earlier in the fixed order.
    worse_for_sure = any(
        values[name] not in (None, getattr(model, name)) for name in ("artifact_raw", "sqnr_db")
    )
    assume(worse_for_sure or PRECISIONS.index(names[-1]) > PRECISIONS.index(model.precision))
    return variants, replace(model, precision=names[-1], **values)


@given(with_a_dominated_one(), some_limits)
def test_a_dominated_variant_never_changes_the_choice(
    drawn: tuple[tuple[Variant, ...], Variant], limits: Limits
) -> None:
    variants, dominated = drawn
    before, after = decide(variants, limits), decide((*variants, dominated), limits)
    if isinstance(before, str):
        assert isinstance(after, str)
    else:
        assert isinstance(after, Decision)
        assert (after.chosen, after.warnings) == (before.chosen, before.warnings)


@given(some_variants, some_limits)
def test_the_nearest_miss_names_a_limit_that_is_missed(
    variants: tuple[Variant, ...], limits: Limits
) -> None:
    said = decide(variants, limits)
    assume(isinstance(said, str) and any(v.state == "made" for v in variants))
    assert isinstance(said, str)
    nearest, _, texts = said.partition("the nearest is ")[2].partition(": ")
    (variant,) = [v for v in variants if v.precision == nearest]
    assert variant.state == "made"
    assert not within(variant, limits) or slower_than_source(variant, variants)
    assert texts == excluded(variants, limits)[nearest]
    assert f"{len(variants)} precisions" in said
