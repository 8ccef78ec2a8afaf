"""The user's arrays: whatever the file holds, an answer or one line of error."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge import errors
from edge.convert.npz import read_arrays, read_npz
from edge.model import BoundInput

X = BoundInput("x", "float32", (2, 4)).to_json()
NUMBERS = hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(16, 32, 64))
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NAMES = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=8)
shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def save(path: Path, arrays: dict[str, Any], *, compress: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if compress else 0) as archive:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, np.asanyarray(array))
            archive.writestr(f"{name}.npy", stream.getvalue())
    return path


def member(path: Path, data: bytes, name: str = "x.npy") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def header(shape: str, descr: str = "'<f4'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@shared_folder
@given(
    arrays=st.dictionaries(NAMES, hnp.arrays(NUMBERS, SHAPES), max_size=4),
    compress=st.booleans(),
)
def test_what_was_written_is_read(
    tmp_path: Path, arrays: dict[str, np.ndarray[Any, Any]], compress: bool
) -> None:
    read = read_arrays(save(tmp_path / "a.npz", arrays, compress=compress))
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read[name], array)


@shared_folder
@given(place=st.integers(0, 400), value=st.integers(0, 255), cut=st.integers(0, 400))
def test_a_damaged_file_is_an_answer_or_an_error(
    tmp_path: Path, place: int, value: int, cut: int
) -> None:
    path = save(tmp_path / "a.npz", {"x": np.ones((2, 4), np.float32)}, compress=cut % 2 == 0)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data[: len(data) - (cut if cut > 300 else 0)])
    with contextlib.suppress(errors.UsageError):
        assert all(array.nbytes <= 32 for array in read_arrays(path).values())


@shared_folder
@given(text=st.binary(max_size=80))
def test_any_header_is_an_answer_or_an_error(tmp_path: Path, text: bytes) -> None:
    path = member(tmp_path / "a.npz", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(errors.UsageError, match="cannot read the samples"):
        read_arrays(path)


@pytest.mark.parametrize(
    "data",
    [
        header("(1000000000000,)"),
        header("(-1, -4)") + bytes(16),
        header("(4,)") + bytes(15),
        header("(4,)") + bytes(17),
        header("(2,)", "[('a', '<f4')]") + bytes(8),
        header("(2,)", "'<U1'") + bytes(8),
        header("(1,)", "'|O'") + b"cos\nsystem\n(S'true'\ntR.",
        header("(" + "-" * 9000 + "1,)"),
        header("(" + "(" * 5000 + ",)"),
        b"",
        b"\x93NUMPY\x03\x00",
    ],
)
def test_a_lying_header_takes_no_memory_and_is_said(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(errors.UsageError, match="cannot read the samples"):
        read_arrays(member(tmp_path / "a.npz", data))


def test_another_member_or_the_same_twice_is_said(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"'readme\.txt' is no array"):
        read_arrays(member(tmp_path / "a.npz", b"hello", "readme.txt"))
    path = save(tmp_path / "b.npz", {"x": np.ones(1)})
    with zipfile.ZipFile(path) as archive:
        data = archive.read("x.npy")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", data)
    with pytest.raises(errors.UsageError, match=r"'x\.npy' is no array of its own"):
        read_arrays(path)


def test_sizes_are_bounded_before_they_are_read(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", {"x": np.zeros(1 << 20, np.uint8)}, compress=True)
    with pytest.raises(errors.UsageError, match=r"would hold 10487.. bytes; 1000 are possible"):
        read_arrays(path, limit=1000)


def test_an_encrypted_file_is_said(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", {"x": np.zeros(4)})
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    with pytest.raises(errors.UsageError, match=r"cannot read the samples: .*encrypted"):
        read_arrays(path)


def test_columns_first_and_big_endian_are_read_right(tmp_path: Path) -> None:
    wanted = np.arange(8, dtype=np.float32).reshape(2, 4)
    given = {"f": np.asfortranarray(wanted), "b": wanted.astype(">f4")}
    for array in read_arrays(save(tmp_path / "a.npz", given)).values():
        np.testing.assert_array_equal(array, wanted)
        assert array.dtype == np.float32


def test_numbered_arrays_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    given = {f"x/{n}": np.full((2, 4), n, np.float32) for n in (10, 9, *range(9))}
    cases = read_npz(save(tmp_path / "a.npz", given), [X])
    assert [case["x"][0, 0] for case in cases] == list(range(11))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("x/0", "x/2"), "no array 'x/1'"),
        (("x/0", "x/00"), "unknown arrays: x/00"),
        (("x", "x/0"), "unknown arrays: x/0"),
        (("x/0", "x/-1"), "unknown arrays: x/-1"),
    ],
)
def test_numbers_that_do_not_count_up_are_said(
    tmp_path: Path, names: tuple[str, ...], says: str
) -> None:
    path = save(tmp_path / "a.npz", {name: np.zeros((2, 4), np.float32) for name in names})
    with pytest.raises(errors.UsageError, match=says):
        read_npz(path, [X])


def test_an_input_may_have_a_slash_and_a_number_in_its_name(tmp_path: Path) -> None:
    spec = {**X, "name": "in/0"}
    (case,) = read_npz(save(tmp_path / "a.npz", {"in/0": np.ones((2, 4), np.float32)}), [spec])
    assert case["in/0"].shape == (2, 4)


def test_a_constant_input_is_filled_in(tmp_path: Path) -> None:
    rate = BoundInput("sr", "int64", (), constant=16000).to_json()
    (case,) = read_npz(save(tmp_path / "a.npz", {"x": np.ones((2, 4), np.float32)}), [X, rate])
    assert case["sr"] == 16000
