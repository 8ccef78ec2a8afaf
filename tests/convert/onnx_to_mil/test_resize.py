"""Resize in all its modes, against ONNX's reference evaluator, at sizes drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from edge import errors
from edge.convert.onnx_to_mil.sampling import ROUNDINGS, TRANSFORMS
from tests.convert.onnx_to_mil.programs import computed, one, values

SIDES = st.integers(1, 7)


def check(size: tuple[int, int], asked: tuple[int, int], scales: Any, **attributes: Any) -> None:
    x = values(1, 2, *size)
    constants: dict[str, Any] = {"roi": np.zeros(0, np.float32)}
    if scales is None:
        constants |= {"scales": np.zeros(0, np.float32), "sizes": np.array([1, 2, *asked])}
    else:
        constants["scales"] = np.array([1, 1, *scales], np.float32)
    model = one("Resize", {"x": x}, opset=18, constants=constants, **attributes)
    wanted: Any = ReferenceEvaluator(model).run(None, {"x": x})
    try:
        (found,) = computed(model, {"x": x})
    except errors.ModelRefused as error:
        # Where ONNX's evaluator and ONNX Runtime place pixels differently nothing can be right.
        assume("runtimes differ" not in error.message)
        raise
    if not np.allclose(found, wanted[0], rtol=1e-4, atol=1e-5):
        # A place that rounding moves off a whole pixel gets its neighbour's weights in ONNX's
        # evaluator; what is right is continuous there, and ONNX Runtime's.
        wanted = ort.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted[0], rtol=1e-4, atol=1e-5)


@settings(max_examples=40)
@given(
    st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES),
    st.sampled_from(TRANSFORMS), st.sampled_from(ROUNDINGS),
)  # fmt: skip
def test_nearest(size: Any, asked: Any, transform: str, rounding: str) -> None:
    check(
        size, asked, None, mode="nearest", coordinate_transformation_mode=transform,
        nearest_mode=rounding,
    )  # fmt: skip


@settings(max_examples=40)
@given(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES), st.sampled_from(TRANSFORMS))
def test_linear(size: Any, asked: Any, transform: str) -> None:
    check(size, asked, None, mode="linear", coordinate_transformation_mode=transform)


@settings(max_examples=30)
@given(st.tuples(SIDES, SIDES), st.tuples(SIDES, SIDES), st.sampled_from(TRANSFORMS), st.booleans())
def test_cubic(size: Any, asked: Any, transform: str, outside: bool) -> None:
    check(
        size, asked, None, mode="cubic", coordinate_transformation_mode=transform,
        exclude_outside=int(outside), cubic_coeff_a=-0.5,
    )  # fmt: skip


@settings(max_examples=40)
@example((2, 7), (0.6, 1.5), "cubic", "half_pixel_symmetric")
@given(
    st.tuples(st.integers(2, 7), st.integers(2, 7)),
    st.tuples(st.sampled_from([0.6, 1.0, 1.3, 2.0, 2.7]), st.sampled_from([0.7, 1.5, 3.0])),
    st.sampled_from(["linear", "nearest", "cubic"]),
    st.sampled_from([name for name in TRANSFORMS if name != "align_corners"]),
)
def test_scales_that_cut_something_off(size: Any, scales: Any, mode: str, transform: str) -> None:
    check(size, (0, 0), scales, mode=mode, coordinate_transformation_mode=transform)
