"""Windows' program files (PE/COFF), as far as this needs them: machine, headers, imports.

The layout is that of Microsoft's "PE Format". A file is untrusted input: tables are bounded,
every offset is checked, and whatever does not fit is one :class:`errors.UsageError`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors

HEADER_BYTES = 4096  # linkers put the headers into the first page
MAX_SECTIONS = 96  # of an image, says the format
MAX_LIBRARIES = 1000
MAX_NAME = 260
DOS, SIGNATURE = b"MZ", b"PE\0\0"
MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "x86", 0x1C4: "arm"}
PE32, PE32_PLUS = 0x10B, 0x20B
IS_LIBRARY = 0x2000
IMPORTS, DELAYED = 1, 13  # of the data directories
COFF = struct.Struct("<HHIIIHH")
SECTION = struct.Struct("<8xIIII")
IMPORT, DELAY = struct.Struct("<5I"), struct.Struct("<8I")
# What every Windows since 10 has: its own libraries and, as API sets, those behind them.
API_SETS = ("api-ms-win-", "ext-ms-win-")
# Libraries of Visual C++'s runtime, which "Microsoft Visual C++ Redistributable" installs.
VISUAL_CPP = ("vcruntime140", "msvcp140", "concrt140", "vcomp140")


class Refused(ValueError):
    """Why a file cannot be read; becomes one line of :class:`errors.UsageError`."""


@dataclass(frozen=True)
class Image:
    """A program or library for Windows.

    ``imports`` are the libraries that it is loaded with, ``delayed`` those that are loaded with
    their first use; names in small letters, sorted. ``stamp``: the header's time stamp, a hash
    where a build is reproducible. ``stack_bytes``: reserved for the first thread.
    """

    machine: str
    library: bool
    stamp: int
    stack_bytes: int
    imports: tuple[str, ...]
    delayed: tuple[str, ...]

    @property
    def visual_cpp(self) -> tuple[str, ...]:
        """Of ``imports``, what the device has from Visual C++'s redistributable."""
        return tuple(name for name in self.imports if name.startswith(VISUAL_CPP))

    @property
    def system(self) -> tuple[str, ...]:
        """All others of ``imports`` that are no API sets."""
        others = [name for name in self.imports if not name.startswith(API_SETS)]
        return tuple(name for name in others if name not in self.visual_cpp)


def machine(head: bytes, where: str) -> str:
    """The machine that a file is for, from its first ``HEADER_BYTES`` bytes or more.

    Raises :class:`errors.UsageError` for what is no PE file of a known machine.
    """
    try:
        return _headers(head)[0]
    except (Refused, struct.error) as error:
        raise errors.UsageError(f"{where} is no program for Windows: {error}") from error


def read(path: Path) -> Image:
    """Headers and imports of a file; :class:`errors.UsageError` when it is none or is damaged."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data)
    except (OSError, ValueError, struct.error) as error:
        raise errors.UsageError(f"{path.name} is no program for Windows: {error}") from error


def _read(data: Any) -> Image:
    name, (_, count, stamp, _, _, optional_bytes, flags), optional = _headers(data)
    (magic,) = struct.unpack_from("<H", data, optional)
    if magic not in (PE32, PE32_PLUS):
        raise Refused(f"its optional header is of the kind {magic:#x}")
    wide = magic == PE32_PLUS
    (stack,) = struct.unpack_from("<Q" if wide else "<I", data, optional + 72)
    tables = optional + (112 if wide else 96)
    (known,) = struct.unpack_from("<I", data, tables - 4)
    image = _Image(data, optional + optional_bytes, count)
    places = [
        struct.unpack_from("<I", data, tables + 8 * index)[0] if index < known else 0
        for index in (IMPORTS, DELAYED)
    ]
    return Image(
        machine=name,
        library=bool(flags & IS_LIBRARY),
        stamp=stamp,
        stack_bytes=stack,
        imports=image.names(places[0], IMPORT, 3),
        delayed=image.names(places[1], DELAY, 1),
    )


def _headers(data: Any) -> tuple[str, tuple[int, ...], int]:
    """The machine, the fields of the COFF header, and the optional header's offset."""
    if data[:2] != DOS or len(data) < 64:
        raise Refused("it does not start as one")
    (start,) = struct.unpack_from("<I", data, 60)
    if data[start : start + 4] != SIGNATURE:
        raise Refused("it has no PE header")
    fields = COFF.unpack_from(data, start + 4)
    if fields[0] not in MACHINES:
        raise Refused(f"unknown machine {fields[0]:#06x}")
    return MACHINES[fields[0]], fields, start + 4 + COFF.size


class _Image:
    """Finds what an image has at an address once it is loaded."""

    def __init__(self, data: Any, table: int, count: int) -> None:
        if count > MAX_SECTIONS:
            raise Refused(f"it has {count} sections")
        self.data = data
        self.sections: list[tuple[int, int, int, int]] = [
            SECTION.unpack_from(data, table + index * (SECTION.size + 16)) for index in range(count)
        ]

    def offset(self, address: int) -> int:
        for _virtual, start, size, place in self.sections:
            if start <= address < start + size:
                return address - start + place
        raise Refused(f"nothing of it is loaded at {address:#x}")

    def names(self, address: int, entry: struct.Struct, field: int) -> tuple[str, ...]:
        """Of a table of libraries, which a name of 0 ends."""
        found = {self.name(each[field]) for each in self.entries(address, entry, field)}
        return tuple(sorted(found))

    def entries(self, address: int, entry: struct.Struct, field: int) -> Iterator[tuple[int, ...]]:
        place = self.offset(address) if address else 0
        for index in range(MAX_LIBRARIES if address else 0):
            values = entry.unpack_from(self.data, place + index * entry.size)
            if not values[field]:
                return
            yield values
        if address:
            raise Refused(f"it names more than {MAX_LIBRARIES} libraries")

    def name(self, address: int) -> str:
        start = self.offset(address)
        raw = bytes(self.data[start : start + MAX_NAME + 1])
        text = raw.partition(b"\0")[0]
        if not text or len(text) == len(raw) or not text.isascii():
            raise Refused("a library's name is none")
        decoded = text.decode("ascii").lower()
        if not decoded.isprintable():
            raise Refused("a library's name is none")
        return decoded
