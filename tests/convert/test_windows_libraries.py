"""What Windows' DLLs need of a device, and the recipe that asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import errors
from edge.bundle import BundleFile
from edge.convert.windows_libraries import library_needs, windows_needs
from edge.registry import Registry
from edge.store import File
from tests.convert import fake_job
from tests.pe_files import pe64

NEEDS = {
    "visual_cpp": ["vcruntime140.dll"],
    "windows": ["kernel32.dll"],
    "on_use": ["directml.dll", "d3d12.dll"],
}


def test_a_library_says_what_it_is_loaded_with(tmp_path: Path) -> None:
    library = tmp_path / "some.dll"
    names = ("KERNEL32.dll", "VCRUNTIME140.dll", "MSVCP140.dll", "api-ms-win-crt-math-l1-1-0.dll")
    library.write_bytes(pe64(names, ("DirectML.dll",)))
    facts = library_needs.function(tmp_path, library=library, arch="x86_64")
    assert facts == {
        "visual_cpp": ["msvcp140.dll", "vcruntime140.dll"],
        "windows": ["kernel32.dll"],
        "on_use": ["directml.dll"],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pe64(machine=0xAA64), "a DLL for aarch64, not a DLL for x86_64"),
        (pe64(flags=0x22), "a program for x86_64, not a DLL"),
    ],
)
def test_another_library_fails_the_step(tmp_path: Path, content: bytes, message: str) -> None:
    library = tmp_path / "some.dll"
    library.write_bytes(content)
    with pytest.raises(errors.StepFailed, match=message):
        library_needs.function(tmp_path, library=library, arch="x86_64")


def test_what_the_bundle_has_is_not_needed(tmp_path: Path) -> None:
    steps = fake_job.recorder(tmp_path, library_needs=NEEDS)
    made = fake_job.job(steps, fake_job.target("win-x64-directml"))
    paths = ("runtime/onnxruntime.dll", "runtime/DirectML.dll", "runtime/LICENSE")
    files = [BundleFile.of(path, File(Path(path), path, 1), "runtime") for path in paths]
    assert windows_needs(made, files) == {
        "visual_cpp": ["vcruntime140.dll"],
        "windows": ["kernel32.dll"],
        "on_use": ["d3d12.dll"],
    }
    assert steps.names == ["library_needs"] * 2


@pytest.mark.parametrize("name", ["win-x64", "win-x64-directml"])
def test_the_recipe_gives_dlls_and_both_runners(tmp_path: Path, name: str) -> None:
    made = fake_job.job(fake_job.recorder(tmp_path, library_needs=NEEDS), fake_job.target(name))
    bundle = Registry(Path("/nonexistent")).recipe("windows").build(made)
    paths = {file.path for file in bundle.files}
    assert {"runner/edge_runner.exe", "runner/edge_windows.c", "runner/edge_runner.py"} <= paths
    gpu = name == "win-x64-directml"
    assert ("runtime/DirectML.dll" in paths, "runner/options.tsv" in paths) == (gpu, gpu)
    assert bundle.runtime["optimization"] == ("basic" if gpu else "extended")
    assert bundle.runtime.get("online_optimization") == ("all" if gpu else None)
    assert bundle.runtime["needs"]["visual_cpp"] == ["vcruntime140.dll"]
    assert [text for text in bundle.unverified if "DirectML" in text] == list(bundle.unverified)
    assert bool(bundle.unverified) is gpu
