"""Matrix products."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.shapes import reshaped


@operator("MatMul", types="floats")
def matmul(node: Node) -> Any:
    """As numpy's: vectors become matrices for the product, and lose that dimension again."""
    x, y = node.var(0), node.var(1)
    first, second = node.rank(0) == 1, node.rank(1) == 1
    if first:
        x = node.op("expand_dims", x=x, axes=[0])
    if second:
        y = node.op("expand_dims", x=y, axes=[1])
    made = _product(node, x, y)
    gone = ([-2] if first else []) + ([-1] if second else [])
    return node.op("squeeze", x=made, axes=gone) if gone else made


def _product(node: Node, x: Any, y: Any) -> Any:
    """A product with a constant matrix is MIL's ``linear``, which compresses and fuses better."""
    if node.constant(1) and len(y.shape) == 2 and node.rank(1) == 2 and len(x.shape) <= 3:
        weight = node.const(node.array(1, "weight").T)
        return node.op("linear", x=x, weight=weight)
    return node.op("matmul", x=x, y=y)


@operator("Gemm", types="floats")
def gemm(node: Node) -> Any:
    """Alpha A' B' + beta C."""
    alpha, beta = float(node.attribute("alpha", 1.0)), float(node.attribute("beta", 1.0))
    over, under = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    x = node.op("transpose", x=node.var(0), perm=[1, 0]) if over else node.var(0)
    if alpha == beta == 1 and node.constant(1) and _is_bias(node, under=under):
        return _linear(node, x, under=under)
    made = node.op("matmul", x=x, y=node.var(1), transpose_y=under)
    if alpha != 1:
        made = node.op("mul", x=made, y=alpha)
    if not node.has(2):
        return made
    bias = node.var(2) if beta == 1 else node.op("mul", x=node.var(2), y=beta)
    return node.op("add", x=made, y=bias)


def _is_bias(node: Node, *, under: bool) -> bool:
    """Whether C is absent, or one constant number for each column."""
    columns = node.shape(1)[0 if under else 1]
    return not node.has(2) or (node.constant(2) and node.shape(2) in {(columns,), (1, columns)})


def _linear(node: Node, x: Any, *, under: bool) -> Any:
    weight = node.array(1, "weight")
    bias = node.array(2, "bias").reshape(-1) if node.has(2) else None
    return node.op(
        "linear",
        x=x,
        weight=node.const(weight if under else weight.T),
        bias=None if bias is None else node.const(bias),
    )


@operator("Einsum", since=12, types="floats")
def einsum(node: Node) -> Any:
    """Two operands: as one product of matrices over the letters that both have.

    Letters are of four kinds: in both and in the result (batch), in both only (summed), and in one
    and the result. Repeated letters of one operand, ellipses and sums over one operand are refused.
    """
    text = str(node.attribute("equation")).replace(" ", "")
    if "->" not in text or "." in text or text.count(",") != 1 or len(node.inputs) != 2:
        node.refuse(f"no rule for the equation {text!r}")
    operands, result = text.split("->")
    left, right = operands.split(",")
    for letters in (left, right, result):
        if len(set(letters)) != len(letters):
            node.refuse(f"no rule for repeated letters in {text!r}")
    summed = [c for c in left if c in right and c not in result]
    batch = [c for c in left if c in right and c in result]
    rows, columns = (
        [c for c in side if c not in other] for side, other in ((left, right), (right, left))
    )
    if any(c not in result for c in rows + columns):
        node.refuse(f"no rule for a sum over one operand in {text!r}")
    sizes = dict(zip(left + right, node.shape(0) + node.shape(1), strict=True))
    x = _matrix(node, 0, left, [batch, rows, summed], sizes)
    y = _matrix(node, 1, right, [batch, summed, columns], sizes)
    whole = node.op("matmul", x=x, y=y)
    order = batch + rows + columns
    made = reshaped(node, whole, [sizes[c] for c in order])
    perm = [order.index(c) for c in result]
    return made if perm == sorted(perm) else node.op("transpose", x=made, perm=perm)


def _matrix(
    node: Node, index: int, letters: str, groups: list[list[str]], sizes: dict[str, int]
) -> Any:
    """An operand with its letters in groups, one dimension each."""
    from math import prod

    x, perm = node.var(index), [letters.index(c) for group in groups for c in group]
    if perm != sorted(perm):
        x = node.op("transpose", x=x, perm=perm)
    return node.op("reshape", x=x, shape=[prod(sizes[c] for c in group) for group in groups])
