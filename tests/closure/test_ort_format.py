from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge import errors
from edge.closure import ort_format
from edge.closure.ort_format import MAX_DEPTH, Node

# ------------------------------------------------------------------- a small writer of ORT format
Fields = dict[int, tuple[str, Any]]


def table(builder: Any, fields: Fields) -> int:
    """A table; a field is ("offset", position) or ("int32", value)."""
    builder.StartObject(max(fields, default=0) + 1)
    for number, (kind, value) in fields.items():
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(number, value, 0)
        else:
            builder.PrependInt32Slot(number, value, 0)
    made: int = builder.EndObject()
    return made


def vector(builder: Any, positions: Sequence[int]) -> tuple[str, int]:
    builder.StartVector(4, len(positions), 4)
    for position in reversed(positions):
        builder.PrependUOffsetTRelative(position)
    return "offset", builder.EndVector()


def text(builder: Any, value: str) -> tuple[str, int]:
    return "offset", builder.CreateString(value)


def node(
    builder: Any, operator: str, since: int, attributes: Sequence[int] = (), **more: Any
) -> int:
    fields: Fields = {
        0: text(builder, more.get("name", "")),
        2: text(builder, more.get("domain", "")),
        3: ("int32", since),
        5: text(builder, operator),
        9: vector(builder, [builder.CreateString(each) for each in more.get("outputs", ())]),
        10: vector(builder, attributes),
    }
    return table(builder, fields)


def graph(builder: Any, nodes: Sequence[int], **more: Any) -> int:
    tensors = [table(builder, {3: ("int32", kind)}) for kind in more.get("initializers", ())]
    values = [table(builder, {0: text(builder, name)}) for name in more.get("values", ())]
    fields: Fields = {
        0: vector(builder, tensors),
        1: vector(builder, values),
        2: vector(builder, nodes),
    }
    if "replayed" in more:
        names = [builder.CreateString(each) for each in more["replayed"]]
        record = table(builder, {3: vector(builder, names)})
        entry = table(builder, {1: vector(builder, [record])})
        fields[8] = ("offset", table(builder, {0: vector(builder, [entry])}))
    return table(builder, fields)


def inner(builder: Any, graph_: int) -> int:
    """An attribute that holds a graph."""
    return table(builder, {2: ("int32", 5), 7: ("offset", graph_)})


def finish(builder: Any, graph_: int, version: str = "6") -> bytes:
    model = table(builder, {7: ("offset", graph_)})
    session = table(builder, {0: text(builder, version), 1: ("offset", model)})
    builder.Finish(session, file_identifier=b"ORTM")
    return bytes(builder.Output())


def sample() -> bytes:
    builder = flatbuffers.Builder(1024)
    body = graph(builder, [node(builder, "Exp", 13, outputs=["", "e"])], values=["v"])
    branch = node(builder, "If", 16, [inner(builder, body)], name="branch")
    fused = node(builder, "FusedConv", 1, domain="com.microsoft", name="c")
    made = graph(
        builder,
        [branch, fused],
        values=["x", "y"],
        initializers=[1, 22, 21, 22],
        replayed=["com.microsoft:FusedConv:1", ":QLinearConv:10", ":QLinearConv:10"],
    )
    return finish(builder, made)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.ort"


def read(file: Path, data: bytes) -> ort_format.OrtFile:
    file.write_bytes(data)
    return ort_format.read(file)


# ----------------------------------------------------------------------------------------- tests
def test_all_graphs_are_read(file: Path) -> None:
    found = read(file, sample())
    assert found.nodes == (
        Node("ai.onnx", "If", 16, "branch"),
        Node("ai.onnx", "Exp", 13, "e"),
        Node("com.microsoft", "FusedConv", 1, "c"),
    )
    assert found.replayed == (
        Node("com.microsoft", "FusedConv", 1),
        Node("ai.onnx", "QLinearConv", 10),
    )
    assert found.four_bit == ("int4", "uint4")
    assert found.version == "6"
    # Two values outside; inside those and one more.
    assert found.scopes == 2 + 3


def test_every_truncation_is_refused(file: Path) -> None:
    whole = sample()
    for length in range(len(whole) - 7):  # what the builder writes last may be followed by padding
        with pytest.raises(errors.ModelRefused, match="no usable ORT-format model"):
            read(file, whole[:length])


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_bytes_end_in_one_clear_error_or_none(file: Path, data: st.DataObject) -> None:
    changed = bytearray(sample())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(changed) - 4))
        number = data.draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-64, 64))
        changed[at : at + 4] = struct.pack("<i", number)
    try:
        read(file, bytes(changed))
    except errors.ModelRefused as error:
        assert error.message.startswith(f"{file} is no usable ORT-format model: ")  # noqa: PT017


@given(st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_end_in_one_clear_error(file: Path, data: bytes) -> None:
    with pytest.raises(errors.ModelRefused):
        read(file, b"\x08\0\0\0ORTM" + data)
    with pytest.raises(errors.ModelRefused):
        read(file, data)


@pytest.mark.parametrize("data", [b"", b"ORTM", b"hello, this is no model at all\n" * 10])
def test_other_files_are_refused(file: Path, data: bytes) -> None:
    with pytest.raises(errors.ModelRefused, match="no usable ORT-format model") as caught:
        read(file, data)
    assert caught.value.remedy
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_there_is_refused(file: Path) -> None:
    with pytest.raises(errors.ModelRefused, match="cannot read"):
        ort_format.read(file)


def test_a_sparse_file_beyond_the_formats_limit_is_refused(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(2**31)
    with pytest.raises(errors.ModelRefused, match="it has 2147483648 bytes"):
        ort_format.read(file)


@pytest.mark.parametrize("version", ["4", "7", "", "6 "])
def test_other_versions_of_the_format_are_refused(file: Path, version: str) -> None:
    builder = flatbuffers.Builder(64)
    with pytest.raises(errors.ModelRefused, match="known are 5 and 6"):
        read(file, finish(builder, graph(builder, []), version))


def nested(depth: int) -> bytes:
    builder = flatbuffers.Builder(1024)
    made = graph(builder, [node(builder, "Exp", 13)])
    for _ in range(depth - 1):
        made = graph(builder, [node(builder, "If", 16, [inner(builder, made)])])
    return finish(builder, made)


def test_graphs_may_be_nested_so_deep_and_no_deeper(file: Path) -> None:
    assert len(read(file, nested(MAX_DEPTH)).nodes) == MAX_DEPTH
    with pytest.raises(errors.ModelRefused, match=f"nested deeper than {MAX_DEPTH}"):
        read(file, nested(MAX_DEPTH + 1))


def test_shared_tables_do_not_multiply_without_end(file: Path) -> None:
    # 2 ** 30 visits in some kilobytes: each graph holds its inner graph twice.
    builder = flatbuffers.Builder(1024)
    made = graph(builder, [node(builder, "Exp", 13)])
    for _ in range(30):
        twice = node(builder, "If", 16, [inner(builder, made)])
        made = graph(builder, [twice, twice])
    started = time.monotonic()
    with pytest.raises(errors.ModelRefused, match="more parts than such a file can hold"):
        read(file, finish(builder, made))
    assert time.monotonic() - started < 5


def test_an_offset_of_zero_is_no_endless_loop(file: Path) -> None:
    data = bytearray(sample())
    data[0:4] = bytes(4)
    with pytest.raises(errors.ModelRefused, match="the offset at byte 0 is 0"):
        read(file, bytes(data))


def test_a_graph_attribute_without_a_graph_is_refused(file: Path) -> None:
    builder = flatbuffers.Builder(64)
    empty = table(builder, {2: ("int32", 5)})
    data = finish(builder, graph(builder, [node(builder, "If", 16, [empty])]))
    with pytest.raises(errors.ModelRefused, match="a part is missing"):
        read(file, data)


@pytest.mark.parametrize("name", ["FusedConv", "a:b:", "a:b:-1", "a:b:c", "a:b:²"])
def test_a_saved_optimization_must_name_an_operator(file: Path, name: str) -> None:
    builder = flatbuffers.Builder(64)
    data = finish(builder, graph(builder, [], replayed=[name]))
    with pytest.raises(errors.ModelRefused, match="names no operator"):
        read(file, data)


def test_a_text_must_be_utf8(file: Path) -> None:
    with pytest.raises(errors.ModelRefused, match="no UTF-8"):
        read(file, sample().replace(b"FusedConv", b"Fused\xff\xffnv"))


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("a.ort", b"", True),
        ("a.onnx", b"\x08\x08\x12\x05ORTML", False),
        ("a", b"\x08\0\0\0ORTM", True),
        ("a.bin", b"\x08\x08\x12\x05onnx", False),
    ],
)
def test_the_suffix_decides_before_the_identifier(
    tmp_path: Path, name: str, head: bytes, expected: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(head)
    assert ort_format.is_ort_format(path) is expected
