"""What tests of OpenVINO's steps share: the module, and IR of models with golden samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edge import samples
from edge.convert import openvino_library
from edge.convert.openvino_ir import openvino_ir
from edge.convert.openvino_run import run_openvino
from edge.registry import Registry
from tests.convert.golden_setup import GoldenSetup, need

F32 = {"INFERENCE_PRECISION_HINT": "f32"}


def release() -> str:
    """OpenVINO's release that the targets pin."""
    from edge.config import ProjectFile

    found = Registry(Path("/nonexistent")).target("openvino-x64", ProjectFile(), "tests")
    return found.runtime.version


RELEASE = release()


def need_openvino(*more: str) -> Any:
    """The module; ``more`` packages are needed, too."""
    need("openvino", "openvino", *more)
    return openvino_library.module(RELEASE)


class Setup(GoldenSetup):
    """A model with golden samples, and IR made of it beside them."""

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
