"""Every rule with a smallest node that it takes and smallest nodes that it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.convert.coreml_provider.judge import ROWS, judge
from edge.convert.coreml_provider.rule import Params
from edge.convert.coreml_provider.view import graphs
from tests.convert.coreml_provider.cases import ML, NN, One, ints, one
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


@pytest.mark.parametrize(
    ("since", "reason"),
    [(27, ""), (28, "opset 28, taken from 1 to 27"), (0, "opset 0, taken from 1 to 27")],
)
def test_the_newest_opset(since: int, reason: str) -> None:
    node = replace(one("Identity", "f32 4").node(), since=since)
    assert judge(node, ML) == reason


@pytest.mark.parametrize(("raw", "reason"), [(True, "noop_with_empty_axes"), (False, "")])
def test_axes_in_raw_data_count_as_none(reason: str, *, raw: bool) -> None:
    made = one("ReduceSum", "f32 4", ints(0), noop_with_empty_axes=1).model()
    if not raw:
        made.graph.initializer[0].ClearField("raw_data")
        made.graph.initializer[0].int64_data.append(0)
    assert judge(graphs(made)[0].nodes[0], NN) == reason


def test_every_row_is_taken_and_refused_once_at_least() -> None:
    assert {node.kind for node, _ in TAKEN} == set(ROWS)
    # Nothing but the checks that all share is asked of these.
    plain = {"Sigmoid", "Tanh", "LeakyRelu", "Reciprocal", "Sqrt", "Sub", "Mul", "Div", "Identity",
             "Transpose", "AveragePool", "GlobalAveragePool", "ReduceMean", "InstanceNormalization",
             "GroupNormalization"}  # fmt: skip
    assert {node.kind for node, _, _ in REFUSED} >= set(ROWS) - plain
