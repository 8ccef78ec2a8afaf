"""A native TensorRT plan: what it is made of, the commands, and carrying them out on a device.

trtexec's options as its ``--help`` says them (TensorRT 10, samples/common/sampleOptions.cpp). The
network is strongly typed: precisions are those of the ONNX model, int8 by its Q/DQ pairs. TF32 is
off. One script (``templates/tensorrt/build_plan.py``) does the work there, by trtexec or by the
Python package; a plan says the same commands to a person.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors, process
from edge.convert import profiles
from edge.convert.profiles import Profile
from edge.devices import Device
from edge.process import describe_exit
from edge.tools.remote_jobs import Site, site
from edge.tools.tensorrt_host import PROGRAM, Host

ENGINE = "engine.plan"
REQUEST = "request.json"
SCRIPT = "build_plan.py"
TIMEOUT = 4 * 3600.0  # seconds: large models at the highest optimization level
LIMIT = 8 << 30  # bytes of a plan
# The provider's names of options that a plan has too, and what they are.
OPTIONS = {
    "trt_builder_optimization_level": range(6),
    "trt_engine_hw_compatible": range(2),
    "trt_max_workspace_size": range(1, 1 << 40),
    "trt_sparsity_enable": range(2),
}
# Below the device's folder, where all builds of the machine share it; this is as seen from the
# work folder of a build. Its entries are keyed by layer and checked by TensorRT.
SHARED = "../../../tensorrt"


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is made of beside the model; ``options`` are of :data:`OPTIONS`.

    ``version`` is the TensorRT release that it is for.
    """

    profiles: tuple[Profile, ...]
    builder: str
    version: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, entries: list[dict[str, Any]], said: Mapping[str, Any]) -> PlanRequest:
        """From profiles and parameters as JSON; :class:`errors.ConfigError` for other options."""
        for name, value in said["options"].items():
            if name not in OPTIONS:
                raise errors.ConfigError(
                    f"tensorrt.options.{name}: a native plan has no such option",
                    remedy=errors.did_you_mean(name, list(OPTIONS)),
                )
            if not (value.isascii() and value.isdigit() and int(value) in OPTIONS[name]):
                raise errors.ConfigError(f"tensorrt.options.{name} cannot be {value!r}")
        found = profiles.from_json(entries)
        return cls(found, said["builder"], said["version"], dict(said["options"]))

    def to_json(self, program: str, model: str, timing_cache: str) -> dict[str, Any]:
        """What the script reads."""
        options = {name.removeprefix("trt_"): int(text) for name, text in self.options.items()}
        open_ones = [each.to_json() for each in self.profiles if each.dynamic]
        return {
            "builder": self.builder,
            "command": list(trtexec(self, program, model, timing_cache)),
            "model": model,
            "engine": ENGINE,
            "timing_cache": timing_cache,
            "profiles": open_ones,
            "options": options,
        }


def trtexec(request: PlanRequest, program: str, model: str, timing_cache: str) -> tuple[str, ...]:
    """The words that make the plan with trtexec."""
    shapes = profiles.strings(request.profiles)
    words = [program, f"--onnx={model}", f"--saveEngine={ENGINE}", "--stronglyTyped", "--noTF32"]
    words += [f"--{profiles.SHORT[point]}Shapes={text}" for point, text in shapes.items()]
    words += [_flag(name, value) for name, value in sorted(request.options.items())]
    words += [f"--timingCacheFile={timing_cache}", "--skipInference"]
    return tuple(word for word in words if word)


def _flag(name: str, value: str) -> str:
    flags = {
        "trt_builder_optimization_level": f"--builderOptimizationLevel={value}",
        "trt_engine_hw_compatible": "--hardwareCompatibilityLevel=ampere+" if value == "1" else "",
        "trt_max_workspace_size": f"--memPoolSize=workspace:{value}B",
        "trt_sparsity_enable": "--sparsity=enable" if value == "1" else "",
    }
    return flags[name]


def write(request: PlanRequest, script: Path, out: Path) -> list[str]:
    """The files of a plan that a person carries out, in ``out``; its commands as lines of sh.

    The model lies one folder up, as in a bundle.
    """
    model, cache = "../model.onnx", "timing.cache"
    said = request.to_json(PROGRAM, model, cache)
    (out / REQUEST).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    shutil.copyfile(script, out / SCRIPT)
    words = said["command"] if request.builder == "trtexec" else ["python3", SCRIPT, REQUEST]
    return ["cd plan", shlex.join(words), f"mv {ENGINE} .."]


# ------------------------------------------------------------------------- on a device
def build_plan(
    device: Device, model: Path, request: PlanRequest, host: Host, given: tuple[Path, Path, Path]
) -> Path:
    """Make the plan on a connected ``device``, which ``host`` describes; the plan, here.

    ``given``: the script, an empty folder for what comes, and the file for what is printed.
    Raises :class:`errors.ModelRefused` with the builder's first error, :class:`errors.StepFailed`
    when there is no plan, :class:`errors.DeviceUnreachable` when the connection does not come back.
    """
    script, scratch, output = given
    if device.settings.os == "windows":
        raise errors.ConfigError(
            f"{device.settings.name}: plans are made on Linux machines",
            remedy="make it by hand: build without --on, and follow plan/",
        )
    cache = f"{SHARED}/{_plain(host)}.timing"
    archive = _pack(model, script, request.to_json(host.program, "model.onnx", cache), scratch)
    with site(device, output, TIMEOUT) as place:
        place.send(archive)
        archive.unlink()
        python = host.program if request.builder == "python" else "python3"
        code = place.job([python, SCRIPT, REQUEST])
        if code != 0 or place.kinds([ENGINE]) != ["file"]:
            raise _failed(place, code)
        place.get(ENGINE, scratch / ENGINE, limit=LIMIT)
    return scratch / ENGINE


def _plain(host: Host) -> str:
    """A file name for one kind of GPU and one TensorRT."""
    text = f"{host.tensorrt}-{host.compute_capability}-{host.gpu}"
    return "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in text)[:120]


def _pack(model: Path, script: Path, said: Mapping[str, Any], scratch: Path) -> Path:
    """What the work folder holds, as one archive."""
    archive, request = scratch / "work.tar.gz", scratch / REQUEST
    request.write_text(json.dumps(said, indent=1, sort_keys=True), encoding="utf-8")
    with tarfile.open(archive, "w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as tar:
        for path, name in ((model, "model.onnx"), (script, SCRIPT), (request, REQUEST)):
            info = tar.gettarinfo(path, name)
            info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, "", "", 0o644
            with path.open("rb") as stream:
                tar.addfile(info, stream)
    request.unlink()
    return archive


def _failed(place: Site, code: int) -> errors.EdgeError:
    """The builder's own first error, or how the command ended."""
    text = place.last()
    reasons = [line.partition("[E] ")[2].strip() for line in text.splitlines() if "[E] " in line]
    if reasons:
        return errors.ModelRefused(
            f"TensorRT on {place.name} cannot build the model: {reasons[0][:300]}",
            remedy=f"the whole log is {place.output}",
        )
    ended = describe_exit(code) if code else "no plan"
    return errors.StepFailed(
        f"{SCRIPT} on {place.name} ended with {ended}:\n{process.tail(text)}",
        remedy=f"the whole log is {place.output}",
    )
