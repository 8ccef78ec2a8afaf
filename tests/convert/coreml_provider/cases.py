"""Smallest nodes for the rules: an operator with inputs written in one line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge.convert.coreml_provider.judge import judge
from edge.convert.coreml_provider.rule import Params
from edge.convert.coreml_provider.view import Node, graphs

ML = Params(mlprogram=True, coreml=7, static_inputs=False)
NN = Params(mlprogram=False, coreml=7, static_inputs=False)
OLD = Params(mlprogram=True, coreml=5, static_inputs=False)
OLD_NN = Params(mlprogram=False, coreml=5, static_inputs=False)
SIX = Params(mlprogram=True, coreml=6, static_inputs=False)
STATIC = Params(mlprogram=True, coreml=7, static_inputs=True)
TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "i32": TensorProto.INT32,
         "i64": TensorProto.INT64, "bool": TensorProto.BOOL, "u8": TensorProto.UINT8,
         "f64": TensorProto.DOUBLE}  # fmt: skip
# "f32 1x3x?": a value known at run time only; an array: a constant initializer; None: left out.
Input = str | np.ndarray[Any, Any] | None


@dataclass(frozen=True)
class One:
    """A model of one node. ``to`` is the output's type, where inference does not know it."""

    kind: str
    inputs: tuple[Input, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    outputs: int = 1
    domain: str = ""

    def model(self) -> onnx.ModelProto:
        names = [f"x{i}" if each is not None else "" for i, each in enumerate(self.inputs)]
        made = helper.make_node(
            self.kind,
            names,
            [f"y{i}" for i in range(self.outputs)],
            domain=self.domain,
            name="one",
            **self.attributes,
        )
        given = list(zip(names, self.inputs, strict=True))
        known = [numpy_helper.from_array(v, n) for n, v in given if isinstance(v, np.ndarray)]
        ports = [port(name, said) for name, said in given if isinstance(said, str)]
        outputs = [onnx.ValueInfoProto(name=name) for name in made.output]
        if self.domain:  # onnx infers nothing here; ONNX Runtime's files carry the shapes
            outputs = [port(name, "f32 1x4x6x6") for name in made.output]
        graph = helper.make_graph([made], "g", ports, outputs, known)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def node(self) -> Node:
        return graphs(self.model())[0].nodes[0]

    def reason(self, params: Params) -> str:
        return judge(self.node(), params)


def port(name: str, said: str) -> onnx.ValueInfoProto:
    kind, _, dims = said.partition(" ")
    shape = None if dims == "*" else [None if d == "?" else int(d) for d in dims.split("x") if d]
    return helper.make_tensor_value_info(name, TYPES[kind], shape)


def one(kind: str, *inputs: Input, opset: int = 21, outputs: int = 1, **attributes: Any) -> One:
    return One(kind, inputs, attributes, opset, outputs)


def fused(*inputs: Input, **attributes: Any) -> One:
    return One("FusedConv", inputs, attributes, domain="com.microsoft")


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


def scales(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def real(value: float) -> np.ndarray[Any, Any]:
    return np.array(value, np.float32)
