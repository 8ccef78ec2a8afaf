"""Where a source lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import errors
from edge.sources.locate import SUFFIXES, Located, locate


def test_a_relative_path_starts_at_the_project(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    assert locate("m.onnx", tmp_path) == Located(tmp_path / "m.onnx", "onnx")


def test_a_file_of_a_package_is_found_without_importing_it(tmp_path: Path) -> None:
    found = locate("pkg:magika/models/standard_v3_3/model.onnx", tmp_path)
    assert found.framework == "onnx"
    assert found.path.stat().st_size == 3_163_737


@pytest.mark.parametrize("source", ["pkg:", "pkg:magika", "pkg:magika/../../x", "pkg:a b/c"])
def test_malformed_package_sources_are_usage_errors(source: str, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError):
        locate(source, tmp_path)


def test_a_missing_package_is_a_missing_tool_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(errors.ToolMissing, match="nosuchpackage") as caught:
        locate("pkg:nosuchpackage/m.onnx", tmp_path)
    assert "pip install nosuchpackage" in caught.value.remedy


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no.onnx", "not there"),
        (".", "a folder"),
        ("m:f", "no Python module m"),
        ("a b:c", "not there"),
    ],
)
def test_what_is_no_file_is_said(source: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=says):
        locate(source, tmp_path)


@pytest.mark.parametrize(("suffix", "framework"), [*SUFFIXES.items(), (".bin", "onnx")])
def test_a_files_suffix_says_its_framework(tmp_path: Path, suffix: str, framework: str) -> None:
    path = tmp_path / f"m{suffix.upper()}"
    path.write_bytes(b"x")
    assert locate(path.name, tmp_path) == Located(path, framework)


def test_a_saved_model_is_its_folder_or_its_file(tmp_path: Path) -> None:
    path = tmp_path / "saved" / "saved_model.pb"
    path.parent.mkdir()
    path.write_bytes(b"x")
    expected = Located(path, "tensorflow")
    assert locate("saved", tmp_path) == locate("saved/saved_model.pb", tmp_path) == expected


def test_code_is_found_below_the_project(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("def make(): ...")
    assert locate("nets:make", tmp_path) == Located(tmp_path / "nets.py", "", "nets:make")
