"""Operator closures of the artifacts that ship, and the configuration made of all of them.

Always taken from the artifact and not from the source graph: optimization fuses (Conv and Relu
become FusedConv, on amd64 com.microsoft.nchwc Conv), functions expand (HardSwish becomes
HardSigmoid and Mul), casts come in. ORT-format files are read by ``edge.closure.ort_format``
for the operators and by ONNX Runtime's own reader for the types: what a reduced build consumes.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edge import errors
from edge.closure import (
    Closure,
    Entry,
    Types,
    from_json,
    operators,
    ort_format,
    proof,
    text,
    to_json,
    types_of,
    union,
)
from edge.convert import onnx_closure, runtime_operators
from edge.step import Facts, step

CLOSURE = "closure.json"
CONFIG = "required_operators_and_types.config"
TOOLS = ("onnx", "onnxruntime", "flatbuffers")
# ONNX Runtime's reader copies the names of all visible values for each nested graph.
MAX_SCOPES = 20_000_000
TIMEOUT = 600.0
# What flatbuffers' reader, which checks nothing, raises on numbers that point nowhere.
DAMAGE = (
    struct.error, LookupError, ValueError, TypeError, AttributeError, RuntimeError,
    OverflowError, AssertionError,
)  # fmt: skip


@step(version=1, tools=TOOLS, timeout=TIMEOUT)
def operator_closure(out: Path, *, model: Path) -> Facts:
    """Write ``closure.json`` of a ``.ort`` or ``.onnx`` artifact.

    Facts: ``operators`` (distinct), ``kernels`` (``domain;opset;operator``), ``domains``,
    ``types_reduced`` (false when a type that reduced builds track could not be read; that
    operator then asks for every type) and ``reason``. Raises :class:`errors.ModelRefused` for a
    damaged artifact.
    """
    found, reason = read(model)
    _write(out / CLOSURE, to_json(found))
    keys = {(entry.domain, entry.opset, entry.operator) for entry in found.entries}
    return {
        "operators": len({entry.key for entry in found.entries}),
        "kernels": [f"{domain};{opset};{name}" for domain, opset, name in sorted(keys)],
        "domains": list(found.domains),
        "types_reduced": not reason,
        "reason": reason,
    }


@step(version=1, tools=TOOLS, timeout=TIMEOUT)
def closure_config(
    out: Path, *, platform: str, ort_version: str, types: bool = True, **closures: Path
) -> Facts:
    """Write the configuration for all ``closures`` (``closure.json`` files, any argument names).

    Writes ``required_operators_and_types.config`` and the union as ``closure.json``. The text is
    read again by our parser and by ONNX Runtime's, which must agree, and each closure must be
    offered by it. Facts: ``operators``, ``models``, ``checked_by`` (the parsers). Raises
    :class:`errors.ClosureIncomplete` when the proof or a gate of ``platform`` fails, and as
    ``proof.gates`` does.
    """
    needed = [_load(closures[name]) for name in sorted(closures)]
    whole = union(*needed)
    proof.gates(whole, platform=platform, ort_version=ort_version)
    rendered = text.render(whole, types=types)
    _write(out / CONFIG, rendered)
    _write(out / CLOSURE, to_json(whole))
    known = runtime_operators.vocabulary().extended(
        (entry.domain, entry.operator, entry.opset) for entry in whole.entries
    )
    offered = text.as_built(rendered, vocabulary=known, where=CONFIG)
    for one in needed:
        wanted = one if types else one.without_types()
        proof.prove(wanted, offered, ranges=runtime_operators.kernel_ranges())
    agreed = runtime_operators.agrees(out / CONFIG, offered)
    return {
        "operators": len({entry.key for entry in whole.entries}),
        "models": len(needed),
        "checked_by": ["edgewright", "onnxruntime"] if agreed else ["edgewright"],
    }


def union_files(paths: Iterable[Path]) -> Closure:
    """The union of ``closure.json`` files; :class:`errors.ConfigError` for a damaged one."""
    return union(*map(_load, paths))


def _load(path: Path) -> Closure:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"cannot read {path}: {error}") from error


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def read(model: Path) -> tuple[Closure, str]:
    """The closure of an artifact, and why types could not be read ("" when all could).

    To be called in a process of its own: it loads native code. Raises
    :class:`errors.ModelRefused`.
    """
    if not ort_format.is_ort_format(model):
        return onnx_closure.read(model)
    file = ort_format.read(model)
    known = runtime_operators.vocabulary()
    for node in (*file.nodes, *file.replayed):
        objection = known.objection(node.domain, node.operator, node.opset)
        if objection and node.domain in known.highest:
            raise errors.ModelRefused(f"{model}: node {node.name[:80]!r}: {objection}")
    types = _Types.of(model, file)
    entries = [
        Entry(node.domain, node.operator, node.opset, types.get(node), node.name)
        for node in file.nodes
    ]
    # What a replay of saved optimizations puts in has no types yet: every type.
    entries += [Entry(node.domain, node.operator, node.opset) for node in file.replayed]
    return Closure(tuple(entries), four_bit=file.four_bit), types.reason


class _Types:
    """Types by operator, from ONNX Runtime's reader of ORT-format files.

    Its reader calls ``process_node`` for each node. An operator that it cannot read is noted and
    does not end the reading of all others, as the runtime's own converter would.
    """

    def __init__(self, manager: Any, reason: str = "") -> None:
        self.manager = manager
        self.failed: dict[tuple[str, str], str] = {}
        self.whole = reason

    @classmethod
    def of(cls, model: Path, file: ort_format.OrtFile) -> _Types:
        """The types of a file that ``ort_format.read`` has found to be sound."""
        if file.scopes > MAX_SCOPES:
            return cls(None, "too many values in nested graphs")
        try:
            from onnxruntime.tools.ort_format_model import (
                OperatorTypeUsageManager,
                OrtFormatModelProcessor,
            )
        except ImportError as error:
            # flatbuffers is missing, or another package shadows its schema's module.
            return cls(None, f"ONNX Runtime's reader is not there: {error}")
        types = cls(OperatorTypeUsageManager())
        required: dict[str, dict[int, set[str]]] = {}
        try:
            with warnings.catch_warnings():
                # It leaves the file to be closed by the garbage collector.
                warnings.simplefilter("ignore", ResourceWarning)
                reader = OrtFormatModelProcessor(str(model), required, types)
            reader.process()
        except DAMAGE as error:
            raise errors.ModelRefused(
                f"{model} is no usable ORT-format model: its types are damaged "
                f"({type(error).__name__} {error})",
                remedy="convert the model again; the file may be truncated",
            ) from error
        theirs = {(d, v, name) for d, rows in required.items() for v in rows for name in rows[v]}
        ours = {(node.domain, node.opset, node.operator) for node in file.nodes}
        if ours != theirs:
            odd = sorted(ours ^ theirs)[:3]
            raise errors.ModelRefused(f"{model}: two readers disagree on the operators {odd}")
        return types

    @property
    def reason(self) -> str:
        """What could not be read."""
        return self.whole or "; ".join(self.failed[key] for key in sorted(self.failed))

    def process_node(self, node: Any, names: dict[bytes, Any]) -> None:
        """One node, called by the runtime's reader."""
        try:
            self.manager.process_node(node, names)
        except (KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            # KeyError 22: its table of types lacks int4, 21: uint4; AttributeError: map types.
            key = (node.Domain().decode() or operators.ONNX, node.OpType().decode())
            what = f"{type(error).__name__} {error}"[:200]
            self.failed.setdefault(key, f"types of {key[0]} {key[1]} are not read: {what}")

    def get(self, node: ort_format.Node) -> Types | None:
        """The types that the configuration gets for the node's operator; None: every type."""
        key = (node.domain, node.operator)
        told = None if self.whole else self.manager.get_config_entry(*key)
        return types_of(json.loads(told)) if told and key not in self.failed else None
