from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from edge import errors
from edge.convert import compile_runner
from edge.tools import elf, zig
from tests.elf_files import elf64

SOURCE = Path(__file__).parents[2] / "templates" / "runner" / "edge_runner.c"


def compile_to(out: Path, header: Path, triple: str, source: Path = SOURCE) -> int:
    out.mkdir()
    facts = compile_runner.compile_runner.function(out, source=source, header=header, triple=triple)
    assert facts is not None
    assert facts["triple"] == triple
    return int(facts["bytes"])


@pytest.mark.process
@pytest.mark.parametrize("triple", compile_runner.TRIPLES)
def test_every_triple_gives_a_small_binary_for_its_machine(
    tmp_path: Path, ort_header: Path, triple: str
) -> None:
    size = compile_to(tmp_path / "out", ort_header, triple)
    binary = tmp_path / "out" / "edge_runner"
    assert size == binary.stat().st_size < 20_000
    machine = elf.machine(binary.read_bytes()[: elf.HEADER_BYTES], triple)
    assert machine == compile_runner.TRIPLES[triple][1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["edge_runner"]


@pytest.mark.process
@pytest.mark.parametrize("triple", ["x86_64-linux-gnu.2.17", "arm-linux-gnueabihf"])
def test_an_old_c_library_is_enough(tmp_path: Path, ort_header: Path, triple: str) -> None:
    compile_to(tmp_path / "out", ort_header, triple)
    content = (tmp_path / "out" / "edge_runner").read_bytes()
    needed = {int(minor) for minor in re.findall(rb"GLIBC_2\.([0-9]+)", content)}
    assert needed
    assert max(needed) <= 17


@pytest.mark.process
def test_two_folders_and_caches_give_the_same_bytes_and_no_path(
    tmp_path: Path, ort_header: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for name in ("one", "a much longer place"):
        place = tmp_path / name
        place.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place))
        monkeypatch.chdir(place)
        compile_to(place / "out", ort_header, "aarch64-linux-gnu.2.17")
        made.append((place / "out" / "edge_runner").read_bytes())
        assert [path.name for path in place.iterdir()] == ["out"]  # no cache is left
    assert made[0] == made[1]
    assert b"edge-compile" not in made[0]
    assert str(tmp_path).encode() not in made[0]


@pytest.mark.process
def test_the_compilers_words_are_in_the_error(tmp_path: Path, ort_header: Path) -> None:
    source = tmp_path / "broken.c"
    source.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(errors.StepFailed, match="undeclared identifier 'nothing'"):
        compile_to(tmp_path / "out", ort_header, "x86_64-linux-gnu.2.17", source)


def test_an_unknown_triple_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="'x86_64-windows-gnu'") as caught:
        compile_to(tmp_path / "out", Path("none"), "x86_64-windows-gnu")
    assert "riscv64-linux-gnu.2.27" in caught.value.remedy


def test_a_binary_for_another_machine_fails_the_step(tmp_path: Path) -> None:
    binary = tmp_path / "edge_runner"
    binary.write_bytes(elf64([], 62) + bytes(10_000))
    assert compile_runner._check(binary, "x86_64") == 10_064
    with pytest.raises(errors.StepFailed, match="for x86_64, not 4000 to 64000 bytes for arm"):
        compile_runner._check(binary, "arm")


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
