"""Bundles: written whole or not at all, verified, packed to the same bytes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import bundle, errors
from edge.bundle import BundleFile
from edge.store import as_file


def content(folder: Path, text: str = "abc") -> tuple[list[BundleFile], dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    source = folder / "source"
    source.write_text(text)
    run = BundleFile.of("runner/run", as_file(source), "runner", executable=True)
    files = [run, BundleFile.of("model.onnx", as_file(source), "artifact")]
    return files, {"schema": 1, "files": [file.entry() for file in files]}


def test_a_bundle_is_written_once(tmp_path: Path) -> None:
    files, manifest = content(tmp_path / "s")
    folder = tmp_path / "dist" / "x"
    assert bundle.write(folder, files, manifest) is True
    assert bundle.write(folder, files, manifest) is False
    assert (folder / "model.onnx").read_text() == "abc"
    assert (folder / "runner" / "run").stat().st_mode & 0o111


def test_a_damaged_file_is_mended(tmp_path: Path) -> None:
    files, manifest = content(tmp_path / "s")
    folder = tmp_path / "x"
    bundle.write(folder, files, manifest)
    (folder / "model.onnx").write_text("abd")
    assert bundle.write(folder, files, manifest) is True
    assert (folder / "model.onnx").read_text() == "abc"


def test_a_new_bundle_replaces_the_old_one_whole(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    bundle.write(folder, *content(tmp_path / "a"))
    (folder / "left-over").write_text("from before")
    bundle.write(folder, *content(tmp_path / "b", "new"))
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "manifest.json", "model.onnx", "run",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_bundle_that_a_killed_build_moved_aside_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    files, manifest = content(tmp_path / "a")
    bundle.write(folder, files, manifest)
    folder.rename(tmp_path / ".edge@x@abc.old")
    (tmp_path / ".edge@x@abc").mkdir()
    (tmp_path / ".x.backup").mkdir()  # the user's own
    assert bundle.write(folder, files, manifest) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.backup", "a", "x"]


@pytest.mark.parametrize("spoil", ["link", "mode"])
def test_a_link_or_a_lost_mode_is_mended(tmp_path: Path, spoil: str) -> None:
    files, manifest = content(tmp_path / "a")
    folder = tmp_path / "x"
    bundle.write(folder, files, manifest)
    path = folder / "runner" / "run"
    if spoil == "link":
        path.unlink()
        path.symlink_to(tmp_path / "a" / "source")
    else:
        path.chmod(0o644)
    assert bundle.write(folder, files, manifest) is True
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o100


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    files, manifest = content(tmp_path / "a")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.StepFailed, match="cannot write the bundle"):
        bundle.write(tmp_path / "file" / "x", files, manifest)


def test_a_source_that_changed_under_way_leaves_the_old_bundle(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    bundle.write(folder, *content(tmp_path / "a"))
    files, manifest = content(tmp_path / "b", "new")
    files[0].source.path.write_text("evil")
    with pytest.raises(errors.StoreDamaged, match="no longer has the content"):
        bundle.write(folder, files, manifest)
    assert (folder / "model.onnx").read_text() == "abc"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_verify_names_the_wrong_file(tmp_path: Path) -> None:
    bundle.write(tmp_path / "x", *content(tmp_path / "a"))
    bundle.verify(tmp_path / "x")
    (tmp_path / "x" / "model.onnx").write_text("abd")
    with pytest.raises(errors.StoreDamaged, match=r"model\.onnx"):
        bundle.verify(tmp_path / "x")


def test_a_packed_bundle_has_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bundle.write(tmp_path / name, *content(tmp_path / f"{name}-source"))
        (tmp_path / f"{name}-out").mkdir()
    packed = [bundle.pack(tmp_path / n, tmp_path / f"{n}-out" / "m.tar.gz") for n in ("a", "b")]
    assert packed[0].sha256 == packed[1].sha256
    with tarfile.open(packed[0].path) as tar:
        assert tar.getnames() == ["m/manifest.json", "m/model.onnx", "m/runner/run"]
        assert tar.getmember("m/runner/run").mode == 0o755


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\\b", "a\0"]
)
def test_paths_that_no_bundle_may_have(path: str) -> None:
    assert bundle.path_fault(path)
    with pytest.raises(errors.StepFailed):
        BundleFile.of(path, as_file(Path(__file__)), "app")


@given(st.text())
def test_a_safe_path_stays_inside(path: str) -> None:
    if not bundle.path_fault(path):
        assert (Path("/x") / path).parts[:2] == ("/", "x")
        assert ".." not in Path(path).parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 2, "files": []}',
        '{"schema": 1}',
        '{"schema": 1, "files": [{"path": "../x", "size": 1, "sha256": "%s"}]}' % ("0" * 64),
        '{"schema": 1, "files": [{"path": "x", "size": 1, "sha256": "0"}]}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_hostile_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(errors.UsageError):
        bundle.read_manifest(tmp_path)


def test_no_bundle_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="no bundle") as caught:
        bundle.read_manifest(tmp_path)
    assert "edge build" in caught.value.remedy


def test_the_manifest_has_one_spelling() -> None:
    assert bundle.manifest_bytes({"b": 1, "a": "é"}) == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    assert json.loads(bundle.manifest_bytes({"a": 1})) == {"a": 1}
