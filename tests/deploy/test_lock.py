"""One deploy to a device at a time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edge import errors, process
from edge.deploy import lock, scripts
from edge.deploy.lock import hold
from edge.devices import Device, DeviceSettings, open_device

pytestmark = pytest.mark.process

NO_PROCESS = 2**30  # more than any system numbers its processes
PROBE = scripts.STEP + 'say "in the step"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    monkeypatch.setattr(lock, "POLL", 0.02)
    monkeypatch.setattr(lock, "WAIT", 0.5)
    with open_device(DeviceSettings("here", folder=str(tmp_path / "dev"))) as device:
        yield device


def _leave(device: Device, owner: str, *, until: float, pid: str = "") -> Path:
    """A lock as an earlier holder left it."""
    lock = Path(device.settings.folder) / "lock" / "7"
    lock.mkdir(parents=True)
    (lock / "owner").write_text(owner + "\n")
    (lock / "until").write_text(f"{int(until)}\n")
    if pid:
        (lock / "pid").write_text(pid + "\n")
    return lock


def _owner(machine: str, pid: int) -> str:
    return f"sometoken {machine} {pid} ann@desk 2024-01-01T00:00:00Z"


def test_steps_run_under_the_lock(here: Device) -> None:
    with hold(here) as held:
        assert held.run(PROBE).stdout == "in the step\n"
        assert held.number == "1"
    with hold(here) as held:
        assert held.number == "2"
    locks = Path(here.settings.folder) / "lock"
    assert [path.name for path in locks.iterdir()] == ["2"]


def test_a_second_one_waits_and_then_says_who(here: Device) -> None:
    busy = pytest.raises(errors.DeployFailed, match=r"is under way \(by .*@")
    with hold(here), busy as caught, hold(here):
        pass
    assert "minutes" in caught.value.remedy


def test_many_at_once(here: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "WAIT", 60)
    inside, most = 0, 0
    done: list[str] = []

    def work() -> None:
        nonlocal inside, most
        with hold(here) as held:
            inside += 1
            most = max(most, inside)
            held.run(PROBE)
            inside -= 1
            done.append(held.number)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(set(done)) == 6


def test_an_error_releases(here: Device) -> None:
    with pytest.raises(KeyError), hold(here):
        raise KeyError
    with hold(here) as held:
        assert held.number == "2"


def test_a_live_owner_elsewhere_is_respected(here: Device) -> None:
    _leave(here, _owner("othermachine", NO_PROCESS), until=time.time() + 100)
    with pytest.raises(errors.DeployFailed, match=r"by ann@desk 2024-01-01"), hold(here):
        pass


def test_an_owner_elsewhere_is_given_up_when_its_time_is_over(here: Device) -> None:
    _leave(here, _owner("othermachine", NO_PROCESS), until=time.time() - 2)
    with hold(here) as held:
        assert held.number == "8"


def test_a_dead_process_of_this_machine_is_taken_over(here: Device) -> None:
    owner = _owner(lock._machine(), NO_PROCESS)
    left = _leave(here, owner, until=time.time() + 1000)
    with hold(here) as held:
        assert held.number == "8"
        assert not left.exists()


def test_a_live_process_of_this_machine_is_respected(here: Device) -> None:
    owner = _owner(lock._machine(), os.getppid())
    _leave(here, owner, until=time.time() + 1000)
    with pytest.raises(errors.DeployFailed, match="is under way"), hold(here):
        pass


def test_a_deploy_of_this_process_that_lost_its_connection_is_taken_over(here: Device) -> None:
    _leave(here, _owner(lock._machine(), os.getpid()), until=time.time() + 1000)
    with hold(here) as held:
        assert held.number == "8"


def test_a_step_that_was_killed_is_taken_over(
    here: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT", 10)
    owner = _owner("othermachine", NO_PROCESS)
    _leave(here, owner, until=time.time() + 1000, pid=str(NO_PROCESS))
    with hold(here) as held:
        assert held.number == "8"


@pytest.mark.parametrize("missing", ["owner", "until"])
def test_a_lock_that_was_half_made(
    here: Device, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT", 10)
    left = _leave(here, _owner("othermachine", NO_PROCESS), until=time.time() + 1000)
    (left / missing).unlink()
    with hold(here) as held:
        assert held.number == "8"


@pytest.fixture
def step() -> Iterator[int]:
    """A process that looks like a step of a deploy; its number."""
    script = "setsid sh -c 'sleep 300; :' sh sometoken >/dev/null 2>&1 & echo $!"
    pid = int(process.run(["sh", "-c", script], timeout=10).stdout)
    yield pid
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return "sometoken" in (Path("/proc") / str(pid) / "cmdline").read_text()
    except OSError:
        return False


def test_a_running_step_is_respected(here: Device, step: int) -> None:
    _leave(here, _owner("othermachine", NO_PROCESS), until=time.time() - 5, pid=str(step))
    with pytest.raises(errors.DeployFailed, match="is under way"), hold(here):
        pass
    assert _runs(step)


def test_a_running_step_of_a_dead_owner_is_ended(
    here: Device, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT", 20)
    owner = _owner(lock._machine(), NO_PROCESS)
    _leave(here, owner, until=time.time() + 1000, pid=str(step))
    with hold(here) as held:
        assert held.number == "8"
    assert not _runs(step)


def test_a_number_that_another_process_has_now_is_left_alone(
    here: Device, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT", 20)
    owner = _owner(lock._machine(), NO_PROCESS).replace("sometoken", "othertoken")
    _leave(here, owner, until=time.time() + 1000, pid=str(step))
    with hold(here):
        assert _runs(step)


def test_a_holder_that_was_given_up_finds_out(here: Device) -> None:
    with hold(here) as held:
        (Path(here.settings.folder) / "lock" / "2").mkdir()
        with pytest.raises(errors.DeployFailed, match="took the lock of here over"):
            held.run(PROBE)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = DeviceSettings("here", folder=str(tmp_path / "file/dev"))
    with (
        open_device(settings) as device,
        pytest.raises(errors.DeployFailed, match="Not a directory"),
        hold(device),
    ):
        pass
