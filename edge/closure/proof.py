"""Proof that a configuration offers what an artifact needs, and gates on the artifact's closure.

What offering means, by the runtime's own two rules:

1. A reduced build keeps the kernel registration [start, end] of an operator when an opset that
   the configuration lists for it lies in it (``reduce_op_kernels.py``).
2. A node of since-version s runs on a registration when start == s, or start < s <= end and the
   registration has an end (the runtime's kernel lookup: an open-ended kernel cannot know of
   later versions of its operator).

So an operator is offered when one registration fulfils both. Registrations are given as
``ranges`` (``convert.operator_closure.kernel_ranges`` reads them from the installed runtime);
without them the versions of the operator's schema are taken, which are never wider than a
registration: the proof may then refuse, but never passes wrongly.

3. A reduced build drops kernels by type for the operators of ``operators.TRACKED`` only, and at
   their places only; a place that the configuration's types leave out is not restricted, nor
   are the types in ``Tracked.always``. With globally allowed types the other operators' typed
   kernels are dropped too, which no closure can see: they are not proven.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edge import errors
from edge.closure import Closure, Entry, Types, operators
from edge.closure.operators import Range, Ranges

SHOWN = 3
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9A-Za-z.+-]{1,40})?")
_AMD64 = ("amd64", "x64", "x86_64", "x86-64")


@dataclass(frozen=True, order=True)
class Missing:
    """One thing that a configuration lacks: an operator, or a type of it (``types``)."""

    domain: str
    operator: str
    opset: int
    types: str = ""
    node: str = ""

    def __str__(self) -> str:
        node = "".join(each if each.isprintable() else "?" for each in self.node[:80])
        who = f"node {node!r} needs " if node else ""
        what = f" with {self.types}" if self.types else ""
        return f"{who}{self.domain} {self.operator} at opset {self.opset}{what}"


def missing(
    needed: Closure, offered: Closure, *, ranges: Ranges | None = None
) -> tuple[Missing, ...]:
    """What ``offered`` (``text.as_built`` of a text) lacks of ``needed``, sorted.

    ``ranges``: kernel registrations by (domain, operator), last opset ``operators.OPEN`` when
    open-ended. An operator that is in neither table is compared by its exact opset.
    """
    if offered.every_operator and offered.allowed_types is None:
        return ()
    if needed.every_operator and not offered.every_operator:
        return (Missing("every domain", "every operator", 1),)
    listed: dict[tuple[str, str], list[Entry]] = {}
    for entry in offered.entries:
        listed.setdefault(entry.key, []).append(entry)
    lacks: list[Missing] = []
    for entry in needed.entries:
        offers = listed.get(entry.key, [])
        opsets = [each.opset for each in offers]
        if not (offered.every_operator or _kept(entry, opsets, ranges)):
            lacks.append(Missing(*_place(entry)))
            continue
        types = offers[0].types if offers else None
        lacks += [
            Missing(*_place(entry)[:3], told, entry.node)
            for told in _types_lacking(entry, types, offered.allowed_types)
        ]
    return tuple(sorted(lacks))


def _place(entry: Entry) -> tuple[str, str, int, str, str]:
    return (entry.domain, entry.operator, entry.opset, "", entry.node)


def _kept(entry: Entry, opsets: list[int], ranges: Ranges | None) -> bool:
    known: tuple[Range, ...] = (ranges or {}).get(entry.key, ())
    if not known:
        known = operators.standard().ranges(*entry.key)
    exact = (entry.opset, entry.opset)
    return any(
        start <= opset <= end
        for start, end in known or (exact,)
        for opset in opsets
        if operators.serves((start, end), entry.opset)
    )


def _types_lacking(
    entry: Entry, offered: Types | None, allowed: tuple[str, ...] | None
) -> Iterator[str]:
    tracked = operators.TRACKED.get(entry.key)
    if not tracked or (offered is None and allowed is None):
        return
    if not entry.types:
        yield "types that could not be read, and only some are offered"
        return
    if tracked.custom:
        yield from _triples_lacking(entry.types, offered, allowed)
        return
    for side in ("inputs", "outputs"):
        restricted = dict(getattr(offered, side)) if offered else {}
        for index, names in getattr(entry.types, side):
            kept = set(restricted.get(index, names) if offered else allowed or ())
            kept |= tracked.always if (side, index) == ("inputs", 0) else set()
            yield from (f"{side[:-1]} {index} as {name}" for name in names if name not in kept)


def _triples_lacking(
    needed: Types, offered: Types | None, allowed: tuple[str, ...] | None
) -> Iterator[str]:
    for triple in needed.custom:
        fine = triple in offered.custom if offered else set(triple) <= set(allowed or ())
        if not fine:
            yield f"the types {', '.join(triple)}"


def prove(needed: Closure, offered: Closure, *, ranges: Ranges | None = None) -> None:
    """Raise :class:`errors.ClosureIncomplete` unless ``offered`` has all of ``needed``."""
    lacks = missing(needed, offered, ranges=ranges)
    if not lacks:
        return
    shown = "; ".join(map(str, lacks[:SHOWN]))
    more = f"; and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
    raise errors.ClosureIncomplete(
        f"the operator configuration lacks {len(lacks)} of what the artifact needs: {shown}{more}",
        remedy="make the configuration from the closures of all artifacts that ship",
    )


def gates(closure: Closure, *, platform: str, ort_version: str) -> None:
    """Refuse an artifact whose closure no prebuilt runtime of ``platform`` can run.

    ``platform``: the target's, such as ``linux-x64``, ``linux-arm64``, ``android``, ``ios``,
    ``browser``; ``ort_version``: the runtime's, such as ``1.32.0``. Raises
    :class:`errors.ClosureIncomplete` for operators that the platform has no kernel for,
    :class:`errors.ModelRefused` for initializers that the runtime cannot load.
    """
    _gate_layout(closure, platform)
    _gate_four_bit(closure, ort_version)
    _gate_domains(closure)


def _gate_layout(closure: Closure, platform: str) -> None:
    if platform.endswith(_AMD64):
        return
    for entry in closure.entries:
        if entry.domain == operators.NCHWC:
            raise errors.ClosureIncomplete(
                f"{Missing(*_place(entry))}, a layout of amd64 processors that {platform} "
                "has no kernel for (onnxruntime #20247)",
                remedy="convert for the platform: target_platform arm, or optimization "
                "level extended",
            )


def _gate_four_bit(closure: Closure, ort_version: str) -> None:
    match = _VERSION.fullmatch(ort_version)
    if not match:
        raise errors.ConfigError(f"{ort_version[:40]!r} is no version of ONNX Runtime")
    version = (int(match[1]), int(match[2]))
    # Found by trying all releases; 1.27 and 1.32 load them, as all do from an .onnx file.
    if closure.four_bit and (1, 28) <= version <= (1, 31):
        raise errors.ModelRefused(
            f"ONNX Runtime {ort_version} loads no ORT-format file with initializers of type "
            f"{' or '.join(closure.four_bit)} (1.28 to 1.31 refuse them)",
            remedy="take the runtime 1.32 or newer, or ship the model as .onnx",
        )


def _gate_domains(closure: Closure) -> None:
    for entry in closure.entries:
        if entry.domain not in operators.PREBUILT_DOMAINS:
            raise errors.ClosureIncomplete(
                f"{Missing(*_place(entry))}, and no prebuilt runtime has that domain",
                remedy="replace the operator, or build a runtime with a library that has it",
            )
