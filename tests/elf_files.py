"""Small ELF files made in memory: what a linker writes of a shared library, without its code."""

from __future__ import annotations

import importlib.util
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Segments = list[tuple[int, int, int, int]]
VERSION = "VERS_1.21.0"
LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10
DEFAULT, INTERNAL, HIDDEN, PROTECTED = 0, 1, 2, 3
UNDEFINED, ABSOLUTE, TEXT = 0, 0xFFF1, 1
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="installed libraries are ELF there")


def installed(pattern: str) -> Path:
    """A shared library that the installed onnxruntime ships."""
    found = importlib.util.find_spec("onnxruntime")
    assert found is not None
    assert found.origin is not None
    (path,) = (Path(found.origin).parent / "capi").glob(pattern)
    return path


def elf64(segments: Segments, machine: int = 183, kind: int = 3) -> bytes:
    """ELF and program headers alone: (type, offset, address, alignment) of each segment."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, len(segments),
                        0, 0, 0)  # fmt: skip
    return head + b"".join(
        struct.pack("<IIQQQQQQ", kind, 5, place, at, at, 1, 1, align)
        for kind, place, at, align in segments
    )


def elf32(segments: Segments, machine: int = 40, kind: int = 3) -> bytes:
    """As :func:`elf64`, for 32 bits."""
    head = b"\x7fELF\x01\x01\x01" + bytes(9)
    head += struct.pack("<HHIIIIIHHHHHH", kind, machine, 1, 0, 52, 0, 0, 52, 32, len(segments),
                        0, 0, 0)  # fmt: skip
    return head + b"".join(
        struct.pack("<IIIIIIII", kind, place, at, at, 1, 1, 5, align)
        for kind, place, at, align in segments
    )


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol; ``version`` is the entry of .gnu.version (2 and up: ``defined``)."""

    name: str
    version: int = 2
    bind: int = GLOBAL
    visibility: int = DEFAULT
    place: int = TEXT


@dataclass(frozen=True)
class Spec:
    """A shared library as ONNX Runtime's version script makes it, unless said otherwise.

    ``stack``: flags of PT_GNU_STACK, None for none. ``dynamic``: further (tag, value).
    ``sections``: name, (type, flags, content) of what else is in it; ``symtab`` adds a .symtab.
    """

    machine: int = 62
    bits: int = 64
    soname: str = "libonnxruntime.so.1"
    needed: tuple[str, ...] = ("libstdc++.so.6", "libc.so.6")
    versions: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"libc.so.6": ("GLIBC_2.17", "GLIBC_2.4")}
    )
    defined: tuple[str, ...] = (VERSION,)
    symbols: tuple[Symbol, ...] = (Symbol("OrtGetApiBase"),)
    page: int = 4096
    stack: int | None = 6
    relro: bool = True
    dynamic: tuple[tuple[int, int], ...] = ()
    runpath: tuple[int, str] = (29, "$ORIGIN")
    build_id: bytes = bytes(range(20))
    sections: dict[str, tuple[int, int, bytes]] = field(
        default_factory=lambda: {
            ".text": (1, 6, b"\x90" * 300),
            ".rodata": (1, 2, b"r" * 100),
            ".eh_frame": (1, 2, b"e" * 50),
            ".data": (1, 3, b"d" * 40),
        }
    )
    symtab: bool = False


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, name: str) -> int:
        place = len(self.data)
        self.data += name.encode() + b"\0"
        return place


def library(spec: Spec | None = None) -> bytes:
    """The bytes of a shared library."""
    return _Writer(spec or Spec()).write()


class _Writer:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.wide = spec.bits == 64
        self.strings = _Strings()

    def write(self) -> bytes:
        parts = self._parts()
        names = _Strings()
        parts.append((".shstrtab", 3, 0, b"", 0, 0, 0))
        name_places = [names.add(part[0]) for part in parts]
        parts[-1] = (".shstrtab", 3, 0, names.data, 0, 0, 0)
        start = (64 + 56 * 6) if self.wide else (52 + 32 * 6)
        body, headers, places = b"", [bytes(64 if self.wide else 40)], {}
        for name_place, (name, kind, flags, data, link, info, width) in zip(
            name_places, parts, strict=True
        ):
            body += bytes(-(start + len(body)) % 16)
            at = start + len(body)
            places[name] = (at, len(data))
            fields = (name_place, kind, flags, at, at, len(data), link, info, 8, width)
            headers.append(struct.pack("<IIQQQQIIQQ" if self.wide else "<10I", *fields))
            body += b"" if kind == 8 else data
        body += bytes(-(start + len(body)) % 16)
        return self._headers(places, start + len(body), len(headers)) + body + b"".join(headers)

    def _parts(self) -> list[tuple[str, int, int, bytes, int, int, int]]:
        """(name, type, flags, content, link, info, entry size); .dynstr is section 2."""
        needs, defines = self._verneed(), self._verdef()
        dynsym, versym = self._symbols()
        dynamic = self._dynamic()
        note = struct.pack("<III4s", 4, len(self.spec.build_id), 3, b"GNU\0") + self.spec.build_id
        widths = (24, 16) if self.wide else (16, 8)
        parts = [
            (".dynsym", 11, 2, dynsym, 2, 1, widths[0]),
            (".dynstr", 3, 2, self.strings.data, 0, 0, 0),
            (".gnu.version", 0x6FFFFFFF, 2, versym, 1, 0, 2),
            (".note.gnu.build-id", 7, 2, note, 0, 0, 0),
            (".dynamic", 6, 3, dynamic, 2, 0, widths[1]),
        ]
        if self.spec.defined:
            parts.append(
                (".gnu.version_d", 0x6FFFFFFD, 2, defines, 2, len(self.spec.defined) + 1, 0)
            )
        if self.spec.versions:
            parts.append((".gnu.version_r", 0x6FFFFFFE, 2, needs, 2, len(self.spec.versions), 0))
        parts += [(name, *values, 0, 0, 0) for name, values in self.spec.sections.items()]
        if self.spec.symtab:
            parts.append((".symtab", 2, 0, dynsym, 2, 1, widths[0]))
        return parts

    def _headers(self, places: dict[str, tuple[int, int]], table: int, count: int) -> bytes:
        at, size = places[".dynamic"]
        note, note_size = places[".note.gnu.build-id"]
        page, stack = self.spec.page, self.spec.stack
        segments = [
            (1, 5, 0, table, page),
            (1, 6, 0, table, page),
            (2, 6, at, size, 8),
            (4, 4, note, note_size, 4),
            (0x6474E551, stack, 0, 0, 16) if stack is not None else (0, 0, 0, 0, 0),
            (0x6474E552, 4, at, size, 1) if self.spec.relro else (0, 0, 0, 0, 0),
        ]
        head = b"\x7fELF" + (b"\x02" if self.wide else b"\x01") + b"\x01\x01" + bytes(9)
        sizes = (64, 56, 64) if self.wide else (52, 32, 40)
        head += struct.pack(
            "<HHIQQQIHHHHHH" if self.wide else "<HHIIIIIHHHHHH",
            3, self.spec.machine, 1, 0, sizes[0], table, 0, *sizes[:2], 6, sizes[2], count,
            count - 1,
        )  # fmt: skip
        for kind, flags, place, length, align in segments:
            if self.wide:
                rest = (place, place, place, length, length, align)
                head += struct.pack("<IIQQQQQQ", kind, flags, *rest)
            else:
                rest = (place, place, place, length, length, flags)
                head += struct.pack("<8I", kind, *rest, align)
        return head

    def _symbols(self) -> tuple[bytes, bytes]:
        """.dynsym and .gnu.version."""
        undefined = Symbol("malloc", len(self.spec.defined) + 2, GLOBAL, DEFAULT, UNDEFINED)
        table, versions = bytes(24 if self.wide else 16), b"\0\0"
        for symbol in (undefined, *self.spec.symbols):
            name, info = self.strings.add(symbol.name), symbol.bind << 4 | 2
            other = symbol.visibility
            if self.wide:
                table += struct.pack("<IBBHQQ", name, info, other, symbol.place, 0x1000, 8)
            else:
                table += struct.pack("<IIIBBH", name, 0x1000, 8, info, other, symbol.place)
            versions += struct.pack("<H", symbol.version)
        return table, versions

    def _verdef(self) -> bytes:
        data = b""
        names = [self.spec.soname, *self.spec.defined]
        for index, name in enumerate(names, start=1):
            following = 28 if index < len(names) else 0
            base = 1 if index == 1 else 0
            data += struct.pack("<HHHHIII", 1, base, index, 1, 0, 20, following)
            data += struct.pack("<II", self.strings.add(name), 0)
        return data

    def _verneed(self) -> bytes:
        data, index = b"", len(self.spec.defined) + 2
        for number, (name, versions) in enumerate(self.spec.versions.items(), start=1):
            length = 16 + 16 * len(versions)
            following = length if number < len(self.spec.versions) else 0
            data += struct.pack("<HHIII", 1, len(versions), self.strings.add(name), 16, following)
            for place, version in enumerate(versions, start=1):
                step = 16 if place < len(versions) else 0
                data += struct.pack("<IHHII", 0, 0, index, self.strings.add(version), step)
                index += 1
        return data

    def _dynamic(self) -> bytes:
        tags = [(1, self.strings.add(name)) for name in self.spec.needed]
        tags += [(14, self.strings.add(self.spec.soname))] if self.spec.soname else []
        tag, path = self.spec.runpath
        tags += [(tag, self.strings.add(path))] if path else []
        tags += [*self.spec.dynamic, (0, 0)]
        return b"".join(struct.pack("<qQ" if self.wide else "<iI", *each) for each in tags)
