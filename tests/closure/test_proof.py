from __future__ import annotations

import pytest
from hypothesis import given

from edge import errors
from edge.closure import Closure, Entry, Types, operators, union
from edge.closure.proof import Missing, gates, missing, prove
from edge.closure.text import as_built, render
from tests.closures import of_models

TWO_LINES = """\
ai.onnx;13;ReduceProd{"inputs": {"0": ["int64_t"]}}
ai.onnx;18;ReduceProd{"inputs": {"0": ["float"]}}
"""


def one(operator: str, opset: int, types: Types | None = None, domain: str = "") -> Closure:
    return Closure((Entry(domain, operator, opset, types, "n1"),))


def at(index: int, *names: str) -> Types:
    return Types(((index, names),))


@given(of_models(), of_models())
def test_a_union_offers_what_each_part_needs(a: Closure, b: Closure) -> None:
    offered = as_built(render(union(a, b), types=True))
    assert missing(a, offered) == ()
    assert missing(a, as_built(render(union(a, b), types=False))) == ()


@given(of_models(), of_models())
def test_what_is_missing_is_exactly_what_the_other_has_not(a: Closure, b: Closure) -> None:
    bare = b.without_types()
    lacking = {(m.domain, m.opset, m.operator) for m in missing(a, bare)}
    assert lacking <= {each.place for each in a.entries} - {each.place for each in bare.entries}


def test_an_absent_operator_is_missing() -> None:
    assert missing(one("Add", 14), Closure()) == (Missing("ai.onnx", "Add", 14, "", "n1"),)
    assert missing(one("Add", 14), one("Add", 14, domain="com.microsoft")) != ()


@pytest.mark.parametrize(
    ("since", "listed", "offered"),
    [
        (11, 11, True),
        (11, 21, True),
        (11, 22, False),
        (11, 10, False),
        (1, 10, True),
        (22, 28, True),
    ],
)
def test_an_opset_keeps_the_version_that_it_lies_in(since: int, listed: int, offered: bool) -> None:
    # Conv has the versions 1, 11 and 22.
    assert (missing(one("Conv", since), one("Conv", listed)) == ()) is offered


@pytest.mark.parametrize(
    ("since", "listed", "offered"),
    [(13, 14, True), (14, 13, True), (14, 12, False), (18, 99, True), (19, 18, False)],
)
def test_registrations_of_a_runtime_decide_where_they_are_known(
    since: int, listed: int, offered: bool
) -> None:
    # [13, 17] serves 14 as well; [18, open] serves no later version than 18.
    ranges = {("ai.onnx", "Relu"): ((13, 17), (18, operators.OPEN))}
    assert (missing(one("Relu", since), one("Relu", listed), ranges=ranges) == ()) is offered


def test_an_operator_of_a_foreign_domain_is_compared_by_its_exact_opset() -> None:
    needed = one("Sw", 2, domain="my.domain")
    assert missing(needed, needed) == ()
    assert len(missing(needed, one("Sw", 3, domain="my.domain"))) == 1


def test_a_missing_type_is_named_with_its_place() -> None:
    cast = Types(((0, ("float",)),), ((0, ("bool", "int32_t")),))
    lacks = missing(
        one("Cast", 13, cast), one("Cast", 13, Types(((0, ("bool",)),), ((0, ("bool",)),)))
    )
    assert [each.types for each in lacks] == ["input 0 as float", "output 0 as int32_t"]
    gather = Types(((0, ("float",)), (1, ("int64_t",))))
    lacks = missing(one("Gather", 13, gather), one("Gather", 13, at(1, "int32_t")))
    assert [each.types for each in lacks] == ["input 1 as int64_t"]


def test_a_place_without_types_is_not_restricted() -> None:
    cast = Types(((0, ("float",)),), ((0, ("bool",)),))
    assert missing(one("Cast", 13, cast), one("Cast", 13, at(0, "float"))) == ()
    assert missing(one("Cast", 13, cast), one("Cast", 13)) == ()


def test_types_that_every_build_keeps_are_never_missing() -> None:
    assert missing(one("Add", 14, at(0, "int64_t")), one("Add", 14, at(0, "float"))) == ()
    assert len(missing(one("Abs", 13, at(0, "int64_t")), one("Abs", 13, at(0, "float")))) == 1


def test_types_that_could_not_be_read_are_not_offered_by_a_few() -> None:
    lacks = missing(one("Abs", 13), one("Abs", 13, at(0, "float")))
    assert [each.types for each in lacks] == [
        "types that could not be read, and only some are offered"
    ]
    assert missing(one("Erf", 13), one("Erf", 13, at(0, "float"))) == ()


def test_a_triple_is_offered_as_a_whole() -> None:
    needed = one("OneHot", 11, Types(custom=(("int64_t", "float", "int64_t"),)))
    other = one("OneHot", 11, Types(custom=(("int64_t", "int64_t", "float"),)))
    assert missing(needed, needed) == ()
    assert [m.types for m in missing(needed, other)] == ["the types int64_t, float, int64_t"]
    allowed = Closure((Entry("", "OneHot", 11),), ("float", "int64_t"))
    assert missing(needed, allowed) == ()


def test_globally_allowed_types_restrict_all_tracked_operators() -> None:
    allowed = Closure((Entry("", "Abs", 13), Entry("", "Add", 14)), ("float",))
    assert missing(one("Abs", 13, at(0, "float")), allowed) == ()
    assert missing(one("Add", 14, at(0, "int64_t")), allowed) == ()
    assert [m.types for m in missing(one("Abs", 13, at(0, "double")), allowed)] == [
        "input 0 as double"
    ]


def test_every_operator_offers_all_and_is_offered_by_nothing_less() -> None:
    every = Closure(every_operator=True)
    assert missing(one("Add", 14), every) == ()
    assert missing(every, every) == ()
    assert missing(every, one("Add", 14)) == (Missing("every domain", "every operator", 1),)
    restricted = Closure((), ("float",), every_operator=True)
    assert len(missing(one("Abs", 13, at(0, "double")), restricted)) == 1


def test_two_lines_of_one_operator_lose_a_kernel_and_the_proof_says_which() -> None:
    needed = one("ReduceProd", 13, at(0, "int64_t"))
    with pytest.raises(errors.ClosureIncomplete) as caught:
        prove(needed, as_built(TWO_LINES))
    assert caught.value.message == (
        "the operator configuration lacks 1 of what the artifact needs: "
        "node 'n1' needs ai.onnx ReduceProd at opset 13 with input 0 as int64_t"
    )
    prove(
        needed, as_built(render(union(needed, one("ReduceProd", 18, at(0, "float"))), types=True))
    )


def test_the_first_few_are_named_and_the_rest_counted() -> None:
    needed = union(*(one(name, 13) for name in ("Abs", "Erf", "Exp", "Log", "Sqrt")))
    with pytest.raises(errors.ClosureIncomplete) as caught:
        prove(needed, Closure())
    assert "lacks 5 of" in caught.value.message
    assert caught.value.message.endswith("ai.onnx Exp at opset 13; and 2 more")
    assert caught.value.exit_code == 1


def test_control_characters_of_a_node_do_not_reach_the_message() -> None:
    shown = str(Missing("ai.onnx", "Add", 14, "", "a\x1b[2J\n" + "b" * 200))
    assert shown.isprintable()
    assert len(shown) < 140


NCHWC = one("Conv", 1, domain="com.microsoft.nchwc")


@pytest.mark.parametrize("platform", ["linux-arm64", "android", "ios", "browser"])
def test_layouts_of_amd64_are_refused_elsewhere(platform: str) -> None:
    with pytest.raises(
        errors.ClosureIncomplete, match=r"'n1' needs com\.microsoft\.nchwc Conv"
    ) as e:
        gates(NCHWC, platform=platform, ort_version="1.32.0")
    assert platform in e.value.message
    assert "target_platform arm" in e.value.remedy


def test_layouts_of_amd64_are_fine_there() -> None:
    gates(NCHWC, platform="linux-x64", ort_version="1.32.0")


@pytest.mark.parametrize("version", ["1.28.0", "1.29.1", "1.30.0", "1.31.1"])
def test_four_bit_initializers_are_refused_by_four_releases(version: str) -> None:
    closure = Closure(one("Add", 14).entries, four_bit=("int4",))
    with pytest.raises(errors.ModelRefused, match=f"{version} loads no ORT-format file.*int4"):
        gates(closure, platform="android", ort_version=version)


@pytest.mark.parametrize("version", ["1.27.1", "1.32.0", "2.0.0"])
def test_four_bit_initializers_are_fine_in_others(version: str) -> None:
    closure = Closure(one("Add", 14).entries, four_bit=("int4",))
    gates(closure, platform="android", ort_version=version)
    gates(one("Add", 14), platform="android", ort_version="1.30.0")


@pytest.mark.parametrize("version", ["", "1", "1.x", "latest", "1.32.0\n"])
def test_a_version_that_is_none_is_a_wrong_configuration(version: str) -> None:
    with pytest.raises(errors.ConfigError, match="no version of ONNX Runtime"):
        gates(one("Add", 14), platform="android", ort_version=version)


@pytest.mark.parametrize("domain", ["my.domain", "com.ms.internal.nhwc", "ai.onnx.contrib"])
def test_domains_that_no_prebuilt_runtime_has_are_refused(domain: str) -> None:
    with pytest.raises(errors.ClosureIncomplete, match=f"{domain} Sw at opset 1, and no prebuilt"):
        gates(one("Sw", 1, domain=domain), platform="linux-x64", ort_version="1.32.0")
