"""Facts about devices: the parsers on recorded answers, the scripts on real shells."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, probe
from edge.devices import DeviceSettings, open_device
from tests import sshd as server
from tests.sshd import Sshd, start

CASES = sorted((Path(__file__).parent / "probes").glob("*.txt"))
PROBES = (*probe.FACTS, *probe.CONTEXT)
SAME_SCRIPT = {"cpu_model": "cpu", "cores": "cpu", "cpu_flags": "cpu"}
sshd = server.sshd


def _sections(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in path.read_text().split("=== ")[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    return found


def _answer(sections: dict[str, str]) -> str:
    """The text that a device would print, from the sections of a case file."""
    order = list(dict.fromkeys(SAME_SCRIPT.get(one.name, one.name) for one in PROBES))
    parts = [f"\n@@probe-word {number}\n{sections[name]}" for number, name in enumerate(order)]
    return "login noise\n" + "".join(parts) + "\n@@probe-word end\n"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_recorded_devices(path: Path) -> None:
    sections = _sections(path)
    found = probe.read(_answer(sections), PROBES, "word")
    assert json.loads(json.dumps(found)) == json.loads(sections["expected"])


def test_there_are_cases_of_all_kinds() -> None:
    assert {path.stem for path in CASES} >= {
        "raspberry-pi-4", "x86-vm", "busybox-router", "android-toybox"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["ldd (Debian GLIBC 2.31-13) 2.31"], "glibc 2.31"),
        (["ldd (GNU libc) 2.17"], "glibc 2.17"),
        (["/lib/ld-musl-x86_64.so.1"], "musl"),
        (["ls: /lib/ld-none: not here"], ""),
        ([], ""),
    ],
)
def test_libc(lines: list[str], expected: str) -> None:
    assert probe.libc(lines) == expected


def test_cores_in_their_order() -> None:
    lines = [f"/sys/devices/system/cpu/cpu{core} {core}" for core in (0, 1, 10, 11, 2, 3)]
    assert probe.numbers(lines) == (0, 1, 2, 3, 10, 11)


def test_parts_stand_for_a_model_that_is_not_named() -> None:
    assert probe.cpu_model(["CPU implementer : 0x41", "CPU part : 0xd0b"]) == "ARM 0x41 0xd0b"


@given(st.lists(st.text(max_size=80), max_size=20))
def test_parsers_take_anything(lines: list[str]) -> None:
    for one in PROBES:
        json.dumps(one.parse(lines))


@given(st.text())
def test_answers_without_an_end_are_refused(text: str) -> None:
    with pytest.raises(errors.RunFailed, match="did not answer"):
        probe.read(text, PROBES, "word")


def _fake_root(tmp_path: Path) -> str:
    """A /proc and /sys of a machine with twelve cores, four of them without frequency."""
    for core in range(8):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("powersave\n")
        (folder / "scaling_cur_freq").write_text(f"{1_000_000 + core}\n")
        (folder / "scaling_max_freq").write_text("2400000\n")
    for number, (name, value) in enumerate([("cpu thermal", "51000"), ("gpu", "49500")]):
        zone = tmp_path / f"sys/class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(f"{name}\n")
        (zone / "temp").write_text(f"{value}\n")
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/loadavg").write_text("1.00 2.00 3.00 1/10 5\n")
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nprocessor: 1\nmodel name: Test CPU\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\n")
    (tmp_path / "proc/pressure/cpu").write_text("some avg10=7.50 avg60=0 avg300=0 total=1\n")
    return str(tmp_path)


def _expected_context() -> dict[str, Any]:
    return {
        "load": (1.0, 2.0, 3.0),
        "governors": ("powersave",) * 8,
        "frequencies_khz": tuple(1_000_000 + core for core in range(8)),
        "limits_khz": (2_400_000,) * 8,
        "temperatures": {"cpu thermal": 51.0, "gpu": 49.5},
        "throttled": None,
        "pressure": 7.5,
    }


@pytest.mark.process
def test_this_machine(tmp_path: Path) -> None:
    with open_device(DeviceSettings("here", folder=str(tmp_path / "not/yet there"))) as device:
        facts = probe.probe(device)
    assert facts.os == "Linux"
    assert facts.cores > 0
    assert facts.memory_bytes > 2**20
    assert facts.disk_free_bytes
    assert "python3" in facts.tools
    assert facts.libc


@pytest.mark.process
def test_reads_go_below_the_root(tmp_path: Path) -> None:
    root = _fake_root(tmp_path)
    with open_device(DeviceSettings("here", folder=str(tmp_path))) as device:
        assert asdict(probe.context(device, root=root)) == _expected_context()
        facts = probe.probe(device, root=root)
    assert (facts.cpu_model, facts.cores, facts.memory_bytes) == ("Test CPU", 2, 1_024_000)


@pytest.mark.ssh
def test_over_ssh_in_one_command(sshd: Sshd, tmp_path: Path) -> None:
    root = _fake_root(tmp_path)
    with open_device(sshd.settings(folder=str(tmp_path))) as device:
        assert asdict(probe.context(device, root=root)) == _expected_context()
        assert probe.probe(device).kernel


@pytest.mark.ssh
def test_on_busybox(tmp_path: Path) -> None:
    with (
        start(tmp_path / "sshd", options=[server.busybox_path(tmp_path / "bin")]) as running,
        open_device(running.settings()) as device,
    ):
        facts = probe.probe(device)
        context = probe.context(device, root=_fake_root(tmp_path / "root"))
    assert facts.os == "Linux"
    assert facts.disk_free_bytes
    assert {"sha256sum", "tar", "setsid"} <= set(facts.tools)
    assert asdict(context) == _expected_context()
