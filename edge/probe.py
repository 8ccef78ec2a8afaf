"""Facts about a device: what it is (:func:`probe`) and the state it is in (:func:`context`).

A probe is a piece of shell and a pure parser from its lines to a value. All probes of one call
run in one command on the device; each one's lines come behind a mark with a random word, so that
an odd answer of one probe is not taken for another's. A probe that finds nothing gives None, 0 or
nothing: devices differ too much for any fact to be required. Reads of /proc and /sys go below a
root that can be given, because virtual machines have neither frequency nor temperature to test.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge import errors
from edge.devices.base import Device, device_path

TIMEOUT = 60.0  # seconds; python3 alone takes some on a small board
MAX_LINES = 20_000  # lines of one answer that are read: 256 cores make 7,000 of cpuinfo
MAX_LINE = 4096  # characters of one line that are read

Lines = Sequence[str]

TOOLS = (
    "sha256sum", "shasum", "openssl", "tar", "setsid", "timeout", "python3", "taskset", "flock",
)  # fmt: skip


@dataclass(frozen=True)
class Probe:
    """``script`` is fixed POSIX shell: "$1" is the device's folder, "$2" the root of /proc, /sys.

    ``parse`` takes the lines that it printed, empty ones left out. Probes with the same script
    share its answer.
    """

    name: str
    script: str
    parse: Callable[[Lines], Any]


@dataclass(frozen=True)
class DeviceFacts:
    """What a device is. Sizes in bytes; None, 0 or empty where it does not say.

    ``libc`` is for example ``glibc 2.36``, ``musl 1.2.3`` or ``bionic``; ``python`` and
    ``onnxruntime`` are versions; ``tools`` are those of ``TOOLS`` that it has.
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
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """The state of a device at one moment, taken before and after a measurement.

    ``load`` is the load average over 1, 5 and 15 minutes. One governor and frequency (kHz) a
    core, in the order of cores. ``temperatures`` in degrees Celsius by sensor. ``throttled``
    are the bits of the Raspberry Pi's firmware, None elsewhere. ``pressure`` is the share of
    the last 10 s (percent) in which something waited for a CPU, None where it is not counted.
    """

    load: tuple[float, ...] = ()
    governors: tuple[str, ...] = ()
    frequencies_khz: tuple[int, ...] = ()
    limits_khz: tuple[int, ...] = ()
    temperatures: Mapping[str, float] = field(default_factory=dict)
    throttled: int | None = None
    pressure: float | None = None


def probe(device: Device, *, root: str = "") -> DeviceFacts:
    """What ``device`` is, in one command. ``root`` stands before /proc and /sys.

    Raises :class:`errors.RunFailed` when it has no usable shell.
    """
    return DeviceFacts(**_ask(device, FACTS, root))


def context(device: Device, *, root: str = "") -> Context:
    """The state ``device`` is in, in one command. ``root`` stands before /proc and /sys."""
    return Context(**_ask(device, CONTEXT, root))


def script(probes: Sequence[Probe]) -> str:
    """One script that runs ``probes`` one after the other; "$3" is the random word."""
    parts = [
        f'printf "\\n@@probe-%s {number}\\n" "$3"\n{{ {text}\n}} </dev/null 2>/dev/null'
        for number, text in enumerate(_scripts(probes))
    ]
    return "LC_ALL=C; export LC_ALL\n" + "\n".join(parts) + '\nprintf "\\n@@probe-%s end\\n" "$3"\n'


def read(text: str, probes: Sequence[Probe], word: str) -> dict[str, Any]:
    """The values in the answer ``text`` to :func:`script`, by the names of the probes.

    Raises :class:`errors.RunFailed` when the answer has no end.
    """
    answers: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(f"@@probe-{word} "):
            lines = answers.setdefault(line.partition(" ")[2], [])
        elif line.strip() and len(lines) < MAX_LINES:
            lines.append(line[:MAX_LINE].strip())
    if "end" not in answers:
        raise errors.RunFailed("the device did not answer all questions about itself")
    places = {one: str(number) for number, one in enumerate(_scripts(probes))}
    return {one.name: one.parse(answers.get(places[one.script], [])) for one in probes}


def _scripts(probes: Sequence[Probe]) -> list[str]:
    """The different scripts of ``probes``, in their order."""
    return list(dict.fromkeys(one.script for one in probes))


def _ask(device: Device, probes: Sequence[Probe], root: str) -> dict[str, Any]:
    word = secrets.token_hex(8)
    folder = device_path(device.settings.folder)
    argv = ["sh", "-c", script(probes), "sh", folder, root, word]
    return read(device.run(argv, timeout=TIMEOUT, check=False).stdout, probes, word)


def first_line(lines: Lines) -> str:
    """The first line, or nothing."""
    return lines[0] if lines else ""


def os_release(lines: Lines) -> str:
    """PRETTY_NAME of /etc/os-release; Android's release property is given as it is."""
    for line in lines:
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip("\"'")
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
    """The board's or CPU's name in /proc/cpuinfo; some ARM kernels give only part numbers."""
    values = _cpuinfo(lines)
    for key in ("Model", "model name", "Hardware", "uarch", "cpu model"):
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
    values = _cpuinfo(lines)
    for key in ("flags", "Features", "isa"):
        if key in values:
            return tuple(sorted(set(values[key].split())))
    return ()


def _cpuinfo(lines: Lines) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon and value.strip():
            values.setdefault(key.strip(), value.strip())
    return values


def memory(lines: Lines) -> int:
    """Bytes of MemTotal in /proc/meminfo."""
    for line in lines:
        if found := re.match(r"MemTotal:\s+([0-9]{1,15}) kB", line):
            return int(found[1]) * 1024
    return 0


def disk_free(lines: Lines) -> int | None:
    """Bytes available in the last line of ``df -kP``; None when it says nothing."""
    for line in reversed(lines):
        if found := re.search(r"\s([0-9]{1,18})\s+[0-9]{1,3}%\s+/", line):
            return int(found[1]) * 1024
    return None


def version(lines: Lines) -> str | None:
    """A version such as ``3.11.2``, or None."""
    for line in lines:
        if found := re.search(r"\b([0-9]+\.[0-9]+[0-9A-Za-z.+]*)", line):
            return found[1][:40]
    return None


def tools(lines: Lines) -> tuple[str, ...]:
    """Those of ``TOOLS`` that are named."""
    return tuple(tool for tool in TOOLS if tool in lines)


def load(lines: Lines) -> tuple[float, ...]:
    """The three averages of /proc/loadavg."""
    found = re.match(r"([0-9.]+) ([0-9.]+) ([0-9.]+) ", first_line(lines))
    values = [_number(text) for text in found.groups()] if found else []
    return tuple(value for value in values if value is not None)


def words(lines: Lines) -> tuple[str, ...]:
    """One word a core, as governors are, from lines of ``.../cpu3 word``."""
    return tuple(w for w in _by_core(lines) if re.fullmatch(r"[0-9A-Za-z_-]{1,40}", w))


def numbers(lines: Lines) -> tuple[int, ...]:
    """One whole number a core, as frequencies in kHz are, from lines of ``.../cpu3 number``."""
    return tuple(int(w) for w in _by_core(lines) if re.fullmatch(r"[0-9]{1,12}", w))


def _by_core(lines: Lines) -> list[str]:
    """The values of ``.../cpuN value`` by N: a shell lists cpu10 before cpu2."""
    found = [match for line in lines if (match := re.fullmatch(r".*/cpu([0-9]{1,5}) (.+)", line))]
    return [match[2] for match in sorted(found, key=lambda match: int(match[1]))]


def temperatures(lines: Lines) -> Mapping[str, float]:
    """Degrees Celsius by sensor, from lines of ``type millidegrees``.

    Two sensors of one type are numbered. Some drivers give whole degrees: a reading below 200
    is taken for that. What no sensor can read (-274000 of one that is off) is left out.
    """
    found: dict[str, float] = {}
    for line in lines:
        name, _, text = line.rpartition(" ")
        value = int(text) if re.fullmatch(r"-?[0-9]{1,7}", text) else None
        degrees = 0.0 if value is None else value / 1000 if abs(value) >= 200 else float(value)
        if value is None or not name or not -60 <= degrees <= 250:
            continue
        number = sum(1 for key in found if key.partition("#")[0] == name)
        key = f"{name}#{number + 1}" if number else name
        found[key] = degrees
    return found


def throttled(lines: Lines) -> int | None:
    """The bits of ``vcgencmd get_throttled``."""
    found = re.fullmatch(r"throttled=0x([0-9a-fA-F]{1,8})", first_line(lines))
    return int(found[1], 16) if found else None


def pressure(lines: Lines) -> float | None:
    """avg10 of the line ``some`` in /proc/pressure/cpu, percent."""
    for line in lines:
        if found := re.match(r"some avg10=([0-9.]+) ", line):
            return _number(found[1])
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# Changes $d to the nearest folder above it that exists.
NEAREST = """while [ ! -d "$d" ]; do
case $d in /*/*|[!/]*/*) d=${d%/*} ;; /*) d=/ ;; *) d=. ;; esac
done"""

_CPUINFO = 'cat "$2/proc/cpuinfo"\ngetconf _NPROCESSORS_ONLN || nproc'

FACTS = (
    Probe("os", "uname -s", first_line),
    Probe("os_release", "cat /etc/os-release\ngetprop ro.build.version.release", os_release),
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
    Probe("memory_bytes", 'cat "$2/proc/meminfo"', memory),
    # The folder may not be there yet: the nearest one above it is asked.
    Probe("disk_free_bytes", f'd=$1\n{NEAREST}\ndf -kP "$d" || df -k "$d"', disk_free),
    Probe("python", "python3 -V 2>&1", version),
    # The metadata only: importing onnxruntime takes seconds and may crash on an old CPU.
    Probe(
        "onnxruntime",
        'python3 -c "import importlib.metadata as m; print(m.version(\\"onnxruntime\\"))"',
        version,
    ),
    Probe(
        "tools",
        f'for t in {" ".join(TOOLS)}; do command -v "$t" >/dev/null && echo "$t"; done',
        tools,
    ),
)  # fmt: skip

_CPUFREQ = 'for f in "$2"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{}; do '
_CPUFREQ += 'echo "${{f%/cpufreq/*}} $(cat "$f")"; done'

CONTEXT = (
    Probe("load", 'cat "$2/proc/loadavg"', load),
    Probe("governors", _CPUFREQ.format("scaling_governor"), words),
    Probe("frequencies_khz", _CPUFREQ.format("scaling_cur_freq"), numbers),
    Probe("limits_khz", _CPUFREQ.format("scaling_max_freq"), numbers),
    Probe(
        "temperatures",
        'for z in "$2"/sys/class/thermal/thermal_zone*; do '
        'echo "$(cat "$z/type") $(cat "$z/temp")"; done',
        temperatures,
    ),
    Probe("throttled", "vcgencmd get_throttled", throttled),
    Probe("pressure", 'cat "$2/proc/pressure/cpu"', pressure),
)
