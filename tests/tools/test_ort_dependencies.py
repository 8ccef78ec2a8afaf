"""The pinned dependencies of a release: well formed, and all that its build asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from edge.tools import ort_source as sources
from edge.tools.ort_source import check_version

RELEASES = tomllib.loads(sources.TABLE.read_text())
ROWS = [(release, name) for release, rows in RELEASES.items() for name in rows]


@pytest.mark.parametrize(("release", "name"), ROWS)
def test_every_row_is_well_formed(release: str, name: str) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", release)
    row = sources.dependencies(release)[name]
    assert row.package.startswith("debian:pool/main/")
    assert row.member is None
    assert re.fullmatch(r"[0-9][0-9a-z.+-]+", row.version)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    for place in (row.root, *row.only):
        assert place
        assert ".." not in place
        assert not place.startswith("/")
    assert not row.target or re.fullmatch(r"[A-Za-z0-9_.]+::[A-Za-z0-9_]+", row.target)


def test_no_release_no_dependencies() -> None:
    assert dict(sources.dependencies("1.20.0")) == {}


# What onnxruntime's CMake files ask for, and a minimal build for a Linux CPU does not.
UNNEEDED = {
    "utf8_range": "an empty project (ort_cmake): only its include folder is asked for",
    "pytorch_cpuinfo": "onnxruntime_ENABLE_CPUINFO is off",
    "googletest": "no unit tests",
    "google_benchmark": "no benchmarks",
    "mimalloc": "onnxruntime_USE_MIMALLOC",
    "protoc_binary": "protoc is the host's",
    "dlpack": "Python and training",
    "pybind11_project": "Python",
    "cxxopts": "training",
    "tensorboard": "training",
    "dawn": "WebGPU",
    "extensions": "onnxruntime_USE_EXTENSIONS",
    "microsoft_wil": "Windows",
    "directx_headers": "Windows",
    **dict.fromkeys(("psimd", "fp16", "coremltools"), "Core ML"),
    **dict.fromkeys(("fxdiv", "pthreadpool", "kleidiai", "googlexnnpack"), "XNNPACK"),
    **dict.fromkeys(("cutlass", "cudnn_frontend", "onnx_tensorrt"), "CUDA"),
    "composable_kernel": "ROCm",
}
DECLARED = re.compile(r"fetchcontent_declare\(\s*([A-Za-z0-9_]+)", re.IGNORECASE)
# Our version and what deps.txt says, where the two are not spelt alike; and where they differ.
SPELT = {
    "protobuf": ("3.21.12", "21.12"),
    "re2": ("20240702", "2024-07-02"),
    "safeint": ("3.0.28a+dfsg-4", "3.0.28"),
    "flatbuffers": ("23.5.26+dfsg", "23.5.26"),
}
OTHERS = {
    "mp11": ("1.83.0-4.2", "1.82.0"),
    "date": ("3.0.3+ds", "3.0.1"),
    "eigen": ("3.4.0", "1d8b82b0740839c0de7f1242a3585e3390ff5f33"),
}
URLS = {"nlohmann_json": "json", "gsl": "microsoft_gsl"}


@pytest.mark.models
def test_the_table_has_all_that_a_minimal_build_asks_for(ort_source: Path) -> None:
    rows = set(RELEASES["1.21.0"])
    files = [
        *(ort_source / "cmake").rglob("*.cmake"),
        *(ort_source / "cmake").rglob("CMakeLists.txt"),
    ]
    asked = {
        name.lower()
        for path in files
        if path.name != "helper_functions.cmake"
        for name in DECLARED.findall(path.read_text(errors="replace"))
    }
    assert rows <= asked
    assert asked - rows == set(UNNEEDED)


@pytest.mark.models
def test_the_tables_versions_are_those_of_the_release(ort_source: Path) -> None:
    lines = (ort_source / "cmake" / "deps.txt").read_text().splitlines()
    address = dict(line.split(";")[:2] for line in lines if ";" in line and line[0] != "#")
    for name, row in sources.dependencies("1.21.0").items():
        plain = row.version.partition("-")[0]
        ours, theirs = {**SPELT, **OTHERS}.get(name, (row.version, plain))
        assert row.version == ours
        assert theirs in address[URLS.get(name, name)].rpartition("/")[2], name


@pytest.mark.models
def test_the_real_tree_is_whole(ort_archive: Path, ort_source: Path) -> None:
    check_version(ort_archive, "1.21.0")
    check_version(ort_source, "1.21.0")
    assert (ort_source / "tools" / "ci_build" / "build.py").is_file()
