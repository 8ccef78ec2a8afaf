"""What prebuilt runtimes hold: an AAR's libraries and page alignment, an xcframework's slices.

Everything here reads untrusted archives: the number of entries, their names and their sizes are
checked before anything is read, and only headers and property lists are ever decompressed.
"""

from __future__ import annotations

import contextlib
import plistlib
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from xml.parsers.expat import ExpatError

from edge import errors
from edge.store import hash_file
from edge.tools.elf import alignment

MAX_ENTRIES = 10_000
MAX_ENTRY_BYTES = 1 << 30
MAX_TOTAL_BYTES = 4 << 30
MAX_PLIST_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 16  # the program headers follow the ELF header in every linker's output
MAX_DEFLATE_RATIO = 1032  # deflate cannot do better
CHUNK = 1 << 20
PAGE = 16 * 1024
_LIBRARY = re.compile(r"jni/([A-Za-z0-9_-]+)/([A-Za-z0-9_.+-]+\.so)")
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError)


@dataclass(frozen=True)
class NativeLibrary:
    """A shared library in an AAR; sizes in bytes.

    ``compressed``: deflated, which is about what a download of it costs. ``alignment``: the
    smallest alignment of its loadable segments; 16 KB pages need 16,384 on 64-bit devices.
    """

    abi: str
    name: str
    size: int
    compressed: int
    alignment: int

    @property
    def loads_on_16k_pages(self) -> bool:
        """True when every loadable segment is aligned to 16 KB."""
        return self.alignment % PAGE == 0 and self.alignment > 0


@dataclass(frozen=True)
class Aar:
    """An Android archive: SHA-256 (hex) and size in bytes, its libraries by ABI and name."""

    sha256: str
    size: int
    libraries: tuple[NativeLibrary, ...]

    def of(self, abis: Collection[str]) -> tuple[NativeLibrary, ...]:
        """The libraries of these ABIs; :class:`errors.UsageError` when one has none."""
        known = {library.abi for library in self.libraries}
        if missing := sorted(set(abis) - known):
            has = ", ".join(sorted(known))
            raise errors.UsageError(f"the AAR has libraries for {has}, not {', '.join(missing)}")
        return tuple(library for library in self.libraries if library.abi in abis)


@dataclass(frozen=True)
class Slice:
    """One platform's part of an xcframework; ``variant`` is empty for devices, or ``simulator``...

    Sizes in bytes: ``size`` of the binary (a static one: far more than an app grows by), ``total``
    with headers and property lists.
    """

    identifier: str
    platform: str
    variant: str
    architectures: tuple[str, ...]
    binary: str
    size: int
    total: int
    minimum_os: str
    version: str


@dataclass(frozen=True)
class XcFramework:
    """An xcframework: its folder's name and its slices, sorted by identifier."""

    name: str
    slices: tuple[Slice, ...]


# --------------------------------------------------------------------------------- Android
def read_aar(path: Path) -> Aar:
    """Read an AAR's native libraries; :class:`errors.UsageError` when it is none or is hostile."""
    with _zip(path) as archive:
        found = [
            _library(archive, entry, match[1], match[2])
            for entry in _zip_entries(archive, path)
            if (match := _LIBRARY.fullmatch(entry.filename))
        ]
    if not found:
        raise errors.UsageError(f"{path} is no AAR with native libraries: nothing in jni/ABI/*.so")
    sha256, size = hash_file(path)
    return Aar(sha256, size, tuple(sorted(found, key=lambda library: (library.abi, library.name))))


def _library(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, abi: str, so: str) -> NativeLibrary:
    with _reading(entry.filename), archive.open(entry) as stream:
        aligned = alignment(stream.read(MAX_HEADER_BYTES), entry.filename)
    stored = entry.compress_type == zipfile.ZIP_STORED
    compressed = _deflated(archive, entry) if stored else entry.compress_size
    return NativeLibrary(abi, so, entry.file_size, compressed, aligned)


def _deflated(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    engine = zlib.compressobj(6, zlib.DEFLATED, -15)
    size = 0
    with _reading(entry.filename), archive.open(entry) as stream:
        while chunk := stream.read(CHUNK):
            size += len(engine.compress(chunk))
    return size + len(engine.flush())


# ----------------------------------------------------------------------------------- Apple
def read_xcframework(path: Path) -> XcFramework:
    """Read an xcframework: the folder, one that holds it, a ``.zip`` or a ``.tar``/``.tgz``.

    Raises :class:`errors.UsageError` when there is not exactly one, or it is hostile.
    """
    sizes, plists = _list(path)
    root = _root(sizes, path)
    libraries = _plist(plists, f"{root}/Info.plist").get("AvailableLibraries")
    if not isinstance(libraries, list) or not libraries:
        raise errors.UsageError(f"{root}/Info.plist lists no libraries")
    slices = [_slice(library, root, sizes, plists) for library in libraries]
    slices.sort(key=lambda one: one.identifier)
    return XcFramework(PurePosixPath(root).name, tuple(slices))


def xcframework_zip(source: Path, out: Path, *, slices: Collection[str] = ()) -> str:
    """Write the xcframework of ``source`` to the zip ``out``; its SHA-256 (SwiftPM's checksum).

    The same content gives the same bytes: sorted names, no times, plain modes. ``slices`` are
    identifiers to keep (``ios-arm64``), the property list then names only these; default: all.
    Slices made of symbolic links (macOS, Catalyst) are refused: not every archive carries links.
    """
    known = {one.identifier: one for one in read_xcframework(source).slices}
    wanted = set(slices) or set(known)
    linked = {name for name, one in known.items() if "/Versions/" in one.binary}
    if bad := sorted(wanted - known.keys() | wanted & linked):
        raise errors.UsageError(
            f"{source} has no slice {', '.join(bad)} that a zip could hold",
            remedy=f"name the ones to keep of {', '.join(sorted(known.keys() - linked))}",
        )
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".xcframework-") as scratch:
        folder = _unpacked(source, Path(scratch))
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            for name, path in sorted(_inside(folder).items()):
                if name == "Info.plist" or name.partition("/")[0] in wanted:
                    _add(archive, f"{folder.name}/{name}", path, wanted)
    return hash_file(out)[0]


def _list(path: Path) -> tuple[dict[str, int], dict[str, bytes]]:
    """Sizes of all files by name, contents of the property lists."""
    sizes: dict[str, int] = {}
    plists: dict[str, bytes] = {}
    for name, size, stream in _entries(path):
        if name in sizes:
            raise errors.UsageError(f"{path} holds {name!r:.200} twice")
        sizes[name] = size
        if name.endswith("/Info.plist") and ".xcframework/" in name:
            with _reading(name):
                plists[name] = stream.read(MAX_PLIST_BYTES)
    return sizes, plists


def _entries(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of every file; links and folders are left out."""
    if path.is_dir():
        return _folder_files(path)
    return _zip_files(path) if zipfile.is_zipfile(path) else _tar_files(path)


def _folder_files(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    budget = _Budget(path)
    base = path.parent if path.suffix == ".xcframework" else path
    for name, file in sorted(_inside(path).items()):
        size = file.stat().st_size
        budget.take(name, size)
        with file.open("rb") as stream:
            yield file.relative_to(base).as_posix(), size, stream


def _inside(folder: Path) -> dict[str, Path]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path for path in files}


def _zip_files(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with _zip(path) as archive:
        for entry in _zip_entries(archive, path):
            if not entry.is_dir() and not stat.S_ISLNK(entry.external_attr >> 16):
                with _reading(entry.filename), archive.open(entry) as stream:
                    yield entry.filename, entry.file_size, stream


def _tar_files(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    budget = _Budget(path)
    # Read as a stream: one pass, no seeking back through what was compressed.
    with _reading(path), tarfile.open(path, "r|*") as archive:
        for member in archive:
            name = budget.take(member.name, member.size)
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield name, member.size, stream


def _root(sizes: Mapping[str, int], path: Path) -> str:
    tops = {name.removesuffix("/Info.plist") for name in sizes if name.endswith("/Info.plist")}
    roots = sorted(top for top in tops if top.endswith(".xcframework"))
    if len(roots) != 1:
        raise errors.UsageError(f"{path} holds {len(roots)} xcframeworks, one is wanted")
    return roots[0]


def _plist(plists: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        # XML only: of the formats it is the one that build tools write here.
        value = plistlib.loads(plists[name], fmt=plistlib.FMT_XML)
    except (KeyError, ValueError, ExpatError, OverflowError, AttributeError) as error:
        raise errors.UsageError(f"{name} is no property list") from error
    if not isinstance(value, dict):
        raise errors.UsageError(f"{name} is no property list of names and values")
    return value


def _slice(
    library: object, root: str, sizes: Mapping[str, int], plists: Mapping[str, bytes]
) -> Slice:
    entry = library if isinstance(library, dict) else {}
    identifier = _field(entry, "LibraryIdentifier", root)
    place = PurePosixPath(framework := _field(entry, "LibraryPath", root))
    usual = place / place.stem if place.suffix == ".framework" else place
    binary = str(entry.get("BinaryPath") or usual)
    folder = f"{root}/{identifier}"
    if f"{folder}/{binary}" not in sizes:
        raise errors.UsageError(f"{root} lacks {identifier}/{binary!r:.200}, which its list names")
    architectures = entry.get("SupportedArchitectures")
    own = sorted(name for name in plists if name.startswith(f"{folder}/{framework}/"))
    info = _plist(plists, own[0]) if own else {}
    return Slice(
        identifier=identifier,
        platform=_field(entry, "SupportedPlatform", root),
        variant=str(entry.get("SupportedPlatformVariant", "")),
        architectures=tuple(map(str, architectures if isinstance(architectures, list) else ())),
        binary=binary,
        size=sizes[f"{folder}/{binary}"],
        total=sum(size for name, size in sizes.items() if name.startswith(f"{folder}/")),
        minimum_os=str(info.get("MinimumOSVersion", "")),
        version=str(info.get("CFBundleShortVersionString", "")),
    )


def _field(entry: Mapping[str, object], key: str, root: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or _unsafe(value):
        raise errors.UsageError(f"{root}/Info.plist: {key} is {value!r:.200}")
    return value


def _unpacked(source: Path, scratch: Path) -> Path:
    """The xcframework as a folder: the source itself, or its files in ``scratch``."""
    if source.is_dir():
        return next(one for one in (source, *source.rglob("*")) if one.suffix == ".xcframework")
    for name, _, stream in _entries(source):
        parts = PurePosixPath(name).parts
        tops = [i for i, part in enumerate(parts) if part.endswith(".xcframework")]
        if not tops:
            continue
        target = scratch.joinpath(*parts[tops[0] :])
        target.parent.mkdir(parents=True, exist_ok=True)
        with _reading(name), target.open("wb") as out:
            shutil.copyfileobj(stream, out, CHUNK)
    return next(scratch.glob("*.xcframework"))


def _add(archive: zipfile.ZipFile, name: str, path: Path, wanted: set[str]) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.create_system = 3  # Unix, whatever wrote it: modes are kept in its terms
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    if name.count("/") == 1 and name.endswith("/Info.plist"):
        value = _plist({name: path.read_bytes()}, name)
        listed = value["AvailableLibraries"]
        value["AvailableLibraries"] = [x for x in listed if x["LibraryIdentifier"] in wanted]
        archive.writestr(entry, plistlib.dumps(value, sort_keys=True))
        return
    entry.file_size = path.stat().st_size
    with path.open("rb") as stream, archive.open(entry, "w") as target:
        shutil.copyfileobj(stream, target, CHUNK)


# -------------------------------------------------------------------------------- archives
@dataclass
class _Budget:
    """Counts entries and bytes of an archive, and looks at their names."""

    path: Path
    entries: int = 0
    total: int = 0

    def take(self, name: str, size: int) -> str:
        self.entries += 1
        self.total += size
        if self.entries > MAX_ENTRIES or size > MAX_ENTRY_BYTES or self.total > MAX_TOTAL_BYTES:
            raise errors.UsageError(f"{self.path} is too large: {self.entries} entries and more")
        if _unsafe(name.rstrip("/")):
            raise errors.UsageError(f"{self.path} holds the name {name!r:.200}")
        return name.removeprefix("./")


def _unsafe(name: str) -> bool:
    """True for a name that is empty, absolute, leads upwards or is written in a strange way."""
    parts = name.removeprefix("./").split("/")
    strange = "\\" in name or any(not c.isprintable() for c in name) or len(name) > 1000
    return strange or any(part in ("", ".", "..") for part in parts)


@contextlib.contextmanager
def _reading(what: object) -> Iterator[None]:
    """Whatever the archive libraries say of damaged input becomes one line of ours."""
    try:
        yield
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, *_DAMAGED) as error:
        raise errors.UsageError(f"cannot read {what!s:.200}: {error}") from error


def _zip(path: Path) -> zipfile.ZipFile:
    with _reading(path):
        return zipfile.ZipFile(path)


def _zip_entries(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    budget = _Budget(path)
    for entry in archive.infolist():
        budget.take(entry.filename, entry.file_size)
        if entry.flag_bits & 1:
            raise errors.UsageError(f"{path} is encrypted")
        if entry.file_size > entry.compress_size * MAX_DEFLATE_RATIO + 1024:
            raise errors.UsageError(f"{path}: {entry.filename!r:.200} lies about its size")
    if len(archive.NameToInfo) != budget.entries:
        raise errors.UsageError(f"{path} holds a name twice")
    return archive.infolist()
