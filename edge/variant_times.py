"""Variants timed on a device: brought there as the bundles that they are, proven, run in turns."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge import bundle, config, deploy, errors, field, log, process, runners
from edge.assemble import Made
from edge.bench import BenchOptions, Release
from edge.choice import Variant
from edge.context import Context
from edge.devices import Device, DeviceSettings, open_device
from edge.job import Job
from edge.manifest import digest
from edge.probe import DeviceFacts
from edge.project import devices_of
from edge.rounds import Timing, interleaved
from edge.step import Facts, step
from edge.store import key_of

# Of each variant in each round, beside the project's own [bench]: medians do with less than a
# benchmark, and six variants of a slow model would take half an hour.
ROUND_SECONDS, ROUND_RUNS, ROUND_LIMIT = 1.0, 30, 10.0
ON_DEVICE = "on the device "


@dataclass(frozen=True)
class Candidate:
    """A variant, and its bundle where it could be run."""

    variant: Variant
    bundle: Made | None = None


def measure_times(
    context: Context, job: Job, found: Sequence[Candidate]
) -> tuple[str | None, list[Variant], tuple[str, ...]]:
    """Device and variants with times, and what is to be said of them; no device: not timed."""
    variants = [each.variant for each in found]
    ready = {each.variant.precision: each.bundle for each in found if each.bundle}
    built = {name: each for name, each in ready.items() if each.manifest["state"] == "built"}
    where, name = f"{job.target.name}/{job.model.name}", job.target.choice.device or "local"
    if not built:
        why = "its runtime is built for what is chosen" if job.making else "there is no bundle"
        log.say(f"  {where}: times are not measured: {why}")
        return None, variants, ()
    # One measurement at a time: two would disturb each other, and share a name on the device.
    alone = context.store.locked(key_of({"times on": name}))
    with alone, open_device(settings_of(context, name)) as device:
        manifest = next(iter(built.values())).manifest
        try:
            facts = runners.ready(device, manifest).facts
        except (errors.Unavailable, errors.UsageError) as error:
            if job.target.choice.device or isinstance(error, errors.DeviceUnreachable):
                raise
            log.say(f"  {where}: times are not measured here: {first_line(error)}")
            return None, variants, ()
        options = _options(context.request.project.bench, manifest, device.settings)
        taken = context.steps().run(
            time_variants,
            {
                "bundles": {name: digest(each.manifest) for name, each in built.items()},
                "machine": _machine(name, facts),
                # Where compiled models lie there changes no time.
                "options": asdict(replace(options, cache="")),
                "run": lambda out: _run(device, built, options, out.parent),
            },
            title=f"{where}: times on {name}",
        )
    timed = [_with_time(each, taken.facts["times"].get(each.precision), name) for each in variants]
    return name, timed, tuple(taken.facts["noisy"])


@step(version=1, isolated=False, aside=("run",))
def time_variants(
    out: Path,
    *,
    bundles: dict[str, str],
    machine: list[Any],
    options: dict[str, Any],
    run: Callable[[Path], Facts],
) -> Facts:
    """Facts ``times``: by precision, p50 with its interval (ns), peak memory (bytes), or ``error``.

    Kept like any result: the same bundles on the same machine are not measured again, so a build
    that has nothing to do stays one. ``bundles`` are digests of manifests; ``noisy`` says which
    measurements were disturbed, and how.
    """
    del bundles, machine, options  # what the times hold for
    return run(out)


def settings_of(context: Context, name: str) -> DeviceSettings:
    """A device of devices.toml; :class:`errors.ConfigError` for one that is not there."""
    known = devices_of(context.request.base / "edge.toml")
    if name not in known:
        raise errors.ConfigError(
            f"[choice] names the device {name!r}, which devices.toml does not have",
            remedy=errors.did_you_mean(name, sorted(known)),
        )
    return field.settings(name, known[name], context.request.base)


def _machine(name: str, facts: DeviceFacts) -> list[Any]:
    """What makes times of another machine others."""
    gpus = [f"{gpu.name} {gpu.driver}" for gpu in facts.gpus]
    return [name, facts.cpu_model, facts.arch, facts.cores, facts.os_release, *gpus]


def _options(
    said: config.BenchSpec, manifest: Mapping[str, Any], where: DeviceSettings
) -> BenchOptions:
    values = said.model_dump() | {
        "iterations": min(said.iterations, ROUND_RUNS),
        "min_seconds": min(said.min_seconds, ROUND_SECONDS),
        "max_seconds": min(said.max_seconds, ROUND_LIMIT),
    }
    return field.bench_options(manifest, where, **values)


def _run(device: Device, built: Mapping[str, Made], options: BenchOptions, scratch: Path) -> Facts:
    """Bring every bundle under a name of its own, prove it there, time all in turns, remove them.

    Bundles of that name are nobody's: a deploy meanwhile neither collects nor keeps them.
    """
    failed: dict[str, str] = {}
    releases: dict[str, Release] = {}
    with tempfile.TemporaryDirectory(prefix="work-", dir=scratch) as place:
        called = ""
        try:
            for name, each in built.items():
                folder = Path(place, name)
                bundle.write(folder, each.files, each.manifest)
                what = field.Bundle(folder, each.manifest, digest(each.manifest))
                called = f"{what.name}.variants"
                try:
                    _, releases[name], _ = field.install(
                        device, what, options, activate=False, name=called
                    )
                except (errors.ParityFailed, errors.DeployFailed) as error:
                    process.refuse_when_stopping()
                    failed[name] = first_line(error)
            timings, crashed = interleaved(device, releases, options)
        finally:
            gone = [each.folder.rpartition("/")[2] for each in releases.values()]
            if gone:
                with contextlib.suppress(errors.EdgeError):
                    deploy.remove(device, called, gone)
    failed |= crashed
    disturbed = [
        f"{name} ({timing.verdict.kind})" for name, timing in timings.items() if not timing.verdict
    ]
    noisy = [f"the times were disturbed: {', '.join(disturbed)}"] if disturbed else []
    times: Facts = {name: {"error": why} for name, why in failed.items()}
    times |= {name: _figures(timing) for name, timing in timings.items()}
    return {"times": times, "noisy": noisy}


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
        return replace(variant, state="failed", why=f"{ON_DEVICE}{device}: {why}")
    return replace(variant, **facts)


def first_line(error: errors.EdgeError) -> str:
    """What a table has room for."""
    return error.message.splitlines()[0]
