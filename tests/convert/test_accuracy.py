"""The user's metric on an artifact: batches, constants, and what is no number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.convert.accuracy import (
    Accuracy,
    artifact_accuracy,
    in_batches,
    scored,
    with_constants,
)
from edge.model import BoundInput
from tests import models

Array = np.ndarray[Any, Any]


def ports(**shapes: list[int | str | None]) -> list[dict[str, Any]]:
    return [{"name": name, "dtype": "float32", "shape": shape} for name, shape in shapes.items()]


BATCHED = {"inputs": ports(x=["batch", 3], shift=[3]), "outputs": ports(y=["batch", 3])}
EXPORTED = {"inputs": ports(x=["batch", 4]), "outputs": ports(y=["batch", 3])}


def metric(folder: Path, body: str, name: str) -> Path:
    """A module of its own for each test: Python keeps what it has imported."""
    path = folder / f"{name}.py"
    path.write_text(f"import numpy as np\n\ndef score(run):\n    {body}\n")
    return path


@given(rows=st.integers(1, 40), batch=st.integers(1, 9))
def test_any_number_of_rows_is_fed_in_bound_batches(rows: int, batch: int) -> None:
    seen = []

    def run(case: Mapping[str, Array]) -> dict[str, Array]:
        seen.append(case["x"].shape)
        return {"y": case["x"] * 2 + case["shift"]}

    whole = in_batches(run, {"x": [batch, 3], "shift": [3]}, BATCHED)
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    shift = np.ones(3, np.float32)
    np.testing.assert_array_equal(whole({"x": x, "shift": shift})["y"], x * 2 + 1)
    assert set(seen) == {(batch, 3)}
    assert len(seen) == -(-rows // batch)


def test_a_symbolic_batch_is_fed_whole() -> None:
    calls = []

    def run(case: Mapping[str, Array]) -> dict[str, Array]:
        calls.append(1)
        return {"y": case["x"]}

    in_batches(run, {"x": ["batch", 3]}, BATCHED)({"x": np.zeros((7, 3), np.float32)})
    assert len(calls) == 1


@pytest.mark.parametrize(
    "outputs",
    [ports(y=["batch", 3], state=[1, 3]), ports(y=["length", 3]), ports(y=[None, 3])],
    ids=["an output without it", "another symbol", "unknown"],
)
def test_rows_that_are_no_batch_are_not_cut(outputs: list[dict[str, Any]]) -> None:
    """A model that sums over its rows would give another sum for every piece."""
    whole = in_batches(dict, {"x": [2, 3]}, {"inputs": BATCHED["inputs"], "outputs": outputs})
    with pytest.raises(errors.ModelRefused, match="they are no batch"):
        whole({"x": np.zeros((8, 3), np.float32)})


def test_constants_are_the_projects_whoever_gives_them() -> None:
    inputs = [BoundInput("scale", "float32", (), constant=2.0).to_json()]
    run = with_constants(lambda case: {"y": case["x"] * case["scale"]}, inputs)
    x = np.ones(3, np.float32)
    cases: list[dict[str, Any]] = [{"x": x}, {"x": x, "scale": np.float32(7)}]
    for case in cases:
        np.testing.assert_array_equal(run(case)["y"], x * 2)


def test_an_artifact_is_scored_by_the_metric(mlp: Path, tmp_path: Path) -> None:
    body = "return float(run({'x': np.ones((5, 4), np.float32)})['y'].shape[0])"
    facts = artifact_accuracy.function(
        tmp_path,
        model=mlp,
        metric=metric(tmp_path, body, "scoring_rows"),
        score="scoring_rows:score",
        reads={},
        inputs=[],
        exported=EXPORTED,
    )
    assert facts == {"accuracy": 5.0}


def test_constants_that_the_model_still_has_are_fed(tmp_path: Path) -> None:
    """An ONNX source has them, its artifacts do not; the metric knows of neither."""
    path = tmp_path / "switched.onnx"
    models.save(models.switched(), path)
    inputs = [
        BoundInput("x", "float32", (3,)).to_json(),
        BoundInput("mode", "int64", (), constant=1).to_json(),
    ]
    body = "return run({'x': np.ones(3, np.float32)})['y'].sum()"
    facts = artifact_accuracy.function(
        tmp_path,
        model=path,
        metric=metric(tmp_path, body, "scoring_constants"),
        score="scoring_constants:score",
        reads={},
        inputs=inputs,
        exported=EXPORTED,
    )
    assert facts == {"accuracy": 6.0}


@pytest.mark.parametrize(
    ("name", "value"), [("text", "'good'"), ("nan", "np.nan"), ("nothing", "None")]
)
def test_what_is_no_number_is_said(tmp_path: Path, name: str, value: str) -> None:
    path = metric(tmp_path, f"return {value}", f"scoring_{name}")
    with pytest.raises(errors.ModelRefused, match="no finite number"):
        scored(lambda _case: {}, path, f"scoring_{name}:score")


def test_a_metric_that_fails_is_said_with_its_line(tmp_path: Path) -> None:
    path = metric(tmp_path, "return 1 / 0", "scoring_failing")
    with pytest.raises(errors.ModelRefused, match=r"the metric .*scoring_failing\.py:4"):
        scored(lambda _case: {}, path, "scoring_failing:score")


def test_what_was_lost_needs_both_figures() -> None:
    assert Accuracy("m:f", 0.9, 0.8).drop == pytest.approx(0.1)
    assert Accuracy("m:f", 0.9, None).drop is None
    assert Accuracy().to_json() is None
