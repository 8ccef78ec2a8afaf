"""What a metric gets while it is watched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge.sources.stand_in import stand_in

PORTS: list[dict[str, Any]] = [
    {"name": "logits", "dtype": "float32", "shape": ["batch", 10]},
    {"name": "label", "dtype": "int64", "shape": ["batch"]},
    {"name": "loss", "dtype": "float32", "shape": []},
    {"name": "kept", "dtype": "bool", "shape": [None, 3]},
]


@pytest.mark.parametrize("rows", [1, 7])
def test_outputs_have_the_ports_types_and_as_many_rows_as_were_given(rows: int) -> None:
    found = stand_in(PORTS)({"x": np.zeros((rows, 4), np.float32), "scale": np.float32(1)})
    shapes = {name: (array.dtype.name, array.shape) for name, array in found.items()}
    assert shapes == {
        "logits": ("float32", (rows, 10)),
        "label": ("int64", (rows,)),
        "loss": ("float32", ()),
        "kept": ("bool", (rows, 3)),
    }


def test_values_are_not_all_the_same_and_the_same_each_time() -> None:
    """A metric that divides by what it finds must not divide by zero."""
    case = {"x": np.zeros((64, 4), np.float32)}
    first, second = (stand_in(PORTS)(case) for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    assert set(first["label"].tolist()) == {0, 1}
    assert first["kept"].any()
    assert not first["kept"].all()
