"""ONNX's own backend node tests, through the frontend and the executor: right or refused by name.

An input that the frontend wants constant (a shape, axes, pads) is bound to the test's value. Tests
of opsets that are not released yet are read as opset 26, where the operator is the same.
"""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edge import errors
from edge.convert import mil_executor
from edge.convert.onnx_to_mil import registry
from tests.convert.onnx_to_mil.programs import computed

# Gone since opset 10, which these tests do not go back to.
UNTESTED = {"Upsample"}
BOUND = ("must be constant", "no fixed shape")


@dataclass(frozen=True)
class Outcome:
    """What became of a test: passed, wrong, refused, unverified or none of ours."""

    name: str
    state: str
    reason: str
    operators: frozenset[str]


def _arrays(values: Any) -> list[Any] | None:
    """The tensors of a data set; None where one is a sequence, an optional or a map."""
    found = []
    for value in values:
        array = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        if not isinstance(array, np.ndarray | np.generic):
            return None
        found.append(np.asarray(array))
    return found


def _bound(model: onnx.ModelProto, inputs: list[Any], names: set[str]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [port for port in made.graph.input if port.name not in names]
    for port, array in zip(model.graph.input, inputs, strict=True):
        if port.name in names:
            made.graph.initializer.append(numpy_helper.from_array(array, port.name))
    del made.graph.input[:]
    made.graph.input.extend(kept)
    return made


def _close(wanted: Any, found: Any, rtol: float, atol: float) -> bool:
    half = wanted.dtype == np.float16
    return bool(
        wanted.shape == found.shape
        and np.allclose(
            wanted.astype(np.float64),
            found.astype(np.float64),
            rtol=max(rtol, 1e-3 if half else 1e-5),
            atol=max(atol, 1e-3 if half else 1e-5),
            equal_nan=True,
        )
    )


def _attempt(case: Any, model: onnx.ModelProto) -> tuple[str, str]:
    inputs, outputs = (_arrays(each) for each in case.data_sets[0])
    if inputs is None or outputs is None:
        return "not applicable", "no tensors"
    feeds = {port.name: a for port, a in zip(model.graph.input, inputs, strict=True)}
    for names in (set(), {port.name for port in model.graph.input[1:]}):
        try:
            found = computed(_bound(model, inputs, names), feeds, target="iOS17")
        except errors.ModelRefused as error:
            if any(mark in error.message for mark in BOUND) and not names:
                continue
            return "refused", error.message
        except mil_executor.Unverified as error:
            return "unverified", error.message
        pairs = zip(outputs, found, strict=True)
        right = all(_close(w, f, case.rtol, case.atol) for w, f in pairs)
        return ("passed" if right else "wrong"), ""
    return "refused", "an input must be constant"


def _outcome(case: Any) -> Outcome:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kinds = frozenset(node.op_type for node in model.graph.node)
    if {each.domain for each in model.opset_import} - {"", "ai.onnx"}:
        return Outcome(case.name, "not applicable", "another domain", kinds)
    for each in model.opset_import:
        each.version = min(each.version, registry.NEWEST)
    state, reason = _attempt(case, model)
    return Outcome(case.name, state, reason, kinds)


@functools.cache
def outcomes() -> tuple[Outcome, ...]:
    """All of them: about 1,900 tests in ten seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests' own data overflow and divide by zero
        from onnx.backend.test.case.node import collect_testcases

        return tuple(_outcome(case) for case in collect_testcases(None))


def named(state: str) -> dict[str, str]:
    return {each.name: each.reason for each in outcomes() if each.state == state}


def test_none_is_wrong() -> None:
    assert named("wrong") == {}


def test_the_executor_knows_all_that_the_frontend_emits() -> None:
    assert named("unverified") == {}


def test_most_tests_of_covered_operators_pass() -> None:
    # onnx 1.23.2: 1,129 pass, 692 are refused, 63 do not apply (docs/coreml.md).
    assert len(named("passed")) >= 1129


def test_every_refusal_says_why() -> None:
    known = re.compile(
        r"no rule for|no fixed shape|which Core ML does not hold|MIL |must be constant|empty tensor"
        r"|at most 5|training_mode|No Op registered|Unrecognized attribute|rules are for"
        r"|6 dimensions|floats need fmod|runtimes differ in what it means"
    )
    assert {name: text for name, text in named("refused").items() if not known.search(text)} == {}


def test_a_refusal_is_never_a_malformed_model() -> None:
    # That is what a fault of ours would look like: these models are all well formed.
    assert [name for name, text in named("refused").items() if "malformed" in text] == []
    assert [name for name, text in named("refused").items() if "cannot be computed" in text] == []


@pytest.mark.parametrize("name", sorted(set(registry.operators()) - UNTESTED))
def test_every_operator_passes_some(name: str) -> None:
    assert any(each.state == "passed" and name in each.operators for each in outcomes())
