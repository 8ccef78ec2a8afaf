"""The float32 that no row can tell from a float64 threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.sources import sklearn_trees


@given(st.lists(st.floats(allow_nan=False, width=64), min_size=1), st.data())
@settings(max_examples=200)
def test_no_float32_tells_a_threshold_from_its_float32(found: list[float], draw: Any) -> None:
    thresholds = np.array(found)
    rounded = sklearn_trees.floor32(thresholds)
    assert rounded.dtype == np.float32
    x = np.array([draw.draw(st.floats(allow_nan=False, width=32)) for _ in found], np.float32)
    with np.errstate(over="ignore", under="ignore"):
        near = thresholds.astype(np.float32)
        up = np.nextafter(near, np.float32(np.inf))
        down = np.nextafter(near, np.float32(-np.inf))
    for each in (x, near, up, down, rounded):
        np.testing.assert_array_equal(each.astype(np.float64) <= thresholds, each <= rounded)
