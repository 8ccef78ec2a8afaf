"""Long commands on a device, in a folder of their own, without one long connection.

A job is started there and goes on by itself; short commands look at it and bring what it printed.
A connection that breaks is made again. The folder goes away however the work ends; a job that
nobody has looked at for half an hour (this machine lost its power, say) ends by itself and
removes it.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from edge import errors, log, process
from edge.devices import Device
from edge.devices.base import CHUNK, device_path
from edge.devices.frames import returncode
from edge.process import Completed
from edge.tools import remote_scripts

T = TypeVar("T")
SHORT = 120.0  # seconds for a command that only looks; the device is busy with the job
LONG = 900.0  # seconds for one that packs or removes a folder
SLOWEST = 10_000  # bytes a second: a transfer's deadline allows for this
IDLE = 180.0  # seconds in which a transfer may stand still, while a disk there flushes
RECONNECT = 600.0  # seconds in which a broken connection may come back
RETRY = 5.0  # seconds between two attempts to connect
REMOVALS = 3  # attempts to remove the folder; the connection may be what ended the work
POLL = (0.5, 10.0)  # seconds between two looks at a job, at first and in the end
WATCH = (30, 60)  # seconds between a job's own looks for a watcher; looks until it ends
LOG_LIMIT = 1 << 30  # bytes that one job may print
_LOOK = re.compile(r"(running|lost|ended:([0-9]{1,3})) ([0-9]{1,7})")


@dataclass(frozen=True)
class Site:
    """A folder on a connected device. What jobs print goes to the file ``output``.

    ``deadline``, of ``time.monotonic()``, is for all jobs together. Every method raises
    :class:`errors.DeviceUnreachable` when a broken connection does not come back.
    """

    device: Device
    folder: str
    output: Path
    deadline: float
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def name(self) -> str:
        """The device's name."""
        return self.device.settings.name

    def send(self, archive: Path) -> None:
        """Unpack a ``.tar.gz`` of this machine into the work folder, which is made anew."""
        words = ["sh", "-c", remote_scripts.RECEIVE, "sh", self.folder]
        timeout = LONG + archive.stat().st_size / SLOWEST

        def stream() -> Completed:
            return self.device.stream(
                words, _chunks(archive), timeout=timeout, idle=IDLE, check=False
            )

        self._good(steadily(self.device, stream), "cannot unpack the sources")

    def job(self, words: Sequence[str]) -> int:
        """Run ``words`` in the work folder to their end; the return code, negative for a signal.

        Raises :class:`errors.StepFailed` on the deadline, and when it was ended with all that
        belongs to it, by a restart say.
        """
        number = str(next(self.numbers))
        watch = [str(value) for value in WATCH]
        start = [remote_scripts.DETACH, remote_scripts.JOB, self.folder, number, *watch]
        self._good(self._run(remote_scripts.START, *start, *words), f"cannot start {words[0]}")
        known, pause = 0, POLL[0]
        while True:
            state, code, text, size = self._look(number, known)
            known += size
            self._keep(text, known, words[0])
            if state == "lost":
                raise self._failed(f"{words[0]} was ended from outside: a restart, or no memory")
            if state != "running" and not size:
                return returncode(code)
            if time.monotonic() > self.deadline:
                raise self._failed(f"{words[0]} did not end in time and was stopped")
            if not size:
                wait(pause)
            pause = POLL[0] if size else min(1.5 * pause, POLL[1])

    def kinds(self, names: Sequence[str]) -> list[str]:
        """For each name in the work folder ``file``, ``folder`` or ``none``."""
        said = self._run(remote_scripts.KINDS, self.folder, *names).stdout.split()
        return said if len(said) == len(names) else ["none"] * len(names)

    def get(self, name: str, local: Path, *, limit: int) -> None:
        """Copy a file of the work folder, of at most ``limit`` bytes."""
        self._get(f"work/{name}", local, limit)

    def get_folder(self, name: str, archive: Path, *, limit: int) -> None:
        """Bring a folder of the work folder as a tar, with its own name on top."""
        packed = self._run(remote_scripts.PACK, self.folder, name, "product.tar", timeout=LONG)
        self._good(packed, f"cannot pack {name}")
        self._get("product.tar", archive, limit)

    def remove(self) -> str:
        """End what runs and remove the folder; what to do by hand where that failed, or ``""``."""
        for attempt in range(REMOVALS):
            if attempt:
                time.sleep(RETRY)  # not wait(): this is also what is done when interrupted
            if self._removed():
                return ""
        minutes = WATCH[0] * WATCH[1] // 60
        return (
            f"remove the folder {self.folder} of {self.name}, it could not be removed from here; "
            f"what still runs in it ends by itself within {minutes} minutes"
        )

    def _removed(self) -> bool:
        words = ["sh", "-c", remote_scripts.REMOVE, "sh", self.folder]
        try:
            self.device.connect()
            return self.device.run(words, timeout=LONG, check=False).returncode == 0
        except errors.EdgeError:
            self.device.close()
            return False

    def last(self) -> str:
        """The last part of what was printed."""
        with self.output.open("rb") as stream:
            stream.seek(max(0, self.output.stat().st_size - process.LAST_PART))
            return stream.read().decode("utf-8", "replace")

    def _get(self, name: str, local: Path, limit: int) -> None:
        remote = f"{self.folder}/{name}"
        steadily(self.device, lambda: self.device.get(remote, local, limit=limit))

    def _run(self, script: str, *words: str, timeout: float = SHORT) -> Completed:
        """One short command, which may be said twice."""
        argv = ["sh", "-c", script, "sh", *words]

        def run() -> Completed:
            try:
                return self.device.run(argv, timeout=timeout, check=False)
            except errors.RunFailed as error:  # so busy that it does not answer in time
                raise errors.DeviceUnreachable(error.message) from error

        return steadily(self.device, run)

    def _look(self, number: str, known: int) -> tuple[str, int, str, int]:
        """State, exit code, new text, and how many bytes of the log that text is."""
        done = self._run(remote_scripts.LOOK, self.folder, number, str(known))
        head, _, text = done.stdout.partition("\n")
        said = _LOOK.fullmatch(head)
        if done.returncode != 0 or said is None:
            # The folder is gone: the job ended it, or somebody removed it.
            return "lost", 0, "", 0
        return said[1].partition(":")[0], int(said[2] or 0), text, int(said[3])

    def _keep(self, text: str, known: int, what: str) -> None:
        if known > LOG_LIMIT:
            raise self._failed(f"{what} printed more than {LOG_LIMIT} bytes")
        with self.output.open("a", encoding="utf-8", newline="") as stream:
            stream.write(text)

    def _good(self, done: Completed, what: str) -> None:
        if done.returncode != 0:
            raise errors.StepFailed(
                f"{what} on {self.name}: {done.tail(3) or process.describe_exit(done.returncode)}",
                remedy="see to the space and permissions of the device's folder, or set another",
            )

    def _failed(self, what: str) -> errors.StepFailed:
        last = process.tail(self.last()) or "(it printed nothing)"
        return errors.StepFailed(
            f"{what}, on {self.name}:\n{last}", remedy=f"the whole log is {self.output}"
        )


@contextmanager
def site(device: Device, output: Path, timeout: float) -> Iterator[Site]:
    """A new folder below the device's own, for jobs of ``timeout`` seconds together.

    ``output`` is emptied. At the end jobs are stopped and the folder is removed; an
    :class:`errors.EdgeError` says what could not be.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(b"")
    folder = f"{device_path(device.settings.folder)}/builds/{secrets.token_hex(8)}"
    place = Site(device, folder, output, time.monotonic() + timeout)
    try:
        yield place
    except errors.EdgeError as error:
        if left := place.remove():
            remedy = "; ".join(part for part in (error.remedy, left) if part)
            raise type(error)(error.message, remedy=remedy) from error
        raise
    except BaseException:
        if left := place.remove():
            log.warn(left)
        raise
    if left := place.remove():
        log.warn(left)


def wait(seconds: float) -> None:
    """Sleep; :class:`errors.RunFailed` soon after the run was interrupted."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        process.refuse_when_stopping()
        time.sleep(min(left, 0.2))
    process.refuse_when_stopping()


def steadily(device: Device, work: Callable[[], T]) -> T:
    """``work()``, again on a new connection when it breaks, for at most RECONNECT seconds.

    Raises :class:`errors.DeviceUnreachable` after that. ``work`` may be done twice.
    """
    until = 0.0
    while True:
        process.refuse_when_stopping()
        try:
            device.connect()
            return work()
        except errors.DeviceUnreachable as error:
            if not until:
                until = time.monotonic() + RECONNECT
                log.warn(f"{error.message}; trying again for {RECONNECT / 60:g} minutes")
            if time.monotonic() >= until:
                raise
        device.close()
        wait(RETRY)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            process.refuse_when_stopping()
            yield chunk
