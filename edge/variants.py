"""``precision = "auto"``: every variant made, measured where it can be, and one of them chosen.

A variant is the whole way of a build at one precision: artifact, parity on the golden samples by
the target's release, the user's accuracy, size. Those that a device here can run are timed in one
interleaved run, bundle and runner as they ship. ``edge.choice`` judges the figures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from edge import __version__, bundle, config, errors, field, log, probe
from edge.assemble import Made, accuracies, closed, made, measured
from edge.bench import BenchOptions
from edge.choice import Limits, Variant, choose, excluded
from edge.choice_record import ChoiceRecord, ModelRef, path_beside
from edge.context import Context
from edge.convert.compressed_size import compressed_size
from edge.convert.precision import STEP_VERSIONS
from edge.devices import Device, DeviceSettings, open_device
from edge.job import PENDING, Job
from edge.manifest import digest, model_sha256, samples_sha256
from edge.parity import OutputParity
from edge.prepare import Prepared
from edge.process import which
from edge.project import devices_of
from edge.report import worst
from edge.rounds import Timing, interleaved
from edge.samples import INDEX
from edge.step import Facts, step
from edge.store import File

ROUND_SECONDS = 1.0  # of each variant in each round, beside the project's own [bench]


@dataclass(frozen=True)
class Settled:
    """A job at its precision, and how that was chosen; ``refusal`` when nothing could be."""

    job: Job
    choice: ChoiceRecord | None = None
    refusal: errors.EdgeError | None = None

    def good(self) -> Job:
        """The job, or what was wrong is raised."""
        if self.refusal:
            raise self.refusal
        return self.job


@dataclass(frozen=True)
class Candidate:
    """A variant, and its bundle where it could be run."""

    variant: Variant
    bundle: Made | None = None


def settle(context: Context, job: Job, prepared: Prepared, recipe: ModuleType) -> Settled:
    """The job at the precision that its target asks for, or at the best that its limits allow.

    Raises :class:`errors.ModelRefused` for a precision that the target's runtime gets wrong.
    """
    target = job.target
    if target.precision != "auto":
        if why := target.why_broken(target.precision):
            raise errors.ModelRefused(
                f"{target.name} cannot run {target.precision} models: {why}",
                remedy="choose another precision, or pin a release that can",
            )
        return Settled(replace(job, precision=target.precision))
    if target.choice.max_drop is not None and not prepared.metric:
        raise errors.ConfigError(
            f"{target.name}: max_drop limits the accuracy of {job.model.name}, which has no metric",
            remedy='say accuracy = "module:callable" for the model, or leave max_drop out',
        )
    names = target.choice.candidates or config.PRECISIONS
    found = [_candidate(job, prepared, recipe, name) for name in names]
    if context.dry:
        return _foreseen(context, job, prepared, [each.variant for each in found])
    device, variants = _timed(context, job, found)
    settled = _chosen(job, prepared, variants, device)
    _tell(settled)
    return settled


def _tell(settled: Settled) -> None:
    choice, where = settled.choice, f"{settled.job.target.name}/{settled.job.model.name}"
    if choice and choice.chosen:
        for warning in choice.warnings:
            log.warn(f"{where}: {warning}")
        log.say(f"  {where}: {choice.chosen} is chosen of {len(choice.variants)}")


def _foreseen(context: Context, job: Job, prepared: Prepared, variants: list[Variant]) -> Settled:
    """What a build would choose, without one: as the last one did, from the times that it took.

    Unknown, and with it all that follows, where a variant would be made again.
    """
    unknown = Settled(replace(job, canonical=File(job.canonical.path, PENDING, 0)))
    try:
        last = ChoiceRecord.read(path_beside(context.request.folder(job.model, job.target)))
    except errors.StoreDamaged:
        return unknown
    known = {each.precision: each for each in last.variants}
    if any(_figures_of(known.get(each.precision)) != _figures_of(each) for each in variants):
        return unknown
    return _chosen(job, prepared, [known[each.precision] for each in variants], last.device)


def _figures_of(variant: Variant | None) -> tuple[Any, ...]:
    """What a variant is without a clock; a device that refused it says nothing here."""
    return (variant.artifact_raw, variant.sha256) if variant else ()


def _candidate(
    job: Job, prepared: Prepared, recipe: ModuleType, precision: config.Precision
) -> Candidate:
    """One variant, with all figures that need no clock; what cannot be made is one that failed."""
    # Its own record of steps: the manifest of the chosen one says nothing of the others.
    mine = replace(job, precision=precision, steps=replace(job.steps, used=[*job.steps.used]))
    if why := job.target.why_broken(precision):
        return Candidate(Variant(precision, "broken", why))
    known = replace(mine.steps, dry=True, used=[]).run(refused, _refusal(mine, ""))
    if known.key != PENDING:
        return Candidate(Variant(precision, "failed", known.facts["why"]))
    try:
        (ready,), (closure,) = closed(recipe, [mine])
        variant = _measured(ready, prepared)
        # A runtime that is built for its models would be built for each variant.
        whole = variant.state == "made" and variant.artifact_raw and not job.making
        return Candidate(variant, made(recipe, ready, prepared, closure) if whole else None)
    except (errors.ModelRefused, errors.ParityFailed, errors.BudgetExceeded) as error:
        why = f"could not be made: {_line(error)}"
        mine.steps.run(refused, _refusal(mine, why))
        return Candidate(Variant(precision, "failed", why))
    except errors.EdgeError as error:
        return Candidate(Variant(precision, "failed", f"could not be made: {_line(error)}"))


@step(version=1, tools=("onnx", "onnxruntime", "numpy"), isolated=False, aside=("why",))
def refused(  # noqa: PLR0913 - all that a variant is made of
    out: Path,
    *,
    model: Path,
    cases: Path,
    golden: Path,
    precision: str,
    target: dict[str, Any],
    versions: dict[str, Any],
    why: str,
) -> Facts:
    """That a variant cannot be made, and why: it is not tried again until something changes.

    A search for the nodes that int8 has to give back takes minutes before it fails.
    """
    del out, model, cases, golden, precision, target, versions
    return {"why": why}


def _refusal(job: Job, why: str) -> dict[str, Any]:
    return {
        "model": job.canonical,
        "cases": job.cases,
        "golden": job.samples.tree(INDEX),
        "precision": job.precision,
        "target": job.target.model_dump(mode="json"),
        "versions": {"edgewright": __version__, **STEP_VERSIONS},
        "why": why,
    }


def _line(error: errors.EdgeError) -> str:
    return error.message.splitlines()[0]


def _measured(job: Job, prepared: Prepared) -> Variant:
    """Size, parity and accuracy. Outside a tolerance that is no limit of the choice, it failed."""
    artifact = job.built()
    size = job.step(compressed_size, file=artifact).facts
    _, found = measured(job, artifact, job.tolerance)
    outputs = [
        OutputParity.from_json({key: value for key, value in each.items() if key != "sample"})
        for each in found.facts["outputs"] or ()
    ]
    max_abs, sqnr_db = worst(outputs)
    least = job.target.choice.min_sqnr
    limited = least is not None and sqnr_db is not None and sqnr_db < least
    reasons = [] if limited else list(found.facts["reasons"] or ())
    accuracy = accuracies(job, prepared, artifact)
    return Variant(
        job.precision,
        "failed" if reasons else "made",
        f"outside the tolerance: {reasons[0]}" if reasons else "",
        artifact_raw=size["raw"],
        artifact_compressed=size["compressed"],
        sqnr_db=sqnr_db,
        max_abs=max_abs,
        accuracy=accuracy.artifact,
        drop=accuracy.drop,
        sha256=artifact.sha256,
    )


# ---------------------------------------------------------------------------------- time
def _timed(
    context: Context, job: Job, found: Sequence[Candidate]
) -> tuple[str | None, list[Variant]]:
    """The variants with times, and the device that took them; None where none can run them."""
    variants = [each.variant for each in found]
    ready = {each.variant.precision: each.bundle for each in found if each.bundle}
    built = {name: each for name, each in ready.items() if each.manifest["state"] == "built"}
    if not built:
        return None, variants
    name = job.target.choice.device or "local"
    with open_device(_settings(context, name)) as device:
        facts = probe.probe(device)
        if why := _misfit(device, facts, next(iter(built.values()))):
            if job.target.choice.device:
                raise errors.Unavailable(why, remedy="name another device in [choice]")
            log.say(f"  {job.target.name}: times are not measured here: {why}")
            return None, variants
        options = _options(context.request.project.bench, job.target)
        taken = context.steps().run(
            time_variants,
            {
                "bundles": {name: digest(each.manifest) for name, each in built.items()},
                "machine": [name, facts.cpu_model, facts.arch, facts.cores, facts.os_release],
                "options": asdict(options),
                "run": lambda: _run(device, built, options),
            },
            title=f"{job.target.name}/{job.model.name}: times on {name}",
        )
    return name, [_with_time(each, taken.facts.get(each.precision), name) for each in variants]


@step(version=1, isolated=False, aside=("run",))
def time_variants(
    out: Path,
    *,
    bundles: dict[str, str],
    machine: list[Any],
    options: dict[str, Any],
    run: Callable[[], Facts],
) -> Facts:
    """Facts: by precision, p50 with its interval (ns) and peak memory (bytes), or ``error``.

    Kept like any result: the same bundles on the same machine are not measured again, so a build
    that has nothing to do stays one. ``bundles`` are digests of manifests.
    """
    del out, machine, options  # facts only; the others are what they hold for
    found = run()
    return {name: found[name] for name in bundles}


def _settings(context: Context, name: str) -> DeviceSettings:
    known = devices_of(context.request.base / "edge.toml")
    if name not in known:
        raise errors.ConfigError(
            f"[choice] names the device {name!r}, which devices.toml does not have",
            remedy=errors.did_you_mean(name, sorted(known)),
        )
    return field.settings(name, known[name], context.request.base)


def _misfit(device: Device, facts: probe.DeviceFacts, bundle: Made) -> str:
    what = field.Bundle(Path(), bundle.manifest, digest(bundle.manifest))
    try:
        field.refuse_misfit(what, facts, device.settings.name)
        runner = field.choose_runner(what, device, "")
    except (errors.Unavailable, errors.UsageError) as error:
        return _line(error)
    local = device.settings.kind == "local" and runner.words
    return f"{runner.words[0]} is not installed" if local and not which(runner.words[0]) else ""


def _options(said: config.BenchSpec, target: config.Target) -> BenchOptions:
    seconds = min(said.min_seconds, ROUND_SECONDS)
    values = {**said.model_dump(), "min_seconds": seconds}
    return BenchOptions(**values, provider=target.provider)


def _run(device: Device, built: Mapping[str, Made], options: BenchOptions) -> Facts:
    """Bring every bundle, prove it there, time them in turns."""
    found: Facts = {}
    releases = {}
    with tempfile.TemporaryDirectory(prefix="edge-variants-") as place:
        for name, each in built.items():
            folder = Path(place, name)
            bundle.write(folder, each.files, each.manifest)
            what = field.Bundle(folder, each.manifest, digest(each.manifest))
            try:
                _, releases[name], _ = field.install(device, what, options, activate=False)
            except (errors.ParityFailed, errors.RunFailed) as error:
                found[name] = {"error": _line(error)}
        timings = interleaved(device, releases, options) if releases else {}
    return found | {name: _figures(timing) for name, timing in timings.items()}


def _figures(timing: Timing) -> dict[str, Any]:
    summary = timing.summary
    return {
        "p50_ns": summary.median_ns,
        "p50_low_ns": summary.low_ns,
        "p50_high_ns": summary.high_ns,
        "peak_bytes": timing.peak_bytes,
    }


def _with_time(variant: Variant, facts: Mapping[str, Any] | None, device: str) -> Variant:
    if facts is None:
        return variant
    if why := facts.get("error"):
        return replace(variant, state="failed", why=f"on {device}: {why}")
    return replace(variant, **facts)


# -------------------------------------------------------------------------------- choice
def _chosen(job: Job, prepared: Prepared, variants: list[Variant], device: str | None) -> Settled:
    said = job.target.choice
    limits = Limits(
        said.prefer, said.max_size, said.max_p50, said.max_peak_memory, said.min_sqnr,
        said.max_drop,
    )  # fmt: skip
    where = f"{job.target.name}/{job.model.name}"

    def record(reasons: Mapping[str, str], chosen: str | None, *warnings: str) -> ChoiceRecord:
        return ChoiceRecord(
            target=job.target.name,
            platform=job.target.platform,
            model=ModelRef(job.model.name, job.model.version, model_sha256(prepared.source)),
            samples_sha256=samples_sha256(job.samples),
            limits=limits,
            variants=tuple(variants),
            reasons=reasons,
            chosen=chosen,
            warnings=warnings,
            device=device,
            source_accuracy=prepared.metric.source if prepared.metric else None,
            metric=job.model.accuracy,
        )

    try:
        decision = choose(variants, limits, target=where)
    except errors.BudgetExceeded as refusal:
        return Settled(job, record(excluded(variants, limits), None), refusal)
    name = next(each for each in config.PRECISIONS if each == decision.chosen.precision)
    choice = record(decision.reasons, name, *decision.warnings)
    return Settled(replace(job, precision=name), choice)
