"""Small ONNX models, one for each way in which an artifact's operators differ from the source's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

Opsets = Sequence[tuple[str, int]]


def value(name: str, shape: Sequence[int] | None, kind: int = T.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name: str, values: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    opsets: Opsets = (("", 17),),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*each) for each in opsets],
        functions=functions,
        ir_version=10,
    )
    onnx.checker.check_model(made)
    return made


def conv_relu() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    weights = constant("w", np.ones((16, 8, 3, 3)))
    return model(nodes, [value("x", [1, 8, 8, 8])], [value("y", [1, 16, 6, 6])], [weights])


def gelu() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"], name="erf"),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["x", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]
    scalars = [constant("root", 1.4142135), constant("one", 1), constant("half", 0.5)]
    return model(nodes, [value("x", [2, 4])], [value("y", [2, 4])], scalars)


def one(operator: str, kind: int = T.FLOAT, opset: int = 17, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], name=operator.lower(), **attributes)
    shape = [] if operator.startswith("Reduce") else [2, 4]
    return model(
        [node], [value("x", [2, 4], kind)], [value("y", shape, kind)], opsets=[("", opset)]
    )


def mish_castlike() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mish", ["x"], ["m"]),
        helper.make_node("CastLike", ["m", "like"], ["y"]),
    ]
    inputs = [value("x", [2, 4]), value("like", [1], T.INT32)]
    return model(nodes, inputs, [value("y", [2, 4], T.INT32)], opsets=[("", 18)])


def local_function(functions: Sequence[onnx.FunctionProto] | None = None) -> onnx.ModelProto:
    body = [
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
    ]
    swish = helper.make_function("my.dom", "Sw", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    node = helper.make_node("Sw", ["x"], ["y"], domain="my.dom")
    opsets = [("", 17), ("my.dom", 1)]
    inputs, outputs = [value("x", [2, 4])], [value("y", [2, 4])]
    return model([node], inputs, outputs, opsets=opsets, functions=functions or [swish])


def if_branches() -> onnx.ModelProto:
    branches = {
        name: helper.make_graph(
            [helper.make_node(operator, ["x"], [name], name=f"in_{name}")],
            name, [], [value(name, [2, 4])],
        )
        for name, operator in (("then_branch", "Exp"), ("else_branch", "Sin"))
    }  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="choose", **branches)
    return model([node], [value("c", [1], T.BOOL), value("x", [2, 4])], [value("y", [2, 4])])


def loop_body() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("Mul", ["twice", "v"], ["v2"], name="in_loop"),
            helper.make_node("Identity", ["cond"], ["c2"]),
        ],
        "body",
        [value("i", [], T.INT64), value("cond", [], T.BOOL), value("v", [2], T.INT32)],
        [value("c2", [], T.BOOL), value("v2", [2], T.INT32)],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    return model(
        [node], [value("n", [], T.INT64), value("x", [2], T.INT32)], [value("y", [2], T.INT32)]
    )


def four_bit(kind: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], name="dequantize"),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    weights = helper.make_tensor("w", kind, [2, 4], np.zeros(8, np.uint8))
    scale = constant("s", 0.1)
    inputs, outputs = [value("x", [2, 4])], [value("y", [2, 4])]
    return model(nodes, inputs, outputs, [weights, scale], opsets=[("", 21)])


def four_and_eight_bit() -> onnx.ModelProto:
    made = four_bit(T.INT4)
    made.graph.initializer.append(constant("e", np.zeros((2, 4)), np.uint8))
    made.graph.node.append(helper.make_node("DequantizeLinear", ["e", "s"], ["z"]))
    made.graph.output.append(value("z", [2, 4]))
    return made


def one_hot() -> onnx.ModelProto:
    node = helper.make_node("OneHot", ["i", "depth", "values"], ["y"])
    initializers = [constant("depth", 3, np.int64), constant("values", [0, 1])]
    return model([node], [value("i", [4], T.INT64)], [value("y", [4, 3])], initializers)


def quantized_conv() -> onnx.ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wd"]),
        helper.make_node("Conv", ["d", "wd"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["y"]),
    ]
    initializers = [
        constant("s", 0.1),
        constant("z", 128, np.uint8),
        constant("w", np.ones((8, 8, 3, 3)), np.uint8),
    ]
    return model(nodes, [value("x", [1, 8, 8, 8])], [value("y", [1, 8, 6, 6])], initializers)


def all_models() -> dict[str, onnx.ModelProto]:
    return {
        "conv_relu": conv_relu(),
        "gelu": gelu(),
        "hardswish": one("HardSwish"),
        "mish_castlike": mish_castlike(),
        "local_function": local_function(),
        "if_branches": if_branches(),
        "loop_body": loop_body(),
        "int4": four_bit(T.INT4),
        "int4_and_uint8": four_and_eight_bit(),
        "uint4": four_bit(T.UINT4),
        "prod_int64": one("ReduceProd", T.INT64, keepdims=0),
        "prod_float": one("ReduceProd", T.FLOAT, 18, keepdims=0),
        "one_hot": one_hot(),
        "quantized_conv": quantized_conv(),
        "half_sine": one("Sin", T.FLOAT16),
    }


def save_all(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, made in all_models().items():
        onnx.save(made, folder / f"{name}.onnx")
