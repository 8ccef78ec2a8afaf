"""Rows to try an estimator and its ONNX model on: seeded, the same ones on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.sources.sklearn_ports import Input
from edge.sources.sklearn_thresholds import by_feature
from edge.sources.sklearn_trees import floor32

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Plain rows, and as many whose values lie at thresholds.
HALF = 1000
# Fitted attributes that hold rows of the training data or points among them.
_EXAMPLES = ("support_vectors_", "cluster_centers_", "theta_", "means_", "_fit_X")


def make_rows(estimator: Any, port: Input) -> tuple[Array, Array]:
    """Two times :data:`HALF` rows [rows, features] of the input's dtype.

    The first lie around what the estimator learned; a quarter of them are whole numbers, one is
    zero. Of the second, half of all values lie on, just below or just above a threshold, as far
    as the estimator has trees and its transformers can be turned back; there are none without
    trees. With a declared range all values lie in it.
    """
    import numpy as np

    prefix, final = _split(estimator)
    width = getattr(final, "n_features_in_", port.shape[1])
    thresholds = by_feature(final, width)
    generator = np.random.default_rng(20_261_130)
    plain = _around(final, width, thresholds, generator)
    near = _at_thresholds(plain, thresholds, generator)
    plain, near = (_back_through(prefix, each, port.shape[1]) for each in (plain, near))
    plain[: HALF // 4] = np.round(plain[: HALF // 4])
    plain[0] = 0.0
    return _fit(plain, port, generator), _fit(near, port, generator)


def _fit(rows: Array, port: Input, generator: np.random.Generator) -> Array:
    """Rows brought into the declared range and into values of the input's dtype."""
    import numpy as np

    if port.range is not None:
        inside = (rows >= port.range[0]) & (rows <= port.range[1])
        rows = np.where(inside, rows, generator.uniform(*port.range, rows.shape))
    dtype = np.dtype(port.dtype)
    if dtype.kind in "iu":  # float32 holds whole numbers up to 2**24
        limits = np.iinfo(dtype)
        rows = np.clip(np.round(rows), max(limits.min, -(2**24)), min(limits.max, 2**24))
    return np.asarray(rows.astype(dtype))


def _at_thresholds(
    plain: Array, thresholds: dict[int, Array], generator: np.random.Generator
) -> Array:
    if not thresholds:
        return plain[:0]
    near = plain.copy()
    for column, values in thresholds.items():
        here = generator.random(len(near)) < 0.5
        near[here, column] = generator.choice(_beside(values), int(here.sum()))
    return near


def _split(estimator: Any) -> tuple[Any, Any]:
    """A pipeline's transformers (or None) and its last step."""
    steps = getattr(estimator, "steps", None)
    if isinstance(steps, list) and len(steps) > 1:
        return estimator[:-1], steps[-1][1]
    return None, estimator


def _back_through(prefix: Any, rows: Array, width: int) -> Array:
    """Rows that the transformers turn into about these, where they can be turned back."""
    import numpy as np

    if prefix is None:
        return rows
    if callable(getattr(prefix, "inverse_transform", None)):
        try:
            back = np.asarray(prefix.inverse_transform(rows), np.float64)
        except (ValueError, TypeError, AttributeError, NotImplementedError):
            back = np.zeros((0, 0))
        if back.shape == (len(rows), width):
            return np.where(np.isfinite(back), back, 0.0)
    first = prefix.steps[0][1]
    return _around(first, width, {}, np.random.default_rng(len(rows)))[: len(rows)]


def _around(
    part: Any, width: int, thresholds: dict[int, Array], generator: np.random.Generator
) -> Array:
    """float64 rows [HALF, width] around what ``part`` learned of its own input."""
    import numpy as np

    rows = generator.normal(size=(HALF, width)) * generator.choice([0.3, 1.0, 3.0], (HALF, 1))
    spread, centre = np.ones(width), np.zeros(width)
    for name in _EXAMPLES:
        examples: Any = getattr(part, name, None)
        if getattr(examples, "ndim", 0) == 2 and examples.shape[1] == width:
            spread, centre = np.std(examples, axis=0), np.mean(examples, axis=0)
    weights = np.abs(np.asarray(getattr(part, "coef_", np.zeros(0)), np.float64))
    if weights.ndim == 2 and weights.shape[1] == width:
        spread = 1.0 / np.clip(weights.max(axis=0), 1e-6, 1e6)
    for low, high in (("mean_", "scale_"), ("center_", "scale_"), ("data_min_", "data_range_")):
        values: list[Any] = [getattr(part, each, None) for each in (low, high)]
        if all(np.shape(each) == (width,) for each in values):
            centre, spread = values
    rows = np.asarray(rows * spread + centre)
    for column, at in thresholds.items():
        low, high = at.min(), at.max()
        margin = 0.2 * (high - low) or max(abs(low), 1.0)
        rows[:, column] = generator.uniform(low - margin, high + margin, HALF)
    return rows


def _beside(thresholds: Array) -> Array:
    """For each threshold the float32 below or on it, and the ones just below and just above."""
    import numpy as np

    on = floor32(thresholds[np.abs(thresholds) < 1e30])
    infinity = np.float32(np.inf)
    near = [on, np.nextafter(on, -infinity), np.nextafter(on, infinity)]
    return np.concatenate([*near, np.zeros(1, np.float32)]).astype(np.float64)
