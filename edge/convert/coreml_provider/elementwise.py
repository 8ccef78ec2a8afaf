"""Elementwise operators, casts and selections."""

from __future__ import annotations

from math import prod

from edge.convert.coreml_provider.rule import (
    BOOL,
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    Params,
    constant,
    float_input,
    type_name,
    typed,
)
from edge.convert.coreml_provider.view import UNKNOWN, Node

CAST_TYPES = (FLOAT, INT32, INT64, BOOL, FLOAT16)
OLDEST_CLIP_WITH_INPUTS = 11
HIGHEST = 3.4028234663852886e38  # of float32
LOWEST = -HIGHEST


def prelu(node: Node, _params: Params) -> str:
    """``activation_op_builder.cc``: rank 3 or 4, known channels, a constant slope a channel.

    A single slope for a single channel crashes Core ML (apple/coremltools#1488).
    """
    shape, slope = node.shape(0), node.value(1)
    if len(shape) not in {3, 4}:
        return f"rank {len(shape)}, not 3 or 4"
    channels = shape[-3]
    if channels == UNKNOWN:
        return "number of channels dynamic"
    if reason := constant(node, 1):
        return reason
    sizes = slope.shape or ()
    single = prod(sizes) == 1
    if not single and not (len(sizes) == 3 and sizes[1:] == (1, 1)):
        return "slope is neither [C, 1, 1] nor one value"
    return "one slope for one channel" if single and channels == 1 else ""


def hard_sigmoid(node: Node, _params: Params) -> str:
    """``activation_op_builder.cc``: float or float16."""
    return typed(node, 0, (FLOAT, FLOAT16))


def clip(node: Node, _params: Params) -> str:
    """``clip_op_builder.cc``, ``shared/utils/utils.cc`` GetClipMinMax: constant limits.

    They differ and are float or float16.
    """
    if node.since < OLDEST_CLIP_WITH_INPUTS:
        limits = [node.real("min", LOWEST), node.real("max", HIGHEST)]
    else:
        reasons = (_limit(node, index) for index in (1, 2) if node.value(index).exists)
        if reason := next((each for each in reasons if each), ""):
            return reason
        limits = [(node.value(i).reals() or [end])[0] for i, end in ((1, LOWEST), (2, HIGHEST))]
    return "min equals max" if limits[0] == limits[1] else ""


def _limit(node: Node, index: int) -> str:
    return constant(node, index) or typed(node, index, (FLOAT, FLOAT16))


def binary_inputs(node: Node, params: Params) -> str:
    """``binary_op_builder.cc``: Pow of two equal types; Max in ML Programs only."""
    if node.kind == "Pow" and node.value(0).dtype != node.value(1).dtype:
        return "the inputs' types differ"
    if node.kind == "Max" and not params.mlprogram:
        return "only ML Programs have it"
    return float_input(node, params)


def logical_inputs(node: Node, _params: Params) -> str:
    """``logical_op_builder.cc``: bool."""
    return typed(node, 0, (BOOL,)) or typed(node, 1, (BOOL,))


def where_inputs(node: Node, _params: Params) -> str:
    """``where_op_builder.cc``: a bool condition, both branches float or both float16."""
    if reason := typed(node, 0, (BOOL,)) or typed(node, 1, (FLOAT, FLOAT16)):
        return reason
    same = node.value(1).dtype == node.value(2).dtype
    return "" if same else "the branches' types differ"


def cast_inputs(node: Node, params: Params) -> str:
    """``cast_op_builder.cc``: float, float16, int32, int64, bool; NeuralNetwork from int64."""
    if not params.mlprogram:
        return typed(node, 0, (INT64,))
    return typed(node, 0, CAST_TYPES) or _cast_to(node.outputs[0].dtype, CAST_TYPES)


def cast(node: Node, params: Params) -> str:
    """``cast_op_builder.cc``: NeuralNetwork takes it as the int32 form of an ArgMax only."""
    from edge.convert.coreml_provider.judge import judge

    if params.mlprogram:
        return ""
    if not node.sources:
        return "no node before it"
    if node.sources[0].kind != "ArgMax" or judge(node.sources[0], params):
        return f"after {node.sources[0].kind}, only taken after an ArgMax that is"
    return _cast_to(node.number("to", 0), (INT32,))


def _cast_to(target: int, kinds: tuple[int, ...]) -> str:
    return "" if target in kinds else f"to {type_name(target)}"
