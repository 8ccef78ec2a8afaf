"""Bundles onto devices: plan, send what is missing, check there, prove, switch, roll back.

Blobs are kept on the device by their SHA-256, a release is a folder of links to them, and the
active release is what ``current`` points to, replaced by a rename. Whatever is interrupted, the
release that was active stays active, and what had arrived whole is not sent again.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge import errors, log, probe
from edge.deploy import files, scripts
from edge.deploy.files import Bundle, BundleFile
from edge.deploy.lock import STEP_TIMEOUT, Damaged, Held, hold
from edge.devices.base import IDLE, Device, device_path

KEEP = 3  # releases of a bundle that stay on the device, the active one included
MARGIN = 2**20  # bytes that must stay free
SLOWEST = 10_000  # bytes a second: the deadline of a transfer allows for this
SLOWEST_HASH = 5_000_000  # bytes a second in which a device hashes and its card flushes

Health = Callable[[Device, str], None]
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,119}")
_HASH = re.compile(r"[0-9a-f]{64}")


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


@dataclass(frozen=True)
class State:
    """What a device answered: sizes of blobs by hash, the history with the active one last."""

    blobs: dict[str, int]
    history: tuple[str, ...]
    free_bytes: int | None
    links: bool
    tar: bool
    hashes: bool


def plan(device: Device, bundle_dir: Path, name: str) -> Plan:
    """What deploying ``bundle_dir`` as ``name`` would send. Changes nothing on the device.

    Raises :class:`errors.DeployFailed` when the bundle is not what its manifest says.
    """
    bundle = files.read(bundle_dir)
    return _plan(bundle, _checked_name(name), _survey(device, name))


def send(device: Device, wanted: Plan) -> Plan:
    """Bring the missing blobs of ``wanted`` to the device; returns what was really sent.

    Raises :class:`errors.DeployFailed` when there is no space, and
    :class:`errors.DeviceUnreachable` when the connection breaks: blobs that had arrived whole
    stay and are not sent again.
    """
    with hold(device) as held:
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
    with hold(device) as held:
        sent, state = _send(held, bundle, _checked_name(name))
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
    with hold(device) as held:
        history = _survey(device, _checked_name(name)).history
        if len(history) < 2:
            raise errors.DeployFailed(
                f"{device.settings.name} has no earlier release of {name}",
                remedy="deploy the bundle that you want",
            )
        held.run(scripts.VERIFY, name, history[-2], timeout=600)
        _switch(held, name, history[:-1])
    return Release(history[-2], _release_dir(held.folder, name, history[-2]), current=True)


def remove(device: Device, name: str, wanted: Sequence[str]) -> None:
    """Remove releases of ``name`` that were brought and never switched to; others stay.

    What they alone held is removed with the next deploy that switches.
    """
    with hold(device) as held:
        history = _survey(device, _checked_name(name)).history
        lines = [f"release {name} {release}\n" for release in wanted if release not in history]
        held.run(scripts.COLLECT, stdin="".join(lines).encode())


def releases(device: Device, name: str) -> tuple[Release, ...]:
    """The releases of ``name`` on the device that can be rolled back to, the active one first."""
    history = _survey(device, _checked_name(name)).history
    folder = device_path(device.settings.folder)
    return tuple(
        Release(one, _release_dir(folder, name, one), current=one == history[-1])
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


def _survey(device: Device, name: str) -> State:
    argv = ["sh", "-c", scripts.SURVEY, "sh", device_path(device.settings.folder), name]
    done = device.run(argv, timeout=STEP_TIMEOUT, check=False)
    return read_state(done.stdout)


def read_state(text: str) -> State:
    """The state in a device's answer; lines that are not as they must be are left out.

    Raises :class:`errors.DeployFailed` when the answer has no end.
    """
    parts = _sections(text)
    if "end" not in parts:
        raise errors.DeployFailed("the device did not say what it has; is its shell a POSIX one?")
    current = _HASH.search("".join(parts.get("current", [])).rpartition("releases/")[2])
    history = [line for line in parts.get("history", []) if _HASH.fullmatch(line)]
    return State(
        blobs=_blobs(parts),
        history=true_history(history, current[0] if current else None),
        free_bytes=probe.disk_free(parts.get("space", [])),
        links="link" in parts,
        tar="tar" in parts,
        hashes="hash none" not in parts,
    )


def true_history(history: Sequence[str], current: str | None) -> tuple[str, ...]:
    """The releases that were active, in order, each once, ending with ``current``.

    The pointer and the history are two files: a crash between their renames leaves a history
    that lacks the active release, or one that is too long.
    """
    if current is None:
        return ()
    last_seen = {release: place for place, release in enumerate(history)}
    known = sorted(last_seen, key=lambda release: last_seen[release])
    return (*known[: known.index(current)], current) if current in known else (*known, current)


def _sections(text: str) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("@"):
            lines = parts.setdefault(line[1:], [])
        else:
            lines.append(line)
    return parts


def _blobs(parts: dict[str, list[str]]) -> dict[str, int]:
    """Size by hash from ``ls -ln``: the fifth word is the size, the last the name."""
    words = [line.split() for line in parts.get("blobs", [])]
    return {
        one[-1]: int(one[4])
        for one in words
        if len(one) >= 6 and one[4].isdecimal() and _HASH.fullmatch(one[-1])
    }


def _send(held: Held, bundle: Bundle, name: str) -> tuple[Plan, State]:
    """Send what is missing now; what a broken transfer left is settled first.

    Returns what was sent and the state before it.
    """
    state = read_state(held.run(scripts.PREPARE, name, timeout=600).stdout)
    wanted = _plan(bundle, name, state)
    if wanted.missing:
        _check_space(held.device, wanted, state)
        missing = _plan(bundle, name, _transfer(held, wanted, state)).missing
        if missing:
            raise errors.DeployFailed(
                f"{len(missing)} of the files did not arrive whole on "
                f"{held.device.settings.name}, the first is {missing[0].path}",
                remedy="deploy again: what arrived whole is not sent again",
            )
    return wanted, state


def _transfer(held: Held, wanted: Plan, state: State) -> State:
    """Move the missing blobs over in as few streams as the device allows; the state after it."""
    folder, answer = wanted.bundle.folder, ""
    if state.tar:
        answer = _receive(held, wanted, "-", _tar(wanted.missing, folder))
    else:
        for file in wanted.missing:
            data = files.chunks(folder / file.path, file.size)
            answer = _receive(held, wanted, file.sha256, data)
    if not state.hashes:
        answer = _accept_after_reading_back(held, wanted)
    return read_state(answer)


def _check_space(device: Device, wanted: Plan, state: State) -> None:
    copies = 0 if state.links else wanted.total_bytes
    need = wanted.send_bytes + copies + MARGIN
    if state.free_bytes is not None and need > state.free_bytes:
        raise errors.DeployFailed(
            f"{device.settings.name} has {log.human_bytes(state.free_bytes)} free, the bundle "
            f"needs {log.human_bytes(need)}",
            remedy="free some space there, or set folder of the device to another disk",
        )


def _receive(held: Held, wanted: Plan, what: str, data: Iterable[bytes]) -> str:
    pause = wanted.send_bytes / SLOWEST_HASH
    timeout = STEP_TIMEOUT + wanted.send_bytes / SLOWEST + pause
    words = (scripts.RECEIVE, wanted.name, what)
    return held.stream(*words, chunks=data, timeout=timeout, idle=IDLE + pause).stdout


def _tar(missing: Sequence[BundleFile], folder: Path) -> Iterator[bytes]:
    """A tar stream of blobs named by their hashes, read as it is sent."""
    import tarfile

    now = int(time.time())  # tar warns of files from 1970
    for file in missing:
        head = tarfile.TarInfo(file.sha256)
        head.size, head.mtime, head.mode = file.size, now, 0o644
        yield head.tobuf(tarfile.USTAR_FORMAT)
        yield from files.chunks(folder / file.path, file.size)
        yield bytes(-file.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _accept_after_reading_back(held: Held, sent: Plan) -> str:
    """For a device without any hash tool: what it stored is read back and hashed here."""
    good = []
    with tempfile.TemporaryDirectory(prefix="edge-back-") as scratch:
        for file in sent.missing:
            back = Path(scratch) / "blob"
            held.device.get(f"{held.folder}/incoming/{file.sha256}", back, limit=file.size)
            if files.hash_of(files.chunks(back, back.stat().st_size)) == file.sha256:
                good.append(file.sha256)
    hashes = "".join(f"{digest}\n" for digest in good).encode()
    return held.run(scripts.ACCEPT, sent.name, stdin=hashes).stdout


def _assemble(held: Held, sent: Plan) -> Plan:
    """Make the release's folder; blobs that turn out damaged are sent once more."""
    bundle, name = sent.bundle, sent.name
    timeout = STEP_TIMEOUT + 3 * bundle.total_bytes / SLOWEST_HASH
    words = (scripts.ASSEMBLE, name, bundle.release)
    try:
        held.run(*words, stdin=bundle.listing(), timeout=timeout)
    except Damaged:
        log.warn(f"files on {held.device.settings.name} were damaged and are sent again")
        again, _ = _send(held, bundle, name)
        held.run(*words, stdin=bundle.listing(), timeout=timeout)
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


def _discard(held: Held, name: str, release: str, state: State) -> None:
    """Remove a release that did not prove itself, unless it was one that had."""
    if release not in state.history:
        with contextlib.suppress(errors.EdgeError):
            held.run(scripts.COLLECT, stdin=f"release {name} {release}\n".encode())


def _switch(held: Held, name: str, history: Sequence[str]) -> None:
    """Make the last of ``history`` active, then remove what no kept release needs."""
    kept = true_history(history, history[-1])[-KEEP:]
    done = held.run(
        scripts.SWITCH, name, kept[-1], stdin="".join(f"{one}\n" for one in kept).encode(),
        timeout=600,
    )  # fmt: skip
    lines = garbage(done.stdout, name, kept)
    if lines:
        try:
            held.run(scripts.COLLECT, stdin="".join(lines).encode())
        except errors.EdgeError as error:
            log.warn(f"old releases on {held.device.settings.name} stay: {error.message}")


def garbage(text: str, name: str, kept: Sequence[str]) -> list[str]:
    """Lines for the device's collector: releases of ``name`` beyond ``kept``, unused blobs."""
    parts = _sections(text)
    used: set[str] = set()
    lines: list[str] = []
    for part, listed in parts.items():
        found = re.fullmatch(r"sums bundles/([^/ ]+)/releases/([0-9a-f]{64})\.sums", part)
        if found and found[1] == name and found[2] not in kept:
            lines.append(f"release {name} {found[2]}\n")
        elif part.startswith("sums "):
            used |= {line[:64] for line in listed}
    if "end" not in parts:
        return []
    return lines + [f"blob {digest}\n" for digest in _blobs(parts) if digest not in used]
