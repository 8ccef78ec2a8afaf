"""float16 where it holds the values, float32 where it does not: never clamped, never inf."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from edge import errors, parity, samples
from edge.convert import fp16 as module
from edge.convert import graph_values, run_model
from edge.convert.fp16 import fp16
from edge.model import BoundInput
from tests.golden import golden

Array = np.ndarray[Any, Any]
GENERATOR = np.random.default_rng(5)
W = (GENERATOR.standard_normal((4, 4)) / 2).astype(np.float32)
X = GENERATOR.standard_normal((3, 4)).astype(np.float32)
# float16 keeps 11 bits: 66 dB an operation; a handful of them leaves this much.
GOOD_DB = 50.0


def model(text: str, **weights: Array) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return made


def run(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    return run_model.run_session(run_model.open_session(path, level="disabled"), feeds)


def convert(
    made: onnx.ModelProto, folder: Path, feeds: dict[str, Array], block: list[str] | None = None
) -> tuple[dict[str, Any], onnx.ModelProto]:
    """The facts and the model, whose outputs are as good as float16 allows."""
    (folder / "out").mkdir(parents=True)
    onnx.save(made, folder / "m.onnx")
    samples.write(folder / "cases", [(feeds, {})])
    facts = fp16.function(
        folder / "out", model=folder / "m.onnx", cases=folder / "cases" / samples.INDEX,
        block=block or [],
    )  # fmt: skip
    assert facts is not None
    return facts, onnx.load(folder / "out" / "model.onnx")


def in_float16(path: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    """Outputs when float16 values really are float16 (ONNX's reference, numpy).

    ONNX Runtime's CPU computes in float32 and drops the Casts between its nodes: what overflows
    on a device that has float16 does not show there.
    """
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load(path))
    with np.errstate(all="ignore"):
        values = evaluator.run(None, feeds)
    return dict(zip(evaluator.output_names, values, strict=True))


def quality(
    folder: Path,
    feeds: dict[str, Array],
    evaluate: Callable[[Path, dict[str, Array]], dict[str, Array]] = in_float16,
) -> float:
    """The lowest SQNR of an output in float16 against the float32 model, in dB."""
    expected = run(folder / "m.onnx", feeds)
    run(folder / "out" / "model.onnx", feeds)
    actual = evaluate(folder / "out" / "model.onnx", feeds)
    found = [parity.compare(expected[n], actual[n]) for n in expected]
    assert all(each.nan_agree and each.inf_agree for each in found)
    assert all(each.dtype_actual == each.dtype_expected for each in found)
    return min(np.inf if each.sqnr_db is None else each.sqnr_db for each in found)


def test_weights_are_halved_and_ports_keep_their_types(tmp_path: Path) -> None:
    made = model("g (float[3,4] x) => (float[3,4] y) { [mm] h = MatMul(x, w) [r] y = Relu(h) }",
                 w=W)  # fmt: skip
    facts, converted = convert(made, tmp_path, {"x": X})
    assert facts == {
        "blocked": {}, "casts": 2, "fp16_bytes": 32, "nodes_fp16": 2, "nodes_fp32": 0,
    }  # fmt: skip
    ports = [*converted.graph.input, *converted.graph.output]
    assert [p.name for p in ports] == ["x", "y"]
    assert {p.type.tensor_type.elem_type for p in ports} == {TensorProto.FLOAT}
    assert converted.graph.initializer[0].data_type == TensorProto.FLOAT16
    assert quality(tmp_path, {"x": X}) > GOOD_DB


def test_a_constant_of_1e8_stays_right(tmp_path: Path) -> None:
    """The converter alone clamps it to 65504 without a word (peers.md)."""
    made = model(
        """g (float[3,4] x) => (float[3,4] y) {
          [mm] h = MatMul(x, w)  [up] b = Mul(h, big)  [add] c = Add(b, big)
          [down] d = Div(c, less)  [last] y = MatMul(d, w) }""",
        w=W, big=np.array(1e8, np.float32), less=np.array(2.5e7, np.float32),
    )  # fmt: skip
    facts, converted = convert(made, tmp_path, {"x": X})
    assert set(facts["blocked"]) == {"up", "add", "down"}
    assert facts["blocked"]["up"] == "its constant 'big' holds 1e+08, beyond float16's 65504"
    constants = {t.name: t for t in converted.graph.initializer}
    assert numpy_helper.to_array(constants["big"]) == np.float32(1e8)
    assert constants["w"].data_type == TensorProto.FLOAT16
    assert quality(tmp_path, {"x": X}) > GOOD_DB
    _convert_alone(made, tmp_path / "out" / "model.onnx")
    assert not np.isfinite(in_float16(tmp_path / "out" / "model.onnx", {"x": X})["y"]).all()


def _convert_alone(made: onnx.ModelProto, path: Path) -> None:
    from onnxruntime.transformers import float16

    alone = float16.convert_float_to_float16(made, keep_io_types=True)
    graph_values.sort_nodes(alone.graph)
    onnx.save(alone, path)


def test_activations_beyond_float16_stay_float32_between_their_nodes(tmp_path: Path) -> None:
    made = model(
        """g (float[3,4] x) => (float[3,4] y, float[3,4] z) {
          [a] p = Mul(x, thousand)  [b] q = Mul(p, thousand)  [c] r = Neg(q)
          [d] s = Div(r, thousand)  [e] t = Div(s, thousand)  [f] y = MatMul(t, w)
          [z] z = Neg(r) }""",
        w=W, thousand=np.array(1000, np.float32),
    )  # fmt: skip
    facts, _ = convert(made, tmp_path, {"x": X})
    assert set(facts["blocked"]) == {"b", "c", "d", "z"}
    assert facts["blocked"]["b"].startswith("its output 'q' reaches ")
    assert facts["blocked"]["d"].startswith("its input 'r' reaches ")
    assert quality(tmp_path, {"x": X}) > GOOD_DB


@pytest.mark.parametrize(("size", "blocked"), [(16_000, set()), (17_000, {"a", "b"})])
def test_there_is_room_for_inputs_that_the_samples_have_not(
    tmp_path: Path, size: float, blocked: set[str]
) -> None:
    made = model(
        "g (float[3,4] x) => (float[3,4] y) { [a] h = Abs(x) [b] d = Div(h, k) [c] y = Neg(d) }",
        k=np.array(1000, np.float32),
    )
    facts, _ = convert(made, tmp_path, {"x": np.full((3, 4), size, np.float32)})
    assert set(facts["blocked"]) == blocked


def test_an_input_beyond_float16_is_never_cast_down(tmp_path: Path) -> None:
    made = model(
        """g (float[3,4] x) => (float[3,4] y) {
          [a] h = Div(x, k)  [b] y = MatMul(h, w) }""",
        w=W, k=np.array(60_000, np.float32),
    )  # fmt: skip
    feeds = {"x": X * np.float32(60_000)}
    facts, converted = convert(made, tmp_path, feeds)
    assert set(facts["blocked"]) == {"a"}
    assert "input 'x' reaches" in facts["blocked"]["a"]
    assert [n.op_type for n in converted.graph.node] == ["Div", "Cast", "MatMul", "Cast"]
    assert quality(tmp_path, feeds) > GOOD_DB


@pytest.mark.parametrize("guard", ["Add", "Max", "Clip"])
def test_an_epsilon_of_1e_12_still_guards_its_division(tmp_path: Path, guard: str) -> None:
    """A row of zeros: x / (norm + 1e-12) is 0, in float16 it would be 0 / 0.

    Max is on the converter's own list: even so its output would go through float16.
    """
    node = "n = Max(s, eps)" if guard == "Max" else f"n = {guard}(s, eps)"
    made = model(
        f"""g (float[3,4] x) => (float[3,4] y) {{
          [mm] h = MatMul(x, w)  [sq] q = Mul(h, h)
          [sum] s = ReduceSum(q, axes)  [guard] {node}  [root] m = Sqrt(n)
          [shape] e = Expand(m, shape)  [div] d = Div(h, e)  [last] y = MatMul(d, w) }}""",
        w=W, eps=np.array(1e-12, np.float32), axes=np.array([1], np.int64),
        shape=np.array([3, 4], np.int64),
    )  # fmt: skip
    feeds = {"x": X.copy()}
    feeds["x"][1] = 0
    facts, _ = convert(made, tmp_path, feeds)
    assert set(facts["blocked"]) == {"guard", "root", "shape", "div"}
    assert "1e-12" in facts["blocked"]["div"]
    assert quality(tmp_path, feeds) > 40
    _convert_alone(made, tmp_path / "out" / "model.onnx")
    alone = in_float16(tmp_path / "out" / "model.onnx", feeds)["y"]
    assert np.isnan(alone[1]).all() == (guard == "Max")


BRANCHES = """g (float[3,4] x, bool c) => (float[3,4] y) {
  [mm] h = MatMul(x, w)
  [if] b = If (c) <
    then_branch = t () => (float[3,4] p) { k = CumSum(h, axis)  p = Mul(k, v) },
    else_branch = e () => (float[3,4] q) { m = Max(h, x)  q = Exp(m) }>
  [last] y = MatMul(b, w)
}"""


@pytest.mark.parametrize("taken", [True, False])
def test_if_with_branches_that_need_different_operators(tmp_path: Path, taken: bool) -> None:
    """Inside branches the converter makes models that do not load; blocked ones at that."""
    made = model(BRANCHES, w=W, v=W[:1], axis=np.array(1, np.int64))
    feeds = {"x": X, "c": np.array(taken)}
    facts, converted = convert(made, tmp_path, feeds)
    assert facts["blocked"] == {"if": "If has subgraphs"}
    assert facts["nodes_fp16"] == 2
    assert quality(tmp_path, feeds) > GOOD_DB
    (branching,) = [node for node in converted.graph.node if node.op_type == "If"]
    assert list(branching.input) == ["c"]


def test_one_weight_read_in_both_precisions(tmp_path: Path) -> None:
    made = model(
        """g (float[3,4] x) => (float[3,4] y) {
          [a] p = MatMul(x, w)  [b] q = Max(p, w1)  [c] r = Min(p, w1)  [d] y = Sub(q, w1)
          }""",
        w=W, w1=W[:3],
    )  # fmt: skip
    made.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [3, 4]))
    facts, _ = convert(made, tmp_path, {"x": X})
    assert set(facts["blocked"]) == {"b", "c"}
    assert "the converter's own list" in facts["blocked"]["b"]
    assert quality(tmp_path, {"x": X}) > GOOD_DB


def test_casts_that_a_release_writes_twice_are_there_once() -> None:
    """Onnxruntime 1.22 to 1.31 cast a value once for each float32 reader, under one name."""
    cast = helper.make_node("Cast", ["h"], ["h_cast_to_fp32"], name="h_cast", to=1)
    own = helper.make_node("Relu", ["h_cast_to_fp32"], ["y"], name="own")
    body = helper.make_graph([cast, cast, own], "g", [], [])
    module._drop_twins(body, {"own"})
    assert [node.op_type for node in body.node] == ["Cast", "Relu"]


def test_an_operator_whose_schema_takes_no_float16(tmp_path: Path) -> None:
    """QuantizeLinear and DequantizeLinear before opset 19."""
    made = model(
        """g (float[3,4] x) => (float[3,4] y) {
          [mm] h = MatMul(x, w)  [q] i = QuantizeLinear(h, s, z)
          [dq] j = DequantizeLinear(i, s, z)  [last] y = MatMul(j, w) }""",
        w=W, s=np.array(0.05, np.float32), z=np.array(0, np.int8),
    )  # fmt: skip
    facts, _ = convert(made, tmp_path, {"x": X})
    assert facts["blocked"]["dq"] == "DequantizeLinear of opset 13 takes no float16"
    assert set(facts["blocked"]) == {"q", "dq"}
    # An int8 step more or less; the reference has no DequantizeLinear of that opset.
    assert quality(tmp_path, {"x": X}, run) > 25


def test_integers_beyond_2048_are_counted_in_float32(tmp_path: Path) -> None:
    made = model(
        """g (float[4] x) => (float[4] y) {
          [a] p = Mul(x, k)  [b] i = Cast<to = 7>(p)
          [c] q = Gather(table, i)  [d] y = Relu(q) }""",
        k=np.array(1, np.float32), table=np.arange(5000, dtype=np.float32) % 7,
    )  # fmt: skip
    feeds = {"x": np.array([2049, 4097, 3001, 5], np.float32)}
    facts, _ = convert(made, tmp_path, feeds, block=["a"])
    assert set(facts["blocked"]) == {"a", "b"}
    assert quality(tmp_path, feeds) == np.inf


def test_resize_and_default_constants(tmp_path: Path) -> None:
    """Scales of Resize stay float32; a ConstantOfShape without a value is float32 by default."""
    made = model(
        """g (float[1,1,2,2] x) => (float[1,1,4,4] y) {
          [r] h = Resize<mode = "nearest">(x, , scales)
          [c] k = ConstantOfShape(shape)  [a] y = Add(h, k) }""",
        scales=np.array([1, 1, 2, 2], np.float32), shape=np.array([4], np.int64),
    )  # fmt: skip
    feeds = {"x": X[0].reshape(1, 1, 2, 2)}
    facts, _ = convert(made, tmp_path, feeds)
    assert facts["nodes_fp32"] == 0
    assert quality(tmp_path, feeds) > GOOD_DB


def test_functions_are_inlined(tmp_path: Path) -> None:
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[3,4] x) => (float[3,4] y) { y = own.twice(x) }
    <domain: "own", opset_import: ["" : 17]>
    twice (a) => (b) { two = Constant<value_float = 2.0>()  b = Mul(a, two) }""")
    facts, _ = convert(made, tmp_path, {"x": X})
    assert facts["nodes_fp16"] == 1
    assert quality(tmp_path, {"x": X}) > GOOD_DB


@pytest.mark.parametrize(("block", "name"), [(["Relu"], "r"), (["mm"], "mm")])
def test_operators_and_nodes_can_be_blocked(tmp_path: Path, block: list[str], name: str) -> None:
    made = model("g (float[3,4] x) => (float[3,4] y) { [mm] h = MatMul(x, w) [r] y = Relu(h) }",
                 w=W)  # fmt: skip
    facts, _ = convert(made, tmp_path, {"x": X}, block=[*block, "LayerNormalization"])
    assert facts["blocked"] == {name: "asked for"}
    assert quality(tmp_path, {"x": X}) > GOOD_DB


def test_a_block_list_with_a_slip_is_refused(tmp_path: Path) -> None:
    made = model("g (float[3,4] x) => (float[3,4] y) { y = Relu(x) }")
    with pytest.raises(errors.UsageError, match="'Softmx' is no operator") as caught:
        convert(made, tmp_path, {"x": X}, block=["Softmx"])
    assert "Softmax" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("g (float[3,4] x) => (float[3,4] y) { [t] y = Max(x, x) }", "t: Max is on"),
        ("g (int64[3,4] x) => (int64[3,4] y) { y = Add(x, x) }", "no float32 values"),
    ],
)
def test_nothing_to_convert_is_said(tmp_path: Path, text: str, remedy: str) -> None:
    made = model(text)
    kind = np.int64 if "int64" in text else np.float32
    with pytest.raises(errors.ModelRefused, match="nothing to convert") as caught:
        convert(made, tmp_path, {"x": X.astype(kind)})
    assert remedy in caught.value.remedy


def test_without_samples_nothing_is_checked(tmp_path: Path) -> None:
    onnx.save(model("g (float[3,4] x) => (float[3,4] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    samples.write(tmp_path / "cases", [])
    with pytest.raises(errors.UsageError, match="needs samples"):
        fp16.function(tmp_path, model=tmp_path / "m.onnx",
                      cases=tmp_path / "cases" / samples.INDEX, block=[])  # fmt: skip


def test_nan_in_weights_stays_nan_and_is_no_reason(tmp_path: Path) -> None:
    """Refusing NaN is the accuracy gate's; here nothing may hide it."""
    weights = W.copy()
    weights[0, 0] = np.nan
    made = model("g (float[3,4] x) => (float[3,4] y) { y = MatMul(x, w) }", w=weights)
    convert(made, tmp_path, {"x": X})
    assert np.isnan(run(tmp_path / "out" / "model.onnx", {"x": X})["y"][:, 0]).all()


def test_same_inputs_same_bytes(tmp_path: Path) -> None:
    made = model(BRANCHES, w=W, v=W[:1], axis=np.array(1, np.int64))
    feeds = {"x": X, "c": np.array(True)}
    for name in ("a", "b"):
        convert(made, tmp_path / name, feeds)
    first, second = ((tmp_path / n / "out" / "model.onnx").read_bytes() for n in ("a", "b"))
    assert first == second


FACTORS = st.tuples(
    st.sampled_from(["Mul", "Div", "MatMul", "Abs", "Max"]), st.floats(-13, 9, width=16)
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(FACTORS, min_size=2, max_size=6))
def test_products_over_many_magnitudes_stay_right(
    tmp_path_factory: pytest.TempPathFactory, factors: list[tuple[str, float]]
) -> None:
    """Whatever the constants and activations: as good as float16 is, or nothing to convert."""
    constants, nodes, value = {"w": np.abs(W)}, [], "x"
    for index, (operator, exponent) in enumerate(factors):
        constants[f"k{index}"] = np.array(10.0**exponent, np.float32)
        other = {"Abs": [], "MatMul": ["w"]}.get(operator, [f"k{index}"])
        nodes.append(helper.make_node(operator, [value, *other], [f"v{index}"], name=f"n{index}"))
        value = f"v{index}"
    nodes.append(helper.make_node("Abs", [value], ["y"], name="last"))
    made = model("g (float[3,4] x) => (float[3,4] y) { y = Abs(x) }", **constants)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    feeds, folder = {"x": np.abs(X) + np.float32(0.5)}, tmp_path_factory.mktemp("chain")
    try:
        convert(made, folder, feeds)
    except errors.ModelRefused as error:
        assert "nothing to convert" in error.message  # noqa: PT017 - either is right
        return
    expected = run(folder / "m.onnx", feeds)["y"]
    if np.isfinite(expected).all() and np.abs(expected).min() > 1e-30:
        assert quality(folder, feeds) > 35


def test_magika_has_an_activation_beyond_float16(tmp_path: Path) -> None:
    """A sum of squares in its second LayerNorm reaches 129260; found on the real model."""
    found = importlib.util.find_spec("magika")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "models" / "standard_v3_3" / "model.onnx"
    inputs = [BoundInput("bytes", "int32", (1, 2048), (0, 256)).to_json()]
    golden(tmp_path / "golden", path, inputs, count=1)
    (tmp_path / "out").mkdir()
    index = tmp_path / "golden" / samples.INDEX
    facts = fp16.function(tmp_path / "out", model=path, cases=index, block=[])
    assert facts is not None
    summed = next(n for n in facts["blocked"] if n.endswith("LayerNorm_1/Sum_1"))
    assert "reaches 1" in facts["blocked"][summed]
    assert (tmp_path / "out" / "model.onnx").stat().st_size < 0.52 * path.stat().st_size
    expected = samples.cases(tmp_path / "golden", "output")[0]
    actual = run(tmp_path / "out" / "model.onnx", samples.cases(index.parent, "input")[0])
    sqnr = parity.compare(expected["target_label"], actual["target_label"]).sqnr_db
    assert sqnr is not None
    assert sqnr > 60
