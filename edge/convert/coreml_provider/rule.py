"""What a rule is, and the checks that every operator shares.

``base_op_builder.cc`` (IsOpSupported, HasSupportedOpSet, IsInputDtypeSupport) and ``helper.cc``
(IsInputSupported, CheckShapeForConvMemoryLimit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edge.convert.coreml_provider.view import Node, Value

# TensorProto's element types by name.
FLOAT, INT32, INT64, BOOL, FLOAT16 = 1, 6, 7, 9, 10
MOST_OPSET = 27  # GetMaxSupportedOpSet of every builder
MOST_RANK = 5
# Textures hold convolutions' data: https://github.com/apple/coremltools/issues/1003
MOST_CONV_DIM = 16384
# Not refused: an exception that no one catches before the session, which is not made.
THROWS = "on which the provider throws and the session is not made"


@dataclass(frozen=True)
class Params:
    """What the provider knows when it looks at a node (``OpBuilderInputParams``)."""

    mlprogram: bool
    coreml: int  # Core ML's version, that of the operating system
    static_inputs: bool


Rule = Callable[[Node, Params], str]
"""Why the node is refused; "" when it is not."""


@dataclass(frozen=True)
class Row:
    """An operator: its source file in ``builders/impl``, and what it asks.

    ``inputs`` is HasSupportedInputsImpl, ``impl`` IsOpSupportedImpl, ``least`` the
    GetMinSupportedOpSet of its schema, ``trivial`` IsTrivial: alone not worth a partition.
    """

    file: str
    impl: tuple[Rule, ...] = ()
    inputs: tuple[Rule, ...] = ()
    least: int = 1
    mlprogram: bool = True
    trivial: bool = False
    empty_inputs: bool = False


def mlprogram_only(_node: Node, params: Params) -> str:
    """Operators that only ML Programs have."""
    return "" if params.mlprogram else "only ML Programs have it"


def float_input(node: Node, params: Params) -> str:
    """IsInputDtypeSupport of input 0: float; in ML Programs float16 and int64 too."""
    kinds = (FLOAT, INT64, FLOAT16) if params.mlprogram else (FLOAT,)
    return typed(node, 0, kinds)


def typed(node: Node, index: int, kinds: Sequence[int]) -> str:
    """The input is of one of these types."""
    dtype = node.value(index).dtype
    return "" if dtype in kinds else f"input {index} is {type_name(dtype)}"


def type_name(dtype: int) -> str:
    """``float16`` for 10."""
    from onnx import TensorProto

    return TensorProto.DataType.Name(dtype).lower() if dtype else "unknown"


def common(node: Node, params: Params, row: Row) -> str:
    """What is asked of every node, before the operator's own checks."""
    if params.mlprogram and not row.mlprogram:
        return "ML Programs do not have it"
    if not row.least <= node.since <= MOST_OPSET:
        return f"opset {node.since}, taken from {row.least} to {MOST_OPSET}"
    given = (index for index, value in enumerate(node.inputs) if value.exists)
    reasons = (_input(node, index, params, row) for index in given)
    return next((reason for reason in reasons if reason), "")


def _input(node: Node, index: int, params: Params, row: Row) -> str:
    value = node.inputs[index]
    if value.shape is None:
        return f"shape of input {index} unknown"
    if params.static_inputs and not value.static:
        return f"shape of input {index} dynamic, RequireStaticInputShapes is 1"
    if 0 in value.shape and not row.empty_inputs:
        return f"input {index} has a dimension of 0"
    if len(value.shape) > MOST_RANK:
        return f"rank {len(value.shape)} of input {index}, at most {MOST_RANK}"
    return ""


def conv_limit(values: Sequence[Value]) -> str:
    """Shapes known, and no dimension above 16384."""
    if any(value.shape is None for value in values):
        return "shape of the output unknown"
    large = any(dim > MOST_CONV_DIM for value in values for dim in value.shape or ())
    return f"a dimension above {MOST_CONV_DIM}" if large else ""


def constant(node: Node, index: int) -> str:
    """The input is a constant initializer; one left out (an empty name) is none."""
    value = node.value(index)
    return "" if value.constant else f"input {index} is no constant initializer"


def positive_axis(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    return axis + rank if axis < 0 else axis
