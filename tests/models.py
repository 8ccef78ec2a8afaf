"""Small models made in code, for tests of single behaviours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def mlp(*, scale: float = 1.0, opset: int = 17) -> onnx.ModelProto:
    """x[batch, 4] -> Gemm -> Relu -> y[batch, 3], float32, seeded weights times ``scale``."""
    generator = np.random.default_rng(7)
    weights = (generator.standard_normal((4, 3)) * scale).astype(np.float32)
    bias = generator.standard_normal(3).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="gemm"),
            helper.make_node("Relu", ["h"], ["y"], name="relu"),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    return _model(graph, opset)


def switched() -> onnx.ModelProto:
    """x[n], mode (int64 scalar) -> If(mode > 0): x + x, else: x * x; like Silero's ``sr``."""
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x", "x"], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["n"])],
        )
        for op, name in (("Add", "then"), ("Mul", "else"))
    ]
    graph = helper.make_graph(
        [
            helper.make_node("Greater", ["mode", "zero"], ["positive"]),
            helper.make_node(
                "If", ["positive"], ["y"], then_branch=branches[0], else_branch=branches[1]
            ),
        ],
        "switched",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("mode", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.array(0, np.int64), "zero")],
    )
    return _model(graph, 17)


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def save(model: onnx.ModelProto, path: Path, *, external: str = "") -> None:
    """Write ``model``; with ``external`` every weight goes into that file beside it."""
    if external:
        onnx.save_model(
            model, path, save_as_external_data=True, location=external, size_threshold=0
        )
    else:
        onnx.save_model(model, path)


def with_external_location(model: onnx.ModelProto, path: Path, location: str) -> None:
    """Write a model whose first initializer points to ``location``, whatever that is."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    path.write_bytes(model.SerializeToString())


def with_large_external_data(path: Path) -> None:
    """A model whose external data file holds 2 GB, all of it a hole."""
    with_external_location(mlp(), path, "large.bin")
    with (path.parent / "large.bin").open("wb") as stream:
        stream.truncate(2**31)


def conv_bn() -> onnx.ModelProto:
    """x[1, 3, 8, 8] -> Conv -> BatchNormalization -> y: fusing the two rounds differently."""
    generator = np.random.default_rng(3)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.random(shape).astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
            helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
        ],
        "conv_bn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [weights("w", 4, 3, 3, 3), *(weights(name, 4) for name in "sbmv")],
    )
    return _model(graph, 17)


def stamped(*, opset: int) -> onnx.ModelProto:
    """A small model stamped with an opset that does not exist yet."""
    model = mlp()
    model.opset_import[0].version = opset
    return model


def _one_node(node: onnx.NodeProto, inputs: list[str], opset: int = 17) -> onnx.ModelProto:
    """float32 inputs [4] -> ``node`` -> y[4]."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in inputs]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    return _model(helper.make_graph([node], "one", ports, [output]), opset)


def logarithm() -> onnx.ModelProto:
    """x[4] -> Log -> y: NaN for what seeded samples hold."""
    return _one_node(helper.make_node("Log", ["x"], ["y"]), ["x"])


def noise() -> onnx.ModelProto:
    """x[4] -> RandomNormalLike -> y: other values each time."""
    return _one_node(helper.make_node("RandomNormalLike", ["x"], ["y"]), ["x"])


def constant() -> onnx.ModelProto:
    """A model without inputs."""
    values = numpy_helper.from_array(np.arange(4, dtype=np.float32), "v")
    return _one_node(helper.make_node("Constant", [], ["y"], value=values), [])


def unused() -> onnx.ModelProto:
    """x[4], z[4] -> Relu(x) -> y: nothing reads z."""
    return _one_node(helper.make_node("Relu", ["x"], ["y"]), ["x", "z"])
