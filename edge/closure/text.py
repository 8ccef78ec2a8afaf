"""The operator configuration that reduced builds of ONNX Runtime read, to and from a closure.

The grammar is the runtime's own (``--include_ops_by_config``)::

    # comment
    domain;opset[,opset...];Operator[{json}][,Operator[{json}]...]
    !globally_allowed_types;T0,T1,...
    !no_ops_specified_means_all_ops_are_required

with json ``{"inputs": {"0": ["float"]}, "outputs": {"0": [...]}}`` or, for OneHot,
``{"custom": [["int64_t", "float", "int64_t"]]}``.

The runtime's parser accepts misspelt operators and unknown domains without a word, and lets the
types of a later line replace those of an earlier one (onnxruntime #16742). Here they are errors,
and merged; a rendered text repeats the merged types on every line, so that both readings agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from edge import errors
from edge.closure import (
    NAME,
    NUMBER,
    Closure,
    Entry,
    Types,
    decode,
    operators,
    type_names,
    types_of,
)

MAX_TEXT = 8 * 2**20
MAX_ENTRIES = 100_000
_LINE_END = re.compile(r"\r\n|\r|\n")
_SPACE = re.compile(r"\s*")
_GLOBAL = "!globally_allowed_types;"
_EVERY = "!no_ops_specified_means_all_ops_are_required"


def render(closure: Closure, *, types: bool) -> str:
    """The canonical text: one line for each (domain, opset), all sorted, LF line ends.

    Without ``types`` nothing is said of types. ``parse(render(x, types=True)) == x``.
    """
    lines = [_EVERY] if closure.every_operator else []
    if types and closure.allowed_types is not None:
        lines.append(_GLOBAL + ",".join(closure.allowed_types))
    rows: dict[tuple[str, int], list[str]] = {}
    for each in closure.entries:
        told = json.dumps(each.types.data()) if types and each.types else ""
        rows.setdefault((each.domain, each.opset), []).append(each.operator + told)
    lines += [f"{domain};{opset};{','.join(names)}" for (domain, opset), names in rows.items()]
    return "".join(line + "\n" for line in lines)


def parse(
    text: str,
    *,
    vocabulary: operators.Vocabulary | None = None,
    where: str = "operator configuration",
) -> Closure:
    """What ``text`` asks for, the types of all its lines merged.

    ``vocabulary``: the operators that exist (default: ``operators.standard()``); ``where`` names
    the text in messages. Raises :class:`errors.ConfigError` with the line number for anything
    outside the grammar and for domains, operators, opsets and types that do not exist.
    """
    return _read(text, vocabulary, where, lambda entries: entries)


def as_built(
    text: str,
    *,
    vocabulary: operators.Vocabulary | None = None,
    where: str = "operator configuration",
) -> Closure:
    """What a reduced build makes of ``text``: the last types of an operator replace all others.

    Types of operators that the reduced build does not track restrict nothing. Raises as
    :func:`parse` does.
    """
    return _read(text, vocabulary, where, _last_types_win)


def _last_types_win(entries: list[Entry]) -> list[Entry]:
    last = {e.key: e.types for e in entries if e.types and e.key in operators.TRACKED}
    return [Entry(e.domain, e.operator, e.opset, last.get(e.key)) for e in entries]


def _read(
    text: str,
    vocabulary: operators.Vocabulary | None,
    where: str,
    choose: Callable[[list[Entry]], list[Entry]],
) -> Closure:
    if len(text) > MAX_TEXT:
        raise errors.ConfigError(f"{where} is longer than {MAX_TEXT} characters")
    found = _Reading(vocabulary or operators.standard())
    for number, line in enumerate(map(str.strip, _LINE_END.split(text)), 1):
        try:
            found.take(line)
        except (ValueError, errors.ModelRefused) as error:
            raise errors.ConfigError(
                f"{where}, line {number}: {error}",
                remedy="the form is domain;opset[,opset];Operator[{json}][,Operator[{json}]]",
            ) from error
    every = found.every and not found.entries
    return Closure(tuple(choose(found.entries)), found.allowed, every)


class _Reading:
    """What the lines read so far have said; its methods raise ValueError."""

    def __init__(self, vocabulary: operators.Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.entries: list[Entry] = []
        self.allowed: tuple[str, ...] | None = None
        self.every = False

    def take(self, line: str) -> None:
        """One line, stripped."""
        if not line or line.startswith("#"):
            return
        if line == _EVERY:
            self.every = True
        elif line.startswith(_GLOBAL):
            if self.allowed is not None:
                raise ValueError("types are allowed globally a second time")
            words = line.removeprefix(_GLOBAL).split(",")
            self.allowed = type_names([word.strip() for word in words])
        else:
            self._operators(line)
        if self.allowed is not None and any(each.types for each in self.entries):
            raise ValueError("types allowed globally exclude types of single operators")

    def _operators(self, line: str) -> None:
        parts = [part.strip() for part in line.split(";")]
        if len(parts) != 3:
            raise ValueError(f"{line[:80]!r} has {len(parts)} parts between semicolons, not 3")
        domain, opsets, names = parts
        if not domain:
            raise ValueError(f"the domain is empty; ONNX's own is written {operators.ONNX}")
        if not NAME.fullmatch(domain):
            raise ValueError(f"{domain[:80]!r} is no domain")
        words = [word.strip() for word in opsets.split(",")]
        if not all(map(NUMBER.fullmatch, words)):
            raise ValueError(f"{opsets[:80]!r} is no list of opsets")
        numbers = sorted(set(map(int, words)))
        for name, types in _named(names):
            _check_form(domain, name, types)
            for opset in numbers:
                objection = self.vocabulary.objection(domain, name, opset)
                if objection:
                    raise ValueError(objection)
                self.entries.append(Entry(domain, name, opset, types))
            if len(self.entries) > MAX_ENTRIES:
                raise ValueError(f"more than {MAX_ENTRIES} operators")


def _check_form(domain: str, name: str, types: Types | None) -> None:
    # The runtime takes either form without a word, and then keeps no kernel or stops half-way.
    tracked = operators.TRACKED.get((domain, name))
    if tracked and types and tracked.custom != bool(types.custom):
        form = "custom triples" if tracked.custom else "by input and output"
        raise ValueError(f"the types of {name} are given {form}")


def _named(text: str) -> Iterator[tuple[str, Types | None]]:
    """Each operator of a line's third part with its types."""
    at = 0
    while True:
        match = NAME.match(text, at)
        if not match:
            raise ValueError(f"no operator's name at {text[at : at + 40]!r}")
        at = match.end()
        types = None
        if text.startswith("{", at):
            data, at = decode(text, at)
            types = types_of(data)
        yield match[0], types
        at = _skip(text, at)
        if at == len(text):
            return
        if text[at] != ",":
            raise ValueError(f"a comma is missing before {text[at : at + 40]!r}")
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
