"""Compute what is known: a node whose inputs are constants, by ONNX's reference evaluator.

It is the specification's own code, so a constant is what ONNX says, on every machine.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import onnx

    from edge.convert.onnx_to_mil.values import Array

NEVER = frozenset(
    [
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
        "Loop",
        "Scan",
        "If",
        "SequenceMap",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceInsert",
        "SequenceErase",
        "SplitToSequence",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
    ]
)
# Elements that one folded node may make: a few bytes of a file can ask for terabytes.
LIMIT = 2**28
# What the evaluator's operators raise for what they do not take.
REFUSALS = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, AssertionError,
            ArithmeticError, ImportError)  # fmt: skip


def foldable(proto: onnx.NodeProto) -> bool:
    """Whether the operator always gives the same for the same inputs."""
    return proto.op_type not in NEVER and not any(each.HasField("g") for each in proto.attribute)


def fold(
    proto: onnx.NodeProto, opsets: dict[str, int], inputs: list[Array | None], title: str
) -> list[Array]:
    """Outputs of a node. Raises :class:`errors.ModelRefused` where it cannot be computed."""
    import numpy as np

    if _asked(proto.op_type, inputs) > LIMIT:
        raise errors.ModelRefused(f"{title}: a constant of more than {LIMIT} elements")
    try:
        with np.errstate(all="ignore"):
            found = _evaluated(proto, opsets, inputs)
    except REFUSALS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise errors.ModelRefused(f"{title}: cannot be computed: {reason}") from error
    return [np.asarray(each) for each in found]


def _evaluated(
    proto: onnx.NodeProto, opsets: dict[str, int], inputs: list[Array | None]
) -> list[Any]:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = list(dict.fromkeys(name for name in proto.input if name))
    outputs = [name for name in proto.output if name]
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    body = helper.make_function("edge", "folded", names, outputs, [proto], imports)
    given = {n: array for n, array in zip(proto.input, inputs, strict=True) if n}
    found = ReferenceEvaluator(body).run(None, given, {})
    by_name = dict(zip(outputs, found, strict=True))
    return [by_name.get(name) for name in proto.output]


def _asked(kind: str, inputs: list[Array | None]) -> int:
    """How many elements the inputs ask for, where they say so by value."""
    arrays = [array for array in inputs if array is not None]
    if kind == "ConstantOfShape" and arrays:
        return prod(_sizes(arrays[0]))
    if kind in {"Expand", "Tile"} and len(arrays) == 2:
        return arrays[0].size * prod(max(1, size) for size in _sizes(arrays[1]))
    if kind == "Range" and len(arrays) == 3:
        start, stop, step = (float(array.reshape(-1)[0]) for array in arrays)
        return abs(int((stop - start) / step)) if step else 0
    if kind == "Pad" and len(arrays) > 1:
        pads = _sizes(arrays[1])
        added = (1 + max(0, front, back) * 2 for front, back in zip(*_halves(pads), strict=True))
        return arrays[0].size * min(prod(added), LIMIT + 1) if max(pads, default=0) > 1024 else 0
    if kind == "OneHot" and len(arrays) == 3:
        return arrays[0].size * max(1, _sizes(arrays[1])[0])
    return 0


def _sizes(array: Array) -> list[int]:
    return [int(size) for size in array.reshape(-1)]


def _halves(values: list[int]) -> tuple[list[int], list[int]]:
    middle = len(values) // 2
    return values[:middle], values[middle : middle * 2]
