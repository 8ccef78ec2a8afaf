"""From jobs whose artifacts are made to bundles: closure, parity, sizes, manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edge import bundle, config
from edge.bundle import BundleFile
from edge.convert.accuracy import Accuracy
from edge.convert.compressed_size import compressed_size
from edge.convert.measure_parity import against_golden, hold
from edge.convert.operator_closure import closure_config, operator_closure
from edge.convert.precision import at_precision
from edge.job import OPERATORS, Job
from edge.manifest import Parts, Sizes, manifest_of
from edge.prepare import Prepared
from edge.recipe import Recipe, run_by_onnxruntime
from edge.store import File, Result

# Artifacts that ONNX Runtime loads, which a reduced build of it can be made for.
BY_ONNXRUNTIME = (".onnx", ".ort")


@dataclass(frozen=True)
class Made:
    """A bundle before it is written."""

    files: tuple[BundleFile, ...]
    manifest: dict[str, Any]


def closed(recipe: Recipe, jobs: Sequence[Job]) -> tuple[list[Job], list[Result | None]]:
    """The jobs with artifact and the closure over all of them, and each job's own closure.

    A runtime that is none of ONNX Runtime's builds has no closure.
    """
    artifacts = [recipe.artifact(job) for job in jobs]
    if not all(_takes_closure(*each) for each in zip(jobs, artifacts, strict=True)):
        ready = [job.with_artifact(file, None) for job, file in zip(jobs, artifacts, strict=True)]
        return ready, [None] * len(ready)
    closures = [
        job.step(operator_closure, model=artifact)
        for job, artifact in zip(jobs, artifacts, strict=True)
    ]
    ready = [
        job.with_artifact(artifact, _union(job, closures))
        for job, artifact in zip(jobs, artifacts, strict=True)
    ]
    return ready, [*closures]


def _takes_closure(job: Job, artifact: File) -> bool:
    return bool(job.target.runtime.onnxruntime) and artifact.path.suffix in BY_ONNXRUNTIME


def _union(job: Job, closures: Sequence[Result]) -> Result:
    """The configuration over all models of the project, proven to hold each of them."""
    return job.step(
        closure_config,
        platform=job.target.platform,
        ort_version=job.target.runtime.onnxruntime,
        **{f"m{n}": each.file("closure.json") for n, each in enumerate(closures)},
    )


def made(recipe: Recipe, job: Job, prepared: Prepared, closure: Result | None) -> Made:
    """Files and manifest of one model for one target.

    Raises :class:`errors.ParityFailed` and :class:`errors.BudgetExceeded` where a gate says no.
    """
    artifact = job.built()
    parity = held(recipe, job, artifact, prepared.exporter)
    built: bundle.Bundle = recipe.build(job)
    files = (
        *artifact_files(artifact),
        *([BundleFile.of(OPERATORS, job.operators(), "closure")] if closure else []),
        *job.tree("samples", job.samples, "samples"),
        *built.files,
    )
    sizes = _sizes(job, files, built.runtime_size)
    accuracy = accuracies(recipe, job, prepared, artifact)
    parts = Parts(job, prepared, built, files, sizes, parity, closure, accuracy)
    return Made(files, manifest_of(parts))


def artifact_files(artifact: File) -> list[BundleFile]:
    """The artifact and the files that it needs beside it, weights above all.

    A package (see :func:`edge.bundle.artifact_name`) keeps its folder.
    """
    folder, name = artifact.path.parent, bundle.artifact_name(artifact)
    root = "" if name == artifact.path.name else f"{name}/"
    parts = [
        (part, File(path := folder / part, sha256, path.stat().st_size))
        for part, sha256 in artifact.companions
    ]
    files = [(artifact.path.name, artifact), *parts]
    return [BundleFile.of(f"{root}{part}", file, "artifact") for part, file in files]


def held(recipe: Recipe, job: Job, artifact: File, exporter: str) -> list[dict[str, Any]]:
    """Every stage held against the golden samples; the first outside the tolerance is named.

    A stage that this host cannot run has no runtime and no outputs.

    The canonical form computes what the exported model did (see ``edge.convert.canonical``), so
    its tolerance is the source's own and what it loses was lost by ``exporter``.
    """
    where = "look at the step that made it, or widen [tolerance] of the target"
    lossy = f"give nodes back to the model's own precision, or widen [tolerances.{job.precision}]"
    canonical = f"canonical (exported by {exporter})" if exporter else "canonical"
    stages = [(canonical, run_by_onnxruntime(job, job.canonical), job.target.tolerance, where)]
    if job.precision != "source" and not recipe.precisions:
        ran = run_by_onnxruntime(job, at_precision(job))
        stages.append((job.precision, ran, job.tolerance, lossy))
    remedy = where if job.precision == "source" else lossy
    found = [_held(job, *stage) for stage in stages]
    last, name = recipe.run(job, artifact), bundle.artifact_name(artifact)
    if last is None:
        return [*found, {"stage": name, "runtime": None, "outputs": []}]
    return [*found, _held(job, name, last, job.tolerance, remedy)]


def _held(
    job: Job, stage: str, ran: Result, tolerance: config.Tolerance, remedy: str
) -> dict[str, Any]:
    found = against_golden(job, ran, tolerance)
    outputs = hold(job, found, f"the first stage that diverges is {stage}", remedy=remedy)
    return {"stage": stage, "runtime": ran.facts["runtime"], "outputs": outputs}


def accuracies(recipe: Recipe, job: Job, prepared: Prepared, artifact: File) -> Accuracy:
    """The user's metric on the artifact, as the target runs it, beside the source's own."""
    metric = prepared.metric
    if metric is None:
        return Accuracy()
    ran = recipe.accuracy(job, artifact, metric.arguments)
    return Accuracy(job.model.accuracy, metric.source, ran.facts["accuracy"] if ran else None)


def _sizes(
    job: Job, files: Sequence[BundleFile], given: Mapping[str, int] | Literal["files"] | None
) -> Sizes:
    """Raw and gzip -9 bytes of artifact, runtime and both; None where the runtime's is unknown."""
    artifact = _measured(job, files, "artifact")
    runtime = _measured(job, files, "runtime") if given == "files" else dict(given or {}) or None
    both = None
    if artifact and runtime:
        both = {kind: size + runtime[kind] for kind, size in artifact.items()}
    return {"artifact": artifact, "runtime": runtime, "total": both}


def _measured(job: Job, files: Sequence[BundleFile], role: str) -> dict[str, int] | None:
    facts = [job.step(compressed_size, file=f.source).facts for f in files if f.role == role]
    if not facts:
        return None
    return {kind: sum(each[kind] or 0 for each in facts) for kind in ("raw", "compressed")}
