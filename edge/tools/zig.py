"""The zig tool chain: a C compiler for every Linux, whatever this host is.

It carries the C libraries of its targets and makes the same bytes on every host, which the
host's own compiler does not. So that one is no substitute, not even for the host's own triple.
"""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from functools import cache

from edge import errors, process

TIMEOUT = 60.0


@dataclass(frozen=True)
class Zig:
    """How zig is started (``argv`` comes before ``cc``), and its version."""

    argv: tuple[str, ...]
    version: str


@cache
def find() -> Zig:
    """Zig from the Python package ziglang, else from the PATH; looked up once.

    Raises :class:`errors.ToolMissing` when there is neither.
    """
    found = _packaged() or _on_path()
    if found is None:
        raise errors.ToolMissing(
            "zig, which compiles the C runner, is not installed", remedy="pip install ziglang"
        )
    return found


def _packaged() -> Zig | None:
    try:
        version = importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Zig((sys.executable, "-m", "ziglang"), version)


def _on_path() -> Zig | None:
    program = process.which("zig")
    if program is None:
        return None
    return Zig((str(program),), process.run([program, "version"], timeout=TIMEOUT).stdout.strip())
