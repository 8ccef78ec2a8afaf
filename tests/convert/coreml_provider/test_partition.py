"""Groups of nodes: what splits them, what does not, and what they never do."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from edge.convert.coreml_provider import Options, Prediction, predict
from edge.convert.coreml_provider.partition import groups
from edge.convert.coreml_provider.view import graphs
from tests.convert.small_models import model, value

Edge = tuple[str, str, str]  # operator, inputs with blanks between, output
ANY = (("", 17), ("other", 1))


def built(*lines: Edge) -> onnx.ModelProto:
    nodes = [
        helper.make_node(kind, read.split(), [made], name=made, domain="other" * (kind == "No"))
        for kind, read, made in lines
    ]
    made = [value(name, [4]) for _, _, name in lines]
    whole = model(nodes, [value("x", [4])], made[-1:], opsets=ANY)
    whole.graph.value_info.extend(made[:-1])
    return whole


def predicted(*lines: Edge) -> Prediction:
    return predict(built(*lines), Options(), coreml=7)


def places(prediction: Prediction) -> list[int | None]:
    return [each.partition for each in prediction.nodes]


def test_a_chain_is_one_partition() -> None:
    found = predicted(("Relu", "x", "a"), ("Exp", "a", "b"))
    assert (found.partitions, found.share, places(found)) == (1, 1.0, [0, 0])


def test_an_unknown_operator_splits_a_chain() -> None:
    found = predicted(("Relu", "x", "a"), ("No", "a", "b"), ("Relu", "b", "c"))
    assert places(found) == [0, None, 1]
    assert found.refused() == {"other:No": {"no such operator in the provider": 1}}


def test_nodes_beside_an_unknown_operator_are_one_partition() -> None:
    found = predicted(("No", "x", "a"), ("Relu", "x", "b"), ("Relu", "a", "c"), ("Add", "b c", "d"))
    assert places(found) == [None, 0, 0, 0]


def test_what_reads_across_a_border_starts_the_next_wave() -> None:
    found = predicted(
        ("Relu", "x", "a"), ("No", "a", "b"), ("Exp", "a", "c"), ("Add", "b c", "d"),
        ("No", "d", "e"), ("Mul", "e d", "f"),
    )  # fmt: skip
    assert places(found) == [0, None, 0, 1, None, 2]


def test_a_value_read_twice_by_a_node_is_two_edges() -> None:
    assert places(predicted(("Relu", "x", "a"), ("Mul", "a a", "b"))) == [0, 0]


def test_trivial_operators_are_no_partition_alone() -> None:
    found = predicted(("Identity", "x", "a"), ("Ceil", "a", "b"))
    assert (found.partitions, found.taken) == (0, 0)
    assert {each.reason for each in found.nodes} == {"only trivial operators beside it"}


def test_trivial_operators_are_taken_beside_others() -> None:
    found = predicted(("Identity", "x", "a"), ("Exp", "a", "b"), ("Ceil", "b", "c"))
    assert (found.partitions, found.taken) == (1, 3)


def test_partitions_are_counted_without_the_dropped() -> None:
    found = predicted(
        ("Relu", "x", "a"), ("No", "a", "b"), ("Ceil", "b", "c"), ("No", "c", "d"),
        ("Relu", "d", "e"),
    )  # fmt: skip
    assert places(found) == [0, None, None, None, 1]


def after_argmax(*casts: int, params: Options, source: str = "ArgMax") -> list[str]:
    """Reasons of ArgMax (or another operator) and of Casts to these types that read it."""
    number = onnx.TensorProto.INT64
    read = "i" if source == "Neg" else "x"
    nodes = [
        helper.make_node(source, [read], ["a"]),
        *[helper.make_node("Cast", ["a"], [f"y{at}"], to=to) for at, to in enumerate(casts)],
    ]
    inputs = [value("x", [1, 4]), value("i", [1, 4], number)]
    shape = [2] if source == "Shape" else [1, 4]
    outputs = [value(f"y{at}", shape, to) for at, to in enumerate(casts)]
    found = predict(model(nodes, inputs, outputs), params, coreml=5)
    return [each.reason for each in found.nodes]


INT32, FLOAT = onnx.TensorProto.INT32, onnx.TensorProto.FLOAT
NEURAL_NETWORK = Options(model_format="NeuralNetwork")
AFTER = "after ArgMax, only taken after an ArgMax that is"


@pytest.mark.parametrize(
    ("casts", "reasons"),
    [
        ((INT32,), ["", ""]),
        ((FLOAT,), ["", "to float"]),
        ((FLOAT, FLOAT), ["", "to float", "to float"]),
        ((INT32, FLOAT), ["read by a Cast to int32 and by others", AFTER, AFTER]),
        ((FLOAT, INT32), ["read by a Cast to int32 and by others", AFTER, AFTER]),
    ],
)
def test_an_argmax_and_the_cast_that_a_neural_network_folds_in(
    casts: tuple[int, ...], reasons: list[str]
) -> None:
    assert after_argmax(*casts, params=NEURAL_NETWORK) == reasons
    assert after_argmax(*casts, params=Options()) == [""] * len(reasons)


def test_no_other_operator_s_cast_is_taken_in_a_neural_network() -> None:
    refused = "after {}, only taken after an ArgMax that is"
    found = after_argmax(INT32, params=NEURAL_NETWORK, source="Neg")
    assert found == ["no such operator in the provider", refused.format("Neg")]
    found = after_argmax(INT32, params=NEURAL_NETWORK, source="Shape")
    assert found == ["", refused.format("Shape")]


@st.composite
def lines(draw: st.DrawFn) -> Sequence[Edge]:
    made = ["x"]
    found: list[Edge] = []
    for at in range(draw(st.integers(1, 12))):
        read = draw(st.lists(st.sampled_from(made), min_size=2, max_size=2))
        found.append((draw(st.sampled_from(["Add", "Mul", "No"])), " ".join(read), f"v{at}"))
        made.append(f"v{at}")
    return found


@given(lines())
def test_a_group_never_needs_its_own_result_from_outside(drawn: Sequence[Edge]) -> None:
    nodes = graphs(built(*drawn))[0].nodes
    supported = {node.index for node in nodes if node.kind != "No"}
    found = groups(nodes, supported)
    assert sorted(node.index for group in found for node in group) == sorted(supported)
    for group in found:
        inside = {node.index for node in group}
        tainted: set[int] = set()  # outside, after the group
        for node in nodes:
            before = {each.index for each in node.sources}
            after = bool(before & tainted)
            assert not (after and node.index in inside)
            if after or (before & inside and node.index not in inside):
                tainted.add(node.index)
