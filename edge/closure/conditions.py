"""Conditions around C++ source (``#if`` and its kin), judged for a given set of macros.

Rules:

1. Read are ``defined X``, ``defined(X)``, ``!``, ``&&``, ``||``, parentheses, integers and
   names; a name that is no macro counts as 0, as the C++ standard says ([cpp.cond]).
2. What is compiled is never guessed: any other expression, and the value of a macro, is a
   :class:`errors.ConfigError` that names file and line.
3. As in C++, a condition counts only where something depends on it: one around nothing of
   interest may say what it likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from edge import errors

MAX_CONDITION = 2_000
MAX_DEPTH = 50
MAX_GUARDS = 100  # groups in groups, and branches of one
_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]*\b|(?P<other>[A-Za-z_]\w*|&&|\|\||[!()]))",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BEGINS = {"if": "{}", "ifdef": "defined({})", "ifndef": "!defined({})"}
_CONTINUES = {"elif": "{}", "elifdef": "defined({})", "elifndef": "!defined({})"}

Test = Callable[[frozenset[str]], bool]


@dataclass(frozen=True)
class Guard:
    """A condition under which source is compiled; ``where``: its file and line."""

    condition: str
    where: str = field(default="", compare=False)

    def check(self) -> None:
        """Raise :class:`errors.ConfigError` when the condition cannot be read."""
        try:
            _test(self.condition)
        except ValueError as error:
            raise self._error(error) from error

    def holds(self, defines: frozenset[str]) -> bool:
        """Whether it is true with the macros ``defines``; :class:`errors.ConfigError`."""
        try:
            return _test(self.condition)(defines)
        except ValueError as error:
            raise self._error(error) from error

    @property
    def names(self) -> frozenset[str]:
        """The macros that it depends on."""
        return frozenset(_NAME.findall(self.condition)) - {"defined", "true"}

    def _error(self, error: ValueError) -> errors.ConfigError:
        told = "".join(each if each.isprintable() else "?" for each in self.condition[:120])
        return errors.ConfigError(
            f"{self.where or 'a condition'}: cannot tell what #if {told} compiles: {error}",
            remedy="report it: this release of ONNX Runtime guards its tables in a new way",
        )


class Groups:
    """The groups of ``#if`` ... ``#endif`` that are open at a place of a text."""

    def __init__(self) -> None:
        # For each group: the conditions of its branches before this one, denied, and this one's.
        self._open: list[tuple[Guard, ...]] = []

    def take(self, directive: str, condition: str, where: str) -> None:
        """One directive; ValueError when no group is open for it, or too many are.

        Directives that open and close nothing are passed over.
        """
        condition = " ".join(condition.split())
        if directive in _BEGINS:
            self._open.append((Guard(_BEGINS[directive].format(condition), where),))
        elif directive in _CONTINUES:
            denied = self._denied(directive)
            self._open.append((*denied, Guard(_CONTINUES[directive].format(condition), where)))
        elif directive == "else":
            # A second #else meets a condition that is never true.
            self._open.append((*self._denied(directive), Guard("1", where)))
        elif directive == "endif":
            self._denied(directive)
        if len(self._open) > MAX_GUARDS or len(self._open and self._open[-1]) > MAX_GUARDS:
            raise ValueError(f"more than {MAX_GUARDS} conditions in one another")

    def _denied(self, directive: str) -> tuple[Guard, ...]:
        """Close the branch; the conditions under which the next one of its group is reached."""
        if not self._open:
            raise ValueError(f"#{directive} without #if")
        *before, last = self._open.pop()
        return (*before, Guard(f"!({last.condition})", last.where))

    @property
    def depth(self) -> int:
        """How many groups are open."""
        return len(self._open)

    def guards(self) -> tuple[Guard, ...]:
        """All conditions in force, outermost first; each is to be judged after those before."""
        found = tuple(guard for group in self._open for guard in group if guard.condition != "1")
        for guard in found:
            guard.check()
        return found


@lru_cache(maxsize=1024)
def _test(condition: str) -> Test:
    return _Reader(condition).test()


class _Reader:
    """Recursive descent over one condition; raises ValueError."""

    def __init__(self, condition: str) -> None:
        if len(condition) > MAX_CONDITION:
            raise ValueError(f"it is longer than {MAX_CONDITION} characters")
        self.tokens = _tokens(condition)
        self.depth = 0

    def test(self) -> Test:
        found = self._either()
        if self.tokens:
            raise ValueError(f"{self.tokens[0]!r} is not expected")
        return found

    def _skip(self, *tokens: str) -> bool:
        found = bool(self.tokens) and self.tokens[0] in tokens
        if found:
            self.tokens.pop(0)
        return found

    def _either(self) -> Test:
        parts = [self._both()]
        while self._skip("||"):
            parts.append(self._both())
        return lambda defines: any(part(defines) for part in parts)

    def _both(self) -> Test:
        parts = [self._not()]
        while self._skip("&&"):
            parts.append(self._not())
        return lambda defines: all(part(defines) for part in parts)

    def _not(self) -> Test:
        wanted = True
        while self._skip("!"):
            wanted = not wanted
        part = self._single()
        return lambda defines: part(defines) is wanted

    def _single(self) -> Test:
        word = self.tokens.pop(0) if self.tokens else ""
        if word == "(":
            return self._inner()
        if word == "defined":
            return self._defined()
        if word[:1].isdigit() or word == "true":
            value = word == "true" or int(word, 16) != 0
            return lambda _: value
        if not _NAME.fullmatch(word):
            raise ValueError(f"{word!r} is not expected" if word else "it ends too early")
        return lambda defines: _value(word, defines)

    def _inner(self) -> Test:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError(f"parentheses are nested deeper than {MAX_DEPTH}")
        found = self._either()
        if not self._skip(")"):
            raise ValueError("a parenthesis is not closed")
        self.depth -= 1
        return found

    def _defined(self) -> Test:
        inside = self._skip("(")
        name = self.tokens.pop(0) if self.tokens else ""
        if not _NAME.fullmatch(name) or (inside and not self._skip(")")):
            raise ValueError("defined is not followed by a name")
        return lambda defines: name in defines


def _tokens(condition: str) -> list[str]:
    found, at, end = [], 0, len(condition.rstrip())
    while at < end:
        match = _TOKEN.match(condition, at)
        if not match:
            raise ValueError(f"{condition[at : at + 20].strip()!r} cannot be read")
        found.append(match["number"] or match["other"])
        at = match.end()
    return found


def _value(name: str, defines: frozenset[str]) -> bool:
    if name in defines:
        raise ValueError(f"the value of {name} is not known")
    return False
