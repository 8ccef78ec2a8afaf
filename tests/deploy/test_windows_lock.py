"""The lock of a device with Windows, by what an earlier holder left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from edge import errors
from edge.deploy import lock, sftp_lock
from edge.devices.sftp import Files
from edge.devices.windows import Windows
from tests.deploy.test_deploy import _folder
from tests.devices.windows_lab import windows_device, windows_sshd
from tests.sshd import Sshd

pytestmark = pytest.mark.ssh


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with windows_sshd(tmp_path_factory.mktemp("windows")) as running:
        yield running


@pytest.fixture
def lab(server: Sshd, tmp_path: Path) -> Iterator[Windows]:
    with windows_device(server, tmp_path / "a pc") as device:
        yield device


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.02)
    monkeypatch.setattr(lock, "WAIT", 0.3)
    monkeypatch.setattr(sftp_lock, "SETTLE", 0.05)


NO_PROCESS = 2**30  # more than any system numbers its processes
ELSEWHERE = f"sometoken othermachine {NO_PROCESS} ann@desk 2024-01-01T00:00:00Z"


def _leave(device: Windows, owner: str, *, lease: str, age: float = 0) -> Path:
    left = _folder(device, "lock", "7")
    left.mkdir(parents=True)
    if owner:
        (left / "owner").write_text(owner + "\n")
    if lease:
        (left / "until").write_text(lease + "\n")
        then = time.time() - age
        os.utime(left / "until", (then, then))
    return left


def _taken(device: Windows) -> int:
    with sftp_lock.hold(device, device.settings.folder) as lease:
        return lease.number


def test_a_lock_counts_up(lab: Windows) -> None:
    assert [_taken(lab), _taken(lab)] == [1, 2]
    assert sorted(path.name for path in _folder(lab, "lock").iterdir()) == ["2"]


@pytest.mark.usefixtures("quick")
def test_a_live_owner_elsewhere_is_respected(lab: Windows) -> None:
    _leave(lab, ELSEWHERE, lease="100", age=50)
    with pytest.raises(errors.DeployFailed, match=r"under way \(by ann@desk 2024-01-01"):
        _taken(lab)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("owner", "lease", "age"),
    [
        (ELSEWHERE, "100", 200.0),  # its time is over
        (ELSEWHERE, "", 0.0),  # half made
        ("", "100", 0.0),
        (ELSEWHERE, "nonsense", 10.0),
        ("GONE", "100", 0.0),  # a process of this machine that is no more
        ("LOST", "100", 0.0),  # a deploy of this process that lost its connection
    ],
)
def test_what_is_taken_over(lab: Windows, owner: str, lease: str, age: float) -> None:
    pids = {"GONE": NO_PROCESS, "LOST": os.getpid()}
    if owner in pids:
        owner = f"sometoken {lock._machine()} {pids[owner]} ann@desk now"
    left = _leave(lab, owner, lease=lease, age=age)
    assert _taken(lab) == 8
    assert not left.exists()


@pytest.mark.usefixtures("quick")
def test_one_that_was_too_slow_waits_for_its_turn(
    lab: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one took its half made lock over and is done before long."""
    real, number = Files.write, iter([1])

    def write(self: Files, path: str, chunks: Iterable[bytes]) -> None:
        if path.endswith("/1/owner") and next(number, None):
            _folder(lab, "lock", "1").rmdir()
            _folder(lab, "lock", "2").mkdir()
            (_folder(lab, "lock", "2") / "free").touch()
        real(self, path, chunks)

    monkeypatch.setattr(Files, "write", write)
    assert _taken(lab) == 3


@pytest.mark.usefixtures("quick")
def test_a_holder_that_was_given_up_finds_out(lab: Windows) -> None:
    with sftp_lock.hold(lab, lab.settings.folder) as lease:
        _folder(lab, "lock", "2").mkdir()
        with pytest.raises(errors.DeployFailed, match="took the lock of pc over"), lease.step(5):
            raise AssertionError


def test_many_at_once(lab: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.02)
    inside, most = 0, 0
    numbers: list[int] = []

    def work() -> None:
        nonlocal inside, most
        other = Windows(lab.settings)
        other.connect()
        with sftp_lock.hold(other, lab.settings.folder) as lease:
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1
            numbers.append(lease.number)
        other.close()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(set(numbers)) == 5
