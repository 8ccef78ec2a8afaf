"""Statistics: limits on what samples support, coverage of the interval, and verdicts."""

from __future__ import annotations

from dataclasses import replace
from statistics import median, quantiles
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, stats
from edge.stats import Limits, Loop, judge, summarize

MS = 1_000_000


def latencies(seed: int, count: int, *, center: float = MS) -> tuple[int, ...]:
    """Lognormal with 5 % spread and spikes in 2 % of the runs."""
    random = np.random.default_rng(seed)
    values = center * np.exp(0.05 * random.standard_normal(count))
    spikes = random.random(count) < 0.02
    values[spikes] *= random.uniform(2, 10, int(spikes.sum()))
    return tuple(values.astype(int).tolist())


def correlated(seed: int, count: int) -> tuple[int, ...]:
    """AR(0.9) in the logarithm."""
    random = np.random.default_rng(seed)
    state, values = random.standard_normal(), []
    for step in random.standard_normal(count) * np.sqrt(1 - 0.81):
        state = 0.9 * state + step
        values.append(int(MS * np.exp(0.05 * state)))
    return tuple(values)


def loop(samples: tuple[int, ...], *, share: float = 0.99, **more: int) -> Loop:
    return Loop(samples, sum(samples), int(sum(samples) * share), **more)


def quiet(seed: int, count: int = 300, *, center: float = MS) -> Loop:
    random = np.random.default_rng(seed)
    values = center * np.exp(0.01 * random.standard_normal(count))
    return loop(tuple(values.astype(int).tolist()), involuntary_switches=0)


# ----------------------------------------------------------------------------- figures
def test_figures_of_known_samples() -> None:
    found = summarize([Loop((5, 1, 3, 2, 4), wall_ns=1000, cpu_ns=500, involuntary_switches=7)])
    assert (found.median_ns, found.mean_ns, found.min_ns, found.iqr_ns) == (3, 3, 1, 2)
    assert (found.throughput, found.cpu_share, found.involuntary_switches) == (5e6, 0.5, 7)
    assert (found.runs, found.repeats, found.medians_ns, found.spread) == (5, 1, (3.0,), None)


def test_what_the_device_could_not_tell_is_none() -> None:
    found = summarize([Loop((1,), 10, cpu_ns=5), Loop((1,), 10)])
    assert (found.cpu_share, found.involuntary_switches) == (None, None)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=50))
def test_percentiles_are_those_of_the_standard_library(samples: list[int]) -> None:
    theirs = quantiles(samples, n=10, method="inclusive")
    assert stats.percentile(sorted(samples), 0.9) == pytest.approx(theirs[8])


@pytest.mark.parametrize(
    ("count", "has"),
    [(29, (0, 0, 0)), (30, (1, 0, 0)), (99, (1, 0, 0)), (100, (1, 1, 0)), (999, (1, 1, 0)),
     (1000, (1, 1, 1))],
)  # fmt: skip
def test_no_figure_without_the_samples_for_it(count: int, has: tuple[int, ...]) -> None:
    found = summarize([loop(latencies(0, count))])
    given_figures = (found.low_ns, found.p90_ns, found.p99_ns)
    assert tuple(figure is not None for figure in given_figures) == tuple(map(bool, has))


def test_percentiles_are_of_all_processes_together() -> None:
    found = summarize([loop(latencies(seed, 400)) for seed in range(3)])
    assert found.p99_ns is not None
    assert found.p90_ns is not None
    assert found.min_ns < found.median_ns < found.p90_ns < found.p99_ns


def test_means_of_several_runs_have_no_percentiles() -> None:
    found = summarize([loop(latencies(0, 2000), batch=10)])
    assert (found.p90_ns, found.p99_ns, found.runs) == (None, None, 20_000)


def test_throughput_counts_every_run_of_a_sample() -> None:
    assert summarize([Loop((10, 10), wall_ns=200, batch=10)]).throughput == 1e8


@pytest.mark.parametrize("loops", [[], [Loop((), 1)]])
def test_nothing_timed_is_a_failed_run(loops: list[Loop]) -> None:
    with pytest.raises(errors.RunFailed, match="no timed samples"):
        summarize(loops)


# ---------------------------------------------------------------------------- interval
def coverage(series: Any, truth: float, trials: int = 60) -> float:
    hits = 0
    for trial in range(trials):
        found = stats.median_interval(series(trial), seed=trial)
        assert found is not None
        hits += found[0] <= truth <= found[1]
    return hits / trials


@pytest.fixture
def fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "RESAMPLES", 200)


@pytest.mark.usefixtures("fewer_resamples")
@pytest.mark.parametrize(("count", "processes"), [(30, 1), (300, 1), (100, 3)])
def test_the_interval_covers_the_median_of_spiky_samples(count: int, processes: int) -> None:
    truth = median(latencies(99, 200_000))
    share = coverage(
        lambda trial: [latencies(1000 * trial + n, count) for n in range(processes)], truth
    )
    assert share >= 0.88  # 0.94 to 0.98 in the long run


@pytest.mark.usefixtures("fewer_resamples")
def test_the_interval_survives_correlation() -> None:
    share = coverage(lambda trial: [correlated(trial, 600)], MS)
    assert share >= 0.72  # 0.85 in the long run; single samples would give 0.4


def test_the_interval_is_the_same_every_time() -> None:
    loops = [loop(latencies(seed, 100)) for seed in range(3)]
    assert summarize(loops) == summarize(loops)


def test_long_series_are_thinned_for_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "BOOTSTRAP_SAMPLES", 50)
    found = stats.median_interval([latencies(0, 1000)])
    assert found is not None
    assert found[0] < MS < found[1]


def test_processes_that_differ_widen_the_interval() -> None:
    alike = summarize([quiet(seed) for seed in range(3)])
    apart = summarize([quiet(0), quiet(1, center=1.1 * MS), quiet(2, center=1.2 * MS)])
    assert alike.high_ns is not None
    assert alike.low_ns is not None
    assert apart.high_ns is not None
    assert apart.low_ns is not None
    assert apart.high_ns - apart.low_ns > 10 * (alike.high_ns - alike.low_ns)
    assert apart.spread == pytest.approx(0.2, abs=0.01)


def test_more_processes_narrow_the_interval() -> None:
    one, four = (stats.median_interval([quiet(n).samples_ns for n in range(k)]) for k in (1, 4))
    assert one is not None
    assert four is not None
    assert four[1] - four[0] < 0.7 * (one[1] - one[0])


# -------------------------------------------------------------------------------- drift
def test_a_ramp_of_ten_per_cent_is_drift() -> None:
    random = np.random.default_rng(0)
    ramp = np.linspace(1, 1.1, 1000) * MS * np.exp(0.01 * random.standard_normal(1000))
    found = summarize([quiet(1), loop(tuple(ramp.astype(int).tolist()))])
    assert found.drift == pytest.approx(1.075, abs=0.01)
    verdict = judge(found, limits=Limits(repeats=None))
    assert verdict.kind == "drift"
    assert "last quarter took 1.0" in verdict.evidence[0]


def test_a_cooling_device_drifts_too() -> None:
    falling = tuple(range(2000, 1000, -1))
    assert judge(summarize([loop(falling)])).kind == "drift"


def test_no_drift_is_told_of_few_samples() -> None:
    assert stats.drift(tuple(range(1, 50))) is None
    assert stats.drift((4,) * 50) == 1.0


# ------------------------------------------------------------------------------ verdict
def test_quiet_samples_are_valid() -> None:
    verdict = judge(summarize([quiet(seed) for seed in range(3)]))
    assert verdict == stats.Verdict("valid")
    assert verdict


def test_a_preempted_process_is_noisy() -> None:
    busy = replace(quiet(0), involuntary_switches=70)
    verdict = judge(summarize([replace(busy, cpu_ns=busy.wall_ns * 4 // 10)]))
    assert (verdict.kind, bool(verdict)) == ("noisy", False)
    assert verdict.evidence == ("it had the CPU for 40% of the time only, 70 times preempted",)


def test_an_accelerators_host_may_wait() -> None:
    waiting = replace(quiet(0), cpu_ns=1000)
    assert judge(summarize([waiting]), limits=Limits(cpu_share=None)).kind == "valid"


def test_processes_that_disagree_are_noisy() -> None:
    verdict = judge(summarize([quiet(0), quiet(1, center=1.08 * MS), quiet(2)]))
    assert verdict.kind == "noisy"
    assert "medians of 3 processes differ by 8" in " ".join(verdict.evidence)


def test_a_wide_spread_is_noisy() -> None:
    samples = tuple((1000, 1300)[n % 2] for n in range(400))
    evidence = " ".join(judge(summarize([loop(samples)])).evidence)
    assert "spread over" in evidence
    assert "the median is known to" in evidence


def test_too_few_comes_first_and_all_evidence_is_kept() -> None:
    verdict = judge(summarize([loop((1000, 5000) * 10, share=0.2)]), throttling=["hot"])
    assert verdict.kind == "too few"
    assert verdict.evidence[:2] == ("20 runs: an interval needs 30 samples", "hot")
    assert len(verdict.evidence) == 4


def test_a_throttled_device_is_throttled_however_quiet() -> None:
    verdict = judge(summarize([quiet(0)]), throttling=["Android's thermal status is 2"])
    assert verdict == stats.Verdict("throttled", ("Android's thermal status is 2",))


# --------------------------------------------------------------------------- throttling
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"nr_throttled": 3}, {"nr_throttled": 18}, "15 periods"),
        ({}, {"throttled": 0x4}, "0x4"),
        ({"throttled": 0x10000}, {"throttled": 0x50000}, "0x50000"),
        ({}, {"thermal_status": 1}, "status is 1"),
        ({}, {"thermal_state": 2}, "thermal state is 2"),
        ({"low_power": 1}, {}, "Low Power Mode"),
        ({}, {"low_power": 1}, "Low Power Mode"),
        (
            {"scaling_max_khz": {"cpu0": 1800000}},
            {"scaling_max_khz": {"cpu0": 1400000}},
            "cpu0 may run at 1400000 kHz, 1800000 before",
        ),
    ],
)
def test_evidence_of_throttling(before: Any, after: Any, words: str) -> None:
    (found,) = stats.throttling(before, after)
    assert words in found


@pytest.mark.parametrize(
    "context",
    [
        {}, {"throttled": 0x50000}, {"nr_throttled": 7}, {"scaling_max_khz": {"cpu0": 1800000}},
        {"thermal_status": "3", "nr_throttled": None, "scaling_max_khz": [1], "other": 1},
        {"thermal_state": 1, "low_power": 0},
    ],
)  # fmt: skip
def test_what_was_so_before_is_no_evidence(context: Any) -> None:
    assert stats.throttling(context, context) == ()
