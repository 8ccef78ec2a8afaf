"""Canonical form: bound, constant, simplified, and proven to compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import errors, process
from edge.convert import canonical as module
from edge.convert.canonical import canonical
from edge.model import BoundInput
from tests import models
from tests.golden import drawn

SWITCHED = [
    BoundInput("x", "float32", (3,)).to_json(),
    BoundInput("mode", "int64", (), constant=1).to_json(),
]


def make(model: onnx.ModelProto, folder: Path, inputs: list[Any], *, bind: bool) -> dict[str, Any]:
    path = folder / "source.onnx"
    models.save(model, path)
    cases = drawn(folder / "inputs", inputs, count=2)
    (folder / "out").mkdir()
    facts = canonical.function(folder / "out", model=path, cases=cases, inputs=inputs, bind=bind)
    assert facts is not None
    return facts


def test_constant_inputs_and_their_branches_go(tmp_path: Path) -> None:
    facts = make(models.switched(), tmp_path, SWITCHED, bind=True)
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert [value.name for value in made.graph.input] == ["x"]
    assert [node.op_type for node in made.graph.node] == ["Add"]
    assert facts["max_abs"] == 0.0


@pytest.mark.parametrize(("bind", "shape"), [(True, [2, 4]), (False, ["batch", 4])])
def test_dimensions_are_bound_where_the_target_wants_it(
    tmp_path: Path, shape: list[Any], *, bind: bool
) -> None:
    facts = make(models.mlp(), tmp_path, [BoundInput("x", "float32", (2, 4)).to_json()], bind=bind)
    assert facts["inputs"][0]["shape"] == shape


def test_an_input_that_nothing_reads_stays(tmp_path: Path) -> None:
    """Token types and the like: callers and golden samples give them all the same."""
    inputs = [BoundInput(name, "float32", (4,)).to_json() for name in ("x", "z")]
    facts = make(models.unused(), tmp_path, inputs, bind=True)
    assert [port["name"] for port in facts["inputs"]] == ["x", "z"]


def test_a_simplifier_that_changes_results_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_simplify", lambda _model: models.mlp(scale=1.001))
    with pytest.raises(errors.StepFailed, match="computes another 'y'"):
        make(models.mlp(), tmp_path, [BoundInput("x", "float32", (2, 4)).to_json()], bind=False)


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([np.inf], [-np.inf], np.inf),
        ([100.0], [101.0], 0.01),
        ([0.0], [0.5], 0.5),
    ],
)
def test_differences(expected: list[float], actual: list[float], difference: float) -> None:
    found = module._difference(np.array(expected, np.float32), np.array(actual, np.float32))
    assert found == pytest.approx(difference)


def silero_inputs(samples_in: int = 576) -> list[dict[str, Any]]:
    return [
        BoundInput("input", "float32", (1, samples_in)).to_json(),
        BoundInput("state", "float32", (2, 1, 128)).to_json(),
        BoundInput("sr", "int64", (), constant=16000).to_json(),
    ]


def bound_but_not_simplified(source: Path, target: Path) -> None:
    """What any other tool would hand to ONNX Runtime (called in a child)."""
    model = onnx.load(source)
    for spec in silero_inputs(512):
        if spec["constant"] is not None:
            module._to_initializer(model.graph, spec)
        else:
            module._bind_shape(model.graph, spec)
    onnx.save(model, target)
    from edge.convert import run_model

    run_model.open_session(target, level="basic")


@pytest.mark.models
def test_silero_loses_all_its_branches(silero: Path, tmp_path: Path) -> None:
    source = onnx.load(silero / "silero_vad.onnx")
    facts = make(source, tmp_path, silero_inputs(), bind=True)
    made = onnx.load(tmp_path / "out" / "model.onnx")
    assert "If" not in {node.op_type for node in made.graph.node}
    assert facts["max_abs"] <= 1e-6


@pytest.mark.models
def test_a_runtime_that_dies_is_not_the_end_of_the_build(silero: Path, tmp_path: Path) -> None:
    """It reads memory that is not its own: mostly a crash, now and then an error of its own.

    That a crash is a failed step is shown in tests/test_process.py, with one that always happens.
    """
    arguments = {"source": silero / "silero_vad.onnx", "target": tmp_path / "m.onnx"}
    with pytest.raises((errors.StepFailed, errors.ModelRefused), match=r"SIGSEGV|SIGABRT|Inline"):
        process.run_python(
            "tests.convert.test_canonical:bound_but_not_simplified", arguments, timeout=60
        )
