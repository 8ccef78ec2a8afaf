"""What tests of Core ML's steps share: packages of models with golden samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from edge.convert.coreml_fp16 import coreml_fp16
from edge.convert.coreml_package import HEAD
from edge.convert.mil_package import PACKAGE, mil_package
from tests.convert.golden_setup import Array, GoldenSetup, need


def need_coremltools() -> None:
    """Without it the test is skipped by name, and fails under CI."""
    need("coreml", "coremltools")


class Setup(GoldenSetup):
    """A model with golden samples, and packages made of it beside them."""

    def __init__(
        self, folder: Path, made: onnx.ModelProto, cases: Sequence[Mapping[str, Array]]
    ) -> None:
        need_coremltools()
        super().__init__(folder, made, cases)

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


def parsed(body: str, *, opset: int = 17, **weights: Array) -> onnx.ModelProto:
    """A model in ONNX's own text form, with these initializers."""
    from onnx import parser

    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {body}')
    for name, array in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made
