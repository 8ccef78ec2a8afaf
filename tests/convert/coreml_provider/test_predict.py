"""Whole models: subgraphs, shapes, initializers, and the step that writes it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge import errors
from edge.convert.coreml_partitions import coreml_partitions
from edge.convert.coreml_provider import ROWS, Options, checked, predict
from tests import models
from tests.convert.small_models import constant, conv_relu, model, value

STATIC = Options(require_static_input_shapes=True)


def if_relu() -> onnx.ModelProto:
    """x, a captured weight -> If(c): relu(x * w), else: sqrt(x * w)."""
    branches = [
        helper.make_graph(
            [
                helper.make_node("Mul", ["x", "w"], [f"{name}_p"]),
                helper.make_node(kind, [f"{name}_p"], [f"{name}_y"]),
            ],
            name,
            [],
            [value(f"{name}_y", [4])],
        )
        for name, kind in (("then", "Relu"), ("else", "Sqrt"))
    ]
    chosen = helper.make_node(
        "If", ["c"], ["y"], name="if", then_branch=branches[0], else_branch=branches[1]
    )
    inputs = [value("x", [4]), value("c", [], TensorProto.BOOL)]
    return model([chosen], inputs, [value("y", [4])], [constant("w", np.ones(4))])


def test_subgraphs_stay_on_the_cpu_unless_asked_for() -> None:
    found = predict(if_relu(), Options(), coreml=7)
    assert (len(found.nodes), found.taken, found.partitions) == (5, 0, 0)
    assert found.refused()["Mul"] == {"in a subgraph, EnableOnSubgraphs is 0": 2}


def test_subgraphs_are_partitioned_each() -> None:
    found = predict(if_relu(), Options(enable_on_subgraphs=True), coreml=7)
    assert [(each.graph, each.partition) for each in found.nodes] == [
        ("", None),
        ("if/else_branch", 0),
        ("if/else_branch", 0),
        ("if/then_branch", 1),
        ("if/then_branch", 1),
    ]
    assert found.partitions == 2


def test_shapes_that_are_computed_from_shapes_are_known() -> None:
    nodes = [
        helper.make_node("Shape", ["like"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    made = model(nodes, [value("x", [8]), value("like", [2, 4])], [value("y", [2, 4])])
    found = predict(made, STATIC, coreml=5)
    assert [each.partition is not None for each in found.nodes] == [True, False, True]


def test_a_model_without_nodes_has_no_share() -> None:
    found = predict(model([], [value("x", [4])], [value("x", [4])]), Options(), coreml=5)
    assert (found.nodes, found.share, found.partitions) == ((), 0.0, 0)


def test_dynamic_shapes_are_taken_unless_static_ones_are_required() -> None:
    assert predict(models.mlp(), Options(), coreml=5).share == 1.0
    found = predict(models.mlp(), STATIC, coreml=5)
    assert found.refused() == {
        "Gemm": {"shape of input 0 dynamic, RequireStaticInputShapes is 1": 1},
        "Relu": {"shape of input 0 dynamic, RequireStaticInputShapes is 1": 1},
    }


@pytest.mark.parametrize(("ir_version", "taken"), [(3, 2), (4, 1), (10, 1)])
def test_an_initializer_that_is_an_input_is_constant_in_old_files_only(
    ir_version: int, taken: int
) -> None:
    made = conv_relu()
    made.graph.input.append(value("w", [16, 8, 3, 3]))
    made.ir_version = ir_version
    assert predict(made, Options(model_format="NeuralNetwork"), coreml=5).taken == taken


def test_a_constant_node_is_an_initializer() -> None:
    made = conv_relu()
    (weight,) = made.graph.initializer
    node = helper.make_node("Constant", [], ["w"], value=weight)
    made.graph.node.insert(0, node)
    del made.graph.initializer[:]
    found = predict(made, Options(model_format="NeuralNetwork"), coreml=5)
    assert (len(found.nodes), found.taken) == (2, 2)


def test_a_needed_value_in_another_file_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    shape = constant("s", [2, 2], np.int64)
    made = model(nodes, [value("x", [4])], [value("y", [2, 2])], [shape])
    models.save(made, tmp_path / "m.onnx", external="m.data")
    loaded = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(errors.ModelRefused, match="external file"):
        predict(loaded, Options(), coreml=5)


def test_the_step_writes_every_node_down(tmp_path: Path) -> None:
    models.save(conv_relu(), tmp_path / "m.onnx")
    options = {"ModelFormat": "NeuralNetwork"}
    facts = coreml_partitions.function(
        tmp_path, model=tmp_path / "m.onnx", options=options, ios="15.1"
    )
    assert facts is not None
    written = json.loads((tmp_path / "coreml.json").read_text("utf-8"))
    assert written["node"][0] == {
        "graph": "", "index": 0, "name": "conv", "operator": "Conv", "partition": 0, "reason": "",
    }  # fmt: skip
    for found in (facts, written):
        assert {key: found[key] for key in ("nodes", "taken", "share", "partitions")} == {
            "nodes": 2, "taken": 2, "share": 1.0, "partitions": 1,
        }  # fmt: skip
        assert (found["coreml"], found["release"], found["unverified"]) == (5, "1.29.0", True)
        assert found["options"]["ModelFormat"] == "NeuralNetwork"


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    models.save(if_relu(), tmp_path / "m.onnx")
    written = []
    for name in ("a", "b"):
        out = tmp_path / name
        out.mkdir()
        coreml_partitions.function(out, model=tmp_path / "m.onnx", options={}, ios="17")
        written.append((out / "coreml.json").read_bytes())
    assert written[0] == written[1]


def refusal(tmp_path: Path, made: onnx.ModelProto) -> str:
    models.save(made, tmp_path / "m.onnx")
    with pytest.raises(errors.ModelRefused) as raised:
        coreml_partitions.function(tmp_path, model=tmp_path / "m.onnx", options={}, ios="15.1")
    return raised.value.message


def test_a_graph_with_a_cycle_is_refused(tmp_path: Path) -> None:
    made = conv_relu()
    made.graph.node[0].input[0] = "y"
    made.graph.node.append(helper.make_node("Relu", ["x"], ["beside"]))
    assert refusal(tmp_path, made) == "the graph has a cycle"


def test_a_constant_without_a_value_is_refused(tmp_path: Path) -> None:
    made = conv_relu()
    made.graph.node.append(onnx.NodeProto(op_type="Constant", output=["k"]))
    assert "not a valid ONNX model" in refusal(tmp_path, made)


def test_a_node_whose_inputs_do_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a"], ["y"], name="cut")]
    known = [constant("s", [0], "i8"), constant("e", [1], "i8"), constant("a", [0, 1], "i8")]
    made = model(nodes, [value("x", [4, 4])], [value("y", [1, 1])], known)
    assert refusal(tmp_path, made).startswith("node 'cut' (Slice) is no valid one")


DIMS = st.lists(st.integers(-1, 3), max_size=6)
NUMBERS = st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2, 4, 2**62]), max_size=5)
INPUTS = st.one_of(
    st.tuples(st.sampled_from([1, 6, 7, 9, 10]), DIMS),
    st.builds(lambda numbers: np.array(numbers, np.int64), NUMBERS),
    st.just(np.array([np.nan, np.inf], np.float32)),
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["axis", "axes", "split", "pads", "mode", "perm", "kernel_shape", "to"]),
    st.one_of(st.integers(-9, 9), st.lists(st.integers(-9, 9), min_size=1), st.text(max_size=9)),
    max_size=3,
)


@given(st.sampled_from(sorted(ROWS)), st.lists(INPUTS, max_size=5), ATTRIBUTES, st.integers(1, 27))
def test_no_node_gets_anything_but_a_verdict_or_a_refusal(
    kind: str, inputs: list[Any], attributes: dict[str, Any], opset: int
) -> None:
    names = [f"x{at}" for at in range(len(inputs))]
    ports, known = [], []
    for name, each in zip(names, inputs, strict=True):
        if isinstance(each, tuple):
            ports.append(value(name, each[1], each[0]))
        else:
            known.append(numpy_helper.from_array(each, name))
    node = helper.make_node(kind, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", ports, [value("y", None)], known)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    for model_format in ("MLProgram", "NeuralNetwork"):
        copy = onnx.ModelProto.FromString(made.SerializeToString())
        try:
            found = predict(copy, checked({"ModelFormat": model_format}), coreml=5)
        except errors.ModelRefused:
            continue
        (verdict,) = found.nodes
        assert (verdict.partition is None) == bool(verdict.reason)


def test_operators_are_named_by_their_domain_where_it_is_not_onnx_s() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], domain="ai.onnx"),
        helper.make_node("FusedGemm", ["a"], ["b"], domain="com.microsoft"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [4])], [value("b", [4])])
    opsets = [helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("com.microsoft", 1)]
    found = predict(helper.make_model(graph, opset_imports=opsets), Options(), coreml=5)
    assert [each.operator for each in found.nodes] == ["Neg", "com.microsoft:FusedGemm"]


def test_a_node_without_a_name_is_named_by_its_place(tmp_path: Path) -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a"], ["y"])]
    known = [constant("s", [0], "i8"), constant("e", [1], "i8"), constant("a", [0, 1], "i8")]
    made = model(nodes, [value("x", [4, 4])], [value("y", [1, 1])], known)
    assert refusal(tmp_path, made).startswith("node 0 (Slice) is no valid one")


def test_operators_that_onnx_runtime_puts_beside_onnx_s_own() -> None:
    """Its fusions write them so, with an opset in which ONNX has none of the name."""
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", [2, 4])], [value("y", [2, 4])], [constant("s", np.ones(4))]
    )
    graph.value_info.append(value("a", [2, 4]))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    found = predict(made, Options(), coreml=5)
    assert [each.partition for each in found.nodes] == [None, 0]
