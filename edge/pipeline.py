"""The whole way of a build, as short lists of functions.

For each model: locate, import, golden samples (``edge.prepare``). For each target:
canonical forms, artifacts by the recipe, the closure over all models, parity of every stage,
the bundle. One failing target does not stop the others; the whole is the worst of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from edge import bundle, config, errors, log, model
from edge.bundle import BundleFile
from edge.convert.compressed_size import compressed_size
from edge.convert.measure_parity import hold
from edge.convert.operator_closure import closure_config, operator_closure
from edge.convert.run_artifact import run_artifact
from edge.job import OPERATORS, PENDING, Job, Making, PendingFacts, Steps
from edge.manifest import Parts, Sizes, digest, manifest_of
from edge.prepare import Prepared, prepare
from edge.registry import Lack, Registry, preflight
from edge.runtime_making import RuntimeWish, making, toolchain_lacks
from edge.samples import INDEX
from edge.store import File, Result, Store, key_of
from edge.tools.fetch import fetch
from edge.tools.ort_release import overlay


@dataclass(frozen=True)
class Request:
    """What to build: ``base`` is the project's folder, relative sources start there."""

    base: Path
    project: config.ProjectFile
    models: tuple[config.ModelSpec, ...]
    targets: tuple[config.Target, ...]
    output: Path
    embed_runtime: bool = False
    runtime: RuntimeWish = field(default_factory=RuntimeWish)
    pack: bool = False
    jobs: int = 2
    only: str = ""

    def wants(self, spec: config.ModelSpec) -> bool:
        """True for the models whose bundles are written; the closure is over all of them."""
        return self.only in ("", spec.name)

    def folder(self, spec: config.ModelSpec, target: config.Target) -> Path:
        """Where the bundle of one model for one target lies."""
        return self.output / spec.name / spec.version / target.name


@dataclass(frozen=True)
class Outcome:
    """What became of one model for one target. True when it is good."""

    target: str
    model: str
    state: str
    folder: Path | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    error: errors.EdgeError | None = None
    digest: str = ""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return self.error is None

    @property
    def exit_code(self) -> int:
        """0 when good, else the error's."""
        return self.error.exit_code if self.error else 0


@dataclass(frozen=True)
class Context:
    """What the stages share."""

    request: Request
    store: Store
    registry: Registry
    dry: bool = False
    made: list[Result] = field(default_factory=list)

    def steps(self) -> Steps:
        """A fresh record of steps over the shared store."""
        return Steps(self.store, lambda release: overlay(self.store, release), self.dry, self.made)

    def fetch(self, pin: config.Pin) -> File:
        """A pinned file; in a dry run it may not be there yet, but its content is known."""
        if self.dry:
            return self.store.blob(pin.sha256) or File(Path(PENDING), pin.sha256, 0)
        return fetch(self.store, pin)


def build(context: Context) -> list[Outcome]:
    """Build every model for every target of the request; failures are outcomes.

    What this host lacks for any target is said before any work; the others are built.
    """
    lacking = _lacking(context)
    for error in lacking.values():
        log.error(error.message, error.remedy)
    request = replace(
        context.request,
        targets=tuple(t for t in context.request.targets if t.name not in lacking),
    )
    missing = [
        Outcome(name, spec.name, "missing", error=error)
        for name, error in lacking.items()
        for spec in request.models
        if request.wants(spec)
    ]
    return missing + (_build(replace(context, request=request)) if request.targets else [])


def _lacking(context: Context) -> dict[str, errors.EdgeError]:
    """By target, one error that names all that this host lacks for it."""
    request = context.request
    lacks = preflight(context.store, request.targets, embed=request.embed_runtime)
    lacks += toolchain_lacks(request.targets, request.runtime)
    found: dict[str, list[Lack]] = {}
    for lack in lacks:
        found.setdefault(lack.target, []).append(lack)
    return {
        name: errors.ToolMissing(
            f"this host cannot build {name}: {', '.join(lack.what for lack in each)} is missing",
            remedy="; ".join(lack.remedy for lack in each),
        )
        for name, each in found.items()
    }


def _build(context: Context) -> list[Outcome]:
    request = context.request
    prepared, failed = _prepare_all(context)
    if failed:
        # The closure is a union over all models, so no target is whole without each of them.
        first = next(iter(failed.values()))
        return [
            Outcome(target.name, spec.name, "failed", error=failed.get(spec.name, first))
            for target in request.targets
            for spec in request.models
            if request.wants(spec)
        ]
    with ThreadPoolExecutor(max_workers=max(1, request.jobs)) as pool:
        rows = pool.map(lambda target: _build_target(context, target, prepared), request.targets)
        return [outcome for row in rows for outcome in row]


def _prepare_all(context: Context) -> tuple[list[Prepared], dict[str, errors.EdgeError]]:
    failures: dict[str, errors.EdgeError] = {}

    def one(spec: config.ModelSpec) -> Prepared | None:
        try:
            return prepare(context.steps(), spec, context.request.base)
        except errors.EdgeError as error:
            named = spec.name in error.message or len(context.request.models) == 1
            message = error.message if named else f"model {spec.name}: {error.message}"
            failures[spec.name] = type(error)(message, remedy=error.remedy)
        except OSError as error:
            failures[spec.name] = _io(f"model {spec.name}", error)
        return None

    with ThreadPoolExecutor(max_workers=max(1, context.request.jobs)) as pool:
        found = list(pool.map(one, context.request.models))
    return [each for each in found if each is not None], failures


def _build_target(
    context: Context, target: config.Target, prepared: Sequence[Prepared]
) -> list[Outcome]:
    started = time.monotonic()
    try:
        made = bundles(context, target, prepared)
        return [
            _write(context, target, each, made[each.spec.name], started)
            for each in prepared
            if each.spec.name in made
        ]
    except (errors.EdgeError, OSError) as caught:
        error = caught if isinstance(caught, errors.EdgeError) else _io(target.name, caught)
        seconds = time.monotonic() - started
        return [
            Outcome(target.name, each.spec.name, "failed", error=error, seconds=seconds)
            for each in prepared
            if context.request.wants(each.spec)
        ]


def _io(what: str, error: OSError) -> errors.StepFailed:
    where = f" ({error.filename})" if error.filename else ""
    return errors.StepFailed(
        f"{what}: {error.strerror or error}{where}",
        remedy="see to the space and permissions of the store and the output folder",
    )


def _write(
    context: Context,
    target: config.Target,
    prepared: Prepared,
    made: tuple[tuple[BundleFile, ...], dict[str, Any]],
    started: float,
) -> Outcome:
    folder = context.request.folder(prepared.spec, target)
    files, manifest = made
    with context.store.locked(key_of({"bundle": str(folder.absolute())})):
        written = bundle.write(folder, files, manifest)
    spec = prepared.spec
    archive = folder.with_name(f"{spec.name}-{spec.version}-{target.name}.tar.gz")
    if context.request.pack:
        bundle.pack(folder, archive)
    elif written:
        archive.unlink(missing_ok=True)  # of the bundle before
    state = "built" if written else "unchanged"
    if manifest["state"] == "planned":  # never shown as built
        state = "planned"
    return Outcome(
        target.name,
        prepared.spec.name,
        state,
        folder,
        manifest,
        digest=digest(manifest),
        seconds=time.monotonic() - started,
    )


def bundles(
    context: Context, target: config.Target, prepared: Sequence[Prepared]
) -> dict[str, tuple[tuple[BundleFile, ...], dict[str, Any]]]:
    """Files and manifest of every wanted model for one target, by model name."""
    recipe = context.registry.recipe(target.recipe)
    jobs, closures = close(context, target, prepared, recipe)
    return {
        job.model.name: _bundle(recipe, job, each, closure)
        for job, each, closure in zip(jobs, prepared, closures, strict=True)
        if context.request.wants(job.model)
    }


def close(
    context: Context, target: config.Target, prepared: Sequence[Prepared], recipe: ModuleType
) -> tuple[list[Job], list[Result]]:
    """Jobs with artifact and the closure over all models, and each model's own closure."""
    wish = context.request.runtime
    made_how = making(target, wish, context.store, context.fetch, dry=context.dry)
    jobs = [_job(context, target, each, made_how) for each in prepared]
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


def _job(
    context: Context, target: config.Target, prepared: Prepared, made_how: Making | None
) -> Job:
    facts = prepared.imported.facts
    if not isinstance(facts, PendingFacts):
        model.refuse_newer(target.runtime.version, facts["opset"], facts["ir_version"], target.name)
    steps = context.steps()
    steps.used += prepared.history
    canonical = prepared.canonical(steps, bind=target.dims == "bound")
    return Job(
        model=prepared.spec,
        target=target,
        steps=steps,
        canonical=canonical.file("model.onnx"),
        samples=prepared.samples,
        template=context.registry.template,
        fetch=context.fetch,
        embed_runtime=context.request.embed_runtime,
        making=made_how,
    )


def _union(job: Job, closures: Sequence[Result]) -> Result:
    """The configuration over all models of the project, proven to hold each of them."""
    return job.step(
        closure_config,
        platform=job.target.platform,
        ort_version=job.target.runtime.version,
        **{f"m{n}": each.file("closure.json") for n, each in enumerate(closures)},
    )


def _bundle(
    recipe: ModuleType, job: Job, prepared: Prepared, closure: Result
) -> tuple[tuple[BundleFile, ...], dict[str, Any]]:
    artifact = job.built()
    parity = _parity(job, artifact)
    made: bundle.Bundle = recipe.build(job)
    files = (
        BundleFile.of(artifact.path.name, artifact, "artifact"),
        BundleFile.of(OPERATORS, job.operators(), "closure"),
        *job.tree("samples", job.samples, "samples"),
        *made.files,
    )
    sizes = _sizes(job, files, made.runtime_size)
    parts = Parts(job, prepared.source, made, files, sizes, parity, closure)
    return files, manifest_of(parts)


def _parity(job: Job, artifact: File) -> list[dict[str, Any]]:
    """Every stage held against the golden samples; the first outside the tolerance is named."""
    stages = []
    golden = job.samples.tree(INDEX)
    for stage, file in (("canonical", job.canonical), (artifact.path.name, artifact)):
        ran = job.step(run_artifact, model=file, golden=golden)
        outputs = hold(
            job,
            ran,
            f"the first stage that diverges is {stage}",
            remedy="look at the step that made it, or widen [tolerance] of the target",
        )
        stages.append({"stage": stage, "runtime": ran.facts["runtime"], "outputs": outputs})
    return stages


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


def worst(outcomes: Sequence[Outcome]) -> int:
    """The exit code of the whole: the worst of its parts (a broken build over a gate's no)."""
    order = (0, 5, 1, 3, 2, 4)
    return max((outcome.exit_code for outcome in outcomes), key=order.index, default=0)


def show(outcomes: Sequence[Outcome]) -> None:
    """The closing table."""
    rows = []
    for outcome in outcomes:
        sizes = outcome.manifest.get("sizes", {})
        where = str(outcome.folder) if outcome.folder else ""
        problem = outcome.error.message.splitlines()[0] if outcome.error else where
        rows.append(
            (
                outcome.target,
                outcome.model,
                outcome.state,
                *(_size(sizes, role) for role in ("artifact", "runtime", "total")),
                outcome.digest[:12],
                problem,
            )
        )
    columns = ("target", "model", "state", "artifact", "runtime", "total", "manifest", "where")
    log.table("bundles", columns, rows)


def _size(sizes: dict[str, Any], role: str) -> str:
    size = sizes.get(role)
    return log.human_bytes(size["raw"]) if size else "-"
