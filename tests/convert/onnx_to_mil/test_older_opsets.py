"""Operators as older opsets have them, against ONNX Runtime: backend tests know the newest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.convert.onnx_to_mil.programs import agree, one, values

X = values(2, 3, 4, 5)
I64 = np.int64


def case(kind: str, opset: int, *more: dict[str, Any], x: Any = X, **attributes: Any) -> Any:
    constants = more[0] if more else None
    name = f"{kind}-{opset}-" + "-".join(f"{k}={v}" for k, v in attributes.items())
    return pytest.param(kind, opset, x, constants, attributes, id=name[:60])


CASES = [
    *(case(kind, opset, axis=axis) for kind in ("Softmax", "LogSoftmax") for opset in (7, 11, 12)
      for axis in (0, 1, 2, 3)),
    *(case(kind, 13, axis=axis) for kind in ("Softmax", "LogSoftmax") for axis in (0, 1, -1)),
    case("Softmax", 12, axis=-1),
    case("Clip", 7, min=-0.5, max=0.25),
    case("Clip", 10, min=0.0),
    case("Clip", 11, {"low": np.float32(-0.5), "high": np.float32(1)}),
    case("Pad", 7, pads=[0, 0, 1, 2, 0, 0, 0, 1], value=2.5),
    case("Pad", 10, pads=[0, 1, 1, 0, 0, 1, 2, 1], mode="reflect"),
    case("Pad", 10, pads=[0, 0, 1, 0, 0, 0, 2, 3], mode="edge"),
    case("Pad", 10, pads=[0, 0, -1, 0, 0, 0, 1, -2]),
    case("Pad", 11, {"pads": np.array([0, 0, 1, 2, 0, 0, 0, 1], I64)}),
    case("Slice", 9, starts=[1, -3], ends=[1000, -1], axes=[1, 3]),
    case("Slice", 9, starts=[0, 1], ends=[1, 3]),
    case("Slice", 10, {"s": np.array([-1], I64), "e": np.array([-1000], I64),
                       "a": np.array([2], I64), "t": np.array([-2], I64)}),
    case("Slice", 13, {"s": np.array([0], I64), "e": np.array([2**62], I64),
                       "a": np.array([-1], I64)}),
    case("Squeeze", 11, axes=[0, 2], x=values(1, 3, 1, 5)),
    case("Squeeze", 12, x=values(1, 3, 1, 5)),
    case("Unsqueeze", 12, axes=[0, 2], x=values(3, 5)),
    *(case(kind, 12, axes=[1, -1], keepdims=keep) for keep in (0, 1)
      for kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
                   "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")),
    case("ReduceMean", 17, axes=[2, 3]),
    case("ReduceSum", 13, {"axes": np.array([0, 2], I64)}, keepdims=0),
    case("ReduceMax", 18, {"axes": np.array([0, 2], I64)}, keepdims=0),
    case("ReduceSum", 11),
    case("Split", 12, axis=1, split=[1, 2]),
    case("Upsample", 7, scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"),
    case("Upsample", 9, {"scales": np.array([1, 1, 2, 2], np.float32)}, mode="linear"),
    case("Upsample", 9, {"scales": np.array([1, 1, 1.5, 2.3], np.float32)}, mode="nearest"),
    case("Resize", 10, {"scales": np.array([1, 1, 2, 0.5], np.float32)}, mode="nearest"),
    case("Resize", 10, {"scales": np.array([1, 1, 2, 2], np.float32)}, mode="linear"),
    case("ArgMax", 11, axis=1, keepdims=0),
    case("ArgMin", 12, axis=-1, select_last_index=1, x=np.round(X)),
    case("BatchNormalization", 7, {n: np.abs(values(3, seed=s)) for s, n in enumerate("sbmv")}),
    case("BatchNormalization", 9, {n: np.abs(values(3, seed=s)) for s, n in enumerate("sbmv")},
         epsilon=0.01),
    case("Dropout", 7, ratio=0.5),
    case("Dropout", 10),
    case("Dropout", 12, {"ratio": np.float32(0.4)}),
    case("Flatten", 9, axis=2),
    case("Flatten", 11, axis=-1),
    case("Flatten", 7, axis=0),
    case("Cast", 9, to=7, x=np.array([-2.7, -0.2, 3.9], np.float32)),
    case("Gather", 7, {"i": np.array([[0, 2], [1, 0]], I64)}, axis=1),
    case("Gather", 11, {"i": np.array([-1, 0], I64)}, axis=2),
    case("LeakyRelu", 7, alpha=0.3),
    case("DepthToSpace", 10, blocksize=2, x=values(1, 8, 3, 4)),
    case("DepthToSpace", 11, blocksize=2, mode="CRD", x=values(1, 8, 3, 4)),
    case("SpaceToDepth", 7, blocksize=2, x=values(1, 2, 4, 6)),
    case("InstanceNormalization", 7, {"s": values(3), "b": values(3, seed=1)}),
    case("LRN", 7, size=3, alpha=0.1, beta=0.6, bias=2.0),
    case("LRN", 7, size=5, alpha=0.1),
    case("Sum", 8, {"b": values(4, 5, seed=2)}),
    case("PRelu", 7, {"slope": values(3, 1, 1, seed=3)}),
    case("PRelu", 9, {"slope": values(4, 5, seed=3)}),
    case("PRelu", 9, {"slope": values(3, 1, seed=3)}, x=values(2, 3, 4)),
    case("Selu", 7), case("Elu", 7, alpha=1.7), case("ThresholdedRelu", 10, alpha=0.2),
    case("HardSigmoid", 7, alpha=0.3, beta=0.4), case("Softplus", 7), case("Softsign", 7),
    case("Gemm", 7, {"b": values(5, 6, seed=1), "c": values(6, seed=2)}, x=values(4, 5)),
    case("Gemm", 9, {"b": values(6, 5, seed=1), "c": values(1, seed=2)}, x=values(4, 5),
         alpha=0.5, beta=2.0, transB=1),
    case("Gemm", 11, {"b": values(4, 6, seed=1)}, x=values(4, 5), transA=1),
    case("MatMul", 9, {"b": values(2, 1, 5, 3, seed=1)}),
    case("MatMul", 9, {"b": values(5, seed=1)}),
    case("Tile", 7, {"r": np.array([1, 2, 1, 3], I64)}),
    case("Expand", 8, {"s": np.array([2, 2, 1, 1, 5], I64)}, x=values(2, 3, 1)),
    case("MaxPool", 7, kernel_shape=[2, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    case("MaxPool", 10, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("MaxPool", 8, kernel_shape=[3, 3], pads=[1, 0, 2, 1]),
    case("AveragePool", 7, kernel_shape=[2, 2], auto_pad="SAME_LOWER", count_include_pad=1),
    case("AveragePool", 11, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2], ceil_mode=1),
    case("AveragePool", 19, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2], ceil_mode=1,
         count_include_pad=1),
    case("Trilu", 14, {"k": np.array(1, I64)}, upper=0, x=values(4, 6)),
    case("CumSum", 11, {"axis": np.array(-1, np.int32)}, exclusive=1, reverse=1),
    case("GatherElements", 11,
         {"i": np.tile(np.array([-1, 0], I64)[:, None, None, None], (1, 3, 4, 5))}),
    case("Einsum", 12, {"b": values(3, 5, 7, seed=1)}, equation="abcd,bde->aec",
         x=values(2, 3, 4, 5)),
    case("LayerNormalization", 17, {"s": values(4, 5, seed=1), "b": values(4, 5, seed=2)}, axis=2),
    case("LayerNormalization", 17, {"s": values(5, seed=1)}, epsilon=0.1),
    case("IsNaN", 9, x=np.array([1, np.nan, np.inf], np.float32)),
    case("IsInf", 10, detect_positive=0, x=np.array([1, -np.inf, np.inf], np.float32)),
    case("Mod", 13, {"b": np.array([3, -3, 3, -3], np.int32)},
         x=np.array([7, 7, -7, -7], np.int32)),
    case("Mod", 13, {"b": np.array([3, -3, 3, -3], np.int32)}, fmod=1,
         x=np.array([7, 7, -7, -7], np.int32)),
    case("Mod", 13, {"b": np.array([3, -3], np.float32)}, fmod=1,
         x=np.array([-7.5, 7.5], np.float32)),
    case("Div", 13, {"b": np.array([2, -2, 2, -2, 7], np.int32)},
         x=np.array([7, 7, -7, -7, -(2**31)], np.int32)),
    case("Div", 7, {"b": values(5, seed=4)}),
    case("Pow", 12, {"e": np.array(3, I64)}, x=np.array([-3, 2], np.int32)),
    case("Pow", 7, {"e": np.array(2, np.float32)}),
    case("Equal", 7, {"b": np.array([1, 2, 4], np.int32)}, x=np.array([1, 3, 4], np.int32)),
    case("Equal", 11, {"b": np.array([True, False])}, x=np.array([True, True])),
    case("OneHot", 9, {"depth": np.array([4], I64), "v": np.array([2, 5], np.float32)}, axis=1,
         x=np.array([[0, -1], [3, 2]], I64)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "opset", "x", "constants", "attributes"), CASES)
def test_it_computes_what_onnxruntime_does(
    kind: str, opset: int, x: Any, constants: Any, attributes: Any
) -> None:
    outputs = 2 if kind == "Split" else 1
    model = one(kind, {"x": x}, opset=opset, constants=constants, outputs=outputs, **attributes)
    agree(model, {"x": x})


def test_topk_before_opset_10() -> None:
    x = values(3, 7)
    agree(one("TopK", {"x": x}, opset=9, outputs=2, k=3, axis=-1), {"x": x})


CONV = [
    {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    {"auto_pad": "VALID"},
    {"pads": [0, 1, 2, 3], "strides": [1, 2], "dilations": [1, 2]},
    {"group": 2},
]


@pytest.mark.parametrize("attributes", CONV, ids=str)
@pytest.mark.parametrize("target", ["iOS15", "iOS18"])
def test_convolutions_pad_as_onnxruntime_does(attributes: Any, target: str) -> None:
    x, groups = values(2, 4, 9, 10), attributes.get("group", 1)
    constants = {"w": values(6, 4 // groups, 3, 2, seed=1), "b": values(6, seed=2)}
    agree(
        one("Conv", {"x": x}, opset=11, constants=constants, **attributes), {"x": x}, target=target
    )


@pytest.mark.parametrize(("rank", "kernel"), [(1, [3]), (3, [2, 3, 1])])
def test_convolutions_of_one_and_three_dimensions(rank: int, kernel: list[int]) -> None:
    x = values(1, 2, *([6] * rank))
    model = one(
        "Conv", {"x": x}, opset=11, constants={"w": values(3, 2, *kernel)}, pads=[1, 0] * rank
    )
    agree(model, {"x": x})


def test_a_weight_that_is_computed() -> None:
    feeds = {"x": values(1, 2, 5, 5), "w": values(3, 2, 3, 3), "b": values(3)}
    agree(one("Conv", feeds, opset=11), feeds)


TRANSPOSED = [
    {"strides": [2, 3]},
    {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    {"strides": [3, 3], "output_padding": [2, 1], "pads": [0, 0, 0, 0]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [3, 2], "output_shape": [14, 13]},
    {"group": 2, "dilations": [2, 1]},
]  # fmt: skip


@pytest.mark.parametrize("attributes", TRANSPOSED, ids=str)
def test_transposed_convolutions(attributes: Any) -> None:
    x, groups = values(1, 4, 5, 6), attributes.get("group", 1)
    constants = {"w": values(4, 3, 3, 2, seed=1), "b": values(3 * groups, seed=2)}
    agree(one("ConvTranspose", {"x": x}, opset=11, constants=constants, **attributes), {"x": x})
