"""Small files for Windows made in memory: what a linker writes of a DLL, without its code."""

from __future__ import annotations

import struct

SECTION_AT, ADDRESS = 0x400, 0x1000


def pe64(
    imports: tuple[str, ...] = (),
    delayed: tuple[str, ...] = (),
    *,
    machine: int = 0x8664,
    flags: int = 0x2022,
    stamp: int = 7,
) -> bytes:
    """A PE32+ image with one section, which holds both tables of libraries."""
    body, tables = _tables(imports, delayed)
    directories = [(0, 0)] * 16
    directories[1], directories[13] = tables
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, len(body), 0, 0, ADDRESS)
    optional += struct.pack("<QIIHHHHHHIIIIHH", 1 << 32, 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0,
                            0x3000, SECTION_AT, 0, 3, 0x160)  # fmt: skip
    optional += struct.pack("<QQQQII", 1 << 20, 0x1000, 1 << 20, 0x1000, 0, 16)
    optional += b"".join(struct.pack("<II", *each) for each in directories)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, 1, stamp, 0, 0, len(optional), flags) + optional
    head += struct.pack("<8sIIIIIIHHI", b".rdata", len(body), ADDRESS, len(body), SECTION_AT,
                        0, 0, 0, 0, 0x40000040)  # fmt: skip
    return head.ljust(SECTION_AT, b"\0") + body


def _tables(
    imports: tuple[str, ...], delayed: tuple[str, ...]
) -> tuple[bytes, tuple[tuple[int, int], tuple[int, int]]]:
    """The section's bytes, and address and size of each table."""
    first, second = 20 * (len(imports) + 1), 32 * (len(delayed) + 1)
    place = ADDRESS + first + second
    names, rows, lazy = b"", b"", b""
    for name in imports:
        rows += struct.pack("<5I", 0, 0, 0, place + len(names), 0)
        names += name.encode() + b"\0"
    for name in delayed:
        lazy += struct.pack("<8I", 1, place + len(names), 0, 0, 0, 0, 0, 0)
        names += name.encode() + b"\0"
    body = rows + bytes(20) + lazy + bytes(32) + names + b"\0"
    where = (
        (ADDRESS, first) if imports else (0, 0),
        (ADDRESS + first, second) if delayed else (0, 0),
    )
    return body, where
