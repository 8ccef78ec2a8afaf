"""Steps of sources may run where this project's dependencies are not installed."""

from __future__ import annotations

import sys

import pytest

from edge import process

MODULES = (
    "torch_module",
    "tensorflow_model",
    "sklearn_estimator",
    "onnx_file",
    "frameworks",
    "factory",
    "coreml_direct",
)
# All that pyproject.toml asks for, but numpy, onnx and onnxruntime, which every environment has.
ABSENT = ("pydantic", "typer", "rich", "jinja2", "paramiko", "onnxslim", "flatbuffers", "elftools")
PROGRAM = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
importlib.import_module("edge.sources.{module}")
"""


@pytest.mark.process
@pytest.mark.parametrize("module", MODULES)
def test_a_sources_file_needs_none_of_our_dependencies(module: str) -> None:
    program = PROGRAM.format(absent=ABSENT, module=module)
    done = process.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0, done.stderr
