"""Smallest nodes that the provider takes, by source file."""

from __future__ import annotations

from edge.convert.coreml_provider.rule import Params
from tests.convert.coreml_provider.cases import (
    ML,
    NN,
    OLD,
    OLD_NN,
    SIX,
    STATIC,
    One,
    fused,
    ints,
    one,
    ones,
    real,
    scales,
)

X = "f32 1x4x8x8"
W = ones(4, 4, 3, 3)

TAKEN: list[tuple[One, Params]] = [
    # base_op_builder.cc, helper.cc
    (one("Relu", "f32 ?x4"), ML),
    (one("Relu", "f32 1x4"), STATIC),
    (one("Relu", "f32 1x1x1x1x4"), ML),
    (one("Relu", "f32 16385"), ML),
    (one("Relu", "f16 4"), ML),
    (one("Relu", "f32 4", opset=6), ML),
    (one("Sqrt", "f32 4", opset=26), ML),
    (one("Add", "i64 4", "i64 4"), ML),
    # activation_op_builder.cc
    *[(one(kind, "f32 4"), NN) for kind in ("Sigmoid", "Tanh", "Relu", "LeakyRelu")],
    *[(one(kind, "f32 4"), ML) for kind in ("Gelu", "Elu", "Softplus")],
    (one("Softplus", "f32 4", opset=1), ML),
    (one("HardSigmoid", "f32 4"), NN),
    (one("HardSigmoid", "f16 4"), ML),
    (one("PRelu", X, ones(4, 1, 1)), NN),
    (one("PRelu", X, ones(1)), ML),
    (one("PRelu", "f32 4x8x8", ones(4, 1, 1)), ML),
    (one("PRelu", "f32 1x1x8x8", ones(4, 1, 1)), ML),
    # quick_gelu_op_builder.cc
    (One("QuickGelu", ("f32 4",), {"alpha": 1.702}, domain="com.microsoft"), ML),
    # unary_op_builder.cc
    *[(one(kind, "f32 4"), ML) for kind in ("Erf", "Round", "Exp", "Sin", "Cos", "Ceil")],
    *[(one(kind, "f32 4"), NN) for kind in ("Reciprocal", "Sqrt")],
    # binary_op_builder.cc
    *[(one(kind, "f32 4", "f32 4"), NN) for kind in ("Add", "Sub", "Mul", "Div", "Pow")],
    (one("Max", "f32 4", "f32 4", "f32 4"), ML),
    (one("Max", "f32 4", "f16 4"), ML),
    (one("Pow", "f16 4", "f16 4"), ML),
    # logical_op_builder.cc, where_op_builder.cc
    (one("And", "bool 4", "bool 4"), ML),
    (one("Where", "bool 4", "f32 4", "f32 4"), ML),
    (one("Where", "bool 4", "f16 4", "f16 4"), ML),
    # cast_op_builder.cc
    (one("Cast", "bool 4", to=1), ML),
    (one("Cast", "f32 4", to=9), ML),
    (one("Cast", "i32 4", to=10), ML),
    (one("Cast", "i64 4", to=6), ML),
    # clip_op_builder.cc
    (one("Clip", "f32 4", real(0), real(6)), NN),
    (one("Clip", "f32 4", None, real(6)), ML),
    (one("Clip", "f16 4", real(0).astype("f2")), ML),
    (one("Clip", "f32 4"), ML),
    (one("Clip", "f32 4", opset=6, min=0.0, max=6.0), ML),
    # identity_op_builder.cc, transpose_op_builder.cc
    (one("Identity", "f32 4"), NN),
    (one("Transpose", "f32 4x4"), NN),
    # conv_op_builder.cc
    (one("Conv", X, W), NN),
    (one("Conv", "f32 1x4x8", ones(4, 4, 3), ones(4), kernel_shape=[3]), ML),
    (one("Conv", X, "f32 4x4x3x3"), ML),
    (one("Conv", X, W), OLD),
    (one("Conv", "f32 1x1x16384", ones(1, 1, 1)), ML),
    (one("Conv", X, W, auto_pad="SAME_LOWER"), SIX),
    (one("Conv", X, W, auto_pad="SAME_LOWER"), OLD_NN),
    (one("Conv", X, W, auto_pad="SAME_LOWER"), ML),
    (one("Conv", X, W, auto_pad="SAME_LOWER"), NN),
    *[
        (fused(X, W, activation=name, activation_params=[0.5] * count), ML)
        for name, count in (("LeakyRelu", 1), ("Clip", 2), ("HardSigmoid", 2))
    ],
    *[(fused(X, W, ones(4), activation=name), ML) for name in ("Relu", "Sigmoid", "Tanh")],
    (fused("f16 1x4x8x8", W.astype("f2"), activation="Relu"), ML),
    # convtranspose_op_builder.cc
    (one("ConvTranspose", X, W, ones(4), pads=[1, 1, 1, 1], output_padding=[0, 0]), ML),
    (one("ConvTranspose", X, W, auto_pad="VALID", kernel_shape=[3, 3]), ML),
    # pool_op_builder.cc
    *[(one(kind, X), NN) for kind in ("GlobalAveragePool", "GlobalMaxPool")],
    *[(one(kind, X, kernel_shape=[2, 2]), NN) for kind in ("AveragePool", "MaxPool")],
    # Attributes that ONNX does not have there, or requires, are not looked at.
    (one("GlobalMaxPool", X, storage_order=1), ML),
    (one("MaxPool", X), ML),
    (one("MaxPool", X, kernel_shape=[2, 2], ceil_mode=1), ML),
    # gridsample_op_builder.cc
    (one("GridSample", X, "f32 1x8x8x2", mode="linear"), ML),
    (one("GridSample", X, "f32 1x8x8x2", padding_mode="reflection", align_corners=1), ML),
    (one("GridSample", X, "f32 1x8x8x2", mode="bilinear", opset=16), ML),
    (one("GridSample", X, "f32 1x8x8x2", mode="zeros", padding_mode="reflection"), ML),
    # resize_op_builder.cc
    (
        one(
            "Resize",
            X,
            None,
            ones(4),
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        NN,
    ),
    *[
        (one("Resize", port, None, scales(*[1] * rank, 2, 2), mode="linear"), ML)
        for port, rank in (("f32 4x8x8", 1), ("f32 1x1x4x8x8", 3), ("f32 1x?x8x8", 2))
    ],
    (one("Resize", X, None, scales(1, 2), axes=[1, 3], mode="linear"), ML),
    (one("Resize", X, None, None, ints(16), axes=[3], mode="linear"), ML),
    (one("Resize", X, None, None, ints(16, 16), axes=[3, 2], mode="linear"), ML),
    *[
        (
            one(
                "Resize",
                X,
                None,
                None,
                ints(1, 4, 2, 16),
                mode="linear",
                coordinate_transformation_mode=mode,
            ),
            ML,
        )
        for mode in ("align_corners", "asymmetric", "pytorch_half_pixel")
    ],
    *[
        (
            one(
                "Resize",
                port,
                *amount,
                mode="linear",
                coordinate_transformation_mode="pytorch_half_pixel",
            ),
            ML,
        )
        for port, amount in (
            ("f32 1x1x8x8", (None, None, ints(1, 1, 16, 16))),
            ("f32 1x1x8x8", (None, scales(1, 1, 1, 2))),
            ("f32 1x1x1x8", (None, scales(1, 1, 2, 2))),
        )
    ],
    (one("Resize", X, None, scales(1, 1, 2, 2), mode="linear"), ML),
    (one("Resize", X, None, scales(1, 1, 0.5, 0.25), mode="linear"), ML),
    (one("Resize", X, None, scales(1, 1, 0.5, 0.125), mode="linear"), ML),
    (
        one(
            "Resize",
            X,
            None,
            None,
            ints(16, 16),
            axes=[2, 3],
            mode="linear",
            coordinate_transformation_mode="asymmetric",
        ),
        NN,
    ),
    (one("Resize", X, None, None, ints(1, 4, 5, 7), mode="linear"), ML),
    (one("Resize", X, None, ones(2) * 2, axes=[2, 3], mode="linear"), ML),
    (
        one(
            "Resize",
            X,
            None,
            None,
            ints(1, 4, 16, 16),
            mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel",
        ),
        ML,
    ),
    (
        one(
            "Resize",
            X,
            None,
            None,
            ints(1, 4, 16, 16),
            mode="linear",
            coordinate_transformation_mode="asymmetric",
        ),
        NN,
    ),
    # gemm_op_builder.cc
    (one("MatMul", "f32 2x4", "f32 4x2"), ML),
    (one("MatMul", "f32 2x2x4", "f32 4x2"), ML),
    (one("MatMul", "f32 4", "f32 4"), ML),
    (one("MatMul", "f32 2x4", ones(4, 2)), NN),
    (one("Gemm", "f32 2x4", ones(4, 3), ones(3)), NN),
    (one("Gemm", "f32 2x4", ones(3, 4), ones(1, 3), transB=1), ML),
    (one("Gemm", "f32 2x4", ones(4, 3), ones(1)), NN),
    (one("Gemm", "f32 2x4", ones(4, 1)), ML),
    (one("Gemm", "f32 2x4", ones(4, 3), real(1)), ML),
    # normalization_op_builder.cc, batch_norm_op_builder.cc, LRN_op_builder.cc
    (one("LayerNormalization", "f32 2x4", ones(4), ones(4)), ML),
    (one("LayerNormalization", "f16 4", ones(4, dtype="f2")), ML),
    (one("InstanceNormalization", X, ones(4), ones(4), stash_type=0), ML),
    (one("InstanceNormalization", X, ones(4), ones(4)), ML),
    (one("GroupNormalization", X, ones(4), ones(4), num_groups=2), ML),
    (one("BatchNormalization", X, *[ones(4)] * 4), NN),
    (one("LRN", "f32 4x8x8", size=3), NN),
    (one("LRN", X, size=3), NN),
    # reduction_op_builder.cc
    *[(one(f"Reduce{kind}", "f32 4", ints(0)), ML) for kind in ("Max", "Mean", "Min", "Prod")],
    *[(one(f"Reduce{kind}", "f32 4"), NN) for kind in ("Sum", "Mean")],
    (one("ReduceSum", "f32 4", noop_with_empty_axes=1), ML),
    # argmax_op_builder.cc, softmax_op_builder.cc
    (one("ArgMax", "f32 4"), NN),
    (one("Softmax", "f32 ?x4"), NN),
    (one("Softmax", "f32 2x4", opset=11), ML),
    # concat_op_builder.cc, flatten_op_builder.cc, depthtospace_op_builder.cc
    (one("Concat", "f32 4", "f32 4", axis=0), ML),
    (one("Concat", X, X, axis=1), NN),
    (one("Concat", X, X, opset=1), NN),
    (one("Concat", X, X, axis=-3), NN),
    (one("Flatten", X), NN),
    (one("DepthToSpace", X, blocksize=2), NN),
    (one("DepthToSpace", X, blocksize=2, mode="CRD"), ML),
    (one("DepthToSpace", "f16 1x4x8x8", blocksize=2), ML),
    (one("DepthToSpace", "f32 1x4x?x8", blocksize=2), OLD),
    (one("DepthToSpace", "f16 1x4x8x8", blocksize=2, mode="CRD"), OLD),
    # gather_op_builder.cc, gather_nd_op_builder.cc
    (one("Gather", "f32 4x4", "i64 2"), NN),
    (one("Gather", "i64 4x4", ints(0)), ML),
    (one("Gather", "f32 1x1x4x4", "i32 "), NN),
    (one("Gather", "f16 4", "i64 2"), ML),
    (one("Gather", "f16 ?", "i64 2"), SIX),
    (one("Gather", "f32 1x1x1x4x4", "i64 2"), ML),
    (one("GatherND", "f16 4", ints(0).reshape(1, 1)), ML),
    (one("GatherND", "i32 4", ints(0).reshape(1, 1).astype("i4")), ML),
    (one("GatherND", "i64 4x4", ints(0, 0).reshape(1, 2)), ML),
    (one("GatherND", "f32 4", ints(0)), ML),
    (one("GatherND", "bool 4x?", ints(0).reshape(1, 1)), ML),
    # reshape_op_builder.cc, squeeze_op_builder.cc
    (one("Reshape", "f32 4x4", ints(2, -1)), NN),
    (one("Reshape", "f32 4x4", ints(0, 0)), ML),
    (one("Reshape", "f32 4", ints(1, 1, 1, 1, 4)), ML),
    (one("Reshape", "f32 4", ints(2, 2), allowzero=1), ML),
    (one("Squeeze", "f32 1x4"), NN),
    (one("Squeeze", "f32 1x4", ints(0)), NN),
    (one("Squeeze", "f32 1x4", opset=11), NN),
    (one("Unsqueeze", "f32 4", ints(0)), ML),
    (one("Unsqueeze", "f32 1x1x1x4", ints(0)), ML),
    (one("Unsqueeze", "f32 4", opset=11, axes=[0]), ML),
    # tile_op_builder.cc
    (one("Tile", "i32 4", ints(2)), NN),
    (one("Tile", "i64 4", ints(1)), ML),
    (one("Tile", "f16 4", "i64 1"), SIX),
    (one("Tile", "bool 4", "i64 1"), ML),
    # shape_op_builder.cc
    (one("Shape", "f32 ?x4"), NN),
    (one("Shape", "i32 4"), ML),
    (one("Shape", "f32 1x4", start=-2), ML),
    (one("Shape", "i64 1x4", start=1), ML),
    (one("Shape", "f16 1x4", end=-1), ML),
    # slice_op_builder.cc
    (one("Slice", "f32 4", ints(0), ints(2)), NN),
    (one("Slice", "i64 4x4", ints(-1), ints(-9), ints(1), ints(-1)), NN),
    (one("Slice", "f32 1x4", ints(1), ints(3), ints(1)), ML),
    (one("Slice", "f32 4", ints(0), ints(1)), ML),
    (one("Slice", "f32 4", ints(0), ints(-2)), ML),
    (one("Slice", "f32 4", ints(-9), ints(-9), ints(0), ints(-1)), ML),
    (one("Slice", "f32 4", ints(9), ints(2), ints(0), ints(-1)), ML),
    (one("Slice", "f16 4", ints(0), ints(2)), ML),
    # split_op_builder.cc
    (one("Split", "f32 4", ints(1, 3), outputs=2), NN),
    (one("Split", "f32 ?x4", axis=-1, num_outputs=2, outputs=2), ML),
    (one("Split", "f32 2", num_outputs=2, outputs=2), ML),
    (one("Split", "f32 5", num_outputs=2, outputs=2), ML),
    (one("Split", "f32 4", outputs=2, opset=13), ML),
    (one("Split", "f32 4", outputs=2, opset=11, split=[1, 3]), ML),
    # pad_op_builder.cc
    (one("Pad", "f32 4x4", ints(0, 1, 0, 1), real(0)), NN),
    (one("Pad", "f16 4x4x4", ints(1, 1, 1, 1, 1, 1)), ML),
    (one("Pad", "f32 4", ints(1, 1)), ML),
    (one("Pad", "f32 4x4", ints(0, 9, 0, 9)), ML),
    (one("Pad", "f16 4x4", ints(0, 1, 0, 1), real(0).astype("f2")), ML),
    (one("Pad", "f32 4x4x4", ints(0, 1, 1, 0, 1, 1), real(0)), NN),
    (one("Pad", "f32 4x4", ints(0, 1, 0, 1), "f32 ", mode="reflect"), ML),
    (one("Pad", "f32 4x4", ints(1, 1), None, ints(-1), mode="reflect"), ML),
]
