"""The canonical form: neither the order of nodes nor any name reaches the bytes."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge.sources.tensorflow_canonical import canonical
from edge.sources.tensorflow_inputs import natural, short, unique


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])


def sample(name: dict[str, str], order: list[int], *, through_identity: bool) -> onnx.ModelProto:
    """x -> If(sum > 0): x * two + h else h, and h = Relu(x); a dead node beside them."""
    then = helper.make_graph(
        [
            helper.make_node("Mul", [name["x"], name["two"]], [name["m"]]),
            helper.make_node("Add", [name["m"], name["h"]], [name["s"]]),
        ],
        "then",
        [],
        [value(name["s"])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", [name["h"]], [name["o"]])], "else", [], [value(name["o"])]
    )
    nodes = [
        helper.make_node("Relu", [name["x"]], [name["h"]], name=name["r"]),
        helper.make_node("ReduceSum", [name["x"]], [name["t"]], keepdims=0),
        helper.make_node("Greater", [name["t"], name["zero"]], [name["c"]]),
        helper.make_node("If", [name["c"]], [name["y"]], then_branch=then, else_branch=other),
        helper.make_node("Sqrt", [name["x"]], [name["dead"]]),
        helper.make_node("Identity", [name["h"]], [name["k"]]),
    ]
    second = name["k"] if through_identity else name["h"]
    constants = [
        numpy_helper.from_array(np.array(2, np.float32), name["two"]),
        numpy_helper.from_array(np.array(0, np.float32), name["zero"]),
    ]
    graph = helper.make_graph(
        [nodes[n] for n in order], "g", [value(name["x"])],
        [value(name["y"]), value(second), value(name["x"])], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


KEYS = ("x", "two", "zero", "m", "h", "s", "o", "r", "t", "c", "y", "dead", "k")
PLAIN = {key: key for key in KEYS}


def form(model: onnx.ModelProto) -> bytes:
    made = canonical(model, ["x"], ["y", "h", "again"])
    return bytes(made.SerializeToString(deterministic=True))


@given(st.permutations(range(6)), st.randoms(use_true_random=False), st.booleans())
def test_order_and_names_do_not_matter(
    order: list[int], generator: random.Random, through_identity: bool
) -> None:
    numbers = list(range(len(KEYS)))
    generator.shuffle(numbers)
    names = {key: f"n{number}__7" for key, number in zip(KEYS, numbers, strict=True)}
    plain = sample(PLAIN, list(range(6)), through_identity=False)
    assert form(sample(names, order, through_identity=through_identity)) == form(plain)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_canonical_form_computes_the_same(sign: int) -> None:
    model = sample(PLAIN, [0, 1, 2, 3, 4, 5], through_identity=True)
    made = canonical(model, ["x"], ["y", "h", "again"])
    onnx.checker.check_model(made, full_check=True)
    assert "Sqrt" not in [node.op_type for node in made.graph.node]
    x = sign * np.array([1, 2, -0.5], np.float32)
    session = ort.InferenceSession(made.SerializeToString())
    y, h, again = session.run(["y", "h", "again"], {"x": x})
    relu = np.maximum(x, 0)
    np.testing.assert_array_equal(h, relu)
    np.testing.assert_array_equal(again, x)
    np.testing.assert_array_equal(y, x * 2 + relu if sign > 0 else relu)


def test_other_weights_are_other_bytes() -> None:
    model = sample(PLAIN, [0, 1, 2, 3, 4, 5], through_identity=False)
    before = form(model)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(3, np.float32), "two"))
    assert form(model) != before


def test_an_output_may_be_called_as_an_internal_value_would_be() -> None:
    model = sample(PLAIN, [0, 1, 2, 3, 4, 5], through_identity=False)
    made = canonical(model, ["Relu_0_out_0"], ["If_0_out_0", "constant_0", "h"])
    onnx.checker.check_model(made, full_check=True)
    assert [output.name for output in made.graph.output] == ["If_0_out_0", "constant_0", "h"]


def test_natural_order_counts() -> None:
    names = ["output_10", "output_2", "b", "output_1", "a9", "a10"]
    assert sorted(names, key=natural) == ["a9", "a10", "b", "output_1", "output_2", "output_10"]


@given(st.lists(st.text(max_size=6)))
def test_natural_order_takes_any_name(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural)) == sorted(names)


@given(st.lists(st.sampled_from(["a", "a_1", "b", ""])), st.lists(st.sampled_from(["a", "b_1"])))
def test_unique_names_are_unique(names: list[str], taken: list[str]) -> None:
    made = unique(names, taken)
    assert len(made) == len(names)
    assert len(set(made) | set(taken)) == len(made) + len(set(taken))
    assert "" not in made


@given(st.text())
def test_an_error_in_short_is_one_printable_line(text: str) -> None:
    said = short(ValueError(f"in user code:\n{text}\nValueError: \x1b[1mwrong\x1b[0m shape\n"))
    assert "ValueError: " in said
    assert not any(ord(character) < 32 for character in said)
    assert len(said) <= 300
