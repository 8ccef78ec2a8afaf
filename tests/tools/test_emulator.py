"""What runs another platform's programs here: by the host's machine, and for real under qemu."""

from __future__ import annotations

import platform as host
from pathlib import Path

import pytest

from edge import errors, process
from edge.tools import emulator
from edge.tools.ort_cmake import LINUX
from tests.support import need

PROGRAM = """\
#include <cstdio>
#include <fstream>
#include <string>
int main() {
  std::ifstream file("/sys/devices/system/cpu/possible");
  std::string list;
  std::getline(file, list);
  std::printf("%s %zu %.1f\\n", list.empty() ? "nothing" : list.c_str(), sizeof(void*), 1.5 + 2);
}
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An x86-64 Linux host with qemu for 64-bit ARM and its libraries, in folders of the test."""
    monkeypatch.setattr(host, "system", lambda: "Linux")
    monkeypatch.setattr(host, "machine", lambda: "x86_64")
    monkeypatch.setattr(emulator, "USR", tmp_path / "usr")
    libraries = tmp_path / "usr" / "aarch64-linux-gnu" / "lib"
    libraries.mkdir(parents=True)
    (libraries / "libstdc++.so.6").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "qemu-aarch64-static").write_text("")
    (tmp_path / "bin" / "qemu-aarch64-static").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_the_hosts_own_platform_is_native(machine: Path) -> None:
    assert emulator.name("linux-x64") == "native"
    assert emulator.words("linux-x64", machine / "root") == []
    assert not (machine / "root").exists()


def test_another_platform_runs_under_qemu_in_a_root_of_its_own(machine: Path) -> None:
    root = machine / "root"
    assert emulator.name("linux-arm64") == "qemu-aarch64-static"
    program = str(machine / "bin" / "qemu-aarch64-static")
    assert emulator.words("linux-arm64", root) == [program, "-cpu", "cortex-a72", "-L", str(root)]
    newer = emulator.words("linux-arm64+asimdhp", machine / "newer")
    assert newer[1:3] == ["-cpu", "neoverse-n1"]
    cpus = root / "sys" / "devices" / "system" / "cpu"
    assert [(cpus / name).read_bytes() for name in ("possible", "present")] == [b"", b""]
    for folder in ("lib", "lib64"):
        assert (root / folder).resolve() == machine / "usr" / "aarch64-linux-gnu" / "lib"


@pytest.mark.parametrize(
    "lacks", ["bin/qemu-aarch64-static", "usr/aarch64-linux-gnu/lib/libstdc++.so.6"]
)
def test_qemu_without_libraries_and_libraries_without_qemu_run_nothing(
    machine: Path, lacks: str
) -> None:
    (machine / lacks).unlink()
    assert emulator.name("linux-arm64") == ""
    with pytest.raises(errors.ToolMissing, match="nothing on this host runs linux-arm64") as caught:
        emulator.words("linux-arm64", machine / "root")
    assert "qemu-user-static" in caught.value.remedy
    assert not (machine / "root").exists()


@pytest.mark.parametrize("platform", ["android", "ios", "browser", "", "linux-riscv64"])
def test_platforms_that_are_no_linux_run_nowhere(machine: Path, platform: str) -> None:
    assert emulator.name(platform) == ""
    with pytest.raises(errors.ToolMissing):
        emulator.words(platform, machine / "root")


def test_a_host_that_is_no_linux_runs_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "system", lambda: "Darwin")
    assert [emulator.name(platform) for platform in LINUX] == ["", "", ""]


def test_every_platform_is_known() -> None:
    assert set(emulator.QEMU) == set(LINUX)


@pytest.mark.qemu
@pytest.mark.parametrize(("platform", "pointer"), [("linux-arm64", 8), ("linux-armhf", 4)])
def test_a_program_runs_and_sees_no_processors(tmp_path: Path, platform: str, pointer: int) -> None:
    triple, _ = LINUX[platform]
    compiler = need(f"{triple}-g++")
    if emulator.name(platform) == "native":
        pytest.skip("nothing is emulated here")
    if not emulator.name(platform):
        need(emulator.QEMU[platform][0])
        need(f"libstdc++.so.6 for {platform}")
    (tmp_path / "p.cc").write_text(PROGRAM)
    process.run([compiler, "p.cc", "-o", "p"], timeout=60, cwd=tmp_path)
    before = emulator.words(platform, tmp_path / "root")
    done = process.run([*before, str(tmp_path / "p")], timeout=60)
    assert done.stdout == f"nothing {pointer} 3.5\n"
