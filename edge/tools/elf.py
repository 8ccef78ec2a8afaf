"""What an ELF shared library is, what it needs and what it exports; read with pyelftools.

The program headers say how it is mapped, the dynamic section what the loader has to find, the
sections which symbols and versions there are. Reading is bounded and hostile files are refused
(see :mod:`edge.tools.elf_file`). What is read is what linkers, ``nm`` and ``readelf`` see: a
loader does not look at section headers, so nothing here says what a forged library would do.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edge import errors
from edge.tools.elf_file import (
    Headers,
    Refused,
    bounded,
    machine_of,
    only,
    opened,
    sections_of,
    segments_of,
    text,
)

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import Section

HEADER_BYTES = 64  # of the ELF header, the larger of the two classes
MAX_TAGS = 4096
MAX_VERSIONS = 2000  # of one library; the C library itself defines about sixty
MAX_NOTES = 64
BIND_NOW, FLAGS_1_NOW, EXECUTABLE = 0x8, 0x1, 0x1  # DF_BIND_NOW, DF_1_NOW, PF_X
VERSION_HIDDEN, VERSION_INDEX = 0x8000, 0x7FFF  # of an entry of .gnu.version
# STB_LOOS is STB_GNU_UNIQUE, which C++ uses for inline variables and template statics.
EXPORTED_BINDINGS = frozenset({"STB_GLOBAL", "STB_WEAK", "STB_LOOS"})
EXPORTED_VISIBILITIES = frozenset({"STV_DEFAULT", "STV_PROTECTED"})
# glibc refuses to load what has packed relative relocations where it is older (release notes).
PACKED_RELOCATIONS, PACKED_RELOCATIONS_SINCE = "GLIBC_ABI_DT_RELR", "2.36"
# What linkers define where no version script hides it.
LINKER_MADE = frozenset(
    {"_init", "_fini", "_edata", "_end", "__bss_start", "__bss_start__", "__bss_end__",
     "_bss_end__", "__end__", "__exidx_start", "__exidx_end"}
)  # fmt: skip
_C_API = re.compile(r"Ort[A-Z]\w*|Java_ai_onnxruntime_\w+")


@dataclass(frozen=True)
class Library:
    """An ELF shared library.

    ``machine``: a value of ``elf_file.MACHINES``. ``alignment``: bytes, as :func:`alignment` says.
    ``executable_stack``: also where it does not say (then glibc makes the stack executable).
    ``bind_now``: all symbols are bound when it is loaded; with ``relro`` the tables are read-only
    then. ``versions``: symbol versions needed, by library (``libc.so.6``: ``GLIBC_2.17``).
    ``exported``: defined global, weak and unique dynamic symbols that others can bind to, as
    ``nm -D`` writes them (``OrtGetApiBase@@VERS_1.21.0``), without the names of the versions
    themselves. ``stripped``: no ``.symtab``. ``build_id`` (hex), ``soname`` and ``runpath`` (or
    the older rpath) are empty where there is none.
    """

    machine: str
    bits: int
    soname: str
    needed: tuple[str, ...]
    alignment: int
    executable_stack: bool
    relro: bool
    bind_now: bool
    versions: Mapping[str, tuple[str, ...]]
    exported: tuple[str, ...]
    stripped: bool
    build_id: str
    runpath: str


# -------------------------------------------------------------------------------- questions
def read(source: Path | IO[bytes], where: str = "") -> Library:
    """Read a whole library; ``source`` is a path or a binary stream that can seek.

    ``where`` is its name in messages (default: the file's). Raises :class:`errors.UsageError`
    for what is no shared library of a known machine, is damaged, or has no section headers.
    """
    with opened(source, where) as elf:
        if elf["e_type"] != "ET_DYN":
            raise Refused(f"it is {elf['e_type']}, not a shared library")
        segments, parts = segments_of(elf), sections_of(elf)
        stack = [s["p_flags"] & EXECUTABLE for s in segments if s["p_type"] == "PT_GNU_STACK"]
        return Library(
            machine=machine_of(elf),
            bits=elf.elfclass,
            alignment=_alignment(segments),
            executable_stack=not stack or any(stack),
            relro=any(s["p_type"] == "PT_GNU_RELRO" for s in segments),
            versions=_needed_versions(parts),
            exported=_exported(elf, parts),
            stripped=not any(part["sh_type"] == "SHT_SYMTAB" for part in parts),
            build_id=_build_id(elf, segments),
            **_dynamic(elf, parts),
        )


def machine(head: bytes, where: str) -> str:
    """The machine that an ELF file is for, from its first ``HEADER_BYTES`` bytes or more.

    Raises :class:`errors.UsageError` for what is no little-endian ELF file of a known machine.
    """
    with opened(io.BytesIO(head), where) as elf:
        return machine_of(elf)


def alignment(head: bytes, where: str) -> int:
    """The smallest alignment in bytes of an ELF file's LOAD segments, from its first bytes.

    A segment counts with the largest power of two that divides both its declared alignment and
    the distance between its address and its place in the file: that is what a loader can map.
    The program headers have to be in ``head``; they follow the ELF header in every linker's
    output. Raises :class:`errors.UsageError` for what is no such file.
    """
    with opened(io.BytesIO(head), where) as elf:
        return _alignment(segments_of(elf))


def highest(library: Library, family: str) -> str:
    """The highest version needed of ``GLIBC``, ``GLIBCXX``, ``CXXABI`` or ``GCC``, or ``""``.

    Compared as numbers: 2.17 is above 2.4.
    """
    pattern = re.compile(rf"{re.escape(family)}_(\d{{1,6}}(?:\.\d{{1,6}}){{0,3}})")
    names = {name for names in library.versions.values() for name in names}
    found = [match[1] for name in names if (match := pattern.fullmatch(name))]
    if family == "GLIBC" and PACKED_RELOCATIONS in names:
        found.append(PACKED_RELOCATIONS_SINCE)
    return max(found, key=_number, default="")


def c_api(symbol: str) -> bool:
    """True for a symbol that ONNX Runtime's library may export.

    ONNX Runtime links with a version script made of ``core/providers/*/symbols.txt``
    (tools/ci_build/gen_def.py): ``OrtGetApiBase`` and, for each provider with an entry point of
    its own, ``OrtSessionOptionsAppendExecutionProvider_NAME``; all else is local. The rule: names
    that start with ``Ort``, what linkers define themselves (``LINKER_MADE``), and functions of
    ONNX Runtime's own Java classes (1.29's library for Android has ten, for telemetry).
    """
    name = symbol.partition("@")[0]
    return name in LINKER_MADE or _C_API.fullmatch(name) is not None


def objections(
    library: Library,
    *,
    machine: str,
    page: int = 4096,
    glibc: str | None = None,
    exported: Callable[[str], bool] = c_api,
) -> tuple[str, ...]:
    """Why a library does not fit a target, one sentence each; empty when it does.

    ``page``: the largest page size of its devices in bytes (Android: 16,384 on 64-bit ones).
    ``glibc``: the C library that the target promises (``2.28``), None where that says nothing.
    ``exported``: which symbols it may export. Raises :class:`errors.UsageError` for a ``glibc``
    that is no version.
    """
    found = []
    if library.machine != machine:
        found.append(f"it is for {library.machine}, not for {machine}")
    if library.alignment < page:  # both are powers of two
        found.append(
            f"its loadable segments are aligned to {library.alignment} bytes, the target has pages "
            f"of {page}: link with -Wl,-z,max-page-size={page}"
        )
    if library.executable_stack:
        found.append("it asks for an executable stack: link with -Wl,-z,noexecstack")
    if glibc is not None:
        found += _glibc_objections(library, glibc)
    return (*found, *_export_objections(library, exported))


def _glibc_objections(library: Library, glibc: str) -> Iterator[str]:
    if re.fullmatch(r"\d{1,6}(\.\d{1,6}){1,3}", glibc) is None:
        raise errors.UsageError(f"{glibc!r:.100} is no version of glibc")
    needed = highest(library, "GLIBC")
    if needed and _number(needed) > _number(glibc):
        yield (
            f"it needs glibc {needed}, the target has {glibc}: "
            "build it against the target's C library or an older one"
        )
    if any("GLIBC_PRIVATE" in names for names in library.versions.values()):
        yield "it needs GLIBC_PRIVATE, which only one build of glibc has: link without it"


def _export_objections(library: Library, allowed: Callable[[str], bool]) -> Iterator[str]:
    strange = [name for name in library.exported if not allowed(name)]
    if strange:
        shown = ", ".join(f"{name:.80}" for name in strange[:3])
        more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
        yield f"it exports more than its C API, {shown}{more}: link with its version script"
    names = {name for name in library.exported if name.partition("@")[0] not in LINKER_MADE}
    if not any(map(allowed, names)):
        yield "it exports no function of its C API: link with its version script"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


# ----------------------------------------------------------------------------------- tables
def _alignment(segments: Headers) -> int:
    loads = [s for s in segments if s["p_type"] == "PT_LOAD"]
    if not loads:
        raise Refused("nothing of it is loaded")
    bits = [s["p_align"] | abs(s["p_vaddr"] - s["p_offset"]) for s in loads]
    return min(int(each & -each) for each in bits)


def _dynamic(elf: ELFFile, parts: list[Section]) -> dict[str, Any]:
    """Arguments of :class:`Library` that the dynamic section gives."""
    section = only(parts, "SHT_DYNAMIC")
    if section is None:
        raise Refused("it has no dynamic section")
    count = min(section["sh_size"] // elf.structs.Elf_Dyn.sizeof(), MAX_TAGS)
    names: dict[str, list[str]] = {}
    numbers: dict[object, int] = {}
    for tag in bounded(section.iter_tags(), count, "dynamic tags"):
        kind = tag["d_tag"]
        if kind in ("DT_NEEDED", "DT_SONAME", "DT_RUNPATH", "DT_RPATH"):
            names.setdefault(kind, []).append(text(getattr(tag, kind[3:].lower())))
        else:
            numbers[kind] = tag["d_val"]
    flags, flags_1 = numbers.get("DT_FLAGS", 0), numbers.get("DT_FLAGS_1", 0)
    return {
        "soname": "".join(names.get("DT_SONAME", [])[:1]),
        "needed": tuple(names.get("DT_NEEDED", ())),
        "runpath": "".join((names.get("DT_RUNPATH") or names.get("DT_RPATH", []))[:1]),
        "bind_now": bool(flags & BIND_NOW or flags_1 & FLAGS_1_NOW or "DT_BIND_NOW" in numbers),
    }


def _needed_versions(parts: list[Section]) -> dict[str, tuple[str, ...]]:
    section = only(parts, "SHT_GNU_verneed")
    found: dict[str, set[str]] = {}
    entries = section.iter_versions() if section is not None else ()
    for library, versions in bounded(entries, MAX_VERSIONS, "libraries with versions"):
        names = found.setdefault(text(library.name), set())
        names.update(text(each.name) for each in bounded(versions, MAX_VERSIONS, "versions"))
    return {name: tuple(sorted(found[name], key=_natural)) for name in sorted(found)}


def _natural(version: str) -> tuple[tuple[int, str], ...]:
    """Sorts ``GLIBC_2.4`` before ``GLIBC_2.17``."""
    return tuple((int(word or 0), text) for text, word in re.findall(r"(\D*)(\d{0,18})", version))


def _exported(elf: ELFFile, parts: list[Section]) -> tuple[str, ...]:
    from elftools.common.utils import struct_parse

    table = only(parts, "SHT_DYNSYM")
    layout = elf.structs.Elf_Sym
    if table is None or table["sh_entsize"] != layout.sizeof():
        raise Refused("it has no dynamic symbols")
    version_of = _version_reader(elf, parts)
    found = []
    for index in range(table["sh_size"] // layout.sizeof()):
        symbol = struct_parse(layout, elf.stream, table["sh_offset"] + index * layout.sizeof())
        if _is_exported(symbol):
            name = text(table.stringtable.get_string(symbol["st_name"]))
            version = version_of(index)
            defines_version = symbol["st_shndx"] == "SHN_ABS" and version == f"@@{name}"
            if version is not None and not defines_version:
                found.append(name + version)
    return tuple(sorted(found))


def _is_exported(symbol: Mapping[str, Any]) -> bool:
    return (
        symbol["st_shndx"] != "SHN_UNDEF"
        and symbol["st_info"]["bind"] in EXPORTED_BINDINGS
        and symbol["st_other"]["visibility"] in EXPORTED_VISIBILITIES
    )


def _version_reader(elf: ELFFile, parts: list[Section]) -> Callable[[int], str | None]:
    """What a symbol's name is followed by: ``@@VERSION``, ``@OLD``, nothing; None when local."""
    from elftools.common.utils import struct_parse

    numbers, names = only(parts, "SHT_GNU_versym"), _defined_versions(parts)

    def version_of(index: int) -> str | None:
        if numbers is None:
            return ""
        place = numbers["sh_offset"] + index * elf.structs.Elf_Versym.sizeof()
        number = struct_parse(elf.structs.Elf_Versym, elf.stream, place)["ndx"]
        if not isinstance(number, int):  # an Enum of pyelftools: the reserved ones have names
            return None if number == "VER_NDX_LOCAL" else ""
        name = names.get(number & VERSION_INDEX)
        return f"{'@' if number & VERSION_HIDDEN else '@@'}{name}" if name else ""

    return version_of


def _defined_versions(parts: list[Section]) -> dict[int, str]:
    """Names by index; 1 is the library itself and no version."""
    section = only(parts, "SHT_GNU_verdef")
    entries = section.iter_versions() if section is not None else ()
    found = {}
    for version, names in bounded(entries, MAX_VERSIONS, "defined versions"):
        if version["vd_ndx"] != 1:
            found[version["vd_ndx"] & VERSION_INDEX] = text(next(iter(names)).name)
    return found


def _build_id(elf: ELFFile, segments: Headers) -> str:
    from elftools.elf.notes import iter_notes

    for segment in segments:
        if segment["p_type"] == "PT_NOTE":
            notes = iter_notes(elf, segment["p_offset"], segment["p_filesz"])
            for note in bounded(notes, MAX_NOTES, "notes"):
                if note["n_type"] == "NT_GNU_BUILD_ID" and note["n_name"] == "GNU":
                    return text(note["n_desc"])
    return ""
