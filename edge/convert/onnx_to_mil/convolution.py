"""Conv and ConvTranspose, in one to three dimensions."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.indexing import taken
from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.windows import window


@operator("Conv", types="floats")
def conv(node: Node) -> Any:
    """Pads are always written as numbers. A computed weight takes no dilations, says MIL."""
    shape = node.shape(1)
    kernel = tuple(int(n) for n in node.attribute("kernel_shape", shape[2:]))
    if kernel != shape[2:]:
        node.refuse(f"kernel_shape {kernel} is not that of the weight, {shape[2:]}")
    w = window(node, kernel)
    made = node.op(
        "conv",
        x=node.var(0),
        weight=node.var(1),
        bias=node.var(2) if node.constant(2) else None,
        strides=list(w.strides),
        pad_type="custom",
        pad=w.pads,
        dilations=list(w.dilations),
        groups=int(node.attribute("group", 1)),
    )
    return made if node.constant(2) else _with_bias(node, made)


def _with_bias(node: Node, made: Any) -> Any:
    """A bias that MIL does not take as one: it is computed, or must be added last."""
    if not node.has(2):
        return made
    bias = node.op("reshape", x=node.var(2), shape=[1, -1] + [1] * (len(made.shape) - 2))
    return node.op("add", x=made, y=bias)


@operator("ConvTranspose", types="floats")
def conv_transpose(node: Node) -> Any:
    """The whole result without pads; then what pads cut off and output_padding adds.

    MIL's own ``pad`` and ``output_shape`` leave open where a remainder goes.
    """
    shape = node.shape(1)
    count = len(shape) - 2
    if not 1 <= count <= 3:
        node.refuse(f"no rule for {count} spatial dimensions")
    node.array(1, "the weight")
    strides = [int(n) for n in node.attribute("strides", [1] * count)]
    dilations = [int(n) for n in node.attribute("dilations", [1] * count)]
    if tuple(node.attribute("kernel_shape", shape[2:])) != shape[2:]:
        node.refuse("kernel_shape is not that of the weight")
    reach = [(k - 1) * d + 1 for k, d in zip(shape[2:], dilations, strict=True)]
    before, sizes = _kept(node, strides, reach)
    # Elements that output_padding adds where no input reaches hold the bias alone.
    whole = _whole(node, strides, reach)
    inside = all(b + s <= w for b, s, w in zip(before, sizes, whole, strict=True))
    made = node.op(
        "conv_transpose",
        x=node.var(0),
        weight=node.var(1),
        strides=strides,
        pad_type="valid",
        dilations=dilations,
        groups=int(node.attribute("group", 1)),
        bias=node.var(2) if inside and node.constant(2) else None,
    )
    framed = _framed(node, made, before, sizes)
    return framed if inside and node.constant(2) else _with_bias(node, framed)


def _whole(node: Node, strides: list[int], reach: list[int]) -> list[int]:
    sizes = node.shape()[2:]
    return [(size - 1) * s + r for size, s, r in zip(sizes, strides, reach, strict=True)]


def _kept(node: Node, strides: list[int], reach: list[int]) -> tuple[list[int], list[int]]:
    """What is cut off before, and how many elements stay, for each spatial dimension."""
    count = len(strides)
    extra = [int(n) for n in node.attribute("output_padding", [0] * count)]
    whole = _whole(node, strides, reach)
    mode, pads = node.attribute("auto_pad", "NOTSET"), node.attribute("pads", [0] * (2 * count))
    asked = node.attribute("output_shape")
    if asked is not None:
        wanted = [int(n) for n in asked][-count:]
    elif mode in {"SAME_UPPER", "SAME_LOWER"}:
        wanted = [size * s for size, s in zip(node.shape()[2:], strides, strict=True)]
    elif mode in {"NOTSET", "VALID"}:
        given = [int(n) for n in pads] if mode == "NOTSET" else [0] * (2 * count)
        kept = [
            w + e - given[place] - given[place + count]
            for place, (w, e) in enumerate(zip(whole, extra, strict=True))
        ]
        return given[:count], kept
    else:
        node.refuse(f"no rule for auto_pad = {mode!r}")
    # Where more is asked for than the kernel reaches, zeros follow, as with output_padding.
    totals = [max(0, w + e - n) for w, e, n in zip(whole, extra, wanted, strict=True)]
    upper = mode == "SAME_UPPER"
    return [total // 2 if upper else total - total // 2 for total in totals], wanted


def _framed(node: Node, whole: Any, before: list[int], sizes: list[int]) -> Any:
    pads = [0] * (2 * len(sizes))
    for place, (start, size) in enumerate(zip(before, sizes, strict=True)):
        axis = place + 2
        stop = min(int(whole.shape[axis]), start + size)
        whole = taken(node, whole, axis, range(start, stop))
        pads[2 * place + 1] = start + size - stop
    return (
        node.op("pad", x=whole, pad=pads, mode="constant", constant_val=0.0) if any(pads) else whole
    )
