"""Where the bytes of an ELF library are: its sections in groups that say what they are for."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from edge.tools.elf_file import Refused, opened, sections_of

if TYPE_CHECKING:
    from elftools.elf.sections import Section

# Sections whose names say more than their flags do; all other loaded ones go by flags.
NAMES: Mapping[str, tuple[str, ...]] = {
    # What exceptions need: --disable_exceptions and -fno-asynchronous-unwind-tables are for this.
    "unwind": (".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".ARM.exidx", ".ARM.extab"),
    # -Wl,-z,pack-relative-relocs makes most of them vanish, where the loader knows it (glibc 2.36).
    "relocations": (".rel.dyn", ".rela.dyn", ".relr.dyn", ".rel.plt", ".rela.plt"),
    "symbols": (
        ".dynsym", ".dynstr", ".hash", ".gnu.hash", ".gnu.version", ".gnu.version_d",
        ".gnu.version_r", ".symtab", ".strtab", ".shstrtab", ".symtab_shndx",
    ),
}  # fmt: skip
_GROUP_OF = {name: group for group, names in NAMES.items() for name in names}
GROUPS = ("text", "rodata", "unwind", "relocations", "data", "symbols", "debug", "other")
ALLOCATED, WRITABLE, EXECUTABLE = 0x2, 0x1, 0x4  # SHF_ALLOC, SHF_WRITE, SHF_EXECINSTR


def group_sizes(source: Path | IO[bytes], where: str = "") -> dict[str, int]:
    """Bytes of the file by group; together they are the file's size.

    ``text`` is code, ``rodata`` constants, ``unwind`` the tables for exceptions, ``data`` what is
    written to (also only while it is loaded), ``debug`` debugging information, ``other`` headers,
    notes and padding. ``.bss`` takes no place in a file. Raises :class:`errors.UsageError` as
    :func:`edge.tools.elf.read` does, and for sections that overlap.
    """
    with opened(source, where) as elf:
        sizes = dict.fromkeys(GROUPS, 0)
        for section in sections_of(elf):
            if section["sh_type"] not in ("SHT_NULL", "SHT_NOBITS"):
                sizes[_group(section)] += section["sh_size"]
        rest = elf.stream.seek(0, io.SEEK_END) - sum(sizes.values())
        if rest < 0:
            raise Refused("its sections overlap")
        sizes["other"] += rest
        return sizes


def _group(section: Section) -> str:
    flags = section["sh_flags"]
    if section.name in _GROUP_OF:
        return _GROUP_OF[section.name]
    if section.name.startswith((".debug_", ".zdebug_", ".gnu_debug")):
        return "debug"
    if not flags & ALLOCATED or section["sh_type"] == "SHT_NOTE":
        return "other"
    if flags & EXECUTABLE:
        return "text"
    return "data" if flags & WRITABLE else "rodata"
