"""Reduced libraries built for real, from the pinned sources: minutes of compiling each.

Run by hand: ``pytest -m slow tests/test_reduced_build.py``; docs/reduced-builds.md has the log.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from edge import bundle, errors, process, protocol
from edge.store import Store
from edge.tools import emulator
from tests.command import edge
from tests.support import need
from tests.test_real_models import project_text

pytestmark = pytest.mark.slow
NAMES = ("magika", "silero", "ppocr-cls")
TIMEOUT = 3 * 3600


def three_models(silero: Path, rapidocr: Path) -> str:
    """The project of the real models without the recognizer, which stays outside."""
    text, _, _ = project_text(silero, rapidocr).partition("[models.ppocr-rec]")
    return text


def manifest(root: Path, name: str, target: str) -> dict[str, Any]:
    folder = root / "dist" / name / "0" / target
    bundle.verify(folder)
    found = json.loads((folder / "manifest.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("platform", "by"), [("linux-x64", "native"), ("linux-arm64", "qemu")])
def test_a_library_for_three_models(
    platform: str, by: str, tmp_path: Path, store: Store, silero: Path, rapidocr: Path
) -> None:
    for tool in ("cmake", "ninja", "protoc"):
        need(tool)
    target = f"{platform}-reduced"
    (tmp_path / "edge.toml").write_text(three_models(silero, rapidocr))
    done = edge(tmp_path, store, "build", "-t", target, "--json", timeout=TIMEOUT)
    assert done.code == 0, done.err
    for name in NAMES:
        check(manifest(tmp_path, name, target), by)

    # The same again does nothing; one model less is inside what was built.
    again = edge(tmp_path, store, "build", "-t", target)
    assert "nothing to do" in again.err
    smaller = tmp_path / "smaller"
    smaller.mkdir()
    text, _, _ = three_models(silero, rapidocr).partition("[models.ppocr-cls]")
    (smaller / "edge.toml").write_text(text)
    reused = edge(smaller, store, "build", "-t", target, "--runtime", "reuse-superset")
    assert reused.code == 0, reused.err
    assert "build_reduced" not in reused.err
    assert manifest(smaller, "magika", target)["runtime"]["reused"] is True

    refused_outside(tmp_path, store, target, rapidocr)


def check(found: dict[str, Any], by: str) -> None:
    runtime = found["runtime"]
    assert found["state"] == "built"
    assert runtime["proof"]["by"].startswith(by)
    assert runtime["proof"]["outputs"]
    assert runtime["proof"]["refused"]
    assert runtime["coverage"]["kernels"] == runtime["coverage"]["base"]
    # The full library has ten times the bytes; a tenth was reached, a fifth would be a fault.
    assert runtime["sizes"]["ratio"]["stripped"] > 5
    assert found["sizes"]["runtime"]["raw"] == runtime["sizes"]["reduced"]["stripped"]


def refused_outside(tmp_path: Path, store: Store, target: str, rapidocr: Path) -> None:
    """The recognizer is outside: at build time another closure, at run time an error by name."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "edge.toml").write_text(
        f'[model]\nname = "rec"\nsource = "{rapidocr / "PP-OCRv6_rec_small.onnx"}"\n'
        "[model.inputs.x]\nshape = [1, 3, 48, 320]\n"
    )
    planned = edge(other, store, "build", "-t", target, "--plan")
    assert planned.code == 0, planned.err
    folder = tmp_path / "dist" / "magika" / "0" / target
    mixed = tmp_path / "mixed"
    shutil.copytree(other / "dist" / "rec" / "0" / target, mixed)
    shutil.copytree(folder / "runtime", mixed / "runtime")
    (tmp_path / "root").mkdir()
    requires = json.loads((mixed / "manifest.json").read_text())["runtime"]["requires"]
    flag = requires.get("cpu_flags", "")
    machine = target.removesuffix("-reduced") + (f"+{flag}" if flag else "")
    words = emulator.words(machine, tmp_path / "root")
    words += [str(mixed / "runner" / "edge_runner"), "--bundle", str(mixed), "--check-only"]
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    ran = process.run(words, timeout=300, check=False, env=environment)
    with pytest.raises(errors.RunFailed) as caught:
        protocol.parse(ran.stdout)
    named = re.search(r"implementation for (\w+)\(\d+\)", caught.value.message)
    assert named, caught.value.message
    config = "required_operators_and_types.config"
    assert named[1] in (mixed / config).read_text()
