"""Convolutions, pooling, resizing and sampling."""

from __future__ import annotations

from collections.abc import Sequence

from edge.convert.coreml_provider.rule import (
    FLOAT,
    FLOAT16,
    Params,
    constant,
    conv_limit,
    positive_axis,
    typed,
)
from edge.convert.coreml_provider.view import UNKNOWN, Node

# Activations that a FusedConv may carry, with the number of their parameters.
FUSED = {"Relu": 0, "Sigmoid": 0, "Tanh": 0, "LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}
SAME_LOWER_COREML = 6


def fused_conv(node: Node, params: Params) -> str:
    """``conv_op_builder.cc``: what ConvActivationFusion makes, without its residual sum."""
    if not params.mlprogram:
        return "only ML Programs have it"
    if len(node.inputs) > 3:
        return "input Z, the residual sum"
    if reason := typed(node, 0, (FLOAT, FLOAT16)):
        return reason
    activation = node.text("activation", "")
    given = len(node.list("activation_params") or ())
    if FUSED.get(activation) != given:
        return f"activation {activation!r} with {given} parameters"
    return ""


def conv(node: Node, params: Params) -> str:
    """``conv_op_builder.cc``: 1D or 2D, constant bias; a constant weight in NeuralNetwork."""
    if not params.mlprogram and (reason := constant(node, 1)):
        return reason
    if reason := conv_limit((node.value(1), node.value(0), node.outputs[0])):
        return reason
    if len(node.shape(1)) not in {3, 4}:
        return f"{len(node.shape(1)) - 2}D, not 1D or 2D"
    if len(node.inputs) > 2 and (reason := constant(node, 2)):
        return reason
    lower = params.mlprogram and params.coreml < SAME_LOWER_COREML
    if lower and node.text("auto_pad", "NOTSET") == "SAME_LOWER":
        return f"auto_pad SAME_LOWER, taken from Core ML {SAME_LOWER_COREML} on"
    return _kernel(node)


def _kernel(node: Node) -> str:
    said = node.list("kernel_shape")
    same = said is None or said == node.shape(1)[2:]
    return "" if same else "kernel_shape is not that of the weight"


def conv_transpose(node: Node, params: Params) -> str:
    """``convtranspose_op_builder.cc``: ML Program, constant weight and bias, equal pads."""
    if not params.mlprogram:
        return "only ML Programs have it"
    if reason := constant(node, 1) or (constant(node, 2) if len(node.inputs) > 2 else ""):
        return reason
    if reason := conv_limit((node.value(0), node.value(1))):
        return reason
    padding = node.text("auto_pad", "NOTSET")
    if padding.startswith("SAME"):
        return f"auto_pad {padding}"
    if padding == "NOTSET" and (reason := _pads_of_transpose(node)):
        return reason
    return _kernel(node) or _output_of_transpose(node)


def _pads_of_transpose(node: Node) -> str:
    """Absent pads, legal in ONNX, are read without a look whether they are there: undefined."""
    pads = node.list("pads")
    if pads is None:
        return "pads not written, which the provider reads all the same"
    return "pads differ" if len(set(pads)) > 1 else ""


def _output_of_transpose(node: Node) -> str:
    if node.list("output_shape") is not None:
        return "output_shape"
    return "output_padding" if any(node.list("output_padding") or ()) else ""


def pool(node: Node, params: Params) -> str:
    """``pool_op_builder.cc``: rank 4; no dilations, no indices; no ceil_mode in NeuralNetwork."""
    if len(node.shape()) != 4:
        return f"rank {len(node.shape())}, not 4"
    if node.kind.startswith("Global"):
        return ""
    refused = {
        "storage_order 1": node.number("storage_order", 0) == 1,
        "kernel_shape is not 2D": len(node.list("kernel_shape") or (1, 1)) != 2,
        "ceil_mode 1": not params.mlprogram and node.number("ceil_mode", 0) == 1,
        "dilations": (node.list("dilations") or (1, 1)) != (1, 1),
        "a second output, the indices": len(node.outputs) != 1,
    }
    return next((reason for reason, found in refused.items() if found), "")


def grid_sample(node: Node, _params: Params) -> str:
    """``gridsample_op_builder.cc``: rank 4, bilinear, but not reflection of unaligned corners.

    The source compares the mode with "zeros", a name of paddings, where "nearest" was meant.
    """
    if len(node.shape()) != 4:
        return f"rank {len(node.shape())}, not 4"
    mode = node.text("mode", "linear")
    if mode not in {"linear", "bilinear", "zeros"}:
        return f"mode {mode}"
    reflects = node.text("padding_mode", "zeros") == "reflection"
    unaligned = not node.number("align_corners", 0)
    return "reflection without align_corners" if reflects and unaligned and mode != "zeros" else ""


# ------------------------------------------------------------------------------------- Resize
def resize(node: Node, params: Params) -> str:
    """``resize_op_builder.cc``: the last two axes, by constant scales or sizes."""
    return _resize_attributes(node, params) or _resize_amount(node, params)


def _resize_attributes(node: Node, params: Params) -> str:
    rank = len(node.shape())
    mode = node.text("mode", "nearest")
    nearest_mode = node.text("nearest_mode", "round_prefer_floor")
    refused = {
        "a dimension of 0": 0 in node.shape(),
        f"rank {rank}": rank not in ({3, 4, 5} if params.mlprogram else {4}),
        "antialias": node.number("antialias", 0) != 0,
        f"mode {mode}": mode not in {"linear", "nearest"},
        f"nearest_mode {nearest_mode}": mode == "nearest" and nearest_mode != "floor",
        "exclude_outside": node.number("exclude_outside", 0) != 0,
        "keep_aspect_ratio_policy": node.text("keep_aspect_ratio_policy", "stretch") != "stretch",
    }
    return next((reason for reason, found in refused.items() if found), "")


def _resize_amount(node: Node, params: Params) -> str:
    shape = node.shape()
    axes = [positive_axis(axis, len(shape)) for axis in node.list("axes") or range(len(shape))]
    if node.value(3).exists:
        sizes = node.value(3).numbers()
        reason = constant(node, 3) or _sizes(shape, axes, sizes, params)
        output: tuple[float, ...] = tuple(sizes[-2:])
    elif node.value(2).exists:
        scales = node.value(2).reals()
        reason = _scales_known(node) or _scales(shape, axes, scales, params)
        output = tuple(dim * scale for dim, scale in zip(shape[-2:], scales[-2:], strict=False))
    else:
        return "neither scales nor sizes"
    return reason or _coordinates(node, params, output)


def _scales_known(node: Node) -> str:
    if UNKNOWN in node.shape()[-2:]:
        return "scales of a height or width that is dynamic"
    return constant(node, 2)


def _scales(
    shape: Sequence[int], axes: Sequence[int], scales: Sequence[float], params: Params
) -> str:
    if len(scales) < max(len(axes), 2):
        return "too few scales"  # of one axis too: the source reads two
    pairs = zip(axes, scales, strict=False)
    if any(axis < len(shape) - 2 and scale != 1.0 for axis, scale in pairs):
        return "other axes than the last two"
    last = scales[-2:]
    if all(scale >= 1.0 for scale in last):
        return "" if all(scale == round(scale) for scale in last) else "scale is no whole number"
    if any(scale > 1.0 for scale in last):
        return "one axis grows, the other shrinks"
    if not params.mlprogram:
        return "shrinks"
    whole = all(_divides(dim, scale) for dim, scale in zip(shape[-2:], last, strict=True))
    return "" if whole else "the scale's reciprocal does not divide the size"


def _divides(size: int, scale: float) -> bool:
    """``providers/utils.cc`` ReciprocalIsAFactorOfN; a scale of 1 is refused by it as well."""
    if not 0.0 < scale < 1.0:
        return False
    factor = 1.0 / scale
    return abs(factor - round(factor)) < 1e-4 and size % round(factor) == 0


def _sizes(shape: Sequence[int], axes: Sequence[int], sizes: Sequence[int], params: Params) -> str:
    if len(sizes) < max(len(axes), 1 if params.mlprogram else 2):
        return "too few sizes"
    # The source takes the dimension by the place in the list, not by the axis.
    triples = zip(axes, shape, sizes, strict=False)
    if any(axis < len(shape) - 2 and old != new for axis, old, new in triples):
        return "other axes than the last two"
    if params.mlprogram:
        return ""
    if UNKNOWN in shape:
        return "sizes for a dynamic shape"
    whole = all(new % old == 0 for old, new in zip(shape[-2:], sizes[-2:], strict=True))
    return "" if whole else "size is no multiple of the input's"


def _coordinates(node: Node, params: Params, output: Sequence[float]) -> str:
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    by_sizes = node.value(3).exists
    if not params.mlprogram or node.text("mode", "nearest") == "nearest":
        taken = {"asymmetric"}
    else:
        taken = {"half_pixel", "align_corners"} | ({"asymmetric"} if by_sizes else set())
        if len(output) == 2 and all(round(size) > 1 for size in output):
            taken.add("pytorch_half_pixel")
    return "" if mode in taken else f"coordinate_transformation_mode {mode}"
