"""A bundle on a device: brought there, proven there, measured there.

The same few functions for every kind of device; a device that does not fit the bundle is refused
before anything is sent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge import bench, bundle, config, deploy, errors, log, probe, process, results
from edge.bundle import MANIFEST
from edge.devices import Device, DeviceSettings, open_device
from edge.parity import Tolerance
from edge.report import Built, built
from edge.sources.locate import user_path
from edge.store import default_root, hash_file

# What a device calls its CPU (uname -m), by the name that manifests use.
ARCHITECTURES = {
    "x86_64": ("x86_64", "amd64"),
    "aarch64": ("aarch64", "arm64", "armv8l"),
}


@dataclass(frozen=True)
class Runner:
    """How a bundle's runner is started: ``words`` before the path of ``file`` in the bundle."""

    kind: str
    file: str
    words: tuple[str, ...] = ()


RUNNERS = (
    Runner("c", "runner/edge_runner"),
    Runner("python", "runner/edge_runner.py", ("python3",)),
    Runner("node", "runner/node_runner.mjs", ("node",)),
)


@dataclass(frozen=True)
class Bundle:
    """A bundle on this machine."""

    folder: Path
    manifest: Mapping[str, Any]
    digest: str

    @property
    def name(self) -> str:
        """The bundle's name on devices."""
        return f"{self.manifest['model']['name']}.{self.manifest['target']['name']}"

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
            remedy="run its plan where the tools are, then build again",
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
    )


def choose_runner(what: Bundle, device: Device, kind: str) -> Runner:
    """The runner of that kind, or the bundle's first; one that the bundle lacks is an error."""
    there = {entry["path"] for entry in what.manifest["files"]}
    fitting = [each for each in RUNNERS if each.file in there]
    chosen = [each for each in fitting if kind in ("", each.kind)]
    if not chosen:
        kinds = ", ".join(each.kind for each in fitting) or "none"
        raise errors.UsageError(
            f"the bundle {what.name} has no runner {kind or 'for a shell'}; it has: {kinds}",
            remedy="choose another --runner; apps are run from the bundle's app folder",
        )
    runner = chosen[0]
    if device.settings.kind == "local" and runner.words:
        # This interpreter, and PyPI's node beside it, need not be on the PATH.
        own = sys.executable if runner.kind == "python" else process.which(runner.words[0])
        return Runner(runner.kind, runner.file, (str(own or runner.words[0]),))
    return runner


def refuse_misfit(what: Bundle, facts: probe.DeviceFacts, device: str) -> None:
    """Hold what the device says of itself against what the bundle requires.

    Raises :class:`errors.Unavailable` naming the first thing that does not fit.
    """
    requires = what.manifest["runtime"]["requires"]
    wanted = requires.get("arch")
    if wanted and facts.arch and facts.arch not in ARCHITECTURES.get(wanted, (wanted,)):
        raise errors.Unavailable(
            f"the device {device} has a {facts.arch} CPU; the bundle {what.name} is for {wanted}",
            remedy="deploy a target of that CPU: edge targets",
        )
    flag = requires.get("cpu_flags")
    if flag and facts.cpu_flags and flag not in facts.cpu_flags:
        raise errors.Unavailable(
            f"the CPU of the device {device} lacks {flag}; the bundle {what.name} needs it",
            remedy="deploy a target without that need: edge targets",
        )
    libc, _, version = facts.libc.partition(" ")
    needed = requires.get("glibc")
    if not needed or not libc:
        return
    if libc != "glibc" or _version(version) < _version(needed):
        raise errors.Unavailable(
            f"the device {device} has {facts.libc}; the bundle {what.name} needs glibc {needed}",
            remedy="update the device, or pin an older runtime in the target",
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


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
    :class:`errors.ParityFailed` when the device computes something else; what was active before
    stays so.
    """
    called, where = name or what.name, device.settings.name
    facts = probe.probe(device)
    refuse_misfit(what, facts, where)
    runner = choose_runner(what, device, kind)

    def health(there: Device, folder: str) -> None:
        bench.check(there, folder, _words(runner, folder), _golden(what), what.tolerance, options)

    doing = "deploy" if activate else "bring"
    with log.step(f"{doing} {called} to {where}") as running:
        done = deploy.deploy(device, what.folder, called, health, activate=activate)
        sent = f"{log.human_bytes(done.sent_bytes)} of {log.human_bytes(done.total_bytes)} sent"
        running.note = sent
    folder = done.release_dir
    release = bench.Release(folder, _words(runner, folder), _golden(what), what.tolerance)
    return done, release, facts


def _words(runner: Runner, folder: str) -> tuple[str, ...]:
    return (*runner.words, f"{folder}/{runner.file}")


def _golden(what: Bundle) -> Path:
    return what.folder / "samples"


def measure(
    device: Device, what: Bundle, options: bench.BenchOptions, kind: str = ""
) -> tuple[results.Record, bench.Measurement]:
    """Bring what is missing, check, measure; the record is not kept yet.

    The active release stays what it is: measuring is no rollout.
    """
    _, release, facts = install(device, what, options, kind, activate=False)
    taken = bench.bench(device, release, lambda: asdict(probe.context(device)), options)
    if taken.checked.providers:
        shares = ", ".join(f"{count} on {name}" for name, count in taken.checked.providers.items())
        log.say(f"  nodes by provider: {shares}")
    return _record(device.settings.name, what, facts, taken), taken


def _record(
    device: str, what: Bundle, facts: probe.DeviceFacts, taken: bench.Measurement
) -> results.Record:
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
        facts=asdict(facts),
        before=taken.before,
        after=taken.after,
        options={**asdict(taken.options), "providers": dict(taken.checked.providers)},
        sizes=known.sizes,
        load_ns=tuple(run.load_ns for run in taken.runs),
        first_ns=tuple(run.first_ns for run in taken.runs),
        peak_bytes=taken.peak_bytes,
        summary=taken.summary,
        outputs=taken.checked.outputs,
        verdict=taken.verdict,
    )


def options(
    spec: config.BenchSpec,
    what: Bundle,
    said: Mapping[str, float],
    *,
    quick: bool,
    profile: bool,
) -> bench.BenchOptions:
    """The project's ``[bench]``, with what the command line said (0 is nothing) on it."""
    values = {**spec.model_dump(), **{name: value for name, value in said.items() if value}}
    return bench.BenchOptions(
        **values, provider=what.manifest["provider"], quick=quick, profile=profile
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
    memory = log.human_bytes(facts.memory_bytes) if facts.memory_bytes else "?"
    detail = f"{facts.os_release or facts.os}, {facts.arch}, {facts.libc}, {facts.cores} cores"
    return Described(name, where, "ready", f"{detail} {facts.cpu_model}, {memory}")
