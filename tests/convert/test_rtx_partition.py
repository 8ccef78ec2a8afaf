"""What TensorRT's parser takes, node by node, by the parser itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from edge.convert import rtx_partition as module
from edge.convert.rtx_partition import rtx_partition
from tests.convert import small_models
from tests.convert.small_models import value
from tests.rtx import need_rtx


def found(folder: Path, model: onnx.ModelProto) -> dict[str, Any]:
    onnx.save(model, folder / "m.onnx")
    facts = rtx_partition.function(folder, model=folder / "m.onnx")
    assert facts is not None
    partition: dict[str, Any] = facts["partition"]
    return partition


def test_without_the_package_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _name: None)
    facts = rtx_partition.function(tmp_path, model=tmp_path / "not-read.onnx")
    assert facts == {"partition": None}
    assert "tensorrt-rtx?" in rtx_partition.tools


@pytest.fixture
def rtx() -> str:
    need_rtx()
    from edge.convert import rtx_builder

    return f"tensorrt-rtx {rtx_builder.version()}"


def test_a_model_that_is_taken_whole(tmp_path: Path, rtx: str) -> None:
    assert found(tmp_path, small_models.conv_relu()) == {
        "parser": rtx,
        "supported": True,
        "nodes": 2,
        "supported_nodes": 2,
        "subgraphs": 1,
        "unsupported": [],
        "errors": [],
    }


def test_the_node_that_would_fall_back_is_named(tmp_path: Path, rtx: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="before"),
        helper.make_node("Det", ["a"], ["b"], name="determinant"),
        helper.make_node("Relu", ["b"], ["y"], name="after"),
    ]
    made = small_models.model(nodes, [value("x", [2, 3, 3])], [value("y", [2])])
    partition = found(tmp_path, made)
    assert partition["parser"] == rtx
    assert (partition["nodes"], partition["supported_nodes"], partition["subgraphs"]) == (3, 2, 2)
    (entry,) = partition["unsupported"]
    assert (entry["name"], entry["operator"]) == ("determinant", "Det")
    assert entry["why"]


@pytest.mark.usefixtures("rtx")
def test_unsigned_quantization_is_not_taken(tmp_path: Path) -> None:
    partition = found(tmp_path, small_models.quantized_conv())
    assert not partition["supported"]
    (entry,) = partition["unsupported"]
    assert entry["operator"] == "QuantizeLinear"
    assert "zero point" in entry["why"]


@pytest.mark.usefixtures("rtx")
def test_weights_that_cannot_be_held_are_no_nodes_fault(tmp_path: Path) -> None:
    partition = found(tmp_path, small_models.four_bit(onnx.TensorProto.UINT4))
    assert (partition["supported"], partition["unsupported"]) == (False, [])
    assert "initializer" in partition["errors"][0]
