"""A project that is built once a session, not once a worker, and shared by a file's tests."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.store import Store
from tests.command import Outcome, edge
from tests.conftest import share_downloads

Built = tuple[Path, Store, Outcome]


def once(
    factory: pytest.TempPathFactory, name: str, prepare: Callable[[Path], None], *words: str
) -> Built:
    """Folder, store and outcome of ``edge build WORDS`` in a folder that ``prepare`` filled."""
    base = factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # a worker's lies in it
    root, store = shared / name, shared / f"{name}-store"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "outcome.json").exists():
            root.mkdir()
            store.mkdir()
            share_downloads(store)
            prepare(root)
            done = edge(root, Store(store), "build", "--json", *words, timeout=1500)
            text = json.dumps({"code": done.code, "out": done.out, "err": done.err})
            (root / "outcome.json").write_text(text)
        said = json.loads((root / "outcome.json").read_text())
    return root, Store(store), Outcome(**said)
