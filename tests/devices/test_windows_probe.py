"""What a device with Windows says of itself: parsers on recorded forms of answers.

The answers were written from the documentation, not recorded on a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import probe
from edge.devices.windows import Windows
from edge.probe import gpu, windows
from edge.process import Completed
from tests.devices.windows_lab import windows_device, windows_sshd


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Windows]:
    with windows_sshd(tmp_path / "lab") as server, windows_device(server, tmp_path) as device:
        yield device


@pytest.mark.ssh
def test_facts_and_state(lab: Windows) -> None:
    found = probe.probe(lab)
    assert (found.os, found.os_release) == ("Windows", "Windows 11 Pro 23H2 (build 22631.3447)")
    assert (found.kernel, found.arch, found.libc) == ("10.0.22631.0", "amd64", "")
    assert (found.cpu_model, found.cores) == ("13th Gen Intel(R) Core(TM) i7-1365U", 12)
    assert (found.memory_bytes, found.disk_free_bytes) == (16_856_350_720, 201_863_462_912)
    assert found.python
    assert found.packages is not None  # of the Python that stands for Windows'
    assert (found.gpus, found.gpu_trouble) == ((), "")
    now = probe.context(lab)
    assert now.governors == ("balanced",)
    assert (now.frequencies_khz, now.limits_khz) == ((1_800_000,), (1_800_000,))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["scheme 8C5E7FDA-E8BF-4A96-9A85-A6E23A8C635C"], ("high-performance", [])),
        (["scheme 11111111-2222-3333-4444-555555555555"], ("custom", [])),
        (["clock 900 3600", "clock 901 3600", "clock x 1"], ("", [(900, 3600), (901, 3600)])),
        ([], ("", [])),
    ],
)
def test_states(lines: list[str], expected: tuple[str, list[tuple[int, int]]]) -> None:
    assert windows.state(lines) == expected


def test_questions_without_an_answer_are_left_out() -> None:
    assert windows.facts(["product ", "arch AMD64", "arch x86", "end"]) == {"arch": "AMD64"}


class OldDriver:
    """Answers only what drivers before 510 know."""

    def run(self, argv: Sequence[str], *, timeout: float, check: bool) -> Completed:
        odd = next((name for name in ("compute_cap", "event_reasons") if name in argv[1]), "")
        if odd:
            said = f'Field "{odd}" is not a valid field to query.\n'
            return Completed(tuple(argv), 2, said, "", 0.1)
        said = "Quadro K620, 391.35, 2048" if "memory" in argv[1] else "1058, 41, 0x0, 3"
        return Completed(tuple(argv), 0, f"{said}\r\n", "", 0.1)


def test_an_old_driver_is_asked_for_less() -> None:
    device = cast("Windows", OldDriver())
    (found,) = gpu.gpus(windows.smi(device, gpu.QUERY))
    assert (found.name, found.driver, found.compute_capability) == ("Quadro K620", "391.35", "")
    assert gpu.states(windows.smi(device, gpu.STATE_QUERY)) == (gpu.GpuState(1058, 41, 0, 3),)


@given(st.lists(st.text()))
def test_any_answer_is_taken(lines: list[str]) -> None:
    assert all(value.isprintable() for value in windows.facts(lines).values())
    assert isinstance(windows.state(lines)[0], str)
