"""The zig tool chain: a C compiler for every Linux and for Windows, whatever this host is.

It carries the C libraries of its targets and makes the same bytes on every host, which the
host's own compiler does not. So that one is no substitute, not even for the host's own triple.
"""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from functools import cache

from edge import errors


@dataclass(frozen=True)
class Zig:
    """How zig is started (``argv`` comes before ``cc``), and its version."""

    argv: tuple[str, ...]
    version: str


@cache
def find() -> Zig:
    """Zig of the Python package ziglang; looked up once.

    Not one from the PATH: its version goes into the key of what it makes, and is read without
    starting it. Raises :class:`errors.ToolMissing` when the package is not installed.
    """
    try:
        version = importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError as error:
        raise errors.ToolMissing(
            "zig, which compiles the C runner, is not installed", remedy="pip install ziglang"
        ) from error
    return Zig((sys.executable, "-m", "ziglang"), version)
