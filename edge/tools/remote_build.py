"""Carries out a plan on a device: a Mac with Xcode, a Linux host with an NDK.

The work folder is laid out here and sent; the plan's commands run there, all but the one that
clones the sources (``edge.tools.remote_jobs`` is how). A Linux library is stripped there: the
toolchain that is in the result's key is the device's, and this machine may have no strip for that
platform.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from edge import errors
from edge.devices import Device, DeviceSettings
from edge.devices.base import CHUNK
from edge.tools import (
    ort_build,
    ort_source,
    ort_toolchain,
    ort_versions,
    reduced_plan,
    remote_scripts,
)
from edge.tools.ort_cmake import LINUX
from edge.tools.reduced_plan import SOURCE, Plan, write_files
from edge.tools.remote_jobs import Site, site, steadily

STRIPPED = ".stripped"
PATHS = ("identity_file", "known_hosts", "ssh_config")
ANSWER_LIMIT = 1 << 16  # characters
PRODUCT_LIMIT = 2 << 30  # bytes


# ---------------------------------------------------------------------------- the device
def to_json(device: DeviceSettings) -> dict[str, Any]:
    """How a device is described, as JSON values."""
    found = asdict(device)
    return {key: str(value) if isinstance(value, Path) else value for key, value in found.items()}


def from_json(data: Mapping[str, Any]) -> DeviceSettings:
    """The device of :func:`to_json`."""
    paths = {key: Path(data[key]) for key in PATHS if data[key] is not None}
    return DeviceSettings(**{**data, **paths})


def ask_of(device: Device) -> ort_toolchain.Ask:
    """Asks a connected device, within a minute a command.

    The result raises :class:`errors.DeviceUnreachable` when the connection breaks: a device that
    is gone lacks nothing.
    """

    def ask(words: Sequence[str]) -> str | None:
        argv = ["sh", "-c", remote_scripts.ASK, "sh", *words]
        try:
            done = device.run(argv, timeout=ort_toolchain.TIMEOUT, check=False)
        except errors.RunFailed:
            return None
        said = (done.stdout.strip() or done.stderr.strip())[:ANSWER_LIMIT]
        plain = "".join(letter for letter in said if letter.isprintable() or letter == "\n")
        return plain if done.returncode == 0 else None

    return ask


def lacks(request: reduced_plan.Request, ask: ort_toolchain.Ask) -> dict[str, str]:
    """What a device lacks beside the toolchain, and how to get it there."""
    wanted = ort_versions.row(ort_versions.PYTHON_VERSION, reduced_plan.release_of(request.version))
    program = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    found = ask(["python3", "-c", program]) or ""
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", found, re.ASCII)
    least = tuple(int(part) for part in wanted.split("."))
    missing = {}
    if match is None or (int(match[1]), int(match[2])) < least:
        what = f"Python {wanted} or newer with venv (python3: {found or 'none with venv'})"
        missing[what] = "apt install python3-venv"
    for tool in ("tar", "gzip"):
        if ask(["sh", "-c", 'command -v "$1"', "sh", tool]) is None:
            missing[tool] = f"install {tool}"
    return missing


# ----------------------------------------------------------------------------- the build
def build_on(
    device: Device, plan: Plan, sources: ort_build.Sources, scratch: Path, output: Path
) -> Path:
    """Build on a connected ``device``; the product, below the empty folder ``scratch`` here.

    What the build prints goes to ``output`` as it comes. Beside a ``.wasm`` lies its ``.mjs``,
    beside a Linux library the stripped one (:func:`stripped`).

    Raises :class:`errors.StepFailed` with the last lines of a command that failed, also when
    there is no product, and :class:`errors.DeviceUnreachable` when a broken connection does not
    come back.
    """
    if steadily(device, lambda: ask_of(device)(["id", "-u"])) == "0":
        plan = ort_build.for_root(plan)
    archive = _pack(plan, sources, scratch)
    with site(device, output, ort_build.TIMEOUT) as place:
        place.send(archive)
        archive.unlink()
        for words in _commands(plan):
            code = place.job(words)
            if code != 0:
                raise _failed(place, plan, ort_build.ended(code, ""))
        return _fetch(place, plan, scratch)


def stripped(product: Path) -> Path:
    """Where the stripped library lies beside the one that was linked."""
    return product.with_name(product.name + STRIPPED)


def strip_words(platform: str, product: str) -> tuple[str, ...]:
    """The command that strips a library of a Linux ``platform`` into :func:`stripped`."""
    triple, _ = LINUX[platform]
    return (f"{triple}-strip", "--strip-unneeded", "-o", product + STRIPPED, product)


def _pack(plan: Plan, sources: ort_build.Sources, scratch: Path) -> Path:
    """The work folder as one archive, in GNU's form: busybox reads its long names."""
    work, archive = scratch / "work", scratch / "work.tar.gz"
    work.mkdir()
    sources.place(plan.version, work)
    write_files(plan, work)
    with tarfile.open(archive, "w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(work.iterdir()):
            tar.add(path, path.name, filter=_nobodys)
    shutil.rmtree(work)
    return archive


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    return member


def _commands(plan: Plan) -> list[tuple[str, ...]]:
    """The plan's commands without the clone: the sources are sent."""
    clone = ort_source.clone_words(plan.version, SOURCE)
    return [words for words in plan.commands if words != clone]


# --------------------------------------------------------------------------- the product
def _fetch(place: Site, plan: Plan, scratch: Path) -> Path:
    """Bring the product, and what belongs to it, into a new folder of ``scratch``."""
    product = scratch / "product" / PurePosixPath(plan.product).name
    product.parent.mkdir()
    names = [plan.product]
    if product.suffix == ".wasm":
        names.append(str(PurePosixPath(plan.product).with_suffix(".mjs")))
    kinds = place.kinds(names)
    found = zip(names, kinds, strict=True)
    missing = [PurePosixPath(name).name for name, kind in found if kind == "none"]
    if missing:
        raise _failed(place, plan, ort_build.ended(0, ", ".join(missing)))
    if kinds[0] == "folder":
        archive = scratch / "product.tar"
        place.get_folder(plan.product, archive, limit=PRODUCT_LIMIT)
        unpack(archive, product)
        return product
    if plan.platform in LINUX:
        names.append(_strip(place, plan))
    for name in names:
        place.get(name, product.parent / PurePosixPath(name).name, limit=PRODUCT_LIMIT)
    return product


def _strip(place: Site, plan: Plan) -> str:
    """Strip the library there; the stripped one's name."""
    words = strip_words(plan.platform, plan.product)
    code = place.job(words)
    if code != 0:
        raise _failed(place, plan, f"ended well, but {words[0]} {ort_build.ended(code, '')}")
    return words[-2]


def _failed(place: Site, plan: Plan, what: str) -> errors.StepFailed:
    return ort_build.failed(plan, f"on {place.name} {what}", place.last(), place.output)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar that holds one folder, named like the new ``folder``, into it.

    Files, folders, and links that stay inside; modes keep their x bit alone. What a device packed
    is not trusted: anything else is :class:`errors.StepFailed`, as is a tar of more
    than ``PRODUCT_LIMIT`` bytes or ``ort_source.MAX_FILES`` members.
    """
    links = []
    total = 0
    try:
        folder.mkdir()
        with tarfile.open(archive, "r:") as tar:
            for count, member in enumerate(tar):
                if count >= ort_source.MAX_FILES or total + member.size > PRODUCT_LIMIT:
                    raise errors.StepFailed(f"{folder.name}, as it was packed, is too large")
                target = folder.parent / _inside(member.name, folder.name)
                if member.issym():
                    links.append((target, member.linkname))
                else:
                    total += _extract(tar, member, target)
        # Last, so that nothing is written through a link.
        for target, to in links:
            _link(target, to, folder)
        astray = [path for path, _ in links if not path.resolve().is_relative_to(folder.resolve())]
    except (tarfile.TarError, OSError, ValueError, KeyError, RuntimeError) as error:
        # RuntimeError: what pathlib raises for links in circles, before Python 3.13.
        raise errors.StepFailed(
            f"{folder.name}, as it was packed, cannot be read: {error}"
        ) from error
    if astray:
        raise errors.StepFailed(
            f"{folder.name} has the link {astray[0].name!r:.200}, which leaves it"
        )


def _inside(name: str, top: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.parts[:1] != (top,) or ".." in path.parts or "\0" in name:
        raise errors.StepFailed(f"the archive of {top} has the name {name!r:.200}, which leaves it")
    return path


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> int:
    """A file or folder; the bytes written. A file's second name is another file."""
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return 0
    stream = tar.extractfile(member) if member.isreg() or member.islnk() else None
    if stream is None:
        raise errors.StepFailed(f"{member.name!r:.200} is neither a file, a folder nor a link")
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as sink:
        shutil.copyfileobj(stream, sink, CHUNK)
        size = sink.tell()
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
    return size


def _link(target: Path, to: str, folder: Path) -> None:
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise errors.StepFailed(f"{folder.name} has the link {target.name!r:.200}, which leaves it")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(to)
