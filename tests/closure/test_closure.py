from __future__ import annotations

import json

import pytest
from hypothesis import given

from edge import errors
from edge.closure import Closure, Entry, Types, from_json, to_json, union
from tests.closures import closures

FLOAT = Types(((0, ("float",)),))
INT64 = Types(((0, ("int64_t",)),))


def reduce_prod(opset: int, types: Types | None, node: str = "") -> Closure:
    return Closure((Entry("ai.onnx", "ReduceProd", opset, types, node),))


@given(closures(), closures(), closures())
def test_union_is_associative(a: Closure, b: Closure, c: Closure) -> None:
    assert union(union(a, b), c) == union(a, union(b, c)) == union(a, b, c)


@given(closures(), closures())
def test_union_is_commutative_to_the_byte(a: Closure, b: Closure) -> None:
    assert to_json(union(a, b)) == to_json(union(b, a))


@given(closures())
def test_union_is_idempotent_and_the_empty_closure_is_its_identity(a: Closure) -> None:
    assert union(a, a) == a
    assert union(Closure(), a) == union(a, Closure()) == union(a) == a


@given(closures())
def test_equal_closures_have_equal_hashes_in_any_order_of_entries(a: Closure) -> None:
    turned = Closure(a.entries[::-1], a.allowed_types, a.every_operator)
    assert turned == a
    assert hash(turned) == hash(a)


def test_union_merges_types_and_never_replaces_them() -> None:
    merged = union(reduce_prod(13, INT64), reduce_prod(13, FLOAT))
    assert merged.entries[0].types == Types(((0, ("float", "int64_t")),))


def test_all_versions_of_an_operator_carry_the_same_types() -> None:
    merged = union(reduce_prod(13, INT64), reduce_prod(18, FLOAT))
    both = Types(((0, ("float", "int64_t")),))
    assert [(each.opset, each.types) for each in merged.entries] == [(13, both), (18, both)]


def test_every_type_absorbs_single_types() -> None:
    merged = union(reduce_prod(13, None), reduce_prod(18, FLOAT))
    assert [each.types for each in merged.entries] == [None, None]


def test_types_of_different_places_are_kept_apart() -> None:
    inputs = Types(((1, ("int64_t",)), (0, ("float",)), (0, ("bool", "float"))))
    assert inputs.inputs == ((0, ("bool", "float")), (1, ("int64_t",)))


def test_merging_frees_a_place_that_one_side_does_not_restrict() -> None:
    both = Types(((0, ("float",)), (1, ("int64_t",))), ((0, ("float",)),))
    one = Types(((0, ("double",)),))
    assert both.merged(one) == Types(((0, ("double", "float")),))
    assert not both.merged(Types(custom=(("float", "int64_t", "float"),)))


def test_types_allowed_globally_do_not_restrict_a_model_without_them() -> None:
    restricted = Closure((Entry("ai.onnx", "Mul", 14),), ("float",))
    merged = union(restricted, Closure((Entry("ai.onnx", "Mul", 14, INT64),)))
    assert merged.allowed_types is None
    assert merged.entries[0].types is None
    assert union(restricted, Closure((), ("bool",))).allowed_types == ("bool", "float")


def test_every_operator_leaves_no_entries() -> None:
    assert union(reduce_prod(13, INT64), Closure(every_operator=True)) == Closure(
        every_operator=True
    )


def test_global_types_and_types_of_operators_exclude_each_other() -> None:
    with pytest.raises(errors.ConfigError, match="exclude each other"):
        Closure(reduce_prod(13, INT64).entries, ("float",))


def test_nodes_are_examples_and_do_not_count() -> None:
    assert reduce_prod(13, INT64, "a") == reduce_prod(13, INT64, "b")
    merged = union(reduce_prod(13, INT64), reduce_prod(13, INT64, "b"), reduce_prod(13, None, "a"))
    assert merged.entries[0].node == "a"


def test_the_empty_domain_is_onnx() -> None:
    assert Entry("", "Add", 14) == Entry("ai.onnx", "Add", 14)


@pytest.mark.parametrize("name", ["", "Add,Mul", "Add{", "a;b", "Add\nMul", "Ädd", "A" * 201])
def test_names_that_would_break_the_text_are_refused(name: str) -> None:
    with pytest.raises(errors.ModelRefused, match="no usable name"):
        Entry("ai.onnx", name, 1)
    if name:
        with pytest.raises(errors.ModelRefused, match="no usable name"):
            Entry(name, "Add", 1)


@pytest.mark.parametrize("opset", [0, -1, 10**9])
def test_impossible_opsets_are_refused(opset: int) -> None:
    with pytest.raises(errors.ModelRefused, match=f"opset {opset}"):
        Entry("ai.onnx", "Add", opset)


@given(closures())
def test_json_keeps_everything(a: Closure) -> None:
    kept = Closure(a.entries, a.allowed_types, a.every_operator, ("uint4", "int4"))
    read = from_json(to_json(kept))
    assert read == kept
    assert read.four_bit == ("int4", "uint4")
    assert [each.node for each in read.entries] == [each.node for each in kept.entries]


GOOD = json.loads(to_json(Closure((Entry("ai.onnx", "Add", 14, FLOAT, "n"),), four_bit=("int4",))))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"operators": None},
        {"operators": [{}]},
        {"operators": [{**GOOD["operators"][0], "opset": 1.5}]},
        {"operators": [{**GOOD["operators"][0], "opset": True}]},
        {"operators": [{**GOOD["operators"][0], "operator": ["Add"]}]},
        {"operators": [{**GOOD["operators"][0], "operator": "Add;Mul"}]},
        {"operators": [{**GOOD["operators"][0], "types": {"inputs": {"0": ["flaot"]}}}]},
        {"operators": [{**GOOD["operators"][0], "types": {}}]},
        {"allowed_types": ["float"]},
        {"four_bit": ["int8"]},
    ],
)
def test_damaged_json_is_one_clear_error(change: dict[str, object]) -> None:
    from_json(json.dumps(GOOD))
    with pytest.raises(errors.ConfigError, match=r"closure\.json is damaged"):
        from_json(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"schema": 1, "schema": 1}', "1"])
def test_text_that_is_no_closure_is_one_clear_error(text: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"closure\.json is damaged"):
        from_json(text)
