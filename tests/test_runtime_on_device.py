"""``--on``: the device is asked before any work, named in what is missing, and then builds."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge import cli, config, errors, explain, process
from edge.convert.build_reduced import build_reduced
from edge.devices import DeviceSettings
from edge.job import Making, Steps
from edge.runtime_making import RuntimeWish, making, toolchain_lacks, wish
from edge.store import File, Store, as_file
from edge.tools import reduced_plan, remote_build, remote_scripts
from tests import models
from tests.sshd import Sshd, start
from tests.support import need
from tests.test_field import write_devices
from tests.tools import mini_ort

# What a host with everything says; GNU's triples are those of linux-x64.
TOOLS = {
    "cmake": "cmake version 3.30.1",
    "ninja": "1.12.0",
    "x86_64-linux-gnu-g++": "x86_64-linux-gnu-g++ (Debian 14.2.0-19) 14.2.0",
    "x86_64-linux-gnu-strip": "GNU strip (GNU Binutils for Debian) 2.44",
    "protoc": "libprotoc 3.21.12",
    "python3": "3.11",
}
BASIC = ("cat", "gzip", "head", "id", "mkdir", "mv", "ps", "rm", "rmdir", "sleep", "tail", "tar",
         "tr", "true", "wc")  # fmt: skip
MAC = DeviceSettings("mac", "ssh", host="mac.local")


def target(name: str = "linux-x64-reduced") -> config.Target:
    return config.read_target(process.PACKAGE_PARENT / "targets" / f"{name}.toml", {}, "")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """What commands on the device find: nothing to build with, until a test adds it."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("sh", *BASIC):
        (folder / name).symlink_to(need(name))
    return folder


@pytest.fixture
def server(tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setattr(remote_scripts, "ASK", 'exec "$@"\n')  # no folder of this very machine
    words = f'ForceCommand PATH={programs} exec {programs}/sh -c "$SSH_ORIGINAL_COMMAND"'
    with start(tmp_path / "sshd", options=[words]) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    models.save(models.mlp(), folder / "mlp.onnx")
    (folder / "edge.toml").write_text('[model]\nname = "mlp"\nsource = "mlp.onnx"\n')
    monkeypatch.chdir(folder)
    return folder


def install(programs: Path, **changes: str) -> None:
    """Programs that say their versions."""
    for name, said in {**TOOLS, **changes}.items():
        (programs / name).write_text(f"#!{programs / 'sh'}\necho '{said}'\n")
        (programs / name).chmod(0o755)


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    return int(stop.value.code or 0), capsys.readouterr().err


BUILD = ["build", "-t", "linux-x64-reduced", "--on"]


# ---------------------------------------------------------------------- the command line
@pytest.mark.ssh
def test_everything_that_is_missing_is_said_before_any_work(
    server: Sshd, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_devices(project, server)
    code, err = run([*BUILD, "lab"], capsys)
    assert code == 3, err
    for what in ("CMake 3.28 or newer (", "Ninja 1.10 or newer (", "x86_64-linux-gnu-g++",
                 "x86_64-linux-gnu-strip", "protoc 3.21.12 (",
                 "Python 3.10 or newer with venv ("):  # fmt: skip
        assert what in err
    assert err.count("on lab, for commands over SSH: ") == 6
    for how in ("pip install ninja", "apt install g++-x86-64-linux-gnu", "python3-venv"):
        assert how in err
    assert "✓" not in err
    assert not (project / "dist").exists()


@pytest.mark.ssh
def test_a_device_that_does_not_answer(
    server: Sshd, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_devices(project, server, port=1, connect_timeout=2)
    code, err = run([*BUILD, "lab"], capsys)
    assert code == 3, err
    assert "127.0.0.1:1 refused the connection" in err
    assert "✓" not in err


def test_an_unknown_device(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "devices.toml").write_text('[devices.mac]\nkind = "ssh"\nhost = "mac.local"\n')
    code, err = run([*BUILD, "mca"], capsys)
    assert code == 2
    assert "unknown device 'mca'" in err
    assert "did you mean 'mac'?" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-t", "linux-x64-reduced", "--plan"], "--plan builds nothing"),
        (["-t", "linux-x64"], "--on mac: no target builds its runtime"),
        (["-t", "ios", "--runtime", "prebuilt"], "--on mac: no target builds its runtime"),
    ],
)
def test_a_device_that_has_nothing_to_do(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (project / "devices.toml").write_text('[devices.mac]\nkind = "ssh"\nhost = "mac.local"\n')
    code, err = run(["build", "--on", "mac", *words], capsys)
    assert code == 2
    assert said in err


@pytest.mark.process
def test_explaining_connects_to_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Nobody answers at this name, which explain does not notice.
    (project / "devices.toml").write_text('[devices.mac]\nkind = "ssh"\nhost = "mac.invalid"\n')
    words = ["explain", "linux-x64-reduced", "--on", "mac", "--ort-source"]
    code, err = run([*words, str(mini_ort.tree(tmp_path / "sources.tar.gz"))], capsys)
    assert code == 0, err
    assert "linux-x64-reduced/mlp" in err


# ----------------------------------------------------------------------------- the making
def test_this_machine_as_a_device_is_this_machine() -> None:
    here = DeviceSettings("desk", "local", folder="/x")
    assert wish("reduced", planned=False, source=None, on=here).on is None
    assert wish("reduced", planned=False, source=None, on=MAC).on == MAC


def test_a_dry_run_does_not_know_the_toolchain(tmp_path: Path) -> None:
    made = how(RuntimeWish("reduced", on=MAC), tmp_path, dry=True)
    assert set(made.toolchain) == {"cmake", "ninja", "compiler", "binutils", "protoc"}
    assert set(made.toolchain.values()) == {"unknown: mac is not asked"}


def test_a_plan_of_nothing_is_refused_and_says_what_it_is_for() -> None:
    planned = RuntimeWish(planned=True)
    plain = [target("linux-x64"), target("browser")]
    with pytest.raises(errors.UsageError, match="--plan: linux-x64, browser builds no") as caught:
        toolchain_lacks(plain, planned)
    assert "tensorrt-plan" in caught.value.remedy
    for other in ("linux-x64-reduced", "tensorrt-plan"):
        assert toolchain_lacks([*plain, target(other)], planned) == []
    assert toolchain_lacks([target("android")], replace(planned, kind="reduced")) == []


def test_explain_says_that_the_device_was_not_asked(tmp_path: Path) -> None:
    made = how(RuntimeWish("reduced", on=MAC), tmp_path, dry=True)
    step = {"step": "build_reduced", "version": 1, "inputs": {}, "tools": {}}
    old = {**step, "parameters": {"toolchain": {**made.toolchain, "cmake": "3.30.1"}}}
    new = {**step, "parameters": {"toolchain": dict(made.toolchain)}}
    assert explain._why(new, [old]) == (
        "parameter toolchain.cmake: 3.30.1 -> unknown: mac is not asked"
    )


def how(wanted: RuntimeWish, folder: Path, *, dry: bool = False) -> Making:
    """How linux-x64-reduced is made, with pinned files that are not really fetched."""

    def fetch(pin: config.Pin) -> File:
        return File(Path("pinned"), pin.sha256, 0)

    made = making(target(), wanted, Store(folder / "store"), fetch, dry=dry)
    assert made is not None
    return made


@pytest.mark.ssh
def test_the_device_is_asked_for_its_tools(server: Sshd, programs: Path) -> None:
    on = server.settings()
    install(programs, protoc="libprotoc 3.14.0")
    (programs / "ninja").unlink()
    found = toolchain_lacks([target(), target("linux-x64")], RuntimeWish(on=on))
    assert [lack.target for lack in found] == ["linux-x64-reduced"] * 2
    assert {lack.what.partition(" ")[0] for lack in found} == {"Ninja", "protoc"}
    assert all(lack.what.endswith(" on lab") for lack in found)
    install(programs)
    assert toolchain_lacks([target()], RuntimeWish(on=on)) == []


@pytest.mark.ssh
def test_what_the_device_builds_is_known_by_its_tools_alone(
    server: Sshd, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key says what a result is made of; where it was made is no part of it."""
    install(programs)
    source = mini_ort.tree(tmp_path / "sources.tar.gz")
    on = server.settings(folder=str(tmp_path / "device"))
    made = how(RuntimeWish(source=source, on=on), tmp_path)
    assert made.toolchain["cmake"] == "3.30.1"
    assert "14.2.0" in made.toolchain["compiler"]
    plan = mini_ort.plan("wasm", "product.wasm", "browser")
    monkeypatch.setattr(reduced_plan, "make_plan", lambda *_: plan)
    (programs / "python3").unlink()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    there = built(tmp_path / "one", made, made.where, tmp_path)
    local = {"log": str(tmp_path / "log")}
    here = built(tmp_path / "two", made, local, tmp_path)
    assert there == here
    assert json.loads(json.dumps(made.where)) == made.where
    assert remote_build.from_json(made.where["device"]) == on
    assert not list((tmp_path / "device").iterdir())
    assert (tmp_path / "store" / "ort" / "build-linux-x64-reduced.log").read_text()


def built(
    folder: Path, made: Making, where: Any, shared: Path
) -> tuple[str, list[tuple[str, str]]]:
    """Key and files of the step's result in a fresh store."""
    (shared / "config").write_text("ai.onnx;13;Add\n")
    arguments = {
        "config": as_file(shared / "config"),
        "source": made.source,
        "request": {"version": mini_ort.VERSION, "platform": "browser"},
        "toolchain": dict(made.toolchain),
    }
    steps = Steps(Store(folder), lambda _release: None)
    result = steps.run(build_reduced, {**arguments, "where": dict(where)})
    return result.key, sorted((name, file.sha256) for name, file in result.files.items())


@pytest.mark.ssh
def test_a_connection_that_breaks_while_asking_is_said(server: Sshd, programs: Path) -> None:
    install(programs)
    (programs / "cmake").write_text(f"#!{programs / 'sh'}\nsleep 30\n")
    cut = threading.Timer(1.0, server.cut)
    cut.start()
    with pytest.raises(errors.DeviceUnreachable, match="the connection to lab broke"):
        toolchain_lacks([target()], RuntimeWish(on=server.settings()))
    cut.join()
