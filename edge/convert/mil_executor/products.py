"""Matrix products; sums are float64, rounded once, whole numbers stay whole."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation


def _wide(x: Any) -> Any:
    import numpy as np

    return np.asarray(x, np.float64) if np.asarray(x).dtype.kind == "f" else x


@operation("matmul")
def matmul(a: Arguments) -> Any:
    """X y, each perhaps transposed."""
    import numpy as np

    x = np.swapaxes(a["x"], -1, -2) if a["transpose_x"] else a["x"]
    y = np.swapaxes(a["y"], -1, -2) if a["transpose_y"] else a["y"]
    return np.matmul(_wide(x), _wide(y))


@operation("linear")
def linear(a: Arguments) -> Any:
    """X W' + b."""
    import numpy as np

    made = np.matmul(_wide(a["x"]), np.swapaxes(_wide(a["weight"]), -1, -2))
    return made if a["bias"] is None else made + a["bias"]


@operation("einsum")
def einsum(a: Arguments) -> Any:
    """Numpy's own."""
    import numpy as np

    return np.einsum(a["equation"], *a["values"])


@operation("scaled_dot_product_attention")
def attention(a: Arguments) -> Any:
    """softmax(q k' / sqrt(size) + mask) v; a boolean mask says what is seen."""
    import numpy as np

    q, k, v, mask = a["query"], a["key"], a["value"], a["attn_mask"]
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) / np.sqrt(np.float32(q.shape[-1]))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.matmul(raised / raised.sum(axis=-1, keepdims=True), v)
