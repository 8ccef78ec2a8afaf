"""From jobs whose artifacts are made to bundles: closure, parity, sizes, manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from edge import bundle, config
from edge.bundle import BundleFile
from edge.convert.accuracy import Accuracy, artifact_accuracy
from edge.convert.compressed_size import compressed_size
from edge.convert.measure_parity import against_golden, hold
from edge.convert.operator_closure import closure_config, operator_closure
from edge.convert.precision import at_precision
from edge.convert.run_artifact import run_artifact
from edge.job import OPERATORS, Job
from edge.manifest import Parts, Sizes, manifest_of
from edge.prepare import Prepared
from edge.samples import INDEX
from edge.store import File, Result


@dataclass(frozen=True)
class Made:
    """A bundle before it is written."""

    files: tuple[BundleFile, ...]
    manifest: dict[str, Any]


def closed(recipe: ModuleType, jobs: Sequence[Job]) -> tuple[list[Job], list[Result]]:
    """The jobs with artifact and the closure over all of them, and each job's own closure."""
    artifacts = [recipe.artifact(job) for job in jobs]
    closures = [
        job.step(operator_closure, model=artifact)
        for job, artifact in zip(jobs, artifacts, strict=True)
    ]
    ready = [
        job.with_artifact(artifact, _union(job, closures))
        for job, artifact in zip(jobs, artifacts, strict=True)
    ]
    return ready, closures


def _union(job: Job, closures: Sequence[Result]) -> Result:
    """The configuration over all models of the project, proven to hold each of them."""
    return job.step(
        closure_config,
        platform=job.target.platform,
        ort_version=job.target.runtime.version,
        **{f"m{n}": each.file("closure.json") for n, each in enumerate(closures)},
    )


def made(recipe: ModuleType, job: Job, prepared: Prepared, closure: Result) -> Made:
    """Files and manifest of one model for one target.

    Raises :class:`errors.ParityFailed` and :class:`errors.BudgetExceeded` where a gate says no.
    """
    artifact = job.built()
    parity = held(job, artifact, prepared.exporter)
    built: bundle.Bundle = recipe.build(job)
    files = (
        BundleFile.of(artifact.path.name, artifact, "artifact"),
        BundleFile.of(OPERATORS, job.operators(), "closure"),
        *job.tree("samples", job.samples, "samples"),
        *built.files,
    )
    sizes = _sizes(job, files, built.runtime_size)
    accuracy = accuracies(job, prepared, artifact)
    parts = Parts(job, prepared, built, files, sizes, parity, closure, accuracy)
    return Made(files, manifest_of(parts))


def held(job: Job, artifact: File, exporter: str) -> list[dict[str, Any]]:
    """Every stage held against the golden samples; the first outside the tolerance is named.

    The canonical form computes what the exported model did (see ``edge.convert.canonical``), so
    its tolerance is the source's own and what it loses was lost by ``exporter``.
    """
    where = "look at the step that made it, or widen [tolerance] of the target"
    lossy = f"give nodes back to the model's own precision, or widen [tolerances.{job.precision}]"
    canonical = f"canonical (exported by {exporter})" if exporter else "canonical"
    stages = [(canonical, job.canonical, job.target.tolerance, where)]
    if job.precision != "source":
        stages.append((job.precision, at_precision(job), job.tolerance, lossy))
    remedy = where if job.precision == "source" else lossy
    stages.append((artifact.path.name, artifact, job.tolerance, remedy))
    found = []
    for stage, file, tolerance, advice in stages:
        ran, parity = measured(job, file, tolerance)
        outputs = hold(job, parity, f"the first stage that diverges is {stage}", remedy=advice)
        found.append({"stage": stage, "runtime": ran.facts["runtime"], "outputs": outputs})
    return found


def measured(job: Job, model: File, tolerance: config.Tolerance) -> tuple[Result, Result]:
    """What the target's release gives for the golden inputs, and that held against the golden."""
    ran = job.step(run_artifact, model=model, golden=job.samples.tree(INDEX))
    return ran, against_golden(job, ran, tolerance)


def accuracies(job: Job, prepared: Prepared, artifact: File) -> Accuracy:
    """The user's metric on the artifact, by the target's release, beside the source's own."""
    metric = prepared.metric
    if metric is None:
        return Accuracy()
    ran = job.step(artifact_accuracy, model=artifact, **metric.arguments)
    return Accuracy(job.model.accuracy, metric.source, ran.facts["accuracy"])


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
