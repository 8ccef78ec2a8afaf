"""A device with Windows: a real sshd and SFTP server, and stand-ins for its programs."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge import errors
from edge.devices import create, powershell, sftp, windows
from edge.devices.windows import Windows
from tests.devices import windows_lab
from tests.devices.faults import forwarder
from tests.devices.test_windows_quoting import HOSTILE
from tests.devices.windows_lab import spooled, windows_device, windows_sshd
from tests.sshd import Sshd

__all__ = ["spooled"]

pytestmark = pytest.mark.ssh


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with windows_sshd(tmp_path_factory.mktemp("windows")) as running:
        yield running


@pytest.fixture
def lab(server: Sshd, tmp_path: Path) -> Iterator[Windows]:
    with windows_device(server, tmp_path / "pc") as device:
        yield device


def _python(code: str, *words: str) -> list[str]:
    return ["python", "-c", code, *words]


def test_settings_say_that_it_is_windows(server: Sshd, tmp_path: Path) -> None:
    assert isinstance(create(windows_lab.settings(server, tmp_path)), Windows)
    assert not isinstance(create(server.settings()), Windows)


def test_words_arrive_as_they_were(lab: Windows) -> None:
    code = "import sys; sys.stdout.buffer.write('\\0'.join(sys.argv[1:]).encode())"
    done = lab.run(_python(code, *HOSTILE), timeout=20)
    assert done.stdout.split("\0") == HOSTILE


def test_streams_and_exit_code(lab: Windows) -> None:
    code = "import sys, os; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = lab.run(_python(code), timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert done.argv == tuple(_python(code))
    with pytest.raises(errors.RunFailed, match=r"(?s)python on pc ended with exit code 3.*err"):
        lab.run(_python(code), timeout=20)


def test_it_runs_in_the_home_folder_and_has_nothing_to_read(lab: Windows) -> None:
    code = "import os, sys; print(os.getcwd(), repr(sys.stdin.read()), os.environ['PYTHONUTF8'])"
    assert lab.run(_python(code), timeout=20).stdout.split() == [str(Path.home()), "''", "1"]
    assert lab.home() == str(Path.home())


def test_a_missing_program_is_127(lab: Windows) -> None:
    done = lab.run(["no-such-program"], timeout=20, check=False)
    assert done.returncode == 127
    assert "cannot find" in done.stderr


def test_a_crash_says_in_words_what_it_was(lab: Windows) -> None:
    code = "import os; os.kill(os.getpid(), 11)"
    with pytest.raises(errors.RunFailed, match="0xC0000005: an access violation"):
        lab.run(_python(code), timeout=20)


def test_standard_input_goes_through_a_file(lab: Windows, spooled: list[Path]) -> None:
    data = bytes(range(128)) * 5_000
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    assert lab.run(_python(code), timeout=30, stdin=data).stdout.encode() == data
    blocks = (bytes([65 + number]) * 1000 for number in range(26))
    code = "import sys; print(len(sys.stdin.read()))"
    assert lab.stream(_python(code), blocks, timeout=30).stdout == "26000\n"
    assert lab.run(["python", "-c", "exit(5)"], timeout=30, stdin=data, check=False).returncode == 5
    assert len(spooled) == 3
    assert not any(path.exists() for path in spooled)


def test_megabytes_of_output(lab: Windows) -> None:
    code = "import sys; sys.stderr.write('e' * 4_000_000); sys.stdout.write('o' * 4_000_000)"
    done = lab.run(_python(code), timeout=60)
    assert (len(done.stdout), len(done.stderr)) == (4_000_000, 4_000_000)


def test_a_long_command_goes_through_a_file(lab: Windows, spooled: list[Path]) -> None:
    words = ["x" * 500] * 20
    code = "import sys; print(len(''.join(sys.argv[1:])))"
    assert lab.run(_python(code, *words), timeout=20).stdout == "10000\n"
    assert len(spooled) == 1
    assert not spooled[0].exists()


def test_the_deadline_ends_the_whole_tree(lab: Windows, tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    code = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys, time\\n"
        'time.sleep(3)\\nopen(sys.argv[1], "w")\', sys.argv[1]])'
    )
    with pytest.raises(errors.RunFailed, match="did not end within 1 s"):
        lab.run(_python(code, str(mark)), timeout=1)
    assert lab.run(_python("print('still here')"), timeout=20).stdout == "still here\n"
    time.sleep(2.5)
    assert not mark.exists()


def test_the_device_ends_a_command_that_we_cannot(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(powershell, "WATCH_GRACE", -3)
    mark = tmp_path / "alive"
    code = "import sys, time; time.sleep(3); open(sys.argv[1], 'w')"
    with windows_device(server, tmp_path / "pc") as device:
        cut = threading.Timer(0.7, server.cut)
        cut.start()
        with pytest.raises(errors.DeviceUnreachable, match="broke"):
            device.run(_python(code, str(mark)), timeout=4)
        cut.join()
    time.sleep(3)
    assert not mark.exists()


def test_a_text_that_is_not_recorded_is_refused(lab: Windows) -> None:
    done = lab.script("mischief", "$c=0;exit", timeout=20, check=False)
    assert (done.returncode, "not recorded" in done.stderr) == (64, True)


def test_put_and_get(lab: Windows, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(b"content" * 100_000)
    folder = tmp_path / "new folder/it's"
    lab.put(source, f"{folder}/there")
    lab.put(source, f"{folder}/there")  # what is there is replaced
    lab.get(f"{folder}/there", back, limit=700_000)
    assert back.read_bytes() == source.read_bytes()
    assert [path.name for path in folder.iterdir()] == ["there"]


def test_files_that_cannot_be_copied(lab: Windows, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345")
    with pytest.raises(errors.RunFailed, match="is no file of pc"):
        lab.get(str(tmp_path / "nothing"), tmp_path / "back", limit=9)
    with pytest.raises(errors.RunFailed, match="more than 4 bytes"):
        lab.get(str(source), tmp_path / "back", limit=4)
    with pytest.raises(errors.RunFailed, match="it is a folder"):
        lab.get(str(tmp_path), tmp_path / "back", limit=4)
    with pytest.raises(errors.RunFailed, match="it is a folder"):
        lab.put(source, str(tmp_path))
    with pytest.raises(errors.RunFailed, match="a file is in its place"):
        lab.put(source, f"{source}/below/it")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_a_full_disk_here_is_not_the_devices(lab: Windows, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(200_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(errors.RunFailed, match=f"cannot write {tmp_path / 'back'}: File too"):
            lab.get(str(source), tmp_path / "back", limit=200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_folders(lab: Windows, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    lab.make_folder(f"{folder}/two/three")
    lab.make_folder(f"{folder}/two/three")
    (folder / "two/file").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "stays").write_text("x")
    (folder / "link").symlink_to(outside)
    lab.remove_folder(str(folder))
    lab.remove_folder(str(folder))
    assert not folder.exists()
    assert (outside / "stays").exists()


def test_a_busy_file_is_tried_again(lab: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sftp, "PAUSE", 0.01)
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("Failure")

    lab.files._patiently(work)
    assert len(tries) == 3


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("C:\\edge\\x", "C:/edge/x"),
        ("/c:/edge/", "c:/edge"),
        ("D:/", "D:/"),
        ("//nas/share/x", "//nas/share/x"),
        ("edgewright", "HOME/edgewright"),
        ("~/a/b", "HOME/a/b"),
        ("./a b", "HOME/a b"),
    ],
)
def test_paths(lab: Windows, path: str, found: str) -> None:
    assert lab.path(path) == found.replace("HOME", str(Path.home()))


@pytest.mark.parametrize("path", ["", "~/", "C:edge", "a:b", "a?", "a\nb", 'a"', "C:/a*"])
def test_paths_that_are_none(lab: Windows, path: str) -> None:
    with pytest.raises(errors.ConfigError, match="no path of a device with Windows"):
        lab.path(path)


def test_a_drive_is_asked_by_its_name(lab: Windows) -> None:
    assert lab.root("D:/edge") == "D:\\"
    assert lab.root("/mnt") == "/mnt"


def test_a_server_without_sftp(tmp_path: Path) -> None:
    with (
        windows_sshd(tmp_path / "lab", no_sftp=True) as server,
        windows_device(server, tmp_path / "pc") as device,
        pytest.raises(errors.DeviceUnreachable, match="has no SFTP server") as caught,
    ):
        device.run(_python("print()"), timeout=20)
    assert "sftp-server.exe" in caught.value.remedy


def test_a_posix_device_said_to_be_windows(sshd: Sshd, tmp_path: Path) -> None:
    with (
        windows_device(sshd, tmp_path) as device,
        pytest.raises(errors.DeviceUnreachable, match=r"powershell: .*not found"),
    ):
        device.run(["python", "-V"], timeout=20)


def _settings_through(server: Sshd, port: int, folder: Path) -> Windows:
    known = folder / "known"
    known.write_text(server.known_hosts.read_text().replace(str(server.port), str(port)))
    return Windows(server.settings("pc", os="windows", port=port, known_hosts=known))


def test_a_connection_that_breaks_in_a_file(server: Sshd, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(4_000_000))
    with forwarder(server.port, fault="reset", after=1_000_000) as network:
        device = _settings_through(server, network.port, tmp_path)
        device.connect()
        with pytest.raises(errors.DeviceUnreachable, match="broke"):
            device.put(source, str(tmp_path / "there"))
        device.close()
    assert not (tmp_path / "there").exists()


def test_a_network_that_goes_silent(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sftp, "IDLE", 1.0)
    source = tmp_path / "source"
    source.write_bytes(bytes(8_000_000))
    with forwarder(server.port, fault="silence", after=1_000_000) as network:
        device = _settings_through(server, network.port, tmp_path)
        device.connect()
        started = time.monotonic()
        with pytest.raises(errors.DeviceUnreachable, match="nothing moved"):
            device.put(source, str(tmp_path / "there"))
        assert time.monotonic() - started < 20
        device.close()


def test_exit_codes_in_words_are_those_of_windows() -> None:
    assert windows.STATUS[3221225781].startswith("a DLL")  # 0xC0000135, STATUS_DLL_NOT_FOUND
