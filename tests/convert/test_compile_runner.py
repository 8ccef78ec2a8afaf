from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from edge import errors, process
from edge.config import read_target
from edge.convert import compile_runner
from edge.store import Store
from edge.tools import elf, pe, zig
from edge.tools.fetch import fetch
from tests.elf_files import elf64
from tests.pe_files import pe64

RUNNER = process.PACKAGE_PARENT / "templates" / "runner"
SOURCE = RUNNER / "edge_runner.c"
WINDOWS = "x86_64-windows-gnu"


def compile_to(
    out: Path, header: Path, triple: str, source: Path = SOURCE, backend: str = "onnxruntime"
) -> int:
    out.mkdir()
    facts = compile_runner.compile_runner.function(
        out, source=source, header=header, triple=triple, backend=backend
    )
    assert facts is not None
    assert facts["triple"] == triple
    return int(facts["bytes"])


@pytest.fixture(scope="session")
def openvino_wheel(download_store: Store) -> Path:
    """What the OpenVINO targets pin as their runner's header."""
    target = read_target(process.PACKAGE_PARENT / "targets" / "openvino-x64.toml", {}, "")
    assert target.runner is not None
    return fetch(download_store, target.runner.header).path


@pytest.mark.process
@pytest.mark.parametrize("triple", [each for each in compile_runner.TRIPLES if each != WINDOWS])
def test_every_triple_gives_a_small_binary_for_its_machine(
    tmp_path: Path, ort_header: Path, triple: str
) -> None:
    size = compile_to(tmp_path / "out", ort_header, triple)
    binary = tmp_path / "out" / "edge_runner"
    assert size == binary.stat().st_size < 24_000
    machine = elf.machine(binary.read_bytes()[: elf.HEADER_BYTES], triple)
    assert machine == compile_runner.TRIPLES[triple][1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["edge_runner"]


@pytest.mark.process
def test_windows_gets_a_program_that_needs_windows_alone(tmp_path: Path, ort_header: Path) -> None:
    compile_to(tmp_path / "out", ort_header, WINDOWS)
    (binary,) = (tmp_path / "out").iterdir()
    image = pe.read(binary)
    assert (binary.name, image.machine, image.library) == ("edge_runner.exe", "x86_64", False)
    assert image.system == ("kernel32.dll",)  # and Windows' own C library, as API sets
    assert (image.visual_cpp, image.delayed) == ((), ())
    assert image.stack_bytes == 16 << 20


@pytest.mark.process
@pytest.mark.parametrize("triple", ["x86_64-linux-gnu.2.17", "aarch64-linux-gnu.2.17", WINDOWS])
def test_openvinos_runner_takes_the_headers_of_its_wheel(
    tmp_path: Path, openvino_wheel: Path, triple: str
) -> None:
    compile_to(tmp_path / "out", openvino_wheel, triple, backend="openvino")
    (binary,) = (tmp_path / "out").iterdir()
    content = binary.read_bytes()
    assert b"ov_core_compile_model_props" in content
    assert b"OrtGetApiBase" not in content


@pytest.mark.parametrize(
    ("name", "message"),
    [("openvino/include/openvino/c/../../../../evil.h", "no wheel of OpenVINO"), ("", "no wheel")],
)
def test_a_strange_wheel_leaves_nothing(tmp_path: Path, name: str, message: str) -> None:
    wheel = tmp_path / "openvino.whl"
    wheel.write_bytes(b"no archive")
    if name:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(name, "int evil;")
    with pytest.raises(errors.StepFailed, match=message):
        compile_to(tmp_path / "out", wheel, WINDOWS, backend="openvino")
    assert {path.name for path in tmp_path.iterdir()} == {"openvino.whl", "out"}


@pytest.mark.process
@pytest.mark.parametrize("triple", ["x86_64-linux-gnu.2.17", "arm-linux-gnueabihf"])
def test_an_old_c_library_is_enough(tmp_path: Path, ort_header: Path, triple: str) -> None:
    compile_to(tmp_path / "out", ort_header, triple)
    content = (tmp_path / "out" / "edge_runner").read_bytes()
    needed = {int(minor) for minor in re.findall(rb"GLIBC_2\.([0-9]+)", content)}
    assert needed
    assert max(needed) <= 17


@pytest.mark.process
@pytest.mark.parametrize("triple", ["aarch64-linux-gnu.2.17", WINDOWS])
def test_two_folders_and_caches_give_the_same_bytes_and_no_path(
    tmp_path: Path, ort_header: Path, monkeypatch: pytest.MonkeyPatch, triple: str
) -> None:
    made = []
    for name in ("one", "a much longer place"):
        place = tmp_path / name
        place.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place))
        monkeypatch.chdir(place)
        compile_to(place / "out", ort_header, triple)
        made.append((place / "out" / compile_runner.binary_name(triple)).read_bytes())
        assert [path.name for path in place.iterdir()] == ["out"]  # no cache is left
    assert made[0] == made[1]
    assert b"edge-compile" not in made[0]
    assert str(tmp_path).encode() not in made[0]


@pytest.mark.process
def test_the_compilers_words_are_in_the_error(tmp_path: Path, ort_header: Path) -> None:
    source = tmp_path / "runner" / "edge_runner.c"
    shutil.copytree(RUNNER, source.parent)
    source.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(errors.StepFailed, match="undeclared identifier 'nothing'"):
        compile_to(tmp_path / "out", ort_header, "x86_64-linux-gnu.2.17", source)


def test_an_unknown_triple_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="'x86_64-windows-msvc'") as caught:
        compile_to(tmp_path / "out", Path("none"), "x86_64-windows-msvc")
    assert "riscv64-linux-gnu.2.27" in caught.value.remedy


def test_a_binary_for_another_machine_fails_the_step(tmp_path: Path) -> None:
    binary = tmp_path / "edge_runner"
    binary.write_bytes(elf64([], 62) + bytes(10_000))
    assert compile_runner._check(binary, "x86_64") == 10_064
    with pytest.raises(errors.StepFailed, match="for x86_64, not 4000 to 64000 bytes for arm"):
        compile_runner._check(binary, "arm")


def test_a_program_for_another_windows_fails_the_step(tmp_path: Path) -> None:
    binary = tmp_path / "edge_runner.exe"
    binary.write_bytes(pe64(machine=0x8664) + bytes(100_000))
    assert compile_runner._check(binary, "x86_64") > 100_000
    binary.write_bytes(pe64(machine=0xAA64) + bytes(100_000))
    with pytest.raises(errors.StepFailed, match="for aarch64, not 4000 to 128000 bytes"):
        compile_runner._check(binary, "x86_64")
    binary.write_bytes(elf64([], 62) + bytes(10_000))
    with pytest.raises(errors.StepFailed, match=r"edge_runner\.exe is no program for Windows"):
        compile_runner._check(binary, "x86_64")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "edge_runner is no ELF file"),
        (b"MZ" + bytes(10_000), "edge_runner is no ELF file"),
        (elf64([], 21) + bytes(10_000), "unknown machine EM_PPC64"),
    ],
)
def test_a_binary_of_no_known_machine_fails_the_step(
    tmp_path: Path, content: bytes, message: str
) -> None:
    binary = tmp_path / "edge_runner"
    binary.write_bytes(content)
    with pytest.raises(errors.StepFailed, match=message):
        compile_runner._check(binary, "x86_64")


def test_a_binary_of_an_odd_size_fails_the_step(tmp_path: Path) -> None:
    binary = tmp_path / "edge_runner"
    for extra in (100, 64_000):
        binary.write_bytes(elf64([], 62) + bytes(extra))
        with pytest.raises(errors.StepFailed, match=f"is {extra + 64} bytes"):
            compile_runner._check(binary, "x86_64")


def test_zig_comes_from_the_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name} 0.15")
    assert zig.find.__wrapped__() == zig.Zig((sys.executable, "-m", "ziglang"), "ziglang 0.15")


def test_without_the_package_no_other_compiler_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(errors.ToolMissing) as caught:
        zig.find.__wrapped__()
    assert caught.value.remedy == "pip install ziglang"
