"""What a device is: system, CPU, memory, disk, and what it can load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from edge.probe import gpu, software
from edge.probe.asking import Lines, Probe, first_line
from edge.probe.gpu import Gpu

TOOLS = (
    "sha256sum", "shasum", "openssl", "tar", "setsid", "timeout", "python3", "taskset", "flock",
)  # fmt: skip
BRAND = "machdep.cpu.brand_string"


@dataclass(frozen=True)
class DeviceFacts:
    """What a device is. Sizes in bytes; None, 0 or empty where it does not say.

    ``libc`` is for example ``glibc 2.36``, ``musl 1.2.3`` or ``bionic``; ``tools`` are those of
    ``TOOLS`` that it has. ``python``, ``onnxruntime`` and ``packages`` (name to version) are of
    the Python that runs bundles' runners there, ``python_libraries`` lie in that Python's
    packages, ``libraries`` where the loader looks. ``gpu_trouble`` is what the driver's tool said
    instead of listing the GPUs.
    """

    os: str = ""
    os_release: str = ""
    kernel: str = ""
    arch: str = ""
    libc: str = ""
    cpu_model: str = ""
    cores: int = 0
    cpu_flags: tuple[str, ...] = ()
    memory_bytes: int = 0
    disk_free_bytes: int | None = None
    python: str | None = None
    onnxruntime: str | None = None
    packages: Mapping[str, str] | None = None
    python_libraries: tuple[str, ...] = ()
    libraries: tuple[str, ...] | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_trouble: str = ""
    tools: tuple[str, ...] = ()


def os_release(lines: Lines) -> str:
    """PRETTY_NAME of /etc/os-release; Android's release property as it is; what sw_vers says."""
    for line in lines:
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
    mac = _by_colon(lines)
    if "ProductVersion" in mac:
        return f"{mac.get('ProductName', 'macOS')} {mac['ProductVersion']}"
    android = [line for line in lines if re.fullmatch(r"[0-9.]+", line)]
    return f"Android {android[0]}" if android else ""


def libc(lines: Lines) -> str:
    """Name and version, from ``getconf GNU_LIBC_VERSION``, ``ldd --version`` or file names."""
    text = "\n".join(lines)
    for pattern, name in (
        (r"^glibc ([0-9.]+)", "glibc"),
        (r"^ldd \(.*\) ([0-9]+\.[0-9]+)", "glibc"),
        (r"musl[^\n]*\nVersion ([0-9.]+)", "musl"),
    ):
        if found := re.search(pattern, text, re.MULTILINE):
            return f"{name} {found[1]}"
    names = (("bionic", "linker"), ("musl", "ld-musl"))
    return next((name for name, mark in names if mark in text), "")


def cpu_model(lines: Lines) -> str:
    """The board's or CPU's name in /proc/cpuinfo; some ARM kernels give only part numbers.

    On a Mac the kernel's ``machdep.cpu.brand_string``.
    """
    values = _by_colon(lines)
    for key in ("Model", "model name", "Hardware", "uarch", "cpu model", BRAND):
        if key in values:
            return values[key]
    part = f"{values.get('CPU implementer', '')} {values.get('CPU part', '')}".strip()
    return f"ARM {part}" if part else ""


def cores(lines: Lines) -> int:
    """How many CPUs /proc/cpuinfo lists, ``getconf`` or ``nproc`` where it lists none."""
    count = sum(1 for line in lines if re.match(r"processor\s*:", line))
    numbers = [int(line) for line in lines if re.fullmatch(r"[0-9]{1,5}", line)]
    return count or next(iter(numbers), 0)


def cpu_flags(lines: Lines) -> tuple[str, ...]:
    """The flags (x86) or features (ARM) or ISA (RISC-V) of the first CPU, sorted."""
    values = _by_colon(lines)
    for key in ("flags", "Features", "isa"):
        if key in values:
            return tuple(sorted(set(values[key].split())))
    return ()


def _by_colon(lines: Lines) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and value.strip():
            values.setdefault(key.strip(), value.strip())
    return values


def memory(lines: Lines) -> int:
    """Bytes of MemTotal in /proc/meminfo, or of a Mac's ``hw.memsize``."""
    for line in lines:
        if found := re.match(r"hw\.memsize: ([0-9]{1,15})$", line):
            return int(found[1])
        if found := re.match(r"MemTotal:\s+([0-9]{1,15}) kB", line):
            return int(found[1]) * 1024
    return 0


def disk_free(lines: Lines) -> int | None:
    """Bytes available in the last line of ``df -kP``; None when it says nothing."""
    for line in reversed(lines):
        if found := re.search(r"\s([0-9]{1,18})\s+[0-9]{1,3}%\s+/", line):
            return int(found[1]) * 1024
    return None


def tools(lines: Lines) -> tuple[str, ...]:
    """Those of ``TOOLS`` that are named."""
    return tuple(tool for tool in TOOLS if tool in lines)


# Changes $d to the nearest folder above it that exists.
NEAREST = """while [ ! -d "$d" ]; do
case $d in /*/*|[!/]*/*) d=${d%/*} ;; /*) d=/ ;; *) d=. ;; esac
done"""

# Macs have no /proc; their kernel is asked by name.
_CPUINFO = f'cat "$2/proc/cpuinfo" || sysctl {BRAND}\ngetconf _NPROCESSORS_ONLN || nproc'

FACTS = (
    Probe("os", "uname -s", first_line),
    Probe(
        "os_release",
        "cat /etc/os-release || sw_vers\ngetprop ro.build.version.release",
        os_release,
    ),
    Probe("kernel", "uname -r", first_line),
    Probe("arch", "uname -m", first_line),
    # musl's ldd prints its version to standard error and fails.
    Probe(
        "libc",
        "getconf GNU_LIBC_VERSION || ldd --version 2>&1\nls /lib/ld-musl-* /system/bin/linker*",
        libc,
    ),
    Probe("cpu_model", _CPUINFO, cpu_model),
    Probe("cores", _CPUINFO, cores),
    Probe("cpu_flags", _CPUINFO, cpu_flags),
    Probe("memory_bytes", 'cat "$2/proc/meminfo" || sysctl hw.memsize', memory),
    # The folder may not be there yet: the nearest one above it is asked.
    Probe("disk_free_bytes", f'd=$1\n{NEAREST}\ndf -kP "$d" || df -k "$d"', disk_free),
    Probe("python", software.PYTHON, software.python),
    Probe("onnxruntime", software.PYTHON, software.onnxruntime),
    Probe("packages", software.PYTHON, software.packages),
    Probe("python_libraries", software.PYTHON, software.python_libraries),
    Probe("libraries", software.LIBRARIES, software.libraries),
    Probe("gpus", gpu.GPUS, gpu.gpus),
    Probe("gpu_trouble", gpu.GPUS, gpu.trouble),
    Probe(
        "tools",
        f'for t in {" ".join(TOOLS)}; do command -v "$t" >/dev/null && echo "$t"; done',
        tools,
    ),
)  # fmt: skip
