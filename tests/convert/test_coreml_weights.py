"""Compressed weights in packages: their types and sizes, lookup tables, what is given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors, process
from edge.convert.coreml_weights import Weight, block_size, coreml_weights, table, weights
from edge.convert.mil_package import PACKAGE
from tests import models
from tests.convert.coreml_setup import Setup, content, need_coremltools, parsed
from tests.convert.golden_setup import drawn

# coremltools leaves the folder that it writes weights to for Python to remove.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Implicitly cleaning up:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(autouse=True)
def _coremltools() -> None:
    need_coremltools()


def product(rows: int, columns: int = 40) -> onnx.ModelProto:
    """x[5, rows] -> MatMul, Relu -> y[5, columns]."""
    text = f"g (float[5,{rows}] x) => (float[5,{columns}] y) {{ h = MatMul(x, w) y = Relu(h) }}"
    return parsed(text, w=drawn(1, rows, columns))


def scheme(bits: int, *, palettize: bool = False, symmetric: bool = True) -> dict[str, Any]:
    return {"bits": bits, "palettize": palettize, "symmetric": symmetric, "block_size": 32}


def compress(
    setup: Setup, how: dict[str, Any], *, goal: float = 0.0, target: str = "iOS18", out: str = "w"
) -> dict[str, Any]:
    folder = setup.folder / f"from-{target}"
    head = folder / PACKAGE / "Manifest.json"
    if not folder.exists():
        setup.plain(target=target, name=folder.name)
    facts = coreml_weights.function(
        setup.place(out), model=head, golden=setup.golden, scheme=how, goal=goal
    )
    assert facts is not None
    return facts


# Uniform rounding of values in [-1, 1]: shares of the fp32 weights' bytes, and least SQNR in dB.
@pytest.mark.parametrize(
    ("target", "how", "operation", "share", "least"),
    [
        ("iOS16", scheme(8), "constexpr_affine_dequantize", 0.30, 40),
        ("iOS16", scheme(8, symmetric=False), "constexpr_affine_dequantize", 0.30, 40),
        ("iOS18", scheme(8), "constexpr_blockwise_shift_scale", 0.30, 40),
        ("iOS18", scheme(4), "constexpr_blockwise_shift_scale", 0.18, 18),
        ("iOS18", scheme(4, symmetric=False), "constexpr_blockwise_shift_scale", 0.20, 18),
        ("iOS16", scheme(8, palettize=True), "constexpr_lut_to_dense", 0.34, 40),
        ("iOS16", scheme(6, palettize=True), "constexpr_lut_to_dense", 0.22, 32),
        ("iOS16", scheme(4, palettize=True), "constexpr_lut_to_dense", 0.14, 20),
    ],
)
def test_weights_have_their_bits(
    tmp_path: Path, target: str, how: dict[str, Any], operation: str, share: float, least: float
) -> None:
    setup = Setup(tmp_path / "m", product(96), [{"x": drawn(2, 5, 96)}])
    facts = compress(setup, how, target=target)
    assert facts["operations"][operation] == 1
    assert facts["weights"] == {str(how["bits"]): 1}
    weight = "Data/com.apple.CoreML/weights/weight.bin"
    before, after = (len(content(setup.head(n).parent)[weight]) for n in (f"from-{target}", "w"))
    assert after < share * before + 512
    assert least < facts["sqnr_db"] < 90


@pytest.mark.parametrize(("inputs", "size"), [(64, 32), (48, 16), (24, 8), (20, 0), (1, 0)])
def test_a_block_divides_a_channels_inputs(inputs: int, size: int) -> None:
    assert block_size(Weight("w", (4, inputs), "linear", inputs), 32) == size


def test_what_no_block_fits_gets_8_bits(tmp_path: Path) -> None:
    """Magika's first product has 257 rows."""
    made = parsed(
        "g (float[5,257] x) => (float[5,40] y) { h = MatMul(x, v) y = MatMul(h, w) }",
        v=drawn(1, 257, 64),
        w=drawn(3, 64, 40),
    )
    setup = Setup(tmp_path / "m", made, [{"x": drawn(2, 5, 257)}])
    assert compress(setup, scheme(4))["weights"] == {"4": 1, "8": 1}


@pytest.mark.parametrize("goal", [0.0, 250.0])
def test_a_model_without_any_weight_of_4_bits_is_no_int4(tmp_path: Path, goal: float) -> None:
    setup = Setup(tmp_path / "m", product(257), [{"x": drawn(2, 5, 257)}])
    with pytest.raises(errors.ModelRefused, match=r"block_size = 32 divides, or a smaller .* 8$"):
        compress(setup, scheme(4), goal=goal)


def test_convolutions_that_get_8_bits_leave_others_with_4(tmp_path: Path) -> None:
    case = drawn(3, 1, 16, 8, 8)
    setup = Setup(tmp_path / "m", outlier(), [{"x": case}])
    facts = compress(setup, scheme(4, palettize=True), goal=250.0)
    assert facts["weights"] in ({"4": 2}, {"4": 1, "8": 1})


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", models.logarithm(), [{"x": np.abs(drawn(0, 4)) + 1}])
    with pytest.raises(errors.ModelRefused, match="nothing to compress: no weight of 512"):
        compress(setup, scheme(8))


def outlier() -> onnx.ModelProto:
    """x[1, 16, 8, 8] -> Conv, Flatten, MatMul -> y[1, 4]: 8 bits lose much in the convolution.

    One of its weights is large, so that the others are rounded away; the product's are integers.
    """
    kernel = drawn(1, 8, 16, 3, 3) / 10
    kernel[:, 0, 0, 0] = 100
    whole = np.random.default_rng(2).integers(-127, 128, (288, 4)).astype(np.float32)
    whole[0] = 127
    return parsed(
        "g (float[1,16,8,8] x) => (float[1,4] y){ c = Conv(x, k) f = Flatten(c) y = MatMul(f, w) }",
        k=kernel,
        w=whole,
    )


def test_convolutions_are_given_back_where_the_goal_wants_it(tmp_path: Path) -> None:
    case = drawn(3, 1, 16, 8, 8)
    case[:, 0] /= 1000  # the large weight alone does not make the output
    setup = Setup(tmp_path / "m", outlier(), [{"x": case}])
    every = compress(setup, scheme(8))
    assert (every["given_back"], every["weights"]) == ([], {"8": 2})
    assert every["sqnr_db"] < 30
    within = compress(setup, scheme(8), goal=every["sqnr_db"] - 0.1, out="within")
    assert within == every
    more = compress(setup, scheme(8), goal=every["sqnr_db"] + 0.1, out="more")
    assert (more["given_back"], more["weights"]) == (["grouped", "conv"], {"8": 1})
    assert more["sqnr_db"] > 60


def test_where_nothing_helps_the_best_is_made(tmp_path: Path) -> None:
    """The gate refuses it then, with its figure."""
    setup = Setup(tmp_path / "m", product(96), [{"x": drawn(2, 5, 96)}])
    facts = compress(setup, scheme(4), goal=250.0)
    assert (facts["given_back"], facts["weights"]) == ([], {"4": 1})


def test_biases_shapes_and_small_constants_are_no_weights(tmp_path: Path) -> None:
    made = parsed(
        """g (float[1,4,12,12] x) => (float[1,9] y) {
            c = Conv(x, k, b) s = Add(c, e) f = Flatten(s) y = Gemm(f, w)
        }""",
        k=drawn(1, 16, 4, 3, 3),
        b=drawn(2, 16),
        e=drawn(3, 1, 16, 10, 10),  # large, but no product's
        w=drawn(4, 1600, 9),
    )
    setup = Setup(tmp_path / "m", made, [{"x": drawn(5, 1, 4, 12, 12)}])
    found = weights(setup.plain().parent)
    assert [(each.kind, each.shape) for each in found] == [
        ("conv", (16, 4, 3, 3)), ("linear", (9, 1600)),
    ]  # fmt: skip


# ------------------------------------------------------------------------------- lookup tables
@settings(max_examples=40)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=60),
    st.sampled_from([4, 6, 8]),
    st.sampled_from(["float16", "float32"]),
)
def test_a_table_holds_finite_values_of_the_weights_range(
    values: list[float], bits: int, dtype: str
) -> None:
    weight = np.clip(values, -6e4, 6e4) if dtype == "float16" else np.array(values)
    weight = weight.astype(dtype)
    entries, indices = table(bits)(weight)
    assert (entries.dtype, entries.shape) == (weight.dtype, (2**bits,))
    assert (indices.dtype, indices.shape) == (np.uint8, (weight.size,))
    found = entries[indices]
    assert np.isfinite(found).all()
    room = 0.001 * np.abs(weight).max() + 1e-38
    assert weight.min() - room <= found.min() <= found.max() <= weight.max() + room


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_as_many_values_as_entries_are_kept_exactly(dtype: str) -> None:
    values = (np.arange(16) - 7).astype(dtype)
    weight = values[np.random.default_rng(0).integers(0, 16, 999)]
    entries, indices = table(4)(weight)
    np.testing.assert_array_equal(entries[indices], weight)


def test_a_table_is_the_best_one_in_one_dimension() -> None:
    """Three groups, two entries: the two that are near each other are joined."""
    weight = np.array([0.0, 0.0, 1.0, 1.0, 10.0, 10.0, 10.0, 11.0], np.float32)
    entries, indices = table(1)(weight)
    assert sorted(entries) == [0.5, 10.25]
    assert list(entries[indices]) == [0.5] * 4 + [10.25] * 4


@pytest.mark.process
def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", product(96), [{"x": drawn(2, 5, 96)}])
    how = scheme(4, palettize=True)
    facts = compress(setup, how)
    out = tmp_path / "another-folder"
    out.mkdir()
    again = process.run_python(
        "edge.convert.coreml_weights:coreml_weights.function",
        {"out": out, "model": setup.head("from-iOS18"), "golden": setup.golden, "scheme": how,
         "goal": 0.0},
        timeout=300,
    )  # fmt: skip
    assert again == facts
    made = content(out)
    assert made == content(setup.folder / "w")
    assert not [name for name, data in made.items() if str(tmp_path).encode() in data]


def test_scales_are_the_same_each_time(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", product(96), [{"x": drawn(2, 5, 96)}])
    for name in ("one", "other"):
        compress(setup, scheme(4), out=name)
    assert content(setup.folder / "one") == content(setup.folder / "other")
