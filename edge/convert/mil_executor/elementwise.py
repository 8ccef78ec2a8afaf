"""Element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

from math import erf
from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation

ONE = {"abs": "abs", "ceil": "ceil", "floor": "floor", "sqrt": "sqrt", "exp": "exp", "exp2": "exp2",
       "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin",
       "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "atanh": "arctanh",
       "sign": "sign", "square": "square", "logical_not": "logical_not",
       "round": "rint"}  # fmt: skip
TWO = {"add": "add", "sub": "subtract", "mul": "multiply", "maximum": "maximum",
       "minimum": "minimum", "pow": "power", "equal": "equal", "not_equal": "not_equal",
       "less": "less", "less_equal": "less_equal", "greater": "greater",
       "greater_equal": "greater_equal", "logical_and": "logical_and",
       "logical_or": "logical_or", "logical_xor": "logical_xor", "floor_div": "floor_divide",
       "mod": "mod"}  # fmt: skip


@operation(*ONE)
def one(a: Arguments) -> Any:
    """Numpy's own."""
    import numpy as np

    return getattr(np, ONE[a["op"]])(a["x"])


@operation(*TWO)
def two(a: Arguments) -> Any:
    """Numpy's own, with broadcasting."""
    import numpy as np

    return getattr(np, TWO[a["op"]])(a["x"], a["y"])


@operation("real_div")
def real_div(a: Arguments) -> Any:
    """X / y."""
    import numpy as np

    return np.true_divide(a["x"], a["y"])


@operation("identity")
def identity(a: Arguments) -> Any:
    """X."""
    return a["x"]


@operation("cast")
def cast(a: Arguments) -> Any:
    """Another element type; the result's own dtype decides, floats are cut to integers."""
    import numpy as np

    x = np.asarray(a["x"])
    return x != 0 if a["dtype"] == "bool" else np.trunc(x) if "int" in a["dtype"] else x


@operation("log")
def log(a: Arguments) -> Any:
    """ln(x + epsilon)."""
    import numpy as np

    return np.log(a["x"] + np.float32(a["epsilon"]))


@operation("rsqrt")
def rsqrt(a: Arguments) -> Any:
    """1 / sqrt(x + epsilon)."""
    import numpy as np

    return 1 / np.sqrt(a["x"] + np.float32(a["epsilon"]))


@operation("inverse")
def inverse(a: Arguments) -> Any:
    """1 / (x + epsilon)."""
    import numpy as np

    return 1 / (a["x"] + np.float32(a["epsilon"]))


@operation("erf")
def error_function(a: Arguments) -> Any:
    """The error function, by Python's own."""
    return _erf(a["x"])


def _erf(x: Any) -> Any:
    import numpy as np

    return np.vectorize(erf, otypes=[np.float64])(x)


@operation("select")
def select(a: Arguments) -> Any:
    """A where cond, else b."""
    import numpy as np

    return np.where(a["cond"], a["a"], a["b"])


@operation("clip")
def clip(a: Arguments) -> Any:
    """Between alpha and beta."""
    import numpy as np

    return np.minimum(np.maximum(a["x"], a["alpha"]), a["beta"])


@operation("threshold")
def threshold(a: Arguments) -> Any:
    """max(x, alpha)."""
    import numpy as np

    return np.maximum(a["x"], a["alpha"])


@operation("relu")
def relu(a: Arguments) -> Any:
    """max(x, 0)."""
    import numpy as np

    return np.maximum(a["x"], 0)


@operation("relu6")
def relu6(a: Arguments) -> Any:
    """min(max(x, 0), 6)."""
    import numpy as np

    return np.clip(a["x"], 0, 6)


@operation("leaky_relu")
def leaky_relu(a: Arguments) -> Any:
    """x, or alpha x where x < 0."""
    import numpy as np

    return np.where(a["x"] >= 0, a["x"], a["alpha"] * a["x"])


@operation("prelu")
def prelu(a: Arguments) -> Any:
    """x, or alpha of its channel times x where x < 0."""
    import numpy as np

    x = a["x"]
    slope = np.reshape(a["alpha"], (1, -1) + (1,) * (x.ndim - 2))
    return np.where(x >= 0, x, slope * x)


@operation("thresholded_relu")
def thresholded_relu(a: Arguments) -> Any:
    """0 where x is less than alpha, else x."""
    import numpy as np

    return np.where(a["x"] >= a["alpha"], a["x"], 0)


@operation("elu")
def elu(a: Arguments) -> Any:
    """x, or alpha (e^x - 1) where x < 0."""
    import numpy as np

    return np.where(a["x"] > 0, a["x"], a["alpha"] * np.expm1(a["x"]))


@operation("sigmoid")
def sigmoid(a: Arguments) -> Any:
    """1 / (1 + e^-x)."""
    import numpy as np

    return 1 / (1 + np.exp(-np.asarray(a["x"], np.float64)))


@operation("silu")
def silu(a: Arguments) -> Any:
    """X sigmoid(x)."""
    return a["x"] * sigmoid(a)


@operation("sigmoid_hard")
def sigmoid_hard(a: Arguments) -> Any:
    """min(max(alpha x + beta, 0), 1)."""
    import numpy as np

    return np.clip(a["alpha"] * a["x"] + a["beta"], 0, 1)


@operation("softplus")
def softplus(a: Arguments) -> Any:
    """ln(1 + e^x)."""
    import numpy as np

    return np.logaddexp(a["x"], 0)


@operation("softsign")
def softsign(a: Arguments) -> Any:
    """X / (1 + |x|)."""
    import numpy as np

    return a["x"] / (1 + np.abs(a["x"]))


@operation("gelu")
def gelu(a: Arguments) -> Any:
    """X P(X <= x) for a normal X, exactly or by tanh."""
    import numpy as np

    x = np.asarray(a["x"], np.float64)
    if a["mode"] == "EXACT":
        return x * 0.5 * (1 + _erf(x / np.sqrt(2)))
    if a["mode"] == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x / (1 + np.exp(-1.702 * x))


@operation("softmax")
def softmax(a: Arguments) -> Any:
    """e^x over its sum along an axis."""
    import numpy as np

    raised = np.exp(a["x"] - np.max(a["x"], axis=a["axis"], keepdims=True))
    return raised / raised.sum(axis=a["axis"], keepdims=True)
