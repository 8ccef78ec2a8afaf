"""A native TensorRT plan as steps: the plan of a plan for a person, and one made on a device."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.devices import open_device
from edge.step import Facts, step
from edge.tools import remote_build
from edge.tools import tensorrt_plan as plans
from edge.tools.tensorrt_host import Host

PLANNED = "the engine: build with --on a machine with the GPU, or run plan/commands.txt there"
COMMANDS = "commands.txt"
# Plans that are made hardware-compatible run on Ampere and newer (AMPERE_PLUS).
AMPERE = "8.0"


@step(version=1, isolated=False)
def plan_files(out: Path, *, script: Path, profiles: Path, request: dict[str, Any]) -> Facts:
    """``build_plan.py``, ``request.json`` and ``commands.txt``: how a person makes the plan.

    ``profiles`` is the file of ``tensorrt_profiles``, ``request`` as ``PlanRequest.of`` takes it.
    Facts: ``commands``, lines of sh that are run in the bundle's folder.
    """
    commands = plans.write(_request(profiles, request), script, out)
    (out / COMMANDS).write_text("\n".join(commands) + "\n", encoding="utf-8")
    return {"commands": commands}


@step(version=1, timeout=plans.TIMEOUT + 600, aside=("where",))
def tensorrt_plan(
    out: Path,
    *,
    model: Path,
    script: Path,
    profiles: Path,
    request: dict[str, Any],
    where: dict[str, Any],
) -> Facts:
    """``engine.plan``, made on the device ``where["device"]`` (``remote_build.to_json``).

    ``request["host"]`` (``Host.versions``) is what the device said of GPU and TensorRT: it is in
    the key, so that a plan is never taken for another GPU or release. ``where["log"]`` is a file
    for what is printed, ``where["program"]`` trtexec's or Python's place there. Facts: ``host``.
    """
    host = request["host"]
    said = Host(**host, program=where["program"])
    with (
        tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder,
        open_device(remote_build.from_json(where["device"])) as device,
    ):
        given = (script, Path(folder), Path(where["log"]))
        made = plans.build_plan(device, model, _request(profiles, request), said, given)
        shutil.move(made, out / plans.ENGINE)
    return {"host": host}


def gpus(host: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """What a plan that was made on ``host`` requires of the GPU that it runs on."""
    if options.get("trt_engine_hw_compatible") == "1":
        return {"compute_capability": AMPERE}
    return {"compute_capabilities": host["compute_capability"]}


def _request(profiles: Path, request: dict[str, Any]) -> plans.PlanRequest:
    return plans.PlanRequest.of(json.loads(profiles.read_text(encoding="utf-8")), request)
