"""The content-addressed store: results of steps, and pinned blobs.

Layout, below one folder::

    objects/<k0k1>/<key>/result.json, files/...   a step's result; key: SHA-256 of all that went in
    blobs/<sha256>                                pinned files
    locks/<key>                                   held (flock) while a result is being made
    tmp/<key>.<random>/                           work in progress

A result appears whole or not at all: it is made in ``tmp``, flushed to disk and renamed. Two
processes that want one result exclude each other by a lock that dies with its holder; what a
killed build left in ``tmp`` is swept by the next one that holds the same lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors, process

CHUNK = 1 << 20
LOCK_POLL = 0.05  # seconds


@dataclass(frozen=True)
class File:
    """A file with its content's SHA-256 (hex) and size in bytes.

    ``companions`` are files that it refers to by relative name (external data of a model).
    """

    path: Path
    sha256: str
    size: int
    companions: tuple[tuple[str, str], ...] = ()

    def identity(self) -> Any:
        """What goes into a step's key: contents, and names only where the content names them."""
        return {"sha256": self.sha256, **({"with": self.companions} if self.companions else {})}


@dataclass(frozen=True)
class Result:
    """What a step left: its files by relative name, and its facts."""

    step: str
    key: str
    ingredients: Mapping[str, Any]
    folder: Path
    files: Mapping[str, File]
    facts: Mapping[str, Any]

    def file(self, name: str) -> File:
        """One file of the result, which needs no other; else see :meth:`tree`."""
        return self.files[name]

    def tree(self, name: str) -> File:
        """One file of the result with all others as companions: for steps that read its folder.

        An index alone says nothing of the files that it lists.
        """
        found = self.files[name]
        others = [(other, f.sha256) for other, f in self.files.items() if other != name]
        return File(found.path, found.sha256, found.size, tuple(sorted(others)))


def hash_file(path: Path) -> tuple[str, int]:
    """SHA-256 (hex) and size in bytes of a file's content."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return digest.hexdigest(), stream.tell()


def as_file(path: Path, companions: tuple[tuple[str, str], ...] = ()) -> File:
    """``path`` with its hash; :class:`errors.UsageError` when it cannot be read."""
    try:
        return File(path, *hash_file(path), companions)
    except OSError as error:
        raise errors.UsageError(f"cannot read {path}: {error.strerror}") from error


def canonical_json(value: Any) -> str:
    """JSON with one spelling: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(ingredients: Mapping[str, Any]) -> str:
    """The key of a result: SHA-256 over everything that went in."""
    return hashlib.sha256(canonical_json(ingredients).encode()).hexdigest()


def default_root() -> Path:
    """``$EDGE_STORE``, else ``$XDG_CACHE_HOME/edgewright``, else ``~/.cache/edgewright``."""
    if chosen := os.environ.get("EDGE_STORE"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "edgewright"


class Store:
    """The store below ``root``; shared by all processes of this user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            for folder in ("objects", "blobs", "locks", "tmp"):
                (root / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.UsageError(
                f"cannot use the store {root}: {error.strerror}",
                remedy="set EDGE_STORE to a folder that can be written",
            ) from error

        self._sweep()

    def _sweep(self) -> None:
        """Remove what killed builds left: work whose lock nobody holds."""
        for stale in (self.root / "tmp").iterdir():
            with (self.root / "locks" / stale.name.partition(".")[0]).open("a") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                shutil.rmtree(stale, ignore_errors=True)

    # ---------------------------------------------------------------------------- results
    def find(self, ingredients: Mapping[str, Any]) -> Result | None:
        """The stored result for these ingredients, if it is there and whole."""
        key = key_of(ingredients)
        folder = self._object(key)
        try:
            record = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            files = {
                name: File(folder / "files" / name, entry["sha256"], entry["size"])
                for name, entry in record["files"].items()
            }
            facts = dict(record["facts"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise errors.StoreDamaged(
                f"the stored result {folder} cannot be read", remedy=f"remove {folder}"
            ) from error
        for name, file in files.items():
            if not file.path.is_file() or file.path.stat().st_size != file.size:
                raise errors.StoreDamaged(
                    f"{name} of the stored result {folder} is missing or has another size",
                    remedy=f"remove {folder} and build again",
                )
        return Result(ingredients["step"], key, ingredients, folder, files, facts)

    def made_by(self, step: str) -> Iterator[Result]:
        """All whole stored results of a step, in the order of their keys.

        Those that do not say what they were made of (older stores), or say it wrong, are left out.
        """
        for record in sorted((self.root / "objects").glob("*/*/result.json")):
            try:
                ingredients = json.loads(record.read_text(encoding="utf-8")).get("ingredients", {})
                found = self.find(ingredients) if ingredients.get("step") == step else None
            except (OSError, ValueError, AttributeError, RecursionError, errors.StoreDamaged):
                continue
            if found and found.folder == record.parent:
                yield found

    def make(
        self, ingredients: Mapping[str, Any], maker: Callable[[Path], Mapping[str, Any] | None]
    ) -> Result:
        """The result for these ingredients, made by ``maker(out)`` unless it is stored."""
        key = key_of(ingredients)
        with self.locked(key):
            try:
                if found := self.find(ingredients):
                    return found
            except errors.StoreDamaged:
                # Under the lock: nobody else is making or mending it now.
                shutil.rmtree(self._object(key), ignore_errors=True)
            with self._workplace(key, self.root / "tmp") as work:
                out = work / "files"
                out.mkdir()
                facts = maker(out) or {}
                _write_record(work, out, facts, ingredients)
                final = self._object(key)
                final.parent.mkdir(exist_ok=True)
                work.rename(final)
                _sync(final.parent)
        made = self.find(ingredients)
        if made is None:
            raise errors.StoreDamaged(f"the result {key} vanished while it was being made")
        return made

    def _object(self, key: str) -> Path:
        return self.root / "objects" / key[:2] / key

    # ------------------------------------------------------------------------------ blobs
    def blob(self, sha256: str) -> File | None:
        """The pinned file with this content, if it was fetched."""
        path = self.root / "blobs" / sha256
        return File(path, sha256, path.stat().st_size) if path.is_file() else None

    def add_blob(self, sha256: str, fetch: Callable[[Path], Path]) -> File:
        """The blob ``sha256``; ``fetch(folder)`` brings it when it is not there.

        Raises :class:`errors.FetchFailed` when what came has another hash.
        """
        with self.locked(sha256):
            if found := self.blob(sha256):
                return found
            # Beside its final place, since renames do not cross file systems.
            with self._workplace(sha256, self.root / "blobs") as work:
                came = fetch(work)
                actual, size = hash_file(came)
                if actual != sha256:
                    raise errors.FetchFailed(
                        f"{came.name} has the SHA-256 {actual}, the pin says {sha256}",
                        remedy="check where it came from; correct the pin only if you trust it",
                    )
                _sync(came)
                path = self.root / "blobs" / sha256
                came.rename(path)
                _sync(path.parent)
                return File(path, sha256, size)

    # ----------------------------------------------------------------------------- guards
    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Exclude everybody else who uses this store and key; waits, and can be interrupted."""
        with (self.root / "locks" / key).open("a") as stream:
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    process.refuse_when_stopping()
                    time.sleep(LOCK_POLL)
            yield

    @contextlib.contextmanager
    def _workplace(self, key: str, parent: Path) -> Iterator[Path]:
        """An empty folder, for the holder of the key's lock; gone afterwards in any case."""
        for stale in parent.glob(f"{key}.*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=parent))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _write_record(
    work: Path, out: Path, facts: Mapping[str, Any], ingredients: Mapping[str, Any]
) -> None:
    entries = {}
    for path in sorted(out.rglob("*")):
        if path.is_symlink():
            raise errors.StepFailed(f"a step left a link, {path.name}; results are plain files")
        if path.is_file():
            sha256, size = hash_file(path)
            entries[path.relative_to(out).as_posix()] = {"sha256": sha256, "size": size}
            _sync(path)
    record = work / "result.json"
    content = {"files": entries, "facts": dict(facts), "ingredients": dict(ingredients)}
    record.write_text(canonical_json(content), encoding="utf-8")
    _sync(record)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
