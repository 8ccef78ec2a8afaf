"""ONNX Runtime's source tree: given, pinned by content, or cloned by its release's tag.

Whatever it is, its version must be the one that the target pins: the converter that made the
artifacts and the runtime that loads them have to be the same release.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, NoReturn

from edge import config, errors, log, process
from edge.store import CHUNK, File, Store, as_file
from edge.tools import fetch

REPOSITORY = "https://github.com/microsoft/onnxruntime.git"
DEPENDENCIES = "dependencies"
VERSION = "VERSION_NUMBER"
MAX_VERSION_BYTES = 100
TABLE = Path(__file__).with_name("ort_dependencies.toml")
MAX_FILES = 200_000
MAX_UNPACKED = 8 << 30
CLONE_TIMEOUT = 3600.0
# What a checkout has beside the sources, anywhere (a submodule's .git is a file), and at its top.
UNREAD = frozenset({".git", "__pycache__"})
UNREAD_TOP = frozenset({"build"})
GIVE = "give the folder or the archive (.tar.gz, .tar.xz) of a release's sources with --ort-source"


class Dependency(config.Pin):
    """An archive that the build takes: see the head of ``ort_dependencies.toml``."""

    root: str
    only: tuple[str, ...] = ()
    target: str = ""

    @property
    def version(self) -> str:
        """Its version, as the archive's name says it."""
        return self.package.rpartition("/")[2].split("_")[1].partition(".orig")[0]


@cache
def dependencies(version: str) -> Mapping[str, Dependency]:
    """The pinned dependencies of a release by their FetchContent name; empty for unknown ones."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8")).get(version, {})
    return MappingProxyType(
        {
            name: config.check(Dependency, row, f"{TABLE.name} {version} {name}")
            for name, row in rows.items()
        }
    )


# --------------------------------------------------------------------------------- finding
def find(store: Store, version: str, pin: config.Pin | None, given: Path | None) -> File:
    """The sources of ``version``: an archive, or a folder under the digest of all its files.

    ``given`` (``--ort-source``) wins over ``pin``, the target's, that over the release's git tag.
    Raises :class:`errors.ConfigError` for sources of another release.
    """
    if given is not None:
        source = _tree(given, version) if given.is_dir() else as_file(given)
    elif pin is not None:
        source = fetch.fetch(store, pin)
    else:
        source = _tree(_cloned(store, version), version)
    check_version(source.path, version)
    return source


def check_version(source: Path, wanted: str) -> None:
    """Refuse sources, as of :func:`find`, that are not those of the release ``wanted``."""
    found = _version(source)
    if found != wanted:
        raise errors.ConfigError(
            f"the sources in {source} are ONNX Runtime {found}, the target pins {wanted}",
            remedy=f"give the sources of {wanted}: converter and runtime must be one release",
        )


def _version(source: Path) -> str:
    said = _version_of_tree(source) if source.is_dir() else _version_in_archive(source)
    text = said.decode("utf-8", "replace").strip()
    if not re.fullmatch(r"[0-9A-Za-z.+-]{1,40}", text):
        raise errors.ConfigError(f"{source} is no source tree of ONNX Runtime: it has no {VERSION}",
                                 remedy=GIVE)  # fmt: skip
    return text


def _version_of_tree(folder: Path) -> bytes:
    try:
        with (folder / VERSION).open("rb") as stream:
            return stream.read(MAX_VERSION_BYTES)
    except OSError:
        return b""


def _version_in_archive(archive: Path) -> bytes:
    with _tar(archive) as tar:
        for member in _members(tar, archive):
            parts = _parts(member.name)
            if len(parts) == 2 and parts[1] == VERSION and member.isreg():
                stream = tar.extractfile(member)
                return stream.read(MAX_VERSION_BYTES) if stream else b""
    return b""


def _tree(folder: Path, version: str) -> File:
    """A tree under one digest: SHA-256 over names and contents of all its files."""
    check_version(folder, version)  # before thousands of files are read
    with log.step(f"read the sources in {folder.resolve().name}"):
        digest = hashlib.sha256()
        for name in _listed(folder):
            digest.update(os.fsencode(name) + b"\0" + as_file(folder / name).sha256.encode())
    return File(folder, digest.hexdigest(), 0)


def _listed(folder: Path) -> list[str]:
    """The files of a tree by relative name, sorted; links to folders are not followed."""
    found = []
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        here = Path(place).relative_to(folder)
        unread = UNREAD if here.parts else UNREAD | UNREAD_TOP
        folders[:] = [name for name in folders if name not in unread]
        kept = [name for name in names if name not in UNREAD and (Path(place) / name).is_file()]
        found += [(here / name).as_posix() for name in kept]
        if len(found) > MAX_FILES:
            raise errors.ConfigError(f"{folder} has more than {MAX_FILES} files", remedy=GIVE)
    return sorted(found)


def _unreadable(error: OSError) -> NoReturn:
    raise errors.UsageError(f"cannot read {error.filename}: {error.strerror}", remedy=GIVE)


def _cloned(store: Store, version: str) -> Path:
    """The release's tag, cloned once into the store."""
    folder = store.root / "ort" / f"source-{version}"
    if folder.is_dir():
        return folder
    with (
        log.step(f"clone ONNX Runtime v{version}"),
        store.locked(f"ort-source-{version}"),
    ):
        if not folder.is_dir():
            _clone(folder, version)
    return folder


def clone_words(version: str, folder: str) -> tuple[str, ...]:
    """How a release's sources are cloned into ``folder``."""
    return ("git", "clone", "--quiet", "--depth", "1", "--branch", f"v{version}",
            "--recurse-submodules", "--shallow-submodules", REPOSITORY, folder)  # fmt: skip


def _clone(folder: Path, version: str) -> None:
    work = folder.with_name(f".{folder.name}.clone")
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    try:
        process.run(clone_words(version, str(work)), timeout=CLONE_TIMEOUT)
        work.rename(folder)
    except errors.RunFailed as error:
        raise errors.FetchFailed(
            f"cannot clone ONNX Runtime v{version}: {error.message.splitlines()[-1]}",
            remedy="check the network, or give the sources with --ort-source",
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


# ------------------------------------------------------------------------------- unpacking
def place(source: Path, folder: Path) -> None:
    """Bring the sources of :func:`find` into the new folder ``folder``: the very files of its key.

    Raises as :func:`unpack` does.
    """
    if not source.is_dir():
        unpack(source, folder)
        return
    for name in _listed(source):
        with _writing(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, folder / name)


def place_dependency(archive: Path, dependency: Dependency, folder: Path) -> None:
    """Bring one pinned dependency into ``folder``, which may have files already."""
    unpack(archive, folder, root=dependency.root, only=dependency.only)


def unpack(archive: Path, folder: Path, *, root: str = "", only: tuple[str, ...] = ()) -> None:
    """Unpack below ``root`` (default: the archive's one top folder) into ``folder``.

    Regular files and folders only, nothing outside ``folder``; modes keep their x bit alone.
    Raises :class:`errors.ConfigError` for an archive that is too large or holds nothing there,
    and :class:`errors.StepFailed` when ``folder`` cannot be written.
    """
    base = PurePosixPath(root).parts
    files = 0
    with _tar(archive) as tar:
        for member in _members(tar, archive):
            parts = _parts(member.name)
            if not member.isreg() or len(parts) < 2:
                continue
            base = base or parts[:1]
            if not root and parts[:1] != base:
                raise errors.ConfigError(f"{archive} has more than one top folder", remedy=GIVE)
            if name := _below(parts, base, only):
                _write(tar, member, folder / name)
                files += 1
    if not files:
        raise errors.ConfigError(
            f"{archive} holds nothing below {root or 'its top folder'}", remedy=GIVE
        )


def _members(tar: tarfile.TarFile, archive: Path) -> Iterator[tarfile.TarInfo]:
    """The members of an archive, those that are not wanted too: they are read all the same."""
    total = 0
    for count, member in enumerate(tar, 1):
        total += max(member.size, 0)
        if total > MAX_UNPACKED or count > MAX_FILES:
            raise errors.ConfigError(f"{archive} is too large to be unpacked", remedy=GIVE)
        yield member


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a member's name; one that leaves the archive is refused."""
    parts = PurePosixPath(name).parts
    if ".." in parts or name.startswith("/") or "\0" in name:
        raise errors.ConfigError(
            f"the archive has the name {name!r:.200}, which leaves it", remedy=GIVE
        )
    return parts


def _below(parts: tuple[str, ...], base: tuple[str, ...], only: tuple[str, ...]) -> str:
    """The place of a member below ``base``, or nothing when it is not wanted."""
    if parts[: len(base)] != base:
        return ""
    below = "/".join(parts[len(base) :])
    wanted = not only or any(below == each or below.startswith(f"{each}/") for each in only)
    return below if wanted else ""


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    stream = tar.extractfile(member)
    if stream is None:
        raise tarfile.ReadError(f"no data of {member.name!r:.200}")
    with _writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as sink:
            sink.writelines(_chunks(stream))
        target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """What ``stream`` holds; gzip and bzip2 say OSError to damage, which is not the disk's."""
    while True:
        try:
            chunk = stream.read(CHUNK)
        except OSError as error:
            raise tarfile.ReadError(str(error)) from error
        if not chunk:
            return
        yield chunk


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.StepFailed(
            f"cannot write {target}: {error.strerror or error}",
            remedy="see to the space and permissions of the store",
        ) from error


@contextlib.contextmanager
def _tar(archive: Path) -> Iterator[tarfile.TarFile]:
    """The archive as a tar, a Debian package's data included; damage is a ConfigError."""
    try:
        with archive.open("rb") as head:
            packaged = head.read(len(fetch.AR)) == fetch.AR
        stream = fetch.deb_data(archive) if packaged else archive.open("rb")
        with stream, fetch.open_tar(stream) as tar:
            yield tar
    except fetch.DAMAGE as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        raise errors.ConfigError(
            f"{archive} cannot be read as an archive of sources: {why:.200}", remedy=GIVE
        ) from error
