"""Several releases timed in one run, turn by turn: what is compared shares what disturbs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from edge import bench, stats
from edge.bench import BenchOptions, Device, Release
from edge.protocol import Run


@dataclass(frozen=True)
class Timing:
    """One release's figures: times in ns, ``peak_bytes`` None where the device cannot tell."""

    summary: stats.Summary
    load_ns: float
    peak_bytes: int | None


def interleaved(
    device: Device, releases: Mapping[str, Release], options: BenchOptions
) -> dict[str, Timing]:
    """Time every release once a round in a fresh process, ``options.repeats`` rounds.

    Each round begins with another release: none is always the one after an idle CPU.
    """
    options = options.effective()
    names = list(releases)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(options.repeats):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            runs[name].append(bench.timed(device, releases[name], options, name))
    return {name: _timing(found) for name, found in runs.items()}


def _timing(runs: list[Run]) -> Timing:
    peak = max(run.memory.peak_bytes for run in runs)
    return Timing(
        stats.summarize([bench.loop_of(run) for run in runs]),
        float(median(run.load_ns for run in runs)),
        peak if peak >= 0 else None,
    )
