"""Runs programs of another Linux platform on this host: itself, or qemu's user-mode emulation.

What an emulated program computes is what the device computes (IEEE 754, the same instructions);
how long it takes says nothing.
"""

from __future__ import annotations

import platform as host
from pathlib import Path

from edge import errors, process
from edge.tools.ort_cmake import LINUX

# qemu's program and a processor without what it emulates wrongly or slowly, by platform.
QEMU = {
    "linux-x64": ("qemu-x86_64-static", "Haswell"),
    "linux-arm64": ("qemu-aarch64-static", "cortex-a72"),
    "linux-armhf": ("qemu-arm-static", "cortex-a15"),
}
# Processors that have what some targets require.
NEWER = {"asimdhp": "neoverse-n1"}
INSTALL = "apt install qemu-user-static and the platform's libstdc++6 cross package"
USR = Path("/usr")


def name(platform: str) -> str:
    """What runs programs of ``platform`` here: ``native``, qemu's program, or ``""``."""
    platform = platform.partition("+")[0]
    if platform not in LINUX or host.system() != "Linux":
        return ""
    _, machine = LINUX[platform]
    if host.machine() == machine:
        return "native"
    program, _ = QEMU[platform]
    there = (_libraries(platform) / "libstdc++.so.6").exists()
    return program if there and process.which(program) else ""


def words(platform: str, place: Path) -> list[str]:
    """What to put before a program of ``platform``; ``place`` is an empty folder to use.

    ``linux-arm64+asimdhp`` is a processor with that flag, as a target may require it; without,
    the program sees one of the platform's oldest that are common.

    The program sees a root there that has the C library and a ``/sys`` that says nothing: with
    the host's, ONNX Runtime's look at the processors ends it under qemu 7.2; empty lists of
    processors make it carry on without. Raises :class:`errors.ToolMissing` where nothing on
    this host runs it.
    """
    runs = name(platform)
    platform, _, flag = platform.partition("+")
    if runs == "native":
        return []
    program = process.which(runs) if runs else None
    if program is None:
        raise errors.ToolMissing(f"nothing on this host runs {platform}", remedy=INSTALL)
    cpus = place / "sys" / "devices" / "system" / "cpu"
    cpus.mkdir(parents=True)
    (cpus / "possible").touch()
    (cpus / "present").touch()
    for folder in ("lib", "lib64"):  # where x86-64 has its loader
        (place / folder).symlink_to(_libraries(platform))
    processor = NEWER.get(flag, QEMU[platform][1])
    return [str(program), "-cpu", processor, "-L", str(place)]


def _libraries(platform: str) -> Path:
    return USR / LINUX[platform][0] / "lib"
