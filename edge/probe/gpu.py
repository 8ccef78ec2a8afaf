"""NVIDIA GPUs: what they are and the state they are in, as ``nvidia-smi`` tells.

Fields that a driver does not know end the whole query ('Field "compute_cap" is not a valid field
to query.', exit code 2), so each query has an older one behind it. A field without a value is
``[N/A]`` or ``[Not Supported]``. ``nvidia-smi`` waits without limit for a GPU that has fallen off
its bus, which is why it runs under ``timeout`` where there is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from edge.probe.asking import Lines, printable

MAX_GPUS = 64
MAX_NAME = 100  # characters of a GPU's name
MAX_TROUBLE = 200  # characters of a complaint
SMI_SECONDS = 15  # without persistence mode each GPU of a server takes one to wake up

# On WSL it lies outside a login's PATH.
_SMI = (
    "s=$(command -v nvidia-smi || command -v /usr/lib/wsl/lib/nvidia-smi) && {{\n"
    "t=; command -v timeout >/dev/null && t='timeout {seconds}'\n"
    'smi() {{ $t "$s" --query-gpu="$1" --format=csv,noheader,nounits 2>&1; }}\n'
    "smi {new}\n"
    "case $? in 0) ;; 124) echo nvidia-smi did not answer within {seconds} s ;; *) smi {old} ;;\n"
    "esac\n}}"
)
# A Jetson's driver belongs to its Linux for Tegra; nvidia-smi came with JetPack 6.
_JETSON = (
    'if [ -r "$2/etc/nv_tegra_release" ]; then\n'
    'echo "jetson $(tr -d \'\\000\' <"$2/proc/device-tree/model")"\n'
    "tr '\\000' '\\n' <\"$2/proc/device-tree/compatible\"\nfi"
)
# What is asked for, and of drivers that do not know all of that.
QUERY = ("name,driver_version,compute_cap,memory.total", "name,driver_version,memory.total")
_STATE = "clocks.sm,temperature.gpu,clocks_{}_reasons.active,utilization.gpu"
_COUNTERS = ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown")
STATE_QUERY = (
    ",".join([_STATE.format("event"), *(f"clocks_event_reasons_counters.{c}" for c in _COUNTERS)]),
    _STATE.format("throttle"),
)
GPUS = _SMI.format(new=QUERY[0], old=QUERY[1], seconds=SMI_SECONDS) + f"\n{_JETSON}"
GPU_STATES = _SMI.format(new=STATE_QUERY[0], old=STATE_QUERY[1], seconds=SMI_SECONDS)

# Compute capability by the chip in a Jetson's device tree (developer.nvidia.com/cuda-gpus and
# cuda-legacy-gpus); Thor is 11.0 since CUDA 13.0, and 10.1 before.
TEGRAS = {
    "nvidia,tegra210": "5.3",
    "nvidia,tegra186": "6.2",
    "nvidia,tegra194": "7.2",
    "nvidia,tegra234": "8.7",
    "nvidia,tegra264": "11.0",
}

_NONE = r"\[[^\]]*\]|N/A"
_LISTED = re.compile(
    rf"(?P<name>.+?), (?P<driver>[0-9]+(?:\.[0-9]+){{1,3}}|{_NONE})"
    rf"(?:, (?P<capability>[0-9]{{1,2}}\.[0-9]|{_NONE}))?, (?P<memory>[0-9]{{1,9}}|{_NONE})"
)
_COUNT = rf"(?:[0-9]{{1,18}}|{_NONE})"
_STATE_LINE = re.compile(
    rf"({_COUNT}), ({_COUNT}), (0x[0-9a-fA-F]{{1,16}}|{_NONE}), ({_COUNT})"
    rf"(?:, ({_COUNT}), ({_COUNT}), ({_COUNT}))?"
)


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU; empty or 0 where it does not say.

    ``driver`` is a version as 580.95.05 (on WSL that of Windows, empty on a Jetson),
    ``compute_capability`` as 8.6; ``memory_bytes`` is its own memory, which a Jetson's has not.
    """

    name: str
    driver: str = ""
    compute_capability: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True)
class GpuState:
    """The state of one GPU at one moment, None where it does not say.

    ``sm_mhz`` clock of the multiprocessors, ``temperature`` in degrees Celsius, ``utilization``
    percent of the last second or less. ``reasons`` are the bits of NVML's clocks event reasons
    (see ``edge.stats``). ``power_us`` and ``thermal_us`` count the microseconds for which the
    power limit and heat have kept the clocks down since the driver was loaded.
    """

    sm_mhz: int | None = None
    temperature: int | None = None
    reasons: int | None = None
    utilization: int | None = None
    power_us: int | None = None
    thermal_us: int | None = None


def gpus(lines: Lines) -> tuple[Gpu, ...]:
    """The GPUs that ``nvidia-smi`` lists, in its order (PCI bus); else that of a Jetson."""
    chip = next((TEGRAS[line] for line in lines if line in TEGRAS), "")
    listed = [match for line in lines if (match := _LISTED.fullmatch(line))]
    if listed:
        return tuple(_gpu(match, chip) for match in listed[:MAX_GPUS])
    boards = [line.removeprefix("jetson ") for line in lines if line.startswith("jetson ")]
    return tuple(Gpu(printable(board, MAX_NAME), "", chip) for board in boards[:1])


def _gpu(match: re.Match[str], chip: str) -> Gpu:
    driver, capability, memory = match["driver"], match["capability"] or "", match["memory"]
    return Gpu(
        printable(match["name"], MAX_NAME),
        driver if driver[0].isdigit() else "",
        capability if capability[:1].isdigit() else chip,
        (_number(memory) or 0) * 2**20,
    )


def trouble(lines: Lines) -> str:
    """What ``nvidia-smi`` said instead of listing a GPU; empty where it did not complain.

    For example that it "couldn't communicate with the NVIDIA driver", or that driver and library
    are of different versions, as they are between an update and the next start.
    """
    for line in lines:
        if line.startswith("jetson "):
            return ""
        if not _LISTED.fullmatch(line) and not line.startswith('Field "'):
            return printable(line, MAX_TROUBLE)
    return ""


def states(lines: Lines) -> tuple[GpuState, ...]:
    """The states of the GPUs, in the order of :func:`gpus`."""
    found = [match for line in lines if (match := _STATE_LINE.fullmatch(line))]
    return tuple(_state(match) for match in found[:MAX_GPUS])


def _state(match: re.Match[str]) -> GpuState:
    clock, temperature, reasons, utilization, power, *thermal = match.groups()
    heat = [number for text in thermal if (number := _number(text)) is not None]
    return GpuState(
        _number(clock),
        _number(temperature),
        int(reasons, 16) if reasons.startswith("0x") else None,
        _number(utilization),
        _number(power),
        sum(heat) if heat else None,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
