"""Opset conversion up and down: what changes, what stays, and what is refused by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from edge import errors, parity
from edge.convert import run_model
from edge.convert.opset import convert_opset
from tests import models

Array = np.ndarray[Any, Any]
X = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)


def convert(
    made: onnx.ModelProto | str, folder: Path, opset: int, ir_version: int | None = None
) -> tuple[dict[str, Any], onnx.ModelProto]:
    folder.mkdir(exist_ok=True)
    (folder / "out").mkdir()
    if isinstance(made, str):
        made = parser.parse_model(made)
    onnx.save(made, folder / "m.onnx")
    facts = convert_opset.function(
        folder / "out", model=folder / "m.onnx", opset=opset, ir_version=ir_version
    )
    assert facts is not None
    return facts, onnx.load(folder / "out" / "model.onnx")


def run(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    return run_model.run_session(run_model.open_session(path, level="disabled"), feeds)


def worst(folder: Path, feeds: dict[str, Array]) -> float:
    """Largest absolute difference of the two models' outputs."""
    expected, actual = (run(folder / n, feeds) for n in ("m.onnx", "out/model.onnx"))
    assert list(expected) == list(actual)
    found = [parity.compare(expected[name], actual[name]) for name in expected]
    return max(each.max_abs if each.max_abs is not None else np.inf for each in found)


def test_a_number_is_all_that_changes_where_no_operator_did(tmp_path: Path) -> None:
    facts, made = convert(models.mlp(opset=17), tmp_path, 21)
    assert facts["how"] == "restamped"
    assert (facts["opset_before"], facts["opset"], facts["ir_version"]) == (17, 21, 10)
    assert made.graph == onnx.load(tmp_path / "m.onnx").graph


def test_the_same_opset_changes_nothing(tmp_path: Path) -> None:
    facts, made = convert(models.mlp(opset=17), tmp_path, 17)
    assert facts["how"] == "unchanged"
    assert made == onnx.load(tmp_path / "m.onnx")


AXES = """<ir_version: 8, opset_import: ["" : 17, "own" : 3], producer_name: "test",
  metadata_props: ["labels" : "a,b"]>
g (float[batch,3] x) => (float[batch,1] y) <float[3] w = {1, 2, 3}> {
  [mul] h = Mul(x, w)
  [mean] y = ReduceMean<axes = [1]>(h)
}"""


def test_up_and_down_again_computes_the_same(tmp_path: Path) -> None:
    facts, up = convert(AXES, tmp_path / "up", 18)
    assert facts["how"] == "converted"
    (mean,) = [node for node in up.graph.node if node.op_type == "ReduceMean"]
    assert len(mean.input) == 2
    assert worst(tmp_path / "up", {"x": X}) == 0
    facts, down = convert(up, tmp_path / "down", 17)
    assert facts["domains"] == {"ai.onnx": 17, "own": 3}
    assert [node.op_type for node in down.graph.node] == ["Mul", "ReduceMean"]
    assert worst(tmp_path / "down", {"x": X}) == 0


def test_what_is_not_an_operator_stays(tmp_path: Path) -> None:
    source = parser.parse_model(AXES)
    source.graph.input[0].doc_string = "what it is"
    source.graph.input[0].type.denotation = "TENSOR"
    source.graph.metadata_props.add(key="layer", value="1")
    source.graph.quantization_annotation.add(tensor_name="h")
    source.domain, source.model_version = "org.example", 7
    facts, made = convert(source, tmp_path, 18)
    assert facts["how"] == "converted"
    for name in ("input", "output", "initializer", "metadata_props", "quantization_annotation"):
        assert list(getattr(made.graph, name)) == list(getattr(source.graph, name)), name
    for name in ("producer_name", "domain", "model_version"):
        assert getattr(made, name) == getattr(source, name), name
    assert list(made.metadata_props) == list(source.metadata_props)
    assert facts["domains"] == {"ai.onnx": 18, "own": 3}
    assert [node.name for node in made.graph.node if node.name] == ["mul", "mean"]


def test_metadata_that_a_release_drops_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnx import version_converter

    original = version_converter.convert_version

    def dropping(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        made = original(model, opset)
        del made.metadata_props[:]
        return made

    monkeypatch.setattr(version_converter, "convert_version", dropping)
    _, made = convert(AXES, tmp_path, 18)
    assert [(entry.key, entry.value) for entry in made.metadata_props] == [("labels", "a,b")]


def test_values_that_the_converter_adds_have_their_shapes(tmp_path: Path) -> None:
    """It declares them as scalars."""
    text = """<ir_version: 8, opset_import: ["" : 11]>
    g (float[2,3] x) => (float[2,3] y) { y = Softmax<axis = 0>(x) }"""
    _, made = convert(text, tmp_path, 13)
    (value,) = [v for v in made.graph.value_info if v.name == "y_intermediate"]
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [1, 6]


@pytest.mark.parametrize("taken", [True, False])
def test_branches_that_need_different_operators(tmp_path: Path, taken: bool) -> None:
    """Softmax before opset 13 flattens: only one branch has it, inside another one."""
    text = """<ir_version: 8, opset_import: ["" : 11]>
    g (float[2,3] x, bool c) => (float[2,3] y) {
      y = If (c) <
        then_branch = t () => (float[2,3] p) {
          p = If (c) <then_branch = i () => (float[2,3] a) { a = Softmax<axis = 0>(x) },
                      else_branch = j () => (float[2,3] b) { b = Neg(x) }> },
        else_branch = e () => (float[2,3] q) { q = Relu(x) }> }"""
    facts, _ = convert(text, tmp_path, 17)
    assert facts["how"] == "converted"
    assert worst(tmp_path, {"x": X, "c": np.array(taken)}) < 1e-7


FUNCTION = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
g (float[2,3] x) => (float[2,1] y) { y = own.mean(x) }
<domain: "own", opset_import: ["" : 17]>
mean (a) => (b) { r = Relu(a)  b = ReduceMean<axes = [1]>(r) }"""


def test_functions_are_inlined_where_they_must_change(tmp_path: Path) -> None:
    """The converter alone drops them, and the model calls what is not there."""
    facts, made = convert(FUNCTION, tmp_path, 18)
    assert facts["how"] == "converted"
    assert not made.functions
    assert worst(tmp_path, {"x": X}) == 0


def test_functions_stay_where_nothing_changes(tmp_path: Path) -> None:
    facts, made = convert(FUNCTION, tmp_path, 16)
    assert facts["how"] == "restamped"
    assert [entry.version for entry in made.functions[0].opset_import] == [16]
    assert worst(tmp_path, {"x": X}) == 0


def test_operators_of_other_domains_stay(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2,3] x) => (float[2,1] y) {
      h = com.microsoft.Gelu(x)  y = ReduceMean<axes = [1]>(h) }"""
    facts, made = convert(text, tmp_path, 18)
    assert facts["domains"] == {"ai.onnx": 18, "com.microsoft": 1}
    assert "Gelu" in {node.op_type for node in made.graph.node if node.domain == "com.microsoft"}
    assert worst(tmp_path, {"x": X}) == 0


@pytest.mark.parametrize(
    ("text", "before", "after", "operator"),
    [
        ("y = Gelu(x)", 20, 17, "Gelu"),
        ("y = Pow(x, x)", 15, 14, "Pow"),
        ("y = Reshape<allowzero = 1>(x, s)", 14, 13, "Reshape"),
    ],
)
def test_a_missing_adapter_is_said_with_its_operator(
    tmp_path: Path, text: str, before: int, after: int, operator: str
) -> None:
    whole = f"""<ir_version: 8, opset_import: ["" : {before}]>
    g (float[2,3] x) => (float[2,3] y) <int64[2] s = {{2, 3}}> {{ {text} }}"""
    said = f"from opset {before} to {after}: onnx has no adapter of {operator} "
    with pytest.raises(errors.ModelRefused, match=said) as caught:
        convert(whole, tmp_path, after)
    assert caught.value.remedy.startswith(f"export it with opset {after}")


def test_an_operator_that_the_opset_does_not_have_is_never_just_restamped(tmp_path: Path) -> None:
    """Where the node is inside a branch too."""
    text = """<ir_version: 8, opset_import: ["" : 20]>
    g (float[2,3] x, bool c) => (float[2,3] y) {
      y = If (c) <then_branch = t () => (float[2,3] p) { p = Gelu(x) },
                  else_branch = e () => (float[2,3] q) { q = Relu(x) }> }"""
    with pytest.raises(errors.ModelRefused, match="Gelu"):
        convert(text, tmp_path, 19)


@pytest.mark.parametrize("opset", [0, 99, -1])
def test_an_opset_that_there_is_not(tmp_path: Path, opset: int) -> None:
    with pytest.raises(errors.ModelRefused, match=f"knows no opset {opset}"):
        convert(models.mlp(), tmp_path, opset)


def test_a_sparse_initializer_would_be_lost(tmp_path: Path) -> None:
    source = parser.parse_model(AXES)
    dense = source.graph.initializer[0]
    source.graph.sparse_initializer.add(
        values=dense,
        indices=onnx.numpy_helper.from_array(np.arange(3, dtype=np.int64)),
        dims=[3],
    )
    del source.graph.initializer[:]
    with pytest.raises(errors.ModelRefused, match="sparse initializer 'w' would be lost"):
        convert(source, tmp_path, 18)


def test_an_import_that_is_there_twice_becomes_one(tmp_path: Path) -> None:
    """skl2onnx writes ('', 22), ('', 22)."""
    source = models.mlp(opset=17)
    source.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 17))
    facts, made = convert(source, tmp_path, 18)
    assert len(made.opset_import) == 1
    assert facts["opset"] == 18
    source.opset_import[1].version = 16
    with pytest.raises(errors.ModelRefused, match="opsets 16, 17 at once"):
        convert(source, tmp_path / "other", 18)


def test_the_ir_version_stays_within_the_targets(tmp_path: Path) -> None:
    """onnxruntime 1.21 reads opset 22, of IR version 10."""
    source = models.mlp(opset=17)
    source.ir_version = 13
    facts, _ = convert(source, tmp_path / "a", 22, 10)
    assert (facts["opset"], facts["ir_version"]) == (22, 10)
    facts, _ = convert(source, tmp_path / "b", 22)
    assert facts["ir_version"] == 13
    with pytest.raises(errors.ModelRefused, match="functions, which IR version 7"):
        convert(FUNCTION, tmp_path / "c", 16, 7)


def test_initializers_among_the_inputs_of_an_old_file(tmp_path: Path) -> None:
    text = """<ir_version: 3, opset_import: ["" : 10]>
    g (float[2,3] x, float[3] w) => (float[2,3] y) <float[3] w = {1, 2, 3}> {
      h = Add(x, w)  y = Softmax(h) }"""
    facts, _ = convert(text, tmp_path, 17)
    assert [port["name"] for port in facts["inputs"]] == ["x"]
    assert worst(tmp_path, {"x": X}) < 1e-7


def test_a_model_of_other_domains_alone(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["ai.onnx.ml" : 3]>
    g (float[2,3] x) => (float[2,3] y) { y = ai.onnx.ml.Normalizer<norm = "L2">(x) }"""
    facts, _ = convert(text, tmp_path, 21)
    assert (facts["how"], facts["ir_version"]) == ("unchanged", 8)


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        convert(AXES, tmp_path / name, 18)
    first, second = ((tmp_path / n / "out" / "model.onnx").read_bytes() for n in ("a", "b"))
    assert first == second


@pytest.mark.parametrize("opset", [16, 17, 18, 21, 26])
def test_magika(tmp_path: Path, opset: int) -> None:
    found = importlib.util.find_spec("magika")
    assert found is not None
    assert found.origin is not None
    source = onnx.load(Path(found.origin).parent / "models" / "standard_v3_3" / "model.onnx")
    facts, _ = convert(source, tmp_path, opset, 10)
    assert facts["opset"] == opset
    content = np.random.default_rng(0).integers(0, 257, (1, 2048), np.int32)
    assert worst(tmp_path, {"bytes": content}) == 0


@pytest.mark.models
def test_the_real_models_go_up_and_down(rapidocr: Path, silero: Path, tmp_path: Path) -> None:
    rec = onnx.load(rapidocr / "PP-OCRv6_rec_small.onnx")
    _, up = convert(rec, tmp_path / "up", 26, 10)
    image = np.random.default_rng(0).random((1, 3, 48, 64)).astype(np.float32)
    assert worst(tmp_path / "up", {"x": image}) < 1e-5
    facts, _ = convert(up, tmp_path / "down", 17)
    assert facts["how"] == "converted"
    assert worst(tmp_path / "down", {"x": image}) < 1e-5
    assert list(up.metadata_props) == list(rec.metadata_props)
    # Its branches are still there: 25 If nodes.
    facts, _ = convert(onnx.load(silero / "silero_vad.onnx"), tmp_path / "vad", 21)
    assert facts["how"] == "converted"
    sound = np.random.default_rng(1).standard_normal((1, 576)).astype(np.float32) / 10
    feeds: dict[str, Any] = {"input": sound, "state": np.zeros((2, 1, 128), np.float32)}
    assert worst(tmp_path / "vad", {**feeds, "sr": np.array(16000)}) < 1e-6
