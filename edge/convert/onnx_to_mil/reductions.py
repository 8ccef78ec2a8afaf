"""Reductions over axes: an attribute first, an input since opset 13 (sum) or 18 (the others)."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.elementwise import natural_log
from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.values import FLOATS

WHOLE = {"ReduceSum": "reduce_sum", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
         "ReduceProd": "reduce_prod", "ReduceSumSquare": "reduce_sum_square",
         "ReduceL1": "reduce_l1_norm"}  # fmt: skip
BROKEN = {"ReduceMean": "reduce_mean", "ReduceL2": "reduce_l2_norm",
          "ReduceLogSum": "reduce_log_sum",
          "ReduceLogSumExp": "reduce_log_sum_exp"}  # fmt: skip


@operator(*WHOLE)
def reduce_number(node: Node) -> Any:
    """Sums, products and extremes, of integers too."""
    if node.type() == "bool":
        node.refuse("no rule for booleans")
    return _reduce(node, WHOLE[node.kind])


@operator(*BROKEN)
def reduce_float(node: Node) -> Any:
    """What is no whole number in general: floats only."""
    if node.value(0).type not in FLOATS:
        node.refuse(f"no rule for {node.type()}: ONNX cuts what MIL would round")
    return _reduce(node, BROKEN[node.kind])


def _reduce(node: Node, kind: str) -> Any:
    keep = bool(node.attribute("keepdims", 1))
    axes = node.ints_either("axes", 1, moved=13 if node.kind == "ReduceSum" else 18)
    nothing = bool(node.attribute("noop_with_empty_axes", 0))
    if not axes and nothing:
        return _pointwise(node, kind)
    places = sorted(node.positive(axis) for axis in axes) if axes else list(range(node.rank()))
    if not places:
        return _pointwise(node, kind)
    if kind in {"reduce_log_sum", "reduce_l2_norm"}:
        return _composed(node, kind, places, keep=keep)
    return node.op(kind, x=node.var(), axes=places, keep_dims=keep)


def _composed(node: Node, kind: str, axes: list[int], *, keep: bool) -> Any:
    """Without the epsilons that MIL's own have."""
    x = node.var()
    if kind == "reduce_log_sum":
        total = node.op("reduce_sum", x=x, axes=axes, keep_dims=keep)
        return natural_log(node, total)
    squares = node.op("reduce_sum_square", x=x, axes=axes, keep_dims=keep)
    return node.op("sqrt", x=squares)


def _pointwise(node: Node, kind: str) -> Any:
    """A reduction over no axis at all: of each element by itself."""
    x = node.var()
    if kind in {"reduce_l1_norm", "reduce_l2_norm"}:
        return node.op("abs", x=x)
    if kind == "reduce_sum_square":
        return node.op("mul", x=x, y=x)
    if kind == "reduce_log_sum":
        return natural_log(node, x)
    return x


@operator("CumSum", since=11)
def cumulative_sum(node: Node) -> Any:
    """Sums up to each element along a constant axis."""
    axis = node.positive(node.ints(1, "the axis")[0])
    return node.op(
        "cumsum",
        x=node.var(),
        axis=axis,
        exclusive=bool(node.attribute("exclusive", 0)),
        reverse=bool(node.attribute("reverse", 0)),
    )
