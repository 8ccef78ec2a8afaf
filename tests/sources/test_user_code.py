"""User code is called, and its failures are said in one line with their place."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.sources.factory import find
from edge.sources.user_code import framework_of, make, parse
from tests.sources.python_project import write


# ----------------------------------------------------------------------------------- names
@given(st.text(max_size=40))
def test_a_name_is_parsed_whole_or_refused(text: str) -> None:
    try:
        module, name = parse(text)
    except errors.UsageError:
        return
    assert f"{module}:{name}" == text
    assert all(part.isidentifier() for part in [*module.split("."), *name.split(".")])


NAME = st.from_regex(r"[a-z_][a-z0-9_]{0,8}(\.[A-Za-z][a-z0-9_]{0,8}){0,3}", fullmatch=True)


@given(NAME, NAME)
def test_dotted_names_are_taken_apart(module: str, name: str) -> None:
    assert parse(f"{module}:{name}") == (module, name)


@pytest.mark.parametrize(
    "source",
    ["", ":", "m", "m:", ":f", "a:b:c", "a b:c", "a.:b", ".a:b", "a-b:c", "a:b()", "a/b:c",
     "../a:b", "a.__init__:b", "a:b..c", "a\n:b"],
)  # fmt: skip
def test_malformed_names_are_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"package\.module:callable"):
        find(source, tmp_path)


# --------------------------------------------------------------------------------- the call
@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, in which user code may change this process as it likes."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("path", "path_hooks", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    return folder


def made(project: Path, text: str, name: str = "net:make") -> Any:
    write(project, net=text)
    return make(find(name, project), name)


def refused(project: Path, text: str, name: str = "net:make") -> errors.EdgeError:
    with pytest.raises(errors.EdgeError) as caught:
        made(project, text, name)
    assert "\n" not in caught.value.message
    assert caught.value.remedy
    return caught.value


def test_what_the_callable_returns_is_the_model(project: Path) -> None:
    assert made(project, "def make(size=3): return [size]") == [3]


def test_a_method_of_a_class_in_a_package_is_called(project: Path) -> None:
    write(project, pkg_in___init__="", pkg_in_net=(
        "from pkg import part\nclass Net:\n @classmethod\n def build(cls): return part.VALUE\n"
    ), pkg_in_part="VALUE = 7")  # fmt: skip
    assert make(find("pkg.net:Net.build", project), "pkg.net:Net.build") == 7
    assert make(find("pkg.net:Net", project), "pkg.net:Net").__class__.__name__ == "Net"
    assert not list(project.rglob("__pycache__"))


def test_it_runs_in_the_project_wherever_edge_was_started(project: Path) -> None:
    (project / "weights.txt").write_text("w")
    here = Path.cwd()
    assert (
        made(
            project, "from pathlib import Path\ndef make(): return Path('weights.txt').read_text()"
        )
        == "w"
    )
    assert Path.cwd() == here


def test_random_weights_are_the_same_each_time(project: Path) -> None:
    text = "import random\nimport numpy as np\ndef make(): return random.random(), np.random.rand()"
    assert made(project, text) == make(project / "net.py", "net:make")


def test_bytecode_that_is_older_than_its_source_is_not_run(project: Path) -> None:
    """Saved twice in one second with the same size: Python would take the old bytecode."""
    helper = write(project, part="VALUE = 1\n") / "part.py"
    py_compile.compile(str(helper))
    time = helper.stat().st_mtime_ns
    helper.write_text("VALUE = 2\n")
    os.utime(helper, ns=(time, time))
    assert made(project, "import part\ndef make(): return part.VALUE") == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def make():\n    return {}['a']", "net.py:2: KeyError: 'a'"),
        ("def make():\n    raise ValueError('one\\ntwo')", "net.py:2: ValueError: one two"),
        ("import json\ndef make():\n    json.loads('{')", "net.py:3: JSONDecodeError: "),
        ("def make(:\n  pass", "net.py:1: SyntaxError: "),
        ("1 / 0", "net.py:1: ZeroDivisionError"),
        ("import sys\nsys.exit('usage')", "ended the process (net.py:2: exit usage)"),
        ("from json import nothing_like_it", "net.py:1: ImportError"),
        ("def make(): pass", "returned None"),
        ("async def make(): pass", "returned a coroutine"),
        ("def make(): yield 1", "returned a coroutine or generator"),
        ("def make(a, *, b): pass", "missing a required argument: 'a'"),
        ("make = 3", "is no function, but builtins.int"),
        ("import onnx\nmake = onnx.ModelProto()", "is no function, but onnx.onnx_ml_pb2"),
        ("def __getattr__(name):\n    raise OSError('odd')", "net.py:2: OSError: odd"),
        ("def make(): raise ValueError('x' * 10_000)", "xxx..."),
    ],
)
def test_failures_of_user_code_are_said_with_their_place(
    text: str, says: str, project: Path
) -> None:
    error = refused(project, text)
    assert isinstance(error, errors.ModelRefused)
    assert says in error.message
    assert len(error.message) < 700


def test_a_missing_function_says_which_is_meant(project: Path) -> None:
    error = refused(project, "def make_model(): pass", "net:make_modle")
    assert error.message == "the source net:make_modle: there is no make_modle in net"
    assert error.remedy == "did you mean 'make_model'?"


@pytest.mark.parametrize(
    ("text", "kind", "remedy"),
    [
        ("import no_such_thing.inner", errors.ToolMissing, "pip install no_such_thing, or"),
        ("import pkg.gone", errors.ModelRefused, "correct the import, or add pkg.gone"),
    ],
)
def test_a_missing_import_names_module_and_remedy(
    text: str, kind: type[errors.EdgeError], remedy: str, project: Path
) -> None:
    write(project, pkg_in___init__="")
    error = refused(project, f"\n{text}")
    assert type(error) is kind
    assert "(net.py:2), which is not there" in error.message
    assert error.remedy.startswith(remedy)


def test_a_missing_framework_names_the_extra(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "skops"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if "site-packages" not in p])
    error = refused(project, "import skops.io")
    assert "pip install 'edgewright[sklearn]'" in error.remedy


def test_a_name_that_is_taken_is_said(project: Path) -> None:
    write(project, json="def make(): return 1")
    with pytest.raises(errors.UsageError, match=r"module json is not .*json\.py: Python imports"):
        make(project / "json.py", "json:make")


def test_a_file_of_another_name_is_not_the_module(project: Path) -> None:
    write(project, a_in_net="")
    with pytest.raises(errors.UsageError, match="is not the file of the module"):
        make(project / "a" / "net.py", "b.net:make")


# -------------------------------------------------------------------------------- frameworks
def test_models_are_told_by_their_type() -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    assert framework_of(onnx.ModelProto()) == "onnx"
    assert framework_of(sklearn.LogisticRegression()) == "sklearn"
    assert framework_of((sklearn.LogisticRegression(), 1)) == ""
    assert framework_of({"a": 1}) == ""
    assert framework_of(()) == ""


def test_torch_modules_come_alone_or_with_inputs() -> None:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(1, 1)
    assert framework_of(linear) == "torch"
    assert framework_of((linear, torch.zeros(1, 1))) == "torch"
    assert framework_of([linear]) == ""
