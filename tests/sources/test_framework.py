"""What every framework does alike: names by place, golden outputs, and their determinism."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import errors, samples
from edge.model import BoundInput
from edge.sources.framework import named, refuse_swapped, write_golden

Array = np.ndarray[Any, Any]
INPUTS = [
    BoundInput("x", "float32", (2,)).to_json(),
    BoundInput("rate", "int64", (), constant=16).to_json(),
]


def cases(folder: Path) -> Path:
    case = {"x": np.ones(2, np.float32), "rate": np.array(16)}
    samples.write(folder / "cases", [(case, {})])
    return folder / "cases" / samples.INDEX


def golden(folder: Path, run: Any, names: list[str]) -> Any:
    return write_golden(folder / "out", run, cases=cases(folder), inputs=INPUTS, names=names)


def test_outputs_are_named_by_place_and_constants_left_out(tmp_path: Path) -> None:
    def run(case: Mapping[str, Array]) -> list[Array]:
        return [case["x"] * case["rate"], case["x"] + np.inf]

    facts = golden(tmp_path, run, ["y", "z"])
    assert facts == {"samples": 1, "not_finite": ["z"]}
    (given,), (found,) = (samples.cases(tmp_path / "out", role) for role in ("input", "output"))
    assert list(given) == ["x"]
    np.testing.assert_array_equal(found["y"], np.full(2, 16))


def test_a_model_that_changes_its_mind_is_refused(tmp_path: Path) -> None:
    number = count()

    def run(case: Mapping[str, Array]) -> list[Array]:
        return [case["x"] + next(number)]

    with pytest.raises(errors.ModelRefused, match="other outputs each time"):
        golden(tmp_path, run, ["y"])


def test_other_outputs_than_the_exported_model_has_are_said() -> None:
    with pytest.raises(errors.StepFailed, match="gives 1 outputs, the exported model 2: y, z"):
        named([np.zeros(1)], ["y", "z"])


@pytest.mark.parametrize("wanted", [["logits", "features"], ["a", "features"], [], ["x", "y"]])
def test_new_names_and_those_in_place_are_taken(wanted: list[str]) -> None:
    refuse_swapped(["logits", "features"], wanted)


@pytest.mark.parametrize("wanted", [["features", "logits"], ["x", "logits"]])
def test_names_that_would_swap_outputs_are_refused(wanted: list[str]) -> None:
    """A dict's keys in another order are no wish for other tensors under those names."""
    with pytest.raises(errors.UsageError, match="the model's own name for output") as caught:
        refuse_swapped(["logits", "features"], wanted)
    assert "logits, features" in caught.value.remedy
