"""What a recipe for OpenVINO makes of a job: the IR at its precision, and how it is run."""

from __future__ import annotations

from typing import Any

from edge import errors
from edge.convert.openvino_choice import CANONICAL, FRAMEWORK, openvino_choice
from edge.convert.openvino_int8 import openvino_int8
from edge.convert.openvino_ir import openvino_fp16, openvino_ir
from edge.convert.openvino_library import IR
from edge.convert.openvino_run import PRECISION
from edge.convert.openvino_weights import openvino_weights
from edge.convert.precision import MARGIN_DB, WEIGHT_BITS, goals
from edge.job import Job
from edge.samples import INDEX
from edge.sources.openvino_direct import DIRECT
from edge.step import Step
from edge.store import File, Result


def properties(job: Job) -> dict[str, str]:
    """OpenVINO's properties for the job's target and precision, as text.

    ``INFERENCE_PRECISION_HINT`` is always among them. With compressed weights the CPU plugin
    rounds activations to 8 bits too where a CPU has VNNI: that is switched off, or a device would
    compute something else than what was proven here.
    """
    said = job.target.openvino
    made: dict[str, str] = {PRECISION: said.inference_precision}
    if said.hint != "none":
        made["PERFORMANCE_HINT"] = said.hint
    if said.streams:
        made["NUM_STREAMS"] = str(said.streams)
    if job.precision in WEIGHT_BITS:
        made["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"
    return made


def base(job: Job) -> Result:
    """The IR in the source's own precision, by the way that the target's ``origin`` says.

    ``auto``: of the canonical ONNX and of the framework's own model the better one, where there
    is a framework that OpenVINO reads and it converts; one of them alone where the other is
    refused. Raises :class:`errors.ModelRefused` with OpenVINO's reason, :class:`errors.ConfigError`
    for ``framework`` where there is none.
    """
    wanted = job.target.openvino.origin
    direct = None if wanted == CANONICAL else _direct(job)
    if wanted == FRAMEWORK:
        return _only(job, direct)
    try:
        canonical = job.tool(openvino_ir, model=job.canonical, release=_release(job))
    except errors.ModelRefused:
        if direct is None or direct.facts["refused"]:
            raise
        return direct
    if direct is None or direct.facts["refused"]:
        return canonical
    return job.tool(
        openvino_choice,
        canonical=canonical.tree(IR),
        framework=direct.tree(IR),
        golden=job.samples.tree(INDEX),
        properties=properties(job),
        tolerance=job.target.tolerance.model_dump(),
        release=_release(job),
    )


def _release(job: Job) -> str:
    return job.target.runtime.version


def _direct(job: Job) -> Result | None:
    """The framework's own model as IR; None where there is none that OpenVINO reads."""
    framework = job.framework
    step = DIRECT.get(framework.title) if framework else None
    if framework is None or step is None:
        return None
    return job.by_framework(framework, step, like=job.canonical, release=_release(job))


def _only(job: Job, direct: Result | None) -> Result:
    if direct is None:
        raise errors.ConfigError(
            f"target {job.target.name}: openvino.origin = {FRAMEWORK!r}, and the model "
            f"{job.model.name} comes from no framework that OpenVINO reads",
            remedy=f"write origin = 'auto'; OpenVINO reads {', '.join(DIRECT)}",
        )
    if why := direct.facts["refused"]:
        raise errors.ModelRefused(
            f"openvino {_release(job)} cannot convert the framework's own model: {why}",
            remedy="write origin = 'auto' or 'canonical' in "
            f"[targets.{job.target.name}.openvino] of edge.toml",
        )
    return direct


def ir(job: Job) -> File:
    """``model.xml`` with ``model.bin`` beside it, at the job's precision."""
    first = base(job)
    if job.precision == "source":
        return first.tree(IR)
    step, arguments = _conversion(job)
    given = {"model": first.tree(IR), "release": _release(job), **arguments}
    return job.tool(step, **given).tree(IR)


def _conversion(job: Job) -> tuple[Step, dict[str, Any]]:
    """The step of the job's precision, and what it takes beside model and release."""
    if job.precision == "fp16":
        return openvino_fp16, {}
    golden = {"golden": job.samples.tree(INDEX)}
    if job.precision == "int8":
        said = job.target.openvino
        options = {"preset": said.preset, "subset_size": said.subset_size}
        return openvino_int8, {**golden, **options, "cases": job.cases, "goals": goals(job)}
    said_of = job.target.weight_only
    scheme = {
        "bits": WEIGHT_BITS[job.precision],
        "block_size": said_of.block_size,
        "symmetric": said_of.symmetric,
    }
    goal = (job.tolerance.sqnr_db or 0.0) + MARGIN_DB
    return openvino_weights, {**golden, "scheme": scheme, "goal": goal}


def manifest_facts(job: Job) -> dict[str, Any]:
    """For the manifest: device, properties, and which way the IR was made, with why."""
    facts = base(job).facts
    made: dict[str, Any] = {"device": job.target.provider, "properties": properties(job)}
    if facts.get("kept"):
        return {**made, "ir_of": facts["kept"], "why": facts["why"]}
    direct = None if job.target.openvino.origin == CANONICAL else _direct(job)
    why = direct.facts["refused"] if direct else ""
    if why:
        return {**made, "ir_of": CANONICAL, "why": f"the framework's own is refused: {why}"}
    return {**made, "ir_of": FRAMEWORK if facts.get("converter") else CANONICAL}
