"""What a target's build gives: files with roles, one manifest, written whole or not at all.

``manifest.json`` holds no absolute path, no time of day and no host name: two builds of the same
inputs give the same bytes.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from edge import errors
from edge.store import CHUNK, File, hash_file

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
ROLES = ("artifact", "closure", "samples", "runtime", "runner", "app", "plan")
MAX_MANIFEST_BYTES = 16 * 2**20
MAX_PATH = 400  # bytes of UTF-8
OLD = ".old"
PACKAGES = (".mlpackage",)  # folders that Apple's systems show and take as one file


@dataclass(frozen=True)
class BundleFile:
    """A file of a bundle: its path there, where its content lies now, and what it is for."""

    path: str
    source: File
    role: str
    executable: bool = False

    @classmethod
    def of(cls, path: str, source: File, role: str, *, executable: bool = False) -> BundleFile:
        """A checked bundle file."""
        if role not in ROLES or path_fault(path):
            raise errors.StepFailed(f"a recipe put {path!r} with the role {role!r} into a bundle")
        return cls(path, source, role, executable)

    def entry(self) -> dict[str, Any]:
        """The file's entry in the manifest."""
        plain = {
            "path": self.path,
            "role": self.role,
            "sha256": self.source.sha256,
            "size": self.source.size,
        }
        return {**plain, "executable": True} if self.executable else plain


@dataclass(frozen=True)
class Bundle:
    """What a recipe's ``build`` returns.

    ``runtime`` are facts of the runtime for the manifest. ``runtime_size``: ``raw`` and
    ``compressed`` bytes of the runtime on a device; ``"files"`` means all files with that role,
    None that nobody knows before an app is linked. ``unverified``: what only a device can prove.
    ``cache``: the runner keeps what it compiles on the device.
    """

    files: tuple[BundleFile, ...]
    runtime: Mapping[str, Any]
    runtime_size: Mapping[str, int] | Literal["files"] | None = "files"
    planned: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    cache: bool = False


def artifact_name(artifact: File) -> str:
    """What a bundle calls its artifact: the file, or the package that it is the head of."""
    folder = artifact.path.parent
    return folder.name if folder.suffix in PACKAGES else artifact.path.name


def path_fault(path: str) -> str:
    """Why ``path`` cannot be a file of a bundle, or nothing."""
    size = len(path.encode("utf-8", "surrogatepass"))
    parts = path.split("/")
    reasons = {
        f"is empty or longer than {MAX_PATH} bytes": not 0 < size <= MAX_PATH,
        "has a control character, half a letter or a backslash": not path.isprintable()
        or "\\" in path,
        "is not relative and normalised": bool({"", ".", ".."} & set(parts)),
        "has a part with a space at its end": any(part != part.strip() for part in parts),
        "has a part longer than 200 bytes": any(len(part) > 200 for part in parts),
        "is the manifest itself": parts[0] == MANIFEST,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """The manifest's one spelling: sorted keys, two spaces, a line end."""
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def write(folder: Path, files: Iterable[BundleFile], manifest: Mapping[str, Any]) -> bool:
    """Bring the bundle into ``folder``; False when it was there already, byte for byte.

    Contents are hashed while they are copied. A new bundle is made beside the old one and
    switched in by two renames; what is left by a build that was killed between them is mended
    by the next one. Whoever else may write this bundle has to be excluded by the caller.
    """
    listed = sorted(files, key=lambda file: file.path)
    data = manifest_bytes(manifest)
    prefix = f".edge@{folder.name}@"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _recover(folder, prefix)
        if _is_current(folder, listed, data):
            return False
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        work.chmod(0o755)
        for file in listed:
            _copy(file, work / file.path)
        (work / MANIFEST).write_bytes(data)
        _switch(work, folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return True


def _unwritable(folder: Path, error: OSError) -> errors.StepFailed:
    return errors.StepFailed(
        f"cannot write the bundle {folder}: {error.strerror}"
        + (f" ({error.filename})" if error.filename else ""),
        remedy="choose another --output, or see to its space and permissions",
    )


def _recover(folder: Path, prefix: str) -> None:
    """Bring an old bundle back that a killed build had moved aside; remove other left-overs."""
    for stale in sorted(folder.parent.glob(f"{glob.escape(prefix)}*")):
        if stale.name.endswith(OLD) and not folder.exists() and (stale / MANIFEST).is_file():
            stale.rename(folder)
        shutil.rmtree(stale, ignore_errors=True)


def _is_current(folder: Path, files: list[BundleFile], manifest: bytes) -> bool:
    path = folder / MANIFEST
    try:
        if path.read_bytes() != manifest:
            return False
        return all(_same(folder / file.path, file) for file in files)
    except OSError:
        return False


def _same(path: Path, file: BundleFile) -> bool:
    found = path.lstat()
    regular = stat.S_ISREG(found.st_mode) and found.st_size == file.source.size
    runnable = bool(found.st_mode & 0o100) or not file.executable
    return regular and runnable and hash_file(path)[0] == file.source.sha256


def _copy(file: BundleFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with file.source.path.open("rb") as source, target.open("xb") as sink:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != file.source.sha256:
        raise errors.StoreDamaged(
            f"the stored file {file.source.path} no longer has the content of {file.path}",
            remedy=f"remove {file.source.path} and build again",
        )
    if file.executable:
        target.chmod(0o755)


def _switch(work: Path, folder: Path) -> None:
    if not folder.exists():
        work.rename(folder)
        return
    old = work.with_name(work.name + OLD)
    folder.rename(old)
    work.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, with its files' entries checked.

    Raises :class:`errors.UsageError` when there is no bundle or its manifest is no manifest.
    """
    path = folder / MANIFEST
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise errors.UsageError(f"{path} is too large for a manifest")
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise errors.UsageError(
            f"there is no bundle in {folder}", remedy="build it first: edge build --target NAME"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise errors.UsageError(f"{path} is no manifest: {error}") from error
    _check_manifest(manifest, path)
    return dict(manifest)


def _check_manifest(manifest: Any, path: Path) -> None:
    version = manifest.get("schema") if isinstance(manifest, dict) else None
    if version != SCHEMA_VERSION:
        raise errors.UsageError(
            f"{path} has manifest schema {version!r}; this release reads {SCHEMA_VERSION}",
            remedy="build the bundle again with this release",
        )
    files = manifest.get("files")
    for entry in files if isinstance(files, list) else [None]:
        good = (
            isinstance(entry, dict)
            and isinstance(entry.get("path"), str)
            and not path_fault(entry["path"])
            and isinstance(entry.get("size"), int)
            and re.fullmatch(r"[0-9a-f]{64}", str(entry.get("sha256")))
        )
        if not good:
            raise errors.UsageError(f"{path} lists a file that no bundle may have: {entry!r:.200}")


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle whose files all have the sizes and hashes that it says.

    Raises :class:`errors.StoreDamaged` naming the first file that does not.
    """
    manifest = read_manifest(folder)
    for entry in manifest["files"]:
        path = folder / entry["path"]
        fits = path.is_file() and not path.is_symlink() and path.stat().st_size == entry["size"]
        if not fits or hash_file(path)[0] != entry["sha256"]:
            raise errors.StoreDamaged(
                f"{path} is not the file that the manifest lists", remedy="build the bundle again"
            )
    return manifest


def pack(folder: Path, archive: Path) -> File:
    """``archive`` (``NAME.tar.gz``) of a verified bundle, in a top folder ``NAME``.

    Sorted, without times, owners or this host's modes.
    """
    manifest = verify(folder)
    names = [MANIFEST, *(entry["path"] for entry in manifest["files"])]
    runnable = {entry["path"] for entry in manifest["files"] if entry.get("executable")}
    partial = archive.with_name(archive.name + ".part")
    try:
        _write_archive(folder, names, runnable, partial)
        partial.replace(archive)
    except OSError as error:
        raise _unwritable(archive, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return File(archive, *hash_file(archive))


def _write_archive(folder: Path, names: list[str], runnable: set[str], partial: Path) -> None:
    top = partial.name.removesuffix(".part").removesuffix(".tar.gz")
    with partial.open("wb") as raw:
        # mtime=0 and no file name: gzip headers would otherwise differ from build to build.
        with (
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for name in sorted(names):
                data = (folder / name).read_bytes()
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size = len(data)
                info.mode = 0o755 if name in runnable else 0o644
                tar.addfile(info, BytesIO(data))
        raw.flush()
        os.fsync(raw.fileno())
