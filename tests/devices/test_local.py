"""The machine itself as a device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge import errors
from edge.devices import Device, DeviceSettings, local, open_device

pytestmark = pytest.mark.process


@pytest.fixture
def here() -> Iterator[Device]:
    with open_device(DeviceSettings("here")) as device:
        yield device


def test_commands_run_in_the_home_folder(here: Device) -> None:
    assert here.run(["pwd"], timeout=10).stdout.strip() == str(Path.home())


def test_both_streams_stdin_and_exit_code(here: Device) -> None:
    words = ["sh", "-c", 'cat; echo "$1" >&2; exit 3', "sh", "a b"]
    done = here.run(words, timeout=10, stdin=b"in", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "in", "a b\n")


def test_a_missing_program_is_127(here: Device) -> None:
    assert here.run(["no-such-program"], timeout=10, check=False).returncode == 127


def test_a_deadline_and_a_failure_are_errors(here: Device) -> None:
    with pytest.raises(errors.RunFailed, match=r"did not end within 0.2 s"):
        here.run(["sleep", "30"], timeout=0.2)
    with pytest.raises(errors.RunFailed, match="exit code 4"):
        here.run(["sh", "-c", "exit 4"], timeout=10)


def test_output_is_bounded(here: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "OUTPUT_LIMIT", 100)
    with pytest.raises(errors.RunFailed, match="more than 100 bytes"):
        here.run(["sh", "-c", "echo $(seq 1 200)"], timeout=10)


def test_stream(here: Device) -> None:
    blocks = (bytes([number]) * 1000 for number in range(100))
    done = here.stream(["wc", "-c"], blocks, timeout=10)
    assert done.argv == ("wc", "-c")
    assert done.stdout.strip() == "100000"


def test_put_and_get(here: Device, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(b"content")
    source.chmod(0o700)
    here.put(source, str(tmp_path / "new folder/there"))
    assert (tmp_path / "new folder/there").stat().st_mode & 0o777 == 0o755
    here.get(str(tmp_path / "new folder/there"), back, limit=7)
    assert back.read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "back", "new folder", "source", "there"
    ]  # fmt: skip


def test_get_is_bounded_and_wants_a_file(here: Device, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"12345678")
    with pytest.raises(errors.RunFailed, match="more than 7 bytes"):
        here.get(str(tmp_path / "big"), tmp_path / "back", limit=7)
    with pytest.raises(errors.RunFailed, match="is no file"):
        here.get(str(tmp_path), tmp_path / "back", limit=7)
    assert not (tmp_path / "back").exists()


def test_put_where_nothing_can_be_written(here: Device, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(errors.RunFailed, match="cannot copy"):
        here.put(tmp_path / "file", str(tmp_path / "file/below"))


def test_folders(here: Device, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    here.make_folder(f"{folder}/two")
    here.make_folder(f"{folder}/two")
    here.remove_folder(str(folder))
    here.remove_folder(str(folder))
    assert not folder.exists()
    folder.write_text("")
    with pytest.raises(errors.RunFailed, match="cannot make"):
        here.make_folder(f"{folder}/two")
    with pytest.raises(errors.RunFailed, match="cannot remove"):
        here.remove_folder(f"{folder}/two")
