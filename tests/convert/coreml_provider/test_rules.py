"""Every rule with a smallest node that it takes and smallest nodes that it refuses."""

from __future__ import annotations

import pytest

from edge.convert.coreml_provider.judge import ROWS
from edge.convert.coreml_provider.rule import Params
from tests.convert.coreml_provider.cases import One
from tests.convert.coreml_provider.refused import REFUSED
from tests.convert.coreml_provider.taken import TAKEN


def title(case: tuple[object, ...]) -> str:
    node, params = case[:2]
    assert isinstance(node, One)
    assert isinstance(params, Params)
    return f"{node.kind}-{'ml' if params.mlprogram else 'nn'}{params.coreml}"


@pytest.mark.parametrize("case", TAKEN, ids=title)
def test_taken(case: tuple[One, Params]) -> None:
    node, params = case
    assert node.reason(params) == ""


@pytest.mark.parametrize("case", REFUSED, ids=title)
def test_refused(case: tuple[One, Params, str]) -> None:
    node, params, reason = case
    assert node.reason(params) == reason


def test_every_row_is_taken_and_refused_once_at_least() -> None:
    assert {node.kind for node, _ in TAKEN} == set(ROWS)
    # Nothing but the checks that all share is asked of these.
    plain = {"Sigmoid", "Tanh", "LeakyRelu", "Reciprocal", "Sqrt", "Sub", "Mul", "Div", "Identity",
             "Transpose", "AveragePool", "GlobalAveragePool", "ReduceMean", "InstanceNormalization",
             "GroupNormalization"}  # fmt: skip
    assert {node.kind for node, _, _ in REFUSED} >= set(ROWS) - plain
