"""The whole way of a build, as short lists of functions.

For each model: locate, export, import, golden samples (``edge.prepare``). For each target:
canonical forms, the precision that is asked for or chosen (``edge.variants``), artifacts by the
recipe, the closure over all models, parity of every stage, the bundle (``edge.assemble``). One
failing target does not stop the others; the whole is the worst of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge import bundle, config, errors, log, process
from edge.assemble import Made, closed, made
from edge.choice_record import ChoiceRecord, path_beside
from edge.context import Context
from edge.job import Job, Making
from edge.manifest import digest
from edge.prepare import Prepared, prepare
from edge.recipe import Recipe
from edge.registry import Lack, preflight
from edge.runtime_making import making, toolchain_lacks
from edge.store import Result, key_of
from edge.variants import check, settle


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
    # Times mean nothing beside another target's conversions.
    alone = any(target.precision == "auto" for target in request.targets)
    most = 1 if alone else max(1, request.jobs)
    rows = process.in_threads(
        lambda target: _build_target(context, target, prepared), request.targets, most
    )
    return [outcome for row in rows for outcome in row]


def _prepare_all(context: Context) -> tuple[list[Prepared], dict[str, errors.EdgeError]]:
    failures: dict[str, errors.EdgeError] = {}
    trust = context.request.trust()

    def one(spec: config.ModelSpec) -> Prepared | None:
        try:
            return prepare(context.steps(), spec, context.request.base, trust)
        except errors.EdgeError as error:
            named = spec.name in error.message or len(context.request.models) == 1
            message = error.message if named else f"model {spec.name}: {error.message}"
            failures[spec.name] = type(error)(message, remedy=error.remedy)
        except OSError as error:
            failures[spec.name] = _io(f"model {spec.name}", error)
        return None

    found = process.in_threads(one, context.request.models, max(1, context.request.jobs))
    return [each for each in found if each is not None], failures


def _build_target(
    context: Context, target: config.Target, prepared: Sequence[Prepared]
) -> list[Outcome]:
    started = time.monotonic()
    try:
        ready = bundles(context, target, prepared)
        return [
            _write(context, target, each, ready[each.spec.name], started)
            for each in prepared
            if each.spec.name in ready
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
    made: Made,
    started: float,
) -> Outcome:
    folder = context.request.folder(prepared.spec, target)
    manifest = made.manifest
    with context.store.locked(key_of({"bundle": str(folder.absolute())})):
        written = bundle.write(folder, made.files, manifest)
    spec = prepared.spec
    archive = folder.with_name(f"{spec.name}-{spec.version}-{target.name}.tar.gz")
    if context.request.pack:
        bundle.pack(folder, archive)
    elif written:
        archive.unlink(missing_ok=True)  # of the bundle before
    _tell(target.name, spec.name, manifest)
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


@dataclass(frozen=True)
class Closed:
    """Jobs with artifact and closure over all models, and each model's own closure."""

    jobs: list[Job]
    closures: list[Result | None]


def _tell(target: str, model: str, manifest: dict[str, Any]) -> None:
    """The metric's figures, which no gate of a fixed precision judges."""
    if found := manifest["accuracy"]:
        name, source, artifact = (found[key] for key in ("metric", "source", "artifact"))
        # None: the artifact cannot be run on this host.
        gives = "cannot be asked here" if artifact is None else f"gives {artifact:.6g}"
        log.say(f"  {target}/{model}: {name} {gives}, for the source {source:.6g}")


def bundles(
    context: Context, target: config.Target, prepared: Sequence[Prepared]
) -> dict[str, Made]:
    """Files and manifest of every wanted model for one target, by model name."""
    recipe = context.registry.recipe(target.recipe)
    found = close(context, target, prepared, recipe, keep=not context.dry)
    return {
        job.model.name: made(recipe, job, each, closure)
        for job, each, closure in zip(found.jobs, prepared, found.closures, strict=True)
        if context.request.wants(job.model)
    }


def close(
    context: Context,
    target: config.Target,
    prepared: Sequence[Prepared],
    recipe: Recipe,
    *,
    keep: bool = False,
) -> Closed:
    """Each model at its precision, its artifact, and the closure over all of them.

    ``keep`` writes what was tried beside the bundles, also when nothing could be chosen.
    """
    made_how = making(
        target, context.request.runtime, context.store, context.fetch, dry=context.dry
    )
    for each in prepared:
        check(context, target, each, recipe)
    jobs = []
    for each in prepared:
        if keep:
            _keep(context.request.folder(each.spec, target), None)
        found = settle(context, _job(context, target, each, made_how), each, recipe)
        if keep:
            _keep(context.request.folder(each.spec, target), found.choice)
        jobs.append(found.good())
    return Closed(*closed(recipe, jobs))


def _keep(folder: Path, choice: ChoiceRecord | None) -> None:
    """What was tried, beside the bundle's folder; of a build that asks for one, nothing."""
    if choice:
        choice.write(path_beside(folder))
    else:
        path_beside(folder).unlink(missing_ok=True)


def _job(
    context: Context, target: config.Target, prepared: Prepared, made_how: Making | None
) -> Job:
    steps = context.steps()
    steps.used += prepared.history
    return Job(
        model=prepared.spec,
        target=target,
        steps=steps,
        canonical=prepared.canonical(steps, target),
        samples=prepared.samples,
        cases=prepared.cases,
        template=context.registry.template,
        fetch=context.fetch,
        embed_runtime=context.request.embed_runtime,
        making=made_how,
        environment=context.environment,
        framework=prepared.origin if prepared.origin.framework else None,
    )


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
                outcome.state + (", unverified" if outcome.manifest.get("unverified") else ""),
                outcome.manifest.get("precision", {}).get("made", ""),
                *(_size(sizes, role) for role in ("artifact", "runtime", "total")),
                outcome.digest[:12],
                problem,
            )
        )
    columns = (
        "target",
        "model",
        "state",
        "precision",
        "artifact",
        "runtime",
        "total",
        "manifest",
        "where",
    )
    log.table("bundles", columns, rows)


def _size(sizes: dict[str, Any], role: str) -> str:
    size = sizes.get(role)
    return log.human_bytes(size["raw"]) if size else "-"
