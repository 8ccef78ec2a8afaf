"""The p50 of a reduced ONNX Runtime against the full library of the same release.

The linux-x64-reduced bundles of ``edge build``, each artifact under the bundle's own library and
under the official full one, through the same C runner: sample 0, one thread, fresh processes in
turn, who comes first changes every round. Ratios are of the two medians of a round, their
interval is from edge.stats. Both must compute the same within the target's tolerance, which the
build has proven; here the runner must find the same release in both.

    python benchmarks/reduced_runtime.py FULL_LIBRARY BUNDLE... [--rounds N]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from benchmarks.runner import PPM, ROUNDS, c_loop, interval
from edge import errors, log, stats

WAYS = ("reduced", "full")


def one_round(bundle: Path, full: Path, number: int) -> dict[str, tuple[int, ...]]:
    """Timed runs (ns) under each library; refuses to compare two releases."""
    order = WAYS if number % 2 else WAYS[::-1]
    more = {"reduced": (), "full": ("--library", str(full))}
    found = {way: c_loop(bundle, *more[way]) for way in order}
    versions = {what[0] for _, what in found.values()}
    if len(versions) != 1:
        raise errors.RunFailed(f"the libraries are of {' and '.join(sorted(versions))}")
    return {way: loop for way, (loop, _) in found.items()}


def show(bundle: Path, rounds: list[dict[str, tuple[int, ...]]]) -> None:
    """A line of one model: both p50s, and the ratio with its 95 % interval."""
    p50 = {way: median(ns for each in rounds for ns in each[way]) for way in WAYS}
    ratios = [median(each["reduced"]) / median(each["full"]) for each in rounds]
    inside = stats.median_interval([[round(ratio * PPM) for ratio in ratios]])
    around = interval(inside, lambda ppm: f"{ppm / PPM:.3f}")
    times = ", ".join(f"{way} {log.human_ns(p50[way])}" for way in WAYS)
    print(f"{bundle.parent.parent.name}: {times}, ratio {median(ratios):.3f} {around}")


def main() -> None:
    """Measure every bundle that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("full", type=Path)
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    said = parser.parse_args()
    for bundle in said.bundles:
        show(bundle, [one_round(bundle, said.full, number) for number in range(said.rounds)])


if __name__ == "__main__":
    main()
