"""Commands and files over a real OpenSSH server."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge import errors
from edge.devices import Device, open_device, ssh
from edge.devices import channel as channel_module
from tests.devices.faults import forwarder
from tests.sshd import Sshd, start

pytestmark = pytest.mark.ssh

HOSTILE = ["a b", "it's", '"', "$(exit 9)", "`exit 9`", "a\nb", "-n", "*", "é", "\\", "", ";", "~"]


@pytest.fixture
def lab(sshd: Sshd) -> Iterator[Device]:
    with open_device(sshd.settings()) as device:
        yield device


def _nap() -> str:
    """Seconds for a sleep that no other process has among its words."""
    return f"300.{secrets.randbelow(10**12):012}"


def _alive(word: str) -> bool:
    """Is there a process with ``word`` among its arguments?"""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in file.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def _gone(word: str) -> bool:
    until = time.monotonic() + 10
    while _alive(word) and time.monotonic() < until:
        time.sleep(0.05)
    return not _alive(word)


def test_words_arrive_as_they_were(lab: Device) -> None:
    script = 'for w in "$@"; do printf "%s\\0" "$w"; done'
    done = lab.run(["sh", "-c", script, "sh", *HOSTILE], timeout=20)
    assert done.stdout.split("\0")[:-1] == HOSTILE


def test_streams_and_exit_code(lab: Device) -> None:
    done = lab.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_eight_megabytes_on_both_streams(lab: Device) -> None:
    # Past the channel's window of 2 MiB a reader of one stream waits for ever (paramiko #1778).
    script = (
        "head -c 8000000 /dev/zero >&2; head -c 8000000 /dev/zero; head -c 8000000 /dev/zero >&2"
    )
    done = lab.run(["sh", "-c", script], timeout=120)
    assert (len(done.stdout), len(done.stderr)) == (8_000_000, 16_000_000)


def test_stdin_and_stdout_at_once(lab: Device) -> None:
    data = bytes(range(128)) * 40_000
    assert lab.run(["cat"], timeout=60, stdin=data).stdout.encode() == data


def test_stdin_that_nobody_reads(lab: Device) -> None:
    done = lab.run(["sh", "-c", "exit 5"], timeout=60, stdin=b"x" * 8_000_000, check=False)
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("script", "expected"),
    [("kill -9 $$", -9), ("kill -11 $$", -11), ("exit 255", 255), ("exit 127", 127), (":", 0)],
)
def test_signals_and_codes(lab: Device, script: str, expected: int) -> None:
    assert lab.run(["sh", "-c", script], timeout=20, check=False).returncode == expected


def test_a_missing_program_is_127(lab: Device) -> None:
    done = lab.run(["no-such-program"], timeout=20, check=False)
    assert done.returncode == 127
    assert "not found" in done.stderr


def test_a_failure_names_device_and_words(lab: Device) -> None:
    with pytest.raises(errors.RunFailed, match=r"(?s)sh on lab ended with exit code 4.*bad luck"):
        lab.run(["sh", "-c", "echo bad luck >&2; exit 4"], timeout=20)


def test_the_deadline_kills_the_whole_group(lab: Device) -> None:
    one, two = _nap(), _nap()
    with pytest.raises(errors.RunFailed, match="did not end within 1 s"):
        lab.run(["sh", "-c", 'sleep "$1" & sleep "$2"', "sh", one, two], timeout=1)
    assert _gone(one)
    assert _gone(two)
    assert lab.run(["echo", "still here"], timeout=20).stdout == "still here\n"


def test_the_device_ends_a_command_that_we_cannot(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.devices.frames.WATCH_GRACE", 3)
    with open_device(sshd.settings()) as device:
        nap = _nap()
        cut = threading.Timer(0.7, sshd.cut)
        cut.start()
        with pytest.raises(errors.DeviceUnreachable, match="broke"):
            device.run(["sleep", nap], timeout=2)
        cut.join()
    assert _alive(nap)
    assert _gone(nap)


def test_a_process_left_behind_does_not_hold_us(lab: Device) -> None:
    started = time.monotonic()
    done = lab.run(["sh", "-c", "sleep 20 & echo done"], timeout=15)
    assert done.stdout == "done\n"
    assert time.monotonic() - started < 10


def test_output_is_bounded(lab: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    nap = _nap()
    monkeypatch.setattr(ssh, "OUTPUT_LIMIT", 100_000)
    with pytest.raises(errors.RunFailed, match="yes on lab printed more than 100000 bytes"):
        lab.run(["yes", nap], timeout=30)
    assert _gone(nap)


def test_errors_are_bounded_too(lab: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    nap = _nap()
    monkeypatch.setattr(channel_module, "OUTPUT_LIMIT", 100_000)
    with pytest.raises(errors.RunFailed, match="more than 100000 bytes of errors"):
        lab.run(["sh", "-c", 'yes "$1" >&2', "sh", nap], timeout=30)
    assert _gone(nap)


def test_stream_takes_blocks_as_they_come(lab: Device) -> None:
    blocks = (bytes([number % 256]) * 30_000 for number in range(200))
    assert lab.stream(["wc", "-c"], blocks, timeout=60).stdout.strip() == "6000000"


def test_an_error_of_the_source_ends_the_command(lab: Device) -> None:
    def blocks() -> Iterator[bytes]:
        yield b"first"
        raise errors.DeployFailed("the file changed")

    nap = _nap()
    with pytest.raises(errors.DeployFailed, match="the file changed"):
        lab.stream(["sh", "-c", 'cat; sleep "$1"', "sh", nap], blocks(), timeout=60)
    assert _gone(nap)


def test_put_and_get(lab: Device, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(bytes(range(256)) * 5000)
    source.chmod(0o755)
    lab.put(source, str(tmp_path / "it's new/-there"))
    assert (tmp_path / "it's new/-there").stat().st_mode & 0o777 == 0o755
    lab.get(str(tmp_path / "it's new/-there"), back, limit=2_000_000)
    assert back.read_bytes() == source.read_bytes()
    assert not list(tmp_path.rglob("*.part*"))


def test_get_is_bounded_and_wants_a_file(lab: Device, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1001)
    with pytest.raises(errors.RunFailed, match="more than 1000 bytes"):
        lab.get(str(tmp_path / "big"), tmp_path / "back", limit=1000)
    lab.get(str(tmp_path / "big"), tmp_path / "back", limit=1001)
    with pytest.raises(errors.RunFailed, match="no such file"):
        lab.get(str(tmp_path / "none"), tmp_path / "back", limit=7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "big"]


def test_put_on_a_folder(lab: Device, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(errors.RunFailed, match="it is a folder"):
        lab.put(tmp_path / "file", str(tmp_path))
    with pytest.raises(errors.RunFailed, match="cannot read"):
        lab.put(tmp_path / "none", str(tmp_path / "there"))


def test_a_broken_connection_is_said_and_can_be_made_again(sshd: Sshd) -> None:
    with open_device(sshd.settings()) as device:
        cut = threading.Timer(0.5, sshd.cut)
        cut.start()
        with pytest.raises(errors.DeviceUnreachable, match="broke"):
            device.run(["sleep", "3"], timeout=30)
        cut.join()
        with pytest.raises(errors.DeviceUnreachable):
            device.run(["true"], timeout=5)
        device.connect()
        assert device.run(["echo", "again"], timeout=20).stdout == "again\n"


def test_a_dead_network_ends_a_transfer(sshd: Sshd) -> None:
    # Nothing comes back and nothing is refused: without a clock of our own this hangs for ever.
    with forwarder(sshd.port, fault="silence", after=1_000_000) as network:
        known = sshd.folder / "known_silence"
        known.write_text(sshd.known_hosts.read_text().replace(str(sshd.port), str(network.port)))
        with open_device(sshd.settings(port=network.port, known_hosts=known)) as device:
            blocks = (b"x" * 100_000 for _ in range(1000))
            with pytest.raises(errors.DeviceUnreachable, match="nothing moved for 2 s"):
                device.stream(["wc", "-c"], blocks, timeout=60, idle=2)


def test_a_dead_network_ends_a_command(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "KILL_WAIT", 1.0)
    with forwarder(sshd.port, fault="silence", after=300_000) as network:
        known = sshd.folder / "known_command"
        known.write_text(sshd.known_hosts.read_text().replace(str(sshd.port), str(network.port)))
        with (
            open_device(sshd.settings(port=network.port, known_hosts=known)) as device,
            pytest.raises(errors.DeviceUnreachable, match="broke"),
        ):
            device.run(["cat"], timeout=2, stdin=b"x" * 8_000_000)


def test_a_device_that_stops_answering_between_commands(sshd: Sshd) -> None:
    with forwarder(sshd.port) as network:
        known = sshd.folder / "known_between"
        known.write_text(sshd.known_hosts.read_text().replace(str(sshd.port), str(network.port)))
        settings = sshd.settings(port=network.port, known_hosts=known, connect_timeout=1)
        with open_device(settings) as device:
            device.run(["true"], timeout=20)
            network.after, network.fault = 0, "silence"
            with pytest.raises(errors.DeviceUnreachable, match="broke"):
                device.run(["true"], timeout=20)


def test_a_reset_is_said(sshd: Sshd) -> None:
    with forwarder(sshd.port, fault="reset", after=500_000) as network:
        known = sshd.folder / "known_reset"
        known.write_text(sshd.known_hosts.read_text().replace(str(sshd.port), str(network.port)))
        with open_device(sshd.settings(port=network.port, known_hosts=known)) as device:
            blocks = (b"x" * 100_000 for _ in range(100))
            with pytest.raises(errors.DeviceUnreachable, match="broke"):
                device.stream(["cat"], blocks, timeout=60, idle=20)


def test_without_sftp(tmp_path: Path) -> None:
    with start(tmp_path / "sshd", no_sftp=True) as server, open_device(server.settings()) as device:
        (tmp_path / "file").write_bytes(b"content")
        device.put(tmp_path / "file", str(tmp_path / "there"))
        assert (tmp_path / "there").read_bytes() == b"content"


def test_an_account_that_runs_no_commands(tmp_path: Path) -> None:
    options = ["ForceCommand echo this account is closed; exit 1"]
    with (
        start(tmp_path / "sshd", options=options) as server,
        open_device(server.settings()) as device,
        pytest.raises(errors.DeviceUnreachable, match="this account is closed"),
    ):
        device.run(["true"], timeout=20)


def test_what_a_login_script_prints_is_no_output(tmp_path: Path) -> None:
    options = ['ForceCommand echo "Welcome to lab"; eval "$SSH_ORIGINAL_COMMAND"']
    with (
        start(tmp_path / "sshd", options=options) as server,
        open_device(server.settings()) as device,
    ):
        assert device.run(["echo", "x"], timeout=20).stdout == "x\n"


def test_folders(lab: Device, tmp_path: Path) -> None:
    folder = tmp_path / "it's one"
    lab.make_folder(f"{folder}/two")
    lab.make_folder(f"{folder}/two")
    assert (folder / "two").is_dir()
    lab.remove_folder(str(folder))
    lab.remove_folder(str(folder))
    assert not folder.exists()
    folder.write_text("")
    with pytest.raises(errors.RunFailed, match="mkdir"):
        lab.make_folder(f"{folder}/two")
