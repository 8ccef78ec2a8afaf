"""The CMake files of Linux builds: what they say, and that CMake does what they mean."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from edge import process
from edge.tools import ort_cmake
from edge.tools.ort_cmake import LINUX, OPTIONS, TOOLCHAIN
from edge.tools.ort_source import dependencies
from tests.support import need

PINNED = dependencies("1.21.0")
SOURCE = "onnxruntime"


def files(platform: str = "linux-x64", *, pinned: bool = True, fast: bool = True) -> dict[str, str]:
    return ort_cmake.files(platform, SOURCE, PINNED if pinned else {}, fast=fast)


# --------------------------------------------------------------------------- what they say
@pytest.mark.parametrize("platform", LINUX)
@pytest.mark.parametrize("pinned", [True, False])
def test_no_path_of_any_machine(platform: str, pinned: bool) -> None:
    for text in files(platform, pinned=pinned).values():
        assert not re.search(r'["= (]/(?!/)', text)
        assert ".." not in text.replace("${CMAKE_SOURCE_DIR}/../../dependencies/", "")
        assert text.endswith("\n")


@pytest.mark.parametrize(("platform", "names"), LINUX.items())
def test_the_platforms_own_compilers(platform: str, names: tuple[str, str]) -> None:
    triple, processor = names
    text = files(platform)[TOOLCHAIN]
    assert f"set(CMAKE_C_COMPILER {triple}-gcc)\n" in text
    assert f"set(CMAKE_CXX_COMPILER {triple}-g++)\n" in text
    assert f"set(CMAKE_SYSTEM_PROCESSOR {processor})\n" in text
    assert "-z,noexecstack" in text


def test_every_pinned_dependency_has_its_place_and_nothing_else_is_looked_for() -> None:
    text = files()[TOOLCHAIN]
    for name in (*PINNED, "utf8_range"):
        place = f'"${{CMAKE_CURRENT_LIST_DIR}}/dependencies/{name}" CACHE PATH "")'
        assert f"set(FETCHCONTENT_SOURCE_DIR_{name.upper()} {place}" in text
    assert 'set(FETCHCONTENT_FULLY_DISCONNECTED ON CACHE BOOL "")' in text
    assert "FETCHCONTENT_TRY_FIND_PACKAGE_MODE NEVER" in text
    assert "onnxruntime_ENABLE_CPUINFO OFF" in text


def test_headers_alone_get_a_project_that_offers_their_target() -> None:
    made = {name.split("/")[1] for name in files() if name.endswith("/CMakeLists.txt")}
    assert made == {name for name, each in PINNED.items() if each.target} | {"utf8_range"}
    assert (
        "add_library(Eigen3::Eigen ALIAS eigen_headers)"
        in files()["dependencies/eigen/CMakeLists.txt"]
    )


def test_eigen_gets_what_the_release_calls() -> None:
    found = files()
    if PINNED["eigen"].version == "3.4.0":
        assert "scalar_max_op" in found["dependencies/eigen/eigen_nan_plugin.h"]
        assert 'EIGEN_ARRAYBASE_PLUGIN="eigen_nan_plugin.h"' in found[OPTIONS]
    newer = {
        "eigen": PINNED["eigen"].model_copy(update={"package": "debian:eigen3_5.0.1.orig.tar"})
    }
    assert "PLUGIN" not in ort_cmake.files("linux-x64", SOURCE, newer, fast=True)[OPTIONS]


def test_what_is_fetched_is_left_to_the_build() -> None:
    found = files(pinned=False)
    assert sorted(found) == [OPTIONS, TOOLCHAIN]
    assert "FETCHCONTENT" not in found[TOOLCHAIN]
    assert "CPUINFO" not in found[TOOLCHAIN]


def test_fast_kernels_are_a_matter_of_options_alone() -> None:
    fast, small = files(), files(fast=False)
    less = fast[OPTIONS].replace(ort_cmake.FAST, "").replace(ort_cmake.FAST_CAST, "")
    assert less == small[OPTIONS]
    assert "-UORT_MINIMAL_BUILD" in ort_cmake.FAST
    assert {name for name in fast if fast[name] != small[name]} == {OPTIONS}


# -------------------------------------------------------------------- what CMake makes of them
PROJECT = """\
cmake_minimum_required(VERSION 3.26)
project(onnxruntime CXX)
add_library(onnxruntime_mlas STATIC core/mlas.cc)
add_library(onnxruntime_providers STATIC core/providers.cc)
add_library(onnxruntime_common SHARED core/common.cc)
target_compile_definitions(onnxruntime_mlas PRIVATE ORT_MINIMAL_BUILD)
target_compile_definitions(onnxruntime_common PRIVATE ORT_MINIMAL_BUILD)
foreach(name IN ITEMS eigen nlohmann_json mp11 gsl date)
  string(TOUPPER ${name} upper)
  add_subdirectory(${FETCHCONTENT_SOURCE_DIR_${upper}} ${name})
endforeach()
target_link_libraries(onnxruntime_common PRIVATE Eigen3::Eigen nlohmann_json::nlohmann_json
  Boost::mp11 Microsoft.GSL::GSL date::date)
target_link_libraries(onnxruntime_providers PRIVATE Eigen3::Eigen)
find_package(Git)
message(STATUS "for ${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_CROSSCOMPILING}"
  " [${onnxruntime_CROSS_COMPILING}]")
message(STATUS "git [${GIT_EXECUTABLE}] protoc [${ONNX_CUSTOM_PROTOC_EXECUTABLE}]")
message(STATUS "cpuinfo ${onnxruntime_ENABLE_CPUINFO} pic ${CMAKE_POSITION_INDEPENDENT_CODE}")
"""
CODE = """\
#if defined(ORT_MINIMAL_BUILD)
#define WHAT "minimal"
#else
#define WHAT "whole"
#endif
extern "C" const char* NAME() { return "file:" __FILE__ " " WHAT; }
"""

EIGEN = """\
#define EIGEN_DEVICE_FUNC
namespace Eigen { namespace internal {
template <typename From, typename To, typename Enable = void> struct cast_impl;
} }
"""


@pytest.fixture
def laid_out(tmp_path: Path) -> Path:
    """A project named as ONNX Runtime's, where its sources would lie, with a protoc beside it."""
    source = tmp_path / "work" / SOURCE / "cmake"
    (source / "core").mkdir(parents=True)
    (source / "CMakeLists.txt").write_text(PROJECT)
    for name in ("mlas", "providers", "common"):
        code = CODE.replace("NAME", name)
        header = "#include <header.h>\n" if name == "common" else ""
        (source / "core" / f"{name}.cc").write_text(header + code)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "protoc").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "protoc").chmod(0o755)
    return tmp_path


def cmake(place: Path, platform: str) -> str:
    """Configure and build as build.py does; what CMake printed."""
    work = place / "work"
    for name, text in files(platform).items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    eigen = work / "dependencies" / "eigen"
    (eigen / "header.h").write_text("#warning system headers are quiet\n")
    (eigen / "Eigen").mkdir()
    (eigen / "Eigen" / "Core").write_text(EIGEN)
    folder = work / "build" / "MinSizeRel"
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(place / "bin"), str(need("ninja").parent), os.environ["PATH"]])
    words = [str(need("cmake")), str(work / SOURCE / "cmake"), "-G", "Ninja"]
    words += ["-DCMAKE_TOOLCHAIN_FILE=../../toolchain.cmake", "-DCMAKE_BUILD_TYPE=MinSizeRel"]
    words += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    env = {**os.environ, "PATH": path}
    said = process.run(words, timeout=120, cwd=folder, env=env).stdout
    process.run([need("cmake"), "--build", str(folder)], timeout=120, env=env)
    return said


@pytest.mark.process
@pytest.mark.parametrize(("platform", "names"), LINUX.items())
def test_cmake_builds_for_the_platform(
    laid_out: Path, platform: str, names: tuple[str, str]
) -> None:
    triple, processor = names
    compiler = need(f"{triple}-g++")
    said = cmake(laid_out, platform)
    native = os.uname().machine == processor
    assert f"for {processor} {'FALSE []' if native else 'TRUE [ON]'}\n" in said
    assert f"git [] protoc [{laid_out / 'bin' / 'protoc'}]\n" in said
    assert "cpuinfo OFF pic ON\n" in said
    commands = json.loads((laid_out / "work/build/MinSizeRel/compile_commands.json").read_text())
    assert {Path(each["command"].split()[0]).name for each in commands} == {compiler.name}
    by_name = {Path(each["file"]).stem: each["command"] for each in commands}
    assert by_name["mlas"].split()[-6:-4] == ["-O3", "-UORT_MINIMAL_BUILD"]
    assert by_name["providers"].index("-Os") < by_name["providers"].index("-O3")
    assert "eigen_bool_cast.h" in by_name["providers"]
    assert "-O3" not in by_name["common"]


@pytest.mark.process
def test_no_folder_stands_in_what_is_built(laid_out: Path) -> None:
    need("x86_64-linux-gnu-g++")
    cmake(laid_out, "linux-x64")
    folder = laid_out / "work" / "build" / "MinSizeRel"
    common = (folder / "libonnxruntime_common.so").read_bytes()
    mlas = (folder / "libonnxruntime_mlas.a").read_bytes()
    assert b"file:onnxruntime/cmake/core/common.cc minimal" in common
    assert b"file:onnxruntime/cmake/core/mlas.cc whole" in mlas
    for data in (common, mlas):
        assert str(laid_out).encode() not in data


@pytest.mark.process
def test_the_library_has_the_links_hardening(laid_out: Path) -> None:
    from edge.tools import elf

    need("x86_64-linux-gnu-g++")
    cmake(laid_out, "linux-x64")
    path = laid_out / "work" / "build" / "MinSizeRel" / "libonnxruntime_common.so"
    found = elf.read(path, path.name)
    assert not found.executable_stack
    assert found.build_id == ""
