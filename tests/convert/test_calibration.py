"""Calibration data: split as a user expects, or refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, samples
from edge.convert.calibration import calibration, calibration_file, spread
from edge.model import BoundInput

X = BoundInput("x", "float32", (2, 3)).to_json()
MASK = BoundInput("mask", "int64", (2,)).to_json()
FREE = {**X, "shape": ["n", 3]}


def rows(count: int, width: int = 3) -> np.ndarray[Any, Any]:
    return np.arange(count * width, dtype=np.float32).reshape(count, width)


def run(
    folder: Path, arrays: dict[str, Any], *inputs: dict[str, Any], limit: int = 300
) -> tuple[dict[str, Any], list[dict[str, np.ndarray[Any, Any]]]]:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "c.npz", **arrays)
    facts = calibration.function(
        folder / "out", arrays=folder / "c.npz", files=[], inputs=list(inputs), limit=limit
    )
    assert facts is not None
    return facts, samples.cases(folder / "out", "input")


@pytest.mark.parametrize(
    ("array", "count"),
    [(rows(2), 1), (rows(10), 5), (rows(10).reshape(5, 2, 3), 5)],
)
def test_one_batch_more_rows_and_one_more_axis(
    tmp_path: Path, array: np.ndarray[Any, Any], count: int
) -> None:
    facts, cases = run(tmp_path, {"x": array}, X)
    assert facts == {"samples": count, "given": count, "ragged": False}
    np.testing.assert_array_equal(np.concatenate([case["x"] for case in cases]), rows(2 * count))


def test_numbered_arrays_are_one_sample_each(tmp_path: Path) -> None:
    _, cases = run(tmp_path, {"x/0": rows(2), "x/1": rows(2) + 1}, X)
    np.testing.assert_array_equal(cases[1]["x"], rows(2) + 1)
    with pytest.raises(
        errors.UsageError, match=r"'x/0' of the calibration data is float32\[4, 3\]"
    ):
        run(tmp_path / "no", {"x/0": rows(4)}, X)


def test_inputs_are_split_together(tmp_path: Path) -> None:
    mask = np.arange(6, dtype=np.int64)
    _, cases = run(tmp_path, {"x": rows(6), "mask": mask}, X, MASK)
    np.testing.assert_array_equal([case["mask"] for case in cases], mask.reshape(3, 2))


MARKS = np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": rows(5), "mask": MARKS}, "5 rows; the model takes 2 at a time, so 1"),
        ({"x": rows(4), "mask": np.zeros(6, np.int64)}, "unequal numbers .*: 'x' 2, 'mask' 3"),
        ({"x": rows(4).astype(np.float64), "mask": MARKS}, r"float64\[4, 3\], .*float32"),
        ({"x": rows(4, 5), "mask": MARKS}, r"float32\[4, 5\], the model wants"),
        ({"x": rows(4)}, "the calibration data have no array 'mask'"),
        ({"x": rows(4), "mask": MARKS, "y": rows(1)}, "unknown arrays: y"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.UsageError, match=says) as caught:
        run(tmp_path, arrays, X, MASK)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("array", [rows(0), rows(0).reshape(0, 2, 3)])
def test_an_empty_set_is_refused(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(errors.UsageError, match="holds no sample"):
        run(tmp_path, {"x": array}, X)


@pytest.mark.parametrize(("odd", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_values_that_are_no_numbers_are_named(tmp_path: Path, odd: float, word: str) -> None:
    array = rows(10)
    array[7, 1] = odd
    with pytest.raises(errors.UsageError, match=f"holds {word} in 'x', sample 3"):
        run(tmp_path, {"x": array}, X)


def test_a_constant_input_is_left_out(tmp_path: Path) -> None:
    rate = BoundInput("sr", "int64", (), constant=16000).to_json()
    _, cases = run(tmp_path, {"x": rows(2)}, X, rate)
    assert list(cases[0]) == ["x"]


def test_samples_may_differ_where_the_model_is_free(tmp_path: Path) -> None:
    facts, cases = run(tmp_path, {"x/0": rows(2), "x/1": rows(7)}, FREE)
    assert facts == {"samples": 2, "given": 2, "ragged": True}
    assert [case["x"].shape for case in cases] == [(2, 3), (7, 3)]


def test_more_than_the_limit_is_thinned_out_evenly(tmp_path: Path) -> None:
    facts, cases = run(tmp_path, {"x": rows(200)}, X, limit=4)
    assert facts == {"samples": 4, "given": 100, "ragged": False}
    assert [case["x"][0, 0] for case in cases] == [0, 150, 300, 450]


@given(count=st.integers(0, 500), limit=st.integers(1, 500))
def test_thinning_out_takes_different_ones_in_order(count: int, limit: int) -> None:
    taken = spread(count, limit)
    assert len(taken) == min(count, limit)
    assert taken == sorted(set(taken))
    assert all(0 <= index < count for index in taken)


def test_a_folder_is_read_whole_and_keyed_whole(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate(("b", "a", "c")):
        np.savez(folder / f"{name}.npz", x=rows(2) + 10 * number)
    (folder / "notes.txt").write_text("not data")
    file, files = calibration_file(folder)
    assert files == ["a.npz", "b.npz", "c.npz"]
    assert file.path == folder / "a.npz"
    assert [name for name, _ in file.companions] == ["b.npz", "c.npz"]
    facts = calibration.function(
        tmp_path / "out", arrays=file.path, files=files, inputs=[X], limit=300
    )
    assert facts == {"samples": 3, "given": 3, "ragged": False}
    assert [c["x"][0, 0] for c in samples.cases(tmp_path / "out", "input")] == [10, 0, 20]


def test_a_file_is_one_without_companions(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", x=rows(2))
    file, files = calibration_file(tmp_path / "c.npz")
    assert (file.path, file.companions, files) == (tmp_path / "c.npz", (), [])


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"holds 0 \.npz files"):
        calibration_file(tmp_path)


def test_the_broken_file_of_a_folder_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=rows(2))
    (tmp_path / "b.npz").write_bytes(b"PK")
    with pytest.raises(errors.UsageError, match=r"cannot read the calibration data of b\.npz"):
        calibration.function(
            tmp_path / "out", arrays=tmp_path / "a.npz", files=["a.npz", "b.npz"], inputs=[X],
            limit=300,
        )  # fmt: skip


def test_files_share_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "edge.samples.MAX_TENSOR_BYTES", 260
    )  # two arrays of 48 bytes, with headers
    for name in ("a", "b", "c"):
        np.savez(tmp_path / f"{name}.npz", x=rows(4))
    options: dict[str, Any] = {"arrays": tmp_path / "a.npz", "inputs": [X], "limit": 300}
    calibration.function(tmp_path / "two", files=["a.npz", "b.npz"], **options)
    with pytest.raises(errors.UsageError, match=r"data of c\.npz would hold"):
        calibration.function(tmp_path / "no", files=["a.npz", "b.npz", "c.npz"], **options)


@pytest.mark.parametrize("name", ["../a.npz", "sub/a.npz", "..", "/etc/passwd"])
def test_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "a.npz", x=rows(2))
    with pytest.raises(errors.UsageError, match="is no name of a file"):
        calibration.function(
            tmp_path / "out", arrays=tmp_path / "a.npz", files=[name], inputs=[X], limit=300
        )
