"""Comparisons and booleans."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator

COMPARISONS = {"Less": "less", "Greater": "greater", "LessOrEqual": "less_equal",
               "GreaterOrEqual": "greater_equal"}  # fmt: skip
BOOLEAN = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}


@operator(*COMPARISONS, types="moved")
def compare(node: Node) -> Any:
    """X < y and so on."""
    return node.op(COMPARISONS[node.kind], x=node.var(0), y=node.var(1))


@operator("Equal", types="moved")
def equal(node: Node) -> Any:
    """X = y; booleans by exclusive or, since MIL's equal does not take them."""
    x, y = node.var(0), node.var(1)
    if node.dtype(x) == "bool":
        return node.op("logical_not", x=node.op("logical_xor", x=x, y=y))
    return node.op("equal", x=x, y=y)


@operator(*BOOLEAN)
def boolean(node: Node) -> Any:
    """Two booleans."""
    return node.op(BOOLEAN[node.kind], x=node.var(0), y=node.var(1))


@operator("Not")
def negation(node: Node) -> Any:
    """The other boolean."""
    return node.op("logical_not", x=node.var())


@operator("IsNaN", since=9, types="floats")
def is_nan(node: Node) -> Any:
    """What differs from itself."""
    x = node.var()
    return node.op("not_equal", x=x, y=x)


@operator("IsInf", since=10, types="floats")
def is_infinite(node: Node) -> Any:
    """Infinite values, of the signs that the node asks for."""
    import numpy as np

    x = node.var()
    up, down = int(node.attribute("detect_positive", 1)), int(node.attribute("detect_negative", 1))
    infinity = node.const(np.float32(np.inf))
    if up and down:
        return node.op("equal", x=node.op("abs", x=x), y=infinity)
    if not up and not down:
        node.refuse("it asks for infinities of no sign")
    sign = infinity if up else node.const(np.float32(-np.inf))
    return node.op("equal", x=x, y=sign)


@operator("Where", since=9, types="moved")
def where(node: Node) -> Any:
    """X where the condition holds, else y; all three broadcast, MIL's select does that for two."""
    import numpy as np

    shapes = [node.shape(place) for place in range(3)]
    whole = np.broadcast_shapes(*shapes)
    x, y = node.var(1), node.var(2)
    if np.broadcast_shapes(*shapes[1:]) != whole:
        x = _broadcast(node, x, shapes[1], whole)
    return node.op("select", cond=node.var(0), a=x, b=y)


def _broadcast(node: Node, x: Any, shape: tuple[int, ...], whole: tuple[int, ...]) -> Any:
    wide = (1,) * (len(whole) - len(shape)) + shape
    if wide != shape:
        x = node.op("reshape", x=x, shape=list(wide))
    return node.op("tile", x=x, reps=[w // n for w, n in zip(whole, wide, strict=True)])
