"""A source that is Python code: ``package.module:callable`` gives the model when it is called.

User code reads what it likes, and all of it belongs into the keys of the steps that use it:
:func:`closure` runs the code under watch (:data:`trace`) until everything that it reads is in
the key that it was watched under. Files of the project's folder and the versions of packages are
found. A file that is read elsewhere is refused unless ``[model] files`` names it, so that its
content is known before the code runs: weights in a cache folder would differ between machines.

What cannot be seen, and is for ``files = [...]`` where it is a file: what native code opens
(safetensors, h5py, ``torch.jit.load``, ``tf.saved_model.load``, ``load_model`` of XGBoost and
LightGBM), environment variables, the network, the time, packages that are optional and come
later, and modules that were put into site-packages by hand.

In an environment of its own this file is imported without the libraries of this package:
nothing but Python's own may be imported at its top.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.process import Environment
from edge.sources import reads
from edge.sources.stand_in import stand_in
from edge.sources.user_code import (
    call,
    framework_of,
    kind_of,
    make,
    parse,
    project_folder,
    refused,
)
from edge.step import Facts, step
from edge.store import File, Result, as_file, canonical_json, hash_file

if TYPE_CHECKING:
    from edge.job import Steps

__all__ = ["Traced", "Wish", "closure", "find", "framework_of", "make", "parse", "trace"]

MAX_FILES = 10_000
MAX_ROUNDS = 200
MAX_RUNS = 4  # what is read, with that in the key, without what is not read: three, if it is sure
CACHE = "__pycache__"
PYTHON = "python"
METRIC = "metric"  # what a metric's trace has in place of a framework


# ----------------------------------------------------------------------------------- names
def find(source: str, base: Path) -> Path:
    """The Python file of a factory's module, which is not imported.

    Below ``base`` (the project's folder), else where it is installed. Raises
    :class:`errors.UsageError` when there is no such module.
    """
    module, _ = parse(source)
    parts = module.split(".")
    for known in (base.joinpath(*parts, "__init__.py"), base.joinpath(*parts).with_suffix(".py")):
        if known.is_file():
            return known
    return _installed(source, parts, base)


def _installed(source: str, parts: list[str], base: Path) -> Path:
    # find_spec would import the parents of a dotted name; PathFinder looks at folders alone.
    spec = None if (base / parts[0]).is_dir() else importlib.util.find_spec(parts[0])
    for depth in range(1, len(parts)):
        inner = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), list(inner)) if inner else None
    if spec and spec.origin and spec.origin.endswith(".py"):
        return Path(spec.origin)
    folder = base
    while parts[1:] and (folder / parts[0]).is_dir():
        folder, parts = folder / parts[0], parts[1:]
    hint = errors.did_you_mean(parts[0], _modules_of(folder))
    raise errors.UsageError(
        f"the source {source}: there is no Python module {parts[0]} in {folder}"
        + ("" if spec is None else ", and the installed one is no Python file"),
        remedy=hint or f"write {parts[0]}.py, or correct the source's name",
    )


def _modules_of(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    found = [each for each in folder.iterdir() if each.suffix == ".py" or each.is_dir()]
    return sorted({each.stem for each in found if each.stem.isidentifier()} - {"__init__"})[:50]


# ----------------------------------------------------------------------------------- watch
@step(version=1)
def trace(
    out: Path,
    *,
    source: Path,
    factory: str,
    outside: list[dict[str, str]],
    seen: dict[str, Any],
    outputs: list[dict[str, Any]] | None,
) -> Facts:
    """What the factory reads while it makes its model, in a process of its own.

    With ``outputs`` (ports of a model) it is no factory but a metric of such a model
    (``edge.convert.accuracy``): it gets a stand-in that gives
    any values.

    ``outside`` (``name``, ``sha256``) are the declared files that lie outside the project;
    ``seen`` is what was known of the world: part of the key alone. Facts, all names sorted and
    relative to the project's folder: ``files`` that were read, ``absent`` ones that were looked
    for, ``modules`` (without suffix) that were looked for, found or not, ``listed`` folders,
    ``settings`` of the user's that were read, ``packages`` (distribution to version, and
    ``python``) and the model's ``framework``.

    Raises :class:`errors.ModelRefused` for what is no model, for files outside the project that
    are not declared, and for more than 10,000 files.
    """
    del out, seen  # facts only
    watched = reads.Reads(project_folder(source, factory))
    watched.listen()
    try:
        framework = METRIC
        if outputs is None:
            made = make(source, factory)
            if not (framework := framework_of(made)):
                raise refused(factory, f"a {kind_of(made)}")
        else:
            call(source, factory, stand_in(outputs))
    finally:
        watched.stop()
    _only_declared(watched.outside(), {each["sha256"] for each in outside}, factory)
    files, absent = watched.files()
    listed = watched.listed()
    if len(files) + len(absent) + len(listed) > MAX_FILES:
        raise errors.ModelRefused(
            f"the source {factory} reads {len(files)} files and {len(listed)} folders; "
            f"{MAX_FILES} are the most that are tracked",
            remedy="make the model without its training data, or export it and name the file",
        )
    return {
        "files": [name for name in files if name != _within(source, factory)],
        "absent": absent,
        "modules": watched.modules(),
        "listed": listed,
        "settings": watched.settings(),
        "packages": _packages(watched.loaded()),
        "framework": framework,
    }


def _within(source: Path, factory: str) -> str:
    return source.absolute().relative_to(project_folder(source, factory)).as_posix()


def _only_declared(paths: list[Path], declared: set[str], factory: str) -> None:
    unknown = [path for path in paths if hash_file(path)[0] not in declared]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise errors.ModelRefused(
            f"the source {factory} reads {unknown[0]}{more}, outside of the project's folder",
            remedy=f'copy it into the project, or declare it: [model] files = ["{unknown[0]}"]',
        )


def _packages(loaded: set[str]) -> dict[str, str]:
    owners = metadata.packages_distributions()
    found = {_normalized(owner) for name in loaded - {"edge"} for owner in owners.get(name, ())}
    return {name: _version(name, None) for name in sorted(found | {PYTHON})}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(name: str, environment: Environment | None) -> str:
    """A distribution's version there or here, or Python's; empty for what is not installed."""
    if environment:
        return environment.versions.get(name, "")
    if name == PYTHON:
        return platform.python_version()
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return ""


# --------------------------------------------------------------------------------- closure
@dataclass(frozen=True)
class Wish:
    """What is known of a factory beforehand.

    ``files`` are declared ones and folders, relative to the project's folder or absolute;
    ``environment`` is where it runs, None for here. With ``outputs`` it is a metric (see
    :data:`trace`).
    """

    files: Sequence[str] = ()
    environment: Environment | None = None
    outputs: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Traced:
    """A factory with all that it reads.

    ``source`` is the module's file, with every file of the project that it read or that was
    declared as a companion. ``outside`` (``name``, ``sha256``), ``packages`` (distribution to
    version) and ``listed`` (folder to the SHA-256 of its names) are parameters of the steps that
    use it: see :meth:`parameters`. In a dry run ``source`` is pending where the code would have
    to run again, and ``framework`` what was known last, or empty.
    """

    source: File
    outside: tuple[dict[str, str], ...]
    packages: Mapping[str, str]
    listed: Mapping[str, str]
    framework: str

    def parameters(self) -> dict[str, Any]:
        """What a step's key needs beside ``source``: JSON."""
        return {
            "outside": list(self.outside),
            "packages": dict(self.packages),
            "listed": dict(self.listed),
        }


# What is known of a factory's reads: pairs of kind and name. Kinds are those of trace's facts.
Known = frozenset[tuple[str, str]]
_KINDS = {"files": "files", "absent": "files", "modules": "modules", "listed": "listed",
          "settings": "settings", "packages": "packages"}  # fmt: skip


def closure(
    steps: Steps,
    path: Path,
    factory: str,
    base: Path,
    wish: Wish,
) -> Traced:
    """Run the factory under watch until its key holds all that it reads; warm, nothing runs.

    ``path`` is :func:`find`'s; declared files are relative to ``base``. A trace is true when
    all that it names was known to the key that it ran under: then its result can only be found
    again where all of that is the same. Older results, whose names were not all known, are
    hints: they say what to look at next, never what is so.

    Only the last trace, which depends on the present files alone, joins ``steps.used``.
    Raises what :data:`trace` raises, and :class:`errors.UsageError` for a declared file that is
    not there.
    """
    from edge.job import PENDING  # pydantic, which an environment of its own does not have

    world = _World(path.absolute(), factory, tuple(_declared(wish.files, base)), wish)
    hints = replace(steps, used=[], made=[])
    known: Known = frozenset({("packages", PYTHON)})
    framework = ""
    for _ in range(MAX_ROUNDS):
        ran = len(hints.made)  # its own alone: other models' threads add to steps.made
        if ran >= MAX_RUNS:
            break
        arguments = world.arguments(known)
        title = f"{factory}: what it reads"
        result = hints.run(trace, arguments, title=title, environment=wish.environment)
        steps.made += hints.made[ran:]
        if result.key == PENDING:
            steps.used.append(result)
            return Traced(File(path, PENDING, 0), (), {}, {}, framework)
        framework = result.facts["framework"]
        named = frozenset((_KINDS[kind], n) for kind in _KINDS for n in result.facts[kind])
        if named == known:
            steps.used.append(result)
            return world.traced(result)
        known = named if named < known else known | named
    raise errors.ModelRefused(
        f"the source {factory} reads other files each time that it is called",
        remedy="let it read the same files always, and write its own into a temporary folder",
    )


def _declared(extra: Sequence[str], base: Path) -> Iterator[tuple[Path, str]]:
    """Declared files with their names: below a declared folder the folder's name comes first."""
    count = 0
    for each in extra:
        # Without "..", or what is outside would look as if it were inside.
        path = Path(os.path.abspath(base / os.path.expanduser(each)))  # noqa: PTH100, PTH111
        if not path.is_file() and not path.is_dir():
            raise errors.UsageError(
                f"[model] files names {each}, which is not there (looked at {path})",
                remedy="correct the name; relative ones start at the project's folder",
            )
        inner = sorted(path.rglob("*")) if path.is_dir() else [path]
        for one in (file for file in inner if file.is_file() and CACHE not in file.parts):
            count += 1
            if count > MAX_FILES:
                raise errors.UsageError(f"[model] files names more than {MAX_FILES} files")
            yield one, one.relative_to(path.parent).as_posix()


@dataclass(frozen=True)
class _World:
    """The present state of all that a factory may read."""

    path: Path
    factory: str
    declared: tuple[tuple[Path, str], ...]
    wish: Wish
    hashes: dict[Path, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return project_folder(self.path, self.factory)

    def arguments(self, known: Known) -> dict[str, Any]:
        """Of :data:`trace`: everything that is known, as it is now."""
        names: dict[str, set[str]] = {kind: set() for kind in _KINDS.values()}
        for kind, name in known:
            names[kind].add(name)
        files = names["files"] | {f for stem in names["modules"] for f in _files_of(stem)}
        return {
            "source": self.file(files),
            "factory": self.factory,
            "outside": self.outside(frozenset()),
            "seen": {
                # Absent files are known by their names alone.
                "names": hashlib.sha256(canonical_json(sorted(known)).encode()).hexdigest(),
                "listed": self.listed(names["listed"]),
                "packages": {
                    n: _version(n, self.wish.environment) for n in sorted(names["packages"])
                },
                "settings": self.outside(names["settings"], declared=False),
            },
            "outputs": self.wish.outputs,
        }

    def traced(self, result: Result) -> Traced:
        """What a true trace gives."""
        facts = result.facts
        return Traced(
            self.file(facts["files"]),
            tuple(self.outside(facts["settings"])),
            facts["packages"],
            self.listed(facts["listed"]),
            facts["framework"],
        )

    def file(self, names: Iterable[str]) -> File:
        """The module with those files of the project that are there, and the declared ones."""
        inside = {self.root / name for name in names}
        inside |= {path for path, _ in self.declared if path.is_relative_to(self.root)}
        found = sorted(path for path in inside if path.is_file() and path != self.path)
        companions = [(_relative(path, self.path.parent), self.sha256(path)) for path in found]
        return as_file(self.path, tuple(sorted(companions)))

    def outside(self, settings: Iterable[str], *, declared: bool = True) -> list[dict[str, str]]:
        """Declared files outside the project, and settings of the user's; no paths."""
        others = [each for each in self.declared if not each[0].is_relative_to(self.root)]
        paths = others if declared else []
        paths += [(Path(name).expanduser(), name) for name in settings]
        found = {(name, self.sha256(path)) for path, name in paths if path.is_file()}
        return [{"name": name, "sha256": sha256} for name, sha256 in sorted(found)]

    def listed(self, folders: Iterable[str]) -> dict[str, str]:
        """SHA-256 over the names in each folder; empty for one that is gone."""
        return {name: _listing(self.root / name) for name in sorted(folders)}

    def sha256(self, path: Path) -> str:
        """Hashed once: weights are large, and a step checks that they did not change meanwhile."""
        if path not in self.hashes:
            self.hashes[path] = as_file(path).sha256
        return self.hashes[path]


def _files_of(stem: str) -> list[str]:
    """The files that a module, named by its path without suffix, may come from."""
    return [place + suffix for place in (stem, f"{stem}/__init__") for suffix in all_suffixes()]


def _listing(folder: Path) -> str:
    try:
        names = sorted(each.name for each in folder.iterdir() if each.name != CACHE)
    except OSError:
        return ""
    return hashlib.sha256(canonical_json(names).encode()).hexdigest()


def _relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path, start)).as_posix()
