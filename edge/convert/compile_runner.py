"""Compile the C runner for a target's CPU and C library."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from edge import errors, process
from edge.step import Facts, step
from edge.tools import elf, zig

# What targets call it: what zig calls it, with the oldest C library the binary runs on, and the
# ELF machine. 2.17 is what manylinux2014 stands on, 2.27 the first glibc for 64-bit RISC-V.
TRIPLES = {
    "x86_64-linux-gnu.2.17": ("x86_64-linux-gnu.2.17", "x86_64"),
    "aarch64-linux-gnu.2.17": ("aarch64-linux-gnu.2.17", "aarch64"),
    "arm-linux-gnueabihf": ("arm-linux-gnueabihf.2.17", "arm"),
    "arm-linux-gnueabihf.2.17": ("arm-linux-gnueabihf.2.17", "arm"),
    "riscv64-linux-gnu.2.27": ("riscv64-linux-gnu.2.27", "riscv64"),
}
MIN_BYTES, MAX_BYTES = 4_000, 64_000
TIMEOUT = 600.0  # the first build for a triple also makes its C library's stubs
# The user's own include folders have no say in what is made.
STRAY = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS")
FLAGS = (
    "-std=gnu11", "-Wall", "-Wextra", "-Werror",
    "-Os", "-Xclang", "-Oz",  # zig takes -Oz for -Os
    "-s", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections",
    "-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-Wl,--hash-style=gnu",
    "-Wl,--build-id=none", "-isystem", "include",
)  # fmt: skip


@step(version=1, tools=("ziglang",))
def compile_runner(out: Path, *, source: Path, header: Path, triple: str) -> Facts:
    """``out/edge_runner``: ``source`` compiled and stripped for ``triple``.

    ``header`` is onnxruntime_c_api.h, the only thing of ONNX Runtime that is needed to build.
    Facts: ``triple``, ``bytes``. Raises :class:`errors.UsageError` for an unknown triple and
    :class:`errors.StepFailed` with the compiler's last lines.
    """
    if triple not in TRIPLES:
        raise errors.UsageError(
            f"the runner cannot be compiled for {triple!r}",
            remedy=f"triples that can be: {', '.join(TRIPLES)}",
        )
    target, machine = TRIPLES[triple]
    binary = out / "edge_runner"
    # Relative names in a folder of its own: the paths of this machine never reach the binary.
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        place = Path(folder)
        (place / "include").mkdir()
        (place / "include" / "onnxruntime_c_api.h").write_bytes(header.read_bytes())
        (place / "edge_runner.c").write_bytes(source.read_bytes())
        _compile(place, target)
        binary.write_bytes((place / "edge_runner").read_bytes())
    binary.chmod(0o755)
    size = _check(binary, machine)
    return {"triple": triple, "bytes": size}


def _compile(place: Path, target: str) -> None:
    words = [*zig.find().argv, "cc", "-target", target, *FLAGS]
    words += ["edge_runner.c", "-o", "edge_runner", "-ldl"]
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
    with binary.open("rb") as file:
        head = file.read(elf.HEADER_BYTES)
    try:
        made = elf.machine(head, binary.name)
    except errors.UsageError as error:  # what the compiler made is no mistake of the user
        raise errors.StepFailed(error.message) from error
    if made != machine or not MIN_BYTES <= size <= MAX_BYTES:
        raise errors.StepFailed(
            f"the compiled runner is {size} bytes for {made}, "
            f"not {MIN_BYTES} to {MAX_BYTES} bytes for {machine}"
        )
    return size
