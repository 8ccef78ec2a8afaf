"""Facts about devices: the parsers on recorded answers, the scripts on real shells."""

from __future__ import annotations

import json
import platform
import shlex
import stat
import sys
import venv
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, probe
from edge.devices import DeviceSettings, open_device
from edge.probe import asking, gpu, software, windows
from tests import sshd as server
from tests.sshd import Sshd, start

CASES = sorted((Path(__file__).parent / "probes").glob("*.txt"))
PROBES = (*probe.FACTS, *probe.CONTEXT)
SAME_SCRIPT = {
    **dict.fromkeys(("cpu_model", "cores", "cpu_flags"), "cpu"),
    **dict.fromkeys(("onnxruntime", "packages", "python_libraries"), "python"),
    "gpu_trouble": "gpus",
}
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
    is_now = {one.name: found[one.name] for one in probe.CONTEXT}
    what = {one.name: found[one.name] for one in probe.FACTS}
    said = asdict(probe.DeviceFacts(**what)) | asdict(probe.Context(**is_now))
    assert json.loads(json.dumps(said)) == json.loads(sections["expected"])


def test_there_are_cases_of_all_kinds() -> None:
    assert {path.stem for path in CASES} >= {
        "raspberry-pi-4", "x86-vm", "busybox-router", "android-toybox", "server-h100",
        "laptop-rtx-3050", "wsl-rtx-5060", "driver-not-loaded", "jetson-agx-orin", "mac-mini-m2",
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
    assert probe.facts.libc(lines) == expected


def test_cores_in_their_order() -> None:
    lines = [f"/sys/devices/system/cpu/cpu{core} {core}" for core in (0, 1, 10, 11, 2, 3)]
    assert probe.state.numbers(lines) == (0, 1, 2, 3, 10, 11)


def test_parts_stand_for_a_model_that_is_not_named() -> None:
    assert probe.facts.cpu_model(["CPU implementer : 0x41", "CPU part : 0xd0b"]) == "ARM 0x41 0xd0b"


# Pieces of real answers, so that arbitrary text gets further than the first character.
PIECES = st.sampled_from(
    ["NVIDIA L4, 580.95.05, 8.9, 23034", "[N/A], ", "0x00000000000000e0", "1980, 40, 0x1, 3", ", ",
     "jetson x", "nvidia,tegra234", "package numpy ", "Python 3", "library libcudnn.so.9",
     "path lib", "complete", "libcuda.so.1 (libc6,x86-64) => /", "libs found", "9" * 30, "\x1b[2J"]
)  # fmt: skip
LINES = st.lists(
    st.text(max_size=80) | st.lists(PIECES | st.text(max_size=4), max_size=5).map("".join),
    max_size=20,
)


@given(LINES)
def test_parsers_take_anything(lines: list[str]) -> None:
    found = {one.name: one.parse(lines) for one in PROBES}
    what = probe.DeviceFacts(**{one.name: found[one.name] for one in probe.FACTS})
    is_now = probe.Context(**{one.name: found[one.name] for one in probe.CONTEXT})
    json.dumps([asdict(what), asdict(is_now)])
    shown = [what.gpu_trouble, *(each.name for each in what.gpus), *(what.packages or {})]
    assert all(text.isprintable() for text in shown)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Tesla K80, [Not Supported], 3.7, 11441", gpu.Gpu("Tesla K80", "", "3.7", 11441 * 2**20)),
        ("Orin (nvgpu), 540.4.0, [N/A], [N/A]", gpu.Gpu("Orin (nvgpu)", "540.4.0")),
        ("Orin (nvgpu), N/A, 8.7, [N/A]", gpu.Gpu("Orin (nvgpu)", "", "8.7")),
        ("A, B, 1.2.3, 4", gpu.Gpu("A, B", "1.2.3", "", 4 * 2**20)),
    ],
)
def test_a_gpu_that_does_not_say_all(line: str, expected: gpu.Gpu) -> None:
    assert gpu.gpus([line]) == (expected,)
    assert gpu.trouble([line]) == ""


def test_a_jetson_that_has_nvidia_smi_is_one_gpu() -> None:
    lines = ["Orin (nvgpu), 540.4.0, [N/A], [N/A]", "jetson Orin Nano", "nvidia,tegra234"]
    assert gpu.gpus(lines) == (gpu.Gpu("Orin (nvgpu)", "540.4.0", "8.7"),)


def test_a_lost_gpu_is_said_beside_those_that_are_left() -> None:
    lost = "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error"
    lines = [lost, "NVIDIA L4, 580.95.05, 8.9, 23034"]
    assert gpu.trouble(lines) == lost
    assert [each.name for each in gpu.gpus(lines)] == ["NVIDIA L4"]


def test_libraries_of_another_architecture_do_not_count() -> None:
    lines = [
        "2 libs found in cache", "libcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1",
        "libcudnn.so.9 (libc6,x32) => /x", "libcudart.so (libc6,x86-64) => /no/soname",
    ]  # fmt: skip
    assert software.libraries(lines) == ()
    assert software.libraries(["ldconfig: can't open /etc/ld.so.cache"]) is None


def test_commands_fit_what_a_dropbear_takes() -> None:
    for probes in (probe.FACTS, probe.CONTEXT):
        words = ["sh", "-c", probe.script(probes), "sh", "folder", "", "word", "python3"]
        assert len(shlex.join(words)) < 6000


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
        "gpu_states": (),
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
    assert facts.python == platform.python_version()  # this interpreter, whatever the PATH has
    assert facts.packages is not None
    assert facts.packages["onnxruntime"] == facts.onnxruntime == version("onnxruntime")


@pytest.mark.process
def test_packages_are_those_of_the_python_that_is_named(tmp_path: Path) -> None:
    """A virtual environment with CUDA's libraries, and a Python that is not there."""
    venv.create(tmp_path / "own", with_pip=False)
    (site,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    (site / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    (site / "nvidia" / "cu13" / "lib" / "libcublasLt.so.13").touch()
    (site / "onnxruntime_gpu-1.31.1.dist-info").mkdir()
    (site / "onnxruntime_gpu-1.31.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: onnxruntime-gpu\nVersion: 1.31.1\n"
    )
    with open_device(DeviceSettings("here", python=f"{tmp_path}/own/bin/python")) as device:
        facts = probe.probe(device)
        none = probe.probe(device, python=f"{tmp_path}/3.11/bin/python")
    assert facts.packages == {"onnxruntime-gpu": "1.31.1"}
    assert facts.python_libraries == ("libcublasLt.so.13",)
    assert (none.python, none.packages, none.python_libraries) == (None, None, ())


SMI = """#!/bin/sh
case $1 in
*compute_cap*|*counters*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2 ;;
*name*) echo 'NVIDIA T4, 470.57.02, 15360' ;;
*) echo '585, 33, 0x0000000000000001, 0' ;;
esac
"""


def fake_smi(folder: Path, text: str) -> None:
    """A program ``nvidia-smi`` in ``folder``."""
    folder.mkdir(exist_ok=True)
    (folder / "nvidia-smi").write_text(text)
    (folder / "nvidia-smi").chmod(stat.S_IRWXU)


@pytest.mark.process
def test_nvidia_smi_is_asked_again_where_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", SMI)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    with open_device(DeviceSettings("here", folder=str(tmp_path))) as device:
        facts, state = probe.probe(device), probe.context(device)
    assert facts.gpus == (gpu.Gpu("NVIDIA T4", "470.57.02", "", 15360 * 2**20),)
    assert facts.gpu_trouble == ""
    assert state.gpu_states == (gpu.GpuState(585, 33, 1, 0),)


@pytest.mark.process
def test_an_nvidia_smi_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path / "bin", "#!/bin/sh\nexec sleep 100\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    quick = [replace(one, script=one.script.replace("timeout 15", "timeout 0.2"))
             for one in probe.FACTS if one.name.startswith("gpu")]  # fmt: skip
    with open_device(DeviceSettings("here", folder=str(tmp_path))) as device:
        found = asking.ask(device, quick, "", "python3")
    assert found["gpu_trouble"] == "nvidia-smi did not answer within 15 s"


@pytest.mark.process
def test_libraries_on_the_path_of_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnvinfer.so.10").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{tmp_path}/lib")
    with open_device(DeviceSettings("here", folder=str(tmp_path))) as device:
        facts = probe.probe(device)
    assert "libnvinfer.so.10" in (facts.libraries or ())


def test_windows_is_asked_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = SimpleNamespace(settings=DeviceSettings("pc", kind="ssh", os="windows"))
    seen: list[Any] = []
    monkeypatch.setattr(windows, "probe", lambda *asked: seen.append(asked))
    monkeypatch.setattr(windows, "context", lambda *asked: seen.append(asked))
    probe.probe(device)
    probe.probe(device, python="C:/env/python.exe")
    probe.context(device)
    assert seen == [(device, "python"), (device, "C:/env/python.exe"), (device,)]


@pytest.mark.parametrize(
    ("settings", "python"),
    [
        (DeviceSettings("a"), sys.executable),
        (DeviceSettings("a", python="~/env/bin/python"), "./env/bin/python"),
        (DeviceSettings("a", kind="ssh"), "python3"),
        (DeviceSettings("a", kind="ssh", python="python3.12"), "python3.12"),
        (DeviceSettings("a", kind="ssh", os="windows"), "python"),
        (DeviceSettings("a", kind="ssh", os="windows", python="C:/env/python.exe"),
         "C:/env/python.exe"),
    ],
)  # fmt: skip
def test_the_python_of_a_device(settings: DeviceSettings, python: str) -> None:
    assert probe.python_of(settings) == python


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
