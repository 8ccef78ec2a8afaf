"""What a recipe for Core ML makes of a job: ``model.mlpackage`` at its precision."""

from __future__ import annotations

from typing import Any

from edge import errors
from edge.convert.coreml_fp16 import coreml_fp16
from edge.convert.coreml_run import EXTRA
from edge.convert.coreml_weights import coreml_weights
from edge.convert.mil_package import PACKAGE, mil_package
from edge.convert.onnx_to_mil import TARGETS
from edge.convert.precision import WEIGHT_BITS
from edge.job import Job, tool_versions
from edge.samples import INDEX
from edge.store import File, Result

HEAD = "Manifest.json"
# The system that a minimum deployment target names, on each of Apple's platforms.
SYSTEMS = {
    "iOS15": {"iOS": "15.0", "macOS": "12.0"},
    "iOS16": {"iOS": "16.0", "macOS": "13.0"},
    "iOS17": {"iOS": "17.0", "macOS": "14.0"},
    "iOS18": {"iOS": "18.0", "macOS": "15.0"},
}


def package(job: Job) -> File:
    """The package's ``Manifest.json``, with all its other files as companions.

    Raises :class:`errors.ModelRefused` where an operator or the precision cannot be made.
    """
    return package_file(converted(job))


def package_file(made: Result) -> File:
    """The package in a step's result as one file: companions are named from its own folder."""
    head, folder = made.file(f"{PACKAGE}/{HEAD}"), f"{PACKAGE}/"
    others = [
        (name.removeprefix(folder), file.sha256)
        for name, file in made.files.items()
        if name.startswith(folder) and name != folder + HEAD
    ]
    return File(head.path, head.sha256, head.size, tuple(sorted(others)))


def converted(job: Job) -> Result:
    """What the last step made at the job's precision."""
    check(job)
    first = base(job)
    if job.precision not in WEIGHT_BITS:
        return first
    return job.tool(
        coreml_weights,
        model=package_file(first),
        golden=job.samples.tree(INDEX),
        scheme=scheme(job),
        goal=job.tolerance.sqnr_db or 0.0,
    )


def base(job: Job) -> Result:
    """The package before weights are compressed: fp32 for ``source``, else fp16."""
    target = job.target.coreml.minimum_deployment_target
    if job.precision == "source":
        options = {"minimum_deployment_target": target, "compute_precision": "fp32"}
        return job.tool(mil_package, model=job.canonical, options=options)
    return job.tool(
        coreml_fp16,
        model=job.canonical,
        golden=job.samples.tree(INDEX),
        minimum_deployment_target=target,
        goal=job.target.tolerance_of("fp16").sqnr_db or 0.0,
    )


def scheme(job: Job) -> dict[str, Any]:
    """How weights of the job's precision are compressed, for ``coreml_weights``.

    ``palettize`` of the target is for the precision of as many bits; the other one has scales.
    """
    bits, table = WEIGHT_BITS[job.precision], job.target.coreml.palettize
    fits = table is not None and (table == 4) == (bits == 4)
    said = job.target.weight_only
    return {
        "bits": table if fits else bits,
        "palettize": fits,
        "symmetric": said.symmetric,
        "block_size": said.block_size,
    }


def check(job: Job) -> None:
    """Refuse what the target's oldest system cannot load, and another release of coremltools.

    Raises :class:`errors.ModelRefused`, :class:`errors.ToolMissing`.
    """
    wanted = job.target.runtime.version
    has = tool_versions(("coremltools",), {}, EXTRA)["coremltools"]
    if has != wanted:
        raise errors.ToolMissing(
            f"the target is for coremltools {wanted}, and {has} is installed",
            remedy=f"pip install coremltools=={wanted}",
        )
    if job.precision not in WEIGHT_BITS:
        return
    said, how = job.target.coreml.minimum_deployment_target, scheme(job)
    least = "iOS18" if how["bits"] == 4 and not how["palettize"] else "iOS16"
    if TARGETS[said] < TARGETS[least]:
        more = " or palettize = 4" if least == "iOS18" and TARGETS[said] >= TARGETS["iOS16"] else ""
        raise errors.ModelRefused(
            f"target {job.target.name}: {job.precision} needs {least}, and the package is for "
            f"{said} and newer",
            remedy=f"write minimum_deployment_target = '{least}'{more} in [coreml] of the target",
        )


def manifest_facts(job: Job) -> dict[str, Any]:
    """For the manifest: what the package needs, how it computes, and its ports by both names."""
    facts, last = base(job).facts, converted(job).facts
    said = job.target.coreml
    made: dict[str, Any] = {
        "requires": {**job.target.requires, **_version(job)},
        "systems": SYSTEMS[said.minimum_deployment_target],
        "specification_version": facts["specification_version"],
        "compute_units": said.compute_units,
        "compute_precision": "fp32" if job.precision == "source" else "fp16",
        "route": "ONNX to MIL",
        "io": {"inputs": facts["inputs"], "outputs": facts["outputs"]},
    }
    if job.precision != "source":
        made |= {"fp32_operations": facts["fp32"], "why_fp32": facts["why"]}
    if job.precision in WEIGHT_BITS:
        how = "palettized" if scheme(job)["palettize"] else "linear"
        made |= {"compression": how, "weights": last["weights"], "given_back": last["given_back"]}
    return made


def _version(job: Job) -> dict[str, str]:
    system = {"ios": "iOS", "darwin": "macOS"}.get(job.target.requires.get("os", ""))
    least = SYSTEMS[job.target.coreml.minimum_deployment_target]
    return {"version": least[system]} if system else {}
