from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from edge import errors
from edge.closure import Closure, Entry, Types, union
from edge.closure.coverage import Cover, cover, prove, strangers
from edge.closure.operators import OPEN
from edge.closure.reduction import Options, kept
from edge.closure.registrations import Tables
from edge.closure.text import as_built
from tests.closure.small_tables import TABLES, at, kernel, need, options, out, tables
from tests.closures import closures, of_models


def the(
    needed: Closure, offered: Closure | None = None, tables: Tables = TABLES, **options: object
) -> Cover:
    told = Options(**options)  # type: ignore[arg-type]
    (found,) = cover(needed, needed if offered is None else offered, tables, told)
    return found


# ---------------------------------------------------------------------------- rules
def test_a_listed_operator_is_covered_without_a_word() -> None:
    found = the(need("Add", 14, at(0, "float")))
    assert found == Cover("ai.onnx", "Add", 14, "n1", base=True, extended=True)
    assert str(found) == "node 'n1' needs ai.onnx Add at opset 14: covered"


@pytest.mark.parametrize(
    ("needed", "why"),
    [
        (need("HardSwish", 14), "no kernel is registered for it"),
        (need("Sw", 1, domain="my.domain"), "no kernel is registered for it"),
        # An open-ended kernel does not know of later versions of its operator.
        (need("Add", 15), "no kernel is registered for version 15 of it, only for 7, 14"),
        (need("Abs", 13), "no kernel is registered for it"),
        (need("Add", 14, at(0, "float", "bool")), "no kernel is registered for it with bool"),
        (need("Full", 1), "only compiled into full builds"),
        (need("Odd", 1), "only compiled where defined(A) && defined(B)"),
    ],
)
def test_a_kernel_that_no_build_has_is_not_covered(needed: Closure, why: str) -> None:
    found = the(needed)
    assert (found.base, found.extended, found.reason) == (False, False, why)


@pytest.mark.parametrize(
    ("needed", "options", "why"),
    [
        (need("Scaler", 1, domain="ai.onnx.ml"), {"ml_ops": False}, "with ML operators"),
        (need("FusedConv", 1, domain="com.microsoft"), {"contrib_ops": False}, "with contrib"),
        (need("Beam", 1, domain="com.microsoft"), {"generation_ops": False}, "with generation"),
    ],
)
def test_what_the_build_leaves_out_is_named(
    needed: Closure, options: dict[str, bool], why: str
) -> None:
    assert the(needed).base
    found = the(needed, None, TABLES, **options)
    assert not found.base
    assert not found.extended
    assert found.reason.startswith(f"only compiled {why}")


def test_macros_and_processors_bring_kernels_of_their_own() -> None:
    assert the(need("Odd", 1), macros=("A", "B")).base
    half = need("Conv", 11, at(0, "MLFloat16"))
    assert the(half).reason == "only compiled for processors with float16 vectors (arm64)"
    assert the(half, fp16_vectors=True).base
    assert the(need("Conv", 11, at(0, "float"))).base
    nchwc = need("Conv", 1, domain="com.microsoft.nchwc")
    assert the(nchwc).base
    assert the(nchwc, nchwc=False).reason.startswith("only registered on processors with")


def test_types_that_the_build_leaves_out_are_named() -> None:
    strings = need("Where", 16, at(1, "float", "std::string"))
    assert the(strings).base
    assert the(strings, disabled_types=("string",)).reason == (
        "the build leaves out the type std::string"
    )
    eight = need("Cast", 13, Types(((0, ("float",)),), ((0, ("Float8E5M2",)),)))
    assert the(eight).base
    assert not the(eight, disabled_types=("float8", "optional")).base
    with pytest.raises(errors.ConfigError, match="'int4' is no type that a build can leave out"):
        Options(disabled_types=("int4",))


@pytest.mark.parametrize(
    ("opset", "listed", "covered"),
    [(13, 13, True), (14, 13, True), (13, 17, True), (13, 18, False), (18, 99, True),
     (18, 17, False), (13, 12, False)],
)  # fmt: skip
def test_a_registration_stays_when_a_listed_opset_lies_in_it(
    opset: int, listed: int, covered: bool
) -> None:
    found = the(need("ReduceProd", opset), need("ReduceProd", listed))
    assert found.base is covered
    assert covered or found.reason == (
        f"the configuration does not keep it, it lists it at {listed}"
    )


def test_what_the_configuration_does_not_list_is_named() -> None:
    assert the(need("Add", 14), Closure()).reason == "the configuration does not keep it"
    assert the(need("Add", 14), Closure(every_operator=True)).base


def test_a_type_line_that_replaces_another_loses_a_kernel() -> None:
    # onnxruntime #16742
    config = (
        'ai.onnx;13;ReduceProd{"inputs": {"0": ["int64_t"]}}\n'
        'ai.onnx;18;ReduceProd{"inputs": {"0": ["float"]}}\n'
    )
    found = the(need("ReduceProd", 13, at(0, "int64_t")), as_built(config))
    assert not found.base
    assert found.reason == (
        "the kernel for int64_t is dropped: the configuration restricts input 0 to float"
    )
    assert the(need("ReduceProd", 13, at(0, "int64_t")), as_built(config), types=False).base
    assert the(need("ReduceProd", 13, at(0, "float")), as_built(config)).base


def test_each_operator_is_told_apart_by_its_own_place() -> None:
    def dropped(needed: Closure, offered: Closure) -> str:
        return the(needed, offered).reason

    # Sorted out in extended builds by rule: layout transformation may add QuantizeLinear.
    assert dropped(
        need("QuantizeLinear", 13, out("uint8_t")), need("QuantizeLinear", 13, out("int8_t"))
    ) == (
        "needs an extended minimal build: the kernel for uint8_t is dropped: "
        "the configuration restricts output 0 to int8_t"
    )
    assert dropped(need("Where", 16, at(1, "float")), need("Where", 16, at(1, "std::string"))) == (
        "the kernel for float is dropped: the configuration restricts input 1 to std::string"
    )
    triple, other = ("float", "float", "int64_t"), ("int64_t", "std::string", "int64_t")
    assert (
        dropped(
            need("OneHot", 11, Types(custom=(triple, other))),
            need("OneHot", 11, Types(custom=(other,))),
        )
        == "the kernel for float, float, int64_t is dropped: the configuration gives other types"
    )
    assert dropped(need("OneHot", 11, Types(custom=(triple,))), need("OneHot", 11)) == ""


def test_types_that_every_build_keeps_are_covered() -> None:
    only = need("Add", 14, at(0, "float"))
    assert the(need("Add", 14, at(0, "float", "int64_t")), only).base
    assert the(
        need("Add", 14, at(0, "int64_t")), Closure(only.without_types().entries, ("bool",))
    ).base


def test_types_inside_an_untyped_kernel_are_proven_too() -> None:
    cast = Types(((0, ("float",)),), ((0, ("bool", "int32_t")),))
    offered = need("Cast", 13, Types(((0, ("float",)),), ((0, ("bool",)),)))
    assert the(need("Cast", 13, cast), offered).reason == (
        "the configuration drops output 0 as int32_t"
    )
    assert the(need("Cast", 13, cast), offered, types=False).base
    assert the(need("Cast", 13, cast)).base
    # Typed and untyped registrations of one version: a type that has its own is served by it.
    half = need("Conv", 11, at(0, "float", "MLFloat16"))
    assert the(half, need("Conv", 11, at(0, "MLFloat16")), fp16_vectors=True).reason == (
        "the configuration drops input 0 as float"
    )
    assert the(half, need("Conv", 11, at(0, "float")), fp16_vectors=True).reason == (
        "the kernel for MLFloat16 is dropped: the configuration restricts input 0 to float"
    )


def test_types_belong_to_an_operator_and_not_to_one_version_of_it() -> None:
    # Version 6 has no kernel for int8_t: only the node of version 13 can use it.
    both = union(need("Relu", 6, at(0, "float")), need("Relu", 13, at(0, "int8_t")))
    assert all(each.base for each in cover(both, both, TABLES, Options()))
    assert the(need("Relu", 6, at(0, "float", "int8_t"))).reason.endswith("for it with int8_t")
    assert the(need("Relu", 6, at(0, "int8_t"))).reason.endswith("for it with int8_t")
    none = union(need("Relu", 6, at(0, "int8_t")), need("Relu", 13, at(0, "int8_t")))
    six, thirteen = cover(none, none, TABLES, Options())
    assert (six.base, thirteen.base) == (False, True)


def test_a_type_without_a_registration_may_be_another_versions_untyped_one() -> None:
    table = Tables((kernel("Abs", 6, 12, "float"), kernel("Abs", 13)))
    both = union(need("Abs", 6, at(0, "float")), need("Abs", 13, at(0, "int8_t")))
    assert all(each.base for each in cover(both, both, table, Options()))


def test_types_that_are_not_known_may_be_any() -> None:
    plain, only = need("LayerNorm", 17), Closure(need("LayerNorm", 17).entries, ("float",))
    assert the(plain).base
    assert the(plain, only).reason == (
        "its types are not known, and the kernel for double is dropped: "
        "the configuration allows float only"
    )
    assert the(plain, only, types=False).base
    assert the(plain, replace(only, allowed_types=("double", "float"))).base
    assert the(need("ReduceProd", 13), need("ReduceProd", 13, at(0, "float"))).reason.startswith(
        "its types are not known, and the kernel for int64_t is dropped"
    )
    assert the(need("Cast", 13), need("Cast", 13, at(0, "float"))).reason == (
        "its types are not known, and the configuration keeps only some"
    )


def test_types_do_not_matter_where_nothing_tells_them_apart() -> None:
    # Extended builds keep all of QuantizeLinear; Scaler's types are not tracked.
    found = the(need("QuantizeLinear", 13), need("QuantizeLinear", 13, out("int8_t")))
    assert (found.base, found.extended) == (False, True)
    scaler = need("Scaler", 1, at(0, "float"), domain="ai.onnx.ml")
    assert the(scaler).base
    assert the(scaler, ml_ops=False).reason == "only compiled with ML operators"


def test_of_several_reasons_the_last_one_that_counts_is_given() -> None:
    double = kernel("LayerNorm", 17, OPEN, "double", guard="!defined(DISABLE_FLOAT8_TYPES)")
    table = Tables((kernel("LayerNorm", 17, OPEN, "float"), double))
    for rows in (table.registrations, table.registrations[::-1]):
        found = the(need("LayerNorm", 17), Closure(), Tables(rows), disabled_types=("float8",))
        assert found.reason == "the configuration does not keep it"


def test_what_layout_transformation_adds_is_always_in_extended_builds() -> None:
    transpose = need("Transpose", 13, at(0, "float"))
    found = the(transpose, Closure())
    assert (found.base, found.extended) == (False, True)
    assert found.reason == "needs an extended minimal build: the configuration does not keep it"
    # A kernel without a registration for each type still has the configuration's types inside.
    assert the(transpose, need("Transpose", 13, at(0, "int8_t"))).reason == (
        "the configuration drops input 0 as float"
    )
    assert the(need("Layout", 1)).extended
    assert the(need("Layout", 1)).reason.startswith("needs an extended minimal build: only comp")


def test_a_guard_may_ask_for_a_base_minimal_build() -> None:
    odd = Tables((kernel("Odd", 1, guard="!defined(ORT_EXTENDED_MINIMAL_BUILD)"),))
    found = the(need("Odd", 1), tables=odd)
    assert (found.base, found.extended) == (True, False)
    assert found.reason.startswith("needs a base minimal build: only compiled where")


def test_a_tied_registration_shares_the_fate_of_the_one_that_it_is_tied_to() -> None:
    new = kernel("New", 1)
    table = Tables((replace(kernel("Old", 1), tied=new), new))
    assert the(need("Old", 1), tables=table).reason == (
        "the configuration does not keep it, it lists it at 1 "
        "(the runtime's tool takes its line for one of New)"
    )
    assert the(need("Old", 1), need("New", 1), table).base


def test_every_operator_is_needed_only_of_everything() -> None:
    every = Closure(every_operator=True)
    assert cover(every, every, TABLES, Options()) == ()
    assert not the(every, need("Add", 14)).base
    restricted = Closure((), ("float",), every_operator=True)
    assert not the(every, restricted).base
    assert cover(every, restricted, TABLES, Options(types=False)) == ()


def test_a_proof_names_the_first_few_of_the_build_that_is_made() -> None:
    needed = union(*(need(name, 13) for name in ("A", "B", "C", "D", "Transpose")))
    with pytest.raises(errors.ClosureIncomplete) as caught:
        prove(needed, Closure(), TABLES, Options())
    assert caught.value.exit_code == 1
    assert caught.value.message.startswith(
        "the reduced build (base minimal) lacks 5 of the 5 kernels that are needed: "
        "node 'n1' needs ai.onnx A at opset 13: no kernel is registered for it; node"
    )
    assert caught.value.message.endswith("; and 2 more")
    with pytest.raises(errors.ClosureIncomplete, match="lacks 4 of the 5"):
        prove(needed, Closure(), TABLES, Options(minimal="extended"))
    transpose = need("Transpose", 13)
    (found,) = prove(transpose, Closure(), TABLES, Options(minimal="extended"))
    assert found.extended
    assert not found.base
    prove(transpose, transpose, TABLES, Options())


def test_names_of_nodes_cannot_write_to_the_terminal() -> None:
    needed = Closure((Entry("", "Abs", 13, None, "a\x1b[2J\n"),))
    with pytest.raises(errors.ClosureIncomplete) as caught:
        prove(needed, needed, TABLES, Options())
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (("ai.onnx", "Ad", 14), "ai.onnx has no operator Ad (did you mean Add?)"),
        (("ai.onx", "Add", 14), "the domain ai.onx is not known (did you mean ai.onnx?)"),
        (("com.microsoft", "FusedCnv", 1), "no operator FusedCnv (did you mean FusedConv?)"),
        (("ai.onnx", "Add", 19), "the highest opset of ai.onnx that is known is 18"),
        (("ai.onnx", "Add", 6), "ai.onnx has the operator Add from opset 7 on only"),
        (("ai.onnx", "Relu", 14), "its last kernel ends at opset 13"),
    ],
)
def test_entries_that_keep_nothing_are_strangers(entry: tuple[str, str, int], why: str) -> None:
    offered = Closure((Entry(*entry), Entry("", "Add", 14), Entry("", "Relu", 13)))
    (found,) = strangers(offered, TABLES.registrations)
    assert str(found).startswith(f"{entry[0]};{entry[2]};{entry[1]}: no CPU kernel: ")
    assert why in found.reason


# ---------------------------------------------------------------------------- properties
@given(of_models(), closures(), closures(), tables(), options())
def test_more_in_the_configuration_never_uncovers(
    needed: Closure, offered: Closure, more: Closure, table: Tables, how: Options
) -> None:
    before = cover(needed, offered, table, how)
    after = cover(needed, union(offered, more), table, how)
    listed = {each.key for each in offered.entries}
    for one, two in zip(before, after, strict=True):
        assert one.base <= two.base
        key = (one.domain, one.operator)
        # What layout transformation keeps without being listed, a list may restrict to types.
        if key in listed or key not in {(domain, name) for domain, name, _ in table.layout}:
            assert one.extended <= two.extended


@given(of_models(), closures(), tables(), options())
def test_an_extended_build_covers_what_a_base_one_covers(
    needed: Closure, offered: Closure, table: Tables, how: Options
) -> None:
    for each in cover(needed, offered, table, how):
        assert each.base <= each.extended
        assert bool(each.reason) is not (each.base and each.extended)
    both = [set(kept(offered, table, replace(how, minimal=kind))) for kind in ("base", "extended")]
    assert both[0] <= both[1]


@given(of_models(), tables(), options())
def test_what_is_needed_is_offered_by_itself_where_the_full_library_runs_it(
    needed: Closure, table: Tables, how: Options
) -> None:
    bare = Options(how.minimal, how.types, fp16_vectors=how.fp16_vectors, macros=how.macros)
    own = cover(needed, needed, table, bare)
    every = cover(needed, Closure(every_operator=True), table, bare)
    assert [(each.base, each.extended) for each in own] == [
        (each.base, each.extended) for each in every
    ]


@given(of_models(), closures(), tables(), options())
def test_a_proof_is_a_cover_without_gaps(
    needed: Closure, offered: Closure, table: Tables, how: Options
) -> None:
    found = cover(needed, offered, table, how)
    if all(getattr(each, how.minimal) for each in found):
        assert prove(needed, offered, table, how) == found
    else:
        with pytest.raises(errors.ClosureIncomplete):
            prove(needed, offered, table, how)


@given(closures(), tables())
def test_a_stranger_keeps_nothing(offered: Closure, table: Tables) -> None:
    found = {
        (each.domain, each.operator, each.opset) for each in strangers(offered, table.registrations)
    }
    for entry in offered.entries:
        alone = Closure((replace(entry, types=None),))
        left = kept(alone, table, Options(types=False))
        if (entry.domain, entry.operator, entry.opset) not in found:
            assert left
        elif left:  # above every kernel of its domain
            assert entry.opset > max(
                row.start for row in table.registrations if row.domain == entry.domain
            )
