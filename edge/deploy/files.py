"""The files of a bundle as deploying sees them: read from its manifest, which is not trusted.

A bundle may come from anywhere. A file is taken only when the manifest names it with a relative,
normalised path, when it is a regular file that no link leads to, and when its size and SHA-256
are what the manifest says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors
from edge.bundle import MANIFEST, path_fault
from edge.devices.base import CHUNK

MAX_MANIFEST = 16 * 2**20  # bytes
MAX_FILES = 20_000
MAX_FILE = 2**33 - 1  # bytes: what a plain tar header can say
_REMEDY = "build the bundle again; do not edit what is in it"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BundleFile:
    """One file: ``path`` relative to the bundle, ``size`` in bytes."""

    path: str
    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True)
class Bundle:
    """A bundle that was checked: ``release`` is the SHA-256 of its manifest."""

    folder: Path
    release: str
    files: tuple[BundleFile, ...]

    @property
    def blobs(self) -> Mapping[str, BundleFile]:
        """One file for each different content, by SHA-256."""
        return {file.sha256: file for file in self.files}

    @property
    def total_bytes(self) -> int:
        """Bytes of all different contents."""
        return sum(file.size for file in self.blobs.values())

    def listing(self) -> bytes:
        """The files in the form that the device's script reads: hash, x or -, path, by tabs."""
        lines = (f"{f.sha256}\t{'x' if f.executable else '-'}\t{f.path}\n" for f in self.files)
        return "".join(lines).encode()


def read(folder: Path) -> Bundle:
    """The bundle in ``folder``, every file of it checked.

    Raises :class:`errors.DeployFailed` naming the first file that is not as it must be.
    """
    data = _read_manifest(folder)
    files = parse(data)
    for file in files:
        _check(folder, file)
    release = hashlib.sha256(data).hexdigest()
    manifest = BundleFile(MANIFEST, release, len(data))
    return Bundle(folder, release, (*files, manifest))


def parse(data: bytes) -> tuple[BundleFile, ...]:
    """The files that a manifest lists, sorted by path; nothing is looked up on the disk.

    Raises :class:`errors.DeployFailed` for anything that is not as it must be.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refused(f"it is no JSON ({error})") from error
    entries = document.get("files") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise _refused("it has no list of files")
    if len(entries) > MAX_FILES:
        raise _refused(f"it lists more than {MAX_FILES} files")
    files = sorted((_entry(entry) for entry in entries), key=lambda file: file.path)
    _check_together(files)
    return tuple(files)


def chunks(path: Path, size: int) -> Iterator[bytes]:
    """Exactly ``size`` bytes of the file ``path``, in blocks.

    Raises :class:`errors.DeployFailed` when it has fewer or cannot be read.
    """
    left = size
    try:
        with path.open("rb") as stream:
            while left and (block := stream.read(min(CHUNK, left))):
                left -= len(block)
                yield block
    except OSError as error:
        raise errors.DeployFailed(f"cannot read {path}: {error.strerror}") from error
    if left:
        raise errors.DeployFailed(f"{path} became shorter while it was sent", remedy=_REMEDY)


def hash_of(blocks: Iterable[bytes]) -> str:
    """SHA-256 of ``blocks`` in hexadecimal digits."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _refused(why: str) -> errors.DeployFailed:
    return errors.DeployFailed(f"{MANIFEST} of the bundle is refused: {why}", remedy=_REMEDY)


def _read_manifest(folder: Path) -> bytes:
    path = folder / MANIFEST
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_MANIFEST + 1)
    except OSError as error:
        raise errors.DeployFailed(
            f"{folder} is no bundle: cannot read {MANIFEST}: {error.strerror}",
            remedy="build the target first, and give the folder that holds manifest.json",
        ) from error
    if len(data) > MAX_MANIFEST:
        raise _refused(f"it has more than {MAX_MANIFEST} bytes")
    return data


def _entry(entry: Any) -> BundleFile:
    if not isinstance(entry, dict):
        raise _refused("an entry of files is no object")
    path, digest, size = entry.get("path"), entry.get("sha256"), entry.get("size")
    if not isinstance(path, str) or (why := path_fault(path)):
        raise _refused(f"the path {path!r:.120} {why if isinstance(path, str) else 'is no text'}")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise _refused(f"sha256 of {path} is no SHA-256 in small hexadecimal digits")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FILE:
        raise _refused(f"size of {path} is no number of bytes up to {MAX_FILE}")
    runner = entry.get("role") == "runner" and path.rpartition("/")[2] == "edge_runner"
    return BundleFile(path, digest, size, runner or entry.get("executable") is True)


def _check_together(files: list[BundleFile]) -> None:
    """No path twice, no file that is also a folder, no content with two sizes."""
    paths = {file.path for file in files}
    if len(paths) < len(files):
        raise _refused("it lists a path twice")
    for file in files:
        parts = file.path.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts))}
        if above & paths:
            raise _refused(f"the path {file.path} goes through another file")
    sizes: dict[str, int] = {}
    for file in files:
        if sizes.setdefault(file.sha256, file.size) != file.size:
            raise _refused(f"{file.path} has the hash of a file of another size")


def _check(folder: Path, file: BundleFile) -> None:
    path = folder / file.path
    try:
        for part in [path, *path.parents][: len(Path(file.path).parts)]:
            if stat.S_ISLNK(os.lstat(part).st_mode):
                raise errors.DeployFailed(f"{part} is a link; bundles have none", remedy=_REMEDY)
        found = os.lstat(path)
    except OSError as error:
        raise errors.DeployFailed(
            f"{path} is listed in {MANIFEST} but cannot be read: {error.strerror}", remedy=_REMEDY
        ) from error
    if not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
        raise errors.DeployFailed(
            f"{path} is no file of {file.size} bytes as {MANIFEST} says", remedy=_REMEDY
        )
    if hash_of(chunks(path, file.size)) != file.sha256:
        raise errors.DeployFailed(
            f"{path} is not what {MANIFEST} says: its SHA-256 differs", remedy=_REMEDY
        )
