"""Bundles onto devices: plan, send what is missing, check there, prove, switch, roll back.

Blobs are kept on the device by their SHA-256, a release is a folder of links to them, and the
active release is what ``current`` points to, replaced by a rename. Whatever is interrupted, the
release that was active stays active, and what had arrived whole is not sent again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge import errors, log
from edge.deploy import files
from edge.deploy.files import Bundle, BundleFile
from edge.deploy.storage import (
    MARGIN,
    Damaged,
    Locked,
    State,
    Unneeded,
    garbage,
    storage_of,
    true_history,
)
from edge.devices.base import Device

KEEP = 3  # releases of a bundle that stay on the device, the active one included

Health = Callable[[Device, str], None]
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,119}")


@dataclass(frozen=True)
class Plan:
    """What deploying a bundle would do; sizes in bytes.

    ``missing`` are the files whose content the device does not have, one a content.
    ``free_bytes`` is None when the device does not say.
    """

    bundle: Bundle
    name: str
    missing: tuple[BundleFile, ...]
    send_bytes: int
    total_bytes: int
    free_bytes: int | None


@dataclass(frozen=True)
class Deployed:
    """What was done. ``release_dir`` is a path on the device, ``previous`` the release before."""

    release_dir: str
    sent_blobs: int
    sent_bytes: int
    total_bytes: int
    previous: str | None


@dataclass(frozen=True)
class Release:
    """A release on the device: ``id`` is the SHA-256 of its manifest."""

    id: str
    folder: str
    current: bool


def plan(device: Device, bundle_dir: Path, name: str) -> Plan:
    """What deploying ``bundle_dir`` as ``name`` would send. Changes nothing on the device.

    Raises :class:`errors.DeployFailed` when the bundle is not what its manifest says.
    """
    bundle = files.read(bundle_dir)
    there = storage_of(device)
    there.refuse(_checked_name(name), bundle)
    return _plan(bundle, name, there.survey(name, space=True))


def send(device: Device, wanted: Plan) -> Plan:
    """Bring the missing blobs of ``wanted`` to the device; returns what was really sent.

    Raises :class:`errors.DeployFailed` when there is no space, and
    :class:`errors.DeviceUnreachable` when the connection breaks: blobs that had arrived whole
    stay and are not sent again.
    """
    with storage_of(device).hold() as held:
        return _send(held, wanted.bundle, wanted.name)[0]


def deploy(
    device: Device, bundle_dir: Path, name: str, health: Health, *, activate: bool = True
) -> Deployed:
    """Send, check, prove with ``health`` and switch; then remove releases beyond ``KEEP``.

    Without ``activate`` nothing is switched: the release lies there until the next deploy.

    ``health`` is called with the device and the new release's folder there, before anything is
    switched. When it raises an :class:`errors.EdgeError`, the release that was active stays so
    and the deploy ends with the same :class:`errors.GateFailed`, or with
    :class:`errors.DeployFailed` for what is no gate's verdict.
    """
    bundle = files.read(bundle_dir)
    there = storage_of(device)
    there.refuse(_checked_name(name), bundle)
    with there.hold() as held:
        sent, state = _send(held, bundle, name)
        sent = _assemble(held, sent)
        release_dir = _release_dir(held.folder, name, bundle.release)
        try:
            _prove(device, release_dir, health)
        except BaseException:
            _discard(held, name, bundle.release, state)
            raise
        if activate:
            _switch(held, name, (*state.history, bundle.release))
    previous = state.history[-1] if state.history else None
    return Deployed(release_dir, len(sent.missing), sent.send_bytes, bundle.total_bytes, previous)


def rollback(device: Device, name: str) -> Release:
    """Make the release before the active one active again; the one that was active is forgotten.

    Raises :class:`errors.DeployFailed` when there is none or its files are damaged.
    """
    there = storage_of(device)
    with there.hold() as held:
        history = there.survey(_checked_name(name)).history
        if len(history) < 2:
            raise errors.DeployFailed(
                f"{device.settings.name} has no earlier release of {name}",
                remedy="deploy the bundle that you want",
            )
        held.verify(name, history[-2])
        _switch(held, name, history[:-1])
    return Release(history[-2], _release_dir(there.folder, name, history[-2]), current=True)


def remove(device: Device, name: str, wanted: Sequence[str]) -> None:
    """Remove releases of ``name`` that were brought and never switched to; others stay.

    What they alone held is removed with the next deploy that switches.
    """
    there = storage_of(device)
    with there.hold() as held:
        history = there.survey(_checked_name(name)).history
        old = tuple((name, release) for release in wanted if release not in history)
        held.collect(Unneeded(releases=old))


def releases(device: Device, name: str) -> tuple[Release, ...]:
    """The releases of ``name`` on the device that can be rolled back to, the active one first."""
    there = storage_of(device)
    history = there.survey(_checked_name(name)).history
    return tuple(
        Release(one, _release_dir(there.folder, name, one), current=one == history[-1])
        for one in reversed(history)
    )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.UsageError(
            f"{name!r} cannot name a bundle on a device",
            remedy="use letters, digits, dot, dash and underscore, at most 120",
        )
    return name


def _release_dir(folder: str, name: str, release: str) -> str:
    return f"{folder}/bundles/{name}/releases/{release}"


def _plan(bundle: Bundle, name: str, state: State) -> Plan:
    missing = tuple(
        file for digest, file in bundle.blobs.items() if state.blobs.get(digest) != file.size
    )
    size = sum(file.size for file in missing)
    return Plan(bundle, name, missing, size, bundle.total_bytes, state.free_bytes)


def _send(held: Locked, bundle: Bundle, name: str) -> tuple[Plan, State]:
    """Send what is missing now; what a broken transfer left is settled first.

    Returns what was sent and the state before it.
    """
    state = held.prepare(name)
    wanted = _plan(bundle, name, state)
    if wanted.missing:
        _check_space(held.device, wanted, state)
        state_after = held.receive(name, wanted.missing, bundle.folder, state)
        missing = _plan(bundle, name, state_after).missing
        if missing:
            raise errors.DeployFailed(
                f"{len(missing)} of the files did not arrive whole on "
                f"{held.device.settings.name}, the first is {missing[0].path}",
                remedy="deploy again: what arrived whole is not sent again",
            )
    return wanted, state


def _check_space(device: Device, wanted: Plan, state: State) -> None:
    copies = 0 if state.links else wanted.total_bytes
    need = wanted.send_bytes + copies + MARGIN
    if state.free_bytes is not None and need > state.free_bytes:
        raise errors.DeployFailed(
            f"{device.settings.name} has {log.human_bytes(state.free_bytes)} free, the bundle "
            f"needs {log.human_bytes(need)}",
            remedy="free some space there, or set folder of the device to another disk",
        )


def _assemble(held: Locked, sent: Plan) -> Plan:
    """Make the release's folder; blobs that turn out damaged are sent once more."""
    bundle, name = sent.bundle, sent.name
    try:
        held.assemble(name, bundle)
    except Damaged:
        log.warn(f"files on {held.device.settings.name} were damaged and are sent again")
        again, _ = _send(held, bundle, name)
        held.assemble(name, bundle)
        return Plan(
            bundle,
            name,
            (*sent.missing, *again.missing),
            sent.send_bytes + again.send_bytes,
            sent.total_bytes,
            again.free_bytes,
        )
    return sent


def _prove(device: Device, release_dir: str, health: Health) -> None:
    try:
        health(device, release_dir)
    except errors.DeviceUnreachable:
        raise
    except errors.EdgeError as error:
        kind = type(error) if isinstance(error, errors.GateFailed) else errors.DeployFailed
        raise kind(
            f"the health run on {device.settings.name} failed, what was active before stays "
            f"active: {error.message}",
            remedy=error.remedy,
        ) from error


def _discard(held: Locked, name: str, release: str, state: State) -> None:
    """Remove a release that did not prove itself, unless it was one that had."""
    if release not in state.history:
        with contextlib.suppress(errors.EdgeError):
            held.collect(Unneeded(releases=((name, release),)))


def _switch(held: Locked, name: str, history: Sequence[str]) -> None:
    """Make the last of ``history`` active, then remove what no kept release needs."""
    kept = true_history(history, history[-1])[-KEEP:]
    unneeded = garbage(held.switch(name, kept), name, kept)
    if unneeded:
        try:
            held.collect(unneeded)
        except errors.EdgeError as error:
            log.warn(f"old releases on {held.device.settings.name} stay: {error.message}")
