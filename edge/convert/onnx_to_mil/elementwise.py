"""Arithmetic, element by element."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.values import FLOATS

PLAIN = {"Ceil": "ceil", "Floor": "floor", "Round": "round", "Sqrt": "sqrt", "Exp": "exp",
         "Erf": "erf", "Sigmoid": "sigmoid", "Tanh": "tanh", "Sin": "sin",
         "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
         "Sinh": "sinh", "Cosh": "cosh", "Atanh": "atanh"}  # fmt: skip
# Above this many factors a power of integers is refused: MIL's pow goes through floats.
POWER_LIMIT = 8


@operator(*PLAIN, types="floats")
def plain(node: Node) -> Any:
    """What MIL has under (almost) the same name."""
    return node.op(PLAIN[node.kind], x=node.var())


@operator("Log", types="floats")
def log(node: Node) -> Any:
    """The natural logarithm."""
    return natural_log(node, node.var())


def natural_log(node: Node, x: Any) -> Any:
    """The natural logarithm of x, -inf of zero as in ONNX.

    MIL's log is ln(x + epsilon), by default 1e-45: -103.28 of zero in float32. Its documentation
    forbids no 0 there, and Chromium's WebNN gives Core ML one for the same reason
    (services/webnn/coreml/graph_builder_coreml.cc).
    """
    return node.op("log", x=x, epsilon=0.0)


@operator("Abs", "Sign")
def plain_number(node: Node) -> Any:
    """As above, for integers too."""
    return node.op(node.kind.lower(), x=node.var())


@operator("Identity", types="moved")
def identity(node: Node) -> Any:
    """The same value."""
    return node.value(0)


@operator("Neg")
def negative(node: Node) -> Any:
    """-x."""
    return node.op("mul", x=node.var(), y=_like(node, -1))


@operator("Reciprocal", types="floats")
def reciprocal(node: Node) -> Any:
    """1 / x. MIL's inverse adds 1e-4 to x, so not that."""
    return node.op("real_div", x=node.const(_one()), y=node.var())


def _one() -> Any:
    import numpy as np

    return np.float32(1)


def _like(node: Node, number: int) -> Any:
    """A number in the type of the first input."""
    import numpy as np

    return np.float32(number) if node.value(0).type in FLOATS else np.int32(number)


@operator("Add", "Sub", "Mul")
def arithmetic(node: Node) -> Any:
    """X + y, x - y, x y, with broadcasting; integers within 32 bits."""
    return node.op(node.kind.lower(), x=node.var(0), y=node.var(1))


@operator("Div")
def divide(node: Node) -> Any:
    """X / y; integers are cut towards zero, where MIL rounds down."""
    x, y = node.var(0), node.var(1)
    if node.value(0).type in FLOATS:
        return node.op("real_div", x=x, y=y)
    down = node.op("floor_div", x=x, y=y)
    rest = node.op("sub", x=x, y=node.op("mul", x=down, y=y))
    zero = node.const(_zero())
    other_signs = node.op(
        "logical_xor", x=node.op("less", x=x, y=zero), y=node.op("less", x=y, y=zero)
    )
    uneven = node.op("not_equal", x=rest, y=zero)
    one_more = node.op("logical_and", x=uneven, y=other_signs)
    return node.op("add", x=down, y=node.cast(one_more, "int32"))


def _zero() -> Any:
    import numpy as np

    return np.int32(0)


@operator("Mod", since=10)
def modulo(node: Node) -> Any:
    """The rest, with the sign of y; with ``fmod`` that of x, as C has it."""
    x, y = node.var(0), node.var(1)
    if not int(node.attribute("fmod", 0)):
        if node.value(0).type in FLOATS:
            node.refuse("floats need fmod = 1")
        return node.op("mod", x=x, y=y)
    rest = node.op("mod", x=node.op("abs", x=x), y=node.op("abs", x=y))
    return node.op("mul", x=node.op("sign", x=x), y=rest)


@operator("Pow")
def power(node: Node) -> Any:
    """x^y in x's type; integers only by a small constant, as products."""
    if node.value(0).type in FLOATS:
        exponent = node.var(1)
        return node.op("pow", x=node.var(0), y=node.cast(exponent, "fp32"))
    exponent = node.array(1, "the exponent of integers")
    if exponent.size != 1 or not 1 <= float(exponent.reshape(-1)[0]) <= POWER_LIMIT:
        node.refuse(f"no rule for integers to other than one power of 1 to {POWER_LIMIT}")
    if float(exponent.reshape(-1)[0]) % 1:
        node.refuse("no rule for integers to a broken power")
    made = node.var(0)
    for _ in range(int(exponent.reshape(-1)[0]) - 1):
        made = node.op("mul", x=made, y=node.var(0))
    return made


@operator("Sum", "Max", "Min", "Mean")
def variadic(node: Node) -> Any:
    """Over any number of inputs, with broadcasting."""
    kinds = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}
    made = node.var(0)
    for place in range(1, len(node.inputs)):
        made = node.op(kinds[node.kind], x=made, y=node.var(place))
    if node.kind == "Mean":
        return node.op("real_div", x=made, y=float(len(node.inputs)))
    return made


@operator("Clip")
def clip(node: Node) -> Any:
    """min(max(x, low), high); bounds are attributes before opset 11, inputs since."""
    made = node.var(0)
    if node.opset < 11:
        bounds = (node.attribute("min"), node.attribute("max"))
        low, high = (None if each is None else node.const(_single(each)) for each in bounds)
    else:
        low = node.var(1) if node.has(1) else None
        high = node.var(2) if node.has(2) else None
    if low is not None:
        made = node.op("maximum", x=made, y=low)
    return made if high is None else node.op("minimum", x=made, y=high)


def _single(value: Any) -> Any:
    import numpy as np

    return np.float32(value)
