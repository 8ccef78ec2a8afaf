"""An app's bundle on a Mac, or on a phone behind it: brought, built there, every way measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edge import bench, bench_apple, config, deploy, errors, field, log, probe, results
from edge.bench_apple import Taken
from edge.deploy import lock, scripts
from edge.devices import Device
from edge.field import Bundle, record
from edge.tools import xcode_build

RUNNER = "swift"
SYSTEM = "darwin"
LEASE = 7200  # seconds after which an owner on another machine, who said nothing, is given up


@dataclass(frozen=True)
class Measured:
    """The records of all ways that could be measured, with their loops, and what went wrong.

    ``troubles`` are not those ways that the device does not have, unless they were asked for.
    """

    records: tuple[tuple[results.Record, bench.Measurement], ...]
    troubles: tuple[errors.EdgeError, ...]


def measured(
    device: Device,
    what: Bundle,
    spec: config.DeviceSpec,
    options: bench.BenchOptions,
    runner: str,
    providers: Sequence[str],
) -> Measured:
    """Any bundle, measured: each of its ways, or of these ``providers``; most have but one.

    Raises what :func:`measure` and ``field.measure`` do.
    """
    if bench_apple.has_ways(what.manifest):
        return measure(device, what, spec, options, runner=runner, providers=providers)
    if set(providers) - {options.provider}:
        raise errors.UsageError(
            f"the bundle {what.name} is run by {options.provider} alone",
            remedy="leave --provider out, or build a target for the other one",
        )
    return Measured((field.measure(device, what, options, runner),), ())


def measure(
    device: Device,
    what: Bundle,
    spec: config.DeviceSpec,
    options: bench.BenchOptions,
    *,
    runner: str = "",
    providers: Sequence[str] = (),
) -> Measured:
    """Bring an app's bundle, build its runner there, and check and time each way.

    On the phone that ``spec`` names, else on the Mac itself. ``providers``: these ways alone.
    Raises :class:`errors.Unavailable` where the device is no Mac or has no such phone, and what
    went wrong first where no way could be measured.
    """
    chosen = bench_apple.ways(what.manifest, providers)
    if runner not in ("", RUNNER):
        raise errors.UsageError(f"the bundle {what.name} has no runner {runner}; it has: {RUNNER}")
    facts = probe.probe(device)
    _needs_a_mac(device.settings.name, facts)
    _needs_a_runtime_for_it(what, spec)
    if options.cache:
        device.make_folder(options.cache)
    with alone(device):
        spot, found, context = _spot(device, what, spec, facts)
        taken = bench_apple.measure(spot, chosen, what.golden, context, options)
    return _measured(device.settings.name, what, found, taken, asked=bool(providers))


@contextlib.contextmanager
def alone(mac: Device) -> Iterator[None]:
    """Nobody else builds or measures with this Mac meanwhile: neither files nor times are theirs.

    Raises :class:`errors.Unavailable` when somebody does, and goes on with it for two minutes.
    """
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(lock.hold(mac, xcode_build.folder(mac.settings), LEASE))
        except lock.Busy as error:
            raise errors.Unavailable(
                f"{mac.settings.name} is building or measuring already (for {error.owner})",
                remedy="wait for it; what an owner left who is gone is taken over after two hours",
            ) from error
        held.run(scripts.STEP)  # measuring runs no steps: from now on it lasts LEASE seconds
        yield


def _needs_a_mac(name: str, facts: probe.DeviceFacts) -> None:
    if facts.os.lower() != SYSTEM:
        raise errors.Unavailable(
            f"the device {name} runs {facts.os or 'an unknown system'}: an app for iOS is built "
            "on a Mac",
            remedy="name a Mac of devices.toml with --device (docs/ios.md says how it is set up)",
        )


def _needs_a_runtime_for_it(what: Bundle, spec: config.DeviceSpec) -> None:
    """A runtime in the bundle has slices for phones and simulators alone."""
    if what.manifest["runtime"].get("slices") and not spec.team:
        raise errors.Unavailable(
            f"the runtime in the bundle {what.name} is for phones and simulators, not for a Mac",
            remedy="build it without --embed-runtime and --runtime, or measure on a phone (team "
            "in devices.toml)",
        )


def _spot(
    device: Device, what: Bundle, spec: config.DeviceSpec, facts: probe.DeviceFacts
) -> tuple[bench_apple.Spot, Mapping[str, Any], bench.Context]:
    """Where it is measured, what that is, and who says its state beside the runner itself."""
    if spec.team:
        phone = bench_apple.find_phone(device, spec.phone)  # before anything is sent
        folder = _bring(device, what)
        spot = bench_apple.on_phone(device, folder, what.digest, phone, spec.team)
        return spot, phone.facts(), dict
    spot = bench_apple.on_mac(device, _bring(device, what), what.digest)
    return spot, asdict(facts), lambda: asdict(probe.context(device))


def _bring(device: Device, what: Bundle) -> str:
    """The bundle's folder there. Nothing is switched to, and each way is proven on its own."""
    with log.step(f"bring {what.name} to {device.settings.name}") as running:
        done = deploy.deploy(device, what.folder, what.name, _later, activate=False)
        sent = f"{log.human_bytes(done.sent_bytes)} of {log.human_bytes(done.total_bytes)} sent"
        running.note = sent
    return done.release_dir


def _later(_device: Device, _folder: str) -> None:
    """The health run is one of each way, once the runner is built."""


def _measured(
    name: str, what: Bundle, facts: Mapping[str, Any], taken: Sequence[Taken], *, asked: bool
) -> Measured:
    lost = {each.way.provider: each.trouble.message for each in taken if each.trouble}
    records = []
    for each in taken:
        if each.measurement:
            made = record(name, what, facts, each.measurement)
            records.append((_completed(made, each, lost), each.measurement))
    if not records:
        raise next(_named(each, each.trouble) for each in taken if each.trouble)
    troubles = [
        _named(each, each.trouble) for each in taken if each.trouble and (asked or not each.absent)
    ]
    return Measured(tuple(records), tuple(troubles))


def _named(each: Taken, trouble: errors.EdgeError) -> errors.EdgeError:
    """Of several ways the one that it is the trouble of."""
    return type(trouble)(f"{each.way.provider}: {trouble.message}", remedy=trouble.remedy)


def _completed(made: results.Record, each: Taken, lost: Mapping[str, str]) -> results.Record:
    """With what is the way's own, and what became of the ways that were tried beside it."""
    options = {**made.options, **each.cold()}
    if each.way.precision:
        options["precision"] = each.way.precision
    if lost:
        options[bench_apple.LOST] = dict(lost)
    return replace(made, sizes=each.way.sizes, options=options)
