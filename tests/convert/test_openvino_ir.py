"""OpenVINO IR: the same results, the same bytes, smaller weights, and reasons for refusals."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from edge import errors, process
from edge.convert import openvino_library as ov
from edge.convert.openvino_ir import openvino_fp16, openvino_ir
from tests import models
from tests.convert import small_models
from tests.convert.golden_setup import drawn
from tests.convert.openvino_setup import RELEASE, Setup, need_openvino
from tests.convert.trained_digits import digits

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _openvino() -> None:
    need_openvino()


SMALL = {
    "mlp": (models.mlp(), {"x": drawn(0, 3, 4)}),
    "conv_bn": (models.conv_bn(), {"x": drawn(0, 1, 3, 8, 8)}),
    "unused input": (models.unused(), {"x": drawn(0, 4), "z": drawn(1, 4)}),
    "no input": (models.constant(), {}),
    "If": (small_models.if_branches(), {"c": np.array([True]), "x": drawn(0, 2, 4)}),
    "Loop": (small_models.loop_body(), {"n": np.array(3), "x": np.array([1, 2], np.int32)}),
    "int64 out": (small_models.one("ReduceProd", TensorProto.INT64, keepdims=0),
                  {"x": np.arange(1, 9).reshape(2, 4)}),
    "quantized": (small_models.quantized_conv(), {"x": drawn(0, 1, 8, 8, 8)}),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_the_ir_computes_what_the_model_does(tmp_path: Path, name: str) -> None:
    made, case = SMALL[name]
    setup = Setup(tmp_path / "m", made, [case])
    facts = setup.run(setup.ir())
    assert facts["runtime"] == f"openvino {RELEASE}"
    assert facts["inference_precision"] == "f32"
    assert facts["worst"]
    assert max(facts["worst"].values()) < 1e-5


def test_a_free_batch_stays_free(tmp_path: Path) -> None:
    cases = [{"x": drawn(0, 3, 4)}, {"x": drawn(1, 7, 4)}]
    setup = Setup(tmp_path / "m", models.mlp(), cases)
    assert setup.run(setup.ir())["worst"]["y"] < 1e-5


def test_an_lstm_is_one_operation(tmp_path: Path) -> None:
    """Reading an ONNX file leaves shape arithmetic that OpenVINO's converter folds."""
    text = (
        "g (float[8,1,8] x) => (float[8,1,1,4] y) "
        "{ s = Shape(x) t = Reshape(x, s) y = LSTM<hidden_size=4>(t, w, r) }"
    )
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, shape in (("w", (1, 16, 8)), ("r", (1, 16, 4))):
        made.graph.initializer.append(onnx.numpy_helper.from_array(drawn(1, *shape), name))
    setup = Setup(tmp_path / "m", made, [{"x": drawn(0, 8, 1, 8)}])
    text = setup.ir().read_text()
    assert text.count('type="LSTMSequence"') == 1
    assert 'type="ShapeOf"' not in text
    assert max(setup.run(setup.ir())["worst"].values()) < 1e-6


def test_an_operator_that_openvino_has_not_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Foo", ["x"], ["y"], domain="my.domain")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    body = helper.make_graph([node], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(body, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.ModelRefused, match=rf"openvino {RELEASE} cannot read.*Foo") as e:
        openvino_ir.function(tmp_path / "out", model=tmp_path / "m.onnx", release=RELEASE)
    assert "\n" not in e.value.message
    assert ".cpp" not in e.value.message


def test_fp16_halves_the_weights_and_stays_near(tmp_path: Path) -> None:
    data = digits()
    setup = Setup(tmp_path / "m", data.model, [{"x": data.test[:20]}])
    full = setup.ir()
    half = setup.place("half")
    facts = openvino_fp16.function(half, model=full, release=RELEASE)
    sizes = [(each.parent / "model.bin").stat().st_size for each in (full, half / ov.IR)]
    assert 1.9 < sizes[0] / sizes[1] <= 2.0
    assert facts is not None
    assert facts["bytes"] == sum(path.stat().st_size for path in half.iterdir())
    assert 0 < setup.run(half / ov.IR)["worst"]["y"] < 5e-3


def sha256(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


@pytest.mark.process
def test_two_processes_give_the_same_bytes(tmp_path: Path) -> None:
    """From another folder each time, with another hash seed."""
    data = digits()
    setup = Setup(tmp_path / "m", data.model, [{"x": data.test[:4]}])
    made = []
    for name in ("first", "another-folder"):
        place = tmp_path / name
        found: dict[str, dict[str, str]] = {}
        given: dict[str, dict[str, Any]] = {
            "openvino_ir": {"model": setup.model},
            "openvino_fp16": {"model": place / "openvino_ir" / ov.IR},
        }  # fmt: skip
        for step, arguments in given.items():
            (place / step).mkdir(parents=True)
            process.run_python(
                f"edge.convert.openvino_ir:{step}.function",
                {"out": place / step, **arguments, "release": RELEASE},
                timeout=300,
            )
            found[step] = sha256(place / step)
            text = (place / step / ov.IR).read_text()
            assert str(tmp_path) not in text
            assert os.uname().nodename not in text
        made.append(found)
    assert made[0] == made[1]
    assert {tuple(files) for files in made[0].values()} == {("model.bin", ov.IR)}
