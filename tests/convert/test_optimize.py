"""Offline optimization, ORT format and running what came out."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge import errors, samples
from edge.convert.measure_parity import measure_parity
from edge.convert.optimize import optimize
from edge.convert.ort_format import ort_format
from edge.convert.run_artifact import run_artifact
from edge.model import BoundInput
from tests import models
from tests.golden import golden

X = [BoundInput("x", "float32", (2, 4)).to_json()]
EXACT = {"max_abs": 0.0, "max_rel": None, "floor": 1e-3, "sqnr_db": None, "argmax": None}


def test_extended_fuses_and_disabled_does_not(mlp: Path, tmp_path: Path) -> None:
    for level, nodes in (("extended", ["FusedGemm"]), ("disabled", ["Gemm", "Relu"])):
        out = tmp_path / level
        out.mkdir()
        optimize.function(out, model=mlp, level=level)
        made = onnx.load(out / "model.onnx")
        assert [node.op_type for node in made.graph.node] == nodes
        assert [file.name for file in out.iterdir()] == ["model.onnx"]


@pytest.mark.process
@pytest.mark.parametrize("style", ["Fixed", "Runtime"])
def test_the_ort_format_runs_and_agrees(mlp: Path, tmp_path: Path, style: str) -> None:
    made = tmp_path / "ort"
    made.mkdir()
    ort_format.function(made, model=mlp, style=style, target_platform="arm", level="all")
    golden(tmp_path / "golden", mlp, X, count=2, seed=0)
    index = tmp_path / "golden" / samples.INDEX
    run_artifact.function(tmp_path / "ran", model=made / "model.ort", golden=index)
    held = measure_parity.function(
        tmp_path, actual=tmp_path / "ran" / samples.INDEX, golden=index, tolerance=EXACT
    )
    assert held is not None
    assert held["reasons"] == []
    assert [output["name"] for output in held["outputs"]] == ["y", "y"]


@pytest.mark.process
@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_every_level_makes_a_file(mlp: Path, tmp_path: Path, level: str) -> None:
    options = {"style": "Fixed", "target_platform": "arm", "level": level}
    ort_format.function(tmp_path, model=mlp, **options)
    assert (tmp_path / "model.ort").read_bytes()[4:8] == b"ORTM"


@pytest.mark.process
def test_the_ort_format_has_the_same_bytes_twice(mlp: Path, tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        out = tmp_path / name
        out.mkdir()
        ort_format.function(out, model=mlp, style="Fixed", target_platform="arm", level="all")
        digests.add(hashlib.sha256((out / "model.ort").read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.process
def test_an_unreadable_model_fails_in_the_converters_words(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nonsense")
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.RunFailed, match="python"):
        ort_format.function(
            tmp_path / "out",
            model=tmp_path / "m.onnx",
            style="Fixed",
            target_platform="arm",
            level="all",
        )


def test_a_model_beyond_the_formats_limit_is_refused(
    mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.convert.ort_format.FORMAT_LIMIT_BYTES", mlp.stat().st_size - 1)
    options = {"style": "Fixed", "target_platform": "arm", "level": "all"}
    with pytest.raises(errors.ModelRefused, match="larger than 2 GB"):
        ort_format.function(tmp_path, model=mlp, **options)


def test_a_model_that_computes_something_else_is_measured(mlp: Path, tmp_path: Path) -> None:
    golden(tmp_path / "golden", mlp, X, count=1, seed=0)
    index = tmp_path / "golden" / samples.INDEX
    other = tmp_path / "other.onnx"
    models.save(models.mlp(scale=1.01), other)
    run_artifact.function(tmp_path / "ran", model=other, golden=index)
    held = measure_parity.function(
        tmp_path, actual=tmp_path / "ran" / samples.INDEX, golden=index, tolerance=EXACT
    )
    assert held is not None
    assert len(held["reasons"]) == 1
    assert held["reasons"][0].startswith("sample 0, output 'y': ")
    expected = samples.cases(tmp_path / "golden", "output")[0]["y"]
    actual = samples.cases(tmp_path / "ran", "output")[0]["y"]
    assert held["outputs"][0]["max_abs"] == pytest.approx(float(np.abs(expected - actual).max()))


def test_a_renamed_output_is_no_parity(mlp: Path, tmp_path: Path) -> None:
    golden(tmp_path / "golden", mlp, X, count=1, seed=0)
    expected = samples.cases(tmp_path / "golden", "output")[0]["y"]
    samples.write(tmp_path / "ran", [({}, {"renamed": expected})])
    held = measure_parity.function(
        tmp_path,
        actual=tmp_path / "ran" / samples.INDEX,
        golden=tmp_path / "golden" / samples.INDEX,
        tolerance=EXACT,
    )
    assert held is not None
    assert held["reasons"] == ["sample 0, output 'y': is called 'renamed'"]


def test_a_missing_output_is_no_parity(mlp: Path, tmp_path: Path) -> None:
    golden(tmp_path / "golden", mlp, X, count=1, seed=0)
    samples.write(tmp_path / "ran", [({}, {})])
    held = measure_parity.function(
        tmp_path,
        actual=tmp_path / "ran" / samples.INDEX,
        golden=tmp_path / "golden" / samples.INDEX,
        tolerance=EXACT,
    )
    assert held is not None
    assert held["reasons"] == ["sample 0, output 'y': missing"]


def test_no_kernel_is_one_clear_line(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    kinds = [helper.make_tensor_value_info(n, TensorProto.BFLOAT16, [1]) for n in "aby"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])], "g", kinds[:2], kinds[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(errors.ModelRefused, match=r"has no kernel for this model: .*Add") as caught:
        optimize.function(tmp_path, model=tmp_path / "m.onnx", level="basic")
    assert caught.value.exit_code == 2
