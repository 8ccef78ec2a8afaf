from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.closure.conditions import Groups, Guard
from edge.closure.registrations import parse
from tests.closure.small_tables import add, one

NAMES = ("A", "B", "DISABLE_C")


def _atom(kind: str, name: str, space: str) -> tuple[str, str]:
    return {
        "defined": (f"defined {name}", f"({name!r} in D)"),
        "defined()": (f"defined{space}({name}{space})", f"({name!r} in D)"),
        "one": ("0x1Fu", "True"),
        "zero": ("00L", "False"),
        "unknown": ("NO_MACRO", "False"),
    }[kind]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """The same condition in C++ and in Python."""
    space = draw(st.sampled_from(("", " ", "  ")))
    kind = draw(st.sampled_from(("not", "&&", "||", "group", "atom")))
    if not depth or kind == "atom":
        atom = draw(st.sampled_from(("defined", "defined()", "one", "zero", "unknown")))
        return _atom(atom, draw(st.sampled_from(NAMES)), space)
    left, python = draw(expressions(depth - 1))
    if kind == "not":
        # Python's "not" binds weaker than C++'s "!", hence the parentheses.
        return f"!{space}({left})", f"(not ({python}))"
    if kind == "group":
        return f"({space}{left})", f"({python})"
    right, other = draw(expressions(depth - 1))
    word = "and" if kind == "&&" else "or"
    return f"{left}{space}{kind}{space}{right}", f"{python} {word} {other}"


@given(expressions(), st.frozensets(st.sampled_from(NAMES)))
def test_conditions_mean_what_the_same_words_mean_in_python(
    expression: tuple[str, str], defines: frozenset[str]
) -> None:
    condition, python = expression
    assert Guard(condition).holds(defines) is bool(eval(python, {"D": defines}))


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("", "it ends too early"),
        ("defined(A) &&", "it ends too early"),
        ("defined", "defined is not followed by a name"),
        ("defined(A", "defined is not followed by a name"),
        ("(A", "a parenthesis is not closed"),
        ("A)", "')' is not expected"),
        ("A B", "'B' is not expected"),
        ("A == 1", "'== 1' cannot be read"),
        ("_MSC_VER >= 1930", "'>= 1930' cannot be read"),
        ("__has_include(<a.h>)", "cannot be read"),
        ("F(A)", "'(' is not expected"),
        ("12ab", "cannot be read"),
        ("(" * 60 + "1" + ")" * 60, "nested deeper than 50"),
        ("1 ||" * 600 + "1", "longer than 2000 characters"),
    ],
)
def test_a_condition_that_cannot_be_read_is_an_error_with_its_place(
    condition: str, why: str
) -> None:
    with pytest.raises(errors.ConfigError, match=re.escape(why)) as caught:
        parse(f"\n#if {condition}\n{add()}#endif\n", "table.cc")
    assert caught.value.message.startswith("table.cc, line 2: cannot tell what #if")


def test_the_value_of_a_macro_is_not_guessed() -> None:
    with pytest.raises(errors.ConfigError, match=r"t\.cc, line 9.*the value of B is not known"):
        Guard("defined(A) && B", "t.cc, line 9").holds(frozenset({"A", "B"}))
    # Where it does not matter it is not asked for.
    assert not Guard("defined(A) && B").holds(frozenset({"B"}))


def test_a_condition_counts_only_where_a_registration_depends_on_it() -> None:
    assert one(f"#if _MSC_VER >= 1930\n#pragma warning\n#endif\n{add()}").guards == ()


@pytest.mark.parametrize(
    ("defines", "starts"),
    [
        ("", [4, 9]), ("A", [1, 9]), ("B", [2, 9]), ("C", [3, 9]), ("A B C", [1, 9]),
        ("N", [4, 9]), ("A N", [1]), ("B C N", [2, 9]),
    ],
)  # fmt: skip
def test_branches_exclude_each_other(defines: str, starts: list[int]) -> None:
    text = (
        f"#ifdef A\n{add(1)}#elif defined(B)\n{add(2)}#elifdef C\n{add(3)}# else // none\n{add(4)}"
        f"#endif\n#ifndef N\n{add(9)}#elif !\\\n   defined(A)\n{add(9)}#endif\n"
        f"#if 0\n{add(5)}#endif\n"
    )
    rows = parse(text, "table.cc")
    macros = frozenset(defines.split())
    assert [each.start for each in rows if each.barrier(macros) is None] == starts


@given(st.lists(st.sampled_from(("#if A", "#else", "#elif 1", "#endif", "x"))))
def test_open_groups_are_counted_and_strays_refused(lines: list[str]) -> None:
    depth = 0
    groups = Groups()
    for line in lines:
        name, _, condition = line.lstrip("#").partition(" ")
        if name in ("else", "elif", "endif") and not depth:
            with pytest.raises(ValueError, match=f"#{name} without #if"):
                groups.take(name, condition, "")
            continue
        groups.take(name, condition, "")
        depth += {"if": 1, "endif": -1}.get(name, 0)
        assert groups.depth == depth


def test_groups_that_do_not_close_and_macros_that_change_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"table\.cc, line 3: an #if is not closed"):
        parse(f"#if A\n{add()}", "table.cc")
    with pytest.raises(errors.ConfigError, match=r"line 2: #endif without #if"):
        parse(f"{add()}#endif\n", "table.cc")
    with pytest.raises(errors.ConfigError, match=r"line 1: A is changed here, and guards"):
        parse(f"#define A 1\n#if A\n{add()}#endif\n", "table.cc")
    with pytest.raises(errors.ConfigError, match=r"line 4: A is changed here"):
        parse(f"#if A\n{add()}#endif\n#undef A\n", "table.cc")
    assert one(f"#define B(x) 1\n#if A\n{add()}#endif\n").guards == (Guard("A"),)
    with pytest.raises(errors.ConfigError, match=r"line 1: a macro registers kernels"):
        parse(f"#define B \\\n{add()}\n", "table.cc")


def test_conditions_in_one_another_are_bounded() -> None:
    for text in ("#if A\n" * 101, "#if A\n" + "#elif B\n" * 100):
        with pytest.raises(errors.ConfigError, match=r"line 101: more than 100 conditions"):
            parse(text, "table.cc")


def test_control_characters_of_a_condition_do_not_reach_the_message() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        parse(f"#if \x1b[2J\n{add()}#endif\n", "table.cc")
    assert caught.value.message.isprintable()
