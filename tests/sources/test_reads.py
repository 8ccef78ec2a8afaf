"""What a process is heard to read, and where it belongs."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge.sources.reads import Reads
from tests.sources.python_project import write


def heard(root: Path, *events: tuple[str, tuple[Any, ...]]) -> Reads:
    watched = Reads(root)
    watched._listening = True
    for event, arguments in events:
        watched.hear(event, arguments)
    return watched


def test_only_what_is_opened_for_reading_counts(tmp_path: Path) -> None:
    for name in ("r", "rw", "new", "cut"):
        (tmp_path / name).write_text("x")
    watched = heard(
        tmp_path,
        ("open", (str(tmp_path / "r"), "r", os.O_RDONLY | os.O_CLOEXEC)),
        ("open", (os.fsencode(tmp_path / "rw"), None, os.O_RDWR)),
        ("open", (str(tmp_path / "new"), "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
        ("open", (str(tmp_path / "cut"), "w+", os.O_RDWR | os.O_TRUNC)),
        ("open", (tmp_path / "absent", "r", 0)),
        ("open", (3, "r", 0)),
        ("open", ()),
        ("sqlite3.connect", (":memory:",)),
        ("ctypes.dlopen", (str(tmp_path / "rw"),)),
        ("ctypes.dlopen", (None,)),
        ("compile", (b"x", "f")),
    )
    assert watched.files() == (["r", "rw"], ["absent"])


def test_bytecode_counts_as_its_source(tmp_path: Path) -> None:
    source = write(tmp_path, part="") / "part.py"
    cached = importlib.util.cache_from_source(str(source))
    assert heard(tmp_path, ("open", (cached, "rb", 0))).files() == (["part.py"], [])


def test_links_to_the_project_are_the_project(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    write(real, part="")
    link.symlink_to(real)
    opened = (("open", (str(folder / "part.py"), "r", 0)) for folder in (real, link))
    assert heard(link, *opened).files() == (["part.py"], [])


def test_an_environment_within_the_project_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / ".venv" / "lib" / "site-packages"
    write(site, lib="")
    monkeypatch.setattr("edge.sources.reads.installed_folders", lambda: (str(site),))
    watched = heard(tmp_path, ("open", (str(site / "lib.py"), "r", 0)))
    assert watched.files() == ([], [])
    assert watched.outside() == []


def test_what_lies_elsewhere_is_outside(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("x")
    paths = (tmp_path / "weights", tmp_path / "gone", Path(onnx.__file__), Path("/etc/passwd"))
    events = [("open", (str(path), "r", 0)) for path in paths]
    watched = heard(tmp_path / "project", *events)
    assert watched.outside() == [tmp_path / "weights"]
    made_here = ("open", (str(tmp_path / "weights"), "w", os.O_WRONLY | os.O_TRUNC))
    assert heard(tmp_path / "project", made_here, *events).outside() == []


def test_folders_that_are_listed_count_unless_modules_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "walked").mkdir()
    events = (("os.scandir", (str(tmp_path),)), ("os.listdir", (3,)),
              ("open", (str(tmp_path / "walked"), None, os.O_RDONLY)))  # fmt: skip
    assert heard(tmp_path, *events).listed() == [".", "walked"]
    watched = heard(tmp_path)
    looking = compile("hear('os.listdir', (place,))", "/x/importlib/metadata/__init__.py", "exec")
    exec(looking, {"hear": watched.hear, "place": str(tmp_path)})
    assert watched.listed() == []
