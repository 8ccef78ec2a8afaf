"""Several releases timed in one run, turn by turn: what is compared shares what disturbs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge import bench, errors, process, stats
from edge.bench import BenchOptions, Device, Release
from edge.protocol import Run


@dataclass(frozen=True)
class Timing:
    """One release's figures: times in ns, ``peak_bytes`` None where the device cannot tell.

    ``verdict`` says whether the times mean anything: valid, noisy, drifting.
    """

    summary: stats.Summary
    verdict: stats.Verdict
    peak_bytes: int | None


def interleaved(
    device: Device, releases: Mapping[str, Release], options: BenchOptions
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Time every release once a round in a fresh process, ``options.repeats`` rounds.

    Each round begins with another release: none is always the one after an idle CPU. A release
    whose runner fails is left out, and why is told beside the timings of the others.
    """
    options = options.effective()
    runs: dict[str, list[Run]] = {name: [] for name in releases}
    failed: dict[str, str] = {}
    for number in range(options.repeats):
        names = [name for name in releases if name not in failed]
        start = number % max(1, len(names))
        for name in names[start:] + names[:start]:
            try:
                runs[name].append(bench.timed(device, releases[name], options, name))
            except errors.RunFailed as error:
                process.refuse_when_stopping()
                failed[name] = error.message.splitlines()[0]
    return {name: _timing(runs[name]) for name in releases if name not in failed}, failed


def _timing(runs: list[Run]) -> Timing:
    peak = max(run.memory.peak_bytes for run in runs)
    summary = stats.summarize([bench.loop_of(run) for run in runs])
    # Rounds of a second have no 1,000 samples for a p99, and none is asked for here.
    return Timing(summary, stats.judge(summary), peak if peak >= 0 else None)
