"""Ports and names of a program, what is folded, and what is refused, each by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from edge import errors
from edge.convert import mil_executor, onnx_to_mil
from edge.convert.onnx_to_mil.names import Names
from tests import models
from tests.convert.onnx_to_mil.programs import agree, computed, one, values


def graph_of(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], *, opset: int = 17, **stored: Any
) -> onnx.ModelProto:
    """A model of ``nodes``; ports are (name, type, shape), ``stored`` its initializers."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def refusal(model: onnx.ModelProto, *, target: str = "iOS15") -> str:
    with pytest.raises(errors.ModelRefused) as caught:
        onnx_to_mil.convert(model, target=target)
    return caught.value.message


def bound(model: onnx.ModelProto, **constants: Any) -> onnx.ModelProto:
    """With inputs as initializers, and all symbolic sizes 3."""
    for port in list(model.graph.input):
        if port.name in constants:
            model.graph.input.remove(port)
            model.graph.initializer.append(numpy_helper.from_array(constants[port.name], port.name))
            continue
        for dim in port.type.tensor_type.shape.dim:
            dim.dim_value = dim.dim_value or 3
    return model


# ------------------------------------------------------------------------------- ports and names
def test_names_are_identifiers_and_the_map_is_kept() -> None:
    nodes = [
        helper.make_node("Add", ["gpu_0/data:0", "gpu_0/data.0"], ["1"]),
        helper.make_node("Relu", ["1"], ["state"]),
    ]
    ports = [("gpu_0/data:0", T.FLOAT, [2]), ("gpu_0/data.0", T.FLOAT, [2])]
    model = graph_of(nodes, ports, [("state", T.FLOAT, [2]), ("1", T.FLOAT, [2])])
    made = onnx_to_mil.convert(model)
    assert [(port.onnx, port.name) for port in made.inputs] == [
        ("gpu_0/data:0", "gpu_0_data_0"),
        ("gpu_0/data.0", "gpu_0_data_0_1"),
    ]
    assert [port.name for port in made.outputs] == ["v_state", "v_1"]
    assert [var.name for var in made.program.functions["main"].outputs] == ["v_state", "v_1"]


@pytest.mark.parametrize("name", ["", "1", "a b", "fp16", "é", "_ok", "list"])
def test_any_name_becomes_an_identifier(name: str) -> None:
    names = Names()
    found = [names.unique(name) for _ in range(3)]
    assert len(set(found)) == 3
    assert all(each.isidentifier() and each.isascii() for each in found)
    assert not {"fp16", "list"} & set(found)


def test_two_conversions_give_the_same_program() -> None:
    model = bound(models.mlp())
    first, second = (onnx_to_mil.convert(model).program.functions["main"] for _ in range(2))
    listed = [[(op.op_type, op.name) for op in each.operations] for each in (first, second)]
    assert listed[0] == listed[1]


def test_scalars_and_booleans_and_wide_integers_have_another_form() -> None:
    nodes = [
        helper.make_node("Where", ["flag", "x", "d"], ["w"]),
        helper.make_node("Cast", ["w"], ["whole"], to=T.INT64),
        helper.make_node("Not", ["flag"], ["other"]),
        helper.make_node("ReduceSum", ["w"], ["total"], keepdims=0),
    ]
    inputs = [("flag", T.BOOL, [3]), ("x", T.DOUBLE, []), ("d", T.DOUBLE, [3])]
    outputs = [("whole", T.INT64, [3]), ("other", T.BOOL, [3]), ("total", T.DOUBLE, [])]
    model = graph_of(nodes, inputs, outputs)
    made = onnx_to_mil.convert(model)
    assert [(p.name, p.dtype, p.held, p.shape, p.scalar) for p in made.inputs] == [
        ("flag", "bool", "int32", (3,), False),
        ("x", "double", "float32", (1,), True),
        ("d", "double", "float32", (3,), False),
    ]
    assert [(p.dtype, p.held, p.shape, p.scalar) for p in made.outputs] == [
        ("int64", "int32", (3,), False),
        ("bool", "int32", (3,), False),
        ("double", "float32", (1,), True),
    ]
    feeds = {
        "flag": np.array([True, False, True]),
        "x": np.array(2.5),
        "d": np.array([4.0, -7.0, 6.0]),
    }
    whole, other, total = computed(model, feeds)
    assert whole.tolist() == [2, -7, 2]
    assert other.tolist() == [0, 1, 0]
    assert total == -2.0


def test_inputs_that_nothing_reads_and_outputs_that_nothing_computes() -> None:
    node = helper.make_node("Identity", ["c"], ["y"])
    ports = [("x", T.FLOAT, [2]), ("unused", T.FLOAT, [3])]
    outputs = [("y", T.FLOAT, [2]), ("x", T.FLOAT, [2])]
    model = graph_of([node], ports, outputs, c=np.array([1, 2], np.float32))
    made = onnx_to_mil.convert(model)
    assert [port.name for port in made.outputs] == ["y", "x_1"]
    feeds = {"x": np.array([5, 6], np.float32), "unused": np.zeros(3, np.float32)}
    constant, same = computed(model, feeds)
    assert constant.tolist() == [1, 2]
    assert same.tolist() == [5, 6]


# ------------------------------------------------------------------------------ what is known now
def test_shapes_are_constants_and_so_is_what_is_computed_from_them() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["m"]),
        helper.make_node("Concat", ["m", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    stored: dict[str, Any] = {"one": np.array([1]), "two": np.array([2]), "rest": np.array([-1])}
    model = graph_of(nodes, [("x", T.FLOAT, [4, 3])], [("y", T.FLOAT, [6, 2])], **stored)
    made = onnx_to_mil.convert(model)
    assert made.operators == {"Reshape": 1, "Shape": 1}
    assert made.folded == 3


@pytest.mark.parametrize(("mode", "wanted"), [(1, 4.0), (-1, 9.0)])
def test_an_if_becomes_the_branch_that_its_constant_takes(mode: int, wanted: float) -> None:
    model = bound(models.switched(), mode=np.array(mode, np.int64))
    (found,) = computed(model, {"x": np.full(3, wanted if mode < 0 else 2, np.float32)})
    assert found.tolist() == ([4.0] * 3 if mode > 0 else [81.0] * 3)


def test_an_if_that_depends_on_the_input_is_refused() -> None:
    said = refusal(bound(models.switched()))
    assert "(If, opset 17): the condition of If must be constant" in said


def test_an_old_model_whose_inputs_were_bound_needs_no_inputs_for_them() -> None:
    model = bound(models.mlp())
    model.ir_version = 3
    assert [port.name for port in onnx_to_mil.convert(model).inputs] == ["x"]
    assert model.ir_version == 3


def test_a_function_of_the_model_is_inlined() -> None:
    body = helper.make_function(
        "mine", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    node = helper.make_node("Double", ["x"], ["y"], domain="mine")
    model = graph_of([node], [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])])
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    assert computed(model, {"x": np.array([1, 2], np.float32)})[0].tolist() == [2, 4]


def test_an_operator_without_a_rule_is_taken_apart_as_onnx_defines_it() -> None:
    x = values(2, 3, 8)
    feeds = {"q": x, "k": values(2, 3, 8, seed=1), "v": values(2, 3, 8, seed=2)}
    model = one("Attention", feeds, opset=23, q_num_heads=2, kv_num_heads=2)
    made = onnx_to_mil.convert(model)
    assert "Attention" not in made.operators
    agree(model, feeds)


# ------------------------------------------------------------------------------------- refusals
REFUSED = [
    (one("MaxPool", {"x": values(1, 1, 6, 6)}, opset=12, kernel_shape=[2, 2], dilations=[2, 2]),
     "node 'a_MaxPool' (MaxPool, opset 12): no rule for dilations"),
    (one("MaxPool", {"x": values(1, 1, 6, 6)}, opset=12, outputs=2, kernel_shape=[2, 2]),
     "(MaxPool, opset 12): no rule for the output Indices"),
    (one("Cast", {"x": values(2)}, opset=13, to=T.UINT8),
     "(Cast, opset 13): no rule for a cast to uint8: it wraps around"),
    (one("Add", {"x": np.zeros(2, np.uint8), "y": np.zeros(2, np.uint8)}, opset=14),
     "(Add, opset 14): no rule for uint8"),
    (one("NonZero", {"x": values(2)}, opset=13), "(NonZero, opset 13): no rule for this operator"),
    (graph_of([helper.make_node("Reshape", ["x", "s"], ["y"])],
              [("x", T.FLOAT, [2, 2]), ("s", T.INT64, [1])], [("y", T.FLOAT, ["n"])], opset=13),
     "(Reshape, opset 13): the shape must be constant"),
    (one("Mod", {"x": values(2), "y": values(2)}, opset=13),
     "(Mod, opset 13): floats need fmod = 1"),
    (one("ReduceMean", {"x": np.zeros((2, 2), np.int32)}, opset=13),
     "(ReduceMean, opset 13): no rule for int32"),
    (one("Add", {"x": np.zeros(2, np.int64)}, opset=13, constants={"c": np.array(2**40)}),
     "(Add, opset 13): a constant does not fit"),
    (one("Gather", {"x": values(2, 3)}, opset=13, constants={"i": np.array([2])}),
     "(Gather, opset 13): an index outside of 2 values"),
    (one("Unsqueeze", {"x": values(1, 1, 1, 1, 1)}, opset=11, axes=[0]),
     "(Unsqueeze, opset 11): 6 dimensions, Core ML has at most 5"),
    (one("GatherND", {"x": values(2, 3)}, opset=12, batch_dims=1,
         constants={"i": np.array([[1], [0]])}),
     "(GatherND, opset 12): batch_dims needs the target iOS17"),
    (one("Resize", {"x": values(1, 1, 4, 4)}, opset=18, antialias=1, mode="linear",
         constants={"roi": np.zeros(0, np.float32), "s": np.array([1, 1, 0.5, 0.5], np.float32)}),
     "(Resize, opset 18): no rule for antialias"),
    (one("Resize", {"x": values(1, 1, 4, 5)}, opset=10,
         constants={"s": np.array([1, 1, 1, 0.6], np.float32)}),
     "(Resize, opset 10): opset 10 does not say what is nearest"),
    (one("Einsum", {"x": values(3, 3)}, opset=12, equation="ii->i"),
     "(Einsum, opset 12): no rule for the equation 'ii->i'"),
    (one("BatchNormalization", {"x": values(1, 2, 3)}, opset=15, training_mode=1,
         constants={n: np.ones(2, np.float32) for n in "sbmv"}, outputs=3),
     "(BatchNormalization, opset 15): training_mode computes statistics"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "said"), REFUSED, ids=[said[:60] for _, said in REFUSED])
def test_what_would_be_another_number_is_refused_by_name(model: Any, said: str) -> None:
    assert said in refusal(model)


def test_an_attribute_that_no_rule_reads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a later opset adds must never be passed over. The checker knows all of today's.
    monkeypatch.setattr("onnx.checker.check_model", lambda model: None)
    model = one("Relu", {"x": values(2)}, opset=14)
    model.graph.node[0].attribute.append(helper.make_attribute("leak", 0.5))
    assert "(Relu, opset 14): no rule for attribute leak" in refusal(model)


@pytest.mark.parametrize("opset", [6, 27])
def test_opsets_without_rules_are_refused(opset: int) -> None:
    model = one("Relu", {"x": values(2)}, opset=14)
    model.opset_import[0].version = opset
    assert f"opset {opset}: rules are for 7 to 26" in refusal(model)


def test_a_free_dimension_is_refused() -> None:
    assert "input 'x' has no fixed shape" in refusal(models.mlp())


def test_too_many_dimensions_are_refused_as_such() -> None:
    """Binding sizes does not help where they are bound."""
    model = one("Relu", {"x": values(1, 2, 1, 2, 1, 3)}, opset=14)
    assert refusal(model) == "input 'x' has 6 dimensions, Core ML has at most 5"


def test_another_domain_is_refused() -> None:
    node = helper.make_node("FusedConv", ["x"], ["y"], domain="com.microsoft", name="f")
    model = graph_of([node], [("x", T.FLOAT, [2])], [("y", T.FLOAT, [2])])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert "node 'f' (com.microsoft.FusedConv, opset 1): Core ML has no such operator" in refusal(
        model
    )


def test_a_string_input_is_refused() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    model = graph_of([node], [("x", T.STRING, [2])], [("y", T.STRING, [2])])
    assert refusal(model) == "'x' is a string, which Core ML does not hold"


def test_a_file_that_asks_for_terabytes_is_refused() -> None:
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], name="big")
    model = graph_of([node], [("x", T.FLOAT, [2])], [("y", T.FLOAT, ["n"])], s=np.array([2**40]))
    assert "node 'big' (ConstantOfShape, opset 17): a constant of more than" in refusal(model)


def test_shapes_that_do_not_fit_are_refused_and_never_a_traceback() -> None:
    node = helper.make_node("Where", ["c", "x", "x"], ["y"], name="odd")
    ports = [("c", T.BOOL, [2]), ("x", T.FLOAT, [3])]
    said = refusal(graph_of([node], ports, [("y", T.FLOAT, [3])]))
    assert said.startswith("node 'odd' (Where, opset 17): it is malformed")


def test_a_node_that_reads_nothing_known_is_refused() -> None:
    node = helper.make_node("Relu", ["nowhere"], ["y"], name="r")
    assert "nowhere" in refusal(graph_of([node], [("x", T.FLOAT, [1])], [("y", T.FLOAT, [1])]))


def test_an_unknown_target_is_wrong_usage() -> None:
    with pytest.raises(errors.UsageError, match="iOS14"):
        onnx_to_mil.convert(models.mlp(), target="iOS14")


def test_random_values_are_never_folded() -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[2], name="noise")
    model = graph_of([node], [("x", T.FLOAT, [1])], [("y", T.FLOAT, [2])])
    assert "node 'noise' (RandomNormal, opset 17): no rule for this operator" in refusal(model)


def test_the_executor_asks_for_every_input() -> None:
    made = onnx_to_mil.convert(one("Relu", {"x": values(2)}, opset=14))
    with pytest.raises(errors.RunFailed, match="'x' is not given"):
        mil_executor.run(made.program, {})
    with pytest.raises(errors.RunFailed, match=r"has shape \(3,\)"):
        mil_executor.run(made.program, {"x": values(3)})
