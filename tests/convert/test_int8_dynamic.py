"""Dynamic quantization: weights alone, without calibration data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edge import errors
from edge.convert import run_model
from edge.convert.int8_dynamic import int8_dynamic
from edge.convert.int8_static import output_sqnr
from tests.convert.trained_digits import digits, model


def run(folder: Path, made: onnx.ModelProto, **options: Any) -> tuple[Any, Path]:
    onnx.save(made, folder / "float.onnx")
    (folder / "out").mkdir()
    facts = int8_dynamic.function(folder / "out", model=folder / "float.onnx", options=options)
    return facts, folder / "out" / "model.onnx"


@pytest.mark.parametrize(
    "options",
    [{}, {"weights": "uint8"}, {"per_channel": True}, {"per_channel": True, "reduce_range": True}],
    ids=str,
)
def test_a_trained_model_keeps_its_accuracy(tmp_path: Path, options: dict[str, Any]) -> None:
    data = digits()
    facts, path = run(tmp_path, data.model, **options)
    assert facts == {"quantized_nodes": 3, "weights": 3}
    found = {}
    for name, file in (("float", tmp_path / "float.onnx"), ("int8", path)):
        session = run_model.open_session(file, level="all")
        (found[name],) = run_model.run_session(session, {"x": data.test}).values()
    assert output_sqnr(found["float"], found["int8"]) > 20
    right = [np.mean(each.argmax(1) == data.labels) for each in found.values()]
    assert right[0] > 0.9
    assert right[1] > right[0] - 0.01
    assert path.stat().st_size < 0.6 * (tmp_path / "float.onnx").stat().st_size


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_excluded_nodes_stay_float(tmp_path: Path) -> None:
    facts, path = run(tmp_path, digits().model, exclude=["Conv", "logits"])
    assert facts["weights"] == 1
    assert operators(path).count("MatMulInteger") == 1
    assert "Conv" in operators(path)


def test_operators_are_chosen(tmp_path: Path) -> None:
    facts, path = run(tmp_path, digits().model, operators=["Conv"])
    assert facts["weights"] == 1
    assert "ConvInteger" in operators(path)
    assert "MatMulInteger" not in operators(path)


@pytest.mark.parametrize("options", [{}, {"exclude": ["MatMul"]}], ids=str)
def test_nothing_to_quantize_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """MatMul of two activations has no weight."""
    node = helper.make_node("MatMul", ["x", "x"], ["y"], name="square")
    made = model([node], ("x", [4, 4]), ("y", [4, 4]), {})
    with pytest.raises(errors.ModelRefused, match="no weights that could be quantized"):
        run(tmp_path, made, **options)


def test_wrong_options_are_said(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="unknown options method"):
        run(tmp_path, digits().model, method="minmax")
    (tmp_path / "out").rmdir()
    with pytest.raises(errors.ConfigError, match="weights = 'int4'"):
        run(tmp_path, digits().model, weights="int4")


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    found = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.add(run(tmp_path / name, digits().model)[1].read_bytes())
    assert len(found) == 1
