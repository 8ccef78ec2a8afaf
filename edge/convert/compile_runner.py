"""Compile the C runner for a target's CPU, system and C library, and for its runtime."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from edge import errors, process
from edge.step import Facts, step
from edge.tools import elf, pe, zig

# What targets call it: what zig calls it, with the oldest C library the binary runs on, and the
# machine that its header names. 2.17 is what manylinux2014 stands on, 2.27 the first glibc for
# 64-bit RISC-V. MinGW-w64 and Windows' own C library (UCRT) come with zig.
TRIPLES = {
    "x86_64-linux-gnu.2.17": ("x86_64-linux-gnu.2.17", "x86_64"),
    "aarch64-linux-gnu.2.17": ("aarch64-linux-gnu.2.17", "aarch64"),
    "arm-linux-gnueabihf": ("arm-linux-gnueabihf.2.17", "arm"),
    "arm-linux-gnueabihf.2.17": ("arm-linux-gnueabihf.2.17", "arm"),
    "riscv64-linux-gnu.2.27": ("riscv64-linux-gnu.2.27", "riscv64"),
    "x86_64-windows-gnu": ("x86_64-windows-gnu", "x86_64"),
}
CORE = ("edge_runner", "edge_arguments", "edge_bundle", "edge_lines", "edge_outputs")
HEADER = "edge_runner.h"
MIN_BYTES, MAX_BYTES = 4_000, 64_000
MAX_PE_BYTES = 128_000  # MinGW-w64's start-up code and its printf are 60,000
TIMEOUT = 600.0  # the first build for a triple also makes its C library's stubs
# The user's own include folders have no say in what is made.
STRAY = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS")
FLAGS = (
    "-std=gnu11", "-Wall", "-Wextra", "-Werror",
    "-Os", "-Xclang", "-Oz",  # zig takes -Oz for -Os
    "-s", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-fvisibility=hidden",
    "-isystem", "include",
)  # fmt: skip
LINUX_FLAGS = (
    "-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-Wl,--hash-style=gnu",
    "-Wl,--build-id=none", "-ldl",
)  # fmt: skip
# wmain is the entry: arguments in UTF-16. Windows' exceptions need the unwind tables.
WINDOWS_FLAGS = ("-municode",)
# What an OpenVINO wheel has its C API's headers in, and more than enough of them (19, 150 kB).
OPENVINO_HEADERS = "openvino/include/openvino/c/"
MAX_HEADERS, MAX_HEADER_BYTES = 200, 1 << 20


@step(version=2, tools=("ziglang",))
def compile_runner(
    out: Path, *, source: Path, header: Path, triple: str, backend: str = "onnxruntime"
) -> Facts:
    """``out/edge_runner`` (Windows: ``.exe``): compiled and stripped for ``triple``.

    ``source`` is edge_runner.c, with the files of :func:`sources` beside it. ``header`` is
    onnxruntime_c_api.h, or for OpenVINO the very release's wheel, which carries the headers of its
    C API. Nothing else of the runtime is needed to build. Facts: ``triple``, ``bytes``. Raises
    :class:`errors.UsageError` for an unknown triple and :class:`errors.StepFailed` with the
    compiler's last lines.
    """
    if triple not in TRIPLES:
        raise errors.UsageError(
            f"the runner cannot be compiled for {triple!r}",
            remedy=f"triples that can be: {', '.join(TRIPLES)}",
        )
    target, machine = TRIPLES[triple]
    binary = out / binary_name(triple)
    # Relative names in a folder of its own: the paths of this machine never reach the binary.
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        place = Path(folder)
        _lay_headers(place / "include", header, backend)
        names = sources(triple, backend)
        for name in names:
            (place / name).write_bytes((source.parent / name).read_bytes())
        _compile(place, target, [name for name in names if name.endswith(".c")])
        binary.write_bytes((place / "edge_runner").read_bytes())
    binary.chmod(0o755)
    size = _check(binary, machine)
    return {"triple": triple, "bytes": size}


def binary_name(triple: str) -> str:
    """What the runner is called on the triple's system."""
    return "edge_runner.exe" if _windows(triple) else "edge_runner"


def sources(triple: str, backend: str) -> tuple[str, ...]:
    """Names of the files that the runner of a triple and a backend is made of, sorted."""
    system = "edge_windows" if _windows(triple) else "edge_posix"
    return tuple(sorted([*(f"{name}.c" for name in (*CORE, system, f"edge_{backend}")), HEADER]))


def _windows(triple: str) -> bool:
    return "-windows-" in triple


def _lay_headers(include: Path, header: Path, backend: str) -> None:
    include.mkdir()
    if backend == "onnxruntime":
        (include / "onnxruntime_c_api.h").write_bytes(header.read_bytes())
        return
    for name, content in _wheel_headers(header):
        path = include / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _wheel_headers(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """The headers of OpenVINO's C API, by the names that they are included by."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = [entry for entry in archive.infolist() if _is_header(entry)]
            for entry in inside[:MAX_HEADERS]:
                name = entry.filename.removeprefix("openvino/include/")
                yield name, archive.read(entry)
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, zlib.error) as error:
        raise errors.StepFailed(f"{wheel.name} is no wheel that can be read: {error}") from error
    if not inside:
        raise errors.StepFailed(f"{wheel.name} is no wheel of OpenVINO: no {OPENVINO_HEADERS}")


def _is_header(entry: zipfile.ZipInfo) -> bool:
    name = entry.filename
    plain = not {"", ".", ".."} & set(name.split("/")) and "\\" not in name
    fits = entry.file_size <= MAX_HEADER_BYTES
    return plain and fits and name.startswith(OPENVINO_HEADERS) and name.endswith(".h")


def _compile(place: Path, target: str, files: list[str]) -> None:
    words = [*zig.find().argv, "cc", "-target", target, *FLAGS, *files, "-o", "edge_runner"]
    words += WINDOWS_FLAGS if _windows(target) else LINUX_FLAGS
    # Half-made objects stay in the temporary folder; only the C library's stubs are kept, in
    # zig's usual place for the whole user.
    environment = {name: value for name, value in os.environ.items() if name not in STRAY}
    environment["ZIG_LOCAL_CACHE_DIR"] = str(place / "cache")
    done = process.run(words, timeout=TIMEOUT, cwd=place, env=environment, check=False)
    if done.returncode != 0:
        raise errors.StepFailed(
            f"the C runner did not compile for {target} "
            f"({process.describe_exit(done.returncode)}):\n{done.tail()}"
        )


def _check(binary: Path, machine: str) -> int:
    size = binary.stat().st_size
    windows = binary.suffix == ".exe"
    most = MAX_PE_BYTES if windows else MAX_BYTES
    with binary.open("rb") as file:
        head = file.read(pe.HEADER_BYTES if windows else elf.HEADER_BYTES)
    try:
        made = (pe.machine if windows else elf.machine)(head, binary.name)
    except errors.UsageError as error:  # what the compiler made is no mistake of the user
        raise errors.StepFailed(error.message) from error
    if made != machine or not MIN_BYTES <= size <= most:
        raise errors.StepFailed(
            f"the compiled runner is {size} bytes for {made}, "
            f"not {MIN_BYTES} to {most} bytes for {machine}"
        )
    return size
