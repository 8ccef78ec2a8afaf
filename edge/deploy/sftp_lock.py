"""The lock of a device over SFTP, where no script of ours keeps it.

Making a folder is one step on every server, so of two that make lock/N+1 one gets it. Times are
the device's own: the moment a file was written there.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edge import errors
from edge.deploy import lock
from edge.devices.windows import Windows

SETTLE = 2.0  # seconds in which a lock that was half made is finished, or never
_SMALL = 4096  # bytes: no file of a lock is larger


@dataclass(frozen=True)
class Lease:
    """A lock that is ours: ``number`` of the device's ``folder``."""

    device: Windows
    folder: str
    number: int
    token: str

    @contextmanager
    def step(self, seconds: float) -> Iterator[None]:
        """A step that may take ``seconds``.

        Raises :class:`errors.DeployFailed` when the lock is no more ours.
        """
        self.check()
        _lease(self.device, self._path, seconds + 60)
        try:
            yield
        finally:
            # A connection that broke has said so already.
            with contextlib.suppress(errors.EdgeError):
                _lease(self.device, self._path, lock.BETWEEN)

    def check(self) -> None:
        """Raises :class:`errors.DeployFailed` when the lock is no more ours."""
        owner = _read(self.device, f"{self._path}/owner").split()
        if owner[:1] != [self.token] or _highest(self.device, self.folder) > self.number:
            raise lock.lost(self.device.settings.name)

    @property
    def _path(self) -> str:
        return f"{self.folder}/lock/{self.number}"

    def release(self) -> None:
        """Give it back. Raises :class:`errors.DeployFailed` when it was taken over."""
        self.check()
        self.device.files.write(f"{self._path}/free", [])


@contextmanager
def hold(device: Windows, folder: str) -> Iterator[Lease]:
    """The lock of ``folder``, which is made when it is not there.

    Raises :class:`errors.DeployFailed` when another deploy holds it for ``lock.WAIT`` seconds.
    """
    with lock.new_token() as token:
        lease = _acquire(device, folder, token)
        try:
            yield lease
        finally:
            # A broken connection cannot release; the next deploy sees that we are gone.
            with contextlib.suppress(errors.EdgeError):
                lease.release()


def _acquire(device: Windows, folder: str, token: str) -> Lease:
    until = time.monotonic() + lock.WAIT
    while True:
        try:
            device.files.make_all(f"{folder}/lock")
            found = _try(device, folder, token)
        except errors.RunFailed as error:
            raise errors.DeployFailed(
                error.message, remedy="set folder of the device to one that its account may write"
            ) from error
        if isinstance(found, Lease):
            return found
        if time.monotonic() > until:
            raise lock.busy(device, found)
        time.sleep(lock.POLL)


def _try(device: Windows, folder: str, token: str) -> Lease | list[str]:
    """The lock, or who has it."""
    last = _highest(device, folder)
    path = f"{folder}/lock/{last}"
    if last and not _stale(device, path):
        return _read(device, f"{path}/owner").split()
    mine = Lease(device, folder, last + 1, token)
    path = f"{folder}/lock/{mine.number}"
    if not device.files.make(path):
        return []
    try:
        device.files.write(f"{path}/owner", [f"{token} {lock.who()}\n".encode()])
        _lease(device, path, lock.BETWEEN)
    except errors.RunFailed:
        if _highest(device, folder) == mine.number:
            raise
        return []  # we were so slow that another one took it for half made
    if _highest(device, folder) != mine.number:
        device.files.remove_all(path)
        return []
    for name in device.files.entries(f"{folder}/lock"):
        if name.isdecimal() and int(name) < mine.number:
            device.files.remove_all(f"{folder}/lock/{name}")
    return mine


def _stale(device: Windows, path: str) -> bool:
    """True for a lock that nobody needs: freed, its owner gone, half made, or its time over."""
    if device.files.entry(f"{path}/free"):
        return True
    owner, lease = _read(device, f"{path}/owner"), _read(device, f"{path}/until")
    if lock.is_gone(owner.split()):
        return True
    if not owner or not lease:
        time.sleep(SETTLE)
        return (owner, lease) == (
            _read(device, f"{path}/owner"),
            _read(device, f"{path}/until"),
        )
    written = device.files.modified(f"{path}/until")
    seconds = float(lease) if re.fullmatch(r"[0-9]{1,9}\n?", lease) else 0.0
    return written is not None and _now(device, path) > written + seconds


def _now(device: Windows, path: str) -> float:
    """The device's clock, in seconds since 1970; 0 when somebody else asked it just now."""
    file = f"{path.rpartition('/')[0]}/now"
    device.files.write(file, [])
    return device.files.modified(file) or 0.0


def _lease(device: Windows, path: str, seconds: float) -> None:
    device.files.write(f"{path}/until", [f"{int(seconds)}\n".encode()])


def _highest(device: Windows, folder: str) -> int:
    names = device.files.entries(f"{folder}/lock")
    return max((int(name) for name in names if re.fullmatch(r"[0-9]{1,9}", name)), default=0)


def _read(device: Windows, path: str) -> str:
    return (device.files.read(path, limit=_SMALL) or b"").decode("utf-8", "replace")
