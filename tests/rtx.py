"""TensorRT-RTX for tests: skipped by name where it is not installed, and a failure under CI."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

REASON = "needs tensorrt-rtx: pip install 'edgewright[rtx]'"


def need_rtx() -> None:
    """Skip or fail where the package is not installed (Linux and Windows on x86-64 have it)."""
    if find_spec("tensorrt_rtx") is None:
        if os.environ.get("CI"):
            pytest.fail(REASON)
        pytest.skip(REASON)
