"""Scalers in front of trees: every bit counts, or a tree takes another branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.convert import run_model
from edge.sources import sklearn_ports, sklearn_rows, sklearn_scalers
from tests.sources.sklearn_models import (
    both,
    export,
    held_out,
    need_libraries,
    on_thresholds,
    options,
    save,
    trained,
)

Array = np.ndarray[Any, Any]
SCALED = ("forest-scaled", "forest-minmax", "forest-robust", "forest-maxabs")


@pytest.fixture(autouse=True)
def libraries() -> None:
    need_libraries()


@pytest.mark.parametrize("name", SCALED)
def test_a_forest_behind_a_scaler_keeps_every_vote(name: str, tmp_path: Path) -> None:
    estimator = trained(name)
    forest, width = estimator.steps[-1][1], held_out(name).shape[1]
    scaled = on_thresholds(forest, estimator[:-1].transform(held_out(name)))
    back = estimator[:-1].inverse_transform(scaled.astype(np.float64)).astype(np.float32)
    beside = [back, np.nextafter(back, np.float32(np.inf)), np.nextafter(back, np.float32(-9))]
    rows = np.concatenate([*beside, held_out(name)])
    assert rows.shape[1] == width
    assert len(rows) > 2500
    (label, values), (onnx_label, onnx_values) = both(name, rows, tmp_path)
    np.testing.assert_array_equal(onnx_label, label)
    np.testing.assert_allclose(onnx_values, values, rtol=0, atol=1e-6)  # one vote is 0.05


def test_skl2onnx_alone_flips_votes_there() -> None:
    """The test above can fail: the Scaler node that skl2onnx writes sends rows elsewhere."""
    import onnxruntime as ort
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    estimator = trained("forest-scaled")
    port = sklearn_ports.read_input(estimator, options())
    rows = np.concatenate(sklearn_rows.make_rows(estimator, port))
    model = convert_sklearn(
        estimator, "m", [("x", FloatTensorType([None, rows.shape[1]]))],
        target_opset={"": 20, "ai.onnx.ml": 3}, options={id(estimator): {"zipmap": False}},
    )  # fmt: skip
    settings = run_model.options("disabled")
    session = ort.InferenceSession(model.SerializeToString(), settings)
    apart = np.abs(session.run(None, {"x": rows})[1] - estimator.predict_proba(rows))
    assert apart.max() > 0.04


@pytest.mark.parametrize("name", SCALED)
def test_scaled_bits_are_those_of_scikit_learn(name: str, tmp_path: Path) -> None:
    from sklearn.base import clone

    given = held_out("forest-binary").astype(np.float64)
    scaler = clone(trained(name).steps[0][1]).fit(given)
    generator = np.random.default_rng(2)
    rows = (given * generator.uniform(0.5, 1.5, (10, *given.shape))).reshape(-1, 30)
    rows = rows.astype(np.float32)
    export(save(scaler, tmp_path), tmp_path / "out")
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    (model,) = run_model.run_session(session, {"x": rows}).values()
    assert model.tobytes() == scaler.transform(rows.copy()).astype(np.float32).tobytes()


def test_both_arithmetics_of_scalers_are_told_apart() -> None:
    class Scaler:
        """Computes as it is told: in float32, or in float64 with a rounding after each step."""

        with_mean = with_std = True

        def __init__(self, dtype: type) -> None:
            self.dtype = dtype
            self.mean_, self.scale_ = np.array([0.1, 7.7]), np.array([3.3, 0.7])

        def transform(self, rows: Array) -> Array:
            shifted = (rows.astype(self.dtype) - self.mean_.astype(self.dtype)).astype(np.float32)
            scaled = shifted.astype(self.dtype) / self.scale_.astype(self.dtype)
            return np.asarray(scaled.astype(np.float32))

    for dtype, double in ((np.float32, False), (np.float64, True)):
        scaler = Scaler(dtype)
        assert sklearn_scalers.in_double(scaler, sklearn_scalers.operations(scaler)) is double
