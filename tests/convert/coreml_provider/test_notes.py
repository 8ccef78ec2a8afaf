"""The notes of the operator lists, each held against the rules; and where the code says more."""

from __future__ import annotations

from typing import Any

import pytest

from edge.convert.coreml_provider.rule import Params
from tests.convert.coreml_provider.cases import ML, NN, One, fused, ints, one, ones, real
from tests.convert.coreml_provider.test_operators import MLPROGRAM, NEURALNETWORK

X = "f32 1x4x8x8"
W = ones(4, 4, 3, 3)
POOL: dict[str, Any] = {"kernel_shape": [2, 2, 2]}
DEEP = "f32 1x4x8x8x8"

# Operator -> nodes that its note says are not taken.
FORBIDDEN: dict[bool, dict[str, tuple[One, ...]]] = {
    True: {
        "And": (one("And", "bool 4", "f32 4"),),
        "AveragePool": (one("AveragePool", DEEP, **POOL),),
        "Conv": (
            one("Conv", DEEP, ones(4, 4, 3, 3, 3)),
            one("Conv", X, W, "f32 4"),
        ),
        "ConvTranspose": (
            one("ConvTranspose", X, "f32 4x4x3x3"),
            one("ConvTranspose", X, W, "f32 4"),
            one("ConvTranspose", X, W, auto_pad="SAME_LOWER"),
            one("ConvTranspose", X, W, pads=[0] * 4, output_shape=[10, 10]),
            one("ConvTranspose", X, W, pads=[0] * 4, output_padding=[1, 1], strides=[2, 2]),
        ),
        "DepthToSpace": (one("DepthToSpace", "f32 1x4x?x8", blocksize=2, mode="CRD"),),
        "GatherND": (one("GatherND", "f32 1x4", ints(0).reshape(1, 1), batch_dims=1),),
        "Gemm": (one("Gemm", "f32 2x4", "f32 4x3"),),
        "GlobalAveragePool": (one("GlobalAveragePool", DEEP),),
        "GlobalMaxPool": (one("GlobalMaxPool", DEEP),),
        "GridSample": (
            one("GridSample", DEEP, "f32 1x4x4x4x3"),
            one("GridSample", X, "f32 1x8x8x2", mode="cubic"),
            one("GridSample", X, "f32 1x8x8x2", padding_mode="reflection"),
        ),
        # The note is Gemm's.
        "MatMul": (one("Gemm", "f32 4x2", ones(4, 3), transA=1),),
        "MaxPool": (one("MaxPool", DEEP, **POOL),),
        "Pow": (one("Pow", "f32 4", "i32 4"),),
        "Slice": (one("Slice", "f32 4", "i64 1", ints(1)),),
        "Split": (one("Split", "f32 4", "i64 2", outputs=2),),
        "Tile": (one("Tile", "f32 1x1x1x1x1x4", "i64 6"),),
        "Where": (one("Where", "bool 4", "i64 4", "i64 4"),),
        "FusedConv": (fused(X, W, activation="Elu"),),
    },
    False: {
        "AveragePool": (one("AveragePool", DEEP, **POOL),),
        "Conv": (
            one("Conv", DEEP, ones(4, 4, 3, 3, 3)),
            one("Conv", X, "f32 4x4x3x3"),
            one("Conv", X, W, "f32 4"),
        ),
        "DepthToSpace": (one("DepthToSpace", X, blocksize=2, mode="CRD"),),
        "Gemm": (one("Gemm", "f32 2x4", "f32 4x3"),),
        "GlobalAveragePool": (one("GlobalAveragePool", DEEP),),
        "GlobalMaxPool": (one("GlobalMaxPool", DEEP),),
        "MatMul": (one("MatMul", "f32 2x4", "f32 4x3"),),
        "MaxPool": (one("MaxPool", DEEP, **POOL),),
        "Pad": (
            one("Pad", X, ints(*[0] * 8), real(0), mode="edge"),
            one("Pad", X, ints(1, *[0] * 7), real(0)),
            one("Pad", X, "i64 8", real(0)),
            one("Pad", X, ints(*[0] * 8), "f32 "),
            one("Pad", X, ints(0, 0), real(0), "i64 1"),
        ),
        "Pow": (one("Pow", "f16 4", "f16 4"), one("Pow", "f32 4", "i32 4")),
        "PRelu": (one("PRelu", X, "f32 4x1x1"), one("PRelu", X, ones(8, 8))),
        "Resize": (
            one("Resize", "f32 4x8x8", None, ones(3), mode="linear"),
            one("Resize", X, None, ones(4), mode="linear"),
            one("Resize", X, None, ones(4), mode="cubic"),
            one("Resize", X, None, ones(4), coordinate_transformation_mode="asymmetric"),
            one("Resize", X, None, ones(4), mode="linear", exclude_outside=1),
            one("Resize", X, None, "f32 4", mode="linear"),
        ),
        "Shape": (one("Shape", X, start=1), one("Shape", X, end=1)),
        "Slice": (one("Slice", "f32 4", "i64 1", ints(1)), one("Slice", X, ints(1), ints(1))),
        "Split": (one("Split", "f32 4", "i64 2", outputs=2),),
    },
}
# Notes that forbid nothing, or (Pow in fp16, scalar Gather) what the code of the release takes.
STALE = {
    True: {"Reciprocal", "Resize", "QuickGelu"},
    False: {"Gather"},
}
CASES = [
    pytest.param(node, ML if mlprogram else NN, id=f"{kind}-{'ml' if mlprogram else 'nn'}-{at}")
    for mlprogram, kinds in FORBIDDEN.items()
    for kind, nodes in kinds.items()
    for at, node in enumerate(nodes)
]


@pytest.mark.parametrize(("node", "params"), CASES)
def test_what_a_note_forbids_is_refused(node: One, params: Params) -> None:
    assert node.reason(params)


@pytest.mark.parametrize("mlprogram", [True, False])
def test_every_note_is_held_or_known_to_be_stale(*, mlprogram: bool) -> None:
    notes = MLPROGRAM if mlprogram else NEURALNETWORK
    noted = {kind for kind, note in notes.items() if note}
    assert noted == set(FORBIDDEN[mlprogram]) | STALE[mlprogram]


def test_where_the_code_takes_more_than_the_list_says() -> None:
    assert one("Gather", "f32 4", "i64 ").reason(NN) == ""
    assert one("Pow", "f16 4", "f16 4").reason(ML) == ""
    assert one("Pow", "i64 4", "i64 4").reason(ML) == ""
    runtime = one("Tile", "f32 4", "i64 1")
    assert (runtime.reason(ML), bool(runtime.reason(NN))) == ("", True)
    kernel = one("ConvTranspose", X, W, pads=[0] * 4, kernel_shape=[3, 3])
    assert kernel.reason(ML) == ""
