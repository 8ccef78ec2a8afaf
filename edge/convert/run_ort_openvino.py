"""Run an ONNX file on the golden inputs by ONNX Runtime's OpenVINO provider, and nowhere else.

For an environment of its own: ``onnxruntime-openvino`` is a second ``onnxruntime``. What is
imported at the top of this file must be there as well (Python's library, numpy, onnx).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edge import errors, placement, samples
from edge.convert import openvino_library as ov
from edge.convert import run_model
from edge.step import Facts, step

if TYPE_CHECKING:
    import onnxruntime as ort

PROVIDER = "OpenVINOExecutionProvider"
PACKAGE = "onnxruntime-openvino"


@step(version=1, tools=(PACKAGE, "numpy"), timeout=1800)
def run_ort_openvino(
    out: Path, *, model: Path, golden: Path, options: dict[str, str], release: str
) -> Facts:
    """The model's outputs, in the samples' form, by OpenVINO alone.

    ``golden`` is the index file of the golden samples, ``options`` are the provider's. One
    thread. Facts: ``runtime``, ``not_finite``, ``nodes`` (by provider, from the session's own
    profile; what OpenVINO takes as a whole is one).

    Raises :class:`errors.ModelRefused` with OpenVINO's reason, and where a node would run on
    ONNX Runtime's own CPU provider; :class:`errors.ToolMissing` for another release.
    """
    session = _session(model, {**options, "num_of_threads": "1"}, out, release)
    pairs = [
        (case, run_model.run_session(session, case))
        for case in samples.cases(golden.parent, "input")
    ]
    nodes = _nodes(Path(session.end_profiling()))
    samples.write(out, pairs)
    odd = {name for _, outs in pairs for name, a in outs.items() if not run_model.finite(a)}
    return {"runtime": f"{PACKAGE} {release}", "not_finite": sorted(odd), "nodes": nodes}


def _session(
    model: Path, options: Mapping[str, str], out: Path, release: str
) -> ort.InferenceSession:
    import onnxruntime

    # Both builds of ONNX Runtime have this name, and give their version.
    if onnxruntime.__version__ != release or PROVIDER not in onnxruntime.get_available_providers():
        raise errors.ToolMissing(
            f"{PACKAGE} {release} is not in this environment, but onnxruntime "
            f"{onnxruntime.__version__}",
            remedy=f'say python = ["{PACKAGE}=={release}"] in [runtime] of the target',
        )
    settings = run_model.options("all")
    # A provider that cannot be had is replaced by the CPU's without a word, unless told so twice.
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    settings.log_severity_level = 4
    settings.enable_profiling = True
    settings.profile_file_prefix = str(out / "profile")
    try:
        return onnxruntime.InferenceSession(
            str(model), settings, providers=[(PROVIDER, dict(options))], enable_fallback=0
        )
    except run_model.session_errors() as error:
        raise errors.ModelRefused(
            f"{PACKAGE} {release} cannot load the model: {reason(error)}",
            remedy='bind the dimensions (dims = "bound"), or use a target of ONNX Runtime',
        ) from error


def reason(error: Exception) -> str:
    """What OpenVINO or ONNX Runtime says, in one line without the places in their own code."""
    text = str(error)
    _, mark, inner = text.partition("[OpenVINO-EP]")
    return ov.reason(RuntimeError(inner.strip() if mark else text))


def _nodes(profile: Path) -> dict[str, int]:
    """Nodes by provider. Raises :class:`errors.RunFailed` where OpenVINO did not run all."""
    found = placement.read(profile.read_bytes())
    profile.unlink()
    placement.require(found, PROVIDER, 1.0, 1.0)
    return {name: part.nodes for name, part in found.items()}


def provider_options(properties: Mapping[str, str], device: str = "CPU") -> dict[str, str]:
    """The provider's options for OpenVINO's ``properties``, all in ``load_config``.

    Its own option ``precision`` knows FP32 alone on a CPU; ``load_config`` is JSON by device, and
    a property that the plug-in has not is an error when the session is made.
    """
    config = json.dumps({device: dict(properties)}, sort_keys=True, separators=(",", ":"))
    return {"device_type": device, "load_config": config}
