"""Padding of convolutions and pools: ONNX's words for it as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from edge.convert.onnx_to_mil.node import Node


@dataclass(frozen=True)
class Window:
    """Kernel, strides, dilations, and pads before and after, for each spatial dimension."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def pads(self) -> list[int]:
        """As MIL has them: before and after of the first dimension, then of the next."""
        return [size for pair in zip(self.before, self.after, strict=True) for size in pair]

    @property
    def reach(self) -> tuple[int, ...]:
        """Elements that the dilated kernel spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def window(node: Node, kernel: tuple[int, ...]) -> Window:
    """The window of a Conv or pool over the first input. SAME pads for ceil(size / stride)."""
    sizes = node.shape()[2:]
    count = len(sizes)
    if not 1 <= count <= 3 or len(kernel) != count:
        node.refuse(f"no rule for {count} spatial dimensions with a kernel of {len(kernel)}")
    strides = tuple(int(n) for n in node.attribute("strides", [1] * count))
    dilations = tuple(int(n) for n in node.attribute("dilations", [1] * count))
    mode = node.attribute("auto_pad", "NOTSET")
    pads = [int(n) for n in node.attribute("pads", [0] * (2 * count))]
    plain = Window(kernel, strides, dilations, (0,) * count, (0,) * count)
    if mode == "NOTSET":
        if min(pads) < 0:
            node.refuse("negative pads")
        return Window(kernel, strides, dilations, tuple(pads[:count]), tuple(pads[count:]))
    if mode == "VALID":
        return plain
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        node.refuse(f"no rule for auto_pad = {mode!r}")
    totals = [
        max(0, (-(-size // stride) - 1) * stride + reach - size)
        for size, stride, reach in zip(sizes, strides, plain.reach, strict=True)
    ]
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Window(kernel, strides, dilations, before, after)
