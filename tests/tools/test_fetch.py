"""Pinned files: from archives of every kind, never without the right hash."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors
from edge.config import Pin
from edge.store import Store
from edge.tools import fetch

CONTENT = b"int main(void) { return 0; }\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def tar_with(names: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zip_with(names: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in names.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def ar_member(name: str, data: bytes) -> bytes:
    """A member of an ar archive: a header of 60 bytes, and data padded to an even size."""
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def deb_with(names: dict[str, bytes]) -> bytes:
    data = tar_with({f"./{name}": content for name, content in names.items()})
    return b"!<arch>\n" + ar_member("debian-binary", b"2.0\n") + ar_member("data.tar.gz", data)


@pytest.mark.parametrize("make", [tar_with, zip_with, deb_with])
def test_a_member_comes_out_of_every_kind_of_archive(
    empty: Store, tmp_path: Path, make: object
) -> None:
    archive = tmp_path / "archive"
    assert callable(make)
    archive.write_bytes(make({"other": b"x", "a/b.c": CONTENT}))
    pin = Pin(package=f"file:{archive}", member="a/b.c", sha256=SHA256)
    assert fetch.fetch(empty, pin).path.read_bytes() == CONTENT
    archive.unlink()
    assert fetch.fetch(empty, pin).size == len(CONTENT)


def test_another_content_is_refused_and_not_kept(empty: Store, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"other")
    with pytest.raises(errors.FetchFailed, match="the pin says") as caught:
        fetch.fetch(empty, Pin(package=f"file:{tmp_path / 'f'}", sha256=SHA256))
    assert caught.value.exit_code == 3
    assert empty.blob(SHA256) is None


def test_one_hash_said_twice_does_not_wait_for_itself(empty: Store, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    pin = Pin(package=f"file:{tmp_path / 'f'}", package_sha256=SHA256, sha256=SHA256)
    assert fetch.fetch(empty, pin).size == len(CONTENT)


def test_a_wrong_archive_is_not_even_opened(empty: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(zip_with({"a": CONTENT}))
    pin = Pin(package=f"file:{archive}", package_sha256="0" * 64, member="a", sha256=SHA256)
    with pytest.raises(errors.FetchFailed, match=r"archive|download"):
        fetch.fetch(empty, pin)


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x03\x04", b"!<arch>\nshort"])
def test_a_broken_archive_is_said(empty: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    pin = Pin(package=f"file:{tmp_path / 'f'}", member="a", sha256=SHA256)
    with pytest.raises(errors.FetchFailed, match="no readable member a") as caught:
        fetch.fetch(empty, pin)
    assert "where the archive came from" in caught.value.remedy


WHOLE = [make({"other": b"x" * 99, "a": CONTENT}) for make in (tar_with, zip_with, deb_with)]


@settings(max_examples=200)
@given(st.data(), st.sampled_from(WHOLE))
def test_damage_never_raises_anything_but_our_own(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, whole: bytes
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    folder = tmp_path_factory.mktemp("f")
    (folder / "f").write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    with contextlib.suppress(errors.FetchFailed):
        assert fetch._extract(folder / "f", "a", folder).read_bytes()


def test_a_disk_that_fails_is_not_the_archives_fault(
    empty: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(WHOLE[0])

    def full(*_words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch, "_bounded_copy", full)
    with pytest.raises(OSError, match="No space left"):
        fetch._extract(tmp_path / "f", "a", tmp_path)


def test_a_package_with_too_much_data_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MAX_MEMBER_BYTES", 10)
    (tmp_path / "f").write_bytes(WHOLE[2])
    with pytest.raises(errors.FetchFailed, match=r"a package's data has \d+ bytes"):
        fetch.deb_data(tmp_path / "f")


@pytest.mark.parametrize("before", [b"", b"odd", b"even"])
def test_the_data_of_a_package_and_nothing_behind_it(tmp_path: Path, before: bytes) -> None:
    members = [("debian-binary", before), ("data.tar.zst", b"the data"), ("other", b"x")]
    (tmp_path / "f").write_bytes(fetch.AR + b"".join(ar_member(*each) for each in members))
    with fetch.deb_data(tmp_path / "f") as data:
        assert data.read() == b"the data"


def test_a_missing_member_is_said(empty: Store, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(tar_with({"b": CONTENT}))
    pin = Pin(package=f"file:{tmp_path / 'f'}", member="a", sha256=SHA256)
    with pytest.raises(errors.FetchFailed, match="no readable member a"):
        fetch.fetch(empty, pin)


def test_an_archive_larger_than_allowed_is_stopped(
    empty: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MAX_MEMBER_BYTES", 10)
    (tmp_path / "f").write_bytes(zip_with({"a": CONTENT}))
    pin = Pin(package=f"file:{tmp_path / 'f'}", member="a", sha256=SHA256)
    with pytest.raises(errors.FetchFailed, match="more than 10 bytes"):
        fetch.fetch(empty, pin)


def test_a_registry_package_needs_its_own_hash(empty: Store) -> None:
    with pytest.raises(errors.ConfigError, match="no package_sha256"):
        fetch.fetch(empty, Pin(package="npm:x@1.0.0", member="a", sha256=SHA256))


@pytest.mark.parametrize("build", ["", "-22982"])  # OpenVINO's wheels have a build tag
def test_what_is_installed_is_not_downloaded(empty: Store, build: str) -> None:
    import onnx

    path = Path(onnx.__file__)
    pin = Pin(
        package=f"pypi:onnx-{onnx.__version__}{build}-cp311-cp311-any.whl",
        package_sha256="0" * 64,
        member="onnx/__init__.py",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    assert fetch.fetch(empty, pin).path.read_bytes() == path.read_bytes()


DEB822 = """Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm
Components: main
"""


@pytest.mark.parametrize(
    ("name", "text", "mirror"),
    [
        ("sources.list.d/debian.sources", DEB822, "http://mirror.example/debian"),
        ("sources.list", "deb http://m.example/debian/ trixie main\n", "http://m.example/debian/"),
        ("sources.list", "deb [signed-by=/k] https://m.example/debian x main", "https://m.example/debian"),
        ("sources.list", "# deb http://m.example/debian x main\n", None),
        ("sources.list", "deb http://m.example/debian-security x main\n", None),
        ("sources.list", "deb http://archive.example/ubuntu noble main\n", None),
    ],
)  # fmt: skip
def test_apts_own_mirror_is_used(tmp_path: Path, name: str, text: str, mirror: str | None) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert fetch.debian_mirror(tmp_path) == mirror


@pytest.mark.models
@pytest.mark.parametrize("target", ["linux-x64", "linux-arm64", "browser"])
def test_the_pins_of_the_shipped_targets_hold(download_store: Store, target: str) -> None:
    from edge.config import ProjectFile
    from edge.registry import Registry

    found = Registry(Path("/nonexistent")).target(target, ProjectFile(), "tests")
    for pin in found.runtime.files:
        assert fetch.fetch(download_store, pin).sha256 == pin.sha256
