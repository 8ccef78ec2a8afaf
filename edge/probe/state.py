"""The state that a device is in: load, clocks, temperatures, throttling."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge.probe import gpu
from edge.probe.asking import Lines, Probe, first_line
from edge.probe.gpu import GpuState


@dataclass(frozen=True)
class Context:
    """The state of a device at one moment, taken before and after a measurement.

    ``load`` is the load average over 1, 5 and 15 minutes. One governor and frequency (kHz) a
    core, in the order of cores. ``temperatures`` in degrees Celsius by sensor. ``throttled``
    are the bits of the Raspberry Pi's firmware, None elsewhere. ``pressure`` is the share of
    the last 10 s (percent) in which something waited for a CPU, None where it is not counted.
    ``gpu_states``: one an NVIDIA GPU, in the order of ``DeviceFacts.gpus``.
    """

    load: tuple[float, ...] = ()
    governors: tuple[str, ...] = ()
    frequencies_khz: tuple[int, ...] = ()
    limits_khz: tuple[int, ...] = ()
    temperatures: Mapping[str, float] = field(default_factory=dict)
    throttled: int | None = None
    pressure: float | None = None
    gpu_states: tuple[GpuState, ...] = ()


def load(lines: Lines) -> tuple[float, ...]:
    """The three averages of /proc/loadavg, or of a Mac's ``vm.loadavg``."""
    found = re.match(r"(?:vm\.loadavg: \{ )?([0-9.]+) ([0-9.]+) ([0-9.]+) ", first_line(lines))
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


_CPUFREQ = 'for f in "$2"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{}; do '
_CPUFREQ += 'echo "${{f%/cpufreq/*}} $(cat "$f")"; done'

CONTEXT = (
    Probe("load", 'cat "$2/proc/loadavg" || sysctl vm.loadavg', load),
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
    Probe("gpu_states", gpu.GPU_STATES, gpu.states),
)
