"""Closures of ONNX files: read from the graph, and held against what the runtime makes of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from edge import errors
from edge.closure.text import render
from edge.convert import onnx_closure
from edge.convert import operator_closure as oc
from tests.convert import small_models
from tests.convert.small_models import model, value

FLOAT = '{"inputs": {"0": ["float"]}}'


def text_of(path: Path) -> list[str]:
    return render(onnx_closure.read(path)[0], types=True).splitlines()


def saved(folder: Path, made: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(made, path)
    return path


def by_runtime(path: Path, out: Path, *, ort_format: bool, level: str = "ORT_DISABLE_ALL") -> Path:
    """What the runtime saves of the graph that it would run."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    settings.optimized_model_filepath = str(out)
    if ort_format:
        settings.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return out


@pytest.mark.parametrize("name", sorted(small_models.all_models()))
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED"])
def test_an_optimized_file_needs_the_same_in_both_formats(
    tmp_path: Path, name: str, level: str
) -> None:
    source = saved(tmp_path, small_models.all_models()[name])
    as_onnx = by_runtime(source, tmp_path / "o.onnx", ort_format=False, level=level)
    as_ort = by_runtime(source, tmp_path / "o.ort", ort_format=True, level=level)
    assert oc.read(as_onnx)[0] == oc.read(as_ort)[0]


@pytest.mark.parametrize("name", ["hardswish", "mish_castlike", "local_function", "if_branches"])
def test_a_source_graph_needs_the_operators_that_the_runtime_makes_of_it(
    tmp_path: Path, name: str
) -> None:
    source = saved(tmp_path, small_models.all_models()[name])
    runs = oc.read(by_runtime(source, tmp_path / "o.ort", ort_format=True))[0]
    assert oc.read(source)[0].without_types() == runs.without_types()


def test_types_in_expanded_functions_are_not_known_and_it_is_said(tmp_path: Path) -> None:
    source = saved(tmp_path, small_models.local_function())
    found, reason = onnx_closure.read(source)
    assert render(found, types=True) == "ai.onnx;13;Sigmoid\nai.onnx;14;Mul\n"
    assert reason == "types of ai.onnx Mul, ai.onnx Sigmoid are not known"


def test_types_after_an_operator_of_the_runtime_are_not_known(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["a"], domain="com.microsoft"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Abs", ["x"], ["y"], name="abs"),
    ]
    opsets = [("", 17), ("com.microsoft", 1)]
    made = model(nodes, [value("x", [2])], [value("y", [2])], opsets=opsets)
    assert text_of(saved(tmp_path, made)) == [
        f"ai.onnx;13;Abs{FLOAT}",
        "ai.onnx;14;Relu",
        "com.microsoft;1;QuickGelu",
    ]


def test_types_in_nested_graphs_see_the_values_outside(tmp_path: Path) -> None:
    source = saved(tmp_path, small_models.loop_body())
    int32 = '{"inputs": {"0": ["int32_t"]}}'
    assert text_of(source) == [f"ai.onnx;14;Add{int32},Mul{int32}", "ai.onnx;16;Identity,Loop"]


def test_constants_are_no_operators(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=1.0),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    made = model(nodes, [value("x", [2])], [value("y", [2])])
    assert text_of(saved(tmp_path, made)) == [f"ai.onnx;14;Add{FLOAT}"]


def chain(depth: int) -> onnx.ModelProto:
    """A model whose function calls another one twice, and that the next, ``depth`` deep."""

    def function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.dom", 1)]
        return helper.make_function("my.dom", name, ["a"], ["c"], nodes, imports)

    names = [*(f"F{number}" for number in range(depth - 1)), "Sw"]
    functions = [function(names[0], [helper.make_node("Conv", ["a", "a"], ["c"])])]
    for inner, outer in pairwise(names):
        calls = [helper.make_node(inner, [a], [b], domain="my.dom") for a, b in ("ab", "bc")]
        functions.append(function(outer, calls))
    return small_models.local_function(functions)


def test_a_function_is_read_by_its_own_opset_and_only_once(tmp_path: Path) -> None:
    made = chain(30)  # 2 ** 29 calls of the innermost function
    made.functions[0].opset_import[0].version = 10
    assert text_of(saved(tmp_path, made)) == ["ai.onnx;1;Conv"]


def test_functions_nested_too_deep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelRefused, match="nested deeper than 32"):
        onnx_closure.read(saved(tmp_path, chain(33)))


def test_a_function_that_calls_itself_does_not_end_in_a_loop(tmp_path: Path) -> None:
    made = small_models.local_function()
    made.functions[0].node.add(op_type="Sw", domain="my.dom", input=["a"], output=["z"])
    assert len(text_of(saved(tmp_path, made))) == 2


def test_an_operator_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    made = small_models.one("Relu")
    made.graph.node[0].op_type = "Relv"
    with pytest.raises(errors.ModelRefused, match=r"'relu': .* has no operator Relv"):
        onnx_closure.read(saved(tmp_path, made))


def test_an_operator_of_a_later_opset_is_refused(tmp_path: Path) -> None:
    made = small_models.one("Gelu", opset=20)
    made.opset_import[0].version = 19
    with pytest.raises(errors.ModelRefused, match="Gelu from opset 20 on only"):
        onnx_closure.read(saved(tmp_path, made))


def test_a_domain_that_is_not_imported_is_refused(tmp_path: Path) -> None:
    made = small_models.one("Relu")
    made.graph.node[0].domain = "com.microsoft"
    with pytest.raises(errors.ModelRefused, match="does not import that domain"):
        onnx_closure.read(saved(tmp_path, made))


def test_a_foreign_domain_is_kept_for_the_gate(tmp_path: Path) -> None:
    node = helper.make_node("Sw", ["x"], ["y"], domain="my.dom", name="n")
    made = model([node], [value("x", [2])], [value("y", [2])], opsets=[("", 17), ("my.dom", 3)])
    assert text_of(saved(tmp_path, made)) == ["my.dom;3;Sw"]


def nested(depth: int) -> onnx.ModelProto:
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [], [value("y", [2])])
    for _ in range(depth - 1):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [value("y", [2])])
    graph.input.extend([value("c", [1], T.BOOL), value("x", [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_graphs_nested_too_deep_are_refused(tmp_path: Path) -> None:
    deepest = onnx_closure.MAX_DEPTH
    assert text_of(saved(tmp_path, nested(deepest))) == [f"ai.onnx;13;Exp{FLOAT}", "ai.onnx;16;If"]
    # protobuf itself allows 100 messages inside each other, three a graph.
    with pytest.raises(errors.ModelRefused, match="not an ONNX model"):
        onnx_closure.read(saved(tmp_path, nested(deepest + 1)))


def test_weights_do_not_hinder_the_types(tmp_path: Path) -> None:
    source = saved(tmp_path, small_models.conv_relu())
    assert text_of(source) == [f"ai.onnx;11;Conv{FLOAT}", f"ai.onnx;14;Relu{FLOAT}"]
