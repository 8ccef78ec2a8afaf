"""Deploying by POSIX shell: each step is one command on the device (see :mod:`.scripts`)."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge import errors
from edge.deploy import files, lock, scripts
from edge.deploy.files import Bundle, BundleFile
from edge.deploy.lock import STEP_TIMEOUT, Held
from edge.deploy.storage import (
    HASH,
    SLOWEST,
    SLOWEST_HASH,
    State,
    Stored,
    Unneeded,
    history_of,
)
from edge.devices.base import IDLE, Device, device_path
from edge.probe.facts import disk_free


@dataclass(frozen=True)
class Shell:
    """The folder of a device with a POSIX shell (see :class:`edge.deploy.storage.Storage`)."""

    device: Device

    @property
    def folder(self) -> str:
        """The folder, never beginning with a dash."""
        return device_path(self.device.settings.folder)

    def refuse(self, name: str, bundle: Bundle) -> None:
        """Nothing: what a manifest may name, such a device can hold."""

    def survey(self, name: str, *, space: bool = False) -> State:  # noqa: ARG002 - costs nothing
        """What it has."""
        argv = ["sh", "-c", scripts.SURVEY, "sh", self.folder, name]
        done = self.device.run(argv, timeout=STEP_TIMEOUT, check=False)
        return read_state(done.stdout)

    @contextmanager
    def hold(self) -> Iterator[LockedShell]:
        """Its lock."""
        with lock.hold(self.device) as held:
            yield LockedShell(held)


@dataclass(frozen=True)
class LockedShell:
    """The same under the lock (see :class:`edge.deploy.storage.Locked`)."""

    held: Held

    @property
    def device(self) -> Device:
        """The device."""
        return self.held.device

    @property
    def folder(self) -> str:
        """Its folder."""
        return self.held.folder

    def prepare(self, name: str) -> State:
        """Make the folders; settle what a broken transfer left."""
        return read_state(self.held.run(scripts.PREPARE, name, timeout=600).stdout)

    def receive(
        self, name: str, missing: Sequence[BundleFile], source: Path, state: State
    ) -> State:
        """Bring files in as few streams as the device allows."""
        answer = ""
        size = sum(file.size for file in missing)
        if state.tar:
            answer = self._receive(name, "-", tar(missing, source), size)
        else:
            for file in missing:
                data = files.chunks(source / file.path, file.size)
                answer = self._receive(name, file.sha256, data, size)
        if not state.hashes:
            answer = self._accept_after_reading_back(name, missing)
        return read_state(answer)

    def assemble(self, name: str, bundle: Bundle) -> None:
        """Make the release's folder of blobs, and check it."""
        timeout = STEP_TIMEOUT + 3 * bundle.total_bytes / SLOWEST_HASH
        words = (scripts.ASSEMBLE, name, bundle.release)
        self.held.run(*words, stdin=bundle.listing(), timeout=timeout)

    def verify(self, name: str, release: str) -> None:
        """Check a release."""
        self.held.run(scripts.VERIFY, name, release, timeout=600)

    def switch(self, name: str, history: Sequence[str]) -> Stored:
        """Make the last of ``history`` active."""
        lines = "".join(f"{one}\n" for one in history).encode()
        done = self.held.run(scripts.SWITCH, name, history[-1], stdin=lines, timeout=600)
        return read_stored(done.stdout)

    def collect(self, unneeded: Unneeded) -> None:
        """Remove releases and blobs."""
        lines = [f"release {name} {release}\n" for name, release in unneeded.releases]
        lines += [f"blob {digest}\n" for digest in unneeded.blobs]
        self.held.run(scripts.COLLECT, stdin="".join(lines).encode())

    def _receive(self, name: str, what: str, data: Iterable[bytes], size: int) -> str:
        pause = size / SLOWEST_HASH
        timeout = STEP_TIMEOUT + size / SLOWEST + pause
        words = (scripts.RECEIVE, name, what)
        return self.held.stream(*words, chunks=data, timeout=timeout, idle=IDLE + pause).stdout

    def _accept_after_reading_back(self, name: str, sent: Sequence[BundleFile]) -> str:
        """For a device without any hash tool: what it stored is read back and hashed here."""
        good = []
        with tempfile.TemporaryDirectory(prefix="edge-back-") as scratch:
            for file in sent:
                back = Path(scratch) / "blob"
                self.device.get(f"{self.folder}/incoming/{file.sha256}", back, limit=file.size)
                if files.hash_of(files.chunks(back, back.stat().st_size)) == file.sha256:
                    good.append(file.sha256)
        hashes = "".join(f"{digest}\n" for digest in good).encode()
        return self.held.run(scripts.ACCEPT, name, stdin=hashes).stdout


def tar(missing: Sequence[BundleFile], folder: Path) -> Iterator[bytes]:
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


def read_state(text: str) -> State:
    """The state in a device's answer; lines that are not as they must be are left out.

    Raises :class:`errors.DeployFailed` when the answer has no end.
    """
    parts = _sections(text)
    if "end" not in parts:
        raise errors.DeployFailed(
            "the device did not say what it has; is its shell a POSIX one?",
            remedy='for one with Windows say os = "windows" in devices.toml',
        )
    return State(
        blobs=_blobs(parts),
        history=history_of(parts.get("history", []), "".join(parts.get("current", []))),
        free_bytes=disk_free(parts.get("space", [])),
        links="link" in parts,
        tar="tar" in parts,
        hashes="hash none" not in parts,
    )


def read_stored(text: str) -> Stored:
    """What lies on a device, from its answer to a switch; nothing when that has no end."""
    parts = _sections(text)
    if "end" not in parts:
        return Stored((), {})
    releases = {}
    for part, listed in parts.items():
        found = re.fullmatch(r"sums bundles/([^/]+)/releases/([^/]+)\.sums", part)
        if found:
            releases[found[1], found[2]] = frozenset(line[:64] for line in listed)
    return Stored(tuple(_blobs(parts)), releases)


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
        if len(one) >= 6 and one[4].isdecimal() and HASH.fullmatch(one[-1])
    }
