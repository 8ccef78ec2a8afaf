"""Bundles onto devices, on this machine and over SSH, with everything that goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from edge import deploy, errors, process
from edge.deploy import files, lock
from edge.devices import Device, DeviceSettings, create, open_device
from tests import sshd as server
from tests.sshd import Sshd, start

RUNNER = b"#!/bin/sh\necho healthy\n"
FILES = {
    "model.onnx": b"weights" * 30_000,
    "runner/edge_runner": RUNNER,
    "samples/it's 0.bin": b"sample",
    "samples/1.bin": b"sample",
    "runtime/lib.so": bytes(range(256)) * 400,
}


def _write(folder: Path, contents: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    entries = []
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        role = "runner" if name.startswith("runner/") else "artifact"
        entries.append({"path": name, "sha256": digest, "size": len(data), "role": role})
    (folder / "manifest.json").write_text(json.dumps({"files": entries}))
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return _write(tmp_path / "bundle", FILES)


def _change(bundle: Path, name: str, data: bytes) -> int:
    """Change one file; the bytes that have to be sent for it, the new manifest among them."""
    _write(bundle, {**FILES, name: data})
    return len(data) + (bundle / "manifest.json").stat().st_size


@contextmanager
def _local(folder: Path) -> Iterator[DeviceSettings]:
    yield DeviceSettings("here", folder=str(folder / "a device"))


@contextmanager
def _on(folder: Path, *options: str) -> Iterator[DeviceSettings]:
    with start(folder / "sshd", options=options) as running:
        yield running.settings(folder=str(folder / "a device"))


def _lab(kind: str, folder: Path) -> AbstractContextManager[DeviceSettings]:
    if kind == "local":
        return _local(folder)
    if kind == "busybox":
        return _on(folder, server.busybox_path(folder / "bin"))
    if kind == "bare":
        return _on(folder, server.bare_path(folder / "bin"))
    if kind == "no links":
        return _on(folder, server.bare_path(folder / "bin", without=["ln"]))
    return _on(folder)


def _kinds(*kinds: str) -> pytest.MarkDecorator:
    marks = [
        pytest.param(kind, marks=pytest.mark.process if kind == "local" else pytest.mark.ssh)
        for kind in kinds
    ]
    return pytest.mark.parametrize("lab", marks, indirect=True)


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    """A connected device of one kind."""
    with _lab(str(request.param), tmp_path / "lab") as settings, open_device(settings) as device:
        yield device


def _healthy(device: Device, release_dir: str) -> None:
    done = device.run([f"{release_dir}/runner/edge_runner"], timeout=20)
    assert done.stdout == "healthy\n"


def _sick(device: Device, release_dir: str) -> None:
    raise errors.ParityFailed("outputs differ", remedy="look at them")


def _folder(device: Device, *parts: str) -> Path:
    return Path(device.settings.folder).joinpath(*parts)


def _current(device: Device) -> str:
    """The active release, also where the pointer is a file."""
    pointer = _folder(device, "bundles", "demo", "current")
    text = str(pointer.readlink()) if pointer.is_symlink() else pointer.read_text().strip()
    return text.removeprefix("releases/")


def _contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@_kinds("local", "ssh", "busybox", "bare", "no links")
def test_the_whole_way(lab: Device, bundle: Path) -> None:
    plan = deploy.plan(lab, bundle, "demo")
    assert plan.send_bytes == plan.total_bytes
    assert not _folder(lab).exists()  # a plan changes nothing
    first = deploy.deploy(lab, bundle, "demo", _healthy)
    assert (first.sent_blobs, first.sent_bytes) == (5, plan.total_bytes)
    assert first.previous is None
    release = Path(first.release_dir)
    assert _contents(release) == _contents(bundle)
    assert release.name == _current(lab)
    assert os.access(release / "runner/edge_runner", os.X_OK)
    assert not (release / "model.onnx").stat().st_mode & 0o111
    assert list(_folder(lab, "incoming").iterdir()) == []

    size = _change(bundle, "samples/1.bin", b"another")
    assert deploy.plan(lab, bundle, "demo").send_bytes == size
    second = deploy.deploy(lab, bundle, "demo", _healthy)
    assert (second.sent_blobs, second.sent_bytes) == (2, size)
    assert second.previous == release.name
    assert _current(lab) != release.name
    assert [one.current for one in deploy.releases(lab, "demo")] == [True, False]

    back = deploy.rollback(lab, "demo")
    assert back.id == release.name == _current(lab)
    with pytest.raises(errors.DeployFailed, match="no earlier release"):
        deploy.rollback(lab, "demo")


@_kinds("local", "ssh")
def test_the_same_again_sends_nothing(lab: Device, bundle: Path) -> None:
    first = deploy.deploy(lab, bundle, "demo", _healthy)
    again = deploy.deploy(lab, bundle, "demo", _healthy)
    assert (again.sent_blobs, again.sent_bytes) == (0, 0)
    assert again.release_dir == first.release_dir
    assert len(deploy.releases(lab, "demo")) == 1


@_kinds("local", "ssh")
def test_a_failed_health_run_keeps_the_release_before(lab: Device, bundle: Path) -> None:
    deploy.deploy(lab, bundle, "demo", _healthy)
    before = _current(lab)
    _change(bundle, "model.onnx", b"bad weights")
    with pytest.raises(errors.ParityFailed, match="stays active: outputs differ") as caught:
        deploy.deploy(lab, bundle, "demo", _sick)
    assert caught.value.remedy == "look at them"
    assert _current(lab) == before
    assert sorted(path.name for path in _folder(lab, "bundles/demo/releases").iterdir()) == [
        before, f"{before}.sums"
    ]  # fmt: skip
    deploy.deploy(lab, bundle, "demo", _healthy)  # the lock is free
    assert _current(lab) != before


@_kinds("local")
def test_a_first_release_that_fails_is_not_active(lab: Device, bundle: Path) -> None:
    def crash(device: Device, release_dir: str) -> None:
        device.run([f"{release_dir}/no-such-runner"], timeout=20)

    with pytest.raises(errors.DeployFailed, match=r"(?s)stays active: .*no-such-runner"):
        deploy.deploy(lab, bundle, "demo", crash)
    assert deploy.releases(lab, "demo") == ()
    assert not _folder(lab, "bundles/demo/current").is_symlink()


@_kinds("local", "busybox")
def test_old_releases_and_their_blobs_go(lab: Device, bundle: Path) -> None:
    made = []
    for number in range(deploy.KEEP + 2):
        _change(bundle, "samples/1.bin", b"%d" % number)
        made.append(Path(deploy.deploy(lab, bundle, "demo", _healthy).release_dir).name)
    kept = made[-deploy.KEEP :]
    assert [one.id for one in deploy.releases(lab, "demo")] == kept[::-1]
    blobs = {path.name for path in _folder(lab, "blobs").iterdir()}
    data = [*FILES.values(), *(b"%d" % number for number in range(2, 5))]
    assert blobs == {hashlib.sha256(one).hexdigest() for one in data} | set(kept)


@_kinds("local")
def test_another_bundle_keeps_its_blobs(lab: Device, bundle: Path, tmp_path: Path) -> None:
    other = _write(tmp_path / "other", {"only/here.bin": b"other"})
    deploy.deploy(lab, other, "other", lambda device, folder: None)
    for number in range(deploy.KEEP + 1):
        _change(bundle, "samples/1.bin", b"%d" % number)
        deploy.deploy(lab, bundle, "demo", _healthy)
    assert deploy.plan(lab, other, "other").missing == ()


@_kinds("local", "ssh")
def test_a_blob_that_rotted_is_sent_again(
    lab: Device, bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    deploy.deploy(lab, bundle, "demo", _healthy)
    blob = _folder(lab, "blobs", hashlib.sha256(FILES["model.onnx"]).hexdigest())
    blob.write_bytes(b"x" * len(FILES["model.onnx"]))
    size = _change(bundle, "samples/1.bin", b"another")
    done = deploy.deploy(lab, bundle, "demo", _healthy)
    assert done.sent_bytes == size + len(FILES["model.onnx"])
    assert _contents(Path(done.release_dir)) == _contents(bundle)
    assert "damaged and are sent again" in capfd.readouterr().err
    with pytest.raises(errors.DeployFailed, match="were damaged"):
        deploy.rollback(lab, "demo")  # the old release has the damaged file


@_kinds("local", "ssh")
def test_what_a_broken_transfer_left(
    lab: Device, bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    incoming = _folder(lab, "incoming")
    incoming.mkdir(parents=True)
    whole, wrong = FILES["runtime/lib.so"], FILES["model.onnx"]
    (incoming / hashlib.sha256(whole).hexdigest()).write_bytes(whole)
    (incoming / hashlib.sha256(wrong).hexdigest()).write_bytes(b"x" * len(wrong))
    done = deploy.deploy(lab, bundle, "demo", _healthy)
    assert done.sent_bytes == done.total_bytes - len(whole)
    assert _contents(Path(done.release_dir)) == _contents(bundle)
    assert "damaged" not in capfd.readouterr().err


@_kinds("local", "ssh")
def test_a_program_shares_no_mode_with_a_file_of_the_same_content(
    lab: Device, bundle: Path
) -> None:
    _write(bundle, {**FILES, "samples/the same": RUNNER})
    release = Path(deploy.deploy(lab, bundle, "demo", _healthy).release_dir)
    assert (release / "runner/edge_runner").stat().st_mode & 0o111
    assert not (release / "samples/the same").stat().st_mode & 0o111


@_kinds("local")
def test_send_alone_switches_nothing(lab: Device, bundle: Path) -> None:
    sent = deploy.send(lab, deploy.plan(lab, bundle, "demo"))
    assert sent.send_bytes == sent.total_bytes
    assert deploy.plan(lab, bundle, "demo").missing == ()
    assert deploy.releases(lab, "demo") == ()


@_kinds("local")
@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a b", "a\n", ".a", "x" * 200])
def test_names_that_are_none(lab: Device, bundle: Path, name: str) -> None:
    with pytest.raises(errors.UsageError, match="cannot name a bundle"):
        deploy.plan(lab, bundle, name)
    with pytest.raises(errors.UsageError, match="cannot name a bundle"):
        deploy.deploy(lab, bundle, name, _healthy)


@_kinds("ssh")
def test_two_at_once(lab: Device, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "POLL", 0.05)
    inside: list[str] = []
    overlaps: list[int] = []

    def health(device: Device, release_dir: str) -> None:
        inside.append(release_dir)
        overlaps.append(len(inside))
        time.sleep(0.3)
        inside.remove(release_dir)

    def work() -> None:
        other = create(lab.settings)
        other.connect()
        deploy.deploy(other, bundle, "demo", health)
        other.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [1, 1]


def _cut_after(sshd: Sshd, folder: Path, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the server's sessions once the device holds ``whole`` complete files of a transfer."""
    real = files.chunks
    begun: list[Path] = []

    def chunks(path: Path, size: int) -> Iterator[bytes]:
        begun.append(path)
        for number, block in enumerate(real(path, size)):
            if len(begun) == whole + 2 and number == 1:
                until = time.monotonic() + 20
                while len(list(folder.iterdir())) < whole + 1 and time.monotonic() < until:
                    time.sleep(0.02)
                sshd.cut()
            yield block

    monkeypatch.setattr(files, "chunks", chunks)


@pytest.mark.ssh
def test_a_cut_connection_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {f"part{number}": os.urandom(3_000_000) for number in range(5)}
    contents["runner/edge_runner"] = RUNNER
    bundle = _write(tmp_path / "bundle", contents)
    with start(tmp_path / "sshd") as running:
        settings = running.settings(folder=str(tmp_path / "device"))
        with open_device(settings) as device:
            wanted = deploy.plan(device, bundle, "demo")
            with monkeypatch.context() as patch:
                whole = files.read(bundle)
                patch.setattr(files, "read", lambda folder: whole)
                _cut_after(running, tmp_path / "device/incoming", 2, patch)
                with pytest.raises(errors.DeviceUnreachable, match="broke"):
                    deploy.deploy(device, bundle, "demo", _healthy)
            assert lock._held_here == set()
            device.connect()
            assert deploy.releases(device, "demo") == ()
            done = deploy.deploy(device, bundle, "demo", _healthy)
    assert done.sent_bytes <= wanted.total_bytes - 2 * 3_000_000
    assert _contents(Path(done.release_dir)) == _contents(bundle)


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a small tmpfs")
    words = ["mount", "-t", "tmpfs", "-o", "size=2m", "edge-test", str(folder)]
    if process.run(words, timeout=20, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        process.run(["umount", "-l", str(folder)], timeout=20)


@pytest.mark.ssh
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("kind", ["ssh", "busybox", "bare", "no links"])
def test_a_full_disk(
    tmp_path: Path, kind: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``seen``: before anything is sent, else in the middle of the transfer."""
    bundle = _write(tmp_path / "bundle", {"big": os.urandom(3_000_000), "small": b"x"})
    if not seen:
        monkeypatch.setattr(deploy, "_check_space", lambda *arguments: None)
    with (
        _lab(kind, tmp_path / "lab") as settings,
        _small_disk(tmp_path / "lab/a device") as disk,
        open_device(settings) as device,
    ):
        words = "the bundle needs" if seen else "is full"
        with pytest.raises(errors.DeployFailed, match=words) as caught:
            deploy.deploy(device, bundle, "demo", _healthy)
        assert "free some space" in caught.value.remedy
        assert [path for path in disk.rglob("*") if path.stat().st_size > 1000] == []
        other = _write(tmp_path / "bundle", FILES)
        deploy.deploy(device, other, "demo", _healthy)


@_kinds("local")
def test_a_folder_that_cannot_be_written(
    lab: Device, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _folder(lab).mkdir(parents=True)
    _folder(lab, "blobs").write_text("a file in the way")
    with pytest.raises(errors.DeployFailed, match="File exists"):
        deploy.deploy(lab, bundle, "demo", _healthy)
