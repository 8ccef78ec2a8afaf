"""Windows' program files: what is read, and that nothing else than one error comes of others."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.tools import pe
from tests.pe_files import pe64

NAMES = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789_-.", min_size=1, max_size=40), max_size=8
).map(tuple)


def read(content: bytes) -> pe.Image:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.dll"
        path.write_bytes(content)
        return pe.read(path)


def test_libraries_are_told_by_where_they_come_from() -> None:
    names = ("KERNEL32.dll", "VCRUNTIME140_1.dll", "MSVCP140.dll", "api-ms-win-crt-heap-l1-1-0.dll")
    image = read(pe64(names, ("DirectML.dll", "d3d12.dll")))
    assert (image.machine, image.library, image.stamp) == ("x86_64", True, 7)
    assert image.stack_bytes == 1 << 20
    assert image.imports == tuple(sorted(name.lower() for name in names))
    assert image.visual_cpp == ("msvcp140.dll", "vcruntime140_1.dll")
    assert image.system == ("kernel32.dll",)
    assert image.delayed == ("d3d12.dll", "directml.dll")


def test_a_program_is_no_library() -> None:
    assert not read(pe64(flags=0x22)).library


@given(NAMES, NAMES)
def test_all_names_are_found(imports: tuple[str, ...], delayed: tuple[str, ...]) -> None:
    image = read(pe64(imports, delayed))
    assert image.imports == tuple(sorted(set(imports)))
    assert image.delayed == tuple(sorted(set(delayed)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no program"),
        (b"\x7fELF" + bytes(1000), "does not start as one"),
        (b"MZ" + bytes(1000), "no PE header"),
        (pe64()[:200], "no program"),
        (pe64(machine=0x1F0), "unknown machine 0x01f0"),
        (pe64(("a.dll",)).replace(b"\x0b\x02\x0e", b"\x07\x01\x0e"), "of the kind 0x107"),
        (pe64(("a" * 300,)), "a library's name is none"),
        (pe64(("a\x1b[31m.dll",)), "a library's name is none"),
        (pe64(tuple(f"{number}.dll" for number in range(1001))), "more than 1000 libraries"),
    ],
)
def test_what_is_damaged_is_one_error(content: bytes, message: str) -> None:
    with pytest.raises(errors.UsageError, match=r"some\.dll is no program for Windows") as caught:
        read(content)
    assert message in caught.value.message


@given(st.integers(0, 1200), st.binary(min_size=1, max_size=8))
def test_no_bytes_bring_another_error(at: int, other: bytes) -> None:
    content = pe64(("kernel32.dll", "msvcp140.dll"), ("d3d12.dll",))
    spoiled = content[:at] + other + content[at + len(other) :]
    with contextlib.suppress(errors.UsageError):
        image = read(spoiled)
        assert all(name.isprintable() for name in image.imports + image.delayed)


@given(st.binary(max_size=400))
def test_a_head_of_any_bytes_is_a_machine_or_an_error(rest: bytes) -> None:
    with contextlib.suppress(errors.UsageError):
        assert pe.machine(b"MZ" + rest, "it") in pe.MACHINES.values()
