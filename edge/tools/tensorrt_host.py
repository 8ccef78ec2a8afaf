"""A machine that makes native TensorRT plans: its GPU, its TensorRT, and what it lacks.

The machine is asked by commands (``Ask``). A plan runs on the GPU model that it was made on (or,
hardware-compatible, on others of its architecture) and under the TensorRT that made it, so all of
that goes into the key of what is made there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from edge.tools.ort_toolchain import Ask

PROGRAM = "trtexec"
# Debian's and NVIDIA's packages put it outside the PATH.
PLACES = (PROGRAM, "/usr/src/tensorrt/bin/trtexec", "/usr/local/tensorrt/bin/trtexec")
GPU = ("nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader")
PYTHON = "import tensorrt; print('tensorrt', tensorrt.__version__)"
_GPU = re.compile(r"([ -~]{1,100}?), ([0-9]{1,2}\.[0-9]), ([0-9]{1,5}(?:\.[0-9]{1,5}){1,3})")
# The first line of trtexec: "&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec".
_HEADER = re.compile(r"\[TensorRT v([0-9]{4,6})\]")
_MODULE = re.compile(r"tensorrt ([0-9]{1,3}(?:\.[0-9]{1,5}){1,3})\b")


@dataclass(frozen=True)
class Host:
    """What the machine said; empty for what it has not. ``program`` is trtexec's place there."""

    gpu: str = ""
    compute_capability: str = ""
    driver: str = ""
    tensorrt: str = ""
    program: str = ""

    def versions(self) -> dict[str, str]:
        """What a plan's content depends on, for its key: not the driver, nor trtexec's place."""
        aside = ("driver", "program")
        return {key: value for key, value in asdict(self).items() if key not in aside}


def survey(ask: Ask, builder: str, python: str = "python3") -> Host:
    """The machine's first GPU, and the TensorRT that ``builder`` (trtexec, python) uses there."""
    line = (ask(GPU) or "").partition("\n")[0].strip()
    gpu = _GPU.fullmatch(line)
    name, capability, driver = gpu.groups() if gpu else ("", "", "")
    if builder == "python":
        found = _MODULE.search(ask([python, "-c", PYTHON]) or "")
        return Host(name, capability, driver, found[1] if found else "", python)
    for place in PLACES:
        header = _HEADER.search(ask([place, "--help"]) or "")
        if header:
            return Host(name, capability, driver, release(header[1]), place)
    return Host(name, capability, driver)


def release(number: str) -> str:
    """A release from the number in trtexec's header: 101601 is 10.16.1, 8601 is 8.6.1.

    Up to TensorRT 9 it is major * 1000 + minor * 100 + patch, since 10 major * 10000.
    """
    width = 4 if len(number) > 4 else 3
    return ".".join(str(int(part)) for part in (number[:-width], number[-width:-2], number[-2:]))


def missing(
    host: Host, builder: str, version: str, capabilities: Sequence[str]
) -> Mapping[str, str]:
    """What is lacking, and how to get it: for TensorRT ``version``, for these capabilities."""
    lacks = {}
    if not host.gpu:
        lacks["an NVIDIA GPU (nvidia-smi)"] = "install NVIDIA's driver, or take another machine"
    elif capabilities and host.compute_capability not in capabilities:
        lacks[f"a GPU of compute capability {' or '.join(capabilities)}"] = (
            f"it has {host.gpu} ({host.compute_capability}): take another machine, or change "
            "tensorrt.compute_capabilities"
        )
    wanted = ".".join(version.split(".")[:3])
    if not host.tensorrt:
        what = "the Python package tensorrt" if builder == "python" else PROGRAM
        lacks[f"{what} {wanted}"] = f"install TensorRT {version}"
    elif ".".join(host.tensorrt.split(".")[:3]) != wanted:
        lacks[f"TensorRT {wanted}"] = (
            f"it has {host.tensorrt}, and a plan loads under the very release that made it: "
            f"install {version}, or set runtime.version of the target"
        )
    return lacks
