"""``precision = "auto"``: every variant made, measured where it can be, and one of them chosen.

A variant is the whole way of a build at one precision: artifact, parity on the golden samples by
the target's release, the user's accuracy, size. Those that a device here can run are timed in one
interleaved run, bundle and runner as they ship. ``edge.choice`` judges the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge import config, errors, log, process
from edge.assemble import accuracies, artifact_files, closed, made
from edge.choice import Limits, Variant, choose, excluded
from edge.choice_record import ChoiceRecord, ModelRef, path_beside
from edge.context import Context
from edge.convert.compressed_size import compressed_size
from edge.convert.measure_parity import against_golden
from edge.convert.precision import at_precision, conversion
from edge.job import PENDING, Job
from edge.manifest import model_sha256, samples_sha256
from edge.parity import OutputParity
from edge.prepare import Prepared
from edge.recipe import Recipe
from edge.report import worst
from edge.step import Facts, step
from edge.store import File
from edge.variant_times import ON_DEVICE, Candidate, first_line, measure_times, settings_of

EVERY = ">=0"  # releases of a runtime
TIMES = ("p50_ns", "p50_low_ns", "p50_high_ns", "peak_bytes")
# Of the model, the precision or a converter: others are the host's or the project's.
FAILURES = (
    errors.ModelRefused, errors.ParityFailed, errors.BudgetExceeded, errors.StepFailed,
    errors.RunFailed,
)  # fmt: skip


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


def check(context: Context, target: config.Target, prepared: Prepared, recipe: Recipe) -> None:
    """What could not be made or chosen by anyway, said before any variant is made.

    Raises :class:`errors.ModelRefused` for a precision that the recipe does not make or the
    target's runtime gets wrong, :class:`errors.ConfigError` for a device that is none and for a
    limit on the accuracy of a model without a metric.
    """
    said, name = target.choice, prepared.spec.name
    if target.precision != "auto":
        if why := target.why_broken(target.precision) or recipe.why_not(target.precision):
            raise errors.ModelRefused(
                f"{target.name} cannot run {target.precision} models: {why}",
                remedy="choose another precision" + _or_release(target, recipe, target.precision),
            )
        return
    if said.device:
        settings_of(context, said.device)
    if said.max_drop is not None and not prepared.metric:
        raise errors.ConfigError(
            f"{target.name}: max_drop limits the accuracy of {name}, which has no metric",
            remedy='say accuracy = "module:callable" for the model, or leave max_drop out',
        )


def _or_release(target: config.Target, recipe: Recipe, precision: config.Precision) -> str:
    """The other way out, where another release of the runtime can run the precision."""
    concerned = [each for each in target.broken if each.precision == precision]
    never = any(each.releases == EVERY for each in concerned) or recipe.why_not(precision)
    return "" if never else ", or pin a release that can"


def settle(context: Context, job: Job, prepared: Prepared, recipe: Recipe) -> Settled:
    """The job at the precision that its target asks for, or at the best that its limits allow."""
    target, spec = job.target, job.model
    int8 = target.precision == "int8" or (
        target.precision == "auto" and "int8" in (target.choice.candidates or config.PRECISIONS)
    )
    if int8 and context.measures and not (spec.calibration or spec.samples):
        log.warn(
            f"model {spec.name}: int8 is calibrated on {spec.sample_count} seeded random samples; "
            "give real inputs: samples or calibration of the model"
        )
    if target.precision != "auto":
        return Settled(replace(job, precision=target.precision))
    names = target.choice.candidates or config.PRECISIONS
    _refuse_unrunnable(job, recipe)
    found = [_candidate(job, prepared, recipe, name) for name in names]
    variants = [each.variant for each in found]
    if not context.measures:
        return _foreseen(context, job, prepared, variants)
    device, variants, noisy = measure_times(context, job, found)
    settled = _chosen(job, prepared, variants, (device, noisy))
    _tell(settled)
    return settled


def _refuse_unrunnable(job: Job, recipe: Recipe) -> None:
    """A recipe whose artifacts no host runs says so of one that is not made yet, too."""
    dry = replace(job, steps=replace(job.steps, dry=True, used=[], made=[]))
    if recipe.run(dry, File(Path("artifact"), PENDING, 0)) is None:
        raise _unrunnable(job, "its artifacts do")


def _unrunnable(job: Job, what: str) -> errors.ConfigError:
    return errors.ConfigError(
        f"target {job.target.name}: auto cannot choose, {what} not run here",
        remedy="name a precision",
    )


def _tell(settled: Settled) -> None:
    choice, where = settled.choice, f"{settled.job.target.name}/{settled.job.model.name}"
    if not choice:
        return
    for each in choice.variants:
        if each.state == "failed":
            log.say(f"  {where}: {each.precision}: {each.why}")
    for warning in choice.warnings:
        log.warn(f"{where}: {warning}")
    if choice.chosen:
        log.say(f"  {where}: {choice.chosen} is chosen of {len(choice.variants)}")


def _foreseen(context: Context, job: Job, prepared: Prepared, variants: list[Variant]) -> Settled:
    """What a build would choose, without measuring: by the times that the last one took.

    Unknown in a dry run, and with it all that follows, where a variant would be made again.
    """
    unknown = Settled(replace(job, canonical=File(job.canonical.path, PENDING, 0)))
    unscored = prepared.metric and any(
        each.state == "made" and each.accuracy is None for each in variants
    )
    if unscored or any(each.sha256 == PENDING for each in variants):
        return unknown
    try:
        last = ChoiceRecord.read(path_beside(context.request.folder(job.model, job.target)))
    except errors.StoreDamaged:
        return unknown if context.dry else _chosen(job, prepared, variants, (None, ()))
    known = {each.sha256: each for each in last.variants if each.sha256}
    timed = [_as_before(each, known.get(each.sha256)) for each in variants]
    return _chosen(job, prepared, timed, (last.device, last.warnings))


def _as_before(variant: Variant, last: Variant | None) -> Variant:
    """With the times of the last build; what a device refused then it refuses still."""
    if last is None or variant.state != "made":
        return variant
    times: dict[str, Any] = {name: getattr(last, name) for name in TIMES}
    if last.state == "failed" and last.why.startswith(ON_DEVICE):
        times |= {"state": "failed", "why": last.why}
    return replace(variant, **times)


def _candidate(
    job: Job, prepared: Prepared, recipe: Recipe, precision: config.Precision
) -> Candidate:
    """One variant, with all figures that need no clock.

    What the model or the precision does not allow is a variant that failed; what this host or
    the project lacks is an error of the whole.
    """
    # Its own record of steps: the manifest of the chosen one says nothing of the others.
    mine = replace(job, precision=precision, steps=replace(job.steps, used=[*job.steps.used]))
    if why := job.target.why_broken(precision) or recipe.why_not(precision):
        return Candidate(Variant(precision, "broken", why))
    try:
        if not recipe.precisions:
            _convert(mine)
        (ready,), (closure,) = closed(recipe, [mine])
        variant = _measured(recipe, ready, prepared)
        # A runtime that is built for its models would be built for each variant.
        whole = variant.state == "made" and variant.sha256 != PENDING and not job.making
        return Candidate(variant, made(recipe, ready, prepared, closure) if whole else None)
    except FAILURES as error:
        process.refuse_when_stopping()
        return Candidate(Variant(precision, "failed", f"could not be made: {first_line(error)}"))


def _convert(job: Job) -> None:
    """Convert the model to the job's precision; that it cannot be is remembered.

    A search for the nodes that int8 has to give back takes minutes before it fails.
    """
    wanted = conversion(job)
    if wanted is None:
        return
    converts, arguments = wanted
    version = {"step": converts.name, "version": converts.version}
    given = {**arguments, "conversion": version, "why": ""}
    known = replace(job.steps, dry=True, used=[]).run(refused, given)
    if known.key != PENDING:
        raise errors.ModelRefused(known.facts["why"])
    try:
        at_precision(job)
    except (errors.ModelRefused, errors.ParityFailed) as error:
        replace(job.steps, used=[]).run(refused, {**given, "why": first_line(error)})
        raise


@step(version=1, tools=("onnx", "onnxruntime", "numpy"), isolated=False, aside=("why",))
def refused(out: Path, *, conversion: dict[str, Any], why: str, **arguments: Any) -> Facts:
    """That a conversion with these arguments is not possible, and why: facts ``why``."""
    del out, conversion, arguments
    return {"why": why}


def _measured(recipe: Recipe, job: Job, prepared: Prepared) -> Variant:
    """Size, parity and accuracy. Outside a tolerance that is no limit of the choice, it failed.

    Raises :class:`errors.ConfigError` where this host cannot run the artifact.
    """
    artifact = job.built()
    sizes = [job.step(compressed_size, file=f.source).facts for f in artifact_files(artifact)]
    ran = recipe.run(job, artifact)
    if ran is None:
        raise _unrunnable(job, f"{artifact.path.name} does")
    found = against_golden(job, ran, job.tolerance)
    outputs = [
        OutputParity.from_json({key: value for key, value in each.items() if key != "sample"})
        for each in found.facts["outputs"] or ()
    ]
    max_abs, sqnr_db = worst(outputs)
    least = job.target.choice.min_sqnr
    limited = least is not None and sqnr_db is not None and sqnr_db < least
    reasons = [] if limited else list(found.facts["reasons"] or ())
    accuracy = accuracies(recipe, job, prepared, artifact)
    return Variant(
        job.precision,
        "failed" if reasons else "made",
        f"outside the tolerance: {reasons[0]}" if reasons else "",
        artifact_raw=_sum(sizes, "raw"),
        artifact_compressed=_sum(sizes, "compressed"),
        sqnr_db=sqnr_db,
        max_abs=max_abs,
        accuracy=accuracy.artifact,
        drop=accuracy.drop,
        sha256=artifact.sha256,
    )


def _sum(sizes: Sequence[Mapping[str, Any]], kind: str) -> int | None:
    """None in a dry run."""
    found = [size[kind] for size in sizes]
    return None if None in found else sum(found)


# -------------------------------------------------------------------------------- choice
def _chosen(
    job: Job,
    prepared: Prepared,
    variants: list[Variant],
    timed: tuple[str | None, tuple[str, ...]],
) -> Settled:
    """The choice by all figures; ``timed``: by which device, and what is to be said of that."""
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
            device=timed[0],
            source_accuracy=prepared.metric.source if prepared.metric else None,
            metric=job.model.accuracy,
        )

    try:
        decision = choose(variants, limits, target=where)
    except errors.BudgetExceeded as refusal:
        return Settled(job, record(excluded(variants, limits), None), refusal)
    name = next(each for each in config.PRECISIONS if each == decision.chosen.precision)
    choice = record(decision.reasons, name, *dict.fromkeys((*decision.warnings, *timed[1])))
    return Settled(replace(job, precision=name), choice)
