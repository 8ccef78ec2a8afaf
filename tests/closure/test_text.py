from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge import errors
from edge.closure import Closure, Entry, Types
from edge.closure.operators import standard
from edge.closure.text import MAX_TEXT, as_built, parse, render
from tests.closures import closures

FLOAT = Types(((0, ("float",)),))
INT64 = Types(((0, ("int64_t",)),))
HIGHEST = standard().highest["ai.onnx"]
TWO_LINES = """\
ai.onnx;13;ReduceProd{"inputs": {"0": ["int64_t"]}}
ai.onnx;18;ReduceProd{"inputs": {"0": ["float"]}}
"""


def test_the_text_is_canonical() -> None:
    closure = Closure(
        (
            Entry("com.microsoft", "FusedConv", 1),
            Entry("ai.onnx", "Cast", 13, Types(((0, ("float",)),), ((0, ("int32_t", "bool")),))),
            Entry("ai.onnx", "Add", 7),
            Entry("ai.onnx", "Abs", 13, FLOAT),
            Entry("ai.onnx", "OneHot", 11, Types(custom=(("int64_t", "float", "int64_t"),))),
        )
    )
    assert render(closure, types=True) == (
        "ai.onnx;7;Add\n"
        'ai.onnx;11;OneHot{"custom": [["int64_t", "float", "int64_t"]]}\n'
        'ai.onnx;13;Abs{"inputs": {"0": ["float"]}},'
        'Cast{"inputs": {"0": ["float"]}, "outputs": {"0": ["bool", "int32_t"]}}\n'
        "com.microsoft;1;FusedConv\n"
    )
    assert render(closure, types=False) == (
        "ai.onnx;7;Add\nai.onnx;11;OneHot\nai.onnx;13;Abs,Cast\ncom.microsoft;1;FusedConv\n"
    )


@given(closures())
def test_what_is_rendered_is_parsed_again(closure: Closure) -> None:
    assert parse(render(closure, types=True)) == closure
    assert parse(render(closure, types=False)) == closure.without_types()


@given(closures())
def test_a_rendered_text_is_built_as_it_is_meant(closure: Closure) -> None:
    assert as_built(render(closure, types=True)) == closure


def test_the_whole_grammar_is_read() -> None:
    text = (
        "# a comment\r\n\r\n  ai.onnx ; 13, 14 ,13; Add , Mul  \r"
        'ai.onnx;13;Cast{"inputs": {"0": ["float"]}} , Erf\n'
        "ai.onnx.ml;3;TreeEnsembleRegressor\n"
        "com.ms.internal.nhwc;11;Conv\n"
        "!no_ops_specified_means_all_ops_are_required\n"
    )
    found = parse(text)
    assert not found.every_operator
    assert [(e.domain, e.opset, e.operator) for e in found.entries] == [
        ("ai.onnx", 13, "Add"),
        ("ai.onnx", 13, "Cast"),
        ("ai.onnx", 13, "Erf"),
        ("ai.onnx", 13, "Mul"),
        ("ai.onnx", 14, "Add"),
        ("ai.onnx", 14, "Mul"),
        ("ai.onnx.ml", 3, "TreeEnsembleRegressor"),
        ("com.ms.internal.nhwc", 11, "Conv"),
    ]
    assert found.entries[1].types == FLOAT


def test_a_text_without_operators_keeps_none_unless_it_says_all() -> None:
    assert parse("# nothing\n") == Closure()
    assert parse("!no_ops_specified_means_all_ops_are_required") == Closure(every_operator=True)
    assert parse("!globally_allowed_types;float, bool").allowed_types == ("bool", "float")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ai.onnx;13", "has 2 parts between semicolons, not 3"),
        ("ai.onnx;13;Add;", "has 4 parts"),
        (";13;Add", "the domain is empty; ONNX's own is written ai.onnx"),
        ("ai.onx;13;Add", "the domain ai.onx is not known (did you mean ai.onnx?)"),
        ("ai onnx;13;Add", "'ai onnx' is no domain"),
        ("ai.onnx;13;Conf", "ai.onnx has no operator Conf (did you mean Conv?)"),
        ("com.microsoft;1;FusedCnv", "com.microsoft has no operator FusedCnv (did you mean Fused"),
        ("com.microsoft.nchwc;1;Relu", "com.microsoft.nchwc has no operator Relu"),
        ("ai.onnx;13;Gelu", "ai.onnx has the operator Gelu from opset 20 on only"),
        ("ai.onnx;99;Add", f"highest opset of ai.onnx that is known is {HIGHEST}"),
        ("com.microsoft;2;Gelu", "highest opset of com.microsoft that is known is 1"),
        ("ai.onnx;13.0;Add", "'13.0' is no list of opsets"),
        ("ai.onnx;;Add", "'' is no list of opsets"),
        ("ai.onnx;1_3;Add", "'1_3' is no list of opsets"),
        ("ai.onnx;٣;Add", "is no list of opsets"),
        ("ai.onnx;13;", "no operator's name at ''"),
        ("ai.onnx;13;Add,", "no operator's name at ''"),
        ("ai.onnx;13;Add,,Mul", "no operator's name at ',Mul'"),
        ("ai.onnx;13;Add # sum", "a comma is missing before '# sum'"),
        ('ai.onnx;13;Add{"inputs": {"0": ["float"]}}Mul', "a comma is missing before 'Mul'"),
        ('ai.onnx;13;Add{"inputs": {"0": ["flaot"]}}', "'flaot' is no type"),
        ('ai.onnx;13;Add{"inputs": {"0": []}}', "a list of types is missing or empty"),
        ('ai.onnx;13;Add{"inputs": {"x": ["float"]}}', "inputs are not given by index"),
        ('ai.onnx;13;Add{"inputs": ["float"]}', "inputs are not given by index"),
        ('ai.onnx;13;Add{"input": {"0": ["float"]}}', "types are"),
        ('ai.onnx;13;Add{"inputs": {"0": ["bool"], "0": ["float"]}}', "a key stands twice"),
        ("ai.onnx;13;Add{}", "types are"),
        ('ai.onnx;13;Add{"inputs": {"0": ["float"]}', "Expecting"),
        ("ai.onnx;13;Add" + '{"inputs":' * 50_000, "nested too deep"),
        ('ai.onnx;13;Add{"custom": [["float"]]}', "the types of Add are given by input and output"),
        ('ai.onnx;11;OneHot{"inputs": {"0": ["float"]}}', "the types of OneHot are given custom"),
        ('ai.onnx;13;Erf{"inputs": {"0": ["float"]}, "custom": [["bool"]]}', "either by index or"),
        ("!globally_allowed_types;float,flaot", "'flaot' is no type"),
        ("!globally_allowed_types;", "'' is no type"),
        ("!no_ops_specified", "has 1 parts"),
    ],
)  # fmt: skip
def test_anything_outside_the_grammar_is_an_error_with_its_line(line: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=re.escape(message)) as caught:
        parse(f"# one\n\n{line}\n", where="required.config")
    assert caught.value.message.startswith("required.config, line 3: ")


def test_global_types_stand_once_and_alone() -> None:
    with pytest.raises(errors.ConfigError, match="line 2: types are allowed globally a second"):
        parse("!globally_allowed_types;float\n!globally_allowed_types;bool\n")
    with pytest.raises(errors.ConfigError, match="line 2: types allowed globally exclude"):
        parse("!globally_allowed_types;float\n" + TWO_LINES)
    with pytest.raises(errors.ConfigError, match="line 3: types allowed globally exclude"):
        parse(TWO_LINES + "!globally_allowed_types;float\n")


def test_two_lines_are_merged_but_built_as_the_last_one() -> None:
    assert {e.types for e in parse(TWO_LINES).entries} == {Types(((0, ("float", "int64_t")),))}
    assert {e.types for e in as_built(TWO_LINES).entries} == {FLOAT}


def test_a_line_without_types_asks_for_all_but_is_built_with_those_of_another() -> None:
    text = "ai.onnx;13;ReduceProd\n" + TWO_LINES.splitlines()[1]
    assert {e.types for e in parse(text).entries} == {None}
    assert {e.types for e in as_built(text).entries} == {FLOAT}


def test_types_of_untracked_operators_restrict_nothing_in_a_build() -> None:
    text = 'ai.onnx;13;Erf{"inputs": {"0": ["float"]}}'
    assert parse(text).entries[0].types == FLOAT
    assert as_built(text).entries[0].types is None


def test_a_vocabulary_may_know_more() -> None:
    more = standard().extended([("my.domain", "Sw", 3)])
    assert parse("my.domain;3;Sw", vocabulary=more).domains == ("my.domain",)
    with pytest.raises(errors.ConfigError, match="highest opset of my"):
        parse("my.domain;4;Sw", vocabulary=more)


def test_a_huge_text_is_refused_before_it_is_read() -> None:
    with pytest.raises(errors.ConfigError, match="longer than"):
        parse("#" * (MAX_TEXT + 1))


def test_the_number_of_operators_is_bounded() -> None:
    opsets = ",".join(map(str, range(14, 29)))
    with pytest.raises(errors.ConfigError, match="more than 100000 operators"):
        parse(f"ai.onnx;{opsets};" + ",".join(["Add"] * 10_000))


@given(st.text(alphabet='ai.onx;13Add,{}"[]:float#! \n', max_size=80))
@example('ai.onnx;13;Add{"inputs": {"0": ["float"]}}')
def test_any_text_is_a_closure_or_one_clear_error(text: str) -> None:
    with contextlib.suppress(errors.ConfigError):
        found = parse(text)
        assert parse(render(found, types=True)) == found
