"""ELF files opened with pyelftools, within bounds: headers, segments, sections.

A library is untrusted input: every read goes through a meter, so that no table, however long or
cyclic, costs more than ``MAX_READS`` reads of ``MAX_READ`` bytes and ``MAX_BYTES`` bytes in all;
and whatever pyelftools trips over becomes one :class:`errors.UsageError`.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from edge import errors

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import Section

T = TypeVar("T")
Headers = list[Mapping[str, Any]]

MAX_READS = 1_000_000  # nine a symbol: three times the symbols that libLLVM exports; 3 s
MAX_READ = 1 << 20
MAX_BYTES = 1 << 28
MAX_SEGMENTS = 256  # linkers write about ten
MAX_SECTIONS = 4096  # and about thirty
MAX_NAME = 1 << 16  # characters; C++ names of several thousand exist

# e_machine and class (elf.h) as targets call them; x32 and 32-bit RISC-V are not among them.
MACHINES: Mapping[tuple[object, int], str] = {
    ("EM_X86_64", 64): "x86_64",
    ("EM_AARCH64", 64): "aarch64",
    ("EM_RISCV", 64): "riscv64",
    ("EM_ARM", 32): "arm",
    ("EM_386", 32): "x86",
}


class Refused(ValueError):
    """Why a file cannot be read; becomes one line of :class:`errors.UsageError`."""


class _Meter:
    """A stream that gives ``MAX_READS`` times at most ``MAX_READ`` bytes, then refuses."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._reads, self._bytes = MAX_READS, MAX_BYTES
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, MAX_READ) if size >= 0 else MAX_READ)
        self._reads -= 1
        self._bytes -= len(data)
        if min(self._reads, self._bytes) < 0:
            raise Refused("its tables are too long")
        return data


@contextlib.contextmanager
def opened(source: Path | IO[bytes], where: str = "") -> Iterator[ELFFile]:
    """The little-endian ELF file ``source``, for this package's readers.

    Whatever pyelftools says of damaged input within the block becomes :class:`errors.UsageError`.
    """
    from elftools.elf.elffile import ELFFile

    name = where or (source.name if isinstance(source, Path) else "the library")
    with contextlib.ExitStack() as stack, _refusing(name):
        stream = stack.enter_context(source.open("rb")) if isinstance(source, Path) else source
        elf = ELFFile(cast("IO[bytes]", _Meter(stream)))
        if not elf.little_endian:
            raise Refused("it is big-endian")
        yield elf


@contextlib.contextmanager
def _refusing(where: str) -> Iterator[None]:
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError

    try:
        yield
    except OSError as error:
        raise errors.UsageError(f"cannot read {where}: {error.strerror or error}") from error
    # pyelftools checks little: a wrong link or offset ends wherever it is first used.
    except (
        ELFError, ConstructError, ArithmeticError, AssertionError, AttributeError, LookupError,
        MemoryError, RecursionError, TypeError, ValueError, struct.error,
    ) as error:  # fmt: skip
        message = f"{where} is no ELF file that can be read{_reason(error)}"
        raise errors.UsageError(message) from error


def _reason(error: BaseException | None) -> str:
    """What we said ourselves: pyelftools packs what a stream raises into errors of its own."""
    while error is not None and not isinstance(error, Refused):
        error = error.__context__
    return f": {error}" if error is not None else ""


def machine_of(elf: ELFFile) -> str:
    """A value of ``MACHINES``."""
    number = elf["e_machine"]
    if (number, elf.elfclass) not in MACHINES:
        raise Refused(f"it is for the unknown machine {number} ({elf.elfclass} bits)")
    return MACHINES[number, elf.elfclass]


def segments_of(elf: ELFFile) -> Headers:
    """The program headers; not by ``iter_segments``, which also reads what they point to."""
    from elftools.common.utils import struct_parse

    layout = elf.structs.Elf_Phdr
    count, width, place = elf["e_phnum"], elf["e_phentsize"], elf["e_phoff"]
    if not 0 < count <= MAX_SEGMENTS or width != layout.sizeof():
        raise Refused(f"it has {count} program headers of {width} bytes")
    return [struct_parse(layout, elf.stream, place + width * n) for n in range(count)]


def sections_of(elf: ELFFile) -> list[Section]:
    """All sections, in their order; what they hold lies within the file."""
    size = elf.stream.seek(0, io.SEEK_END)
    count = elf.num_sections()
    if not 0 < count <= MAX_SECTIONS:
        raise Refused(f"it has {count} section headers")
    found = [elf.get_section(n) for n in range(count)]
    for part in found:
        empty = part["sh_type"] in ("SHT_NULL", "SHT_NOBITS")
        if not empty and part["sh_offset"] + part["sh_size"] > size:
            raise Refused("a section ends behind the end of the file")
    return found


def only(parts: list[Section], kind: str) -> Any:
    """The section of this type or None; the classes of pyelftools know what is in it."""
    found = [part for part in parts if part["sh_type"] == kind]
    if len(found) > 1:
        raise Refused(f"it has {len(found)} sections of type {kind}")
    return found[0] if found else None


def bounded(items: Iterable[T], limit: int, what: str) -> Iterator[T]:
    """The items; refused once there are more than ``limit``, as in a table that is a circle."""
    for number, item in enumerate(items):
        if number >= limit:
            raise Refused(f"it has more than {limit} {what}")
        yield item


def text(name: object) -> str:
    """A name that can be shown: printable, of bounded length."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not name.isprintable():
        raise Refused("a name in it is not text")
    return name
