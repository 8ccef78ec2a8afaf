"""An environment of its own for a source whose framework cannot share this one.

A virtual environment in the store, by what was asked for. It is made under another name and
renamed, so that it is whole or not there; scripts in it would not survive that, ``python -m``
does. Requirements are exact and come as wheels, over the machine's own configuration of pip. What
they bring along is chosen by pip, once; the versions of all that lies in it go into every key.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from edge import errors, log, process
from edge.process import Environment
from edge.store import Store, canonical_json

__all__ = ["NEEDED", "Environment", "environment", "exact", "python_path"]

TIMEOUT = 1800.0
MAX_REQUIREMENTS = 100
UNKNOWN = "?"
# What the steps themselves import, where the user names no version; the floors are pyproject's.
NEEDED: Mapping[str, str] = {
    "numpy": "numpy>=1.26",
    "onnx": "onnx>=1.18",
    "onnxruntime": "onnxruntime>=1.22",
}
# NVIDIA publishes these as source alone: a few lines that require the wheels of their release, or
# (libs) that fetch one from its own index.
SOURCES = ("tensorrt-rtx", "tensorrt-rtx-cu13", "tensorrt-cu13", "tensorrt-cu13-libs")
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
# One release, by PEP 440: epoch, numbers, pre, post, dev, local; neither a range nor ``.*``.
_VERSION = (
    r"(?:[0-9]{1,9}!)?[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}(?:(?:a|b|rc)[0-9]{1,9})?"
    r"(?:\.post[0-9]{1,9})?(?:\.dev[0-9]{1,9})?(?:\+[A-Za-z0-9]{1,40}(?:\.[A-Za-z0-9]{1,40}){0,9})?"
)
_EXTRAS = r"\[[a-z0-9]+(?:[-_][a-z0-9]+)*(?:,[a-z0-9]+(?:[-_][a-z0-9]+)*){0,9}\]"
_EXACT = re.compile(f"({_NAME})(?:{_EXTRAS})?==({_VERSION})")
# They would send the packages elsewhere, or let those of this environment count as installed.
_ELSEWHERE = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT"}


def environment(
    store: Store,
    requirements: Sequence[str],
    *,
    make: bool = True,
    needed: Mapping[str, str] | None = None,
) -> Environment:
    """The environment that holds ``requirements``, made where the store does not have it.

    Without ``make`` nothing is; the versions in one that is not there are unknown.

    Each is ``name==version``, perhaps with extras as in ``onnxruntime-gpu[cuda,cudnn]==1.31.1``;
    ``needed`` (default: :data:`NEEDED`) is added where no requirement has its name (nor, for
    onnxruntime, another build of it). Raises :class:`errors.ConfigError` for everything else and
    :class:`errors.ToolMissing` where it cannot be made.
    """
    wanted = parse(requirements, needed)
    folder = store.root / "environments" / _key(wanted)
    found = _whole(folder, wanted)
    if found is None and not make:
        return Environment(_python(folder), python_path(store), dict.fromkeys(wanted, UNKNOWN))
    if found is None:
        with (
            log.step(f"make an environment of {', '.join(sorted(requirements))}") as running,
            store.locked(f"environment-{folder.name}"),
        ):
            # Another process may have made it while this one waited for the lock.
            found = _whole(folder, wanted)
            running.quiet = found is not None
            found = found or _make(folder, wanted)
    return Environment(_python(folder), python_path(store), found)


def exact(requirement: str) -> tuple[str, str] | None:
    """Normalized name and version of ``name[extras]==version``; None for everything else."""
    match = _EXACT.fullmatch(requirement)
    return (_normalized(match[1]), match[2]) if match else None


def parse(requirements: Sequence[str], needed: Mapping[str, str] | None = None) -> dict[str, str]:
    """Normalized names to requirements as pip reads them, with what is ``needed`` beside them."""
    wanted: dict[str, str] = {}
    for each in requirements:
        found = exact(each)
        if not found:
            raise errors.ConfigError(
                f"environment: {each[:200]!r} does not say one release; what is built could not "
                "say what it was built with",
                remedy="write name==version, as in tensorflow-cpu==2.21.0",
            )
        if wanted.setdefault(found[0], each) != each:
            raise errors.ConfigError(
                f"environment: {wanted[found[0]]} and {each} are the same package",
                remedy="keep one of them",
            )
    if not wanted or len(wanted) > MAX_REQUIREMENTS:
        raise errors.ConfigError(
            f"environment: {len(wanted)} requirements; 1 to {MAX_REQUIREMENTS} make one"
        )
    runs = any(name.startswith("onnxruntime") for name in wanted)
    more = NEEDED if needed is None else needed
    added = {n: text for n, text in more.items() if n not in wanted}
    return wanted | {n: text for n, text in added.items() if n != "onnxruntime" or not runs}


def python_path(store: Store) -> Path:
    """A folder that holds this package alone, as a link.

    What lies beside the package may be a whole site-packages, which an environment of its own is
    there to avoid.
    """
    package = process.PACKAGE_PARENT / "edge"
    name = hashlib.sha256(os.fsencode(package)).hexdigest()[:16]
    folder = store.root / "environments" / f"edge-{name}"
    link = folder / "edge"
    if not link.is_symlink():
        folder.mkdir(parents=True, exist_ok=True)
        with store.locked(f"environment-{folder.name}"):
            if not link.is_symlink():
                link.symlink_to(package, target_is_directory=True)
    return folder


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _key(wanted: Mapping[str, str]) -> str:
    """The folder's name: everything that pip chooses by, but for what the index holds."""
    python = [platform.python_implementation(), platform.python_version()]
    chosen = [*python, sysconfig.get_platform(), sorted(wanted.values())]
    return hashlib.sha256(canonical_json(chosen).encode()).hexdigest()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _whole(folder: Path, wanted: Mapping[str, str]) -> dict[str, str] | None:
    """The versions in an environment; None where it, its Python or a requirement is not there."""
    if not _python(folder).is_file():  # also where the link's Python was removed
        return None
    versions = _versions(folder)
    return versions if wanted.keys() <= versions.keys() else None


def _versions(folder: Path) -> dict[str, str]:
    """Distributions by normalized name, and ``python``."""
    paths = {"base": str(folder), "platbase": str(folder)}
    sites = {sysconfig.get_path(name, "venv", vars=paths) for name in ("purelib", "platlib")}
    found = {
        _normalized(name): each.version
        for each in metadata.distributions(path=sorted(sites))
        if (name := each.metadata["Name"])
    }
    return {**dict(sorted(found.items())), "python": platform.python_version()}


def _make(folder: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    """Make it, for the holder of its lock; what a killed build left is swept."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for stale in (folder, *folder.parent.glob(f".{folder.name}.*")):
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _fill(work, wanted)
        versions = _whole(work, wanted)
        if versions is None:
            raise errors.StepFailed(
                "pip ended well but did not install into the environment",
                remedy="look for target, prefix or user in: pip config list",
            )
        work.rename(folder)
        return versions
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(work: Path, wanted: Mapping[str, str]) -> None:
    variables = {k: v for k, v in os.environ.items() if k not in _ELSEWHERE}
    variables["PIP_NO_INPUT"] = "1"
    # -P: a venv.py or pip.py of the folder that the build was started in is not meant.
    python = [sys.executable, "-P", "-m"]
    # Without a pip of its own: Debian ships ensurepip apart.
    venv = [*python, "venv", "--without-pip", str(work)]
    pip = [*python, "pip", "--python", str(_python(work)), "install", "--quiet", "--no-compile"]
    pip += ["--disable-pip-version-check", "--only-binary=:all:"]
    if not wanted.keys().isdisjoint(SOURCES):
        pip.append(f"--no-binary={','.join(SOURCES)}")
    pip += sorted(wanted.values())
    for words in (venv, pip):
        try:
            process.run(words, timeout=TIMEOUT, env=variables)
        except errors.RunFailed as error:
            lines = [line.strip() for line in error.message.splitlines() if line.strip()]
            raise errors.ToolMissing(
                f"the environment of {', '.join(sorted(wanted.values()))} cannot be made: "
                f"{words[3]}: {'; '.join(lines[1:][-2:] or lines)}",
                remedy="check the network and the versions asked for ([model] environment, or "
                "runtime.python of the target): wheels alone are installed, for Python "
                f"{platform.python_version()}",
            ) from error
