"""Ranges of activations: what they are, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from edge import errors
from edge.convert import quantizable
from edge.convert.activation_ranges import (
    BINS,
    Ranges,
    entropy_threshold,
    measure,
    percentile_range,
)
from tests.convert.trained_digits import model

MINMAX = {"method": "minmax", "percentile": 99.99}


def chain(*operators: str, shape: tuple[int | str, ...] = (4,)) -> onnx.ModelProto:
    """x -> operators in a row -> y; the tensors between are called after their operator."""
    names = ["x", *operators[:-1], "y"]
    nodes = [
        helper.make_node(op, [names[i]], [names[i + 1]], name=f"node_{op}")
        for i, op in enumerate(operators)
    ]
    return onnx.shape_inference.infer_shapes(
        model(nodes, ("x", list(shape)), ("y", list(shape)), {})
    )


def ranges(
    tmp_path: Path, of: onnx.ModelProto, *cases: Any, options: dict[str, Any] = MINMAX
) -> Ranges:
    given = [{"x": np.asarray(case, np.float32)} for case in cases]
    return measure(of, given, tmp_path, options)


def test_the_lowest_and_highest_over_all_samples(tmp_path: Path) -> None:
    found = ranges(tmp_path, chain("Neg", "Relu"), [-3, 0, 1, 2], [0, 0, 5, 0])
    assert found.limits == {"x": (-3, 5), "Neg": (-5, 3), "y": (0, 3)}
    assert (found.infinite, found.zero) == (frozenset(), ())


def test_nan_names_tensor_and_sample(tmp_path: Path) -> None:
    """onnxruntime's own MinMax passes over it (np.nanmin)."""
    with pytest.raises(errors.ModelRefused, match="'Log' holds NaN for sample 1"):
        ranges(tmp_path, chain("Log", "Neg"), [1, 2, 3, 4], [1, -1, 1, 1])


def test_a_tensor_with_infinity_has_no_range(tmp_path: Path) -> None:
    found = ranges(tmp_path, chain("Log", "Sigmoid"), [0, 1, 1, 1])
    assert found.infinite == {"Log"}
    assert found.limits == {"x": (0, 1), "y": (0, 0.5)}


def test_what_is_always_zero_is_listed(tmp_path: Path) -> None:
    found = ranges(tmp_path, chain("Relu", "Neg"), [-1, -2, -3, -4])
    assert found.zero == ("Relu", "y")


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_ragged_samples_are_all_seen(tmp_path: Path, method: str) -> None:
    """onnxruntime #18792: its histograms fail on them."""
    options = {"method": method, "percentile": 100.0}
    cases = (np.full(3, 1.0), np.full(50, -8.0), np.arange(7.0))
    found = ranges(tmp_path, chain("Neg", "Abs", shape=("n",)), *cases, options=options)
    assert found.limits["x"] == (-8, 6)
    assert found.limits["y"] == (0, 8)


def test_a_percentile_leaves_outliers_off(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 10_000)
    values[5] = 100
    options = {"method": "percentile", "percentile": 99.9}
    found = ranges(tmp_path, chain("Neg", shape=("n",)), values, options=options)
    low, high = found.limits["x"]
    assert -1.0 <= low < -0.9
    assert 0.9 < high < 1.1


def test_entropy_leaves_outliers_off(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(50_000)
    values[5] = 40
    options = {"method": "entropy", "percentile": 99.9}
    found = ranges(tmp_path, chain("Neg", shape=("n",)), values, options=options)
    low, high = found.limits["x"]
    assert 2.5 < high < 8
    assert low == max(-high, float(np.float32(values.min())))


def test_large_activations_are_fetched_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ranges(tmp_path, chain("Neg", "Abs", "Exp"), [-3, 0, 1, 2])
    monkeypatch.setattr("edge.convert.activation_ranges.FETCH_BYTES", 20)
    assert ranges(tmp_path, chain("Neg", "Abs", "Exp"), [-3, 0, 1, 2]) == whole


def test_empty_tensors_have_no_range(tmp_path: Path) -> None:
    found = ranges(tmp_path, chain("Neg", shape=("n",)), np.zeros(0))
    assert found.limits == {}


def test_data_that_the_model_cannot_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(errors.RunFailed, match="does not run on the calibration data"):
        ranges(tmp_path, chain("Neg"), np.zeros(5))


def test_only_floats_have_ranges() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Reshape", ["x", "s"], ["y"], name="reshape"),
    ]
    made = onnx.shape_inference.infer_shapes(model(nodes, ("x", [4]), ("y", [4]), {}))
    assert quantizable.float_tensors(made) == {"x": 1, "y": 1}


@given(
    counts=st.lists(st.integers(0, 1000), min_size=1, max_size=50).filter(any),
    percentile=st.floats(50, 100),
    low=st.floats(-100, 99),
    width=st.floats(0.01, 100),
)
def test_a_percentile_keeps_what_it_says_and_no_bin_more(
    counts: list[int], percentile: float, low: float, width: float
) -> None:
    span = (low, low + width)
    found = percentile_range(np.array(counts), span, percentile)
    assert span[0] <= found[0] <= found[1] <= span[1]
    edges = np.linspace(*span, len(counts) + 1)
    first, last = (int(np.abs(edges - edge).argmin()) for edge in found)
    off = sum(counts) * (100 - percentile) / 200
    slack = 1e-9 * sum(counts)
    assert sum(counts[:first]) <= off + slack
    assert sum(counts[last:]) <= off + slack
    assert sum(counts[: first + 1]) >= off - slack
    assert sum(counts[last - 1 :]) >= off - slack


@given(seed=st.integers(0, 100), scale=st.floats(1e-6, 1e6))
def test_an_entropy_threshold_is_within_what_was_seen(seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    counts = generator.poisson(generator.exponential(3.0, BINS))
    threshold = entropy_threshold(counts, scale)
    assert 128 / BINS * scale <= threshold <= scale


def test_even_values_are_not_cut() -> None:
    assert entropy_threshold(np.full(BINS, 10), 7.0) == 7.0
