"""One deploy to a device at a time: a lock on the device, and steps that run under it.

What belongs to a lock wherever it lies is here, with its form for POSIX shells
(:mod:`.sftp_lock` has the other).

The lock says who holds it. A lock is taken over when its owner is a process of this machine that
is gone, when a step was killed on the device, or when nobody has used it for ``BETWEEN`` seconds
beyond its last step (the owner's machine lost its power, say). A holder that was given up too
early finds out: every step checks first that the lock is still its own.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import platform
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge import errors, log
from edge.deploy import scripts
from edge.deploy.storage import Damaged
from edge.devices.base import IDLE, Device, device_path
from edge.process import Completed, describe_exit

WAIT = 120.0  # seconds to wait for another deploy to end
POLL = 1.0  # seconds between two looks at a lock that is held
BETWEEN = 900  # seconds that a lock lasts after a step; a health run must fit in
STEP_TIMEOUT = 120.0  # seconds for a step that moves no files from here

_held_here: set[str] = set()


@dataclass(frozen=True)
class Held:
    """A lock that is ours, and the way to run steps under it."""

    device: Device
    folder: str
    number: str
    token: str
    between: int = BETWEEN

    def run(
        self, script: str, *words: str, stdin: bytes = b"", timeout: float = STEP_TIMEOUT
    ) -> Completed:
        """Run a step. Raises :class:`errors.DeployFailed` when it fails, with what it said."""
        argv = self.argv(script, words, timeout)
        return self._good(self.device.run(argv, timeout=timeout, stdin=stdin, check=False))

    def stream(
        self, script: str, *words: str, chunks: Iterable[bytes], timeout: float, idle: float = IDLE
    ) -> Completed:
        """Run a step that reads ``chunks``."""
        argv = self.argv(script, words, timeout)
        done = self.device.stream(argv, chunks, timeout=timeout, idle=idle, check=False)
        return self._good(done)

    def argv(self, script: str, words: Iterable[str], timeout: float) -> list[str]:
        """The command for a step that may take ``timeout`` seconds."""
        leases = [str(int(timeout) + 60), str(self.between)]
        return ["sh", "-c", script, "sh", self.folder, self.number, self.token, *leases, *words]

    def _good(self, done: Completed) -> Completed:
        if done.returncode != 0:
            raise failure(done, self.device.settings.name)
        return done


def failure(done: Completed, name: str) -> errors.DeployFailed:
    """The error for a step that failed on device ``name``."""
    said = done.tail(3)
    if done.returncode == scripts.LOST:
        return lost(name)
    if done.returncode == scripts.DAMAGED:
        return damaged(name)
    if done.returncode == scripts.FULL or "No space left" in said or "uota exceeded" in said:
        return full(name)
    if "Read-only file system" in said or "Permission denied" in said:
        return errors.DeployFailed(
            f"the folder on {name} cannot be written: {said}",
            remedy="set folder of the device to one that its account may write",
        )
    return errors.DeployFailed(
        f"a step on {name} ended with {describe_exit(done.returncode)}: {said or 'no words'}"
    )


def lost(name: str) -> errors.DeployFailed:
    """The error for a lock of device ``name`` that is no more ours."""
    return errors.DeployFailed(
        f"another deploy took the lock of {name} over", remedy="deploy again when it is done"
    )


def damaged(name: str) -> Damaged:
    """The error for files on device ``name`` that are not what their hashes say."""
    return Damaged(f"files on {name} were damaged", remedy="deploy again")


def full(name: str) -> errors.DeployFailed:
    """The error for a device ``name`` without space."""
    return errors.DeployFailed(
        f"the disk of {name} is full; what had arrived was removed",
        remedy="free some space there, or set folder of the device to another disk",
    )


@contextmanager
def new_token() -> Iterator[str]:
    """A token for one lock, known as held by this process for as long as it is used."""
    token = secrets.token_hex(12)
    _held_here.add(token)
    try:
        yield token
    finally:
        _held_here.discard(token)


@contextmanager
def hold(device: Device, folder: str = "", between: int = BETWEEN) -> Iterator[Held]:
    """The lock of ``folder`` (default: the device's), which is made when it is not there.

    It lasts ``between`` seconds after a step. Raises :class:`Busy` when somebody else holds it for
    ``WAIT`` seconds.
    """
    folder = folder or device_path(device.settings.folder)
    with new_token() as token:
        number = _acquire(device, folder, token, between)
        held = Held(device, folder, number, token, between)
        try:
            yield held
        finally:
            _release(held)


def _acquire(device: Device, folder: str, token: str, between: int) -> str:
    """The number of the lock that was taken."""
    until = time.monotonic() + WAIT
    gone = "-"
    while True:
        words = [folder, token, who(), str(between), gone]
        argv = ["sh", "-c", scripts.ACQUIRE, "sh", *words]
        done = device.run(argv, timeout=STEP_TIMEOUT, check=False)
        answer = done.stdout.split()
        if done.returncode != 0 or not answer:
            raise failure(done, device.settings.name)
        if answer[0] == "locked":
            return answer[1]
        owner = answer[1:6]
        gone = owner[0] if owner and is_gone(owner) else "-"
        if time.monotonic() > until:
            raise busy(device, owner)
        time.sleep(POLL)


class Busy(errors.DeployFailed):
    """Somebody else holds the lock; ``owner`` says who."""

    def __init__(self, message: str, *, remedy: str = "", owner: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.owner = owner


def busy(device: Device, owner: list[str]) -> Busy:
    """The error for a lock that ``owner`` (token, machine, process, who, when) holds."""
    name = "".join(c for c in " ".join(owner[3:]) if c.isprintable()) or "somebody"
    return Busy(
        f"another deploy to {device.settings.name} is under way (by {name})",
        remedy="wait for it; a lock whose owner is gone is taken over after "
        f"{BETWEEN // 60} minutes",
        owner=name,
    )


def _release(held: Held) -> None:
    # A broken connection cannot release; the next deploy sees that we are gone.
    with contextlib.suppress(errors.EdgeError):
        done = held.device.run(
            held.argv(scripts.RELEASE, (), STEP_TIMEOUT), timeout=STEP_TIMEOUT, check=False
        )
        if done.returncode == scripts.LOST:
            log.warn(f"the lock of {held.device.settings.name} was taken over in between")


def who() -> str:
    """Machine, process, person and time; one word each, for the lock's owner file."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    name = re.sub(r"[^0-9A-Za-z_.@-]", "_", f"{getpass.getuser()}@{platform.node()}")
    return f"{_machine()} {os.getpid()} {name[:80]} {when}"


def _machine() -> str:
    """Name of this machine since its start, and the space that its processes are numbered in."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, space = platform.node(), ""
    return hashlib.sha256(f"{boot}{space}".encode()).hexdigest()[:16]


def is_gone(owner: list[str]) -> bool:
    """True when the owner (token, machine, process ...) was a process here and is no more."""
    if len(owner) < 3 or owner[1] != _machine() or not owner[2].isdecimal() or os.name != "posix":
        return False
    if int(owner[2]) == os.getpid():
        return owner[0] not in _held_here
    try:
        os.kill(int(owner[2]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
