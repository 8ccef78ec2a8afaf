"""Packages: the same bytes each time, ports under their names, real models within tolerance."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import errors
from edge.convert import coremltools_library, mil_executor, run_model
from edge.convert.canonical import canonical
from edge.convert.mil_package import PACKAGE, PORTS, mil_package
from edge.samples import INDEX
from tests import models
from tests.convert.coreml_setup import parsed
from tests.golden import golden

# coremltools leaves its temporary copies of packages to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Implicitly cleaning up:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
OPTIONS = {"minimum_deployment_target": "iOS16", "compute_precision": "fp32"}


def packed(folder: Path, model: Path, **more: Any) -> dict[str, Any]:
    folder.mkdir()
    facts = mil_package.function(folder, model=model, options={**OPTIONS, **more})
    assert facts is not None
    return facts


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The MLP for a batch of 2, its input named as Core ML could not."""
    model = models.mlp()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    model.graph.input[0].name = model.graph.node[0].input[0] = "x:0"
    onnx.save(model, tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_the_same_model_gives_the_same_bytes(small: Path, tmp_path: Path, precision: str) -> None:
    packed(tmp_path / "a", small, compute_precision=precision)
    coremltools_library.builder().name_count["cast"] = 7  # as other programs of this process do
    packed(tmp_path / "b", small, compute_precision=precision)
    found = digests(tmp_path / "a")
    assert found == digests(tmp_path / "b")
    assert set(found) == {
        f"{PACKAGE}/Manifest.json",
        f"{PACKAGE}/Data/com.apple.CoreML/model.mlmodel",
        f"{PACKAGE}/Data/com.apple.CoreML/weights/weight.bin",
    }
    # Neither the day nor a random identifier: another content has another one.
    text = (tmp_path / "a" / PACKAGE / "Data/com.apple.CoreML/model.mlmodel").read_bytes()
    assert b"conversion_date" not in text


def test_identifiers_come_from_the_content(small: Path, tmp_path: Path) -> None:
    packed(tmp_path / "a", small)
    packed(tmp_path / "b", small, compute_precision="fp16")
    first, second = (
        json.loads((tmp_path / name / PACKAGE / "Manifest.json").read_text()) for name in "ab"
    )
    assert first["rootModelIdentifier"] in first["itemInfoEntries"]
    assert first["rootModelIdentifier"] != second["rootModelIdentifier"]


def test_coremltools_reads_what_was_written_and_both_names_are_in_it(
    small: Path, tmp_path: Path
) -> None:
    facts = packed(tmp_path / "a", small)
    ct = coremltools_library.module()
    model = ct.models.MLModel(str(tmp_path / "a" / PACKAGE), skip_model_load=True)
    ports = json.loads(model.user_defined_metadata[PORTS])
    assert ports == {"inputs": facts["inputs"], "outputs": facts["outputs"]}
    (port,) = facts["inputs"]
    assert (port["onnx"], port["name"], port["shape"]) == ("x:0", "x_0", [2, 4])
    description = model.get_spec().description
    assert [each.name for each in description.input] == ["x_0"]
    assert [each.name for each in description.output] == ["y"]
    assert facts["operators"] == {"Gemm": 1, "Relu": 1}
    assert facts["operations"] == {"linear": 1, "relu": 1}
    assert facts["bytes"] == sum(
        p.stat().st_size for p in (tmp_path / "a").rglob("*") if p.is_file()
    )


@pytest.mark.parametrize(("target", "precision"), [("iOS15", "fp32"), ("iOS17", "fp16")])
def test_the_logarithm_of_zero_is_minus_infinity(
    tmp_path: Path, target: str, precision: str
) -> None:
    """MIL's own default adds 1e-45 before: -103.28, which no tolerance would take for -inf."""
    text = "y = Log(x) none = Mul(x, k) z = ReduceLogSum <axes = [0]> (none)"
    model = parsed(f"g (float[3] x) => (float[3] y, float[1] z) {{ {text} }}", k=np.zeros(3, "f4"))
    onnx.save(model, tmp_path / "m.onnx")
    options = {"minimum_deployment_target": target, "compute_precision": precision}
    packed(tmp_path / "a", tmp_path / "m.onnx", **options)
    x = np.array([0, 1, 0.5], np.float32)
    wanted = run_model.run_session(
        run_model.open_session(tmp_path / "m.onnx", level="disabled"), {"x": x}
    )
    assert wanted["y"][0] == wanted["z"][0] == -np.inf
    found = mil_executor.run(tmp_path / "a" / PACKAGE, {"x": x}).outputs
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3)


def test_ports_that_core_ml_has_no_type_for_survive(tmp_path: Path) -> None:
    """Booleans, 64-bit integers, scalars, an output that is constant and one that is an input."""
    kinds = onnx.TensorProto
    nodes = [
        onnx.helper.make_node("Where", ["flag", "x", "n"], ["chosen"]),
        onnx.helper.make_node("Not", ["flag"], ["other"]),
        onnx.helper.make_node("ReduceSum", ["n"], ["total"], keepdims=0),
        onnx.helper.make_node("Identity", ["c"], ["always"]),
    ]
    port = onnx.helper.make_tensor_value_info
    three = [port("flag", kinds.BOOL, [3]), port("x", kinds.INT64, []), port("n", kinds.INT64, [3])]
    unused = port("unused", kinds.FLOAT, [2])
    outputs = [port(name, kinds.INT64, [3]) for name in ("chosen", "always", "n")]
    outputs += [port("other", kinds.BOOL, [3]), port("total", kinds.INT64, [])]
    constant = onnx.numpy_helper.from_array(np.array([7, 8, 9]), "c")
    graph = onnx.helper.make_graph(nodes, "odd", [*three, unused], outputs, [constant])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "odd.onnx")
    facts = packed(tmp_path / "a", tmp_path / "odd.onnx", compute_precision="fp16")
    feeds = {
        "flag": np.array([1, 0, 1], np.int32),
        "x": np.array([5], np.int32),
        "n": np.array([1, 2, 3], np.int32),
        "unused": np.zeros(2, np.float32),
    }
    assert [each["name"] for each in facts["inputs"]] == list(feeds)
    found = mil_executor.run(tmp_path / "a" / PACKAGE, feeds).outputs
    names = {each["onnx"]: each["name"] for each in facts["outputs"]}
    assert {onnx_name: found[name].tolist() for onnx_name, name in names.items()} == {
        "chosen": [5, 2, 5], "always": [7, 8, 9], "n": [1, 2, 3], "other": [0, 1, 0], "total": [6],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "version"), [("iOS15", 6), ("iOS16", 7), ("iOS17", 8), ("iOS18", 9)]
)
def test_the_target_is_the_specification_s_version(
    small: Path, tmp_path: Path, target: str, version: int
) -> None:
    facts = packed(tmp_path / "a", small, minimum_deployment_target=target)
    assert facts["specification_version"] == version


def test_operations_can_stay_in_fp32(small: Path, tmp_path: Path) -> None:
    whole = packed(tmp_path / "a", small, compute_precision="fp16")
    kept = packed(tmp_path / "b", small, compute_precision="fp16", fp32_operations=["linear"])
    named = packed(tmp_path / "c", small, compute_precision="fp16", fp32_operations=["h"])
    assert whole["operations"]["cast"] == 2
    assert kept["operations"] == named["operations"]
    feed = {"x_0": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)}
    exact = packed(tmp_path / "d", small)
    assert exact["operations"].get("cast") is None
    outputs = [
        mil_executor.run(tmp_path / name / PACKAGE, feed).outputs["y"]
        for name in ("a", "b", "c", "d")
    ]
    difference = [float(np.abs(array - outputs[3]).max()) for array in outputs[:3]]
    assert difference[1] == difference[2] < difference[0]


def test_wrong_options_are_wrong_usage(small: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="bf16"):
        packed(tmp_path / "a", small, compute_precision="bf16")
    with pytest.raises(errors.UsageError, match="iOS9"):
        packed(tmp_path / "b", small, minimum_deployment_target="iOS9")


def test_nothing_is_printed(small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    packed(tmp_path / "a", small)
    assert capfd.readouterr() == ("", "")


# ----------------------------------------------------------------------------------- real models
def bound(folder: Path, source: Path, inputs: list[dict[str, Any]]) -> Path:
    """The canonical form of ``source`` at the sizes of ``inputs``, with samples beside it."""
    rows = [{"range": None, "constant": None, **each} for each in inputs]
    golden(folder / "golden", source, rows, count=1)
    (folder / "canonical").mkdir()
    canonical.function(
        folder / "canonical",
        model=source,
        cases=folder / "golden-inputs" / INDEX,
        inputs=rows,
        bind=True,
    )
    return folder / "canonical" / "model.onnx"


def real(name: str, silero: Path, rapidocr: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Files and inputs of the real models."""
    if name.startswith("silero"):
        state: dict[str, Any] = {"name": "state", "dtype": "float32", "shape": [2, 1, 128]}
        audio = {"name": "input", "dtype": "float32", "shape": [1, 576]}
        rate = {"name": "sr", "dtype": "int64", "shape": [], "constant": 16000}
        steps = [
            {"name": "input", "dtype": "float32", "shape": [32, 576]},
            *({"name": each, "dtype": "float32", "shape": [1, 1, 128]} for each in "hc"),
        ]
        known: dict[str, tuple[str, list[dict[str, Any]]]] = {
            "silero": ("silero_vad.onnx", [audio, state, rate]),
            "silero-op18": ("silero_vad_op18_ifless.onnx", [audio, rate, state]),
            "silero-sequence": ("silero_vad_16k_sequence.onnx", steps),
        }
        return silero / known[name][0], known[name][1]
    if name == "magika":
        import magika

        file = Path(magika.__file__).parent / "models" / "standard_v3_3" / "model.onnx"
        return file, [{"name": "bytes", "dtype": "int32", "shape": [1, 2048], "range": [0, 256]}]
    files = {
        "cls": ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", [1, 3, 48, 192]),
        "det": ("PP-OCRv6_det_small.onnx", [1, 3, 160, 160]),
        "rec": ("PP-OCRv6_rec_small.onnx", [1, 3, 48, 320]),
    }
    file_name, shape = files[name]
    return rapidocr / file_name, [{"name": "x", "dtype": "float32", "shape": shape}]


# det and rec take a minute in numpy.
REAL = (
    "cls", "magika", "silero", "silero-op18", "silero-sequence",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("det", "rec")),
)  # fmt: skip


@pytest.mark.models
@pytest.mark.filterwarnings("ignore")  # onnxslim's and magika's own
@pytest.mark.parametrize("name", REAL)
def test_real_models_compute_what_onnxruntime_computes(
    name: str, silero: Path, rapidocr: Path, tmp_path: Path
) -> None:
    model = bound(tmp_path, *real(name, silero, rapidocr))
    generator = np.random.default_rng(0)
    session = run_model.open_session(model, level="disabled")
    for precision, limit in (("fp32", 1e-5), ("fp16", 1e-2)):
        facts = packed(tmp_path / precision, model, compute_precision=precision)
        feeds = {
            port["onnx"]: (generator.random(port["shape"]) * 200 if port["held"] == "int32"
                           else generator.random(port["shape"])).astype(port["held"])
            for port in facts["inputs"]
        }  # fmt: skip
        wanted = run_model.run_session(session, feeds)
        given = {port["name"]: feeds[port["onnx"]] for port in facts["inputs"]}
        found = mil_executor.run(tmp_path / precision / PACKAGE, given)
        assert found.odd == []
        for port in facts["outputs"]:
            one_wanted, one_found = wanted[port["onnx"]], found.outputs[port["name"]]
            scale = max(1.0, float(np.abs(one_wanted).max()))
            assert np.abs(one_found - one_wanted).max() <= limit * scale, (precision, port["name"])
