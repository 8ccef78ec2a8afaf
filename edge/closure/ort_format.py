"""Reader of ORT-format model files (``.ort``): which operators are in them.

An ORT-format file is a FlatBuffer with the identifier ``ORTM`` at bytes 4 to 8. The file is
untrusted: the library that is generated for it reads past ends, loops for as long as numbers in
the file say and raises whatever it meets. Every read here is checked, depth and the number of
tables are bounded, and a damaged file is one :class:`errors.ModelRefused`.

Field numbers are those of ``ort.fbs`` (versions 5 and 6 of the format, ONNX Runtime 1.13 and
newer), in the order of declaration, deprecated fields counted, a union taking two.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edge import errors
from edge.closure import operators

IDENTIFIER = b"ORTM"
VERSIONS = ("5", "6")
MAX_BYTES = 2**31 - 1  # FlatBuffers' own limit
MAX_TABLES = 4_000_000
MAX_DEPTH = 32  # graphs in graphs (If, Loop, Scan)
MAX_STRING = 65_536

_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_UINT16 = struct.Struct("<H")

_SESSION_VERSION, _SESSION_MODEL = 0, 1
_MODEL_GRAPH = 7
_GRAPH_INITIALIZERS, _GRAPH_ARGS, _GRAPH_NODES, _GRAPH_SPARSE, _GRAPH_REPLAY = 0, 1, 2, 7, 8
_NODE_NAME, _NODE_DOMAIN, _NODE_SINCE, _NODE_OPERATOR = 0, 2, 3, 5
_NODE_INPUTS, _NODE_OUTPUTS, _NODE_ATTRIBUTES = 8, 9, 10
_ATTRIBUTE_KIND, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 2, 7, 12
_KIND_GRAPH, _KIND_GRAPHS = 5, 10
_TENSOR_TYPE = 3
_SPARSE_VALUES = 0
_ARG_NAME = 0
_REPLAY_RECORDS, _ENTRY_RECORDS, _RECORD_PRODUCED = 0, 1, 3


@dataclass(frozen=True)
class Node:
    """An operator of the file: since-version ``opset``, domain "" written out.

    ``name``: the node's, or that of its first output.
    """

    domain: str
    operator: str
    opset: int
    name: str = ""


@dataclass(frozen=True)
class OrtFile:
    """What the file holds.

    ``nodes``: of all graphs, in order; ``replayed``: operators that saved runtime optimizations
    would put in (style Runtime); ``four_bit``: element types below a byte of initializers;
    ``scopes``: values visible in each graph, summed over the graphs (the work of a reader that
    copies them).
    """

    version: str
    nodes: tuple[Node, ...]
    replayed: tuple[Node, ...]
    four_bit: tuple[str, ...]
    scopes: int


class _DamagedError(Exception):
    """The bytes are no ORT-format file; turned into ModelRefused at the top."""


def is_ort_format(path: Path) -> bool:
    """Whether the file is to be read as ORT format: by its suffix, else by its identifier.

    Raises :class:`errors.ModelRefused` when it cannot be opened.
    """
    if path.suffix in (".ort", ".onnx"):
        return path.suffix == ".ort"
    try:
        with path.open("rb") as file:
            return file.read(8)[4:] == IDENTIFIER
    except OSError as error:
        raise errors.ModelRefused(f"cannot read {path}: {error.strerror}") from error


def read(path: Path) -> OrtFile:
    """The operators of an ORT-format file; :class:`errors.ModelRefused` when it is damaged."""
    try:
        size = path.stat().st_size
        if not 16 <= size <= MAX_BYTES:
            raise _DamagedError(f"it has {size} bytes")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(_Bytes(data, size)).file()
    except (_DamagedError, ValueError) as error:  # ValueError: emptied while it was opened
        raise errors.ModelRefused(
            f"{path} is no usable ORT-format model: {error}",
            remedy="convert the model again; the file may be truncated",
        ) from error
    except OSError as error:
        raise errors.ModelRefused(f"cannot read {path}: {error.strerror}") from error


class _Bytes:
    """Checked reads: positions in bytes from the start of the file."""

    def __init__(self, data: mmap.mmap, size: int) -> None:
        self.data = data
        self.size = size

    def _number(self, kind: struct.Struct, at: int) -> int:
        if not 0 <= at <= self.size - kind.size:
            raise _DamagedError(f"it points to byte {at} of {self.size}")
        found: int = kind.unpack_from(self.data, at)[0]
        return found

    def int32(self, at: int) -> int:
        return self._number(_INT32, at)

    def uint16(self, at: int) -> int:
        return self._number(_UINT16, at)

    def follow(self, at: int) -> int:
        """Where the offset at ``at`` points; offsets point forward, so chains of them end."""
        offset = self._number(_UINT32, at)
        if offset == 0:
            raise _DamagedError(f"the offset at byte {at} is 0")
        return at + offset

    def field(self, table: int, number: int) -> int | None:
        """The position of a table's field; None when it has its default."""
        layout = table - self.int32(table)
        length, extent = self.uint16(layout), self.uint16(layout + 2)
        slot = 4 + 2 * number
        if slot + 2 > length:
            return None
        inside = self.uint16(layout + slot)
        if inside == 0:
            return None
        if inside >= extent:
            raise _DamagedError(f"a field lies outside its table at byte {table}")
        return table + inside

    def vector(self, table: int, number: int) -> tuple[int, int]:
        """(start, count) of a vector of 4-byte elements; (0, 0) when it is absent."""
        at = self.field(table, number)
        if at is None:
            return 0, 0
        start = self.follow(at)
        count = self._number(_UINT32, start)
        if count > (self.size - start - 4) // 4:
            raise _DamagedError(f"a list at byte {start} says that it has {count} elements")
        return start + 4, count

    def string(self, at: int) -> bytes:
        """The string that the offset at ``at`` points to."""
        start = self.follow(at)
        count = self._number(_UINT32, start)
        end = start + 4 + count
        if count > MAX_STRING or end >= self.size or self.data[end] != 0:
            raise _DamagedError(f"a text at byte {start} says that it has {count} bytes")
        return bytes(self.data[start + 4 : end])


@dataclass
class _Found:
    nodes: list[Node] = field(default_factory=list)
    replayed: list[Node] = field(default_factory=list)
    four_bit: set[str] = field(default_factory=set)
    scopes: int = 0


class _Reader:
    """Walks the graphs. Tables may be shared, so the visits are counted, not the tables."""

    def __init__(self, data: _Bytes) -> None:
        self.data = data
        self.found = _Found()
        # Without sharing, no more tables than 4-byte offsets fit into the file.
        self.left = min(MAX_TABLES, data.size // 4)

    def file(self) -> OrtFile:
        if self.data.data[4:8] != IDENTIFIER:
            raise _DamagedError("the identifier ORTM is missing")
        session = self.data.follow(0)
        version = self.text(session, _SESSION_VERSION)
        if version not in VERSIONS:
            raise _DamagedError(f"its version is {version[:20]!r}; known are 5 and 6")
        graph = self.child(self.child(session, _SESSION_MODEL), _MODEL_GRAPH)
        self.graph(graph, depth=1, outer=0)
        found = self.found
        return OrtFile(
            version,
            tuple(found.nodes),
            tuple(dict.fromkeys(found.replayed)),
            tuple(sorted(found.four_bit)),
            found.scopes,
        )

    def graph(self, graph: int, *, depth: int, outer: int) -> None:
        """One graph and the graphs in its nodes; ``outer``: values visible from outside."""
        if depth > MAX_DEPTH:
            raise _DamagedError(f"graphs are nested deeper than {MAX_DEPTH}")
        visible = outer
        for value in self.children(graph, _GRAPH_ARGS):
            self.text(value, _ARG_NAME)
            visible += 1
        self.found.scopes += visible
        for tensor in self.children(graph, _GRAPH_INITIALIZERS):
            self.initializer(tensor)
        for sparse in self.children(graph, _GRAPH_SPARSE):
            self.initializer(self.child(sparse, _SPARSE_VALUES))
        for node in self.children(graph, _GRAPH_NODES):
            self.found.nodes.append(self.node(node))
            for attribute in self.children(node, _NODE_ATTRIBUTES):
                for inner in self.graphs(attribute):
                    self.graph(inner, depth=depth + 1, outer=visible)
        self.replay(graph)

    def node(self, node: int) -> Node:
        self.texts(node, _NODE_INPUTS)
        outputs = self.texts(node, _NODE_OUTPUTS)
        return Node(
            self.text(node, _NODE_DOMAIN) or operators.ONNX,
            self.text(node, _NODE_OPERATOR),
            self.int32(node, _NODE_SINCE),
            self.text(node, _NODE_NAME) or next(filter(None, outputs), ""),
        )

    def graphs(self, attribute: int) -> Iterator[int]:
        kind = self.int32(attribute, _ATTRIBUTE_KIND)
        if kind == _KIND_GRAPH:
            yield self.child(attribute, _ATTRIBUTE_GRAPH)
        elif kind == _KIND_GRAPHS:
            yield from self.children(attribute, _ATTRIBUTE_GRAPHS)

    def initializer(self, tensor: int) -> None:
        name = operators.FOUR_BIT.get(self.int32(tensor, _TENSOR_TYPE))
        if name:
            self.found.four_bit.add(name)

    def replay(self, graph: int) -> None:
        """Operators of the saved runtime optimizations, written ``domain:operator:version``."""
        at = self.data.field(graph, _GRAPH_REPLAY)
        if at is None:
            return
        for entry in self.children(self.data.follow(at), _REPLAY_RECORDS):
            for record in self.children(entry, _ENTRY_RECORDS):
                for name in self.texts(record, _RECORD_PRODUCED):
                    self.found.replayed.append(self.produced(name))

    def produced(self, name: str) -> Node:
        words = name.rsplit(":", 2)
        if len(words) != 3 or not (words[2].isascii() and words[2].isdigit()):
            raise _DamagedError(f"the saved optimization {name[:80]!r} names no operator")
        return Node(words[0] or operators.ONNX, words[1], int(words[2][:10]))

    def child(self, table: int, number: int) -> int:
        at = self.data.field(table, number)
        if at is None:
            raise _DamagedError(f"a part is missing in the table at byte {table}")
        return self.data.follow(at)

    def children(self, table: int, number: int) -> Iterator[int]:
        start, count = self.data.vector(table, number)
        self.spend(count)
        for index in range(count):
            yield self.data.follow(start + 4 * index)

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _DamagedError("it says that it has more parts than such a file can hold")

    def int32(self, table: int, number: int) -> int:
        at = self.data.field(table, number)
        return 0 if at is None else self.data.int32(at)

    def texts(self, table: int, number: int) -> list[str]:
        start, count = self.data.vector(table, number)
        self.spend(count)
        return [self.decoded(self.data.string(start + 4 * index)) for index in range(count)]

    def text(self, table: int, number: int) -> str:
        at = self.data.field(table, number)
        return "" if at is None else self.decoded(self.data.string(at))

    def decoded(self, text: bytes) -> str:
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError:
            raise _DamagedError(f"a text in it is no UTF-8: {text[:40]!r}") from None
