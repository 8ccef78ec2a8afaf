"""What a Python process reads, as its audit events tell it, and how user code is imported.

Everything that Python itself opens or lists is seen (``open``, ``os.listdir``, ``os.scandir``,
``sqlite3.connect``, ``ctypes.dlopen``), and every module that is looked up, found or not. What
native code opens by itself (safetensors, h5py, ``torch.jit.load``, ``tf.saved_model.load``, the
``load_model`` of XGBoost and LightGBM), environment variables, the network and the time are not.
"""

# Audit events and import hooks have strings, thousands of them, and must not be resolved.
# ruff: noqa: PTH100, PTH109, PTH110, PTH111, PTH112, PTH113, PTH118

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

from edge import errors

# Read by Keras when it is imported: the dtype and the layout that models get.
SETTINGS = ("~/.keras/keras.json",)
# Read where plots are imported; no part of a model.
_NO_MATTER = ("~/.cache/matplotlib", "~/.config/matplotlib", "~/.matplotlib")
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/run", "/lib", "/lib64", "/usr/lib", "/usr/lib64",
           "/usr/bin", "/usr/share", "/System", "/Library", "/private/etc",
           "/private/var/db")  # fmt: skip
_OF_A_PREFIX = ("bin", "etc", "include", "lib", "share", "ssl")
_OPENING = ("open", "sqlite3.connect", "ctypes.dlopen")
_LISTING = ("os.listdir", "os.scandir")
# They list every folder of sys.path: for modules, which are told otherwise, and for metadata.
_LOOKING_FOR_MODULES = ("importlib/metadata/", "pkg_resources/", "importlib_metadata/")


# ---------------------------------------------------------------------------------- places
def below(path: str, folders: Iterable[str]) -> bool:
    """Whether ``path`` is one of the folders or lies in one; all absolute."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


@cache
def installed_folders() -> tuple[str, ...]:
    """Python's own library, every site-packages that is in use, and this package."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    known = {path for name in names if (path := sysconfig.get_path(name))}
    known |= {*site.getsitepackages(), site.getusersitepackages()}
    known.add(str(Path(errors.__file__).parent))
    return tuple(sorted(known | {os.path.realpath(path) for path in known}))


@cache
def _other_folders() -> tuple[str, ...]:
    """What the system, the environment or a tool for plots keeps: not the user's."""
    prefixes = {sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix)} - {"/", "/usr"}
    own = [f"{prefix}/{name}" for prefix in sorted(prefixes) for name in _OF_A_PREFIX]
    own += [os.path.expanduser(name) for name in _NO_MATTER]
    return (*_SYSTEM, *own)


# ------------------------------------------------------------------------------ the import
class _PlainLoader(SourceFileLoader):
    """Loads user code from its source alone, and writes no bytecode.

    A ``.pyc`` counts as fresh when its source has the same second and size: a file that was
    saved twice in one second would be hashed as it is and run as it was.
    """

    def path_stats(self, path: str) -> Any:
        raise OSError(f"no bytecode for {path}")


def import_plainly(root: Path) -> None:
    """Let modules come from the folder ``root`` first, user code from its source alone."""
    sys.dont_write_bytecode = True  # nor beside what the project imports from elsewhere
    if _finder_of not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder_of)
    for known in list(sys.path_importer_cache):
        if not below(os.path.abspath(known), installed_folders()):
            del sys.path_importer_cache[known]
    if sys.path[:1] != [str(root)]:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()


def _finder_of(folder: str) -> FileFinder:
    path = os.path.abspath(folder)
    if not os.path.isdir(path) or below(path, installed_folders()):
        raise ImportError(f"{folder} holds no user code")
    native = (ExtensionFileLoader, EXTENSION_SUFFIXES)
    return FileFinder(folder, native, (_PlainLoader, SOURCE_SUFFIXES))


# ------------------------------------------------------------------------------- the reads
class Reads(MetaPathFinder):
    """What this process has read since :meth:`listen`, told apart by where it lies.

    ``root`` is the project's folder. Names are relative to it, POSIX; no absolute path is told
    but by :meth:`outside`.
    """

    def __init__(self, root: Path) -> None:
        self._roots = tuple(dict.fromkeys((os.path.abspath(root), os.path.realpath(root))))
        self._read: set[str] = set()
        self._listed: set[str] = set()
        self._made: set[str] = set()
        self._looked_up: set[str] = set()
        self._listening = False
        self._before: frozenset[str] = frozenset()

    def listen(self) -> None:
        """Begin. A hook cannot be removed: it hears nothing after :meth:`stop`."""
        self._before = frozenset(sys.modules)
        self._listening = True
        sys.meta_path.insert(0, self)
        sys.addaudithook(self.hear)

    def stop(self) -> None:
        """End, and add what was loaded without being opened by Python (native modules)."""
        self._listening = False
        with contextlib.suppress(ValueError):  # user code may have cleared it
            sys.meta_path.remove(self)
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(path, str) and (name not in self._before or self._name(path)):
                self._read.add(_source_of(os.path.abspath(path)))

    # -------------------------------------------------------------------------- listening
    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook. An exception here would break what the user's code does."""
        if not self._listening or not arguments:
            return
        if event in _OPENING:
            self._opened(arguments)
        elif event in _LISTING:
            self._was_listed(arguments[0])
        elif event == "os.mkdir" and (path := _absolute(arguments[0])):
            self._made.add(path)

    def _opened(self, arguments: tuple[Any, ...]) -> None:
        path = _absolute(arguments[0])
        if path is None:
            return
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        writing = (flags & os.O_ACCMODE) != os.O_RDONLY
        if writing and (flags & os.O_TRUNC or not os.path.exists(path)):
            self._made.add(path)
        if (flags & os.O_ACCMODE) != os.O_WRONLY and not flags & os.O_TRUNC:
            self._read.add(_source_of(path))

    def _was_listed(self, folder: Any) -> None:
        path = os.getcwd() if folder is None else _absolute(folder)
        caller = inspect.currentframe()
        while caller and caller.f_code.co_filename == __file__:
            caller = caller.f_back
        place = caller.f_code.co_filename if caller else ""
        looking = any(name in place for name in _LOOKING_FOR_MODULES)
        if path and not looking and not place.startswith("<frozen importlib"):
            self._listed.add(path)

    def find_spec(
        self,
        fullname: str,
        path: Any = None,
        target: ModuleType | None = None,  # noqa: ARG002 - the interface's
    ) -> ModuleSpec | None:
        """Finds nothing: notes below which folders a module was looked for."""
        folders = self._roots[:1] if path is None else [f for f in path if isinstance(f, str)]
        leaf = fullname.rpartition(".")[2]
        self._looked_up |= {os.path.join(folder, leaf) for folder in folders}
        return None

    # ---------------------------------------------------------------------------- telling
    def files(self) -> tuple[list[str], list[str]]:
        """Files of the project that were read, and those that were not there."""
        named = {name: path for path in self._read if (name := self._name(path))}
        there = sorted(name for name, path in named.items() if os.path.isfile(path))
        gone = {n: path for n, path in named.items() if not os.path.exists(path)}
        return there, sorted(n for n, path in gone.items() if not below(path, self._made))

    def listed(self) -> list[str]:
        """Folders of the project whose names were listed; ``.`` is the project's own."""
        opened = {path for path in self._read if os.path.isdir(path)}  # as os.fwalk does
        return self._names(self._listed | opened)

    def modules(self) -> list[str]:
        """Modules that were looked for in the project: paths without suffix, found or not."""
        return self._names(self._looked_up)

    def loaded(self) -> set[str]:
        """Top-level names of the modules that were loaded meanwhile."""
        return {name.partition(".")[0] for name in set(sys.modules) - self._before}

    def settings(self) -> list[str]:
        """Those of :data:`SETTINGS` that were read."""
        homes = {name: os.path.expanduser(name) for name in SETTINGS}
        return sorted(n for n, path in homes.items() if path in self._read and os.path.isfile(path))

    def outside(self) -> list[Path]:
        """Files that were read and are neither the project's nor of anything installed."""
        homes = {os.path.expanduser(name) for name in SETTINGS}
        return [
            Path(path)
            for path in sorted(self._read - homes)
            if self._name(path) is None
            and not below(path, (*installed_folders(), *_other_folders()))
            and not self._own(path)
            and os.path.isfile(path)
        ]

    def _own(self, path: str) -> bool:
        """Made by this very process, in the folder for temporary files."""
        temporary = tempfile.gettempdir()
        return below(path, (temporary, os.path.realpath(temporary))) and below(path, self._made)

    def _names(self, paths: Iterable[str]) -> list[str]:
        return sorted({name for path in paths if (name := self._name(path))})

    def _name(self, path: str) -> str | None:
        """The path within the project, or None: it is outside, or installed."""
        path = os.path.abspath(path)
        if below(path, installed_folders()):
            return None
        for root in self._roots:
            if below(path, (root,)):
                return os.path.relpath(path, root).replace(os.sep, "/")
        return None


def _absolute(path: Any) -> str | None:
    """None for what is no path: a descriptor, a database in memory, a library by its name."""
    try:
        name = os.fsdecode(path)
    except TypeError:
        return None
    return os.path.abspath(name) if name and name != ":memory:" else None


def _source_of(path: str) -> str:
    """The source of a ``.pyc`` in ``__pycache__``, where it is there; else the path itself."""
    if re.search(r"/__pycache__/[^/]+\.pyc(\.\d+)?$", path):
        try:
            source = importlib.util.source_from_cache(path.rpartition(".pyc")[0] + ".pyc")
        except ValueError:
            return path
        return source if os.path.isfile(source) else path
    return path
