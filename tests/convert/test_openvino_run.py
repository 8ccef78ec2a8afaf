"""An IR run on the golden inputs: what it is computed in, and the user's metric on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import errors, samples
from edge.convert.openvino_run import openvino_accuracy
from tests import models
from tests.convert.golden_setup import drawn
from tests.convert.openvino_setup import F32, RELEASE, Setup, need_openvino
from tests.convert.trained_digits import digits


@pytest.fixture(autouse=True)
def _openvino() -> None:
    need_openvino()


def test_bf16_is_what_moves_results_and_f32_is_pinned(tmp_path: Path) -> None:
    """The hint decides, not the CPU: bf16 is the default where a CPU has it."""
    data = digits()
    setup = Setup(tmp_path / "m", data.model, [{"x": data.test[:50]}])
    exact = setup.run(setup.ir(), F32)
    assert exact["inference_precision"] == "f32"
    assert exact["worst"]["y"] < 1e-6
    rough = setup.run(setup.ir(), {"INFERENCE_PRECISION_HINT": "bf16"})
    if rough["inference_precision"] == "bf16":
        assert rough["worst"]["y"] > 1e-4
    else:  # the plug-in says f32 itself where it would not compute in bf16
        assert rough["worst"]["y"] < 1e-6


def test_nan_is_told(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", models.logarithm(), [{"x": np.array([1, -1, 2, 3], np.float32)}])
    out = setup.place("out")
    from edge.convert.openvino_run import run_openvino

    facts = run_openvino.function(
        out, model=setup.ir(), golden=setup.golden, properties=F32, release=RELEASE
    )
    assert facts is not None
    assert facts["not_finite"] == ["y"]
    assert np.isnan(samples.cases(out, "output")[0]["y"]).tolist() == [False, True, False, False]


def test_a_property_that_there_is_not_is_said(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", models.mlp(), [{"x": drawn(0, 2, 4)}])
    with pytest.raises(errors.ModelRefused, match="NONSENSE"):
        setup.run(setup.ir(), {"NONSENSE": "1"})


def test_inputs_of_another_shape_are_said(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", models.conv_bn(), [{"x": drawn(0, 1, 3, 8, 8)}])
    samples.write(setup.golden.parent, [({"x": drawn(0, 1, 4, 8, 8)}, {"y": drawn(1, 1)})])
    with pytest.raises(errors.RunFailed, match="does not run on its samples"):
        setup.run(setup.ir())


METRIC = """
import numpy as np

def right(run):
    given = np.load(__file__.replace("metric.py", "data.npz"))
    return float((run({"x": given["x"]})["y"].argmax(1) == given["labels"]).mean())
"""


def test_the_users_metric_is_asked_of_the_ir(tmp_path: Path) -> None:
    """More rows than the bound batch: fed in batches, as for any artifact.

    What is constant for the deployment is no input of the IR any more.
    """
    import onnx

    data = digits()
    bound = onnx.ModelProto()
    bound.CopyFrom(data.model)
    bound.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 16
    setup = Setup(tmp_path / "m", bound, [{"x": data.test[:16]}])
    (tmp_path / "metric.py").write_text(METRIC)
    np.savez(tmp_path / "data.npz", x=data.test[:200], labels=data.labels[:200])
    ports: dict[str, Any] = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 1, 8, 8]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 10]}],
    }
    facts = openvino_accuracy.function(
        setup.place("accuracy"), model=setup.ir(), properties=F32, release=RELEASE,
        metric=tmp_path / "metric.py", score="metric:right", reads={},
        inputs=[{"name": "x", "dtype": "float32", "shape": [16, 1, 8, 8], "constant": None},
                {"name": "folded", "dtype": "float32", "shape": [1], "constant": 1.0}],
        exported=ports,
    )  # fmt: skip
    assert facts is not None
    assert 0.8 < facts["accuracy"] <= 1.0
