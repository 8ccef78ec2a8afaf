"""One spelling for ORT-format files: two conversions of a model give the same bytes.

ONNX Runtime writes the kernel type resolver (which of an operator's inputs share a type) in the
order of a hash map that is seeded by where the process was loaded: its content is the same every
time, its layout is not. Found by comparing conversions of real models, 1.29 to 1.32; nothing else
differed. Here:

1. Root table and old resolver come first in the file; everything else, the rest, is moved as a
   whole. Its offsets are relative and so stay right; flatbuffers aligns by the distance from the
   end, so the rest's end is put on a multiple of 16 bytes.
2. The resolver is written anew behind the rest, in the order of its own (sorted) vector.
3. The root table is written anew before it, with the new positions.

Where a file is laid out otherwise, it is left as it is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import flatbuffers

RESOLVER_FIELD = 3  # of the table InferenceSession: version, model, (deprecated), resolver
ALIGNMENT = 16


def canonical(data: bytes) -> tuple[bytes, bool]:
    """``data`` of an ORT-format file in its one spelling, and whether that could be made."""
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import (
        InferenceSession,
    )

    session = InferenceSession.GetRootAsInferenceSession(data, 0)
    resolver = session.KernelTypeStrResolver()
    layout = _layout(data)
    if resolver is None or layout is None:
        return data, False
    entries = _entries(resolver)
    blob = _written(entries)
    whole = _moved(data, layout, blob)
    again = InferenceSession.GetRootAsInferenceSession(whole, 0).KernelTypeStrResolver()
    return (whole, True) if _entries(again) == entries else (data, False)


# --------------------------------------------------------------------------------- content
Entry = tuple[bytes, list[tuple[bytes, list[tuple[int, int]]]]]


def _entries(resolver: Any) -> list[Entry]:
    """The resolver's content, in the order of its vectors."""
    return [
        (entry.OpId(), _type_arguments(entry))
        for entry in map(resolver.OpKernelTypeStrArgs, range(resolver.OpKernelTypeStrArgsLength()))
    ]


def _type_arguments(entry: Any) -> list[tuple[bytes, list[tuple[int, int]]]]:
    found = []
    for each in map(entry.KernelTypeStrArgs, range(entry.KernelTypeStrArgsLength())):
        places = [(p.ArgType(), p.Index()) for p in map(each.Args, range(each.ArgsLength()))]
        found.append((each.KernelTypeStr(), places))
    return found


def _written(entries: list[Entry]) -> bytes:
    """A buffer whose root is a resolver with this content."""
    import flatbuffers
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import KernelTypeStrResolver

    builder = flatbuffers.Builder(4096)
    made = [_entry(builder, entry) for entry in entries]
    vector = _vector(builder, made)
    KernelTypeStrResolver.Start(builder)
    KernelTypeStrResolver.AddOpKernelTypeStrArgs(builder, vector)
    builder.Finish(KernelTypeStrResolver.End(builder))
    return bytes(builder.Output())


def _entry(builder: flatbuffers.Builder, entry: Entry) -> int:
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import (
        ArgTypeAndIndex,
        KernelTypeStrArgsEntry,
        OpIdKernelTypeStrArgsEntry,
    )

    operator, arguments = entry
    made = []
    for name, places in arguments:
        tables = []
        for kind, index in places:
            ArgTypeAndIndex.Start(builder)
            ArgTypeAndIndex.AddArgType(builder, kind)
            ArgTypeAndIndex.AddIndex(builder, index)
            tables.append(ArgTypeAndIndex.End(builder))
        vector, text = _vector(builder, tables), builder.CreateString(name)
        KernelTypeStrArgsEntry.Start(builder)
        KernelTypeStrArgsEntry.AddKernelTypeStr(builder, text)
        KernelTypeStrArgsEntry.AddArgs(builder, vector)
        made.append(KernelTypeStrArgsEntry.End(builder))
    vector, text = _vector(builder, made), builder.CreateString(operator)
    OpIdKernelTypeStrArgsEntry.Start(builder)
    OpIdKernelTypeStrArgsEntry.AddOpId(builder, text)
    OpIdKernelTypeStrArgsEntry.AddKernelTypeStrArgs(builder, vector)
    return int(OpIdKernelTypeStrArgsEntry.End(builder))


def _vector(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


# ---------------------------------------------------------------------------------- layout
@dataclass(frozen=True)
class _Layout:
    """Where the root's fields point to (0: absent), and where the rest begins; in bytes."""

    targets: tuple[int, ...]
    rest: int


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _table(data: bytes, at: int) -> tuple[int, list[int]]:
    """Position of a table's vtable, and positions of its fields (0: absent)."""
    vtable = at - struct.unpack_from("<i", data, at)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    offsets = struct.unpack_from(f"<{(size - 4) // 2}H", data, vtable + 4)
    return vtable, [at + offset if offset else 0 for offset in offsets]


def _layout(data: bytes) -> _Layout | None:
    """Where things lie, or None when the resolver is not alone between root and rest."""
    root = _u32(data, 0)
    vtable, fields = _table(data, root)
    if len(fields) <= RESOLVER_FIELD or not fields[RESOLVER_FIELD]:
        return None
    targets = tuple(field + _u32(data, field) if field else 0 for field in fields)
    resolver = targets[RESOLVER_FIELD]
    others = [at for number, at in enumerate(targets) if at and number != RESOLVER_FIELD]
    rest = min((_first_byte(data, at) for at in others), default=0)
    alone = vtable < root < resolver < rest and _last_entry(data, resolver) < rest
    return _Layout(targets, rest) if alone else None


def _first_byte(data: bytes, at: int) -> int:
    """Where a table with its vtable begins; a string (no vtable before it) at its own position."""
    vtable = at - struct.unpack_from("<i", data, at)[0]
    looks_like_one = 0 < at - vtable <= 64 and struct.unpack_from("<H", data, vtable)[0] <= 64
    return vtable if looks_like_one else at


def _last_entry(data: bytes, resolver: int) -> int:
    _, (vector_field, *_) = _table(data, resolver)
    vector = vector_field + _u32(data, vector_field)
    positions = [vector + 4 + 4 * number for number in range(_u32(data, vector))]
    return max((at + _u32(data, at) for at in positions), default=vector)


def _moved(data: bytes, layout: _Layout, blob: bytes) -> bytes:
    rest = data[layout.rest :]
    count = len(layout.targets)
    vtable, root = 8, 8 + (4 + 2 * count + 3) // 4 * 4
    present = [number for number, target in enumerate(layout.targets) if target]
    head_size = root + 4 + 4 * len(present)
    begin = head_size + (-(head_size + len(rest)) % ALIGNMENT)
    places = {number: root + 4 + 4 * n for n, number in enumerate(present)}
    head = bytearray(begin)
    struct.pack_into("<I4s", head, 0, root, data[4:8])
    offsets = [places[number] - root if number in places else 0 for number in range(count)]
    sizes = (4 + 2 * count, head_size - root)
    struct.pack_into(f"<{2 + count}H", head, vtable, *sizes, *offsets)
    struct.pack_into("<i", head, root, root - vtable)
    for number, place in places.items():
        target = begin + layout.targets[number] - layout.rest
        if number == RESOLVER_FIELD:
            target = begin + len(rest) + _u32(blob, 0)
        struct.pack_into("<I", head, place, target - place)
    return bytes(head) + rest + blob
