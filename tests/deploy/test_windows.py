"""Bundles onto a device with Windows: a real SFTP server, and stand-ins for its commands."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from edge import deploy, errors
from edge.deploy import files, lock
from edge.deploy import sftp as storage
from edge.devices import Device, open_device, sftp
from edge.devices.windows import Windows
from tests.deploy.test_deploy import (
    _contents,
    _current,
    _cut_after,
    _folder,
    _sick,
    _small_disk,
    _write,
)
from tests.devices.windows_lab import spooled, windows_device, windows_sshd
from tests.sshd import Sshd

__all__ = ["spooled"]

pytestmark = pytest.mark.ssh

RUNNER = b"#!/bin/sh\necho healthy\n"
FILES = {
    "model.onnx": b"weights" * 30_000,
    "runner/edge_runner.exe": RUNNER,
    "samples/it's 0.bin": b"sample",
    "samples/1.bin": b"sample",
    "runtime/onnxruntime.dll": bytes(range(256)) * 400,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with windows_sshd(tmp_path_factory.mktemp("windows")) as running:
        yield running


@pytest.fixture
def lab(server: Sshd, tmp_path: Path) -> Iterator[Windows]:
    with windows_device(server, tmp_path / "a pc") as device:
        yield device


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return _write(tmp_path / "bundle", FILES)


def _change(bundle: Path, name: str, data: bytes) -> int:
    """Change one file; the bytes that have to be sent for it, the new manifest among them."""
    _write(bundle, {**FILES, name: data})
    return len(data) + (bundle / "manifest.json").stat().st_size


def _healthy(device: Device, release_dir: str) -> None:
    done = device.run([f"{release_dir}/runner/edge_runner.exe"], timeout=20)
    assert done.stdout == "healthy\n"


def _blob(device: Windows, data: bytes) -> Path:
    return _folder(device, "blobs", hashlib.sha256(data).hexdigest())


@pytest.fixture(params=["links", "copies"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the disk has hard links; exFAT has none."""
    have = bool(request.param == "links")
    if not have:
        monkeypatch.setattr(sftp.Files, "link", lambda *arguments: False)
    return have


def test_the_whole_way(lab: Windows, bundle: Path, links: bool, spooled: list[Path]) -> None:
    plan = deploy.plan(lab, bundle, "demo")
    assert plan.send_bytes == plan.total_bytes
    assert plan.free_bytes
    assert not _folder(lab).exists()  # a plan changes nothing
    first = deploy.deploy(lab, bundle, "demo", _healthy)
    assert (first.sent_blobs, first.sent_bytes) == (5, plan.total_bytes)
    assert first.previous is None
    release = Path(first.release_dir)
    assert _contents(release) == _contents(bundle)
    assert release.name == _current(lab)
    assert (_blob(lab, FILES["model.onnx"]).stat().st_nlink == 2) == links
    assert list(_folder(lab, "incoming").iterdir()) == []
    assert not _folder(lab, "bundles/demo/current").is_symlink()

    size = _change(bundle, "samples/1.bin", b"another")
    assert deploy.plan(lab, bundle, "demo").send_bytes == size
    second = deploy.deploy(lab, bundle, "demo", _healthy)
    assert (second.sent_blobs, second.sent_bytes) == (2, size)
    assert second.previous == release.name
    assert _current(lab) != release.name
    assert [one.current for one in deploy.releases(lab, "demo")] == [True, False]
    assert deploy.releases(lab, "demo")[0].folder == second.release_dir

    back = deploy.rollback(lab, "demo")
    assert back.id == release.name == _current(lab)
    with pytest.raises(errors.DeployFailed, match="no earlier release"):
        deploy.rollback(lab, "demo")
    assert spooled
    assert not any(path.exists() for path in spooled)


def test_the_same_again_sends_nothing(lab: Windows, bundle: Path) -> None:
    first = deploy.deploy(lab, bundle, "demo", _healthy)
    again = deploy.deploy(lab, bundle, "demo", _healthy)
    assert (again.sent_blobs, again.sent_bytes) == (0, 0)
    assert again.release_dir == first.release_dir
    assert len(deploy.releases(lab, "demo")) == 1


def test_a_failed_health_run_keeps_the_release_before(lab: Windows, bundle: Path) -> None:
    deploy.deploy(lab, bundle, "demo", _healthy)
    before = _current(lab)
    _change(bundle, "model.onnx", b"bad weights")
    with pytest.raises(errors.ParityFailed, match="stays active: outputs differ"):
        deploy.deploy(lab, bundle, "demo", _sick)
    assert _current(lab) == before
    assert sorted(path.name for path in _folder(lab, "bundles/demo/releases").iterdir()) == [
        before, f"{before}.sums"
    ]  # fmt: skip
    deploy.deploy(lab, bundle, "demo", _healthy)  # the lock is free
    assert _current(lab) != before


def test_old_releases_and_their_blobs_go(
    lab: Windows, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy, "KEEP", 2)
    made = []
    for number in range(deploy.KEEP + 1):
        _change(bundle, "samples/1.bin", b"%d" % number)
        made.append(Path(deploy.deploy(lab, bundle, "demo", _healthy).release_dir).name)
    kept = made[-deploy.KEEP :]
    assert [one.id for one in deploy.releases(lab, "demo")] == kept[::-1]
    blobs = {path.name for path in _folder(lab, "blobs").iterdir()}
    data = [*FILES.values(), b"1", b"2"]
    assert blobs == {hashlib.sha256(one).hexdigest() for one in data} | set(kept)


def test_what_a_running_program_holds_stays_for_now(
    lab: Windows, bundle: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deploy, "KEEP", 1)
    oldest = Path(deploy.deploy(lab, bundle, "demo", _healthy).release_dir)
    real = sftp.Files.remove

    def remove(self: sftp.Files, path: str) -> None:
        if path.endswith(".exe"):
            raise errors.RunFailed(f"cannot remove {path}: Permission denied")
        real(self, path)

    _change(bundle, "samples/1.bin", b"more")
    with monkeypatch.context() as patch:
        patch.setattr(sftp.Files, "remove", remove)
        deploy.deploy(lab, bundle, "demo", _healthy)
    assert "old releases on pc stay" in capfd.readouterr().err
    assert oldest.exists()
    _change(bundle, "samples/1.bin", b"even more")
    deploy.deploy(lab, bundle, "demo", _healthy)  # it is found again
    assert not oldest.exists()


def test_a_blob_that_rotted_is_sent_again(
    lab: Windows, bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deploy.deploy(lab, bundle, "demo", _healthy)
    _blob(lab, FILES["model.onnx"]).write_bytes(b"x" * len(FILES["model.onnx"]))
    size = _change(bundle, "samples/1.bin", b"another")
    done = deploy.deploy(lab, bundle, "demo", _healthy)
    assert done.sent_bytes == size + len(FILES["model.onnx"])
    assert _contents(Path(done.release_dir)) == _contents(bundle)
    assert "damaged and are sent again" in capfd.readouterr().err
    with pytest.raises(errors.DeployFailed, match="were damaged"):
        deploy.rollback(lab, "demo")  # the old release has the damaged file


def test_a_damaged_release_is_made_anew(lab: Windows, bundle: Path) -> None:
    release = Path(deploy.deploy(lab, bundle, "demo", _healthy).release_dir)
    (release / "samples/1.bin").unlink()
    assert deploy.deploy(lab, bundle, "demo", _healthy).sent_blobs == 0
    assert _contents(release) == _contents(bundle)
    assert not list(release.parent.glob(".*"))


def test_what_a_broken_transfer_left(lab: Windows, bundle: Path) -> None:
    incoming = _folder(lab, "incoming")
    incoming.mkdir(parents=True)
    whole, wrong = FILES["runtime/onnxruntime.dll"], FILES["model.onnx"]
    (incoming / hashlib.sha256(whole).hexdigest()).write_bytes(whole)
    (incoming / hashlib.sha256(wrong).hexdigest()).write_bytes(b"x" * len(wrong))
    done = deploy.deploy(lab, bundle, "demo", _healthy)
    assert done.sent_bytes == done.total_bytes - len(whole)
    assert _contents(Path(done.release_dir)) == _contents(bundle)


def test_a_pointer_that_was_about_to_be_replaced(lab: Windows, bundle: Path) -> None:
    """An old server removes the old file first: for a moment only the new one is there."""
    deploy.deploy(lab, bundle, "demo", _healthy)
    active = deploy.releases(lab, "demo")
    for name in ("current", "history"):
        pointer = _folder(lab, "bundles/demo", name)
        pointer.rename(pointer.with_name(f"{name}.new"))
    assert deploy.releases(lab, "demo") == active


def test_sending_and_removing_without_a_switch(lab: Windows, bundle: Path) -> None:
    sent = deploy.send(lab, deploy.plan(lab, bundle, "demo"))
    assert sent.send_bytes == sent.total_bytes
    assert deploy.plan(lab, bundle, "demo").missing == ()
    done = deploy.deploy(lab, bundle, "demo", _healthy, activate=False)
    assert deploy.releases(lab, "demo") == ()
    deploy.remove(lab, "demo", [Path(done.release_dir).name])
    assert not Path(done.release_dir).exists()


def test_a_cut_connection_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {f"part{number}": os.urandom(3_000_000) for number in range(5)}
    contents["runner/edge_runner.exe"] = RUNNER
    bundle = _write(tmp_path / "bundle", contents)
    with (
        windows_sshd(tmp_path / "lab") as running,
        windows_device(running, tmp_path / "pc") as device,
    ):
        wanted = deploy.plan(device, bundle, "demo")
        with monkeypatch.context() as patch:
            whole = files.read(bundle)
            patch.setattr(files, "read", lambda folder: whole)
            _cut_after(running, tmp_path / "pc/incoming", 2, patch)
            with pytest.raises(errors.DeviceUnreachable, match="broke"):
                deploy.deploy(device, bundle, "demo", _healthy)
        assert lock._held_here == set()
        device.connect()
        assert deploy.releases(device, "demo") == ()
        done = deploy.deploy(device, bundle, "demo", _healthy)
    assert done.sent_bytes <= wanted.total_bytes - 2 * 3_000_000
    assert _contents(Path(done.release_dir)) == _contents(bundle)


@pytest.mark.parametrize("seen", [True, False])
def test_a_full_disk(
    server: Sshd, tmp_path: Path, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``seen``: before anything is sent, else in the middle of the transfer."""
    bundle = _write(tmp_path / "bundle", {"big": os.urandom(3_000_000), "small": b"x"})
    if not seen:
        monkeypatch.setattr(deploy, "_check_space", lambda *arguments: None)
    with (
        _small_disk(tmp_path / "disk") as disk,
        windows_device(server, disk / "pc") as device,
    ):
        words = "the bundle needs" if seen else "is full"
        with pytest.raises(errors.DeployFailed, match=words) as caught:
            deploy.deploy(device, bundle, "demo", _healthy)
        assert "free some space" in caught.value.remedy
        assert [path for path in disk.rglob("*") if path.stat().st_size > 1000] == []
        other = _write(tmp_path / "bundle", FILES)
        deploy.deploy(device, other, "demo", _healthy)


def test_a_transfer_that_outlives_its_lock_ends(
    lab: Windows, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another deploy would take the lock over while this one goes on writing."""
    monkeypatch.setattr(storage, "SLOWEST", -100)  # its time was over before it began
    with pytest.raises(errors.DeployFailed, match="is slower than"):
        deploy.send(lab, deploy.plan(lab, bundle, "demo"))
    assert not list(_folder(lab, "blobs").iterdir())


def test_a_folder_that_cannot_be_written(lab: Windows, bundle: Path) -> None:
    _folder(lab).mkdir(parents=True)
    _folder(lab, "blobs").write_text("a file in the way")
    with pytest.raises(errors.DeployFailed, match="a file is in its place"):
        deploy.deploy(lab, bundle, "demo", _healthy)
    with (
        _at(lab, _folder(lab, "blobs")) as below,
        pytest.raises(errors.DeployFailed, match="cannot make"),
    ):
        deploy.deploy(below, bundle, "demo", _healthy)


def _at(device: Windows, folder: Path) -> AbstractContextManager[Device]:
    """The same device with another folder."""
    return open_device(replace(device.settings, folder=str(folder / "x")))


def test_names_that_windows_cannot_hold_are_refused_first(lab: Windows, tmp_path: Path) -> None:
    bundle = _write(tmp_path / "odd", {"samples/aux.bin": b"x"})
    words = r"cannot hold .* a device's name there"
    with pytest.raises(errors.DeployFailed, match=words):
        deploy.plan(lab, bundle, "demo")
    with pytest.raises(errors.DeployFailed, match=words):
        deploy.deploy(lab, bundle, "demo", _healthy)
    assert not _folder(lab).exists()


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["a:b"], "letters"),
        (["a/b."], "letters"),
        (["a "], "letters"),
        (["x/CON"], "device's name"),
        (["x/lpt1.txt"], "device's name"),
        (["x/nul .txt"], "device's name"),
        (["COM\u00b9"], "device's name"),
        (["conOUT$"], "device's name"),
        (["Model.onnx", "model.onnx"], "one name there"),
        (["Runner", "runner/a"], "one name there"),
        (["a/B/c", "A/b"], "one name there"),
        (["\U0001f600" * 100], "longer than"),
        (["x" * 200], "longer than"),
        (["console.log", "auxiliary", "a.b/it's", "COM", "é", "A/x", "a/y"], ""),
    ],
)
def test_names(paths: list[str], words: str) -> None:
    found = storage.fault(paths, "C:/Users/ann/edgewright")
    assert words in found
    assert bool(found) == bool(words)


def test_two_at_once(lab: Windows, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.05)
    inside: list[str] = []
    overlaps: list[int] = []

    def health(device: object, release_dir: str) -> None:
        inside.append(release_dir)
        overlaps.append(len(inside))
        time.sleep(0.3)
        inside.remove(release_dir)

    def work() -> None:
        with open_device(lab.settings) as other:
            deploy.deploy(other, bundle, "demo", health)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [1, 1]
