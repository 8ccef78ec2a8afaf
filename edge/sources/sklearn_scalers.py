"""Converters for scalers that give scikit-learn's very bits.

skl2onnx makes a Scaler node, which multiplies by a float32 reciprocal. The last bit differs, and
behind it a tree of a forest may take another branch: one vote more or less. What scikit-learn
does to a float32 array depends on its release and scaler: constants cast to float32
(StandardScaler of 1.9), or ``X *= float64`` in place, which computes in float64 and rounds each
result. Both are written as plain operators; the installed estimator says which one it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.sources.sklearn_trees import Converter

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# An operator with its constant, float64 of one value a column.
Operation = tuple[str, "Array"]
# The operators used here look the same in all opsets from 11 (Clip with inputs) to 13.
_OPSET = 13


def converters() -> dict[type, Converter]:
    """Converters by estimator type, for skl2onnx's ``custom_conversion_functions``."""
    from sklearn import preprocessing

    return {
        preprocessing.StandardScaler: _convert,
        preprocessing.MinMaxScaler: _convert,
        preprocessing.MaxAbsScaler: _convert,
        preprocessing.RobustScaler: _convert,
    }


def operations(scaler: Any) -> list[Operation]:
    """What the scaler does to a row, in scikit-learn's order."""
    import numpy as np

    found: list[tuple[str, Any]] = []
    if type(scaler).__name__ == "MinMaxScaler":
        found = [("Mul", scaler.scale_), ("Add", scaler.min_)]
    elif type(scaler).__name__ == "MaxAbsScaler":
        found = [("Div", scaler.scale_)]
    elif type(scaler).__name__ == "RobustScaler":
        found += [("Sub", scaler.center_)] if scaler.with_centering else []
        found += [("Div", scaler.scale_)] if scaler.with_scaling else []
    else:
        found += [("Sub", scaler.mean_)] if scaler.with_mean else []
        found += [("Div", scaler.scale_)] if scaler.with_std else []
    return [(name, np.asarray(constant, np.float64)) for name, constant in found]


def in_double(scaler: Any, steps: list[Operation]) -> bool:
    """True when float64 arithmetic with a rounding after each step gives the scaler's bits.

    Both ways are tried on 256 seeded rows; float32 where it gives them too, since it is cheaper.
    """
    import numpy as np

    if not steps:
        return False
    width = len(steps[0][1])
    rows = np.random.default_rng(0).normal(scale=3.0, size=(256, width)).astype(np.float32)
    for name, constant in reversed(steps):  # rows around the data's own
        rows = _undo(name, rows, constant)
    # Clipping hides the bits and is the same both ways.
    given, clip = scaler.transform(rows.copy()), bounds(scaler)
    single = _simulate(rows, steps, np.float32)
    single = single if clip is None else np.clip(single, *clip)
    return not np.array_equal(given, single)


def bounds(scaler: Any) -> tuple[float, float] | None:
    """Lowest and highest value of a scaler that clips; None for the others."""
    if not getattr(scaler, "clip", False):
        return None
    low, high = getattr(scaler, "feature_range", (-1.0, 1.0))
    return float(low), float(high)


def _simulate(rows: Array, steps: list[Operation], dtype: type) -> Array:
    import numpy as np

    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    for name, constant in steps:
        wide = functions[name](rows.astype(dtype), constant.astype(dtype))
        rows = wide.astype(np.float32)
    return rows


def _undo(name: str, rows: Array, constant: Array) -> Array:
    import numpy as np

    inverse = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul"}[name]
    safe = np.where(constant == 0, 1.0, constant) if inverse == "Div" else constant
    return _simulate(rows, [(inverse, safe)], np.float64)


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from onnx import TensorProto
    from skl2onnx.common.data_types import FloatTensorType

    scaler = operator.raw_operator
    (variable,) = operator.inputs
    name, output = variable.full_name, operator.outputs[0].full_name
    graph = _Chain(scope, container)
    if not isinstance(variable.type, FloatTensorType):
        name = graph.cast(name, TensorProto.FLOAT)
    steps = operations(scaler)
    double = in_double(scaler, steps)
    for op_type, constant in steps:
        wide = graph.cast(name, TensorProto.DOUBLE) if double else name
        result = graph.apply(op_type, [wide], [(constant, list(constant.shape))], double=double)
        name = graph.cast(result, TensorProto.FLOAT) if double else result
    if (clip := bounds(scaler)) is not None:
        limits: list[tuple[Any, list[int]]] = [([limit], []) for limit in clip]
        name = graph.apply("Clip", [name], limits, double=False)
    container.add_node("Identity", [name], [output], op_version=min(_OPSET, container.target_opset))


class _Chain:
    """Appends one operator after the other, each under a new name."""

    def __init__(self, scope: Any, container: Any) -> None:
        self._scope = scope
        self._container = container
        self._opset = min(_OPSET, int(container.target_opset))

    def cast(self, name: str, to: int) -> str:
        made = str(self._scope.get_unique_variable_name("scaled"))
        self._container.add_node("Cast", [name], [made], op_version=self._opset, to=to)
        return made

    def apply(
        self, op_type: str, inputs: list[str], constants: list[tuple[Any, list[int]]], *,
        double: bool,
    ) -> str:  # fmt: skip
        from onnx import TensorProto

        names = list(inputs)
        kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
        for values, shape in constants:
            names.append(str(self._scope.get_unique_variable_name("constant")))
            self._container.add_initializer(names[-1], kind, shape, list(values))
        made = str(self._scope.get_unique_variable_name("scaled"))
        self._container.add_node(op_type, names, [made], op_version=self._opset)
        return made
