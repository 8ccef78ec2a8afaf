"""The ONNX source: what is read, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edge import errors, graph
from edge.sources.onnx_file import external_files, import_onnx
from tests import models


def imported(model: Path, out: Path) -> dict[str, object]:
    out.mkdir()
    facts = import_onnx.function(out, model=model)
    assert facts is not None
    return facts


def test_facts_say_inputs_outputs_and_versions(mlp: Path, tmp_path: Path) -> None:
    facts = imported(mlp, tmp_path / "out")
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}]
    assert facts["outputs"] == [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}]
    assert (facts["opset"], facts["ir_version"], facts["nodes"]) == (17, 8, 2)


def test_unknown_sizes_are_none_however_they_are_written(tmp_path: Path) -> None:
    model = models.mlp()
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value = -1  # PaddlePaddle; Silero writes 0
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "?"
    facts = graph.facts(model)
    assert facts["inputs"][0]["shape"] == [None, 4]
    assert facts["outputs"][0]["shape"] == [None, 3]


def test_external_data_is_listed_and_brought_in(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    models.save(models.mlp(), path, external="weights.bin")
    assert external_files.function(tmp_path, model=path) == {"files": ["weights.bin"]}
    imported(path, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["model.onnx"]
    whole = onnx.load(tmp_path / "out" / "model.onnx")
    expected = onnx.numpy_helper.to_array(models.mlp().graph.initializer[0])
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(whole.graph.initializer[0]), expected)


@pytest.mark.parametrize(
    "location",
    ["../../etc/passwd", "/etc/passwd", "a/../../b", "", "..", "a\\..\\b", "nul\0byte"],
)
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    path = tmp_path / "m.onnx"
    models.with_external_location(models.mlp(), path, location)
    with pytest.raises(errors.ModelRefused, match="outside the model's folder"):
        external_files.function(tmp_path, model=path)


def test_external_data_in_a_subgraph_is_found(tmp_path: Path) -> None:
    model = models.switched()
    branch = model.graph.node[1].attribute[0].g
    tensor = branch.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../x"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(errors.ModelRefused, match="outside"):
        external_files.function(tmp_path, model=path)


def test_missing_external_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    models.save(models.mlp(), path, external="weights.bin")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(errors.ModelRefused, match="external data cannot be read"):
        imported(path, tmp_path / "out")


def test_truncated_external_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    models.save(models.mlp(), path, external="weights.bin")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 8)
    with pytest.raises(errors.ModelRefused):
        imported(path, tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"hello, I am text\n", b"\x00" * 64, b"PK\x03\x04zip"])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(errors.ModelRefused, match="not an ONNX model") as caught:
        imported(path, tmp_path / "out")
    assert caught.value.exit_code == 2


def test_a_truncated_model_is_refused(mlp: Path, tmp_path: Path) -> None:
    data = mlp.read_bytes()
    mlp.write_bytes(data[: len(data) - 20])
    with pytest.raises(errors.ModelRefused):
        imported(mlp, tmp_path / "out")


def test_what_the_checker_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    model = models.mlp()
    model.graph.node[1].input[0] = "nowhere"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(errors.ModelRefused, match=r"onnx\.checker refuses the model: .*nowhere"):
        imported(path, tmp_path / "out")


def test_an_input_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))
    graph_ = helper.make_graph(
        [helper.make_node("SequenceAt", ["s", "i"], ["y"])],
        "g",
        [helper.make_value_info("s", kind), helper.make_tensor_value_info("i", 7, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    with pytest.raises(errors.ModelRefused, match="no tensor but a sequence_type"):
        graph.facts(helper.make_model(graph_))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.data())
def test_a_mutated_model_is_read_or_refused(mlp: Path, data: st.DataObject) -> None:
    raw = bytearray(mlp.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = mlp.with_name("mutated.onnx")
    path.write_bytes(bytes(raw))
    try:
        model = graph.read(path)
        graph.facts(model)
        graph.all_tensors(model)
    except errors.ModelRefused:
        return


def test_nan_weights_are_refused_by_name(tmp_path: Path) -> None:
    model = models.mlp()
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[0, 1] = np.nan
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "m.onnx"
    models.save(model, path)
    with pytest.raises(errors.ModelRefused, match=r"the weight 'w' holds NaN \(1 of 12 values\)"):
        imported(path, tmp_path / "out")


def test_infinite_weights_are_masks_and_stay(tmp_path: Path) -> None:
    model = models.mlp()
    masked = onnx.numpy_helper.from_array(np.full(3, -np.inf, np.float32), "b")
    model.graph.initializer[1].CopyFrom(masked)
    path = tmp_path / "m.onnx"
    models.save(model, path)
    imported(path, tmp_path / "out")
    bias = onnx.load(tmp_path / "out" / "model.onnx").graph.initializer[1]
    assert np.isneginf(onnx.numpy_helper.to_array(bias)).all()
