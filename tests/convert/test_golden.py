"""Golden samples: seeded, in range, or exactly the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import errors, samples
from edge.convert.golden import draw, read_samples
from edge.model import BoundInput
from tests import models
from tests.golden import golden

X = BoundInput("x", "float32", (2, 4)).to_json()


def spec(dtype: str, **fields: Any) -> dict[str, Any]:
    return {**BoundInput("x", dtype, (1000,)).to_json(), **fields}


def test_outputs_are_those_of_the_source(mlp: Path, tmp_path: Path) -> None:
    facts = golden(tmp_path / "s", mlp, [X], count=2, seed=0)
    assert facts == {"samples": 2, "not_finite": []}
    weights = {t.name: t for t in models.mlp().graph.initializer}
    from onnx.numpy_helper import to_array

    case = samples.cases(tmp_path / "s", "input")[1]["x"]
    expected = np.maximum(case @ to_array(weights["w"]) + to_array(weights["b"]), 0)
    actual = samples.cases(tmp_path / "s", "output")[1]["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_the_same_seed_gives_the_same_bytes(mlp: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        golden(tmp_path / name, mlp, [X], count=2, seed=5)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("dtype", "given", "low", "high"),
    [
        ("float32", None, -1.0, 1.0),
        ("float16", (0.0, 255.0), 0.0, 255.0),
        ("int32", (0.0, 256.0), 0, 256),
        ("int64", None, 0, 1),
        ("uint8", (3.0, 3.0), 3, 3),
        ("bool", None, 0, 1),
    ],
)
def test_values_stay_in_range(
    dtype: str, given: tuple[float, float] | None, low: float, high: float
) -> None:
    drawn = draw(np.random.default_rng(0), spec(dtype, range=given))
    assert drawn.dtype == np.dtype(dtype)
    assert drawn.min() >= low
    assert drawn.max() <= high
    # Integer ranges are closed: both ends occur.
    if np.dtype(dtype).kind in "iu":
        assert (drawn.min(), drawn.max()) == (low, high)


def test_constants_are_fed_but_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    models.save(models.switched(), path)
    inputs = [
        BoundInput("x", "float32", (3,)).to_json(),
        BoundInput("mode", "int64", (), constant=1).to_json(),
    ]
    golden(tmp_path / "s", path, inputs, count=1, seed=0)
    case = samples.cases(tmp_path / "s", "input")[0]
    assert list(case) == ["x"]
    np.testing.assert_array_equal(samples.cases(tmp_path / "s", "output")[0]["y"], 2 * case["x"])


def test_the_users_samples_are_taken_as_they_are(mlp: Path, tmp_path: Path) -> None:
    arrays = tmp_path / "s.npz"
    wanted = np.arange(8, dtype=np.float32).reshape(2, 4)
    two: dict[str, Any] = {"x/0": wanted, "x/1": wanted + 1}
    np.savez(arrays, **two)
    read_samples.function(tmp_path / "s", inputs=[X], arrays=arrays)
    np.testing.assert_array_equal(samples.cases(tmp_path / "s", "input")[1]["x"], wanted + 1)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"z": np.zeros((2, 4), np.float32)}, "no array 'x'"),
        ({"x": np.zeros((2, 4), np.float64)}, "is float64"),
        ({"x": np.zeros((2, 5), np.float32)}, r"\[2, 5\]"),
        ({"x": np.zeros((2, 4), np.float32), "z": np.zeros(1)}, "unknown arrays: z"),
    ],
)
def test_wrong_samples_are_said(
    mlp: Path, tmp_path: Path, arrays: dict[str, Any], says: str
) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, **arrays)
    with pytest.raises(errors.UsageError, match=says):
        read_samples.function(tmp_path / "s", inputs=[X], arrays=path)


def test_another_byte_order_is_read_right(mlp: Path, tmp_path: Path) -> None:
    arrays = tmp_path / "s.npz"
    wanted = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.savez(arrays, x=wanted.astype(">f4"))
    read_samples.function(tmp_path / "s", inputs=[X], arrays=arrays)
    np.testing.assert_array_equal(samples.cases(tmp_path / "s", "input")[0]["x"], wanted)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_scalars_are_drawn(dtype: str) -> None:
    drawn = draw(np.random.default_rng(0), spec(dtype, shape=[]))
    assert (drawn.shape, drawn.dtype) == ((), np.dtype(dtype))


def test_a_pickle_in_the_samples_is_not_opened(mlp: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, x=np.array([{"evil": 1}], dtype=object))
    with pytest.raises(errors.UsageError, match="cannot read the samples"):
        read_samples.function(tmp_path / "s", inputs=[X], arrays=path)


def test_a_text_file_is_no_samples(mlp: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    path.write_text("hello")
    with pytest.raises(errors.UsageError, match="cannot read the samples"):
        read_samples.function(tmp_path / "s", inputs=[X], arrays=path)
