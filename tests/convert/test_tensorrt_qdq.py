"""Q/DQ as TensorRT takes it: biases in float, the same numbers, asymmetric graphs refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from edge import errors
from edge.convert import run_model
from edge.convert.int8_static import int8
from edge.convert.tensorrt_qdq import check, tensorrt_qdq
from edge.samples import INDEX, cases
from tests import models
from tests.convert import small_models
from tests.convert.small_models import constant, value
from tests.golden import golden

SYMMETRIC = {
    "activations": "int8",
    "weights": "int8",
    "symmetric_activations": True,
    "symmetric_weights": True,
    "per_channel": True,
    "operators": ["Gemm", "Conv"],
}


def quantized(folder: Path, options: dict[str, Any]) -> Path:
    """A model with a bias, as this project's own int8 step quantizes it."""
    path = folder / "mlp.onnx"
    models.save(models.mlp(), path)
    spec = {"name": "x", "dtype": "float32", "shape": [2, 4], "range": None, "constant": None}
    golden(folder / "golden", path, [spec], count=3)
    index = folder / "golden" / INDEX
    (folder / "int8").mkdir()
    int8.function(folder / "int8", model=path, cases=index, golden=index, options=options, goals=[])
    return folder / "int8" / "model.onnx"


def converted(folder: Path, model: Path) -> tuple[Path, dict[str, Any]]:
    out = folder / "qdq"
    out.mkdir()
    facts = tensorrt_qdq.function(out, model=model)
    assert facts is not None
    return out / "model.onnx", facts


def test_biases_become_float_and_nothing_else_changes(tmp_path: Path) -> None:
    before = quantized(tmp_path, SYMMETRIC)
    after, facts = converted(tmp_path, before)
    assert facts["biases"] == 1
    assert facts["quantize"] >= 1
    kinds = {tensor.data_type for tensor in onnx.load(before).graph.initializer}
    assert T.INT32 in kinds
    assert T.INT32 not in {tensor.data_type for tensor in onnx.load(after).graph.initializer}
    sessions = [run_model.open_session(path, level="disabled") for path in (before, after)]
    for case in cases(tmp_path / "golden", "input"):
        one, other = (run_model.run_session(session, case) for session in sessions)
        assert np.array_equal(one["y"], other["y"])


def test_a_bias_by_channel_keeps_its_values(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["b"], axis=0),
        helper.make_node("Add", ["x", "b"], ["y"]),
    ]
    given = [constant("q", [100, -7], np.int32), constant("s", [0.5, 0.25])]
    path = tmp_path / "m.onnx"
    onnx.save(small_models.model(nodes, [value("x", [2])], [value("y", [2])], given), path)
    after, facts = converted(tmp_path, path)
    loaded = onnx.load(after)
    assert facts == {"biases": 1, "quantize": 0, "dequantize": 0}
    (bias,) = loaded.graph.initializer
    assert numpy_helper.to_array(bias).tolist() == [50.0, -1.75]


def test_what_is_uint8_is_refused_with_the_target_to_write(tmp_path: Path) -> None:
    options = {"activations": "uint8", "weights": "int8", "operators": ["Gemm"]}
    with pytest.raises(errors.ModelRefused, match="quantizes to uint8") as caught:
        converted(tmp_path, quantized(tmp_path, options))
    assert 'activations = "int8"' in caught.value.remedy


def qdq(zero: Any, kind: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="dequantize"),
    ]
    given = [constant("s", 0.1), constant("z", zero, kind)]
    return small_models.model(nodes, [value("x", [2, 4])], [value("y", [2, 4])], given)


def test_symmetric_pairs_are_taken() -> None:
    assert check(qdq(0, np.int8)) == {"quantize": 1, "dequantize": 1}


def test_an_asymmetric_zero_point_is_refused_by_name() -> None:
    with pytest.raises(errors.ModelRefused, match="'quantize': its zero point is not 0"):
        check(qdq(3, np.int8))


def test_without_a_zero_point_it_is_uint8() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], name="quantize")
    made = small_models.model(
        [node], [value("x", [2])], [value("y", [2], T.UINT8)], [constant("s", 0.1)]
    )
    with pytest.raises(errors.ModelRefused, match="no constant zero point"):
        check(made)


def test_other_forms_of_quantization_are_refused() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"], name="dynamic")
    outputs = [value("y", [2], T.UINT8), value("s", []), value("z", [], T.UINT8)]
    made = small_models.model([node], [value("x", [2])], outputs)
    with pytest.raises(errors.ModelRefused, match="explicit Q/DQ pairs alone"):
        check(made)
