"""From a source's name to its file: a path, or ``pkg:package/path/in/it``."""

from __future__ import annotations

import importlib.util
from pathlib import Path, PurePosixPath

from edge import errors


def locate(source: str, base: Path) -> Path:
    """The file that ``source`` names; relative paths start at ``base``.

    Raises :class:`errors.UsageError` when there is no such file and
    :class:`errors.ToolMissing` when the package that ships it is not installed.
    """
    if source.startswith("pkg:"):
        return _in_package(source)
    path = base / Path(source).expanduser()
    if path.is_file():
        return path
    if ":" in source:
        raise errors.UsageError(
            f"the source {source} is no file; this release reads ONNX files only",
            remedy="export the model to ONNX and name the .onnx file",
        )
    kind = "a folder" if path.is_dir() else "not there"
    raise errors.UsageError(
        f"the source {source} is {kind} (looked at {path})",
        remedy="name an .onnx file, or pkg:package/path/in/it for a file that a package ships",
    )


def _in_package(source: str) -> Path:
    package, _, inner = source.removeprefix("pkg:").partition("/")
    parts = PurePosixPath(inner).parts
    if not package.isidentifier() or not parts or ".." in parts or inner.startswith("/"):
        raise errors.UsageError(f"the source {source} is not of the form pkg:package/path/in/it")
    # find_spec on a top-level name does not import the package.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise errors.ToolMissing(
            f"the package {package}, which ships the source {source}, is not installed",
            remedy=f"pip install {package}  (the default project's: pip install -e '.[demo]')",
        )
    for folder in spec.submodule_search_locations:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise errors.UsageError(f"the installed package {package} has no file {inner}")
