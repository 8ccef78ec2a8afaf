"""A bundle on a device: brought there, proven there, measured there.

The same few functions for every kind of device; a device that does not fit the bundle is refused
before anything is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge import (
    bench,
    bundle,
    config,
    deploy,
    errors,
    log,
    misfit,
    placement,
    probe,
    results,
    runners,
)
from edge.bundle import MANIFEST
from edge.devices import Device, DeviceSettings, open_device
from edge.devices.base import device_path
from edge.parity import Tolerance
from edge.report import Built, built
from edge.runners import Runner
from edge.sources.locate import user_path
from edge.store import default_root, hash_file

CACHE = "cache"  # below a device's folder: compiled models and engines, by their content


@dataclass(frozen=True)
class Bundle:
    """A bundle on this machine."""

    folder: Path
    manifest: Mapping[str, Any]
    digest: str

    @property
    def name(self) -> str:
        """The bundle's name on devices."""
        return misfit.called(self.manifest)

    @property
    def golden(self) -> Path:
        """Its golden samples."""
        return self.folder / "samples"

    @property
    def precision(self) -> str:
        """What its artifact was made at."""
        return str((self.manifest.get("precision") or {}).get("made", ""))

    @property
    def tolerance(self) -> Tolerance:
        """The target's tolerance."""
        return Tolerance(**self.manifest["tolerance"])


def read(folder: Path) -> Bundle:
    """The bundle in ``folder``; planned ones are refused. Deploying checks its files."""
    manifest = bundle.read_manifest(folder)
    if manifest["state"] != "built":
        raise errors.UsageError(
            f"the bundle {folder} is planned, not built: {', '.join(manifest['planned'])}",
            remedy="edge build --on a device of devices.toml that has the tools; what was made by "
            "hand from plan/ stays outside the bundle",
        )
    return Bundle(folder, manifest, hash_file(folder / MANIFEST)[0])


def settings(name: str, spec: config.DeviceSpec, base: Path) -> DeviceSettings:
    """A device of ``devices.toml`` as the device layer takes it.

    ``~`` is this machine's home; relative paths of files start at ``base``, the project's folder.
    Bundles deployed to this machine lie in the store's folder unless the file says otherwise.
    """

    def path(text: str | None) -> Path | None:
        return base / user_path(text) if text else None

    local = spec.kind == "local"
    return DeviceSettings(
        name=name,
        kind=spec.kind,
        folder=spec.folder or str(default_root() / "device" if local else "edgewright"),
        host=spec.host,
        port=spec.port,
        user=spec.user,
        identity_file=path(spec.identity_file),
        known_hosts=path(spec.known_hosts),
        ssh_config=path(spec.ssh_config),
        connect_timeout=spec.connect_timeout,
        os=spec.os,
        python=spec.python,
    )


def install(
    device: Device,
    what: Bundle,
    options: bench.BenchOptions,
    kind: str = "",
    *,
    activate: bool = True,
    name: str = "",
) -> tuple[deploy.Deployed, bench.Release, probe.DeviceFacts]:
    """Deploy a bundle, proven by a health run on its golden samples; nothing is sent twice.

    ``name`` is what it is called there (default: the bundle's own). Raises
    :class:`errors.Unavailable` for a device that cannot run it, before anything is sent, and
    :class:`errors.ParityFailed` when the device computes something else; what was active before
    stays so.
    """
    called, where = name or what.name, device.settings.name
    ready = runners.ready(device, what.manifest, kind)
    runner = ready.runner
    if options.cache:
        device.make_folder(options.cache)

    def health(there: Device, folder: str) -> None:
        bench.check(there, folder, _words(runner, folder), what.golden, what.tolerance, options)

    doing = "deploy" if activate else "bring"
    with log.step(f"{doing} {called} to {where}") as running:
        done = deploy.deploy(device, what.folder, called, health, activate=activate)
        sent = f"{log.human_bytes(done.sent_bytes)} of {log.human_bytes(done.total_bytes)} sent"
        running.note = sent
    folder = done.release_dir
    release = bench.Release(folder, _words(runner, folder), what.golden, what.tolerance)
    return done, release, ready.facts


def _words(runner: Runner, folder: str) -> tuple[str, ...]:
    return (*runner.words, f"{folder}/{runner.file}")


def measure(
    device: Device, what: Bundle, options: bench.BenchOptions, kind: str = ""
) -> tuple[results.Record, bench.Measurement]:
    """Bring what is missing, check, measure; the record is not kept yet.

    The active release stays what it is: measuring is no rollout.
    """
    _, release, facts = install(device, what, options, kind, activate=False)
    taken = bench.bench(device, release, lambda: asdict(probe.context(device)), options)
    if taken.checked.providers:
        log.say(f"  nodes by provider: {placement.text(taken.checked.providers)}")
    if not taken.deterministic:
        log.say("  outputs differ from process to process; those of the first were checked")
    return record(device.settings.name, what, asdict(facts), taken), taken


def record(
    device: str, what: Bundle, facts: Mapping[str, Any], taken: bench.Measurement
) -> results.Record:
    """A measurement for the database: of the bundle ``what``, on a device that is ``facts``."""
    known = built(what.manifest, what.digest)
    env = taken.checked.run.env
    return results.Record(
        id=results.new_id(),
        created=results.now(),
        model=known.model,
        samples_sha256=known.samples_sha256,
        target=known.target,
        manifest_sha256=what.digest,
        device=device,
        runner=env.runner,
        runtime=f"{env.runtime} {env.version}",
        facts=facts,
        before=taken.before,
        after=taken.after,
        options={"precision": what.precision, **_options(taken)},
        sizes=known.sizes,
        load_ns=tuple(run.load_ns for run in taken.runs),
        first_ns=tuple(run.first_ns for run in taken.runs),
        peak_bytes=taken.peak_bytes,
        summary=taken.summary,
        outputs=taken.checked.outputs,
        verdict=taken.verdict,
    )


def _options(taken: bench.Measurement) -> dict[str, Any]:
    """What was asked of the runner, and how it did that."""
    return {
        **asdict(taken.options),
        "providers": placement.to_json(taken.checked.providers),
        "gpu": taken.checked.run.env.gpu,
        "deterministic": taken.deterministic,
        "cached": [run.cached for run in taken.runs],
    }


def options(
    spec: config.BenchSpec,
    what: Bundle,
    where: DeviceSettings,
    said: Mapping[str, float],
    *,
    quick: bool,
    profile: bool,
) -> bench.BenchOptions:
    """The project's ``[bench]``, with what the command line said (0 is nothing) on it."""
    values = {**spec.model_dump(), **{name: value for name, value in said.items() if value}}
    return bench_options(what.manifest, where, **values, quick=quick, profile=profile)


def bench_options(
    manifest: Mapping[str, Any], where: DeviceSettings, **values: Any
) -> bench.BenchOptions:
    """What a bundle says of its measurement, beside the options ``values``.

    Its provider, how far the runner optimizes the graph for it, the least share of nodes and
    time that it must run, and the folder on the device where what was compiled is kept.
    """
    cache = f"{device_path(where.folder)}/{CACHE}" if manifest.get("cache") else ""
    least = manifest.get("placement") or {}
    return bench.BenchOptions(
        **values,
        provider=manifest["provider"],
        optimization=manifest["runtime"].get("online_optimization", "disabled"),
        least_nodes=least.get("least_nodes", 1.0),
        least_time=least.get("least_time", 1.0),
        cache=cache,
    )


def built_bundles(folder: Path) -> list[Built]:
    """What the manifests below ``folder`` (MODEL/VERSION/TARGET) say of sizes."""
    found = []
    for path in sorted(folder.glob(f"*/*/*/{MANIFEST}")):
        if not path.parent.name.startswith("."):
            digest = hash_file(path)[0]
            found.append(built(bundle.read_manifest(path.parent), digest))
    return found


@dataclass(frozen=True)
class Described:
    """A device for the list: ``exit_code`` 0 when it answered."""

    name: str
    where: str
    state: str
    detail: str
    exit_code: int = 0


def describe(name: str, spec: config.DeviceSpec, base: Path) -> Described:
    """Connect and ask; a device that cannot be reached is a line and not the end."""
    where = "this machine" if spec.kind == "local" else f"ssh {spec.host}"
    try:
        with open_device(settings(name, spec, base)) as device:
            facts = probe.probe(device)
    except errors.EdgeError as error:
        return Described(name, where, "unreachable", error.message, error.exit_code)
    return Described(name, where, "ready", _detail(facts))


def _detail(facts: probe.DeviceFacts) -> str:
    memory = log.human_bytes(facts.memory_bytes) if facts.memory_bytes else "?"
    system = ", ".join(filter(None, (facts.os_release or facts.os, facts.arch, facts.libc)))
    return f"{system}, {facts.cores} cores {facts.cpu_model}, {memory}{_gpus(facts)}"


def _gpus(facts: probe.DeviceFacts) -> str:
    """The device's GPUs for the list, equal ones once; what is wrong where none answers."""
    if not facts.gpus:
        return f", no GPU: {facts.gpu_trouble}" if facts.gpu_trouble else ""
    counts = Counter(facts.gpus)
    said = [f"{count} x {gpu.name}" if count > 1 else gpu.name for gpu, count in counts.items()]
    driver = facts.gpus[0].driver
    return f", {', '.join(said)}" + (f" (driver {driver})" if driver else "")
