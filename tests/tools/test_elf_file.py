"""Damaged and hostile ELF files: a clear error, soon, whatever is in them."""

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors
from edge.tools import elf_file
from edge.tools.elf import alignment, machine, read
from edge.tools.sections import group_sizes
from tests.elf_files import VERSION, Spec, Symbol, installed, library, on_linux

# Kinds of sections by number.
DYNSYM, STRTAB, DYNAMIC, VERNEED, VERDEF = 11, 3, 6, 0x6FFFFFFE, 0x6FFFFFFD


def inspect(data: bytes) -> None:
    """Everything that reads a library; only a clear error may come out of it."""
    for reader in (read, group_sizes):
        with contextlib.suppress(errors.UsageError):
            reader(io.BytesIO(data), "x.so")
    for head in (machine, alignment):
        with contextlib.suppress(errors.UsageError):
            head(data[: 1 << 16], "x.so")


def section_header(data: bytes, kind: int) -> int:
    """Where the header of the section of this kind is in a 64-bit file."""
    table = struct.unpack_from("<Q", data, 40)[0]
    (count,) = struct.unpack_from("<H", data, 60)
    kinds = {struct.unpack_from("<I", data, table + 64 * n + 4)[0]: n for n in range(count)}
    return int(table + 64 * kinds[kind])


def section_place(data: bytes, kind: int) -> int:
    return int(struct.unpack_from("<Q", data, section_header(data, kind) + 24)[0])


def changed(place: int, layout: str, *values: int, of: bytes | None = None) -> bytes:
    data = bytearray(of if of is not None else library())
    struct.pack_into(layout, data, place, *values)
    return bytes(data)


BASE = library()
HOSTILE = {
    "no shared library": (changed(16, "<H", 2), "it is ET_EXEC, not a shared library"),
    "no program headers": (changed(56, "<H", 0), "it has 0 program headers"),
    "65,535 program headers": (changed(56, "<H", 0xFFFF), "it has 65535 program headers"),
    "program headers of no size": (changed(54, "<H", 0), "it has 6 program headers of 0 bytes"),
    "no section headers": (changed(40, "<Q", 0), "it has 0 section headers"),
    "65,000 section headers": (changed(60, "<H", 65_000), "it has 65000 section headers"),
    "section headers nowhere": (changed(40, "<Q", 1 << 62), "x.so is no ELF file"),
    "names nowhere": (changed(62, "<H", 500), "x.so is no ELF file"),
    "no dynamic section": (
        changed(section_header(BASE, DYNAMIC) + 4, "<I", 1), "it has no dynamic section"
    ),
    "no dynamic symbols": (
        changed(section_header(BASE, DYNSYM) + 4, "<I", 1), "x.so is no ELF file"
    ),
    "symbols to the end of memory": (
        changed(section_header(BASE, DYNSYM) + 32, "<Q", 24 << 58), "ends behind the end"
    ),
    "symbols of one byte": (
        changed(section_header(BASE, DYNSYM) + 56, "<Q", 1), "it has no dynamic symbols"
    ),
    "symbols of no bytes": (
        changed(section_header(BASE, DYNSYM) + 56, "<Q", 0), "x.so is no ELF file"
    ),
    "symbols that are their own strings": (
        changed(section_header(BASE, DYNSYM) + 40, "<I", 1), "x.so is no ELF file"
    ),
    "versions in a circle": (
        changed(section_header(BASE, VERNEED) + 44, "<I", 0xFFFFFFFF),
        "more than 2000 libraries with versions",
    ),
    "one version in a circle": (
        changed(section_place(BASE, VERNEED) + 2, "<H", 0xFFFF, of=changed(
            section_place(BASE, VERNEED) + 16 + 12, "<I", 0)),
        "more than 2000 versions",
    ),
    "defined versions in a circle": (
        changed(section_header(BASE, VERDEF) + 44, "<I", 0xFFFFFFFF, of=changed(
            section_place(BASE, VERDEF) + 16, "<I", 0)),
        "more than 2000 defined versions",
    ),
    "a name of control characters": (
        BASE.replace(b"libc.so.6", b"lib\n\x1b[31m"), "a name in it is not text"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(errors.UsageError, match=message) as caught:
        read(io.BytesIO(data), "x.so")
    assert caught.value.message.startswith("x.so is no ELF file that can be read")
    assert len(caught.value.message) < 200


def test_dynamic_tags_without_an_end_stop_at_the_sections() -> None:
    data = library(Spec(dynamic=((21, 0),) * 8))
    end = section_header(data, DYNAMIC) + 32
    (size,) = struct.unpack_from("<Q", data, end)
    with pytest.raises(errors.UsageError, match="more than 12 dynamic tags"):
        read(io.BytesIO(changed(end, "<Q", size - 16, of=data)), "x.so")


def test_reads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = library(Spec(symbols=(Symbol("x"),) * 500))
    assert read(io.BytesIO(data)).exported
    monkeypatch.setattr(elf_file, "MAX_READS", 2000)
    with pytest.raises(errors.UsageError, match="its tables are too long"):
        read(io.BytesIO(data))


def test_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One long name that every symbol has: few bytes of file, many bytes of reading."""
    data = library(Spec(symbols=(Symbol("x" * 50_000),)))
    assert read(io.BytesIO(data)).exported == (f"{'x' * 50_000}@@{VERSION}",)
    monkeypatch.setattr(elf_file, "MAX_BYTES", 40_000)
    with pytest.raises(errors.UsageError, match="its tables are too long"):
        read(io.BytesIO(data))


def test_a_read_is_never_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_file, "MAX_READ", 10)
    meter = elf_file._Meter(io.BytesIO(bytes(100)))
    assert [len(meter.read(size)) for size in (4, 1 << 40, -1)] == [4, 10, 10]


@pytest.mark.parametrize("bits", [64, 32])
def test_every_truncation_is_refused(bits: int) -> None:
    data = library(Spec(bits=bits, machine=62 if bits == 64 else 40))
    for length in range(0, len(data), 7):
        with pytest.raises(errors.UsageError, match="is no ELF file"):
            read(io.BytesIO(data[:length]), "x.so")
        inspect(data[:length])


flips = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1, max_size=6)


@settings(max_examples=150)
@given(wide=st.booleans(), changes=flips)
def test_changed_bytes_never_escape(*, wide: bool, changes: list[tuple[int, int]]) -> None:
    data = bytearray(library(Spec(bits=64 if wide else 32, machine=62 if wide else 40)))
    for place, mask in changes:
        data[place % len(data)] ^= mask
    inspect(bytes(data))


def test_sections_that_overlap_are_refused() -> None:
    data = library()
    place = section_header(data, STRTAB)
    data = changed(place + 24, "<QQ", 0, len(data), of=data)
    with pytest.raises(errors.UsageError, match="its sections overlap"):
        group_sizes(io.BytesIO(data), "x.so")


@on_linux
@settings(max_examples=100)
@given(changes=flips, cut=st.none() | st.integers(0, 1 << 16))
def test_a_changed_real_library_never_escapes(
    changes: list[tuple[int, int]], cut: int | None
) -> None:
    path = installed("libonnxruntime_providers_shared.so")  # 14 kB
    data = bytearray(path.read_bytes())
    for place, mask in changes:
        data[place % len(data)] ^= mask
    inspect(bytes(data if cut is None else data[: cut % len(data)]))
