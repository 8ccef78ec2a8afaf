"""Models of one node, and what the frontend and the executor make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge.convert import mil_executor, onnx_to_mil

Arrays = dict[str, Any]


def one(
    kind: str,
    inputs: Arrays,
    *,
    opset: int,
    constants: Arrays | None = None,
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """inputs, then constants -> node ``kind`` -> y0, y1, ...; output types are inferred."""
    stored = constants or {}
    names = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(kind, [*inputs, *stored], names, name=f"a_{kind}", **attributes)
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    graph = helper.make_graph(
        [node],
        "one",
        ports,
        [onnx.ValueInfoProto(name=name) for name in names],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    whole = onnx.shape_inference.infer_shapes(model)
    inferred = {value.name: value for value in whole.graph.value_info}
    for port in whole.graph.output:
        if port.name in inferred:
            port.CopyFrom(inferred[port.name])
    return whole


def computed(model: onnx.ModelProto, feeds: Arrays, *, target: str = "iOS15") -> list[Any]:
    """Outputs by frontend and executor, in the shapes and dtypes that ONNX has them in."""
    made = onnx_to_mil.convert(model, target=target)
    given = {
        port.name: feeds[port.onnx].reshape(port.shape).astype(port.held) for port in made.inputs
    }
    found = mil_executor.run(made.program, given).outputs
    return [found[port.name].reshape(() if port.scalar else port.shape) for port in made.outputs]


def expected(model: onnx.ModelProto, feeds: Arrays) -> list[Any]:
    """Outputs by ONNX Runtime."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def agree(model: onnx.ModelProto, feeds: Arrays, *, target: str = "iOS15") -> None:
    """Both give the same: exactly for integers, to 1e-5 for floats."""
    wanted, found = expected(model, feeds), computed(model, feeds, target=target)
    for one_wanted, one_found in zip(wanted, found, strict=True):
        np.testing.assert_allclose(one_found, one_wanted, rtol=1e-5, atol=1e-5)


def values(*shape: int, seed: int = 0) -> Any:
    """Seeded float32 values, normal."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
