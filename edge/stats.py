"""Statistics of a measurement: what its samples support, and nothing that they do not.

The limits come from simulations on lognormal latencies with spikes (2 % of runs) and from public
rules; each constant says which. The headline is the median with a 95 % confidence interval from
a block bootstrap: latencies of successive runs are correlated, and a bootstrap of single samples
then covers the truth in 41 % of the cases instead of 95 % (blocks of sqrt(n): 81 to 90 %).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from edge import errors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Kind = Literal["valid", "noisy", "drift", "throttled", "too few"]
CONFIDENCE = 0.95
NORMAL_95 = 1.959964  # the normal distribution's quantile at 0.975
RESAMPLES = 1000
# Bits of NVML's clocks event reasons (docs.nvidia.com/deploy/nvml-api, NvmlClocksEventReasons):
# software and hardware thermal slowdown, and the power brake that the power supply pulls. Left
# out are the power cap (0x4), which is a limit that was set and kept in every run alike, and
# hardware slowdown (0x8), which sums up the last two but "may be also reported during PState or
# clock change".
GPU_SLOWED: Mapping[int, str] = {
    0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "the power supply",
}  # fmt: skip
MIN_MEDIAN = 30  # coverage 0.93 to 0.95 from here on
MIN_P90 = 100  # ten samples beyond it; coverage 0.90 at 30, 0.95 at 300
MIN_P99 = 1000  # ten samples beyond it; coverage 0.63 at 100, 0.83 at 300, 0.94 at 1000
MIN_DRIFT = 50  # false alarms of a 5 % limit: 4 % at 50 samples, none from 200 up
BOOTSTRAP_SAMPLES = 10_000  # of one process at most; longer series are thinned for the interval


@dataclass(frozen=True)
class Loop:
    """One timed loop of one fresh process, times in ns; -1 where the device could not tell.

    ``samples_ns`` in the order taken. ``wall_ns`` and ``cpu_ns`` are of the whole loop, CPU time
    of all threads. ``batch``: runs per sample (above 1 only where the clock is too coarse for
    single runs; a sample is then the mean of its runs).
    """

    samples_ns: tuple[int, ...]
    wall_ns: int
    cpu_ns: int = -1
    involuntary_switches: int = -1
    batch: int = 1


@dataclass(frozen=True)
class Limits:
    """When a measurement is not valid. None switches a limit off.

    ``drift``: medians of the last and first quarter of a loop differ by at most so much (5 %: a
    ramp of 10 % is found in 85 / 97 / 100 % of loops of 50 / 200 / 1000 runs). ``repeats``:
    medians of the processes lie within so much (MLPerf Mobile rules: results repeat within 5 %).
    ``interval``: the interval's half width over the median (as the drift: nothing finer than it
    can be told apart). ``iqr``: interquartile range over median (torch.utils.benchmark warns from
    10 %). ``cpu_share``: CPU time over wall time (quiet 0.99, busy 0.36 to 0.48, quota of 20 %
    0.20); None for accelerators, whose host waits.
    """

    drift: float | None = 0.05
    repeats: float | None = 0.05
    interval: float | None = 0.05
    iqr: float | None = 0.10
    cpu_share: float | None = 0.90


@dataclass(frozen=True)
class Summary:
    """What the samples of all processes say, ns; None where there are too few samples for it.

    ``runs`` (samples times batch), ``repeats`` (processes). ``low_ns`` to ``high_ns``: 95 %
    confidence interval of ``median_ns``. ``iqr_ns``: third minus first quartile. ``throughput``:
    runs per second of the loops' wall time. ``drift``: median of a loop's last quarter over that
    of its first, of the loop where it is furthest from 1. ``cpu_share``: CPU over wall time.
    ``involuntary_switches``: of all loops. ``medians_ns``: one a process, in order; ``spread``:
    the largest over the smallest, minus 1.
    """

    runs: int
    repeats: int
    median_ns: float
    low_ns: float | None
    high_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    mean_ns: float
    min_ns: float
    iqr_ns: float
    throughput: float
    drift: float | None
    cpu_share: float | None
    involuntary_switches: int | None
    medians_ns: tuple[float, ...]
    spread: float | None


@dataclass(frozen=True)
class Verdict:
    """Whether figures may be believed; ``evidence`` are all findings in words, worst kind first."""

    kind: Kind
    evidence: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.kind == "valid"


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Of ascending samples, linear between order statistics (Hyndman and Fan 1996, type 7)."""
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def summarize(loops: Sequence[Loop], *, seed: int = 0) -> Summary:
    """The figures of one or more fresh processes; deterministic for a ``seed``.

    Raises :class:`errors.RunFailed` without a loop or for a loop without samples.
    """
    if not loops or not all(loop.samples_ns for loop in loops):
        raise errors.RunFailed("the runner took no timed samples")
    pooled = sorted(chain.from_iterable(loop.samples_ns for loop in loops))
    single = all(loop.batch == 1 for loop in loops)  # means of several runs hide the tail
    medians = tuple(float(median(loop.samples_ns)) for loop in loops)
    interval = median_interval([loop.samples_ns for loop in loops], seed=seed)
    runs = sum(len(loop.samples_ns) * loop.batch for loop in loops)
    wall = sum(loop.wall_ns for loop in loops)
    quartiles = [percentile(pooled, fraction) for fraction in (0.25, 0.75)]
    drifts = [found for loop in loops if (found := drift(loop.samples_ns)) is not None]
    return Summary(
        runs=runs,
        repeats=len(loops),
        median_ns=float(median(pooled)),
        low_ns=interval[0] if interval else None,
        high_ns=interval[1] if interval else None,
        p90_ns=percentile(pooled, 0.90) if single and len(pooled) >= MIN_P90 else None,
        p99_ns=percentile(pooled, 0.99) if single and len(pooled) >= MIN_P99 else None,
        mean_ns=sum(pooled) / len(pooled),
        min_ns=float(pooled[0]),
        iqr_ns=quartiles[1] - quartiles[0],
        throughput=runs * 1e9 / max(wall, 1),
        drift=max(drifts, key=lambda ratio: abs(ratio - 1), default=None),
        cpu_share=_cpu_share(loops, wall),
        involuntary_switches=_switches(loops),
        medians_ns=medians,
        spread=max(medians) / max(min(medians), 1) - 1 if len(medians) > 1 else None,
    )


def _cpu_share(loops: Sequence[Loop], wall: int) -> float | None:
    known = all(loop.cpu_ns >= 0 for loop in loops) and wall > 0
    return sum(loop.cpu_ns for loop in loops) / wall if known else None


def _switches(loops: Sequence[Loop]) -> int | None:
    counts = [loop.involuntary_switches for loop in loops]
    return sum(counts) if min(counts) >= 0 else None


def drift(samples_ns: Sequence[int]) -> float | None:
    """Median of the last quarter over that of the first; None below ``MIN_DRIFT`` samples."""
    quarter = len(samples_ns) // 4
    if len(samples_ns) < MIN_DRIFT:
        return None
    return float(median(samples_ns[-quarter:])) / max(float(median(samples_ns[:quarter])), 1.0)


def median_interval(
    series: Sequence[Sequence[int]], *, seed: int = 0
) -> tuple[float, float] | None:
    """95 % confidence interval (ns) of the median of the samples of one or more processes.

    The hull of two intervals; None below ``MIN_MEDIAN`` samples in all:

    - percentile interval of a two-level bootstrap (Kalibera and Jones 2013): processes are drawn
      with replacement, in each of them circular blocks of sqrt(n) successive samples (Politis
      and Romano 1992), because successive samples are correlated;
    - order statistics by the binomial distribution, normal approximation (Conover 1999, 3.2):
      right for independent samples, where blocks are a little too narrow for few of them.

    Simulated coverage, lognormal with spikes: 0.94 to 0.99 for independent samples (30 up; more
    than one process is on the safe side), 0.82 / 0.88 / 0.93 for correlated ones (AR 0.9; 300,
    1000, 3 times 300). Where processes differ by more than their samples do, three of them give
    0.80 and five 0.84: ``Summary.spread`` is there to tell.
    """
    import numpy as np

    if sum(map(len, series)) < MIN_MEDIAN:
        return None
    random = np.random.default_rng(seed)
    windows = [_blocks(np.asarray(samples[:: _stride(samples)], np.float64)) for samples in series]
    medians = np.empty(RESAMPLES)
    for at in range(RESAMPLES):
        chosen = random.integers(0, len(windows), len(windows))
        medians[at] = np.median(np.concatenate([_redraw(windows[i], random) for i in chosen]))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    pooled = sorted(chain.from_iterable(series))
    below = max(math.floor((len(pooled) - NORMAL_95 * math.sqrt(len(pooled))) / 2), 0)
    return min(float(low), float(pooled[below])), max(float(high), float(pooled[-1 - below]))


def _stride(samples: Sequence[int]) -> int:
    return -(-len(samples) // BOOTSTRAP_SAMPLES)


def _blocks(samples: Array) -> Array:
    """Row i: the block of round(sqrt(n)) samples from i on, around the end."""
    import numpy as np

    size = max(1, round(math.sqrt(len(samples))))
    around = np.concatenate([samples, samples[: size - 1]])
    windows: Array = np.lib.stride_tricks.sliding_window_view(around, size)
    return windows


def _redraw(blocks: Array, random: np.random.Generator) -> Array:
    count, size = blocks.shape
    drawn: Array = blocks[random.integers(0, count, -(-count // size))].ravel()[:count]
    return drawn


def judge(
    summary: Summary, *, throttling: Sequence[str] = (), limits: Limits | None = None
) -> Verdict:
    """The verdict on a measurement; ``throttling`` is what the device said (see below)."""
    found = [*_findings(summary, limits or Limits()), *(("throttled", text) for text in throttling)]
    order: tuple[Kind, ...] = ("too few", "throttled", "drift", "noisy")
    ranked = sorted(found, key=lambda finding: order.index(finding[0]))
    if not ranked:
        return Verdict("valid")
    return Verdict(ranked[0][0], tuple(text for _, text in ranked))


def _findings(s: Summary, limits: Limits) -> list[tuple[Kind, str]]:
    found: list[tuple[Kind, str]] = []
    middle = max(s.median_ns, 1.0)
    if s.low_ns is None or s.high_ns is None:
        found.append(("too few", f"{s.runs} runs: an interval needs {MIN_MEDIAN} samples"))
    elif _above((s.high_ns - s.low_ns) / 2 / middle, limits.interval):
        half = (s.high_ns - s.low_ns) / 2 / middle
        found.append(("noisy", f"the median is known to ±{half:.1%} only"))
    if s.drift is not None and _above(abs(s.drift - 1), limits.drift):
        found.append(("drift", f"a loop's last quarter took {s.drift:.3g} times its first"))
    if _above(s.spread, limits.repeats):
        found.append(("noisy", f"the medians of {s.repeats} processes differ by {s.spread:.1%}"))
    if _above(s.iqr_ns / middle, limits.iqr):
        found.append(("noisy", f"half of the runs spread over {s.iqr_ns / middle:.1%} of p50"))
    share = s.cpu_share
    if share is not None and limits.cpu_share is not None and share < limits.cpu_share:
        switches = f", {s.involuntary_switches} times preempted" if s.involuntary_switches else ""
        found.append(("noisy", f"it had the CPU for {share:.0%} of the time only{switches}"))
    return found


def _above(figure: float | None, limit: float | None) -> bool:
    return figure is not None and limit is not None and not figure <= limit


def throttling(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Evidence of throttling between two contexts of a device; unknown keys are ignored.

    Keys read: ``nr_throttled`` (periods in which a cgroup's CPU quota was used up), ``throttled``
    (bits of the Raspberry Pi's ``vcgencmd get_throttled``: 0 to 3 now, 16 to 19 since boot),
    ``thermal_status`` (Android's 0 none, 1 light ... 6 shutdown), ``thermal_state`` (Apple's 0
    nominal, 1 fair, 2 serious, 3 critical), ``low_power`` (1: Apple's Low Power Mode),
    ``scaling_max_khz`` (kHz by CPU: what the thermal governor allows; the current frequency says
    nothing in an idle moment),
    ``gpu_states`` (one mapping a GPU: ``reasons``, bits of ``GPU_SLOWED`` active at that moment,
    and ``thermal_us``, the microseconds that heat has cost so far).
    """
    found = []
    periods = _integer(after, "nr_throttled") - _integer(before, "nr_throttled")
    if periods > 0:
        found.append(f"the CPU quota ran out in {periods} periods")
    new_bits = _integer(after, "throttled") & ~_integer(before, "throttled")
    if (_integer(after, "throttled") & 0xF) or new_bits >> 16:
        found.append(f"the firmware throttles (get_throttled {_integer(after, 'throttled'):#x})")
    if _integer(after, "thermal_status") > 0:
        found.append(f"Android's thermal status is {_integer(after, 'thermal_status')}")
    if _integer(after, "thermal_state") >= 2:
        found.append(f"Apple's thermal state is {_integer(after, 'thermal_state')} (2: serious)")
    if _integer(before, "low_power") or _integer(after, "low_power"):
        found.append("Low Power Mode is on")
    allowed, then = after.get("scaling_max_khz"), before.get("scaling_max_khz")
    if isinstance(allowed, Mapping) and isinstance(then, Mapping):
        lower = [cpu for cpu in then if 0 < _integer(allowed, cpu) < _integer(then, cpu)]
        found += [
            f"{cpu} may run at {_integer(allowed, cpu)} kHz, {_integer(then, cpu)} before"
            for cpu in sorted(map(str, lower))
        ]
    return (*found, *_gpu_throttling(_gpus(before), _gpus(after)))


def _gpu_throttling(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[str]:
    found = []
    for number, now in enumerate(after):
        bits = _integer(now, "reasons")
        found += [
            f"GPU {number} is slowed by {why}" for bit, why in GPU_SLOWED.items() if bits & bit
        ]
        if number < len(before) and before[number].get("thermal_us") is not None:
            slowed = _integer(now, "thermal_us") - _integer(before[number], "thermal_us")
            if slowed > 0:
                found.append(f"heat slowed GPU {number} for {slowed / 1000:.0f} ms")
    return found


def _gpus(context: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    gpus = context.get("gpu_states")
    return (
        [each for each in gpus if isinstance(each, Mapping)]
        if isinstance(gpus, list | tuple)
        else []
    )


def _integer(facts: Mapping[str, Any], key: str) -> int:
    value = facts.get(key, 0)
    return value if type(value) is int else 0
