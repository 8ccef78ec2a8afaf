"""Normalizations, in float64 up to the result."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation


def _wide(values: Any, rank: int) -> Any:
    import numpy as np

    return np.reshape(values, (1, -1) + (1,) * (rank - 2)).astype(np.float64)


def _affine(x: Any, gamma: Any, beta: Any) -> Any:
    made = x if gamma is None else x * gamma
    return made if beta is None else made + beta


def _channel_affine(a: Arguments, x: Any) -> Any:
    scales = (None if a[name] is None else _wide(a[name], x.ndim) for name in ("gamma", "beta"))
    return _affine(x, *scales)


@operation("batch_norm")
def batch_norm(a: Arguments) -> Any:
    """By given statistics of each channel."""
    import numpy as np

    x = a["x"].astype(np.float64)
    spread = np.sqrt(_wide(a["variance"], x.ndim) + a["epsilon"])
    return _channel_affine(a, (x - _wide(a["mean"], x.ndim)) / spread)


def _standardized(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    import numpy as np

    low = x - x.mean(axis=axes, keepdims=True)
    return low / np.sqrt(np.square(low).mean(axis=axes, keepdims=True) + epsilon)


@operation("instance_norm")
def instance_norm(a: Arguments) -> Any:
    """By the statistics of each channel of each sample."""
    import numpy as np

    x = a["x"].astype(np.float64)
    return _channel_affine(a, _standardized(x, tuple(range(2, x.ndim)), float(a["epsilon"])))


@operation("layer_norm")
def layer_norm(a: Arguments) -> Any:
    """By the statistics over axes."""
    import numpy as np

    x = a["x"].astype(np.float64)
    axes = tuple(range(x.ndim)) if a["axes"] is None else tuple(int(n) for n in a["axes"])
    return _affine(_standardized(x, axes, float(a["epsilon"])), a["gamma"], a["beta"])


@operation("l2_norm")
def l2_norm(a: Arguments) -> Any:
    """X over the root of its squares' sum, over the last three dimensions."""
    import numpy as np

    x = a["x"].astype(np.float64)
    return x / np.sqrt(np.square(x).sum(axis=(-3, -2, -1), keepdims=True) + a["epsilon"])
