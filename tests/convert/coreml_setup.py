"""What tests of Core ML's steps share: models on disk with golden samples, packages of them."""

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
from edge.convert.coreml_fp16 import coreml_fp16
from edge.convert.coreml_package import HEAD
from edge.convert.mil_package import PACKAGE, mil_package
from edge.samples import INDEX

Array = np.ndarray[Any, Any]


def need_coremltools() -> None:
    """Without it the test is skipped by name, and fails under CI."""
    if importlib.util.find_spec("coremltools") is None:
        reason = "needs coremltools: pip install -e '.[coreml]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


class Setup:
    """A model in ``folder`` with golden samples, and packages made of it there."""

    def __init__(
        self, folder: Path, made: onnx.ModelProto, cases: Sequence[Mapping[str, Array]]
    ) -> None:
        need_coremltools()
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

    def plain(self, precision: str = "fp32", target: str = "iOS16", name: str = "plain") -> Path:
        """The head of a package as ``mil_package`` makes it."""
        out = self.place(name)
        options = {"minimum_deployment_target": target, "compute_precision": precision}
        mil_package.function(out, model=self.model, options=options)
        return out / PACKAGE / HEAD

    def half(self, goal: float, name: str = "half") -> dict[str, Any]:
        """Facts of ``coreml_fp16``; the package lies in the folder ``name``."""
        facts = coreml_fp16.function(
            self.place(name),
            model=self.model,
            golden=self.golden,
            minimum_deployment_target="iOS16",
            goal=goal,
        )
        assert facts is not None
        return facts

    def head(self, name: str) -> Path:
        """The head of the package in a step's folder."""
        return self.folder / name / PACKAGE / HEAD


def content(package: Path) -> dict[str, bytes]:
    """All files of a package by their names in it."""
    return {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file()
    }


def drawn(seed: int, *shape: int) -> Array:
    """float32 in [-1, 1]."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def parsed(body: str, *, opset: int = 17, **weights: Array) -> onnx.ModelProto:
    """A model in ONNX's own text form, with these initializers."""
    from onnx import parser

    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {body}')
    for name, array in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made
