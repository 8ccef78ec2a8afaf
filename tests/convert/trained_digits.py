"""A small CNN for scikit-learn's digits, trained in a second and written as ONNX by hand.

Fixed seeded 3x3 filters and pooling, then layers that scikit-learn trained on what those give.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Digits:
    """``train``, ``test``: float32 [n, 1, 8, 8] in 0..1; ``labels`` of ``test``: int [n]."""

    model: onnx.ModelProto
    train: Array
    test: Array
    labels: Array


@cache
def digits() -> Digits:
    """x[n, 1, 8, 8] -> Conv, Relu, MaxPool, Flatten, Gemm, Relu, Gemm, Softmax -> y[n, 10]."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    data = load_digits()
    images = (data.images / 16.0).astype(np.float32)[:, None]
    filters = np.random.default_rng(0).standard_normal((8, 1, 3, 3)).astype(np.float32) / 3
    network = MLPClassifier((48,), max_iter=100, learning_rate_init=0.005, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 100 passes are enough, converged or not
        network.fit(_features(images[:1200], filters), data.target[:1200])
    layers = [(w.astype(np.float32), b.astype(np.float32))
              for w, b in zip(network.coefs_, network.intercepts_, strict=True)]  # fmt: skip
    return Digits(_model(filters, layers), images[:1200], images[1200:], data.target[1200:])


def _features(images: Array, filters: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(images[:, 0], (3, 3), (1, 2))
    found = np.maximum(np.einsum("nhwij,cij->nchw", windows, filters[:, 0]), 0)
    pooled: Array = found.reshape(len(images), len(filters), 3, 2, 3, 2).max((3, 5))
    flat: Array = pooled.reshape(len(images), -1)
    return flat


def _model(filters: Array, layers: list[tuple[Array, Array]]) -> onnx.ModelProto:
    (w0, b0), (w1, b1) = layers
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["c"], name="conv", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w0", "b0"], ["h"], name="hidden"),
        helper.make_node("Relu", ["h"], ["a"], name="hidden_relu"),
        helper.make_node("Gemm", ["a", "w1", "b1"], ["l"], name="logits"),
        helper.make_node("Softmax", ["l"], ["y"], name="softmax"),
    ]
    constants = {"filters": filters, "w0": w0, "b0": b0, "w1": w1, "b1": b1}
    return model(nodes, ("x", ["n", 1, 8, 8]), ("y", ["n", 10]), constants)


def model(
    nodes: list[onnx.NodeProto],
    given: tuple[str, list[int | str]],
    made: tuple[str, list[int | str]],
    constants: dict[str, Array],
    opset: int = 17,
) -> onnx.ModelProto:
    """A float32 model of one input and one output, each a name and a shape."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (given, made)]
    body = helper.make_graph(
        nodes, "g", ports[:1], ports[1:],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    built = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)])
    built.ir_version = 8
    onnx.checker.check_model(built)
    return built
