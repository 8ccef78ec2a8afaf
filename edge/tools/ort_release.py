"""onnxruntime in the release that a target pins.

The converter and the runtime must be the same release (the ORT format is only promised within
one). Where the installed onnxruntime is another one, the pinned wheel is unpacked once into a
folder of the store, alone, and laid over the installed packages for the steps that need it.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from edge import errors, log, process
from edge.store import Store

TIMEOUT = 900.0


@cache
def installed() -> str:
    """The installed release, or an empty string."""
    try:
        return importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        return ""


def overlay(store: Store, release: str) -> Path | None:
    """The folder, in the store, to lay over the installed packages so that ``release`` is imported.

    None when it is installed. Raises
    :class:`errors.FetchFailed` when pip cannot bring it.
    """
    if release == installed():
        return None
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    folder = store.root / "ort" / f"{release}-{tag}"
    if not folder.is_dir():
        with (
            log.step(f"fetch onnxruntime {release} (converter of that release)") as running,
            store.locked(f"ort-{folder.name}"),
        ):
            running.quiet = folder.is_dir()
            if not running.quiet:
                _install(folder, release)
    return folder


def _install(folder: Path, release: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    for stale in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    words += ["--disable-pip-version-check", "--only-binary=:all:", "--target", str(work)]
    try:
        process.run(
            [*words, f"onnxruntime=={release}"],
            timeout=TIMEOUT,
            env={**os.environ, "PIP_NO_INPUT": "1"},
        )
        work.rename(folder)
    except errors.RunFailed as error:
        raise errors.FetchFailed(
            f"pip cannot bring onnxruntime {release}: {error.message.splitlines()[-1]}",
            remedy=f"check the network, or install onnxruntime=={release}",
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
