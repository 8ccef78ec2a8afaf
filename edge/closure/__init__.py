"""Operator closure: the kernels that an artifact needs, as a value.

A :class:`Closure` is a set of (domain, operator, opset) with the types that a reduced build of
ONNX Runtime keeps kernels by. ``edge.closure.text`` has its text form, ``edge.closure.proof``
compares two closures, ``edge.convert.operator_closure`` reads it from artifacts.

Rules:

1. Types belong to an operator, not to one of its versions: the runtime tracks them so. All
   entries of one (domain, operator) carry the same types.
2. No types (``None``) means every type. It absorbs: merged with anything, it stays.
3. Merging never loses a type (onnxruntime #16742: there, later types replace earlier ones). A
   place that a configuration says nothing of is not restricted, so merging frees it.
4. With ``every_operator`` there are no entries: every kernel is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from edge import errors
from edge.closure import operators

MAX_JSON = 64 * 2**20
MAX_OPSET = 10**9 - 1
NAME = re.compile(r"[A-Za-z0-9_.:/+@$-]{1,200}")
NUMBER = re.compile(r"[0-9]{1,9}")

Place = tuple[int, tuple[str, ...]]


def _places(places: Iterable[Place]) -> tuple[Place, ...]:
    merged: dict[int, set[str]] = {}
    for index, names in places:
        merged.setdefault(index, set()).update(names)
    return tuple((index, tuple(sorted(merged[index]))) for index in sorted(merged))


def _of_both(one: tuple[Place, ...], other: tuple[Place, ...]) -> tuple[Place, ...]:
    shared = {index for index, _ in one} & {index for index, _ in other}
    return tuple((index, names) for index, names in one + other if index in shared)


@dataclass(frozen=True)
class Types:
    """C++ type names by input and output index, or ``custom`` triples; sorted, merged by index."""

    inputs: tuple[Place, ...] = ()
    outputs: tuple[Place, ...] = ()
    custom: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", _places(self.inputs))
        object.__setattr__(self, "outputs", _places(self.outputs))
        object.__setattr__(self, "custom", tuple(sorted(set(self.custom))))

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs or self.custom)

    def merged(self, other: Types) -> Types:
        """The types of both; a place that one of them does not restrict stays free (rule 3)."""
        custom = self.custom + other.custom if self.custom and other.custom else ()
        return Types(
            _of_both(self.inputs, other.inputs), _of_both(self.outputs, other.outputs), custom
        )

    def data(self) -> dict[str, Any]:
        """The json form of the configuration's grammar, empty parts left out."""
        found = {
            "inputs": {str(index): list(names) for index, names in self.inputs},
            "outputs": {str(index): list(names) for index, names in self.outputs},
            "custom": [list(names) for names in self.custom],
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True)
class Entry:
    """One needed operator. ``node`` is an example of its use; it does not count in comparisons.

    ``opset`` is the operator's since-version when the entry comes from an artifact, any opset
    when it comes from a configuration. Raises :class:`errors.ModelRefused` for a name that the
    configuration's text cannot hold.
    """

    domain: str
    operator: str
    opset: int
    types: Types | None = None
    node: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", self.domain or operators.ONNX)
        object.__setattr__(self, "types", self.types or None)
        for name in (self.domain, self.operator):
            if not NAME.fullmatch(name):
                raise errors.ModelRefused(
                    f"{name[:80]!r} is no usable name of an operator or a domain",
                    remedy="rename it to letters, digits, points and underscores",
                )
        if not 1 <= self.opset <= MAX_OPSET:
            raise errors.ModelRefused(
                f"{self.domain} {self.operator} asks for the opset {self.opset}"
            )

    @property
    def key(self) -> tuple[str, str]:
        """(domain, operator)."""
        return (self.domain, self.operator)

    @property
    def place(self) -> tuple[str, int, str]:
        """(domain, opset, operator), the order of the text."""
        return (self.domain, self.opset, self.operator)


def _normal(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Sorted entries, one for each (domain, opset, operator), by rules 1 to 3."""
    types: dict[tuple[str, str], Types | None] = {}
    nodes: dict[tuple[str, int, str], str] = {}
    for entry in entries:
        known = types.get(entry.key, entry.types)
        types[entry.key] = known.merged(entry.types) if known and entry.types else None
        # The least name that is one, so that the order of the entries does not matter.
        names = (nodes.get(entry.place, ""), entry.node)
        nodes[entry.place] = min(filter(None, names), default="")
    return tuple(
        Entry(domain, name, opset, types[domain, name], node)
        for (domain, opset, name), node in sorted(nodes.items())
    )


@dataclass(frozen=True)
class Closure:
    """A set of needed operators; sorted and merged whatever it is made of.

    ``allowed_types``: types that the whole configuration is restricted to (None: not at all);
    they exclude types of single operators. ``four_bit``: 4-bit element types of initializers in
    ORT-format artifacts, for ``proof.gates``; neither in the text nor in comparisons.
    """

    entries: tuple[Entry, ...] = ()
    allowed_types: tuple[str, ...] | None = None
    every_operator: bool = False
    four_bit: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        entries = () if self.every_operator else _normal(self.entries)
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "four_bit", tuple(sorted(set(self.four_bit))))
        if self.allowed_types is not None:
            object.__setattr__(self, "allowed_types", tuple(sorted(set(self.allowed_types))))
            if any(each.types for each in entries):
                raise errors.ConfigError(
                    "types allowed globally and types of single operators exclude each other",
                    remedy="leave one of them out",
                )

    def __bool__(self) -> bool:
        return bool(self.entries or self.every_operator or self.allowed_types is not None)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that occur, sorted."""
        return tuple(sorted({each.domain for each in self.entries}))

    def without_types(self) -> Closure:
        """The same operators, with every type of each."""
        bare = tuple(Entry(e.domain, e.operator, e.opset, None, e.node) for e in self.entries)
        return Closure(bare, None, self.every_operator, self.four_bit)


def union(*closures: Closure) -> Closure:
    """A closure that offers all that any of ``closures`` offers.

    Associative, commutative and idempotent; the empty closure is its identity.
    """
    four_bit = tuple(each for one in closures for each in one.four_bit)
    filled = [one for one in closures if one]
    allowed: tuple[str, ...] | None = None
    if filled and all(one.allowed_types is not None for one in filled):
        allowed = tuple(each for one in filled for each in one.allowed_types or ())
    entries = tuple(each for one in filled for each in one.entries)
    return Closure(entries, allowed, any(one.every_operator for one in filled), four_bit)


def to_json(closure: Closure) -> str:
    """``closure.json``: the whole closure, example nodes included; sorted, LF at the end."""
    data = {
        "schema": 1,
        "allowed_types": closure.allowed_types,
        "every_operator": closure.every_operator,
        "four_bit": closure.four_bit,
        "operators": [
            {
                "domain": each.domain,
                "operator": each.operator,
                "opset": each.opset,
                "types": each.types.data() if each.types else None,
                "node": each.node,
            }
            for each in closure.entries
        ],
    }
    return json.dumps(data, indent=1) + "\n"


def from_json(text: str) -> Closure:
    """The closure of a ``closure.json``; :class:`errors.ConfigError` when it is not one."""
    try:
        if len(text) > MAX_JSON:
            raise ValueError(f"it is longer than {MAX_JSON} characters")
        data, end = decode(text, 0)
        if data["schema"] != 1 or text[end:].strip():
            raise ValueError("it is no closure of schema 1")
        allowed, four_bit = data["allowed_types"], tuple(data["four_bit"])
        if set(four_bit) - set(operators.FOUR_BIT.values()):
            raise ValueError("four_bit holds other types")
        return Closure(
            tuple(map(_entry, data["operators"])),
            None if allowed is None else type_names(allowed),
            data["every_operator"] is True,
            four_bit,
        )
    except (ValueError, KeyError, TypeError, AttributeError, errors.EdgeError) as error:
        raise errors.ConfigError(f"closure.json is damaged: {error}") from error


def _entry(data: dict[str, Any]) -> Entry:
    types = None if data["types"] is None else types_of(data["types"])
    if type(data["opset"]) is not int:
        raise ValueError("an opset is no integer")
    return Entry(data["domain"], data["operator"], data["opset"], types, str(data["node"]))


def decode(text: str, at: int) -> tuple[Any, int]:
    """The json value at ``at`` and where it ends; ValueError, also for a key that repeats."""
    try:
        return json.JSONDecoder(object_pairs_hook=_unique).raw_decode(text, at)
    except RecursionError:
        raise ValueError("the json is nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice in the json")
    return dict(pairs)


def types_of(data: Any) -> Types:
    """The types of a json value; ValueError when it is outside the configuration's grammar."""
    if not isinstance(data, dict) or not data or set(data) - {"inputs", "outputs", "custom"}:
        raise ValueError('types are {"inputs": {...}, "outputs": {...}} or {"custom": [...]}')
    places: dict[str, tuple[Place, ...]] = {}
    for side in ("inputs", "outputs"):
        part = data.get(side, {})
        if not isinstance(part, dict) or not all(NUMBER.fullmatch(key) for key in part):
            raise ValueError(f"{side} are not given by index")
        places[side] = tuple((int(key), type_names(value)) for key, value in part.items())
    custom = data.get("custom", [])
    triples = tuple(type_names(each) for each in custom) if isinstance(custom, list) else ()
    types = Types(**places, custom=triples)
    if not types or (types.custom and (types.inputs or types.outputs)):
        raise ValueError("types are given either by index or custom, and at least one of them")
    return types


def type_names(value: Any) -> tuple[str, ...]:
    """A json list of C++ type names, in its order; ValueError when it is not one, or empty."""
    if not isinstance(value, list) or not value:
        raise ValueError("a list of types is missing or empty")
    for name in value:
        if name not in operators.CPP_TYPES.values():
            raise ValueError(f"{str(name)[:40]!r} is no type; types are C++ names such as float")
    return tuple(value)
