"""The real command line in a temporary project, and its outcome as a value."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - processes that a test stops
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import process
from edge.store import Store


@dataclass(frozen=True)
class Outcome:
    """Exit code, both streams, and what ``--json`` printed (None without it)."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def steps(self) -> list[str]:
        """The steps that ran, by name: ``linux-x64/m: optimize``."""
        lines = [line.split("✓ ")[1] for line in self.err.splitlines() if "✓ " in line]
        return [line.rsplit(" s", 1)[0].rsplit(" ", 1)[0] for line in lines]


def start(project: Path, store: Store, *words: str) -> subprocess.Popen[bytes]:
    """``edge WORDS`` as a process that the test stops, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "edge", *words],
        cwd=project,
        env={**os.environ, "EDGE_STORE": str(store.root), "CI": "1"},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def edge(
    project: Path,
    store: Store,
    *words: str,
    timeout: float = 300,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run ``edge WORDS`` in the folder ``project`` on ``store``, with ``env`` added."""
    environment = {**os.environ, "EDGE_STORE": str(store.root), "CI": "1", "NO_COLOR": "1"}
    environment |= env or {}
    done = process.run(
        [sys.executable, "-m", "edge", *words],
        cwd=project,
        env=environment,
        timeout=timeout,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
