"""Environments of their own: what may be asked for, and one that is really made."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, process
from edge.store import Store
from edge.tools import environment as module
from edge.tools.environment import Environment, environment, exact, parse, python_path

EXACT = ["six==1.17.0"]


@pytest.mark.parametrize(
    "requirement",
    [
        "tensorflow-cpu==2.21.0",
        "tf2onnx==1.17.0",
        "a==1",
        "A_b.c==1!2.0rc1.post1.dev2+cpu.x",
        "onnxruntime-gpu[cuda,cudnn]==1.31.1",
        "a[b_c-d]==1",
    ],
)
def test_exact_requirements_are_taken(requirement: str) -> None:
    assert requirement in parse([requirement]).values()


@pytest.mark.parametrize(
    "requirement",
    ["six", "six>=1", "six==1.*", "six===1", "six==1,<2", "six==1; python_version>'3'", "six ==1",
     "-r requirements.txt", "--index-url=https://x", "./six", "six @ https://x/six.whl", "/six",
     "six[]==1", "six[a, b]==1", "six[-a]==1", "six[a,]==1", "six[a]", "six[a][b]==1", "[a]==1",
     "six==1 --hash=x", "six==1\n--pre", "", "==1", "-six==1", "six==v1", "six=="],
)  # fmt: skip
def test_everything_else_is_refused_with_the_reason(requirement: str) -> None:
    with pytest.raises(errors.ConfigError, match="does not say one release") as caught:
        parse([requirement])
    assert "name==version" in caught.value.remedy


@given(st.text(max_size=60))
def test_no_requirement_is_an_option_or_a_path(text: str) -> None:
    try:
        (kept, *_) = parse([text]).values()
    except errors.ConfigError:
        return
    assert kept == text
    assert not set(text) & set(" /\\@;:<>~*'\"\n\r\t")
    assert not text.startswith("-")


def test_extras_are_no_part_of_the_name() -> None:
    wanted = parse(["ONNXRuntime_gpu[cuda,cudnn]==1.31.1"], {})
    assert wanted == {"onnxruntime-gpu": "ONNXRuntime_gpu[cuda,cudnn]==1.31.1"}
    assert exact("ONNXRuntime_gpu[cuda,cudnn]==1.31.1") == ("onnxruntime-gpu", "1.31.1")
    assert exact("six>=1") is None
    with pytest.raises(errors.ConfigError, match="are the same package"):
        parse(["six[a]==1", "six==1"])


def test_a_package_comes_once_and_at_least_one() -> None:
    with pytest.raises(errors.ConfigError, match="are the same package"):
        parse(["Tf_2onnx==1.0", "tf.2onnx==1.1"])
    assert parse(["six==1.0", "six==1.0"])["six"] == "six==1.0"
    with pytest.raises(errors.ConfigError, match="0 requirements"):
        parse([])
    with pytest.raises(errors.ConfigError, match="101 requirements"):
        parse([f"a{n}==1" for n in range(101)])


def test_what_the_steps_need_is_added_where_it_is_not_named() -> None:
    assert parse(EXACT) == {"six": EXACT[0], **module.NEEDED}
    named = parse(["NumPy==1.26.4", "onnxruntime-gpu==1.30.0"])
    assert named == {
        "numpy": "NumPy==1.26.4",
        "onnxruntime-gpu": "onnxruntime-gpu==1.30.0",
        "onnx": module.NEEDED["onnx"],
    }


def test_what_is_needed_may_be_nothing_or_something_else() -> None:
    assert parse(EXACT, {}) == {"six": EXACT[0]}
    assert parse(EXACT, {"numpy": "numpy>=2"}) == {"six": EXACT[0], "numpy": "numpy>=2"}


@pytest.mark.parametrize(
    ("requirement", "source"),
    [
        ("tensorrt-rtx==1.7.1.116", True),
        ("tensorrt-cu13==10.16.1.11", True),  # targets/tensorrt.toml; its libs fetch their wheel
        ("six==1.17.0", False),
    ],
)
def test_what_is_published_as_source_alone_is_built(
    requirement: str, source: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(process, "run", lambda words, **_: started.append(words))
    module._fill(tmp_path, parse([requirement], {}))
    (pip,) = [words for words in started if "install" in words]
    assert "--only-binary=:all:" in pip
    apart = [word.partition("=")[2].split(",") for word in pip if word.startswith("--no-binary=")]
    assert bool(apart) is source
    if apart:
        assert {"tensorrt-rtx", "tensorrt-rtx-cu13", "tensorrt-cu13", "tensorrt-cu13-libs"} == {
            *apart[0]
        }


def test_the_path_holds_this_package_alone(store: Store) -> None:
    folder = python_path(store)
    assert [each.name for each in folder.iterdir()] == ["edge"]
    assert (folder / "edge").resolve() == process.PACKAGE_PARENT / "edge"
    assert python_path(store) == folder


def test_where_it_lies_depends_on_all_that_pip_chooses_by(monkeypatch: pytest.MonkeyPatch) -> None:
    first = module._key({"six": "six==1.17.0"})
    assert module._key({"six": "six==1.16.0"}) != first
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert module._key({"six": "six==1.17.0"}) != first


# ------------------------------------------------------------------------------- real ones
@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is added: what the steps need is 60 MB."""
    monkeypatch.setattr(module, "NEEDED", {})


def told(made: Environment, code: str) -> Any:
    """What Python code prints in an environment, as JSON."""
    variables = process._child_environment(None, made)
    done = process.run([made.python, "-P", "-c", code], timeout=60, env=variables)
    return json.loads(done.stdout)


@pytest.mark.process
@pytest.mark.usefixtures("bare")
def test_an_environment_is_made_once_and_mended(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(process.PACKAGE_PARENT))
    (tmp_path / "venv.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    made = environment(store, EXACT)
    python = told(made, "import platform, json; print(json.dumps(platform.python_version()))")
    assert made.versions == {"six": "1.17.0", "python": python}

    with monkeypatch.context() as patched:
        patched.setattr(process, "run", lambda *_a, **_k: pytest.fail("made again"))
        assert environment(store, EXACT) == made

    # Neither this environment's packages nor the PYTHONPATH reach it, but for edge itself.
    code = (
        "import json, importlib.util as u, edge.errors, edge.step, edge.process, six\n"
        "import edge.store, edge.sources.factory, edge.sources.framework, edge.samples\n"
        "print(json.dumps([bool(u.find_spec(n)) for n in ('pydantic', 'numpy', 'pip', 'tests')]))"
    )
    assert told(made, code) == [False] * 4

    # What a killed build leaves has another name; what was damaged is made again.
    folder = made.python.parent.parent
    stale = folder.with_name(f".{folder.name}.stale")
    stale.mkdir()
    for site in folder.rglob("six-*.dist-info"):
        shutil.rmtree(site)
    assert environment(store, EXACT) == made
    assert not stale.exists()
    made.python.unlink()
    made.python.symlink_to(tmp_path / "a-python-that-was-removed")
    assert environment(store, EXACT) == made
    assert [each.name for each in folder.parent.iterdir() if each.name.startswith(".")] == []


@pytest.mark.process
@pytest.mark.usefixtures("bare")
def test_two_that_want_it_make_it_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    run = process.run

    def counted(words: list[str], **options: Any) -> process.Completed:
        started.append(words[3])
        return run(words, **options)

    monkeypatch.setattr(process, "run", counted)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: environment(store, EXACT), range(2))
    assert first == second
    assert started == ["venv", "pip"]


@pytest.mark.process
@pytest.mark.usefixtures("bare")
def test_a_step_runs_there_and_its_errors_come_back(store: Store, tmp_path: Path) -> None:
    made = environment(store, EXACT)
    (tmp_path / "net.py").write_text("import six, numpy\ndef make(): return six\n")
    arguments = {"source": tmp_path / "net.py", "factory": "net:make"}
    address = "edge.sources.factory:make"
    with pytest.raises(errors.ToolMissing, match=r"imports numpy \(net\.py:1\)"):
        process.run_python(address, arguments, timeout=60, environment=made)


@pytest.mark.process
@pytest.mark.usefixtures("bare")
def test_what_pip_cannot_bring_is_said_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(errors.ToolMissing, match=r"six==0\.0\.1") as caught:
        environment(store, ["six==0.0.1"])
    assert "\n" not in caught.value.message
    assert list((store.root / "environments").glob("*")) == []


@pytest.mark.process
@pytest.mark.usefixtures("bare")
def test_packages_that_went_elsewhere_are_not_taken_for_installed(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pip.conf").write_text(f"[install]\ntarget = {tmp_path / 'elsewhere'}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(errors.StepFailed, match="did not install into the environment"):
        environment(store, EXACT)
