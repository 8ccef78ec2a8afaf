"""Values of a graph: names, readers, order, captures, magnitudes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from edge import errors
from edge.convert import graph_values

NESTED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[3] x, bool c) => (float[3] y) {
  [a] u = Relu(x)
  [b] y = If (c) <
    then_branch = t () => (float[3] p) {
      k = Add(u, x)
      p = If (c) <then_branch = i () => (float[3] q) { q = Mul(k, u) },
                  else_branch = j () => (float[3] r) { r = Neg(k) }>
    },
    else_branch = e () => (float[3] s) <float[3] w = {1, 2, 3}> { s = Mul(u, w) }>
}"""


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def test_captures_are_what_comes_from_outside_at_any_depth() -> None:
    node = model(NESTED).graph.node[1]
    assert graph_values.captured(node) == ("u", "x", "c")


def test_a_capture_that_was_renamed_is_read_under_its_new_name() -> None:
    made = model(NESTED)
    exposed = graph_values.expose_captures(made.graph)
    assert list(made.graph.node[1].input) == ["c", "u", "x", "c"]
    made.graph.node[0].output[0] = made.graph.node[1].input[1] = "other"
    graph_values.hide_captures(made.graph, exposed)
    assert list(made.graph.node[1].input) == ["c"]
    assert graph_values.captured(made.graph.node[1]) == ("other", "x", "c")
    onnx.checker.check_model(made, full_check=True)


def test_walking_meets_every_graph() -> None:
    names = sorted(body.name for body in graph_values.walk(model(NESTED).graph))
    assert names == ["e", "g", "i", "j", "t"]


def test_every_node_gets_a_name_of_its_own() -> None:
    made = model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x) => (float[3] y) {
      [same] a = Relu(x)
      [same] b = Relu(a)
      c = Relu(b)
      [Relu_2] d = Relu(c)
      [own] y = Relu(d)
    }""")
    graph_values.name_nodes(made.graph)
    assert [node.name for node in made.graph.node] == [
        "same_0", "same_1", "Relu_2_", "Relu_2", "own",
    ]  # fmt: skip


def test_constants_become_initializers_of_the_same_values() -> None:
    made = model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x) => (float[3] y, float z) {
      a = Constant<value_float = 2.5>()
      b = Constant<value_ints = [3]>()
      c = Constant<value = float[3] {1, 2, 3}>()
      z = Constant<value_float = 7.0>()
      d = Reshape(x, b)
      e = Mul(d, a)
      y = Add(e, c)
    }""")
    graph_values.constants_to_initializers(made.graph)
    found = {n: onnx.numpy_helper.to_array(t)
             for n, t in graph_values.initializers(made.graph).items()}  # fmt: skip
    assert {name: array.tolist() for name, array in found.items()} == {
        "a": 2.5, "b": [3], "c": [1.0, 2.0, 3.0],
    }  # fmt: skip
    assert [found[name].dtype.name for name in "abc"] == ["float32", "int64", "float32"]
    onnx.checker.check_model(made, full_check=True)


def test_initializers_are_no_inputs() -> None:
    made = model("""<ir_version: 3, opset_import: ["" : 17]>
    g (float[3] x, float[3] w) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }""")
    graph_values.drop_initializer_inputs(made)
    assert [value.name for value in made.graph.input] == ["x"]
    assert made.ir_version == 4


@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_shuffled_nodes_come_back_in_an_order_that_holds(
    count: int, generator: random.Random
) -> None:
    """A random graph without cycles, in random order: after sorting all that is read is there."""
    nodes = []
    for index in range(count):
        read = [f"v{generator.randrange(index)}" for _ in range(min(index, 2))] or ["x"]
        nodes.append(onnx.helper.make_node("Sum", read, [f"v{index}"], name=f"n{index}"))
    generator.shuffle(nodes)
    body = onnx.helper.make_graph(nodes, "g", [], [])
    graph_values.sort_nodes(body)
    known = {"x"}
    for node in body.node:
        assert set(node.input) <= known
        known.update(node.output)
    assert sorted(node.name for node in body.node) == sorted(f"n{i}" for i in range(count))


def test_what_is_in_order_stays_as_it_is() -> None:
    made = model(NESTED)
    graph_values.expose_captures(made.graph)
    graph_values.sort_nodes(made.graph)
    assert [node.name for node in made.graph.node] == ["a", "b"]


def test_a_cycle_is_an_error() -> None:
    nodes = [onnx.helper.make_node("Relu", ["b"], ["a"]), onnx.helper.make_node("Relu", "a", "b")]
    with pytest.raises(errors.StepFailed, match="cycle"):
        graph_values.sort_nodes(onnx.helper.make_graph(nodes, "g", [], []))


@pytest.mark.parametrize("chunk", [1, 2**26])
def test_magnitudes_are_those_of_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Also where every value has a run of its own, and for types that ONNX does not infer."""
    monkeypatch.setattr(graph_values, "CHUNK_BYTES", chunk)
    made = model("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[3] x, int64[3] n) => (float[3] y) <float[3] w = {10, 100, 1000}> {
      a = Mul(x, w)
      b = com.microsoft.BiasGelu(a, w)
      m = Cast<to = 1>(n)
      y = Div(b, m)
    }""")
    cases: list[dict[str, Any]] = [
        {"x": np.array([1, 2, sign * 3], np.float32), "n": np.array([1, 2, 2], np.int64)}
        for sign in (1, -1)
    ]
    values = graph_values.types(made, tmp_path)
    assert {name: value.type for name, value in values.items()} == {
        "x": "tensor(float)", "n": "tensor(int64)", "w": "tensor(float)", "a": "tensor(float)",
        "b": "tensor(float)", "m": "tensor(float)", "y": "tensor(float)",
    }  # fmt: skip
    found = graph_values.largest(made, values, cases, tmp_path)
    assert found == {"x": 3, "a": 3000, "b": 4000, "m": 2, "y": 2000}


@pytest.mark.parametrize(
    ("array", "size"), [([1, -5], 5), ([np.inf, 2], 2), ([np.nan], 0), ([], 0)]
)
def test_magnitudes_count_finite_values(array: list[float], size: float) -> None:
    assert graph_values.magnitude(np.array(array, np.float32)) == size
