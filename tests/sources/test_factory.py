"""Python code as a source: found without being imported, and all that it reads in the key."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge import errors, process
from edge.job import PENDING, Steps
from edge.sources import factory
from edge.sources.factory import closure, find, trace
from edge.step import Step
from edge.store import Result, Store
from tests.sources.python_project import write

MODEL = """
    from onnx import TensorProto, helper
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    node = helper.make_node("Identity", ["x"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [x], [y]))
"""


# ----------------------------------------------------------------------------------- names
def test_modules_and_packages_of_the_project_are_found(tmp_path: Path) -> None:
    write(tmp_path, net="", pkg_in___init__="", pkg_in_deep="", plain_in_net="")
    assert find("net:make", tmp_path) == tmp_path / "net.py"
    assert find("pkg:Class.method", tmp_path) == tmp_path / "pkg" / "__init__.py"
    assert find("pkg.deep:make", tmp_path) == tmp_path / "pkg" / "deep.py"
    assert find("plain.net:make", tmp_path) == tmp_path / "plain" / "net.py"


def test_installed_modules_are_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write(tmp_path / "site", there_in___init__="raise SystemExit", there_in_inner="1 / 0")
    monkeypatch.syspath_prepend(site)
    assert find("there.inner:f", tmp_path) == site / "there" / "inner.py"
    assert find("there:f", tmp_path) == site / "there" / "__init__.py"
    assert "there" not in sys.modules


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("digit:make", "did you mean 'digits'?"),
        ("pkg.modle:make", "did you mean 'model'?"),
        ("zzz:make", "known: digits, pkg"),
    ],
)
def test_a_missing_module_says_which_there_are(source: str, remedy: str, tmp_path: Path) -> None:
    write(tmp_path, digits="", pkg_in___init__="", pkg_in_model="")
    with pytest.raises(errors.UsageError, match="there is no Python module") as caught:
        find(source, tmp_path)
    assert caught.value.remedy == remedy


def test_a_built_in_module_has_no_file(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="is no Python file"):
        find("sys:exit", tmp_path)


# ----------------------------------------------------------------------------------- closure
class Project:
    """A project with a factory, over a real store."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.steps = Steps(store, lambda _release: None)

    def closure(self, *extra: str, dry: bool = False) -> factory.Traced:
        self.steps = Steps(self.steps.store, self.steps.overlay, dry)
        wish = factory.Wish(extra)
        return closure(self.steps, find("net:make", self.folder), "net:make", self.folder, wish)

    @property
    def runs(self) -> int:
        """How often the user's code ran for the last closure."""
        return len(self.steps.made)


@pytest.fixture
def real(tmp_path: Path) -> Project:
    write(
        tmp_path / "project",
        net="from parts import names\n"
        "from pathlib import Path\n"
        "HERE = Path(__file__).parent\n"
        f"def make():\n    (HERE / 'data' / names.WEIGHTS).read_bytes()\n{MODEL}",
        # Looks for distributions in every folder of sys.path, which is no input.
        parts_in___init__="import importlib.metadata as m\nm.version('numpy')\n",
        parts_in_names="WEIGHTS = 'weights.bin'\n",
        unrelated="1 / 0",
    )
    (tmp_path / "project" / "data").mkdir()
    (tmp_path / "project" / "data" / "weights.bin").write_bytes(b"w1")
    (tmp_path / "project" / "data" / "other.bin").write_bytes(b"o1")
    return Project(tmp_path / "project", Store(tmp_path / "store"))


READ = ["data/weights.bin", "parts/__init__.py", "parts/names.py"]


@pytest.mark.process
def test_all_that_the_code_reads_goes_into_the_key(real: Project) -> None:
    traced = real.closure()
    assert [name for name, _ in traced.source.companions] == READ
    assert traced.framework == "onnx"
    assert traced.outside == ()
    assert traced.packages["onnx"] == onnx.__version__
    assert traced.packages["python"].startswith("3.")
    assert not {"edgewright", "pytest"} & set(traced.packages)
    assert real.runs == 2
    assert str(real.folder) not in "".join(
        path.read_text() for path in real.steps.store.root.glob("objects/*/*/result.json")
    )
    assert not list(real.folder.rglob("__pycache__"))


@pytest.mark.process
def test_what_other_models_make_meanwhile_is_not_counted(
    real: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are prepared at once, and their steps share the record of what was made."""
    shared: list[Result] = []
    alone = Steps.run

    def beside_others(steps: Steps, step: Step, arguments: Any, **more: Any) -> Result:
        done = alone(steps, step, arguments, **more)
        shared.extend([done] * 10)
        return done

    monkeypatch.setattr(Steps, "run", beside_others)
    steps = Steps(real.steps.store, real.steps.overlay, made=shared)
    path = find("net:make", real.folder)
    traced = closure(steps, path, "net:make", real.folder, factory.Wish())
    assert [name for name, _ in traced.source.companions] == READ
    assert len(shared) == 22  # two traces, joined to the shared record, and the others'


@pytest.mark.process
def test_a_warm_store_runs_nothing_and_gives_the_same_key(real: Project) -> None:
    first = real.closure()
    last = real.steps.used
    assert real.closure() == first
    assert real.runs == 0
    assert [each.key for each in real.steps.used] == [each.key for each in last]
    (real.folder / "data" / "other.bin").write_bytes(b"o2")
    write(real.folder, unrelated="2 / 0", new="")
    assert real.closure() == first
    assert real.runs == 0


@pytest.mark.process
def test_a_changed_helper_or_weight_is_seen(real: Project) -> None:
    first = real.closure()
    (real.folder / "data" / "weights.bin").write_bytes(b"w2")
    second = real.closure()
    assert real.runs == 1
    assert second.source.identity() != first.source.identity()
    write(real.folder, parts_in_names="WEIGHTS = 'other.bin'\n")
    third = real.closure()
    assert dict(third.source.companions).keys() == {"data/other.bin", *READ[1:]}
    assert real.runs > 0
    # The files of before belong to the first hint alone now, and are no input any more.
    (real.folder / "data" / "weights.bin").unlink()
    assert real.closure().source == third.source
    write(real.folder, parts_in_names="WEIGHTS = 'weights.bin'\n")
    (real.folder / "data" / "weights.bin").write_bytes(b"w1")
    assert real.closure() == first
    assert real.runs == 0


@pytest.mark.process
def test_the_manifest_does_not_depend_on_what_the_store_saw_before(
    real: Project, tmp_path: Path
) -> None:
    write(real.folder, parts_in_names="WEIGHTS = 'other.bin'\n")
    real.closure()
    write(real.folder, parts_in_names="WEIGHTS = 'weights.bin'\n")
    real.closure()
    fresh = Project(real.folder, Store(tmp_path / "fresh"))
    fresh.closure()
    assert [each.key for each in real.steps.used] == [each.key for each in fresh.steps.used]


@pytest.mark.process
def test_a_removed_file_fails_as_it_would_for_the_first_time(real: Project) -> None:
    real.closure()
    (real.folder / "data" / "weights.bin").unlink()
    with pytest.raises(errors.ModelRefused, match=r"net\.py:5: FileNotFoundError"):
        real.closure()


@pytest.mark.process
def test_what_appears_is_seen_where_the_code_looked_for_it(real: Project) -> None:
    write(
        real.folder,
        net="try:\n    from parts import fast\nexcept ImportError:\n    fast = None\n"
        "try:\n    import quick\nexcept ImportError:\n    quick = None\n"
        "from pathlib import Path\nHERE = Path(__file__).parent\n"
        "def make():\n"
        "    try:\n        (HERE / 'tuned.json').read_text()\n"
        "    except FileNotFoundError:\n        pass\n"
        f"    sorted((HERE / 'data').glob('*.bin'))\n{MODEL}",
    )
    first = real.closure()
    assert list(first.listed) == ["data"]
    for name in ("parts/fast.py", "quick/__init__.py", "tuned.json"):
        (real.folder / name).parent.mkdir(exist_ok=True)
        (real.folder / name).write_text("")
        now = real.closure()
        assert real.runs > 0
        assert name in dict(now.source.companions)
    (real.folder / "data" / "more.bin").write_bytes(b"")
    assert real.closure().listed != first.listed
    assert real.runs > 0
    shutil.rmtree(real.folder / "quick")
    assert "quick/__init__.py" not in dict(real.closure().source.companions)


@pytest.mark.process
def test_a_package_in_another_version_runs_the_code_again(
    real: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.closure()
    known = metadata.version
    monkeypatch.setattr(
        "edge.sources.factory.metadata.version",
        lambda name: "99" if name == "onnx" else known(name),
    )
    real.closure()  # the true version is what its process says
    assert real.runs > 0


@pytest.mark.process
def test_a_file_outside_the_project_has_to_be_declared(real: Project, tmp_path: Path) -> None:
    outside = tmp_path / "cache" / "hub" / "weights.bin"
    outside.parent.mkdir(parents=True)
    outside.write_bytes(b"a")
    write(real.folder, net=f"def make():\n    open({str(outside)!r}).close()\n{MODEL}")
    with pytest.raises(errors.ModelRefused, match="outside of the project") as caught:
        real.closure()
    assert f'files = ["{outside}"]' in caught.value.remedy
    first = real.closure(str(outside))
    assert [each["name"] for each in first.outside] == ["weights.bin"]
    assert [each["name"] for each in real.closure("../cache").outside] == ["cache/hub/weights.bin"]
    outside.write_bytes(b"b")
    second = real.closure(str(outside))
    assert real.runs > 0
    assert second.parameters() != first.parameters()


@pytest.mark.process
def test_settings_that_a_framework_reads_are_in_the_key(
    real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = tmp_path / ".keras" / "keras.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    write(
        real.folder,
        net="import os\ndef make():\n"
        f"    open(os.path.expanduser('~/.keras/keras.json')).close()\n{MODEL}",
    )
    first = real.closure()
    assert [each["name"] for each in first.outside] == ["~/.keras/keras.json"]
    assert real.closure() == first
    assert real.runs == 0
    settings.write_text('{"floatx": "float16"}')
    assert real.closure().outside != first.outside
    assert real.runs > 0


@pytest.mark.process
def test_declared_files_of_the_project_are_always_in_the_key(real: Project) -> None:
    first = real.closure("data/other.bin")
    assert [name for name, _ in first.source.companions] == ["data/other.bin", *READ]
    (real.folder / "data" / "other.bin").write_bytes(b"o2")
    assert real.closure("data/other.bin").source != first.source
    with pytest.raises(errors.UsageError, match=r"names data/otter\.bin, which is not there"):
        real.closure("data/otter.bin")


@pytest.mark.process
def test_a_dry_run_runs_nothing_and_is_pending_until_it_was_built(real: Project) -> None:
    cold = real.closure(dry=True)
    assert (cold.source.sha256, cold.framework, real.runs) == (PENDING, "", 0)
    assert [each.key for each in real.steps.used] == [PENDING]
    built = real.closure()
    assert real.closure(dry=True) == built
    write(real.folder, parts_in_names="WEIGHTS = 'other.bin'  # changed\n")
    changed = real.closure(dry=True)
    assert (changed.source.sha256, changed.framework) == (PENDING, "onnx")


@pytest.mark.process
def test_a_factory_that_reads_anything_each_time_is_refused(real: Project) -> None:
    write(
        real.folder,
        net="import os, pathlib, uuid\ndef make():\n"
        "    path = pathlib.Path(__file__).with_name(uuid.uuid4().hex)\n"
        f"    path.write_text('x')\n    path.read_text()\n{MODEL}",
    )
    with pytest.raises(errors.ModelRefused, match="other files each time"):
        real.closure()


@pytest.mark.process
def test_what_is_no_model_is_refused(real: Project) -> None:
    write(real.folder, net="def make(): return {'weights': 1}")
    with pytest.raises(errors.ModelRefused, match=r"returned a builtins\.dict, no model"):
        real.closure()


@pytest.mark.process
def test_a_crash_is_a_failed_step(real: Project) -> None:
    write(real.folder, net="import os, signal\ndef make(): os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(errors.StepFailed, match="SIGSEGV"):
        real.closure()


@pytest.mark.process
def test_a_fitted_estimator_and_its_file_are_traced(real: Project) -> None:
    pytest.importorskip("sklearn")
    write(
        real.folder,
        net="import pathlib, pickle\nfrom sklearn.tree import DecisionTreeClassifier\n"
        "def make():\n    return pickle.loads(pathlib.Path('tree.pkl').read_bytes())\n",
        train="import pickle\nfrom sklearn.datasets import load_iris\n"
        "from sklearn.tree import DecisionTreeClassifier\n"
        "tree = DecisionTreeClassifier(max_depth=2).fit(*load_iris(return_X_y=True))\n"
        "pickle.dump(tree, open('tree.pkl', 'wb'))\n",
    )
    process.run([sys.executable, "-W", "ignore", "train.py"], timeout=120, cwd=real.folder)
    traced = real.closure()
    assert traced.framework == "sklearn"
    assert [name for name, _ in traced.source.companions] == ["tree.pkl"]
    assert {"scikit-learn", "scipy", "numpy"} <= set(traced.packages)


@pytest.mark.process
def test_modules_of_an_editable_install_are_user_files(real: Project, tmp_path: Path) -> None:
    """As a ``.pth`` or ``PYTHONPATH`` has it: on the path, and in no site-packages."""
    library = write(tmp_path / "library" / "src", shared="VALUE = 1")
    write(
        real.folder,
        net=f"import sys\nsys.path.append({str(library)!r})\nimport shared\ndef make():\n{MODEL}",
    )
    with pytest.raises(errors.ModelRefused, match=r"shared\.py, outside of the project"):
        real.closure()
    first = real.closure("../library/src")
    write(library, shared="VALUE = 2")
    assert real.closure("../library/src").outside != first.outside


def test_the_trace_is_a_step_in_a_process_of_its_own() -> None:
    assert trace.isolated
