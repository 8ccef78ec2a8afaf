"""What deploying does on a device, in two ways: by POSIX shell, or by SFTP on Windows.

Both keep the same things below the device's folder:

    lock/N/                     the N-th holder of the lock; the highest N counts
    incoming/SHA256             a transfer under way
    blobs/SHA256                whole files, checked
    bundles/NAME/releases/ID/   hard links to blobs, or copies; ID is the manifest's SHA-256
    bundles/NAME/releases/ID.sums   its files, in the format of ``sha256sum -c``
    bundles/NAME/history        IDs in the order in which they became current
    bundles/NAME/current        the active release: a symbolic link, or a file with the same text
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge import errors
from edge.deploy.files import Bundle, BundleFile
from edge.devices.base import Device

MARGIN = 2**20  # bytes that must stay free
SLOWEST = 10_000  # bytes a second: the deadline of a transfer allows for this
SLOWEST_HASH = 5_000_000  # bytes a second in which a device hashes and its card flushes
HASH = re.compile(r"[0-9a-f]{64}")


class Damaged(errors.DeployFailed):
    """Files on the device are not what their hashes say."""


@dataclass(frozen=True)
class State:
    """What a device answered: sizes of blobs by hash, the history with the active one last.

    ``tar`` and ``hashes`` say whether its shell has the tools.
    """

    blobs: Mapping[str, int]
    history: tuple[str, ...]
    free_bytes: int | None
    links: bool
    tar: bool = False
    hashes: bool = True


@dataclass(frozen=True)
class Stored:
    """What lies on a device: hashes of blobs, and what each release (name, ID) is made of."""

    blobs: tuple[str, ...]
    releases: Mapping[tuple[str, str], frozenset[str]]


@dataclass(frozen=True)
class Unneeded:
    """What may go: releases of one bundle by name and ID, and blobs."""

    releases: tuple[tuple[str, str], ...] = ()
    blobs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.releases or self.blobs)


class Locked(Protocol):
    """A device's folder while it is ours. Each call checks first that it still is.

    All raise :class:`errors.DeployFailed`, with the device's words, when they fail.
    """

    @property
    def device(self) -> Device:
        """The device."""

    @property
    def folder(self) -> str:
        """Its folder, as commands there take it."""

    def prepare(self, name: str) -> State:
        """Make the folders; settle what a broken transfer left."""

    def receive(
        self, name: str, missing: Sequence[BundleFile], source: Path, state: State
    ) -> State:
        """Bring files of the bundle in ``source``; those that arrived whole are blobs then."""

    def assemble(self, name: str, bundle: Bundle) -> None:
        """Make the release's folder of blobs, and check it.

        Raises :class:`Damaged` when blobs were; these are removed.
        """

    def verify(self, name: str, release: str) -> None:
        """Raises :class:`Damaged` when a release is not what it was."""

    def switch(self, name: str, history: Sequence[str]) -> Stored:
        """Make the last of ``history`` active; what lies there afterwards."""

    def collect(self, unneeded: Unneeded) -> None:
        """Remove releases and blobs."""


class Storage(Protocol):
    """The folder of a device."""

    @property
    def folder(self) -> str:
        """Its path, as commands there take it."""

    def refuse(self, name: str, bundle: Bundle) -> None:
        """Raises :class:`errors.DeployFailed` for names that the device cannot hold."""

    def survey(self, name: str, *, space: bool = False) -> State:
        """What it has. Reads only. Without ``space`` free bytes may be None to save a command."""

    def hold(self) -> AbstractContextManager[Locked]:
        """Its lock.

        Raises :class:`errors.DeployFailed` when another deploy holds it for ``lock.WAIT`` seconds.
        """


def storage_of(device: Device) -> Storage:
    """The folder of ``device``."""
    from edge.devices.windows import Windows

    if isinstance(device, Windows):
        from edge.deploy.sftp import Sftp

        return Sftp(device)
    from edge.deploy.shell import Shell

    return Shell(device)


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


def history_of(lines: Sequence[str], pointer: str) -> tuple[str, ...]:
    """The true history from the lines of ``history`` and the text of ``current``."""
    current = HASH.search(pointer.rpartition("releases/")[2])
    known = [line for line in lines if HASH.fullmatch(line)]
    return true_history(known, current[0] if current else None)


def garbage(stored: Stored, name: str, kept: Sequence[str]) -> Unneeded:
    """Releases of ``name`` beyond ``kept``, and blobs that no other release needs."""
    ours = [one for one in stored.releases if one[0] == name and HASH.fullmatch(one[1])]
    old = tuple(one for one in ours if one[1] not in kept)
    needed = [sums for one, sums in stored.releases.items() if one not in old]
    used = frozenset[str]().union(*needed)
    return Unneeded(old, tuple(blob for blob in stored.blobs if blob not in used))
