"""Golden samples on disk: what is written is read, what is hostile is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, samples
from edge.samples import Tensor

ROW = "0\tinput\t0\tfloat32\t1x3\t000.input.0.bin\tx"


def test_arrays_come_back_as_they_went(tmp_path: Path) -> None:
    case: tuple[dict[str, Any], dict[str, Any]] = (
        {"x": np.array([[1.5, -2.0]], np.float32), "flag": np.array(True)},
        {"y": np.array([2**62], np.int64), "h": np.array([0.5], np.float16)},
    )
    samples.write(tmp_path, [case, case])
    inputs, outputs = samples.cases(tmp_path, "input"), samples.cases(tmp_path, "output")
    assert len(inputs) == len(outputs) == 2
    for read, wrote in ((inputs[1], case[0]), (outputs[0], case[1])):
        for name, array in wrote.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype


def test_the_index_is_the_documented_text(tmp_path: Path) -> None:
    samples.write(tmp_path, [({"x": np.zeros((1, 3), np.float32)}, {"y": np.array(1, np.float64)})])
    assert (tmp_path / "samples.tsv").read_text() == (
        "0\tinput\t0\tfloat32\t1x3\t000.input.0.bin\tx\n"
        "0\toutput\t0\tfloat64\t-\t000.output.0.bin\ty\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "0\tinput\t0\tfloat32\t1x3\tx",
        ROW.replace("000.input.0.bin", "../evil"),
        ROW.replace("000.input.0.bin", ".."),
        ROW.replace("000.input.0.bin", "a/b"),
        ROW.replace("float32", "object"),
        ROW.replace("1x3", "1x-3"),
        ROW.replace("1x3", "99999999999x3"),
        ROW.replace("1x3", "65536x65536"),
        ROW.replace("1x3", "x".join(["1"] * 33)),
        ROW.replace("input", "intput"),
        "-1" + ROW[1:],
        "٣" + ROW[1:],
        ROW + "\textra",
    ],
)  # fmt: skip
def test_a_hostile_line_is_refused(line: str) -> None:
    with pytest.raises(errors.RunFailed, match="is no line of samples"):
        samples.parse_line(line, "samples.tsv:1")


@given(st.text())
def test_any_text_is_a_tensor_or_refused(text: str) -> None:
    try:
        tensor = samples.parse_line(text, "x")
    except errors.RunFailed:
        return
    assert tensor.nbytes <= samples.MAX_TENSOR_BYTES
    assert "/" not in tensor.file


@given(
    st.lists(st.integers(0, 20), max_size=4),
    st.sampled_from(sorted(samples.ITEM_BYTES)),
    st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"])),
)
def test_a_line_comes_back_as_it_went(shape: list[int], dtype: str, name: str) -> None:
    tensor = Tensor(0, "input", 0, dtype, tuple(shape), "000.input.0.bin", name)
    assert samples.parse_line(tensor.line().rstrip("\n"), "x") == tensor


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "a\x0bb", "a\x1cb", "", "é"])
def test_names_that_look_like_line_ends_come_back(tmp_path: Path, name: str) -> None:
    samples.write(tmp_path, [({name: np.zeros(1, np.float32)}, {})])
    assert [tensor.name for tensor in samples.read_index(tmp_path)] == [name]


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    samples.write(tmp_path, [({"x": np.zeros(3, np.float32)}, {})])
    (tmp_path / "000.input.0.bin").write_bytes(b"\0" * 8)
    with pytest.raises(errors.RunFailed, match="holds 8 bytes, its line says 12"):
        samples.cases(tmp_path, "input")


def test_a_name_that_the_index_cannot_hold_is_refused() -> None:
    with pytest.raises(errors.ModelRefused, match="tab or a line break"):
        samples.check_name("a\tb")
