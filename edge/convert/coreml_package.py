"""What a recipe for Core ML makes of a job: ``model.mlpackage`` at its precision."""

from __future__ import annotations

from typing import Any

from edge import errors, log
from edge.convert.coreml_choice import coreml_canonical, coreml_choice
from edge.convert.coreml_fp16 import coreml_fp16
from edge.convert.coreml_half import coreml_half
from edge.convert.coreml_run import EXTRA
from edge.convert.coreml_weights import coreml_weights
from edge.convert.mil_package import PACKAGE, mil_package
from edge.convert.onnx_to_mil import TARGETS
from edge.convert.openvino_choice import CANONICAL, FRAMEWORK
from edge.convert.precision import WEIGHT_BITS
from edge.job import Job, tool_versions
from edge.samples import INDEX
from edge.sources.coreml_direct import DIRECT
from edge.store import File, Result

HEAD = "Manifest.json"
ONNX = "ONNX to MIL"  # the route of the canonical model
SAID, NOT_READ = "the target says so", "coremltools does not read the source itself"
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
    made = package_file(converted(job))
    warn(job)
    return made


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
    first = by_origin(job)
    if first is None:
        return _of_onnx(job)
    if job.precision == "source":
        return first
    return job.tool(
        coreml_half,
        package=package_file(first),
        golden=job.samples.tree(INDEX),
        minimum_deployment_target=job.target.coreml.minimum_deployment_target,
        goal=_half_goal(job),
    )


def _of_onnx(job: Job) -> Result:
    """The package of the canonical ONNX, in fp32 for ``source``, else in fp16."""
    if job.precision == "source":
        return job.tool(mil_package, model=job.canonical, options=_single(job))
    return job.tool(
        coreml_fp16,
        model=job.canonical,
        golden=job.samples.tree(INDEX),
        minimum_deployment_target=job.target.coreml.minimum_deployment_target,
        goal=_half_goal(job),
    )


def _single(job: Job) -> dict[str, Any]:
    target = job.target.coreml.minimum_deployment_target
    return {"minimum_deployment_target": target, "compute_precision": "fp32"}


def _half_goal(job: Job) -> float:
    return job.target.tolerance_of("fp16").sqnr_db or 0.0


# ---------------------------------------------------------------------------------- which route
def by_origin(job: Job) -> Result | None:
    """The fp32 package by the way that the target's ``origin`` says; None: of ONNX alone.

    ``auto``: of the canonical ONNX and of the framework's own model the better one, where there
    is a framework that coremltools reads and it converts; one of them alone where the other is
    refused. Raises :class:`errors.ModelRefused` with the reasons, :class:`errors.ConfigError` for
    ``framework`` where there is none.
    """
    wanted = job.target.coreml.origin
    direct = _direct(job)
    if wanted == FRAMEWORK:
        return _only(job, direct)
    if direct is None or direct.facts["refused"]:
        return None
    canonical = _canonical(job)
    if canonical.facts["refused"]:
        return direct
    return job.tool(
        coreml_choice,
        canonical=package_file(canonical),
        framework=package_file(direct),
        golden=job.samples.tree(INDEX),
        tolerance=job.target.tolerance.model_dump(),
    )


def _canonical(job: Job) -> Result:
    return job.tool(coreml_canonical, model=job.canonical, options=_single(job))


def _direct(job: Job) -> Result | None:
    """The package of the framework's own model; None where there is none, or it is not asked."""
    framework = job.framework
    step = DIRECT.get(framework.title) if framework else None
    if framework is None or step is None or job.target.coreml.origin == CANONICAL:
        return None
    how = {
        "release": release(job),
        "minimum_deployment_target": job.target.coreml.minimum_deployment_target,
        "tolerance": job.target.tolerance.model_dump(),
    }
    golden = job.samples.tree(INDEX)
    return job.by_framework(framework, step, like=job.canonical, golden=golden, how=how)


def _only(job: Job, direct: Result | None) -> Result:
    if direct is None:
        raise errors.ConfigError(
            f"target {job.target.name}: coreml.origin = {FRAMEWORK!r}, and the model "
            f"{job.model.name} comes from no framework that coremltools reads",
            remedy=f"write origin = 'auto'; coremltools reads {', '.join(DIRECT)}",
        )
    if why := direct.facts["refused"]:
        raise errors.ModelRefused(
            f"coremltools cannot convert the framework's own model: {why}",
            remedy=f"write origin = 'auto' or 'canonical' in {section(job)}",
        )
    return direct


def route_facts(job: Job) -> dict[str, Any]:
    """For the manifest: the ``route`` that was taken, ``why``, and what was ``tried``.

    ``tried`` has a route's figures, or in ``why_not`` alone why it gave no package. It is there
    where the framework's own model was asked.
    """
    direct, first = _direct(job), by_origin(job)
    if direct is None:
        said = job.target.coreml.origin == CANONICAL
        return {"route": ONNX, "why": SAID if said else NOT_READ}
    made = direct.facts.get("route")
    tried = {
        name: direct.facts["figures"] if name == made else {"why_not": why}
        for name, why in (direct.facts["tried"] or {}).items()
    }
    if first is None:
        refused = direct.facts["refused"]
        return {"route": ONNX, "why": f"the framework's own is refused: {refused}", "tried": tried}
    if "kept" in first.facts:
        tried |= {made: first.facts[FRAMEWORK], ONNX: first.facts[CANONICAL]}
        route = ONNX if first.facts["kept"] == CANONICAL else made
        disagreement = {"disagreement": said} if (said := first.facts["disagreement"]) else {}
        return {"route": route, "why": first.facts["why"], "tried": tried, **disagreement}
    if job.target.coreml.origin == FRAMEWORK:
        return {"route": made, "why": SAID, "tried": tried}
    refused = _canonical(job).facts["refused"]
    tried[ONNX] = {"why_not": refused}
    return {"route": made, "why": "the canonical ONNX is refused", "tried": tried}


def warn(job: Job) -> None:
    """What deserves a line of its own: routes that disagree, an option that has no effect."""
    if why := _without_table(job):
        log.warn(f"{job.target.name}/{job.model.name}: {why}")
    _warn_of_routes(job)


def _warn_of_routes(job: Job) -> None:
    """What two converters, or one and the framework, disagree in."""
    direct, first = _direct(job), by_origin(job)
    if direct is None:
        return
    tried = direct.facts["tried"]
    said = [f"by {route}: {tried[route]}; not taken" for route in direct.facts["wrong"] or ()]
    if first is not None and (apart := first.facts.get("disagreement")):
        said.append(f"against the canonical ONNX: {apart}; kept: {first.facts['kept']}")
    for each in said:
        log.warn(f"{job.target.name}/{job.model.name}: the framework's own model {each}")


# ------------------------------------------------------------------------------------ precision
def scheme(job: Job) -> dict[str, Any]:
    """How weights of the job's precision are compressed, for ``coreml_weights``.

    ``palettize`` of the target is for the precision of as many bits; the other one has scales
    (where ``auto`` tries both: see :func:`check`).
    """
    bits, table = WEIGHT_BITS[job.precision], job.target.coreml.palettize
    fits = table is not None and _of_table(table) == job.precision
    said = job.target.weight_only
    return {
        "bits": table if fits else bits,
        "palettize": fits,
        "symmetric": said.symmetric,
        "block_size": said.block_size,
    }


def _of_table(table: int) -> str:
    """The precision that a lookup table of so many bits is for."""
    return "int4-weights" if table == 4 else "int8-weights"


def _without_table(job: Job) -> str:
    """That ``palettize`` has no effect, where the precision that was asked for has no weights."""
    table = job.target.coreml.palettize
    if table is None or job.target.precision == "auto" or job.precision in WEIGHT_BITS:
        return ""
    return (
        f"palettize = {table} is for {_of_table(table)}, and has no effect on a package in "
        f"{'fp32' if job.precision == 'source' else job.precision}"
    )


def section(job: Job) -> str:
    """Where the target's options for Core ML are written, for remedies."""
    return f"[targets.{job.target.name}.coreml] of edge.toml (in the target's own file: [coreml])"


def installed() -> str:
    """The release of coremltools here; raises :class:`errors.ToolMissing` where there is none."""
    return tool_versions(("coremltools",), {}, EXTRA)["coremltools"]


def release(job: Job) -> str:
    """The release of coremltools that makes the job's packages.

    The target's, where its runtime is Core ML. Others (``ios``) are for another runtime, whose
    release says nothing of coremltools: there it is the installed one.
    """
    return job.target.runtime.version if _pinned(job) else installed()


def _pinned(job: Job) -> bool:
    return job.target.runtime.name == "coreml"


def check(job: Job) -> None:
    """Refuse what the target's oldest system cannot load, and another release of coremltools.

    Raises :class:`errors.ModelRefused`, :class:`errors.ToolMissing`, :class:`errors.ConfigError`
    for a lookup table that is not for the precision that was asked for.
    """
    wanted = release(job) if _pinned(job) else ""
    if wanted and (has := installed()) != wanted:
        raise errors.ToolMissing(
            f"the target is for coremltools {wanted}, and {has} is installed",
            remedy=f"pip install coremltools=={wanted}",
        )
    if job.precision in WEIGHT_BITS:
        _check_table(job)
        _check_system(job)


def _check_table(job: Job) -> None:
    """``auto`` tries both precisions with one ``palettize``: there the other one has scales."""
    table = job.target.coreml.palettize
    if table is None or job.target.precision == "auto" or scheme(job)["palettize"]:
        return
    fits = "4" if job.precision == "int4-weights" else "8 or 6"
    raise errors.ConfigError(
        f"target {job.target.name}: palettize = {table} is for {_of_table(table)}, and "
        f"{job.precision} is asked for",
        remedy=f"write palettize = {fits} in {section(job)}, or leave it out for scales; "
        f"or ask for {_of_table(table)}",
    )


def _check_system(job: Job) -> None:
    said, how = job.target.coreml.minimum_deployment_target, scheme(job)
    least = "iOS18" if how["bits"] == 4 and not how["palettize"] else "iOS16"
    if TARGETS[said] < TARGETS[least]:
        more = " or palettize = 4" if least == "iOS18" and TARGETS[said] >= TARGETS["iOS16"] else ""
        raise errors.ModelRefused(
            f"target {job.target.name}: {job.precision} needs {least}, and the package is for "
            f"{said} and newer",
            remedy=f"write minimum_deployment_target = '{least}'{more} in {section(job)}",
        )


def manifest_facts(job: Job) -> dict[str, Any]:
    """For the manifest: what the package needs, how it computes, and its ports by both names."""
    facts, said = base(job).facts, job.target.coreml
    return {
        "requires": {**job.target.requires, **_version(job)},
        "specification_version": facts["specification_version"],
        "compute_units": said.compute_units,
        **how_facts(job),
        "io": {"inputs": facts["inputs"], "outputs": facts["outputs"]},
    }


def how_facts(job: Job) -> dict[str, Any]:
    """For the manifest: the systems that load the package, its route, and how it computes."""
    facts, last = base(job).facts, converted(job).facts
    made: dict[str, Any] = {
        "systems": SYSTEMS[job.target.coreml.minimum_deployment_target],
        "compute_precision": "fp32" if job.precision == "source" else "fp16",
        **route_facts(job),
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
