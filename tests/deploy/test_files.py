"""The manifest of a bundle, which is not trusted."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.deploy import files

EMPTY = hashlib.sha256(b"").hexdigest()


def _entry(path: str = "a", **changes: Any) -> dict[str, Any]:
    return {"path": path, "sha256": EMPTY, "size": 0, "role": "samples", **changes}


def _manifest(*entries: Any) -> bytes:
    return json.dumps({"files": list(entries)}).encode()


def _bundle(folder: Path, **contents: bytes) -> Path:
    entries = []
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        entries.append(_entry(name, sha256=digest, size=len(data)))
    (folder / "manifest.json").write_bytes(_manifest(*entries))
    return folder


@pytest.mark.parametrize(
    "path",
    ["a", "a/b/c.bin", "a b", "it's", "-rf", "$(x)", "ü/ä.bin", "..a", "a..b", "a/manifest.json"],
)
def test_good_paths(path: str) -> None:
    assert files.parse(_manifest(_entry(path)))[0].path == path


@pytest.mark.parametrize(
    "path",
    ["", "/a", "../a", "a/../b", "a/..", "./a", "a//b", "a/", ".", "a\\b", "a\nb", "a\tb", "a\0",
     "a ", " a", "a/ b", "\u0085", "\ud800", "x" * 401, "a/" + "y" * 201, "manifest.json",
     "manifest.json/x", "a\u202eb"],
)  # fmt: skip
def test_hostile_paths(path: str) -> None:
    with pytest.raises(errors.DeployFailed, match=r"manifest\.json of the bundle is refused"):
        files.parse(_manifest(_entry(path)))


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "a",
        {},
        {**_entry(), "path": 7},
        _entry(sha256="x" * 64),
        _entry(sha256=EMPTY.upper()),
        _entry(sha256=EMPTY + "\n"),
        _entry(sha256=None),
        _entry(size=-1),
        _entry(size=True),
        _entry(size=1.0),
        _entry(size="0"),
        _entry(size=2**60),
    ],
)
def test_entries_that_are_none(entry: Any) -> None:
    with pytest.raises(errors.DeployFailed, match="is refused"):
        files.parse(_manifest(entry))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], "no list of files"),
        ([_entry("a"), _entry("a")], "twice"),
        ([_entry("a"), _entry("a/b")], "goes through another file"),
        ([_entry("a/b/c"), _entry("a")], "goes through another file"),
        ([_entry("a"), _entry("b", size=1)], "another size"),
    ],
)
def test_entries_that_do_not_go_together(entries: list[Any], words: str) -> None:
    with pytest.raises(errors.DeployFailed, match=words):
        files.parse(_manifest(*entries))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(errors.DeployFailed, match="is refused"):
        files.parse(data)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_any_list_is_read_or_refused(listed: Any) -> None:
    with pytest.raises(errors.DeployFailed, match="is refused"):
        files.parse(json.dumps({"files": listed}).encode())


def test_deep_json_is_refused() -> None:
    with pytest.raises(errors.DeployFailed, match="is refused"):
        files.parse(b"[" * 200_000)


def test_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 1)
    with pytest.raises(errors.DeployFailed, match="more than 1 files"):
        files.parse(_manifest(_entry("a"), _entry("b")))


@pytest.mark.parametrize(
    ("path", "changes", "executable"),
    [
        ("runner/edge_runner", {"role": "runner"}, True),
        ("runner/edge_runner.c", {"role": "runner"}, False),
        ("samples/edge_runner", {}, False),
        ("samples/tool", {"executable": True}, True),
        ("samples/tool", {"executable": "yes"}, False),
    ],
)
def test_what_may_be_run(path: str, changes: dict[str, Any], executable: bool) -> None:
    (file,) = files.parse(_manifest(_entry(path, **changes)))
    assert file.executable is executable


def test_a_bundle(tmp_path: Path) -> None:
    bundle = files.read(_bundle(tmp_path, one=b"same", two=b"same", other=b"content"))
    manifest = (tmp_path / "manifest.json").read_bytes()
    assert bundle.release == hashlib.sha256(manifest).hexdigest()
    assert [file.path for file in bundle.files] == ["one", "other", "two", "manifest.json"]
    assert len(bundle.blobs) == 3
    assert bundle.total_bytes == len(b"same") + len(b"content") + len(manifest)
    assert bundle.listing().count(b"\t") == 8


@pytest.mark.parametrize(
    ("data", "words"), [(b"contenT", "its SHA-256 differs"), (b"longer content", "no file of 7")]
)
def test_a_file_that_was_changed(tmp_path: Path, data: bytes, words: str) -> None:
    _bundle(tmp_path, file=b"content")
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(errors.DeployFailed, match=words):
        files.read(tmp_path)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    (_bundle(tmp_path, file=b"content") / "file").unlink()
    with pytest.raises(errors.DeployFailed, match="No such file"):
        files.read(tmp_path)


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(errors.DeployFailed, match="is no bundle"):
        files.read(tmp_path)


def test_a_huge_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_MANIFEST", 10)
    with pytest.raises(errors.DeployFailed, match="more than 10 bytes"):
        files.read(_bundle(tmp_path, file=b"content"))


def test_links_are_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"")
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "sub").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    for path in ("file", "sub/file"):
        (folder / "manifest.json").write_bytes(_manifest(_entry(path)))
        with pytest.raises(errors.DeployFailed, match="is a link"):
            files.read(folder)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    (tmp_path / "manifest.json").write_bytes(_manifest(_entry("a")))
    with pytest.raises(errors.DeployFailed, match="no file of 0 bytes"):
        files.read(tmp_path)


def test_a_file_that_shrinks_while_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(errors.DeployFailed, match="became shorter"):
        list(files.chunks(tmp_path / "file", 6))
    assert b"".join(files.chunks(tmp_path / "file", 3)) == b"123"
