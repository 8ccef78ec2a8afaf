"""Releases timed in turns."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from edge import bench, errors
from edge.bench import BenchOptions, Release
from edge.parity import Tolerance
from edge.rounds import interleaved

NAMES = ("a", "b", "c")


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order in which releases run; their figures are not looked at."""
    seen: list[str] = []
    monkeypatch.setattr(bench, "timed", lambda _d, _r, _o, title: seen.append(title))
    monkeypatch.setattr("edge.rounds._timing", len)
    return seen


def run(repeats: int, **more: Any) -> dict[str, Any]:
    releases = {
        name: Release(name, ("runner",), Path(name), Tolerance(max_abs=1.0)) for name in NAMES
    }
    options = BenchOptions(repeats=repeats, **more)
    timings, failed = interleaved(None, releases, options)  # type: ignore[arg-type]
    assert not failed
    return dict(timings)


def test_each_runs_once_a_round(order: list[str]) -> None:
    assert run(4) == dict.fromkeys(NAMES, 4)
    for start in range(0, 12, 3):
        assert set(order[start : start + 3]) == set(NAMES)


def test_none_is_always_the_first(order: list[str]) -> None:
    run(3)
    assert Counter(order[::3]) == dict.fromkeys(NAMES, 1)


def test_quick_is_one_round(order: list[str]) -> None:
    assert run(5, quick=True) == dict.fromkeys(NAMES, 1)


def test_one_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def timed(_device: Any, _release: Any, _options: Any, title: str) -> str:
        seen.append(title)
        if title == "b":
            raise errors.RunFailed("the runner ended with signal 11 (SIGSEGV)\nmore")
        return title

    monkeypatch.setattr(bench, "timed", timed)
    monkeypatch.setattr("edge.rounds._timing", len)
    releases = {
        name: Release(name, ("runner",), Path(name), Tolerance(max_abs=1.0)) for name in NAMES
    }
    timings, failed = interleaved(None, releases, BenchOptions(repeats=3))  # type: ignore[arg-type]
    assert dict[str, Any](timings) == {"a": 3, "c": 3}
    assert failed == {"b": "the runner ended with signal 11 (SIGSEGV)"}
    assert seen.count("b") == 1
