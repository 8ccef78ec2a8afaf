"""What ELF libraries are and need: ones made by hand, by a compiler, and an installed one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, process
from edge.tools import elf, zig
from edge.tools.elf import Library, alignment, c_api, highest, machine, objections, read
from tests import elf_files
from tests.elf_files import VERSION, Spec, Symbol, elf32, elf64, installed, library, on_linux

PAGE = 16384
ALIGNED = elf64([(6, 64, 64, 8), (1, 0, 0, PAGE), (1, 0x1000, 0x5000, PAGE)])


def look(spec: Spec | None = None) -> Library:
    return read(io.BytesIO(library(spec)), "x.so")


# --------------------------------------------------------------------------------- content
@pytest.mark.parametrize(("number", "bits", "name"), [(62, 64, "x86_64"), (40, 32, "arm")])
def test_everything_of_a_library(number: int, bits: int, name: str) -> None:
    assert look(Spec(machine=number, bits=bits)) == Library(
        machine=name,
        bits=bits,
        soname="libonnxruntime.so.1",
        needed=("libstdc++.so.6", "libc.so.6"),
        alignment=4096,
        executable_stack=False,
        relro=True,
        bind_now=False,
        versions={"libc.so.6": ("GLIBC_2.4", "GLIBC_2.17")},
        exported=("OrtGetApiBase@@VERS_1.21.0",),
        stripped=True,
        build_id=bytes(range(20)).hex(),
        runpath="$ORIGIN",
    )


def test_what_is_not_there_is_empty() -> None:
    found = look(
        Spec(soname="", needed=(), versions={}, defined=(), runpath=(0, ""), build_id=b"",
             symbols=(Symbol("OrtGetApiBase", 1),), relro=False, symtab=True)
    )  # fmt: skip
    assert (found.soname, found.needed, found.versions, found.runpath) == ("", (), {}, "")
    assert (found.build_id, found.exported) == ("", ("OrtGetApiBase",))
    assert (found.relro, found.stripped) == (False, False)


def test_the_older_rpath_counts_where_there_is_no_runpath() -> None:
    assert look(Spec(runpath=(15, "/opt/lib"))).runpath == "/opt/lib"


@pytest.mark.parametrize(
    ("tag", "value", "expected"),
    [(30, 8, True), (0x6FFFFFFB, 1, True), (24, 0, True), (30, 4, False), (0x6FFFFFFB, 8, False)],
)
def test_bind_now_is_said_in_three_ways(tag: int, value: int, *, expected: bool) -> None:
    assert look(Spec(dynamic=((tag, value),))).bind_now is expected


@pytest.mark.parametrize(("flags", "expected"), [(6, False), (7, True), (None, True)])
def test_executable_stack(flags: int | None, *, expected: bool) -> None:
    assert look(Spec(stack=flags)).executable_stack is expected


def test_exported_is_what_others_can_bind_to() -> None:
    symbols = (
        Symbol("weak", bind=elf_files.WEAK),
        Symbol("unique", bind=elf_files.UNIQUE),
        Symbol("protected", visibility=elf_files.PROTECTED),
        Symbol("unversioned", version=1),
        Symbol("older", version=0x8002),
        Symbol("base", version=0x8001),  # of the library itself: no version
        Symbol("local", bind=elf_files.LOCAL),
        Symbol("hidden", visibility=elf_files.HIDDEN),
        Symbol("internal", visibility=elf_files.INTERNAL),
        Symbol("undefined", place=elf_files.UNDEFINED),
        Symbol("made_local", version=0),
        Symbol(VERSION, place=elf_files.ABSOLUTE),  # GNU ld writes one for each version
        Symbol("absolute", place=elf_files.ABSOLUTE),
    )
    assert look(Spec(symbols=symbols)).exported == (
        f"absolute@@{VERSION}",
        "base",
        f"older@{VERSION}",
        f"protected@@{VERSION}",
        f"unique@@{VERSION}",
        "unversioned",
        f"weak@@{VERSION}",
    )


def test_versions_are_sorted_as_numbers() -> None:
    versions = {"libm.so.6": ("GLIBC_2.29",), "a.so": ("V_10", "GLIBC_PRIVATE", "V_9", "V_9.1")}
    assert look(Spec(versions=versions)).versions == {
        "a.so": ("GLIBC_PRIVATE", "V_9", "V_9.1", "V_10"),
        "libm.so.6": ("GLIBC_2.29",),
    }


def test_a_path_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(library())
    assert read(tmp_path / "lib.so") == look()
    with pytest.raises(errors.UsageError, match=r"^cannot read gone\.so: No such file"):
        read(tmp_path / "gone.so")
    (tmp_path / "text.so").write_text("hello")
    with pytest.raises(errors.UsageError, match=r"^text\.so is no ELF file"):
        read(tmp_path / "text.so")


# ---------------------------------------------------------------------------------- heads
@pytest.mark.parametrize(
    ("number", "bits", "name"),
    [(62, 64, "x86_64"), (183, 64, "aarch64"), (243, 64, "riscv64"), (40, 32, "arm"),
     (3, 32, "x86")],
)  # fmt: skip
def test_machine_of_a_head(number: int, bits: int, name: str) -> None:
    head = (elf64 if bits == 64 else elf32)([], number)
    assert machine(head[: elf.HEADER_BYTES], "x.so") == name


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "x.so is no ELF file"),
        (b"MZ" + bytes(62), "x.so is no ELF file"),
        (elf64([], 62)[:63], "x.so is no ELF file"),
        (elf64([], 21), r"unknown machine EM_PPC64 \(64 bits\)"),
        (elf64([], 54321), r"unknown machine 54321 \(64 bits\)"),
        (elf32([], 62), r"unknown machine EM_X86_64 \(32 bits\)"),
        (elf32([], 243), r"unknown machine EM_RISCV \(32 bits\)"),
        (b"\x7fELF\x02\x02" + elf64([], 62)[6:], "it is big-endian"),
    ],
)
def test_machine_of_what_is_none(head: bytes, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        machine(head, "x.so")


def test_every_load_segment_on_16k_pages() -> None:
    assert alignment(ALIGNED, "x.so") == PAGE


def test_one_segment_on_4k_pages_decides() -> None:
    assert alignment(elf64([(1, 0, 0, 4096), (1, 0x1000, 0x2000, PAGE)]), "x.so") == 4096


def test_address_that_does_not_match_its_place_decides() -> None:
    # 4 KB apart, whatever is declared: cannot be mapped in 16 KB steps
    assert alignment(elf64([(1, 0x1000, 0x2000, PAGE)]), "x.so") == 4096


def test_alignment_of_a_32_bit_library() -> None:
    assert alignment(elf32([(1, 0, 0, 65536)]), "x.so") == 65536


@pytest.mark.parametrize(
    "head",
    [b"", b"MZ" + bytes(100), ALIGNED[:70], elf64([]), elf64([(6, 64, 64, 8)]),
     b"\x7fELF\x02\x02" + ALIGNED[6:]],
)  # fmt: skip
def test_alignment_of_what_is_none(head: bytes) -> None:
    with pytest.raises(errors.UsageError, match=r"x\.so is no ELF"):
        alignment(head, "x.so")


@given(st.binary(max_size=300))
def test_any_bytes_give_a_number_or_a_clear_error(tail: bytes) -> None:
    with contextlib.suppress(errors.UsageError):
        assert alignment(b"\x7fELF\x02\x01" + tail, "x.so") >= 0


# -------------------------------------------------------------------------------- verdicts
@pytest.mark.parametrize(
    ("names", "family", "expected"),
    [
        (("GLIBC_2.4", "GLIBC_2.17", "GLIBC_2.2.5"), "GLIBC", "2.17"),
        (("GLIBC_2.9", "GLIBC_3"), "GLIBC", "3"),
        (("GLIBCXX_3.4.9", "GLIBCXX_3.4.22", "GLIBC_9"), "GLIBCXX", "3.4.22"),
        (("CXXABI_1.3", "CXXABI_1.3.11", "CXXABI_TM_1"), "CXXABI", "1.3.11"),
        (("GCC_3.0", "GCC_4.0.0"), "GCC", "4.0.0"),
        (("GLIBC_2.17", "GLIBC_ABI_DT_RELR"), "GLIBC", "2.36"),
        (("GLIBC_2.38", "GLIBC_ABI_DT_RELR"), "GLIBC", "2.38"),
        (("GLIBC_PRIVATE", "GLIBC_ABI_GNU2_TLS"), "GLIBC", ""),
        (("LIBC",), "GLIBC", ""),
    ],
)
def test_highest_is_compared_as_numbers(names: tuple[str, ...], family: str, expected: str) -> None:
    split: Mapping[str, tuple[str, ...]] = {"a.so": names[:1], "b.so": names[1:]}
    assert highest(replace(look(), versions=split), family) == expected


@pytest.mark.parametrize(
    ("symbol", "allowed"),
    [
        (f"OrtGetApiBase@@{VERSION}", True),
        ("OrtSessionOptionsAppendExecutionProvider_Nnapi", True),
        ("OrtGetWinMLAdapter@OLD", True),
        ("Java_ai_onnxruntime_telemetry_HttpClient_dispatchCallback@@VERS_1.29.0", True),
        ("_end", True),
        ("__bss_start@@VERS_1.0", True),
        ("_ZN11onnxruntime12SessionStateD1Ev", False),
        ("ort_helper", False),
        ("Ort", False),
        ("Ortho", False),
        ("Provider_GetHost@@VERS_1.0", False),
        ("_ending", False),
        ("JNI_OnLoad", False),
        ("Java_com_example_Main_run", False),
    ],
)
def test_what_the_c_api_is(symbol: str, *, allowed: bool) -> None:
    assert c_api(symbol) is allowed


def test_a_library_that_fits() -> None:
    assert objections(look(), machine="x86_64", page=4096, glibc="2.17") == ()
    assert objections(look(Spec(page=65536)), machine="x86_64", page=PAGE) == ()


def test_each_objection_says_what_to_do() -> None:
    spec = Spec(stack=7, symbols=tuple(Symbol(f"_ZN{n}") for n in range(5)))
    found = objections(look(spec), machine="aarch64", page=PAGE, glibc="2.16")
    machine_, page, stack, glibc, exports, nothing = found
    assert machine_ == "it is for x86_64, not for aarch64"
    assert "aligned to 4096 bytes, the target has pages of 16384" in page
    assert page.endswith("link with -Wl,-z,max-page-size=16384")
    assert stack == "it asks for an executable stack: link with -Wl,-z,noexecstack"
    assert glibc.startswith("it needs glibc 2.17, the target has 2.16: build it against")
    assert exports.startswith(f"it exports more than its C API, _ZN0@@{VERSION}, _ZN1@@{VERSION}")
    assert exports.endswith(f", _ZN2@@{VERSION} and 2 more: link with its version script")
    assert nothing == "it exports no function of its C API: link with its version script"


def test_glibc_is_compared_as_numbers_and_only_where_it_is_known() -> None:
    assert objections(look(), machine="x86_64", glibc="2.9") != ()
    assert objections(look(), machine="x86_64", glibc="2.100") == ()
    assert objections(look(), machine="x86_64") == ()
    for wrong in ("2", "2.x", "", "2.17\n", "2." + "9" * 5000):
        with pytest.raises(errors.UsageError, match="is no version of glibc"):
            objections(look(), machine="x86_64", glibc=wrong)


def test_private_parts_of_glibc_are_an_objection() -> None:
    private = look(Spec(versions={"libc.so.6": ("GLIBC_PRIVATE",)}))
    (found,) = objections(private, machine="x86_64", glibc="2.39")
    assert found.startswith("it needs GLIBC_PRIVATE")


def test_what_may_be_exported_is_the_callers() -> None:
    host = look(Spec(symbols=(Symbol("Provider_GetHost"),)))
    allowed = objections(host, machine="x86_64", exported=lambda name: "Provider_" in name)
    assert allowed == ()
    assert len(objections(host, machine="x86_64")) == 2


def test_what_linkers_define_is_no_function() -> None:
    (found,) = objections(look(Spec(symbols=(Symbol("_end"),))), machine="x86_64")
    assert found.startswith("it exports no function")


# --------------------------------------------------------------------------------- real ones
@on_linux
def test_the_installed_onnxruntime() -> None:
    path = installed("libonnxruntime.so.*")
    release = path.name.removeprefix("libonnxruntime.so.")
    found = read(path)
    assert found.soname == "libonnxruntime.so.1"
    assert f"OrtGetApiBase@@VERS_{release}" in found.exported
    assert {"libc.so.6", "libstdc++.so.6"} <= set(found.needed)
    assert (found.bits, found.stripped, found.executable_stack) == (64, True, False)
    assert objections(found, machine=found.machine, glibc="2.28") == ()  # manylinux_2_28


SOURCE = """
__attribute__((visibility("default"))) int OrtGetApiBase(void) { return 1; }
int helper(void) { return 2; }
"""


@pytest.mark.process
@pytest.mark.parametrize("fits", [True, False])
def test_what_a_compiler_makes(tmp_path: Path, *, fits: bool) -> None:
    (tmp_path / "source.c").write_text(SOURCE)
    (tmp_path / "script").write_text("VERS_1 { global: OrtGetApiBase; local: *; };\n")
    words = [*zig.find().argv, "cc", "-target", "aarch64-linux-gnu.2.17", "-shared", "-s"]
    words += ["source.c", "-o", "lib.so", "-Wl,-soname,libx.so.1"]
    if fits:
        words += ["-Wl,--version-script=script", "-Wl,-z,max-page-size=16384"]
    process.run(words, timeout=600, cwd=tmp_path)
    found = read(tmp_path / "lib.so")
    assert (found.machine, found.bits, found.soname) == ("aarch64", 64, "libx.so.1")
    exported = ("OrtGetApiBase@@VERS_1",) if fits else ("OrtGetApiBase", "helper")
    assert found.exported == exported
    assert found.executable_stack is False
    said = " ".join(objections(found, machine="aarch64", page=PAGE, glibc="2.17"))
    assert fits == (not said)
    assert fits or "more than its C API, helper: link with its version script" in said
