"""Builds over a real sshd whose connections break, and builds that are stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess  # noqa: TID251 - a process that the test stops
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edge import errors, process
from edge.devices import DeviceSettings, open_device
from edge.tools import ort_build, remote_build, remote_jobs, remote_scripts
from tests.devices.faults import Forwarder, forwarder
from tests.sshd import Sshd, busybox_path, start
from tests.support import need
from tests.tools import mini_ort

pytestmark = pytest.mark.ssh

# edge as it is interrupted: the signal's handler of the command line, work in a pool's thread.
DRIVER = """\
import json, signal, sys
from pathlib import Path
from edge import cli, process
from edge.devices import open_device
from edge.tools import remote_build
from tests.tools import mini_ort

said = json.loads(sys.argv[1])
folder = Path(said["folder"])
signal.signal(signal.SIGINT, cli._stop)

def build():
    with open_device(remote_build.from_json(said["device"])) as device:
        remote_build.build_on(device, mini_ort.plan(said["mode"]), mini_ort.sources(folder),
                              folder / "scratch", folder / "log")

if said["pool"]:
    process.in_threads(lambda _: build(), [0], 1)
else:
    build()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with start(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_jobs, "POLL", (0.05, 0.3))
    monkeypatch.setattr(remote_jobs, "RETRY", 0.2)


def build(server: Sshd, work: Path, mode: str, **changes: Any) -> bytes:
    """The product's bytes; nothing may stay on the device."""
    (work / "scratch").mkdir()
    sources = mini_ort.sources(work)
    settings = server.settings(**{"folder": str(work / "device"), **changes})
    with open_device(settings) as device:
        product = remote_build.build_on(
            device, mini_ort.plan(mode), sources, work / "scratch", work / "log"
        )
    assert not builds(work)
    return product.read_bytes()


def builds(work: Path) -> list[Path]:
    return list((work / "device" / "builds").glob("*"))


def local(folder: Path, mode: str) -> bytes:
    (folder / "local").mkdir()
    sources = mini_ort.sources(folder)
    log = folder / "local.log"
    return ort_build.build(mini_ort.plan(mode), sources, folder / "local", log).read_bytes()


@contextmanager
def cutting(server: Sshd, work: Path) -> Iterator[list[int]]:
    """Cut the server's connections whenever the log has grown; how many there were each time."""
    done, cuts = threading.Event(), []

    def run() -> None:
        seen = 0
        while not done.wait(0.05):
            ticks = log(work).count("tick")
            if ticks > seen:
                seen = ticks
                cuts.append(len(server.sessions()))
                server.cut()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield cuts
    finally:
        done.set()
        thread.join()


def log(work: Path) -> str:
    with suppress(FileNotFoundError):
        return (work / "log").read_text()
    return ""


def begun(work: Path) -> bool:
    return "begun" in log(work)


# -------------------------------------------------------------------- connections that break
def test_the_whole_way(server: Sshd, tmp_path: Path) -> None:
    mode = f"lines {remote_scripts.PIECE // 8}"
    assert build(server, tmp_path, mode) == local(tmp_path, mode)
    assert (tmp_path / "log").read_bytes() == (tmp_path / "local.log").read_bytes()


def test_a_failure_there(server: Sshd, tmp_path: Path) -> None:
    with pytest.raises(errors.StepFailed, match="on lab ended with exit code 7:\nFAILED"):
        build(server, tmp_path, "fail 7")
    assert not builds(tmp_path)


def test_connections_that_are_cut_lose_nothing(
    server: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cutting(server, tmp_path) as cuts:
        assert build(server, tmp_path, "ticks 25") == local(tmp_path, "ticks 25")
    assert any(cuts)
    assert (tmp_path / "log").read_text() == (tmp_path / "local.log").read_text()
    assert "trying again for 10 minutes" in capsys.readouterr().err


def test_a_transfer_that_is_cut_is_made_again(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mini_ort, "BUILD_PY", mini_ort.BUILD_PY + f"# {os.urandom(300_000).hex()}")
    with forwarder(server.port, fault="reset", after=200_000) as network:
        known = tmp_path / "known"
        known.write_text(
            server.known_hosts.read_text().replace(str(server.port), str(network.port))
        )
        mend = threading.Thread(target=_mend, args=(network,))
        mend.start()
        product = build(server, tmp_path, "once", port=network.port, known_hosts=known)
        mend.join()
    assert network.seen >= 3
    assert product == local(tmp_path, "once")


def _mend(network: Forwarder) -> None:
    mini_ort.becomes(lambda: network.seen >= 3, 120)  # connections
    network.fault = "none"


def test_a_start_that_is_said_twice_starts_once(server: Sshd, tmp_path: Path) -> None:
    with (
        open_device(server.settings(folder=str(tmp_path / "device"))) as device,
        remote_jobs.site(device, tmp_path / "log", 60) as place,
    ):
        (Path(place.folder) / "work").mkdir(parents=True)
        count = tmp_path / "count"
        words = ["sh", "-c", 'echo x >>"$1"; sleep 1', "sh", str(count)]
        more = [remote_scripts.DETACH, remote_scripts.JOB, place.folder, "0", "30", "60"]
        for _ in range(2):
            assert place._run(remote_scripts.START, *more, *words).returncode == 0
        assert mini_ort.becomes(lambda: place._look("0", 0)[0] == "ended")
    assert count.read_text() == "x\n"


def test_a_connection_that_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_jobs, "RECONNECT", 1.0)
    monkeypatch.setattr(remote_jobs, "WATCH", (1, 2))
    nap = mini_ort.nap()
    with start(tmp_path / "sshd") as server:
        broken = threading.Thread(target=_break, args=(server, tmp_path))
        broken.start()
        with pytest.raises(errors.DeviceUnreachable) as caught:
            build(server, tmp_path, f"sleep {nap}")
        broken.join()
        (folder,) = builds(tmp_path)
        assert f"remove the folder {folder} of lab" in caught.value.remedy
        # Nobody looks at it any more: it ends, and takes its folder with it.
        assert mini_ort.becomes(lambda: not folder.exists())
        assert mini_ort.becomes(lambda: not mini_ort.processes(nap))
        assert mini_ort.becomes(lambda: not mini_ort.processes(folder.name))


def _break(server: Sshd, folder: Path) -> None:
    mini_ort.becomes(lambda: begun(folder), 120)
    sessions = server.sessions()
    os.kill(server.pid, signal.SIGTERM)
    for pid in sessions:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "printed",
    [
        "\u20ac\u20ac\n".encode() * (remote_scripts.PIECE // 6),  # a piece ends inside a letter
        b"x" * (remote_scripts.PIECE + 5),
        b"\xff\xfe bad\n" * 100 + b"no end",
        b"",
    ],
)
def test_a_log_comes_whole(tmp_path: Path, printed: bytes) -> None:
    settings = DeviceSettings("here", folder=str(tmp_path / "device"))
    with (
        open_device(settings) as device,
        remote_jobs.site(device, tmp_path / "log", 60) as place,
    ):
        job = Path(place.folder) / "job.0"
        job.mkdir(parents=True)
        (job / "log").write_bytes(printed)
        for name, number in (("pid", "1\n"), ("status", "3\n")):
            (job / name).write_text(number)
        texts, known, size = [], 0, -1
        while size:
            state, code, text, size = place._look("0", known)
            assert (state, code, size <= remote_scripts.PIECE) == ("ended", 3, True)
            texts.append(text)
            known += size
    assert known == len(printed)
    assert "".join(texts) == printed.decode("utf-8", "replace")


# ------------------------------------------------------------------------ builds that stop
@pytest.mark.parametrize("pool", [False, True])
def test_ctrl_c_ends_the_build_there(server: Sshd, tmp_path: Path, pool: bool) -> None:
    nap = mini_ort.nap()
    (tmp_path / "scratch").mkdir()
    said = {
        "folder": str(tmp_path),
        "device": remote_build.to_json(server.settings(folder=str(tmp_path / "device"))),
        "mode": f"sleep {nap}",
        "pool": pool,
    }
    running = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(said)], cwd=process.PACKAGE_PARENT
    )
    assert mini_ort.becomes(lambda: begun(tmp_path), 120)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) != 0
    assert not builds(tmp_path)
    assert not [pid for pid in mini_ort.processes(nap) if pid != running.pid]


def test_the_compilers_of_ninja_end_too(server: Sshd, tmp_path: Path) -> None:
    """Each of them is a process group of its own, which only ninja knows."""
    nap = mini_ort.nap()
    with (
        open_device(server.settings(folder=str(tmp_path / "device"))) as device,
        remote_jobs.site(device, tmp_path / "log", 60) as place,
    ):
        (Path(place.folder) / "work").mkdir(parents=True)
        rule = f"rule r\n  command = sleep {nap}\nbuild a: r\nbuild b: r\n"
        (Path(place.folder) / "work" / "build.ninja").write_text(rule)
        more = [remote_scripts.DETACH, remote_scripts.JOB, place.folder, "0", "30", "60"]
        place._run(remote_scripts.START, *more, str(need("ninja")), "-j2")
        assert mini_ort.becomes(lambda: len(mini_ort.processes(nap)) >= 2)
    assert mini_ort.becomes(lambda: not mini_ort.processes(nap), 10)
    assert not builds(tmp_path)


def test_a_job_that_is_ended_from_outside(server: Sshd, tmp_path: Path) -> None:
    nap = mini_ort.nap()
    killer = threading.Thread(target=_kill_group, args=(tmp_path,))
    killer.start()
    with pytest.raises(errors.StepFailed, match=r"(?s)python was ended from outside.*begun"):
        build(server, tmp_path, f"sleep {nap}")
    killer.join()
    assert not builds(tmp_path)


def _kill_group(folder: Path) -> None:
    mini_ort.becomes(lambda: begun(folder), 120)
    (pid,) = (path.read_text() for path in builds(folder)[0].glob("job.1/pid"))
    os.killpg(int(pid), signal.SIGKILL)


def test_a_folder_that_is_removed(server: Sshd, tmp_path: Path) -> None:
    def remove() -> None:
        mini_ort.becomes(lambda: begun(tmp_path), 120)
        builds(tmp_path)[0].rename(tmp_path / "elsewhere")

    nap = mini_ort.nap()
    mover = threading.Thread(target=remove)
    mover.start()
    with pytest.raises(errors.StepFailed, match="python was ended from outside"):
        build(server, tmp_path, f"sleep {nap}")
    mover.join()
    for pid in mini_ort.processes(nap):
        with suppress(ProcessLookupError):
            os.killpg(os.getpgid(pid), signal.SIGKILL)


def test_a_build_that_prints_without_end(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_jobs, "LOG_LIMIT", 100_000)
    with pytest.raises(errors.StepFailed, match="python printed more than 100000 bytes"):
        build(server, tmp_path, "lines 100000")
    assert not builds(tmp_path)


def test_a_full_disk_is_said(server: Sshd, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.StepFailed, match=r"cannot unpack the sources on lab: mkdir"):
        build(server, tmp_path, "once", folder=str(tmp_path / "file"))


# ------------------------------------------------------------------------- other systems
def _only(folder: Path) -> list[str]:
    """Options for sshd: commands find what is in ``folder``, whatever login scripts say."""
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    return [f'ForceCommand PATH={folder} exec {folder}/sh -c "$SSH_ORIGINAL_COMMAND"']


def _bash(folder: Path) -> list[str]:
    """Options for sshd: few programs, none of them ``setsid``, and bash as ``sh``."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("cat", "find", "gzip", "head", "id", "mkdir", "mv", "ps", "rm", "rmdir", "sleep",
             "tail", "tar", "touch", "tr", "true", "wc")  # fmt: skip
    for name in names:
        (folder / name).symlink_to(need(name))
    (folder / "sh").symlink_to(need("bash"))
    return _only(folder)


def test_bash_and_no_setsid(tmp_path: Path) -> None:
    """As on macOS: bash is its sh."""
    options = _bash(tmp_path / "bin")
    with start(tmp_path / "sshd", options=options) as server, cutting(server, tmp_path):
        assert build(server, tmp_path, "ticks 12") == local(tmp_path, "ticks 12")
    assert (tmp_path / "log").read_text() == (tmp_path / "local.log").read_text()


def test_busybox(tmp_path: Path) -> None:
    busybox_path(tmp_path / "bin")
    (tmp_path / "bin" / "setsid").unlink()
    with start(tmp_path / "sshd", options=_only(tmp_path / "bin")) as server:
        mode = f"lines {remote_scripts.PIECE // 8}"
        assert build(server, tmp_path, mode) == local(tmp_path, mode)
    assert (tmp_path / "log").read_text() == (tmp_path / "local.log").read_text()


def test_a_system_without_proc(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS: what runs is known from ps."""
    need("ps")
    for name in ("LOOK", "REMOVE"):
        script = getattr(remote_scripts, name)
        assert "/proc/self/cmdline" in script
        monkeypatch.setattr(remote_scripts, name, script.replace("/proc/self", "/none"))
    nap = mini_ort.nap()
    monkeypatch.setattr(ort_build, "TIMEOUT", 3.0)
    with pytest.raises(errors.StepFailed, match="did not end in time"):
        build(server, tmp_path, f"sleep {nap}")
    assert not builds(tmp_path)
    assert mini_ort.becomes(lambda: not mini_ort.processes(nap))


def test_a_restart_is_no_long_wait(server: Sshd, tmp_path: Path) -> None:
    """A number that another process has got is not taken for the job."""
    with (
        open_device(server.settings(folder=str(tmp_path / "device"))) as device,
        remote_jobs.site(device, tmp_path / "log", 60) as place,
    ):
        job = Path(place.folder) / "job.0"
        job.mkdir(parents=True)
        (job / "pid").write_text(f"{os.getpid()}\n")
        started = time.monotonic()
        assert place._look("0", 0)[0] == "lost"
        assert time.monotonic() - started < 10
    assert not builds(tmp_path)  # and this process is still here
