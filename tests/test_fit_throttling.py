"""What an NVIDIA GPU says of its clocks, as evidence that a measurement was throttled."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from edge import stats
from edge.probe import Context, GpuState

COOL = GpuState(1980, 41, 0x1, 0, 5_000, 7_000)


def found(before: GpuState, after: GpuState) -> tuple[str, ...]:
    states = [asdict(Context(gpu_states=(state,))) for state in (before, after)]
    return stats.throttling(*states)


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (0x20, "GPU 0 is slowed by heat (software)"),
        (0x40 | 0x8, "GPU 0 is slowed by heat (hardware)"),
        (0x80 | 0x8, "GPU 0 is slowed by the power supply"),
    ],
)
def test_bits_of_heat_and_power(reasons: int, words: str) -> None:
    assert found(COOL, GpuState(900, 88, reasons, 99)) == (words,)


@pytest.mark.parametrize("reasons", [None, 0x0, 0x1, 0x2, 0x4, 0x8, 0x10, 0x100, 0x117])
def test_idle_clocks_and_limits_that_were_set_are_no_evidence(reasons: int | None) -> None:
    assert found(COOL, GpuState(1200, 60, reasons, 99)) == ()


def test_heat_between_the_two_moments_is_counted() -> None:
    later = GpuState(1980, 60, 0x1, 0, 900_000, 259_000)
    assert found(COOL, later) == ("heat slowed GPU 0 for 252 ms",)
    assert found(later, later) == ()
    assert found(GpuState(), later) == ()  # the driver did not count


@pytest.mark.parametrize(
    "states", [None, "x", [1], [{"reasons": "0x20", "thermal_us": "9"}], [{"reasons": True}]]
)
def test_states_of_any_kind_raise_nothing(states: Any) -> None:
    context = {"gpu_states": states}
    assert stats.throttling(context, context) == ()
    assert stats.throttling({}, context) == ()


def test_gpus_have_their_numbers() -> None:
    hot = GpuState(900, 90, 0x60, 99)
    context = asdict(Context(gpu_states=(COOL, hot)))
    assert stats.throttling({}, context) == (
        "GPU 1 is slowed by heat (software)",
        "GPU 1 is slowed by heat (hardware)",
    )
