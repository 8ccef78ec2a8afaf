"""Packages run by the executor in the samples' own names and types, and what they then score."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import errors, process, samples
from edge.convert import coremltools_library, mil_executor
from edge.convert.coreml_run import (
    RUNTIME,
    Golden,
    coreml_accuracy,
    held,
    read,
    run_coreml,
)
from edge.convert.golden_sqnr import LOWEST_DB
from edge.convert.mil_package import PACKAGE
from tests.convert.coreml_setup import Setup, parsed
from tests.convert.golden_setup import drawn

# coremltools leaves the folder that it writes weights to for Python to remove.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Implicitly cleaning up:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def ports() -> onnx.ModelProto:
    """Names that are none in MIL, int64, a scalar and booleans: all that an app has to map."""
    text = (
        'g (float[2,3] "in/x:0", int64[2] index, float k, bool[2,3] "on off")'
        ' => (float[2,3] "out/y", int64[2,3] count, bool[2,3] both)'
        '{ g0 = Gather <axis = 0> ("in/x:0", index) "out/y" = Mul(g0, k)'
        '  count = Cast <to = 7> ("on off") h = Greater(g0, k) both = And(h, "on off") }'
    )
    return parsed(text)


def case(seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        "in/x:0": drawn(seed, 2, 3),
        "index": generator.integers(0, 2, 2),
        "k": np.array(generator.random(), np.float32),
        "on off": generator.random((2, 3)) > 0.5,
    }


def ran(setup: Setup, head: Path) -> tuple[Path, dict[str, Any]]:
    out = setup.place(f"run-{sum(1 for _ in setup.folder.iterdir())}")
    facts = run_coreml.function(out, model=head, golden=setup.golden)
    assert facts is not None
    return out, facts


def test_outputs_have_the_models_own_names_types_and_shapes(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", ports(), [case(1), case(2)])
    out, facts = ran(setup, setup.plain())
    assert facts == {"runtime": RUNTIME, "not_finite": [], "unverified": ""}
    for role in samples.ROLES:
        wanted, found = (samples.cases(place, role) for place in (setup.golden.parent, out))
        for one, other in zip(wanted, found, strict=True):
            assert list(one) == list(other)
            for name, array in one.items():
                assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
                np.testing.assert_allclose(array, other[name], rtol=1e-6)


def test_ports_say_both_names_and_what_core_ml_holds(tmp_path: Path) -> None:
    package = read(Setup(tmp_path / "m", ports(), [case(1)]).plain().parent)
    told = {port["onnx"]: (port["dtype"], port["held"], port["shape"]) for port in package.inputs}
    assert told == {
        "in/x:0": ("float", "float32", [2, 3]),
        "index": ("int64", "int32", [2]),
        "k": ("float", "float32", [1]),
        "on off": ("bool", "int32", [2, 3]),
    }
    assert all(port["name"].isidentifier() for port in (*package.inputs, *package.outputs))


def test_64_bits_that_32_do_not_hold_are_no_silent_wrap(tmp_path: Path) -> None:
    port = {"onnx": "i", "name": "i", "held": "int32", "shape": [1], "scalar": False}
    assert held(port, {"i": np.array([2**31 - 1])}).dtype == np.int32
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(errors.RunFailed, match="'i' has values that 32 bits do not hold"):
            held(port, {"i": np.array([value])})
    with pytest.raises(errors.RunFailed, match="have no input 'i'"):
        held(port, {})


def test_another_shape_of_as_many_elements_is_no_silent_reshape() -> None:
    port = {"onnx": "x", "name": "x", "held": "float32", "shape": [2, 3], "scalar": False}
    with pytest.raises(errors.RunFailed, match=r"'x' has the shape \(3, 2\), not \(2, 3\)"):
        held(port, {"x": drawn(1, 3, 2)})
    scalar = {**port, "shape": [1], "scalar": True}
    assert held(scalar, {"x": np.array(2.0)}).shape == (1,)
    with pytest.raises(errors.RunFailed, match=r"\(1,\), not \(\)"):
        held(scalar, {"x": np.ones(1)})


def unknown(*_words: Any, **_more: Any) -> Any:
    raise mil_executor.Unverified("y: the executor does not know the operation odd")


def test_an_operation_that_is_not_known_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(tmp_path / "m", ports(), [case(1)])
    head = setup.plain()
    monkeypatch.setattr(mil_executor, "run", unknown)
    out, facts = ran(setup, head)
    assert facts["unverified"] == "y: the executor does not know the operation odd"
    assert list(out.iterdir()) == []
    assert Golden(setup.golden.parent).judge(head.parent).unverified == facts["unverified"]


def test_a_package_of_others_is_refused(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", ports(), [case(1)])
    head = setup.plain()
    spec = head.parent / "Data" / "com.apple.CoreML" / "model.mlmodel"
    spec.write_bytes(spec.read_bytes().replace(b"edgewright.ports", b"edgewright.parts"))
    with pytest.raises(errors.ModelRefused, match="does not say which ports"):
        read(head.parent)


def test_the_worst_output_is_judged(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", ports(), [case(1), case(2)])
    head = setup.plain()
    golden = setup.golden.parent
    assert Golden(golden).judge(head.parent).db > 100
    found = list(zip(*(samples.cases(golden, role) for role in samples.ROLES), strict=True))
    found[1][1]["out/y"] = np.full((2, 3), np.nan, np.float32)
    samples.write(golden, found)
    assert Golden(golden).judge(head.parent).db == LOWEST_DB


METRIC = """
import numpy as np

def right(run):
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    return float((run({"x": x})["y"] > 0).mean())
"""


def test_the_users_metric_runs_on_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    setup = Setup(tmp_path / "m", made, [{"x": drawn(1, 2, 3)}])
    (tmp_path / "metric.py").write_text(METRIC)
    exported = {
        "inputs": [{"name": "x", "shape": ["batch", 3]}],
        "outputs": [{"name": "y", "shape": ["batch", 3]}],
    }
    given: dict[str, Any] = {
        "model": setup.plain(), "metric": tmp_path / "metric.py", "score": "metric:right",
        "reads": {}, "inputs": [], "exported": exported,
    }  # fmt: skip
    facts = coreml_accuracy.function(tmp_path, **given)
    assert facts is not None
    assert math.isclose(facts["accuracy"], 7 / 15)
    monkeypatch.setattr(mil_executor, "run", unknown)
    assert coreml_accuracy.function(tmp_path, **given) == {"accuracy": None}


# What the step's process finds in place of each framework: it leaves a mark where it is imported.
FRAMEWORK = "import pathlib\npathlib.Path(__file__).with_suffix('.mark').touch()\n"
IMPORTS = """
import importlib
import pathlib

def right(run):
    folder, names = pathlib.Path(__file__).parent / "frameworks", {names}
    if marks := sorted(path.name for path in folder.glob("*.mark")):
        raise ValueError(f"imported by the step: {{marks}}")
    for name in names:
        importlib.import_module(name)
    return len(list(folder.glob("*.mark"))) / len(names)
"""


@pytest.mark.process
def test_a_step_imports_no_framework_and_the_users_metric_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    setup = Setup(tmp_path / "m", made, [{"x": drawn(1, 2, 3)}])
    names = [name for names in coremltools_library.FRAMEWORKS.values() for name in names]
    (tmp_path / "frameworks").mkdir()
    for name in names:
        (tmp_path / "frameworks" / f"{name}.py").write_text(FRAMEWORK)
    (tmp_path / "metric.py").write_text(IMPORTS.format(names=names))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "frameworks"))
    facts = process.run_python(
        "edge.convert.coreml_run:coreml_accuracy.function",
        {"out": tmp_path, "model": setup.plain(), "metric": tmp_path / "metric.py",
         "score": "metric:right", "reads": {}, "inputs": [],
         "exported": {"inputs": [], "outputs": []}},
        timeout=120,
    )  # fmt: skip
    assert facts == {"accuracy": 1.0}


def test_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    made = parsed("g (float[2] x) => (float[2] y) { z = Sub(x, x) y = Div(x, z) }")
    setup = Setup(tmp_path / "m", made, [{"x": np.ones(2, np.float32)}])
    assert ran(setup, setup.plain())[1]["not_finite"] == ["y"]
    assert (setup.folder / "plain" / PACKAGE).is_dir()
