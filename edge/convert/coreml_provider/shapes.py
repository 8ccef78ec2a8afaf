"""Operators that move, cut and join: shapes and indices."""

from __future__ import annotations

from collections.abc import Sequence

from edge.convert.coreml_provider.rule import (
    BOOL,
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
    MOST_RANK,
    THROWS,
    Params,
    constant,
    positive_axis,
    typed,
)
from edge.convert.coreml_provider.view import UNKNOWN, Node

AXES_AS_INPUT = 13  # opset from which Squeeze, Unsqueeze and Split have them so
OUTPUTS_AS_ATTRIBUTE = 18  # opset from which Split has num_outputs
# float16 in slices and gathers is said to be there from Core ML 5 on, and is not.
FLOAT16_COREML = 6
DCR_FLOAT16_COREML = 7


def _half(params: Params) -> tuple[int, ...]:
    return (FLOAT16,) if params.mlprogram and params.coreml >= FLOAT16_COREML else ()


def concat(node: Node, params: Params) -> str:
    """``concat_op_builder.cc``: two inputs or more; NeuralNetwork: rank 4, axis -3."""
    if len(node.inputs) < 2:
        return "a single input"
    if params.mlprogram:
        return ""
    rank = len(node.shape())
    if rank != 4:
        return f"rank {rank}, not 4"
    return "" if positive_axis(node.number("axis", 1), rank) == 1 else "axis is not -3"


def reshape(node: Node, _params: Params) -> str:
    """``reshape_op_builder.cc``: a constant shape of up to 5 dimensions, a static input."""
    if reason := constant(node, 1):
        return reason
    wanted = node.value(1).numbers()
    if not node.shape():
        return "from a scalar"  # to one: a shape without elements, which no operator may have
    if not node.value(0).static:
        return "input's shape is dynamic"
    if len(wanted) > MOST_RANK:
        return f"to rank {len(wanted)}, at most {MOST_RANK}"
    return "a dimension of 0 with allowzero" if node.number("allowzero", 0) and 0 in wanted else ""


def flatten(node: Node, _params: Params) -> str:
    """``flatten_op_builder.cc``: no scalar."""
    return "" if node.shape() else "of a scalar"


def squeeze(node: Node, params: Params) -> str:
    """``squeeze_op_builder.cc``: constant axes; Unsqueeze in ML Programs, up to 5 dimensions."""
    as_input = node.since >= AXES_AS_INPUT
    if as_input and len(node.inputs) > 1 and (reason := constant(node, 1)):
        return reason
    if node.kind == "Squeeze":
        return ""
    if not params.mlprogram:
        return "only ML Programs have it"
    added = (node.shape(1) or (0,))[0] if as_input else len(node.list("axes") or ())
    rank = len(node.shape()) + added
    return f"to rank {rank}, at most {MOST_RANK}" if rank > MOST_RANK else ""


def tile_inputs(node: Node, params: Params) -> str:
    """``tile_op_builder.cc``: float, int32, int64, bool; float16 from Core ML 6 on."""
    return typed(node, 0, (FLOAT, INT32, INT64, BOOL, *_half(params)))


def tile(node: Node, params: Params) -> str:
    """``tile_op_builder.cc``: repeats of 1 and more; in NeuralNetwork constant."""
    repeats = node.value(1)
    if not repeats.constant:
        return "" if params.mlprogram else "input 1 is no constant initializer"
    counts = repeats.numbers()
    if len(counts) != len(node.shape()):
        return "as many repeats as dimensions are needed"
    return "" if all(count >= 1 for count in counts) else "a repeat below 1"


def shape_inputs(node: Node, params: Params) -> str:
    """``shape_op_builder.cc``: float; in ML Programs int32, int64, float16 too."""
    kinds = (FLOAT, INT32, INT64, FLOAT16) if params.mlprogram else (FLOAT,)
    return typed(node, 0, kinds)


def shape(node: Node, params: Params) -> str:
    """``shape_op_builder.cc``: NeuralNetwork the whole shape, ML Programs any part but none.

    An end behind the last dimension, which ONNX allows, makes it throw.
    """
    start, end = node.number("start", 0), node.attributes.get("end")
    if not params.mlprogram:
        return "start or end" if start or end is not None else ""
    rank = len(node.shape())
    bounds = (start, *((end,) if isinstance(end, int) else ()))
    if any(not -rank <= bound < rank for bound in bounds):
        return f"start or end outside the shape, {THROWS}"
    last = positive_axis(end, rank) if isinstance(end, int) else rank
    return "an empty part" if last == positive_axis(start, rank) else ""


def gather_inputs(node: Node, params: Params) -> str:
    """``gather_op_builder.cc``: float, int64; float16 from Core ML 6 on."""
    return typed(node, 0, (FLOAT, INT64, *_half(params)))


def gather(node: Node, _params: Params) -> str:
    """``gather_op_builder.cc``: an output of up to 5 dimensions; a scalar index: static, 4."""
    if reason := typed(node, 1, (INT32, INT64)):
        return reason
    data, indices = len(node.shape(0)), len(node.shape(1))
    if not indices and not node.value(0).static:
        return "scalar indices of a dynamic shape"
    if not indices and data > MOST_RANK - 1:
        return f"scalar indices of rank {data}, at most {MOST_RANK - 1}"
    rank = data + indices - 1
    return f"to rank {rank}, at most {MOST_RANK}" if rank > MOST_RANK else ""


def gather_nd_inputs(node: Node, _params: Params) -> str:
    """``gather_nd_op_builder.cc``: float, float16, int32, int64, bool."""
    kinds = (FLOAT, INT32, INT64, BOOL, FLOAT16)
    return typed(node, 0, kinds) or typed(node, 1, (INT32, INT64))


def gather_nd(node: Node, _params: Params) -> str:
    """``gather_nd_op_builder.cc``: batch_dims 0, constant indices into static dimensions."""
    if node.number("batch_dims", 0) != 0:
        return "batch_dims is not 0"
    if reason := constant(node, 1):
        return reason
    data, indices = node.shape(0), node.shape(1)
    if not indices or indices[-1] > len(data):
        return "an index is deeper than the data"
    return "indexed dimensions are dynamic" if UNKNOWN in data[: indices[-1]] else ""


def depth_to_space(node: Node, params: Params) -> str:
    """``depthtospace_op_builder.cc``: NeuralNetwork DCR; CRD static; DCR of float16 Core ML 7."""
    mode = node.text("mode", "DCR")
    if not params.mlprogram:
        return "" if mode == "DCR" else f"mode {mode}"
    if mode == "CRD" and not node.value(0).static:
        return "mode CRD of a dynamic shape"
    half = mode == "DCR" and node.value(0).dtype == FLOAT16
    old = params.coreml < DCR_FLOAT16_COREML
    return f"mode DCR of float16 before Core ML {DCR_FLOAT16_COREML}" if half and old else ""


# -------------------------------------------------------------------------------------- Slice
def slice_inputs(node: Node, params: Params) -> str:
    """``slice_op_builder.cc``: float, int64; float16 from Core ML 6 on."""
    return typed(node, 0, (FLOAT, INT64, *_half(params)))


def slice_(node: Node, _params: Params) -> str:
    """``slice_op_builder.cc``: static input, all bounds constant, nothing empty."""
    if not node.value(0).static:
        return "input's shape is dynamic"
    given = [index for index in (1, 2, 3, 4) if index < 3 or node.value(index).exists]
    reasons = (constant(node, index) for index in given)
    if reason := next((each for each in reasons if each), ""):
        return reason
    starts, ends, axes, steps = (node.value(index).numbers() for index in (1, 2, 3, 4))
    return _ranges(node.shape(), starts, ends, axes or list(range(len(starts))), steps)


def _ranges(
    dims: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int],
    steps: Sequence[int],
) -> str:
    places = [positive_axis(axis, len(dims)) for axis in axes]
    if len(set(places)) < len(places) or any(not 0 <= place < len(dims) for place in places):
        return "axes outside the input or twice"
    if 0 in steps:
        return "a step of 0"
    for number, place in enumerate(places):
        step = steps[number] if number < len(steps) else 1
        if _is_empty(dims[place], starts[number], ends[number], step):
            return "an empty part"
    return ""


def _is_empty(size: int, start: int, end: int, step: int) -> bool:
    """Bounds clamped as ``cpu/tensor/slice_helper.h`` does."""
    first, last = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return min(max(first, 0), size) >= min(max(last, 0), size)
    return min(max(first, 0), size - 1) <= min(max(last, -1), size)


# -------------------------------------------------------------------------------------- Split
def split(node: Node, _params: Params) -> str:
    """``split_op_builder.cc``: two parts or more of a known size that add up."""
    dims = node.shape()
    axis = positive_axis(node.number("axis", 0), len(dims))
    if not 0 <= axis < len(dims):
        return f"axis outside the input, {THROWS}"
    size = dims[axis]
    if node.value(1).exists:
        return constant(node, 1) or _parts(node.value(1).numbers(), size)
    said = node.list("split")
    if said is not None:
        return _parts([int(part) for part in said], size)
    if node.since >= OUTPUTS_AS_ATTRIBUTE:
        return _equal_parts_by_attribute(node, size)
    return _equal_parts(len(node.outputs), size)


def _parts(parts: Sequence[int], size: int) -> str:
    if len(parts) < 2:
        return "a single part"
    if size == UNKNOWN:
        return "size of the axis dynamic"
    if sum(parts) != size:
        return "parts do not add up"
    return "" if all(part > 0 for part in parts) else "an empty part"


def _equal_parts_by_attribute(node: Node, size: int) -> str:
    count = node.number("num_outputs", 0)
    if count < 2:
        return "num_outputs missing or below 2"
    fits = count == len(node.outputs) and count <= size
    return "" if fits else "num_outputs is not that of the node, or above the size"


def _equal_parts(count: int, size: int) -> str:
    if count < 2:
        return "a single part"
    if size == UNKNOWN:
        return "size of the axis dynamic"
    return "" if size % count == 0 else "parts are not equal"


# ---------------------------------------------------------------------------------------- Pad
def pad_inputs(node: Node, params: Params) -> str:
    """``pad_op_builder.cc``: float; in ML Programs float16 too."""
    return typed(node, 0, (FLOAT, FLOAT16) if params.mlprogram else (FLOAT,))


def pad(node: Node, params: Params) -> str:
    """``pad_op_builder.cc``: constant or reflect, known amounts.

    NeuralNetwork: constant alone, with its value given, on the last two axes; reflect the same
    axes, by less than their sizes. Axes left out by an empty name make it throw.
    """
    mode = node.text("mode", "constant")
    if mode not in (("constant", "reflect") if params.mlprogram else ("constant",)):
        return f"mode {mode}"
    rank = len(node.shape())
    if rank < (1 if params.mlprogram else 2):
        return f"rank {rank}"
    if mode == "constant" and (reason := _pad_value(node, params)):
        return reason
    if not node.value(1).initializer:
        return "input 1 is no initializer"
    if node.value(3).exists and not node.value(3).initializer:
        return "input 3 is no initializer"
    return _pad_amounts(node, last_two=mode == "reflect" or not params.mlprogram, mode=mode)


def _pad_value(node: Node, params: Params) -> str:
    value = node.value(2)
    if not value.exists:
        return "" if params.mlprogram else "no constant_value"
    if not value.initializer:
        return "input 2 is no initializer"
    return "" if params.mlprogram else typed(node, 2, (FLOAT,))


def _pad_amounts(node: Node, *, last_two: bool, mode: str) -> str:
    dims, pads = node.shape(), node.value(1).numbers()
    axes = node.value(3).numbers() if node.value(3).exists else list(range(len(dims)))
    places = [positive_axis(axis, len(dims)) for axis in axes]
    if any(amount < 0 for amount in pads):
        return "a negative pad"
    if len(node.inputs) > 3 and not node.value(3).exists:
        return f"input 3 with an empty name, {THROWS}"
    if len(pads) != 2 * len(places) or any(not 0 <= place < len(dims) for place in places):
        return "pads do not fit the axes"
    both = list(zip(places, pads, pads[len(places) :], strict=False))
    if last_two and any(place < len(dims) - 2 and (a or b) for place, a, b in both):
        return "other axes than the last two"
    wide = mode == "reflect" and any(max(a, b) >= dims[place] for place, a, b in both)
    return "reflects more than there is" if wide else ""
