"""A model that is none: what a metric gets while it is watched for what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def stand_in(outputs: list[dict[str, Any]]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A model of these output ports that gives any values, as many rows as it is given."""
    import numpy as np

    def run(case: Mapping[str, Any]) -> dict[str, Any]:
        rows = max((len(array) for array in case.values() if np.ndim(array)), default=1)
        shapes = {port["name"]: [_sized(dim) for dim in port["shape"]] for port in outputs}
        return {
            port["name"]: _any_values([rows, *shapes[port["name"]][1:]], port["dtype"])
            if shapes[port["name"]]
            else _any_values([], port["dtype"])
            for port in outputs
        }

    return run


def _any_values(shape: list[int], dtype: str) -> Any:
    """Seeded, from 0 to 1: what all zeros make of a metric may be 0 / 0."""
    import numpy as np

    values = np.random.default_rng(0).random(shape)
    return np.asarray(values if np.dtype(dtype).kind == "f" else values.round(), dtype)


def _sized(dim: Any) -> int:
    return dim if isinstance(dim, int) else 1
