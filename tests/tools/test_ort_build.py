"""Carrying out a plan on this machine: what is run, with what, and what is said when it fails."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edge import errors
from edge.tools import ort_build, ort_source, plan_check
from edge.tools.ort_build import EPOCH, ROOT, STRAY, Sources, build, environment, failure, for_root
from edge.tools.reduced_plan import PROVIDERS, PYTHON, SETTINGS, Plan, Request, make_plan
from tests.tools import mini_ort
from tests.tools.test_fetch import deb_with

CLOSURE = "ai.onnx;14;Add\n"


# ------------------------------------------------------------------------------ the command
@pytest.mark.parametrize("platform", PROVIDERS)
def test_leave_for_root_reaches_build_py_and_changes_nothing_else(platform: str) -> None:
    plan = make_plan(Request("1.21.0", platform), CLOSURE)
    allowed = for_root(plan)
    plan_check.against_table(allowed)
    assert ROOT not in plan.to_json()
    if SETTINGS not in plan.files:
        assert allowed == replace(plan, build=(*plan.build, ROOT))
        return
    before, after = (json.loads(each.files[SETTINGS])["build_params"] for each in (plan, allowed))
    if platform == "android":
        assert after == [*before, ROOT]
    else:
        assert after == {**before, "base": [*before["base"], ROOT]}
    assert allowed.build == plan.build
    assert {name for name in plan.files if plan.files[name] != allowed.files[name]} == {SETTINGS}


# -------------------------------------------------------------------------- the environment
def test_the_users_flags_have_no_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in STRAY:
        monkeypatch.setenv(name, "-of-the-user")
    monkeypatch.setenv("ANDROID_HOME", "/opt/sdk")
    found = environment(tmp_path)
    assert not set(found) & set(STRAY)
    assert "-of-the-user" not in found.values()
    assert found["ANDROID_HOME"] == "/opt/sdk"
    assert found["SOURCE_DATE_EPOCH"] == EPOCH


def test_tools_beside_this_interpreter_come_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert environment(tmp_path)["PATH"] == f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"
    monkeypatch.delenv("PATH")
    assert environment(tmp_path)["PATH"].startswith(f"{Path(sys.executable).parent}{os.pathsep}")


@pytest.mark.parametrize("there", [True, False])
def test_ccache_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    (tmp_path / "ccache").write_text("#!/bin/sh\n")
    (tmp_path / "ccache").chmod(0o755 if there else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = environment(tmp_path / "work")
    assert (found.get("CMAKE_CXX_COMPILER_LAUNCHER") == "ccache") is there
    assert (found.get("CCACHE_BASEDIR") == str(tmp_path / "work")) is there


# ------------------------------------------------------------------------------ the failure
NINJA = """\
[1/3] Building CXX object a.o
\x1b[1mFAILED: core/b.o \x1b[0m
g++ -c b.cc
b.cc:3:1: \x1b[01;31m\x1b[Kerror: \x1b[mno such type
"""


def test_a_failure_is_told_from_the_first_failed_command_on() -> None:
    printed = "\x1b[0mquiet\n" + NINJA + "\n\nninja: stopped\n" + "later\n" * 100
    told = failure(printed).splitlines()
    assert told[:3] == ["FAILED: core/b.o ", "g++ -c b.cc", "b.cc:3:1: error: no such type"]
    assert len(told) == ort_build.SHOWN_LINES
    assert "\x1b" not in failure(printed)


def test_without_a_failed_command_the_last_lines_tell() -> None:
    lines = [f"line {n}" for n in range(40)]
    assert failure("\n".join(lines) + "\n\n \n").splitlines() == lines[-12:]
    assert failure("x" * 10_000) == "x" * 400
    assert failure("") == ""


# ------------------------------------------------------------------------------ the sources
def test_sources_and_dependencies_lie_where_the_plan_looks_for_them(tmp_path: Path) -> None:
    plan = make_plan(Request("1.21.0", "linux-x64", pinned=True), CLOSURE)
    (tmp_path / "gsl.deb").write_bytes(deb_with({"usr/include/gsl/gsl": b"// gsl\n"}))
    sources = Sources(mini_ort.tree(tmp_path / "s.tar.gz"), {"gsl": tmp_path / "gsl.deb"})
    sources.place("1.21.0", tmp_path / "work")
    assert (tmp_path / "work" / plan.build[1]).is_file()
    # The project that offers the headers joins them (see ort_cmake).
    assert (tmp_path / "work" / "dependencies" / "gsl" / "gsl" / "gsl").read_text() == "// gsl\n"
    assert "dependencies/gsl/CMakeLists.txt" in plan.files


def test_sources_of_another_release_are_refused_before_anything_is_run(tmp_path: Path) -> None:
    sources = Sources(mini_ort.tree(tmp_path / "s.tar.gz", "1.20.0"), {})
    with pytest.raises(
        errors.ConfigError, match=r"are ONNX Runtime 1\.20\.0, the target pins 1\.21\.0"
    ):
        build(mini_ort.plan("once"), sources, tmp_path / "work", tmp_path / "log")
    assert not (tmp_path / "log").exists()
    assert not (tmp_path / "work").exists()


# --------------------------------------------------------------------------------- building
def made(folder: Path, plan: Plan, name: str = "work") -> Path:
    (folder / name).mkdir()
    return build(plan, mini_ort.sources(folder), folder / name, folder / "new" / f"{name}.log")


@pytest.mark.process
def test_a_build_leaves_its_product_and_its_log(tmp_path: Path) -> None:
    product = made(tmp_path, mini_ort.plan("once"))
    assert product == tmp_path / "work" / "build" / "out" / "product"
    assert product.is_file()
    log = (tmp_path / "new" / "work.log").read_text()
    assert log.startswith("words --build_dir build --config it's; $(exit 9)")
    assert (ROOT in log) is (os.geteuid() == 0)


@pytest.mark.process
def test_a_folder_of_sources_gives_the_same_as_their_archive(tmp_path: Path) -> None:
    first = made(tmp_path, mini_ort.plan("once"), "first").read_bytes()
    tree = tmp_path / "tree"
    ort_source.unpack(mini_ort.tree(tmp_path / "s.tar.gz"), tree)
    (tmp_path / "second").mkdir()
    second = build(mini_ort.plan("once"), Sources(tree, {}), tmp_path / "second", tmp_path / "log")
    assert second.read_bytes() == first


@pytest.mark.process
def test_flags_of_the_user_do_not_change_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(tmp_path, mini_ort.plan("once"), "first").read_bytes()
    monkeypatch.setenv("CFLAGS", "-Ofast")
    assert made(tmp_path, mini_ort.plan("once"), "second").read_bytes() == first


@pytest.mark.process
@pytest.mark.parametrize(
    ("mode", "product", "said"),
    [
        ("fail 3", "product", "ended with exit code 3:\nFAILED: a.o\nfirst error\nxxx"),
        ("kill", "product", "ended with signal 9 (SIGKILL):\nwords --build_dir build"),
        ("nothing", "product", "ended well but left no product:\nwords --build_dir build"),
        ("once", "product.wasm", "ended well but left no product.wasm, product.mjs:\nwords"),
    ],
)
def test_a_build_that_fails_says_why_and_where_its_log_is(
    tmp_path: Path, mode: str, product: str, said: str
) -> None:
    with pytest.raises(errors.StepFailed) as caught:
        made(tmp_path, mini_ort.plan(mode, product))
    assert f"the build of ONNX Runtime 1.21.0 for android {said}" in caught.value.message
    assert caught.value.remedy == f"the whole log is {tmp_path / 'new' / 'work.log'}"
    assert (tmp_path / "new" / "work.log").is_file()


@pytest.mark.process
def test_a_wasm_without_its_glue_is_no_product(tmp_path: Path) -> None:
    plan = mini_ort.plan("once", "product.wasm")
    script = "import os; os.makedirs('build/out'); open('build/out/product.wasm', 'w').close()\n"
    plan = replace(plan, files={"make.py": script}, build=(PYTHON, "make.py"))
    with pytest.raises(errors.StepFailed, match=r"left no product\.mjs$"):
        made(tmp_path, plan)


@pytest.mark.process
def test_a_build_that_does_not_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_build, "TIMEOUT", 1.5)
    started = time.monotonic()
    with pytest.raises(errors.StepFailed, match=r"did not end within 1\.5 s") as caught:
        made(tmp_path, mini_ort.plan("sleep 60"))
    assert time.monotonic() - started < 30
    assert "work.log" in caught.value.remedy
