"""Deploying to a device with Windows: files over SFTP, the order of steps kept here.

The least that can be is done there by commands: hashing, copying where the disk has no hard links,
and asking for free space. Links need a privilege on Windows, so ``current`` is a file.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from edge import errors
from edge.deploy import files, lock, sftp_lock
from edge.deploy.files import Bundle, BundleFile
from edge.deploy.lock import STEP_TIMEOUT
from edge.deploy.sftp_lock import Lease
from edge.deploy.storage import (
    HASH,
    MARGIN,
    SLOWEST,
    SLOWEST_HASH,
    State,
    Stored,
    Unneeded,
    history_of,
)
from edge.devices import powershell
from edge.devices.windows import Windows, native

MAX_TEXT = 2**24  # bytes of a history or a list of files
# Windows takes 259 letters without a setting of the whole machine; outputs of health runs lie in
# folders beside the release, whose names are a little longer.
MAX_PATH = 259 - 40
# "Naming Files, Paths, and Namespaces": superscript digits count, blanks before a dot do not.
_RESERVED = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3]) *(\..*)?", re.IGNORECASE
)


@dataclass(frozen=True)
class Sftp:
    """The folder of a device with Windows (see :class:`edge.deploy.storage.Storage`)."""

    device: Windows

    @property
    def folder(self) -> str:
        """The absolute path of the folder, with slashes."""
        return self.device.path(self.device.settings.folder)

    def refuse(self, name: str, bundle: Bundle) -> None:
        """Raises :class:`errors.DeployFailed` for names that Windows cannot hold."""
        release = f"{_releases(self.folder, name)}/{bundle.release}"
        if why := fault([name, *(file.path for file in bundle.files)], release):
            raise errors.DeployFailed(
                f"{self.device.settings.name} cannot hold the bundle {name}: {why}",
                remedy="rename it, or set folder of the device to a short path such as C:/edge",
            )

    def survey(self, name: str, *, space: bool = False) -> State:
        """What it has."""
        found = _state(self.device, self.folder, name)
        return replace(found, free_bytes=free_bytes(self.device, self.folder)) if space else found

    @contextmanager
    def hold(self) -> Iterator[LockedSftp]:
        """Its lock."""
        with sftp_lock.hold(self.device, self.folder) as lease:
            yield LockedSftp(self.device, lease)


@dataclass(frozen=True)
class LockedSftp:
    """The same under the lock (see :class:`edge.deploy.storage.Locked`)."""

    device: Windows
    lease: Lease

    @property
    def folder(self) -> str:
        """Its folder."""
        return self.lease.folder

    def prepare(self, name: str) -> State:
        """Make the folders; settle what a broken transfer left."""
        with self._step(600):
            for one in ("blobs", "incoming", f"bundles/{name}/releases"):
                self.device.files.make_all(f"{self.folder}/{one}")
            self._settle()
            links = self._links()
            free = free_bytes(self.device, self.folder)
        found = _state(self.device, self.folder, name)
        return replace(found, free_bytes=free, links=links)

    def receive(
        self, name: str, missing: Sequence[BundleFile], source: Path, state: State
    ) -> State:
        """Bring files, one after the other in one session."""
        size = sum(file.size for file in missing)
        seconds = STEP_TIMEOUT + size / SLOWEST + size / SLOWEST_HASH
        with self._step(seconds):
            until = time.monotonic() + seconds
            for file in missing:
                self._send(file, source, until)
            self._settle()
        found = _state(self.device, self.folder, name)
        return replace(state, blobs=found.blobs, history=found.history)

    def assemble(self, name: str, bundle: Bundle) -> None:
        """Make the release's folder of blobs, and check it."""
        above = _releases(self.folder, name)
        release = f"{above}/{bundle.release}"
        sums = {file.path: file.sha256 for file in bundle.files}
        with self._step(STEP_TIMEOUT + 3 * bundle.total_bytes / SLOWEST_HASH):
            limit = STEP_TIMEOUT + bundle.total_bytes / SLOWEST_HASH
            listed = self.device.files.entry(f"{release}.sums")
            if listed and not self._wrong(release, sums, limit):
                return
            self._clear(above)
            new = f"{above}/.new"
            try:
                self._fill(new, sums, bundle.total_bytes)
                self._refuse_damaged(new, sums, limit)
            except errors.RunFailed as error:
                raise self._why(error, new, bundle.total_bytes) from None
            self._place(new, release, sums)
            self._clear(above)

    def verify(self, name: str, release: str) -> None:
        """Check a release."""
        folder = f"{_releases(self.folder, name)}/{release}"
        with self._step(600):
            sums = _sums(self.device, f"{folder}.sums")
            if not sums or self._wrong(folder, sums, 600):
                raise lock.damaged(self.device.settings.name)

    def switch(self, name: str, history: Sequence[str]) -> Stored:
        """Make the last of ``history`` active; ``current`` is replaced by a rename."""
        bundle = f"{self.folder}/bundles/{name}"
        there = self.device.files
        with self._step(600):
            if there.entry(f"{bundle}/releases/{history[-1]}") is None:
                raise lock.damaged(self.device.settings.name)
            there.write(f"{bundle}/history.new", ["".join(f"{h}\n" for h in history).encode()])
            there.write(f"{bundle}/current.new", [f"releases/{history[-1]}\n".encode()])
            self.lease.check()
            there.replace(f"{bundle}/current.new", f"{bundle}/current")
            there.replace(f"{bundle}/history.new", f"{bundle}/history")
            return self._stored()

    def collect(self, unneeded: Unneeded) -> None:
        """Remove releases and blobs; one that a running program holds does not keep the others."""
        failure: errors.RunFailed | None = None
        with self._step(600):
            for name, release in unneeded.releases:
                failure = self._drop(f"{_releases(self.folder, name)}/{release}") or failure
            for digest in unneeded.blobs:
                failure = self._try(f"{self.folder}/blobs/{digest}") or failure
        if failure:
            raise errors.DeployFailed(failure.message)

    @contextmanager
    def _step(self, seconds: float) -> Iterator[None]:
        """A step under the lock; a file's fault in it is a failed deploy."""
        with self.lease.step(seconds):
            try:
                yield
            except errors.RunFailed as error:
                raise errors.DeployFailed(
                    f"a step on {self.device.settings.name} failed: {error.message}",
                    remedy="check that the account may write to the folder of the device",
                ) from error

    def _send(self, file: BundleFile, source: Path, until: float) -> None:
        """Send a file while the lock is surely ours: until a moment of the monotonic clock."""
        incoming = f"{self.folder}/incoming"
        data = self._in_time(files.chunks(source / file.path, file.size), until)
        try:
            self.device.files.write(f"{incoming}/{file.sha256}", data)
        except errors.RunFailed as error:
            raise self._why(error, incoming, file.size) from None

    def _in_time(self, chunks: Iterable[bytes], until: float) -> Iterator[bytes]:
        for chunk in chunks:
            if time.monotonic() > until:
                raise errors.DeployFailed(
                    f"the connection to {self.device.settings.name} is slower than "
                    f"{SLOWEST // 1000} kB/s",
                    remedy="deploy again: what arrived whole is not sent again",
                )
            yield chunk

    def _why(self, error: errors.RunFailed, folder: str, size: int) -> errors.EdgeError:
        """The error for what could not be written: SFTP says "Failure" for a full disk as well.

        What had arrived in ``folder`` is removed when that is it.
        """
        free = free_bytes(self.device, self.folder)
        if free is None or free > size + MARGIN:
            return error
        self.device.files.remove_all(folder)
        return lock.full(self.device.settings.name)

    def _settle(self) -> None:
        """What lies in ``incoming`` becomes a blob when it is whole, and goes when it is not."""
        incoming = f"{self.folder}/incoming"
        found = self.device.files.entries(incoming)
        names = sorted(name for name, one in found.items() if HASH.fullmatch(name))
        limit = STEP_TIMEOUT + sum(found[name].size for name in names) / SLOWEST_HASH
        hashes = self._hashes([f"{incoming}/{name}" for name in names], limit)
        for name, digest in zip(names, hashes, strict=True):
            if name == digest:
                self.device.files.replace(f"{incoming}/{name}", f"{self.folder}/blobs/{name}")
            else:
                self.device.files.remove(f"{incoming}/{name}")

    def _hashes(self, paths: Sequence[str], timeout: float) -> list[str]:
        """The SHA-256 of files as the device reads them; ``-`` for one that it cannot read."""
        if not paths:
            return []
        listing = "".join(f"{native(path)}\n" for path in paths).encode()
        with self.device.spooled([listing]) as file:
            body = powershell.hashes(native(file))
            done = self.device.script("hashing", body, timeout=timeout)
        hashes = done.stdout.split()
        if len(hashes) != len(paths):
            raise errors.RunFailed(
                f"{self.device.settings.name} hashed {len(hashes)} of {len(paths)} files"
            )
        return hashes

    def _links(self) -> bool:
        one, two = (f"{self.folder}/incoming/.try{number}" for number in (1, 2))
        self.device.files.remove(two)
        self.device.files.write(one, [])
        links = self.device.files.link(one, two)
        self.device.files.remove(one)
        self.device.files.remove(two)
        return links

    def _wrong(self, folder: str, sums: Mapping[str, str], timeout: float) -> list[str]:
        """The hashes of those files in ``folder`` that are not what ``sums`` says by path."""
        if self.device.files.entry(folder) is None:
            return list(sums.values())
        found = self._hashes([f"{folder}/{path}" for path in sums], timeout)
        return [want for want, got in zip(sums.values(), found, strict=True) if want != got]

    def _fill(self, folder: str, sums: Mapping[str, str], size: int) -> None:
        """Files by path, linked or copied from their blobs."""
        for above in sorted({f"{folder}/{path}".rpartition("/")[0] for path in sums}):
            self.device.files.make_all(above)
        pairs = [(f"{self.folder}/blobs/{sums[path]}", f"{folder}/{path}") for path in sums]
        left = [pair for pair in pairs if not self.device.files.link(*pair)]
        if left:
            lines = "".join(f"{native(blob)}\t{native(path)}\n" for blob, path in left)
            with self.device.spooled([lines.encode()]) as file:
                body = powershell.copies(native(file))
                limit = STEP_TIMEOUT + 2 * size / SLOWEST_HASH
                self.device.script("copying", body, timeout=limit)

    def _refuse_damaged(self, folder: str, sums: Mapping[str, str], timeout: float) -> None:
        wrong = self._wrong(folder, sums, timeout)
        if wrong:
            self.device.files.remove_all(folder)
            for digest in wrong:
                self.device.files.remove(f"{self.folder}/blobs/{digest}")
            raise lock.damaged(self.device.settings.name)

    def _place(self, new: str, release: str, sums: Mapping[str, str]) -> None:
        """The folder ``new`` becomes the release, in place of a damaged one."""
        there = self.device.files
        lines = "".join(f"{digest}  {path}\n" for path, digest in sums.items())
        there.write(f"{new}.sums", [lines.encode()])
        there.replace(f"{new}.sums", f"{release}.sums")
        if there.entry(release):
            there.replace(release, f"{release.rpartition('/')[0]}/.old")
        there.replace(new, release)

    def _clear(self, above: str) -> None:
        """Remove what an interrupted deploy left beside the releases."""
        for name, found in self.device.files.entries(above).items():
            if name.startswith((".new", ".old")):
                remove = self.device.files.remove_all if found.folder else self.device.files.remove
                remove(f"{above}/{name}")

    def _stored(self) -> Stored:
        there = self.device.files
        releases = {}
        for name in there.entries(f"{self.folder}/bundles"):
            above = _releases(self.folder, name)
            for one in there.entries(above):
                release = one.removesuffix(".sums")
                if release != one:
                    sums = _sums(self.device, f"{above}/{one}")
                    releases[name, release] = frozenset(sums.values())
        blobs = (name for name in there.entries(f"{self.folder}/blobs") if HASH.fullmatch(name))
        return Stored(tuple(blobs), releases)

    def _drop(self, release: str) -> errors.RunFailed | None:
        """Remove a release, its list last: with that one a half removed one is found again."""
        try:
            self.device.files.remove_all(release)
        except errors.RunFailed as error:
            return error
        return self._try(f"{release}.sums")

    def _try(self, file: str) -> errors.RunFailed | None:
        try:
            self.device.files.remove(file)
        except errors.RunFailed as error:
            return error
        return None


def fault(paths: Sequence[str], release: str) -> str:
    """Why Windows cannot hold ``paths`` in the folder ``release``, or nothing."""
    seen: dict[str, str] = {}
    for path in paths:
        for part in path.split("/"):
            if re.search(r'[<>:"|?*\\\x00-\x1f]', part) or part != part.rstrip(" ."):
                return f"{path!r} has letters that it takes in no name"
            if _RESERVED.fullmatch(part):
                return f"{part!r} in {path!r} is a device's name there"
        other = seen.setdefault(path.casefold(), path)
        if other != path:
            return f"{path!r} and {other!r} are one name there"
        if len(f"{release}/{path}".encode("utf-16-le")) > 2 * MAX_PATH:
            return f"the path {release}/{path} is longer than {MAX_PATH} letters"
    for path in paths:
        for end in (at for at, letter in enumerate(path) if letter == "/"):
            if path[:end].casefold() in seen:
                return f"{path!r} goes through {seen[path[:end].casefold()]!r}, one name there"
    return ""


def free_bytes(device: Windows, folder: str) -> int | None:
    """Bytes that the account may still use on the drive of ``folder``; None for a share."""
    body = powershell.space(device.root(folder))
    done = device.script("asking for space", body, timeout=STEP_TIMEOUT, check=False)
    answer = done.stdout.strip()
    return int(answer) if re.fullmatch(r"[0-9]{1,18}", answer) else None


def _releases(folder: str, name: str) -> str:
    return f"{folder}/bundles/{name}/releases"


def _state(device: Windows, folder: str, name: str) -> State:
    """What files say: neither free space nor links."""
    there, bundle = device.files, f"{folder}/bundles/{name}"
    blobs = there.entries(f"{folder}/blobs")
    # A server that cannot replace in one step has neither name for a moment.
    pointer = _text(device, f"{bundle}/current") or _text(device, f"{bundle}/current.new")
    history = _text(device, f"{bundle}/history") or _text(device, f"{bundle}/history.new")
    return State(
        blobs={one: blobs[one].size for one in blobs if HASH.fullmatch(one)},
        history=history_of(history.splitlines(), pointer),
        free_bytes=None,
        links=False,
    )


def _sums(device: Windows, file: str) -> dict[str, str]:
    """Hash by path from a release's list; lines that are not as they must be are left out."""
    lines = [line.partition("  ") for line in _text(device, file).splitlines()]
    return {path: digest for digest, _, path in lines if HASH.fullmatch(digest) and path}


def _text(device: Windows, file: str) -> str:
    return (device.files.read(file, limit=MAX_TEXT) or b"").decode("utf-8", "replace")
