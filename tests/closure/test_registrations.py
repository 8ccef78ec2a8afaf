from __future__ import annotations

import importlib.util
import logging
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.closure import registrations
from edge.closure.conditions import Guard
from edge.closure.operators import OPEN
from edge.closure.registrations import Registration, load, parse, parse_layout, read
from tests.closure.small_tables import add, one, row

CPU, CONTRIB, TRAINING = (name for name, _ in registrations.TABLES)


@pytest.mark.parametrize(
    ("macro", "what", "expected"),
    [
        ("", "kOnnxDomain, 7, Add", Registration("ai.onnx", "Add", 7)),
        ("VERSIONED_", "kMLDomain, 1, 2, Scaler", Registration("ai.onnx.ml", "Scaler", 1, 2)),
        ("TYPED_", "kMSNchwcDomain, 1, float, Conv",
         Registration("com.microsoft.nchwc", "Conv", 1, OPEN, ("float",))),
        ("TYPED_", "kMSDomain, 1, string, Tokenizer",
         Registration("com.microsoft", "Tokenizer", 1, OPEN, ("std::string",))),
        ("VERSIONED_TYPED_", "kOnnxDomain, 9, 10, int64_t_string_int64_t, OneHot",
         Registration("ai.onnx", "OneHot", 9, 10, ("int64_t", "std::string", "int64_t"))),
        ("TWO_TYPED_", "kMSDomain, 1, UInt4x2, int32_t, Gather",
         Registration("com.microsoft", "Gather", 1, OPEN, ("UInt4x2", "int32_t"))),
        ("VERSIONED_TWO_TYPED_", "kMSInternalNHWCDomain, 1, 9, float, bool, X",
         Registration("com.ms.internal.nhwc", "X", 1, 9, ("float", "bool"))),
        ("THREE_TYPED_", "kPytorchAtenDomain, 1, float, bool, string, ATen",
         Registration("org.pytorch.aten", "ATen", 1, OPEN, ("float", "bool", "std::string"))),
        ("VERSIONED_THREE_TYPED_", "kMSDomain,1,2,A,B,C,X",
         Registration("com.microsoft", "X", 1, 2, ("A", "B", "C"))),
    ],
)  # fmt: skip
def test_every_spelling_is_read(macro: str, what: str, expected: Registration) -> None:
    assert one(row(what, macro)) == expected
    assert one(row(what.replace(", ", ",\n        "), macro)) == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (row("kOnnxDomain, 7, Add", "FOUR_TYPED_"), "ONNX_OPERATOR_FOUR_TYPED_KERNEL_CLASS_NAME"),
        ("BuildKernelCreateInfo<CUDA_MS_OP_CLASS_NAME(1, X)>,", "CUDA_MS_OP_CLASS_NAME is no kno"),
        ("BuildKernelCreateInfo<Add>,", "Add is no known way"),
        ("BuildKernelCreateInfo<a::b(1)>,", "this registration cannot be read"),
        ("BuildKernelCreateInfo<", "this registration cannot be read"),
        (row("kNoDomain, 7, Add"), "kNoDomain is no known domain"),
        (row("kOnnxDomain, 7, 8, Add"), "has 5 arguments"),
        (row("kOnnxDomain, 7, Add", "VERSIONED_"), "has 4 arguments"),
        (row("kOnnxDomain, seven, Add"), "seven are no opsets"),
        (row("kOnnxDomain, 7, "), "'' is no argument of a registration"),
        (row("kOnnxDomain, 7, A\x1b[2J"), r"'A\x1b[2J' is no argument"),
        (row("kOnnxDomain, 7, Add").replace("kCpu", "kCuda"), "kCudaExecutionProvider is not"),
        (row("kOnnxDomain, 7, Add", comma="// last"), "has no end that the runtime's own tool"),
        (row("kOnnxDomain, 7, Add", comma="// last") + "f(x);\n", "mistakes what follows"),
        (row("kOnnxDomain, 7, Add", comma="// a") + row("kOnnxDomain, 7, int8_t, Add", "TYPED_"),
         "mistakes what follows"),
        ("class ONNX_OPERATOR_KERNEL_CLASS_NAME(kCpuExecutionProvider, kOnnxDomain, 7, Add);",
         "table.cc registers no kernel"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_never_passed_over(line: str, why: str) -> None:
    with pytest.raises(errors.ConfigError, match=re.escape(why)) as caught:
        parse(f"{line}\n", "table.cc")
    assert caught.value.message.startswith("table.cc")


def test_comments_and_the_empty_entry_are_no_registrations() -> None:
    text = (
        "BuildKernelCreateInfo<void>,  // default\n"
        f"// {add(1)}/* {add(2)} */ const char* a = \"/*\";\n{add(3)}"
        f"const char* b = \"*/ //\";\n// BuildKernelCreateInfo<\r\n{add(4)}"
    )  # fmt: skip
    assert [each.start for each in parse(text, "table.cc")] == [3, 4]


def test_a_comment_behind_a_registration_ties_it_to_the_next() -> None:
    # onnxruntime 1.21: a configuration keeps TransposeMatMul by FusedMatMul only.
    text = row("kMSDomain, 1, Old", comma=",  // for a while") + row("kMSDomain, 1, New")
    old, new = parse(text, "table.cc")
    assert old.tied == new == Registration("com.microsoft", "New", 1)
    assert old.operator == "Old"


def test_a_registration_that_does_not_begin_its_line_is_not_seen_by_the_tool() -> None:
    text = add(1) + "table = {" + add(7).lstrip() + add(13)
    assert [each.reducible for each in parse(text, "table.cc")] == [True, False, True]


@given(st.text(alphabet='#ifdef A\\\n/*"<>BuildKernelCreateInfo(),;7'))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    with pytest.raises(errors.ConfigError):
        parse(text, "table.cc")
    with pytest.raises(errors.ConfigError):
        parse_layout(text, "layout.h")


LAYOUT = """
    OpIdentifierWithStringViews{kOnnxDomain, "Before", 1},
    // @@region_begin(extended_minimal_build_required_kernels)@@
    OpIdentifierWithStringViews{kOnnxDomain, "Transpose", 13},
    OpIdentifierWithStringViews{kMSDomain, "QLinearConv", 1},
    // @@region_end(extended_minimal_build_required_kernels)@@
    OpIdentifierWithStringViews{kOnnxDomain, "After", 1},
"""


def test_the_layout_operators_are_those_of_the_marked_region() -> None:
    assert parse_layout(LAYOUT, "layout.h") == (
        ("ai.onnx", "Transpose", 13), ("com.microsoft", "QLinearConv", 1),
    )  # fmt: skip
    with pytest.raises(errors.ConfigError, match=r"layout\.h: kNoDomain is no known domain"):
        parse_layout(LAYOUT.replace("kMSDomain", "kNoDomain"), "layout.h")


# ---------------------------------------------------------------------------- trees
@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in (
        (CPU, f"{add(7)}#ifndef DISABLE_ML_OPS\n{row('kMLDomain, 1, Scaler')}#endif\n"),
        (CONTRIB, row("kMSDomain, 1, Old", comma=", // x") + row("kMSDomain, 1, New")),
        (TRAINING, row("kMSDomain, 1, Group")),
        (registrations.LAYOUT, LAYOUT),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("defines", "names"),
    [
        ("", "Add Scaler Old New"), ("DISABLE_ML_OPS", "Add Old New"),
        ("DISABLE_CONTRIB_OPS", "Add Scaler"), ("ENABLE_TRAINING_OPS", "Add Scaler Old New Group"),
    ],
)  # fmt: skip
def test_a_tree_is_read_for_a_set_of_macros(tree: Path, defines: str, names: str) -> None:
    found = read(tree, frozenset(defines.split()))
    assert [each.operator for each in found] == names.split()
    old = next((each for each in found if each.operator == "Old"), None)
    assert old is None or old.tied in found


@pytest.mark.parametrize("name", [CPU, CONTRIB, TRAINING, registrations.LAYOUT])
def test_a_tree_that_is_none_names_the_file(tree: Path, name: str) -> None:
    (tree / name).write_bytes(b"\xff")
    with pytest.raises(errors.ConfigError, match=f"is no ONNX Runtime source tree: {name} is no"):
        load(tree)
    (tree / name).write_bytes(b" " * (registrations.MAX_BYTES + 1))
    with pytest.raises(errors.ConfigError, match=f"{name} has more than {registrations.MAX_BYTES}"):
        load(tree)
    (tree / name).unlink()
    with pytest.raises(
        errors.ConfigError, match=f"source tree: cannot read {name} \\(No such"
    ) as e:
        load(tree)
    assert e.value.exit_code == 2


def upstream(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tree's own ``op_registration_utils``, without its logging."""
    silent = logging.getLogger("silent")
    monkeypatch.setitem(sys.modules, "logger", types.SimpleNamespace(get_logger=lambda _: silent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the tree is not ours
    path = tree / "tools/ci_build/op_registration_utils.py"
    spec = importlib.util.spec_from_file_location("op_registration_utils_of_tree", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def theirs(module: Any, path: Path) -> list[tuple[Any, ...]]:
    """(domain, operator, start, end, types) as the tree's own parser reports them."""
    found = []

    def report(_lines: list[str], domain: str, *rest: Any) -> None:
        found.append((module.map_ort_constant_to_domain(domain), *rest))

    processor = module.RegistrationProcessor()
    processor.process_registration = report
    module.process_kernel_registration_file(path, processor)
    return found


def ours(each: Registration) -> tuple[Any, ...]:
    # Two types in one macro are joined by a comma there, two in one name by an underscore.
    known = ("Int4x2", "UInt4x2")
    joined = (", " if each.types[0:1] and each.types[0] in known else "_").join(each.types)
    end = None if each.end == OPEN else each.end
    return (each.domain, each.operator, each.start, end, joined.replace("std::", "") or None)


def test_the_runtimes_own_parser_finds_the_same(
    ort_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream(ort_source, monkeypatch)
    for name, _ in registrations.TABLES:
        found = parse((ort_source / name).read_text(encoding="utf-8"), name)
        seen = [ours(each) for each in found if each.reducible and not each.tied]
        assert seen == theirs(module, ort_source / name)
        assert len(seen) > 50


def test_the_real_tables_hold_what_is_known_of_them(ort_source: Path) -> None:
    tables = load(ort_source)
    kernels = {each.key: each for each in tables.registrations}
    # Nothing guards the NCHWc kernels but contrib operators: MLAS decides when it is loaded.
    nchwc = kernels["com.microsoft.nchwc", "Conv"]
    assert (nchwc.types, nchwc.guards) == (("float",), (Guard("!defined(DISABLE_CONTRIB_OPS)"),))
    assert kernels["ai.onnx.ml", "Normalizer"].guards == (Guard("!defined(DISABLE_ML_OPS)"),)
    assert ("ai.onnx", "HardSwish") not in kernels
    assert ("com.microsoft", "QLinearConv", 1) in tables.layout
    assert [each for each in tables.registrations if not each.reducible] == []
    tied = [(each.operator, each.tied.operator) for each in tables.registrations if each.tied]
    assert tied == [("TransposeMatMul", "FusedMatMul")]  # since mended upstream
    base, full = frozenset({"ORT_MINIMAL_BUILD"}), frozenset[str]()
    assert {each.operator for each in read(ort_source, full)} - {
        each.operator for each in read(ort_source, base)
    } == {"MatMulFpQ4"}
