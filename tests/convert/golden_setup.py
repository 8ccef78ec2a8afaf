"""What tests of converting steps share: a model on disk with golden samples, and what they need."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import samples
from edge.convert import run_model
from edge.samples import INDEX

Array = np.ndarray[Any, Any]


def need(extra: str, *packages: str) -> None:
    """Without these packages the test is skipped by name, and fails under CI."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"needs {', '.join(missing)}: pip install -e '.[{extra}]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


class GoldenSetup:
    """A model in ``folder`` with golden samples, by ONNX Runtime, and what is made of it there."""

    def __init__(
        self, folder: Path, made: onnx.ModelProto, cases: Sequence[Mapping[str, Array]]
    ) -> None:
        self.folder, self.model = folder, folder / "model.onnx"
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(made, self.model)
        session = run_model.open_session(self.model, level="disabled")
        pairs = [(dict(case), run_model.run_session(session, dict(case))) for case in cases]
        samples.write(folder / "golden", pairs)

    @property
    def golden(self) -> Path:
        """The index file of the samples."""
        return self.folder / "golden" / INDEX

    def place(self, name: str) -> Path:
        """An empty folder for a step."""
        made = self.folder / name
        made.mkdir()
        return made


def drawn(seed: int, *shape: int) -> Array:
    """float32 in [-1, 1]."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
