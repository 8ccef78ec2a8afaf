"""The CMake files of a reduced build for Linux: tool chain, compile options, pinned dependencies.

``build.py`` knows no cross build for Linux (onnxruntime #20460), but CMake does: a tool chain file
names compilers, and, being read before everything else, also carries the settings that
``build.py`` has no flag for. All paths in it are relative to its own folder.

1. ``-z noexecstack``: an assembly file of MLAS without a GNU-stack note would make the stack of
   every process that loads the library executable (1.21.0, x86-64).
2. ``-ffile-prefix-map`` as a compile option and not in ``CMAKE_CXX_FLAGS``: those stand in the
   library (``OrtGetBuildInfoString``), and so would the folder that it was built in. Git is not
   asked either: it would answer for whatever repository lies around.
3. Position-independent code: static dependencies go into a shared library.
4. cpuinfo off: no pinned sources; the runtime then asks the operating system for processors.
5. Eigen 3.4.0 gets the methods that the release calls from ``eigen_nan_plugin.h``, through the
   hook that Eigen has for it.
6. ``FETCHCONTENT_TRY_FIND_PACKAGE_MODE NEVER``: nothing that the host happens to have is taken
   (Debian's abseil has another inline namespace, its static libraries no position-independent
   code).
7. Fast kernels: ``-O3`` for MLAS and the operators, as the full library has it, also where the
   rest is made small (with ``-Os`` everywhere, element-wise operators take up to ten times as
   long); bool to float as ``eigen_bool_cast.h`` has it; and MLAS without
   ``ORT_MINIMAL_BUILD``, which drops the choice of AVX-512 kernels, and nothing else, from
   ``mlas/lib/platform.cpp`` and ``convsym.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edge.tools.ort_source import DEPENDENCIES, Dependency

TOOLCHAIN = "toolchain.cmake"
OPTIONS = "compile_options.cmake"
# GNU triple and CMAKE_SYSTEM_PROCESSOR by platform.
LINUX: Mapping[str, tuple[str, str]] = {
    "linux-x64": ("x86_64-linux-gnu", "x86_64"),
    "linux-arm64": ("aarch64-linux-gnu", "aarch64"),
    "linux-armhf": ("arm-linux-gnueabihf", "armv7l"),
}
PLUGIN = Path(__file__).with_name("eigen_nan_plugin.h")
CAST = Path(__file__).with_name("eigen_bool_cast.h")
FAST = """\
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR}
  CALL target_compile_options onnxruntime_mlas PRIVATE -O3 -UORT_MINIMAL_BUILD)
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR}
  CALL target_compile_options onnxruntime_providers PRIVATE -O3)
"""
# CMAKE_SOURCE_DIR is the folder cmake of the sources, whenever this is evaluated.
FAST_CAST = f"""\
cmake_language(DEFER DIRECTORY ${{CMAKE_SOURCE_DIR}}
  CALL target_compile_options onnxruntime_providers PRIVATE
  "SHELL:-include ${{CMAKE_SOURCE_DIR}}/../../{DEPENDENCIES}/eigen/{CAST.name}")
"""
LINK = "-Wl,-z,noexecstack -Wl,-z,relro -Wl,-z,now -Wl,--build-id=none"


def files(
    platform: str, source: str, pinned: Mapping[str, Dependency], *, fast: bool
) -> dict[str, str]:
    """The files by name, for a Linux ``platform`` and sources in the folder ``source``."""
    options = _options(source) + (FAST if fast else "")
    found = {TOOLCHAIN: _toolchain(platform, pinned), OPTIONS: options}
    for name, each in pinned.items():
        if each.target:
            found[f"{DEPENDENCIES}/{name}/CMakeLists.txt"] = _headers(name, each.target)
    if _plugged(pinned):
        for header in (PLUGIN, CAST):
            name = f"{DEPENDENCIES}/eigen/{header.name}"
            found[name] = header.read_text(encoding="utf-8")
        found[OPTIONS] += f'add_compile_definitions(EIGEN_ARRAYBASE_PLUGIN="{PLUGIN.name}")\n'
        found[OPTIONS] += FAST_CAST if fast else ""
    if pinned:
        # Only its include folder is asked for, which a build without unit tests does not use.
        found[f"{DEPENDENCIES}/utf8_range/CMakeLists.txt"] = "\n"
    return found


def _plugged(pinned: Mapping[str, Dependency]) -> bool:
    return "eigen" in pinned and pinned["eigen"].version == "3.4.0"


def _toolchain(platform: str, pinned: Mapping[str, Dependency]) -> str:
    triple, processor = LINUX[platform]
    lines = [
        f"# A reduced ONNX Runtime for {platform}: what build.py has no flag for.",
        f"if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL {processor})",
        "  set(CMAKE_SYSTEM_NAME Linux)",
        f"  set(CMAKE_SYSTEM_PROCESSOR {processor})",
        '  set(onnxruntime_CROSS_COMPILING ON CACHE BOOL "")',
        "endif()",
    ]
    for language, compiler in (("C", "gcc"), ("CXX", "g++")):
        lines.append(f"set(CMAKE_{language}_COMPILER {triple}-{compiler})")
    lines += [f'set(CMAKE_{kind}_LINKER_FLAGS_INIT "{LINK}")' for kind in ("SHARED", "EXE")]
    lines += [
        'set(CMAKE_POSITION_INDEPENDENT_CODE ON CACHE BOOL "")',
        'set(CMAKE_DISABLE_FIND_PACKAGE_Git ON CACHE BOOL "")',
        f'set(CMAKE_PROJECT_onnxruntime_INCLUDE "${{CMAKE_CURRENT_LIST_DIR}}/{OPTIONS}")',
    ]
    return "\n".join([*lines, *_pinned(pinned)]) + "\n"


def _pinned(pinned: Mapping[str, Dependency]) -> list[str]:
    if not pinned:
        return []
    here = f"${{CMAKE_CURRENT_LIST_DIR}}/{DEPENDENCIES}"
    places = [
        f'set(FETCHCONTENT_SOURCE_DIR_{name.upper()} "{here}/{name}" CACHE PATH "")'
        for name in (*pinned, "utf8_range")
    ]
    return [
        'set(onnxruntime_ENABLE_CPUINFO OFF CACHE BOOL "")',
        'set(FETCHCONTENT_FULLY_DISCONNECTED ON CACHE BOOL "")',
        'set(FETCHCONTENT_TRY_FIND_PACKAGE_MODE NEVER CACHE STRING "")',
        "find_program(ONNX_CUSTOM_PROTOC_EXECUTABLE protoc REQUIRED)",
        f'set(safeint_SOURCE_DIR "{here}/safeint" CACHE PATH "")',
        *places,
    ]


def _options(source: str) -> str:
    maps = ((f"${{CMAKE_CURRENT_LIST_DIR}}/{source}", "onnxruntime"),
            (f"${{CMAKE_CURRENT_LIST_DIR}}/{DEPENDENCIES}", "dependencies"),
            ("${CMAKE_BINARY_DIR}", "build"))  # fmt: skip
    return "".join(
        f'add_compile_options("-ffile-prefix-map={folder}={name}")\n' for folder, name in maps
    )


def _headers(name: str, target: str) -> str:
    here = '"${CMAKE_CURRENT_LIST_DIR}"'
    return (
        f"add_library({name}_headers INTERFACE)\n"
        f"target_include_directories({name}_headers SYSTEM INTERFACE {here})\n"
        f"add_library({target} ALIAS {name}_headers)\n"
    )
