"""What a reduced runtime library costs, and what the full one would: the size report."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from edge import errors, process
from edge.convert.compressed_size import GZIP_OVERHEAD
from edge.step import Facts, step
from edge.store import CHUNK
from edge.tools import elf
from edge.tools.sections import group_sizes

REPORT = "size-report.json"


# liblzma's version is not in the key: Python does not tell it, and what its releases differ by
# is far below what the figure is for. No budget is held against it; gzip's has zlib in the key.
@step(version=1, tools=("zlib", "pyelftools"), isolated=False)
def runtime_sizes(out: Path, *, library: Path, stripped: Path, full: Path | None = None) -> Facts:
    """Write ``size-report.json``: a reduced library against the full one, sizes in bytes.

    ``library`` is what the build made, ``stripped`` the same without symbols (what ships),
    ``full`` the official library for the same machine, stripped too; where there is none, the
    report has no ``full`` and no ``ratio``. Facts, and the report: ``reduced`` (``raw`` of
    ``library``; of the stripped one ``stripped``, ``gzip`` and ``xz``, which are the sizes under
    ``gzip -9`` and ``xz -9``, and ``sections`` by group), ``full`` (the same without ``raw``),
    ``ratio`` (full to reduced), ``library`` (what users must know of the stripped one). xz takes
    up to 700 MB of memory.

    Raises :class:`errors.UsageError` for files that are no ELF libraries, that do not belong
    together or still have symbols, and :class:`errors.ToolMissing` where Python has no lzma.
    """
    made = elf.read(stripped, "the stripped library")
    _belongs(elf.read(library, "the library"), made)
    if full is not None:
        _comparable(elf.read(full, "the full library"), made)
    reduced = _costs(stripped)
    facts: Facts = {
        "library": _facts(made),
        "reduced": {"raw": library.stat().st_size, **reduced},
    }
    if full is not None:
        whole = _costs(full)
        facts["full"] = whole
        facts["ratio"] = {
            name: round(whole[name] / reduced[name], 2) for name in ("stripped", "gzip", "xz")
        }
    text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    (out / REPORT).write_text(text, encoding="utf-8", newline="\n")
    return facts


def _belongs(library: elf.Library, stripped: elf.Library) -> None:
    """Refuse two files of which one cannot have been made by stripping the other."""
    if not stripped.stripped:
        raise errors.UsageError(
            "the stripped library still has its symbols", remedy="strip --strip-unneeded"
        )
    for what in ("machine", "needed", "versions", "exported", "build_id"):
        if getattr(library, what) != getattr(stripped, what):
            raise errors.UsageError(
                f"the stripped library is none of the library: {what} differs",
                remedy="give both files of one build",
            )


def _comparable(full: elf.Library, reduced: elf.Library) -> None:
    if full.machine != reduced.machine:
        raise errors.UsageError(
            f"the full library is for {full.machine}, the reduced one for {reduced.machine}",
            remedy="give the full library for the same machine",
        )
    if not full.stripped:
        raise errors.UsageError(
            "the full library still has its symbols: the comparison would flatter",
            remedy="strip --strip-unneeded",
        )


def _facts(library: elf.Library) -> Facts:
    families = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
    return {
        "machine": library.machine,
        "needed": list(library.needed),
        "alignment": library.alignment,
        "executable_stack": library.executable_stack,
        "exported": len(library.exported),
        **{family.lower(): elf.highest(library, family) for family in families},
    }


def _costs(file: Path) -> Facts:
    """Bytes of a stripped library: as it is, under gzip -9, under xz -9, and by section."""
    try:
        import lzma
    except ImportError as error:  # pyenv leaves it out where liblzma's headers are missing
        raise errors.ToolMissing(
            "this Python was built without lzma",
            remedy="install liblzma-dev (xz-devel) and build Python again, or use another Python",
        ) from error
    gzip, xz = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS), lzma.LZMACompressor(preset=9)
    sizes = {"stripped": 0, "gzip": GZIP_OVERHEAD, "xz": 0}
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            process.refuse_when_stopping()
            sizes["stripped"] += len(chunk)
            sizes["gzip"] += len(gzip.compress(chunk))
            sizes["xz"] += len(xz.compress(chunk))
    sizes["gzip"] += len(gzip.flush())
    sizes["xz"] += len(xz.flush())
    return {**sizes, "sections": group_sizes(file)}
