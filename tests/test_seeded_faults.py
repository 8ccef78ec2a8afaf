"""Faults that a user's model may have: each gives its own clear error, or the right result.

By the command line, as the user meets them: exit code, what is said, and what is not left behind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge.store import Store
from tests import models
from tests.command import Outcome, edge
from tests.sources import torch_models

pytestmark = pytest.mark.process
FACTORY = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x))

def training():
    return Net()

def forgotten():
    model = Net().eval()
    model.body[1].train()
    return model

def lost():
    model = Net().eval()
    with torch.no_grad():
        model.head.weight[0, 3] = float("nan")
    return model
"""


def build(folder: Path, store: Store, model: str, *words: str) -> Outcome:
    """``edge build`` for Android; a failed one leaves no bundle."""
    done = edge(folder, store, "build", "-t", "android", "-m", model, "--name", "m", *words)
    assert "Traceback" not in done.err
    assert (folder / "dist" / "m" / "0" / "android").exists() == (done.code == 0)
    return done


def manifest(folder: Path) -> Any:
    return json.loads((folder / "dist" / "m" / "0" / "android" / "manifest.json").read_text())


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("training", "training mode"),
        ("forgotten", "body.1"),
        ("lost", "head.weight"),
    ],
)
def test_a_module_that_is_not_ready(tmp_path: Path, store: Store, factory: str, says: str) -> None:
    torch_models.library()
    (tmp_path / "nets.py").write_text(FACTORY)
    shape = ("--set", 'model.inputs.x.shape=["batch", 4]', "--dim", "batch=1")
    done = build(tmp_path, store, f"nets:{factory}", *shape)
    assert done.code == 2, done.err
    assert says in done.err


def scaled(weight: float) -> onnx.ModelProto:
    """x[1, 4] -> Gemm -> * weight -> / weight -> y[1, 3]."""
    model = models.mlp()
    scale = numpy_helper.from_array(np.array(weight, np.float32), "scale")
    model.graph.initializer.append(scale)
    model.graph.node[1].output[0] = "relu"
    model.graph.node.extend(
        [
            helper.make_node("Mul", ["relu", "scale"], ["large"], name="grow"),
            helper.make_node("Div", ["large", "scale"], ["y"], name="shrink"),
        ]
    )
    return model


def test_a_constant_beyond_fp16_stays_in_fp32(tmp_path: Path, store: Store) -> None:
    models.save(scaled(1e8), tmp_path / "m.onnx")
    done = build(tmp_path, store, "m.onnx", "--dim", "batch=1", "-p", "fp16")
    assert done.code == 0, done.err
    found = manifest(tmp_path)
    measured = [each for each in found["parity"][-1]["outputs"] if each["sqnr_db"] is not None]
    assert measured
    assert min(float(each["sqnr_db"]) for each in measured) > 50
    assert found["precision"]["made"] == "fp16"


def test_nan_weights_are_named(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(scale=float("nan")), tmp_path / "m.onnx")
    done = build(tmp_path, store, "m.onnx", "--dim", "batch=1")
    assert done.code == 2
    assert "the weight 'w' holds NaN (12 of 12 values)" in done.err


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (np.zeros((0, 1, 4), np.float32), "holds no sample"),
        (np.full((3, 1, 4), np.nan, np.float32), "'x'"),
        (np.zeros((3, 1, 5), np.float32), "[3, 1, 5]"),
        (np.zeros((3, 1, 4), np.float64), "float64"),
    ],
    ids=["empty", "NaN", "another shape", "another type"],
)
def test_calibration_data_that_cannot_be_used(
    tmp_path: Path, store: Store, rows: Any, says: str
) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=rows)
    words = ("--dim", "batch=1", "-p", "int8", "--set", "model.calibration=data.npz")
    done = build(tmp_path, store, "m.onnx", *words)
    assert done.code == 2, done.err
    assert says in done.err


def branches() -> onnx.ModelProto:
    """x[1, 4] -> If(sum(x) > 0): Erf(x), else: Softplus(x * w)."""
    one = helper.make_graph(
        [helper.make_node("Erf", ["x"], ["a"])],
        "then", [], [helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4])],
    )  # fmt: skip
    other = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Softplus", ["xw"], ["b"]),
        ],
        "else", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 4])],
    )  # fmt: skip
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=one, else_branch=other),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    weights = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    values = [
        numpy_helper.from_array(np.array(0, np.float32), "zero"),
        numpy_helper.from_array(weights, "w"),
    ]
    graph = helper.make_graph(nodes, "branches", ports[:1], ports[1:], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("precision", ["source", "fp16", "int4-weights"])
def test_both_branches_operators_are_in_the_closure(
    tmp_path: Path, store: Store, precision: str
) -> None:
    """Also where the samples take one of them only. What a precision cannot do is said."""
    models.save(branches(), tmp_path / "m.onnx")
    done = build(tmp_path, store, "m.onnx", "-p", precision)
    if precision == "int4-weights":  # weights in branches are left alone, and there are no others
        assert done.code == 2
        assert "nothing to quantize" in done.err
        return
    assert done.code == 0, done.err
    place = tmp_path / "dist" / "m" / "0" / "android" / "required_operators_and_types.config"
    operators = place.read_text()
    for name in ("Erf", "Softplus", "If"):
        assert name in operators


def test_a_precision_that_the_runtime_gets_wrong_is_refused(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    words = (
        "--dim",
        "batch=1",
        "-p",
        "int8-weights",
        "--set",
        'targets.android.runtime.version="1.21.0"',
    )
    done = build(tmp_path, store, "m.onnx", *words)
    assert done.code == 2
    assert "android cannot run int8-weights models" in done.err


def test_a_precision_that_is_none_is_said_with_the_nearest(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    done = build(tmp_path, store, "m.onnx", "--dim", "batch=1", "-p", "int8-weigths")
    assert done.code == 2
    assert "did you mean 'int8-weights'?" in done.err
