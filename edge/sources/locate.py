"""From a source's name to its file and framework, without reading or importing anything."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edge import errors

# What a file's suffix says; every other file is taken for ONNX, whose checker knows.
SUFFIXES = {
    ".pt": "torch", ".pth": "torch", ".pt2": "torch", ".ts": "torch",
    ".keras": "tensorflow", ".h5": "tensorflow", ".hdf5": "tensorflow", ".tflite": "tensorflow",
    ".skops": "sklearn", ".pkl": "sklearn", ".pickle": "sklearn", ".joblib": "sklearn",
    ".ubj": "sklearn", ".json": "sklearn", ".txt": "sklearn",
}  # fmt: skip
SAVED_MODEL = "saved_model.pb"
FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][\w.]*")


def user_path(text: str) -> Path:
    """A path as the user writes it; ``~`` of a user that is none stays as it is."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path's own raises for that


def is_code(source: str) -> bool:
    """True for ``module:callable``; a file of that name, or with a model's suffix, is a file."""
    known = PurePosixPath(source).suffix.lower() in (*SUFFIXES, ".onnx", ".ort")
    return bool(FACTORY.fullmatch(source)) and not known


@dataclass(frozen=True)
class Located:
    """A source's file. ``framework`` is empty for a factory: what it returns will say it.

    ``factory`` is ``module:callable``, empty for files.
    """

    path: Path
    framework: str
    factory: str = ""


def locate(source: str, base: Path) -> Located:
    """The file that ``source`` names; relative paths and modules start at ``base``.

    Raises :class:`errors.UsageError` when there is no such file and
    :class:`errors.ToolMissing` when the package that ships it is not installed.
    """
    if source.startswith("pkg:"):
        return _of(_in_package(source))
    path = base / user_path(source)
    if path.is_file() and path.suffix == ".py":
        raise errors.UsageError(
            f"the source {source} is Python code",
            remedy=f"name the function in it that returns the model: {path.stem}:make, say",
        )
    if path.is_file():
        return _of(path)
    if path.is_dir() and (path / SAVED_MODEL).is_file():
        return Located(path / SAVED_MODEL, "tensorflow")
    if is_code(source):
        from edge.sources.factory import find

        return Located(find(source, base), "", source)
    kind = "a folder without saved_model.pb" if path.is_dir() else "not there"
    raise errors.UsageError(
        f"the source {source} is {kind} (looked at {path})",
        remedy="name a model's file, module:callable for Python code that makes the model, or "
        "pkg:package/path/in/it for a file that a package ships",
    )


def _of(path: Path) -> Located:
    known = "tensorflow" if path.name == SAVED_MODEL else SUFFIXES.get(path.suffix.lower())
    return Located(path, known or "onnx")


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
