"""Weights of MatMul and Gemm in 4 and 8 bits."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from edge import errors, parity
from edge.convert import run_model
from edge.convert.weight_only import Scheme, quantize, weight_only

Array = np.ndarray[Any, Any]
GENERATOR = np.random.default_rng(2)
W = GENERATOR.standard_normal((96, 40)).astype(np.float32)
X = GENERATOR.standard_normal((5, 96)).astype(np.float32)
# Uniform noise of the step over values of a normal distribution, blocks of 32: measured 20 to 47.
ENOUGH_DB = {4: 18.0, 8: 40.0}


def model(text: str, weights: dict[str, Array]) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return made


def convert(
    made: onnx.ModelProto, folder: Path, *, bits: int = 4, size: int = 32, symmetric: bool = True
) -> tuple[dict[str, Any], onnx.ModelProto]:
    (folder / "out").mkdir(parents=True)
    onnx.save(made, folder / "m.onnx")
    facts = weight_only.function(
        folder / "out", model=folder / "m.onnx", bits=bits, block_size=size, symmetric=symmetric
    )
    assert facts is not None
    return facts, onnx.load(folder / "out" / "model.onnx")


def run(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    return run_model.run_session(run_model.open_session(path, level="disabled"), feeds)


def quality(folder: Path, feeds: dict[str, Array]) -> float:
    expected, actual = (run(folder / n, feeds) for n in ("m.onnx", "out/model.onnx"))
    found = [parity.compare(expected[n], actual[n]).sqnr_db for n in expected]
    return min(np.inf if each is None else each for each in found)


MATMUL = "g (float[5,96] x) => (float[5,40] y) { [mm] h = MatMul(x, w) [r] y = Relu(h) }"


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_keeps_its_results(tmp_path: Path, bits: int, symmetric: bool) -> None:
    facts, made = convert(model(MATMUL, {"w": W}), tmp_path, bits=bits, symmetric=symmetric)
    assert facts["quantized"] == ["mm"]
    assert facts["left"] == {}
    node = made.graph.node[0]
    assert (node.op_type, node.domain, node.output[0]) == ("MatMulNBits", "com.microsoft", "h")
    assert len(node.input) == (3 if symmetric else 4)
    assert {e.domain: e.version for e in made.opset_import} == {"": 17, "com.microsoft": 1}
    assert "w" not in {tensor.name for tensor in made.graph.initializer}
    assert {t.data_type for t in made.graph.initializer} == {
        onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT,
    }  # fmt: skip
    assert facts["bytes_before"] == (tmp_path / "m.onnx").stat().st_size
    assert facts["bytes_after"] == (tmp_path / "out" / "model.onnx").stat().st_size
    assert facts["bytes_after"] < facts["bytes_before"] * (0.24 if bits == 4 else 0.37)
    assert quality(tmp_path, {"x": X}) > ENOUGH_DB[bits]


@pytest.fixture
def theirs() -> Iterator[Any]:
    """ONNX Runtime's own quantizer; it sets up logging when imported, which is taken back."""
    pytest.importorskip("onnx_ir")
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    from onnxruntime.quantization import matmul_nbits_quantizer

    yield matmul_nbits_quantizer
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.parametrize("rows", [96, 40])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_bytes_are_those_of_onnxruntimes_quantizer(
    theirs: Any, bits: int, symmetric: bool, rows: int
) -> None:
    config = theirs.DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=symmetric, bits=bits)
    made = theirs.DefaultWeightOnlyQuantizer(config).qbits_block_quant(W[:rows])
    ours = quantize(W[:rows], Scheme(bits, 16, symmetric))
    for one, other in zip(ours, made, strict=False):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(
    ("attributes", "weights"),
    [
        ("", W),
        ("transB = 1", W.T),
        ("alpha = 0.5, beta = 2.0", W),
        ("transB = 1, alpha = -1.5, beta = 0.0", W.T),
    ],
)
def test_gemm_is_a_product_and_a_sum(tmp_path: Path, attributes: str, weights: Array) -> None:
    text = f"g (float[5,96] x) => (float[5,40] y) {{ [gemm] y = Gemm<{attributes}>(x, w, b) }}"
    bias = GENERATOR.standard_normal(40).astype(np.float32) * 30
    made = model(text.replace("<>", ""), {"w": np.ascontiguousarray(weights), "b": bias})
    facts, converted = convert(made, tmp_path, bits=8)
    assert facts["quantized"] == ["gemm"]
    kinds = [node.op_type for node in converted.graph.node]
    assert kinds[0] == "MatMulNBits"
    assert ("Add" in kinds) == ("beta = 0.0" not in attributes)
    assert quality(tmp_path, {"x": X}) > ENOUGH_DB[8]


def test_a_shared_weight_is_there_once(tmp_path: Path) -> None:
    """Their quantizer writes it twice under one name, which no runtime loads."""
    text = """g (float[5,96] x, float[5,40] z) => (float[5,40] y, float[5,96] v, float[5,40] u) {
      [a] y = MatMul(x, w) [b] u = MatMul(x, w) [c] v = Gemm<transB = 1>(z, w) }"""
    facts, converted = convert(model(text, {"w": W}), tmp_path, bits=8)
    assert facts["quantized"] == ["a", "b", "c"]
    names = [tensor.name for tensor in converted.graph.initializer]
    assert names == ["w_Q8", "w_Q8_scales", "w_Q8_1", "w_Q8_1_scales"]
    feeds = {"x": X, "z": X[:, :40].copy()}
    assert quality(tmp_path, feeds) > ENOUGH_DB[8]


def test_a_weight_that_another_node_reads_stays_too(tmp_path: Path) -> None:
    text = """g (float[5,96] x) => (float[5,40] y, float[96,40] z) {
      [mm] y = MatMul(x, w) [n] z = Neg(w) }"""
    _, converted = convert(model(text, {"w": W}), tmp_path)
    assert "w" in {tensor.name for tensor in converted.graph.initializer}
    assert quality(tmp_path, {"x": X}) > ENOUGH_DB[4]


@pytest.mark.parametrize("taken", [True, False])
def test_branches_with_different_operators(tmp_path: Path, taken: bool) -> None:
    text = """g (float[5,96] x, bool c) => (float[5,40] y) {
      y = If (c) <
        then_branch = t () => (float[5,40] p) { [in] p = MatMul(x, w) },
        else_branch = e () => (float[5,40] q) { m = Softmax(x)  q = Gemm(m, w) }> }"""
    facts, converted = convert(model(text, {"w": W}), tmp_path, bits=8)
    assert facts["quantized"] == ["Gemm_1", "in"]
    assert not converted.graph.initializer
    assert quality(tmp_path, {"x": X, "c": np.array(taken)}) > ENOUGH_DB[8]


def test_what_is_left_has_a_reason(tmp_path: Path) -> None:
    text = """g (float[5,96] x, float[96,4] d, float[96,5] t) =>
      (float[5,40] y, float[5,4] z, float[2,5,40] b, float[5,2] s, float[5,40] g) {
      [mm] y = MatMul(x, w)  [dynamic] z = MatMul(x, d)  [batched] b = MatMul(x, w3)
      [small] k = MatMul(s4, tiny) [r] s = Identity(k)  [trans] g = Gemm<transA = 1>(t, w) }"""
    weights = {"w": W, "w3": np.stack([W, W]), "s4": X[:, :4].copy(), "tiny": W[:4, :2].copy()}
    facts, _ = convert(model(text, weights), tmp_path)
    assert facts["quantized"] == ["mm"]
    assert facts["left"] == {
        "dynamic": "its weights are no constant",
        "batched": "its weights have 3 dimensions, not 2",
        "small": "its weights would not become smaller",
        "trans": "its input is transposed (transA)",
    }


def test_double_weights_are_left(tmp_path: Path) -> None:
    text = "g (double[5,96] x) => (double[5,40] y) { [mm] y = MatMul(x, w) }"
    with pytest.raises(errors.ModelRefused, match="nothing to quantize: no MatMul") as caught:
        convert(model(text, {"w": W.astype(np.float64)}), tmp_path)
    assert caught.value.remedy == "mm: its weights are double"


def test_no_matmul_is_refused(tmp_path: Path) -> None:
    text = "g (float[5,96] x) => (float[5,96] y) { y = Relu(x) }"
    with pytest.raises(
        errors.ModelRefused, match=r"^nothing to quantize: no MatMul with constant weights$"
    ):
        convert(model(text, {}), tmp_path)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, odd: float) -> None:
    weights = W.copy()
    weights[3, 3] = odd
    with pytest.raises(errors.ModelRefused, match="'w' of 'mm' hold NaN or infinity"):
        convert(model(MATMUL, {"w": weights}), tmp_path)


@pytest.mark.parametrize(("bits", "size", "what"), [(3, 32, "bits = 3"), (4, 24, "size = 24")])
def test_bits_and_blocks_that_there_are_not(
    tmp_path: Path, bits: int, size: int, what: str
) -> None:
    with pytest.raises(errors.UsageError, match=what):
        convert(model(MATMUL, {"w": W}), tmp_path, bits=bits, size=size)


@pytest.mark.parametrize(("release", "bits"), [("1.22.1", 8), ("1.21.0", 8), ("1.18.1", 4)])
def test_a_release_that_cannot_run_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, bits: int
) -> None:
    """1.22 loads 8 bits and fails in the first run: the target would find out on the device."""
    monkeypatch.setattr("onnxruntime.__version__", release)
    with pytest.raises(errors.ModelRefused, match=f"{release} does not run .* {bits} bits"):
        convert(model(MATMUL, {"w": W}), tmp_path, bits=bits)


def test_float16_weights_have_float16_scales(tmp_path: Path) -> None:
    text = "g (float16[5,96] x) => (float16[5,40] y) { [mm] y = MatMul(x, w) }"
    _, converted = convert(model(text, {"w": W.astype(np.float16)}), tmp_path, bits=8)
    types = {t.name: t.data_type for t in converted.graph.initializer}
    assert types["w_Q8_scales"] == onnx.TensorProto.FLOAT16
    assert quality(tmp_path, {"x": X.astype(np.float16)}) > ENOUGH_DB[8]


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        convert(model(MATMUL, {"w": W}), tmp_path / name)
    first, second = ((tmp_path / n / "out" / "model.onnx").read_bytes() for n in ("a", "b"))
    assert first == second


SCHEMES = st.builds(Scheme, st.sampled_from([4, 8]), st.sampled_from([16, 32]), st.booleans())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shape=st.tuples(st.integers(33, 150), st.integers(8, 20)),
    scheme=SCHEMES,
    seed=st.integers(0, 2**16),
)
def test_no_weight_is_off_by_more_than_a_step(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, int], scheme: Scheme, seed: int
) -> None:
    """Read back with an identity matrix; a block's step is its range over the levels."""
    (rows, columns), size = shape, scheme.block_size
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.integers(-4, 5, (1, columns))
    weights = (generator.standard_normal(shape) * scale).astype(np.float32)
    folder = tmp_path_factory.mktemp("steps")
    text = f"g (float[{rows},{rows}] x) => (float[{rows},{columns}] y) {{ y = MatMul(x, w) }}"
    made = model(text, {"w": weights})
    convert(made, folder, bits=scheme.bits, size=size, symmetric=scheme.symmetric)
    back = run(folder / "out" / "model.onnx", {"x": np.eye(rows, dtype=np.float32)})["y"]
    for start in range(0, rows, size):
        block = weights[start : start + size]
        # Without a zero point the larger side has 2**(bits-1) steps, the other one less.
        step = np.abs(block).max(axis=0) / (2 ** (scheme.bits - 1) - 1)
        assert (np.abs(back[start : start + size] - block) <= step * 1.01).all()


def test_magika_becomes_smaller_and_stays_right(tmp_path: Path) -> None:
    found = importlib.util.find_spec("magika")
    assert found is not None
    assert found.origin is not None
    made = onnx.load(Path(found.origin).parent / "models" / "standard_v3_3" / "model.onnx")
    facts, _ = convert(made, tmp_path)
    assert len(facts["quantized"]) == 2
    assert facts["bytes_before"] - facts["bytes_after"] > 400_000
    content = np.random.default_rng(0).integers(0, 257, (1, 2048), np.int32)
    assert quality(tmp_path, {"bytes": content}) > 40
