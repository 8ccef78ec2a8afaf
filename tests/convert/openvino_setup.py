"""What tests of OpenVINO's steps share: the module, models on disk with golden samples."""

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
from edge.convert import openvino_library, run_model
from edge.convert.openvino_ir import openvino_ir
from edge.convert.openvino_run import run_openvino
from edge.registry import Registry
from edge.samples import INDEX

Array = np.ndarray[Any, Any]
F32 = {"INFERENCE_PRECISION_HINT": "f32"}


def release() -> str:
    """OpenVINO's release that the targets pin."""
    from edge.config import ProjectFile

    found = Registry(Path("/nonexistent")).target("openvino-x64", ProjectFile(), "tests")
    return found.runtime.version


RELEASE = release()


def need_openvino(*more: str) -> Any:
    """The module; without it (or NNCF) the test is skipped by name, and fails under CI."""
    wanted = ("openvino", *more)
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"needs {', '.join(missing)}: pip install -e '.[openvino]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return openvino_library.library(RELEASE)


class Setup:
    """A model in ``folder`` with golden samples, and IR made of it there."""

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
        return self.folder / "golden" / INDEX

    def place(self, name: str) -> Path:
        """An empty folder for a step."""
        made = self.folder / name
        made.mkdir()
        return made

    def ir(self, name: str = "ir") -> Path:
        """The IR of the model, made once."""
        out = self.folder / name
        if not out.exists():
            openvino_ir.function(self.place(name), model=self.model, release=RELEASE)
        return out / openvino_library.IR

    def run(self, model: Path, properties: Mapping[str, str] = F32) -> dict[str, Any]:
        """Run an IR on the golden inputs; the facts, and ``worst``: |difference| by output."""
        out = self.place(f"run-{sum(1 for _ in self.folder.iterdir())}")
        facts = run_openvino.function(
            out, model=model, golden=self.golden, properties=dict(properties), release=RELEASE
        )
        assert facts is not None
        expected, actual = (samples.cases(f, "output") for f in (self.golden.parent, out))
        worst: dict[str, float] = {}
        for one, other in zip(expected, actual, strict=True):
            assert list(one) == list(other)
            for name, array in one.items():
                assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
                gap = np.abs(array.astype(np.float64) - other[name].astype(np.float64))
                worst[name] = max(worst.get(name, 0.0), float(gap.max(initial=0.0)))
        return {**facts, "worst": worst}


def drawn(seed: int, *shape: int) -> Array:
    """float32 in [-1, 1]."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
