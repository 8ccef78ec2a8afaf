"""Real models: how much of each the provider takes, in both formats."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge.convert.canonical import canonical
from edge.convert.coreml_provider import Options, Prediction, predict
from edge.convert.optimize import optimize
from edge.model import BoundInput
from tests.golden import drawn

pytestmark = pytest.mark.models
IOS_17 = 7


def form(folder: Path, source: Path, inputs: list[BoundInput]) -> Path:
    """The canonical form, optimized at level 1 as a session does before it asks the provider."""
    said: list[dict[str, Any]] = [each.to_json() for each in inputs]
    cases = drawn(folder / "in", said, count=1)
    for name in ("canonical", "basic"):
        (folder / name).mkdir()
    canonical.function(folder / "canonical", model=source, cases=cases, inputs=said, bind=True)
    optimize.function(folder / "basic", model=folder / "canonical" / "model.onnx", level="basic")
    return folder / "basic" / "model.onnx"


def asked(path: Path, **options: Any) -> Prediction:
    wanted = Options(require_static_input_shapes=True, **options)
    return predict(onnx.load(path), wanted, coreml=IOS_17)


def figures(found: Prediction) -> tuple[int, int, int]:
    return len(found.nodes), found.taken, found.partitions


def test_magika(tmp_path: Path) -> None:
    source = Path(str(resources.files("magika"))) / "models" / "standard_v3_3" / "model.onnx"
    path = form(tmp_path, source, [BoundInput("bytes", "int32", (1, 2048), (0, 256))])
    found = asked(path)
    assert found.refused() == {
        "Equal": {"no such operator in the provider": 1},
        "GlobalMaxPool": {"rank 3, not 4": 1},
        "Reshape": {"input 0 is int32": 1},
    }
    assert found.partitions == 2
    assert asked(path, model_format="NeuralNetwork").partitions == 9


def test_silero(silero: Path, tmp_path: Path) -> None:
    inputs = [
        BoundInput("input", "float32", (1, 576)),
        BoundInput("state", "float32", (2, 1, 128)),
        BoundInput("sr", "int64", (), constant=16000),
    ]
    path = form(tmp_path, silero / "silero_vad.onnx", inputs)
    found = asked(path)
    assert found.refused() == {"LSTM": {"no such operator in the provider": 1}}
    assert figures(found) == (36, 35, 2)
    assert figures(asked(path, model_format="NeuralNetwork")) == (36, 23, 2)


def test_ppocr_cls_is_taken_whole(rapidocr: Path, tmp_path: Path) -> None:
    source = rapidocr / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
    path = form(tmp_path, source, [BoundInput("x", "float32", (1, 3, 48, 192))])
    for model_format in ("MLProgram", "NeuralNetwork"):
        found = asked(path, model_format=model_format)
        assert (found.share, found.partitions) == (1.0, 1)


def test_fusions_for_the_cpu_cost_partitions(rapidocr: Path, tmp_path: Path) -> None:
    """com.microsoft:Gelu is of opset 1, which the builder of activations does not take."""
    source = rapidocr / "PP-OCRv6_det_small.onnx"
    path = form(tmp_path, source, [BoundInput("x", "float32", (1, 3, 320, 320))])
    assert asked(path).partitions == 1
    (tmp_path / "extended").mkdir()
    optimize.function(tmp_path / "extended", model=path, level="extended")
    found = asked(tmp_path / "extended" / "model.onnx")
    assert found.refused() == {"com.microsoft:Gelu": {"opset 1, taken from 6 to 27": 13}}
    assert found.partitions == 14
