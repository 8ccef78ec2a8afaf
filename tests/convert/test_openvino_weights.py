"""Weights of 8 and 4 bits in IR: their types and sizes, and what is given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from edge import errors, process
from edge.convert import openvino_library as ov
from edge.convert.openvino_weights import EXACT, openvino_weights
from edge.samples import INDEX
from tests import models
from tests.convert.golden_setup import drawn
from tests.convert.openvino_setup import RELEASE, Setup, need_openvino


@pytest.fixture(autouse=True)
def _openvino() -> None:
    need_openvino("nncf")


def product(rows: int, columns: int = 40) -> onnx.ModelProto:
    """x[5, rows] -> MatMul, Relu -> y[5, columns]."""
    text = f"g (float[5,{rows}] x) => (float[5,{columns}] y) {{ h = MatMul(x, w) y = Relu(h) }}"
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    made.graph.initializer.append(onnx.numpy_helper.from_array(drawn(1, rows, columns), "w"))
    return made


def weights(
    setup: Setup, bits: int, *, symmetric: bool = True, goal: float = 0.0, out: str = "w"
) -> dict[str, Any]:
    scheme = {"bits": bits, "block_size": 32, "symmetric": symmetric}
    facts = openvino_weights.function(
        setup.place(out), model=setup.ir(), golden=setup.golden, scheme=scheme, goal=goal,
        release=RELEASE,
    )  # fmt: skip
    assert facts is not None
    return facts


# Uniform rounding of values in [-1, 1] with one scale: a part of the largest sum of 96 of them.
@pytest.mark.parametrize(("bits", "share", "apart"), [(8, 0.30, 0.1), (4, 0.18, 1.6)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_have_their_bits(
    tmp_path: Path, bits: int, share: float, apart: float, *, symmetric: bool
) -> None:
    setup = Setup(tmp_path / "m", product(96), [{"x": drawn(2, 5, 96)}])
    facts = weights(setup, bits, symmetric=symmetric)
    assert list(facts["compressed"]) == [f"{'i' if symmetric else 'u'}{bits}"]
    before, after = ((setup.folder / n / "model.bin").stat().st_size for n in ("ir", "w"))
    assert after < share * before
    ran = setup.run(setup.folder / "w" / ov.IR, EXACT)
    assert 0 < ran["worst"]["y"] < apart


def test_blocks_that_do_not_divide_a_channel_are_no_failure(tmp_path: Path) -> None:
    """Magika's first product has 257 rows; NNCF fails with its own default."""
    setup = Setup(tmp_path / "m", product(257), [{"x": drawn(2, 5, 257)}])
    assert weights(setup, 4)["compressed"]


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", models.logarithm(), [{"x": np.abs(drawn(0, 4)) + 1}])
    with pytest.raises(errors.ModelRefused, match="nothing to compress"):
        weights(setup, 8)


def outlier() -> onnx.ModelProto:
    """x[1, 2, 8, 8] -> Conv, Flatten, MatMul -> y[1, 4]: 8 bits lose much in the convolution.

    One of its weights is large, so that the others are rounded away; the product's are integers.
    """
    text = (
        "g (float[1,2,8,8] x) => (float[1,4] y) { c = Conv(x, k) f = Flatten(c) y = MatMul(f, w) }"
    )
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    kernel = drawn(1, 8, 2, 3, 3) / 10
    kernel[:, 0, 0, 0] = 100
    whole = np.random.default_rng(2).integers(-127, 128, (288, 4)).astype(np.float32)
    whole[0] = 127
    for name, array in (("k", kernel), ("w", whole)):
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def test_convolutions_are_given_back_where_the_goal_wants_it(tmp_path: Path) -> None:
    case = drawn(3, 1, 2, 8, 8)
    case[:, 0] /= 1000  # the large weight alone does not make the output
    setup = Setup(tmp_path / "m", outlier(), [{"x": case}])
    every = weights(setup, 8)
    assert (every["kept"], every["compressed"]) == ([], {"i8": 2})
    assert every["sqnr_db"] < 30
    within = weights(setup, 8, goal=every["sqnr_db"] - 0.1, out="within")
    assert within == every
    more = weights(setup, 8, goal=every["sqnr_db"] + 0.1, out="more")
    assert (more["kept"], more["compressed"]) == (["GroupConvolution", "Convolution"], {"i8": 1})
    assert more["sqnr_db"] > 60


def test_where_nothing_helps_the_best_is_made(tmp_path: Path) -> None:
    """The gate refuses it then, with its figure. Here nothing else is in 8 bits."""
    setup = Setup(tmp_path / "m", models.conv_bn(), [{"x": drawn(0, 1, 3, 8, 8)}])
    made = weights(setup, 8, goal=250.0)
    assert (made["kept"], made["compressed"]) == ([], {"i8": 1})
    assert made["sqnr_db"] < 250


@pytest.mark.process
def test_two_processes_give_the_same_bytes(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", product(257), [{"x": drawn(2, 5, 257)}])
    made = []
    for name in ("first", "another-folder"):
        out = tmp_path / name
        out.mkdir()
        process.run_python(
            "edge.convert.openvino_weights:openvino_weights.function",
            {"out": out, "model": setup.ir(), "golden": setup.golden.parent / INDEX,
             "scheme": {"bits": 4, "block_size": 32, "symmetric": True}, "goal": 0.0,
             "release": RELEASE},
            timeout=300,
        )  # fmt: skip
        made.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
        assert str(tmp_path).encode() not in made[-1][ov.IR]
    assert made[0] == made[1]
    assert list(made[0]) == ["model.bin", ov.IR]
