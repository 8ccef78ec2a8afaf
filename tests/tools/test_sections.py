"""Where the bytes of an ELF library are."""

from __future__ import annotations

import io

from edge.tools.sections import group_sizes
from tests.elf_files import Spec, installed, library, on_linux

NOBITS = 8


def test_groups_are_together_the_file() -> None:
    extra = {
        ".plt": (1, 6, bytes(16)),
        ".gcc_except_table": (1, 2, bytes(7)),
        ".rela.dyn": (1, 2, bytes(24)),
        ".data.rel.ro": (1, 3, bytes(5)),
        ".debug_info": (1, 0, bytes(1000)),
        ".comment": (1, 0x30, bytes(10)),
        ".bss": (NOBITS, 3, bytes(100_000)),
    }
    sizes = {}
    for symtab in (False, True):
        data = library(Spec(sections={**Spec().sections, **extra}, symtab=symtab))
        sizes = group_sizes(io.BytesIO(data))
        assert sum(sizes.values()) == len(data)
    assert sizes["text"] == 300 + 16
    assert sizes["rodata"] == 100
    assert sizes["unwind"] == 50 + 7
    assert sizes["relocations"] == 24
    assert sizes["data"] == 40 + 5 + 5 * 16  # with the dynamic section's five tags
    assert sizes["debug"] == 1000
    without = group_sizes(io.BytesIO(library()))
    assert sizes["symbols"] > without["symbols"] > 150


@on_linux
def test_the_installed_onnxruntime_is_mostly_code() -> None:
    path = installed("libonnxruntime.so.*")
    sizes = group_sizes(path)
    assert sum(sizes.values()) == path.stat().st_size
    assert sizes["text"] > path.stat().st_size // 2
    assert min(sizes["unwind"], sizes["relocations"], sizes["symbols"]) > 10_000
