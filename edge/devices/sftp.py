"""Files of a device over SFTP: what paramiko's client leaves open, in one place.

SFTP's answers are poor: a full disk, a file in the way and a read-only folder are all "Failure",
and a connection that broke may be an ``OSError`` as well. So every operation here ends in one of
three ways: it is done, the file's fault is :class:`errors.RunFailed`, and a broken or silent
connection is the error that the device makes of it.
"""

from __future__ import annotations

import contextlib
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from edge import errors
from edge.devices.base import CHUNK, IDLE

TRIES = 5  # a virus scanner or an indexer holds a file for a moment after it was written
PAUSE = 0.2  # seconds between them
MOST_ENTRIES = 200_000  # of a folder: more than all files of all bundles that are kept
DEEPEST = 250  # folders in each other: a path of 400 bytes in a bundle has fewer
PREFETCH = 64  # requests that are under way at once; unbounded ones hang servers (paramiko #1788)
_EXTENDED = 200  # SSH_FXP_EXTENDED


@dataclass(frozen=True)
class Entry:
    """One entry of a folder; ``size`` in bytes."""

    size: int
    folder: bool


class Files:
    """The files of the device called ``name`` through paramiko's ``client``.

    ``broken`` makes the error for a connection that is no more.
    """

    def __init__(
        self, client: Any, name: str, broken: Callable[[str], errors.DeviceUnreachable]
    ) -> None:
        self._client = client
        self._name = name
        self._broken = broken
        client.get_channel().settimeout(IDLE)

    def home(self) -> str:
        """The folder in which the session starts, as the server spells it."""
        with self._doing("find the home folder"):
            return str(self._client.normalize("."))

    def entry(self, path: str) -> Entry | None:
        """Size and kind of what ``path`` leads to; None when there is nothing."""
        found = self._stat(path)
        return None if found is None else _entry(found)

    def modified(self, path: str) -> float | None:
        """When a file was last written, by the device's clock, in seconds since 1970."""
        found = self._stat(path)
        return None if found is None or found.st_mtime is None else float(found.st_mtime)

    def entries(self, folder: str) -> dict[str, Entry]:
        """What is in ``folder`` by name; nothing when it is not there.

        Raises :class:`errors.RunFailed` for names that are none and for more than ``MOST_ENTRIES``.
        """
        with self._doing(f"list {folder}"):
            try:
                return dict(self._listed(folder))
            except FileNotFoundError:
                return {}

    def _listed(self, folder: str) -> Iterator[tuple[str, Entry]]:
        """The client's own listing has no bound: one packet may claim 2**32 entries."""
        from paramiko.sftp import CMD_CLOSE, CMD_HANDLE, CMD_NAME, CMD_OPENDIR, CMD_READDIR
        from paramiko.sftp_attr import SFTPAttributes

        handle = self._ask(CMD_OPENDIR, folder.encode(), CMD_HANDLE).get_binary()
        total = 0
        with contextlib.suppress(EOFError):  # a connection that ended fails in the next request
            while answer := self._ask(CMD_READDIR, handle, CMD_NAME):
                count = answer.get_int()
                total += count
                if total > MOST_ENTRIES:
                    raise self._fault("list", folder, f"it has more than {MOST_ENTRIES} entries")
                for _ in range(count):
                    name, _long = answer.get_text(), answer.get_text()
                    found = SFTPAttributes._from_msg(answer)  # noqa: SLF001
                    if not name or re.search(r"[/\\\0]", name):
                        raise self._fault("list", folder, f"{name!r:.100} is no name")
                    if name not in {".", ".."}:
                        yield name, _entry(found)
        self._client._request(CMD_CLOSE, handle)  # noqa: SLF001

    def _ask(self, request: int, what: bytes, expected: int) -> Any:
        from paramiko import SFTPError

        kind, answer = self._client._request(request, what)  # noqa: SLF001
        if kind != expected:
            raise SFTPError(f"an answer of kind {kind}, not {expected}")
        return answer

    def read(self, path: str, *, limit: int) -> bytes | None:
        """The content of a file of at most ``limit`` bytes; None when it is not there."""
        parts: list[bytes] = []
        return b"".join(parts) if self.fetch(path, parts.append, limit=limit) else None

    def fetch(self, path: str, sink: Callable[[bytes], Any], *, limit: int) -> bool:
        """Hand the content of a file to ``sink`` in blocks; False when there is no such file."""
        found = self.entry(path)
        if found is None:
            return False
        if found.folder:
            raise self._fault("read", path, "it is a folder")
        if found.size > limit:
            raise errors.RunFailed(f"{path} on {self._name} has more than {limit} bytes")
        count = 0
        with self._doing(f"read {path}"), self._client.open(path, "rb") as file:
            if found.size > CHUNK:
                file.prefetch(found.size, max_concurrent_requests=PREFETCH)
            while block := file.read(CHUNK):
                count += len(block)
                if count > limit:
                    raise errors.RunFailed(f"{path} on {self._name} has more than {limit} bytes")
                sink(block)
        return True

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file; what was there is overwritten.

        Raises :class:`errors.RunFailed` when not all of it arrived: the file stays as it is then.
        """
        count = 0
        with self._doing(f"write {path}"), self._client.open(path, "wb") as file:
            file.set_pipelined(True)  # without it each 32 kB waits for an answer (paramiko #2235)
            for chunk in chunks:
                file.write(chunk)
                count += len(chunk)
        # The answers to the last writes are dropped when a file is closed.
        found = self.entry(path)
        if found is None or found.size != count:
            raise self._fault("write", path, "it did not arrive whole")

    def make(self, folder: str) -> bool:
        """Make one folder; False when something of that name is there (SFTP makes it at once)."""
        with self._doing(f"make {folder}"):
            try:
                self._client.mkdir(folder)
            except FileNotFoundError:
                raise
            except OSError:
                if self._closed() or self.entry(folder) is None:
                    raise
                return False
        return True

    def make_all(self, folder: str) -> None:
        """Make a folder with those above it; nothing when it is there."""
        found = self.entry(folder)
        if found is None:
            above = folder.rstrip("/").rpartition("/")[0]
            if above:
                self.make_all(above)
            self.make(folder)
        elif not found.folder:
            raise self._fault("make", folder, "a file is in its place")

    def replace(self, old: str, new: str) -> None:
        """Rename ``old`` to ``new`` in place of what was there; one step where the server can.

        An older Win32-OpenSSH, as Windows 10's 8.1, removes ``new`` first (#1534): readers must
        bear its absence.
        """
        if self._stat(old) is None:
            # An old server would remove ``new`` and only then find out (Win32-OpenSSH #1849).
            raise self._fault("rename", old, "it is not there")
        with self._doing(f"rename {old} to {new}"):
            self._patiently(lambda: self._client.posix_rename(old, new))

    def link(self, old: str, new: str) -> bool:
        """Make a hard link ``new`` to ``old``; False where the server or the disk has none."""
        with self._doing(f"link {new}"):
            paths = [path.encode("utf-8") for path in (old, new)]
            try:
                # paramiko has no call for OpenSSH's extension (PROTOCOL, 4.4).
                self._client._request(_EXTENDED, b"hardlink@openssh.com", *paths)  # noqa: SLF001
            except OSError:
                if self._closed():
                    raise
                return False
        return True

    def remove(self, path: str) -> None:
        """Remove a file; nothing when it is not there."""
        with self._doing(f"remove {path}"), contextlib.suppress(FileNotFoundError):
            self._patiently(lambda: self._client.remove(path))

    def remove_all(self, folder: str, deepest: int = DEEPEST) -> None:
        """Remove a folder and all in it; nothing when it is not there. Links are not followed."""
        if not deepest:
            raise self._fault("remove", folder, "it is too deep")
        for name, found in self.entries(folder).items():
            inside = f"{folder}/{name}"
            if found.folder:
                self.remove_all(inside, deepest - 1)
            else:
                self.remove(inside)
        with self._doing(f"remove {folder}"), contextlib.suppress(FileNotFoundError):
            self._patiently(lambda: self._client.rmdir(folder))

    def _stat(self, path: str) -> Any:
        with self._doing(f"look at {path}"):
            try:
                return self._client.stat(path)
            except FileNotFoundError:
                return None

    def _patiently(self, work: Callable[[], Any]) -> None:
        for left in reversed(range(TRIES)):
            try:
                work()
            except FileNotFoundError:
                raise
            except OSError:
                if self._closed() or not left:
                    raise
                time.sleep(PAUSE)
            else:
                return

    def _closed(self) -> bool:
        return bool(self._client.get_channel().closed)

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        from paramiko import SFTPError, SSHException

        try:
            yield
        except TimeoutError as error:
            raise self._broken(f"nothing moved for {IDLE:g} s") from error
        except (EOFError, SSHException, SFTPError) as error:
            raise self._broken(str(error) or "it ended in the middle of a file") from error
        except OSError as error:
            if self._closed():
                raise self._broken("it ended in the middle of a file") from error
            raise errors.RunFailed(
                f"cannot {what} on {self._name}: {error.strerror or error}"
            ) from error

    def _fault(self, what: str, path: str, why: str) -> errors.RunFailed:
        return errors.RunFailed(f"cannot {what} {path} on {self._name}: {why}")


def _entry(found: Any) -> Entry:
    """The attributes that came; a server need not send all of them."""
    return Entry(found.st_size or 0, stat.S_ISDIR(found.st_mode or 0))
