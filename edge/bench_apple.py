"""Measure every way that an iOS bundle can run its model, on a Mac or on a phone behind it.

Each way is one measurement of ``edge.bench`` with a provider of its own. A way that the device
does not have (a runtime without XNNPACK, a system before iOS 16) is told and left out; one that
computes something else than the source is told as that.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge import bench, errors, log, protocol
from edge.devices.base import Device
from edge.parity import Tolerance
from edge.results import Size, Sizes
from edge.tools import xcode, xcode_build
from edge.tools.xcode import Phone
from edge.tools.xcode_phone import PhoneDevice

CPU = "CPUExecutionProvider"
NATIVE = "coreml:"
IN_SYSTEM = Size(0, 0)
ABSENT = f"{protocol.FAILED} (runtime)"  # the stage in which a runner finds that out
# Keys of a record's options, for edge.report_sides: the load that compiled, and by provider why a
# way that was tried beside the recorded one gave no measurement.
COLD = "cold_load_ns"
LOST = "lost"


@dataclass(frozen=True)
class Way:
    """A provider, what its model and runtime take, and what its outputs are held to.

    ``precision``: where its model has another one than the bundle's.
    """

    provider: str
    sizes: Sizes
    tolerance: Tolerance
    precision: str = ""

    @property
    def profiled(self) -> bool:
        """Whether the health run counts the nodes that the provider took."""
        return self.provider != CPU and not self.provider.startswith(NATIVE)


@dataclass(frozen=True)
class Taken:
    """What became of a way: its measurement, or why there is none."""

    way: Way
    measurement: bench.Measurement | None
    trouble: errors.EdgeError | None = None

    @property
    def absent(self) -> bool:
        """Whether the device just does not have this way: its runtime or system is without it."""
        return self.trouble is not None and self.trouble.message.startswith(ABSENT)

    def cold(self) -> dict[str, int]:
        """For a record's options: the load that compiled, which is the health run's.

        Those that are timed find what it kept. Empty where it found something itself.
        """
        run = self.measurement.checked.run if self.measurement else None
        return {COLD: run.load_ns} if run and run.cached is False else {}


@dataclass(frozen=True)
class Spot:
    """Where ways are measured: a device of ``edge.bench``, its runner's words, the bundle there.

    For an app on a phone the runner is any word and the folder any name. ``program``: what was
    built there with ONNX Runtime linked in, whose size is the runtime's as an app has it.
    """

    device: bench.Device
    runner: tuple[str, ...]
    folder: str
    program: Size | None = None


def on_mac(mac: Device, release: str, digest: str) -> Spot:
    """The Mac itself: the runner is built there, of the release that lies there."""
    place = xcode_build.prepare(mac, release, digest)
    tool = xcode_build.tool(mac, place)
    return Spot(mac, (tool,), place.bundle, _linked(mac, tool))


def find_phone(mac: Device, wanted: str) -> Phone:
    """The phone of that name behind the Mac, without a name the only one that can be used.

    Raises :class:`errors.Unavailable` where there is no such phone.
    """
    place = xcode_build.folder(mac.settings)
    mac.make_folder(place)
    return xcode.choose(xcode.phones(mac, place), wanted, mac.settings.name)


def on_phone(mac: Device, release: str, digest: str, phone: Phone, team: str) -> Spot:
    """A phone behind the Mac: the app is built there and installed."""
    place = xcode_build.prepare(mac, release, digest)
    app = xcode_build.app(mac, place, phone, team)
    program = _linked(mac, xcode_build.app_program(place))
    return Spot(PhoneDevice(mac, place, phone, app), (app,), "bundle", program)


def _linked(mac: Device, program: str) -> Size | None:
    found = xcode_build.size(mac, program)
    return Size(*found) if found else None


def has_ways(manifest: Mapping[str, Any]) -> bool:
    """Whether it is the manifest of a bundle whose model has several ways to be run."""
    coreml = manifest["runtime"].get("coreml")
    return isinstance(coreml, dict) and bool(coreml.get("ways"))


def ways(manifest: Mapping[str, Any], wanted: Sequence[str] = ()) -> tuple[Way, ...]:
    """The ways of an ``ios`` bundle, all or those of the providers ``wanted``.

    Raises :class:`errors.UsageError` for a bundle that has none, or not that one.
    """
    coreml = manifest["runtime"].get("coreml")
    known = coreml.get("ways") if isinstance(coreml, dict) else None
    if not isinstance(known, list) or not known:
        raise errors.UsageError(
            "the bundle does not say how its model can be run on Apple's systems",
            remedy="build it again: edge build --target ios",
        )
    missing = [name for name in wanted if name not in known]
    if missing:
        raise errors.UsageError(
            f"the bundle cannot be run by {missing[0]}",
            remedy=errors.did_you_mean(missing[0], known),
        )
    return tuple(_way(manifest, coreml, name) for name in wanted or known)


def _way(manifest: Mapping[str, Any], coreml: Mapping[str, Any], name: str) -> Way:
    runtime = _size(manifest["sizes"]["runtime"])
    tolerance = Tolerance(**manifest["tolerance"])
    if name == CPU:
        return Way(name, _sizes(manifest["sizes"]["artifact"], runtime), tolerance)
    if name.startswith(NATIVE):
        native = coreml["native"]
        limits = Tolerance(**native["tolerance"])
        made_at = str(native.get("precision", native.get("compute_precision", "")))
        return Way(name, _sizes(native["size"], IN_SYSTEM), limits, made_at)
    return Way(name, _sizes(coreml["provider"]["size"], runtime), tolerance)


def _size(entry: Mapping[str, Any] | None) -> Size | None:
    return None if entry is None else Size(int(entry["raw"]), int(entry["compressed"]))


def _sizes(artifact: Mapping[str, Any], runtime: Size | None) -> Sizes:
    return _whole(Size(int(artifact["raw"]), int(artifact["compressed"])), runtime)


def _whole(model: Size, runtime: Size | None) -> Sizes:
    both = None
    if runtime is not None:
        both = Size(model.raw + runtime.raw, model.compressed + runtime.compressed)
    return Sizes(model, runtime, both)


def measure(
    spot: Spot,
    chosen: Sequence[Way],
    golden: Path,
    context: bench.Context,
    options: bench.BenchOptions,
) -> list[Taken]:
    """Check and time each way in turn; one that fails does not end the others.

    A device that is gone ends them: what was measured before that is whole, and is kept.
    """
    taken: list[Taken] = []
    for way in (_with_runtime(each, spot.program) for each in chosen):
        log.say(f"{way.provider}:")
        release = bench.Release(spot.folder, spot.runner, golden, way.tolerance)
        try:
            taken.append(Taken(way, _one(spot.device, way, release, context, options)))
        except (errors.DeviceUnreachable, errors.RunFailed, errors.ParityFailed) as error:
            log.warn(f"{way.provider}: {error.message}")
            taken.append(Taken(way, None, error))
            if isinstance(error, errors.DeviceUnreachable):
                break
    return taken


def _with_runtime(way: Way, program: Size | None) -> Way:
    """With the size of the runtime as it was linked, where the bundle does not say one."""
    if way.sizes.runtime is not None or program is None:
        return way
    return replace(way, sizes=_whole(way.sizes.artifact, program))


def _one(
    device: bench.Device,
    way: Way,
    release: bench.Release,
    context: bench.Context,
    options: bench.BenchOptions,
) -> bench.Measurement:
    with _cache(device, options.cache) as cache:
        asked = replace(
            options, provider=way.provider, least_nodes=0.0, least_time=0.0, cache=cache,
            profile=options.profile and way.profiled,
        )  # fmt: skip
        found = bench.bench(device, release, context, asked)
    return replace(found, options=replace(found.options, cache=options.cache))


@contextlib.contextmanager
def _cache(device: bench.Device, place: str) -> Iterator[str]:
    """A folder below ``place`` for one way, so that its first load is one that compiles.

    Of the same model another way, or the measurement before, has left what this one would find.
    """
    own = f"{place}/bench-{secrets.token_hex(4)}" if place else ""
    if own:
        device.make_folder(own)
    try:
        yield own
    finally:
        with contextlib.suppress(errors.EdgeError):
            if own:
                device.remove_folder(own)
