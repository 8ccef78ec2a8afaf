"""Subcommands that need no build: in this process, for speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge import cli, registry
from edge.tools import ort_toolchain
from tests.test_registry import SHIPPED


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


@pytest.mark.parametrize("kind", ["project", "target", "devices", "manifest"])
def test_schemas_are_json_schemas(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["schema", kind], capsys)
    schema: dict[str, Any] = json.loads(out)
    assert code == 0
    assert schema["type"] == "object"
    assert schema["properties"]


def test_targets_are_listed_for_people_and_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(["targets", "--json"], capsys)
    assert code == 0
    assert [each["name"] for each in json.loads(out)] == list(SHIPPED)
    code, out, err = run(["targets"], capsys)
    assert (code, out) == (0, "")
    assert "linux-arm64" in err


def test_doctor_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ort_toolchain, "local", lambda _words: None)
    monkeypatch.setattr(registry, "has_tool", lambda name: name != "zig")
    code, out, err = run(["doctor", "--json"], capsys)
    assert code == 3
    assert run(["doctor", "-t", "linux-x64-reduced"], capsys)[0] == 3
    rows = {row["target"]: (row["state"], row["fix"]) for row in json.loads(out)}
    assert rows["linux-x64"] == ("missing: ziglang", "pip install ziglang")
    assert rows["ios"] == ("ready", "")
    assert "pip install ziglang" in err
    monkeypatch.setattr(registry, "has_tool", lambda name: name != "coreml")
    _, out, _ = run(["doctor", "--json"], capsys)
    rows = {row["target"]: (row["state"], row["fix"]) for row in json.loads(out)}
    said = ("ready, without a Core ML package", "pip install 'edgewright[coreml]'")
    assert rows["ios"] == said
    monkeypatch.setattr(registry, "has_tool", lambda _name: True)
    code, out, _ = run(["doctor", "--json"], capsys)
    assert code == 0  # the others lack compilers, and nobody asked for them
    assert "CMake" in json.dumps(json.loads(out))


def test_an_error_is_one_document_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(["build", "-t", "ios", "--json"], capsys)
    assert code == 2
    assert "no project file" in json.loads(out)["error"]["message"]
    assert err.startswith("error: there is no project file edge.toml\n  fix: ")


@pytest.mark.parametrize("words", [["--help"], ["build", "--help"], ["--version"], []])
def test_help_needs_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(words, capsys)
    assert code in (0, 2)
    assert "edge" in out + err


def test_help_loads_nothing_heavy() -> None:
    """What makes --help quick: counted, not timed."""
    import ast

    tree = ast.parse(Path(cli.__file__).read_text())
    top = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not top & {"pipeline", "config", "numpy", "onnx", "pydantic", "rich"}
