"""Whether a reduced build of ONNX Runtime will have every kernel that an artifact needs.

Proven from the source tree's registration tables without compiling anything. Upstream's
``reduce_op_kernels.py`` warns about nothing: an unknown operator, a misspelt domain and a type
line that replaces another are all taken silently. Rules:

1. The tool's own choice, ``reduction.kept``: what the configuration keeps in the tables.
2. The preprocessor takes away what ``reduction.Options`` leave out.
3. What is left must serve the node's since-version (``operators.serves``) with its types. A type
   that has a registration of its own at that version is served by that one only; all others by
   an untyped registration, whose kernel holds the list of its types itself. The artifact has run
   with the full library of the same release, so the list is right there, and what is shown is
   that the configuration drops nothing of it (``proof.missing``).
4. Types belong to an operator and not to a version of it (``Closure``, rule 1). A type that no
   kernel of one needed version has is therefore asked of the others only.
5. Types that the closure does not know (operators that are not tracked) are taken to be any: no
   registration that the full library has for the version may be left out.

Where this errs, it refuses: it never passes what a build would lack, as far as the tables say
and ``operators.TRACKED`` holds all that the tree's release tracks. What a kernel does without a
registration of its own (a sparse initializer, an optional value) is not in the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edge import errors
from edge.closure import Closure, Entry, Types, operators, proof
from edge.closure.conditions import Guard
from edge.closure.reduction import FLOAT16, TYPE_MACROS, Choice, Options, place
from edge.closure.registrations import Key, Registration, Tables

SHOWN = 3
# What a guard that does not hold means, by the macro in it.
_ONLY = {
    "DISABLE_ML_OPS": "with ML operators",
    "DISABLE_CONTRIB_OPS": "with contrib operators",
    "DISABLE_GENERATION_OPS": "with generation operators",
    "ENABLE_TRAINING_OPS": "with training operators",
    "ORT_MINIMAL_BUILD": "into full builds",
    FLOAT16: "for processors with float16 vectors (arm64)",
} | {macro: f"with the type {name}" for name, macro in TYPE_MACROS.items()}


@dataclass(frozen=True, order=True)
class Cover:
    """Whether the two kinds of minimal build have the kernel of one needed operator.

    ``reason``: why not, when either has not. ``node`` is an example of the operator's use.
    """

    domain: str
    operator: str
    opset: int
    node: str
    base: bool
    extended: bool
    reason: str = ""

    def __str__(self) -> str:
        who = proof.Missing(self.domain, self.operator, self.opset, "", self.node)
        return f"{who}: {self.reason or 'covered'}"


@dataclass(frozen=True, order=True)
class Stranger:
    """An entry of a configuration that no registration answers to."""

    domain: str
    operator: str
    opset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.domain};{self.opset};{self.operator}: {self.reason}"


# ------------------------------------------------------------------------------ the coverage
def cover(needed: Closure, offered: Closure, tables: Tables, options: Options) -> tuple[Cover, ...]:
    """For each entry of ``needed``, sorted: which kind of minimal build has its kernel.

    ``offered`` is ``text.as_built`` of the configuration, ``tables`` are
    ``registrations.load``'s; of ``options.minimal`` only the wording depends. Raises
    :class:`errors.ConfigError` for a configuration that the runtime's tool would stop at.
    """
    if needed.every_operator:
        return () if _all_of(offered, options) else (_EVERYTHING,)
    base, extended = (
        _Build(needed, offered, tables, replace(options, minimal=kind))
        for kind in ("base", "extended")
    )
    extended_first = options.minimal == "extended"
    found = []
    for entry in needed.entries:
        lacks = (base.lacks(entry), extended.lacks(entry))
        reason = _needs(*lacks) + (lacks[extended_first] or max(lacks))
        found.append(Cover(*entry.key, entry.opset, entry.node, not lacks[0], not lacks[1], reason))
    return tuple(found)


def prove(needed: Closure, offered: Closure, tables: Tables, options: Options) -> tuple[Cover, ...]:
    """:func:`cover`, when the build of ``options`` has all of ``needed``.

    Raises :class:`errors.ClosureIncomplete` otherwise, with the first few and why.
    """
    covers = cover(needed, offered, tables, options)
    lacking = [each for each in covers if not getattr(each, options.minimal)]
    if lacking:
        shown = "; ".join(map(str, lacking[:SHOWN]))
        more = f"; and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        raise errors.ClosureIncomplete(
            f"the reduced build ({options.minimal} minimal) lacks {len(lacking)} of the "
            f"{len(covers)} kernels that are needed: {shown}{more}",
            remedy="make the configuration from the closures of all artifacts that ship, and "
            "build with what the reasons name",
        )
    return covers


_EVERYTHING = Cover(
    "every domain",
    "every operator",
    1,
    "",
    base=False,
    extended=False,
    reason="the configuration does not keep it",
)


def _all_of(offered: Closure, options: Options) -> bool:
    return offered.every_operator and (offered.allowed_types is None or not options.types)


def _needs(base: str, extended: str) -> str:
    if bool(base) == bool(extended):
        return ""
    return "needs an extended minimal build: " if base else "needs a base minimal build: "


class _Build:
    """One kind of build of one configuration: what it lacks, and why."""

    def __init__(self, needed: Closure, offered: Closure, tables: Tables, options: Options) -> None:
        self.options = options
        self.choice = Choice(offered, tables, options)
        self.rows: dict[Key, list[Registration]] = {}
        for row in tables.registrations:
            self.rows.setdefault(row.key, []).append(row)
            self.choice.keeps(row)  # stops where the runtime's tool would
        self.versions: dict[Key, list[int]] = {}
        for entry in needed.entries:
            self.versions.setdefault(entry.key, []).append(entry.opset)

    def lacks(self, entry: Entry) -> str:
        """Why the build has no kernel for ``entry``; "" when it has."""
        rows = self._serving(entry.key, entry.opset)
        if not rows:
            return self._unregistered(entry)
        if entry.domain == operators.NCHWC and not self.options.nchwc:
            return "only registered on processors with the layout NCHWc (amd64)"
        types = entry.types if entry.key in operators.TRACKED else None
        disabled = sorted(filter(self.options.lacks_type, _names(types)))
        if disabled:
            return f"the build leaves out the type {disabled[0]}"
        wanted = _wanted(entry.key, types)
        if wanted and types:
            return self._lacks_types(entry, types, wanted, rows)
        return self._lacks_any(rows) or self._restricted(entry, types, rows)

    def _serving(self, key: Key, version: int) -> list[Registration]:
        return [row for row in self.rows.get(key, ()) if row.serves(version)]

    def _unregistered(self, entry: Entry) -> str:
        begins = sorted({row.start for row in self.rows.get(entry.key, ())})
        if not begins:
            return "no kernel is registered for it"
        known = f"only for {_words(begins)}"
        return f"no kernel is registered for version {entry.opset} of it, {known}"

    def _lacks_types(
        self, entry: Entry, types: Types, wanted: list[tuple[str, ...]], rows: list[Registration]
    ) -> str:
        """For an operator whose types are known (rules 3 and 4)."""
        own = {row.types for row in rows}
        here = [each for each in wanted if own & {each, ()}]
        for each in wanted:
            if not here or (each not in here and not self._registered_elsewhere(entry, each)):
                return f"no kernel is registered for it with {_words(each)}"
        for each in here:
            served_by = each if each in own else ()
            reason = self._lacks_all([row for row in rows if row.types == served_by])
            if reason:
                return reason
        rest = _reduced(entry.key, types, [each for each in here if each not in own])
        return self._restricted(entry, rest, rows) if rest else ""

    def _registered_elsewhere(self, entry: Entry, types: tuple[str, ...]) -> bool:
        return any(
            row.types in (types, ())
            for version in self.versions[entry.key]
            for row in self._serving(entry.key, version)
        )

    def _lacks_any(self, rows: list[Registration]) -> str:
        """For an operator whose types are not known (rule 5)."""
        full = [row for row in rows if row.barrier(self.options.full) is None]
        reason = self._lacks_all(full or rows)
        if reason:
            return reason
        lost = [found for row in full if (found := self._objection(row))]
        return f"its types are not known, and {max(lost)[1]}" if lost else ""

    def _lacks_all(self, rows: list[Registration]) -> str:
        """Why the build has none of ``rows``, by the one that came furthest; "" when it has."""
        found = [objection for row in rows if (objection := self._objection(row))]
        return max(found)[1] if len(found) == len(rows) else ""

    def _objection(self, row: Registration) -> tuple[int, str] | None:
        """Why the build has not that registration, and at which rule that shows."""
        barrier = row.barrier(self.options.defines)
        if barrier:
            return (0, _only(barrier))
        if not self.choice.lists(row):
            return (1, self._unlisted(row))
        if not self.choice.types_keep(row):
            return (2, self._dropped(row))
        return None

    def _unlisted(self, row: Registration) -> str:
        opsets = sorted(self.choice.opsets.get(row.key, ()))
        told = f", it lists it at {_words(opsets)}" if opsets else ""
        if row.tied:
            told += f" (the runtime's tool takes its line for one of {row.tied.operator})"
        return f"the configuration does not keep it{told}"

    def _dropped(self, row: Registration) -> str:
        row = row.tied or row
        told = f"the kernel for {_words(row.types)} is dropped: the configuration"
        types, allowed = self.choice.types.get(row.key), self.choice.offered.allowed_types
        if types is None:
            return f"{told} allows {_words(allowed or ())} only"
        if types.custom:
            return f"{told} gives other types"
        side, index = place(row.key)
        names = dict(getattr(types, side))[index]
        return f"{told} restricts {side[:-1]} {index} to {_words(names)}"

    def _restricted(self, entry: Entry, types: Types | None, rows: list[Registration]) -> str:
        """What of the types inside a kernel the configuration drops, by ``proof.missing``."""
        if types is None and all(row.types for row in rows):
            return ""
        asked = Closure((replace(entry, types=types),))
        offer = Entry(*entry.key, entry.opset, self.choice.types.get(entry.key))
        offered = Closure((offer,), self.choice.offered.allowed_types)
        exact = {entry.key: ((entry.opset, entry.opset),)}
        lacks = proof.missing(asked, offered, ranges=exact)
        if lacks and types is None:
            return "its types are not known, and the configuration keeps only some"
        return f"the configuration drops {lacks[0].types}" if lacks else ""


def _only(guard: Guard) -> str:
    known = [_ONLY[name] for name in guard.names if name in _ONLY]
    if len(guard.names) == len(known) == 1:
        return f"only compiled {known[0]}"
    return f"only compiled where {guard.condition}"


def _words(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def _names(types: Types | None) -> set[str]:
    if types is None:
        return set()
    lists = [names for _, names in (*types.inputs, *types.outputs)] + list(types.custom)
    return {name for names in lists for name in names}


def _wanted(key: Key, types: Types | None) -> list[tuple[str, ...]]:
    """The needed types as registrations would have them; [] when they are not known."""
    if types is None:
        return []
    if operators.TRACKED[key].custom:
        return list(types.custom)
    side, index = place(key)
    return [(name,) for name in dict(getattr(types, side)).get(index, ())]


def _reduced(key: Key, types: Types, rest: list[tuple[str, ...]]) -> Types:
    """``types`` with only ``rest`` of what registrations are told apart by."""
    if operators.TRACKED[key].custom:
        return Types(custom=tuple(rest))
    names = tuple(name for (name,) in rest)
    side, index = place(key)
    inputs, outputs = (
        tuple((at, given) for at, given in places if (which, at) != (side, index))
        for which, places in (("inputs", types.inputs), ("outputs", types.outputs))
    )
    own = ((index, names),) if names else ()
    return Types(inputs + own, outputs) if side == "inputs" else Types(inputs, outputs + own)


# ------------------------------------------------------------------------------ strangers
def strangers(offered: Closure, registrations: Iterable[Registration]) -> tuple[Stranger, ...]:
    """The entries of a configuration that keep no registration at all, with what was meant.

    ``registrations``: all of a tree, whatever they are compiled under. Upstream takes such
    entries without a word. An opset above the last at which a kernel of the domain begins is one.
    """
    ranges: dict[Key, list[tuple[int, int]]] = {}
    for row in registrations:
        ranges.setdefault(row.key, []).append((row.start, row.end))
    known = operators.Vocabulary({}).extended(
        (*key, start) for key, found in ranges.items() for start, _ in found
    )
    found = []
    for entry in offered.entries:
        why = known.objection(*entry.key, entry.opset)
        if not why and not any(a <= entry.opset <= b for a, b in ranges[entry.key]):
            why = f"its last kernel ends at opset {max(b for _, b in ranges[entry.key])}"
        if why:
            found.append(Stranger(*entry.key, entry.opset, f"no CPU kernel: {why}"))
    return tuple(sorted(found))
