"""What the installed ONNX Runtime itself knows: operators, kernels, its configuration parser.

Loads the runtime's native library: only steps call this, in processes of their own.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from edge import errors
from edge.closure import Closure, operators
from edge.closure.operators import Ranges, Vocabulary

_CPU = "CPUExecutionProvider"
_ALLOWED = re.compile(
    r"ORT_SPECIFY_OP_KERNEL_ARG_ALLOWED_TYPES\((\w+), (\w+), (Input|Output), ([0-9]+), (.*)\);"
)
_CONSTANTS = {
    "kOnnxDomain": operators.ONNX,
    "kMLDomain": operators.ML,
    "kMSDomain": operators.MICROSOFT,
}

Restriction = tuple[str, str, str, int, tuple[str, ...]]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """The standard operators and those of the installed runtime's own schemas."""
    schemas = _native("get_all_operator_schema")
    return operators.standard().extended(
        (each.domain or operators.ONNX, each.name, each.since_version) for each in schemas
    )


@lru_cache(maxsize=1)
def kernel_ranges() -> Ranges:
    """CPU kernel registrations by (domain, operator), see ``proof.missing``."""
    found: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for each in _native("get_all_opkernel_def"):
        if each.provider == _CPU:
            key = (each.domain or operators.ONNX, each.op_name)
            found.setdefault(key, set()).add(tuple(each.version_range))
    return {key: tuple(sorted(ranges)) for key, ranges in found.items()}


def _native(name: str) -> list[Any]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    # Builds of the runtime may leave these tables out; then only the standard ones are known.
    table = getattr(state, name, None)
    return list(table()) if table else []


def agrees(config: Path, offered: Closure) -> bool:
    """Hold ``offered`` against what the runtime's own parser makes of the file ``config``.

    False when that parser is not there. Raises :class:`errors.ClosureIncomplete` when the two
    disagree on operators or on types that reduced builds track.
    """
    try:
        from onnxruntime.tools import reduced_build_config_parser as theirs
    except ImportError:
        return False
    if not theirs.have_flatbuffers:
        return False
    required, kept = theirs.parse_config(str(config), enable_type_reduction=True)
    same = _places(required) == _ours(offered) and _lines(kept) == _types(offered)
    if not same or _triples(kept, offered) != _our_triples(offered):
        raise errors.ClosureIncomplete(
            f"ONNX Runtime's own parser reads something else in {config.name} than we do",
            remedy="rewrite the file; this release of the runtime may have another grammar",
        )
    return True


def _places(required: Any) -> set[tuple[str, int, str]] | None:
    """None: every operator."""
    if required is None:
        return None
    rows = [
        (domain, opset, names) for domain in required for opset, names in required[domain].items()
    ]
    return {(domain, opset, name) for domain, opset, names in rows for name in names}


def _ours(offered: Closure) -> set[tuple[str, int, str]] | None:
    return None if offered.every_operator else {entry.place for entry in offered.entries}


def _lines(kept: Any) -> set[Restriction]:
    """The restrictions that the runtime's build would be given as lines of C++."""
    lines = kept.get_cpp_entries() if kept else []
    found = [match for match in map(_ALLOWED.fullmatch, lines) if match]
    restrictions = {
        (_CONSTANTS[m[1]], m[2], m[3], int(m[4]), tuple(sorted(m[5].split(", ")))) for m in found
    }
    return {each for each in restrictions if each[:2] in operators.TRACKED}


def _types(offered: Closure) -> set[Restriction]:
    typed = [(entry, entry.types) for entry in offered.entries if entry.types]
    return {
        (*entry.key, side, index, names)
        for entry, types in typed
        for side, places in (("Input", types.inputs), ("Output", types.outputs))
        for index, names in places
    }


# Triples (OneHot) make no line of C++, they only choose registrations: each one is asked for.
_EVERY_TRIPLE = tuple(itertools.product(operators.CPP_TYPES.values(), repeat=3))


def _triples(kept: Any, offered: Closure) -> dict[tuple[str, str], set[tuple[str, ...]]]:
    """The triples that the runtime's build would keep, by operator."""
    found = {}
    for key in _our_triples(offered):
        # In names of registrations there is no std::.
        names = {each: "_".join(each).replace("std::", "") for each in _EVERY_TRIPLE}
        found[key] = {
            each
            for each, name in names.items()
            if kept is None or kept.is_typed_registration_needed(*key, name)
        }
    return found


def _our_triples(offered: Closure) -> dict[tuple[str, str], set[tuple[str, ...]]]:
    custom = {key for key, tracked in operators.TRACKED.items() if tracked.custom}
    return {
        entry.key: set(entry.types.custom if entry.types else _EVERY_TRIPLE)
        for entry in offered.entries
        if entry.key in custom
    }
