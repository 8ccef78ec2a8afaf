"""Changes of element type."""

from __future__ import annotations

from typing import Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator
from edge.convert.onnx_to_mil.values import NARROW, NUMBERS, Value, mil_dtype, type_name


@operator("Cast", types="moved")
def cast(node: Node) -> Any:
    """To the type ``to``. To float16 nothing happens: that is the package's own precision."""
    node.attribute("saturate")
    node.attribute("round_mode")
    return _cast(node, int(node.attribute("to", 0)))


@operator("CastLike", since=15, types="moved")
def cast_like(node: Node) -> Any:
    """To the type of the second input."""
    node.attribute("saturate")
    node.attribute("round_mode")
    return _cast(node, node.value(1).type)


def _cast(node: Node, to: int) -> Value:
    held, value = mil_dtype(to), node.value(0)
    if held is None:
        node.refuse(f"MIL has no element type for {type_name(to)}")
    if to == NUMBERS["float16"] and value.type != NUMBERS["float16"]:
        node.refuse(
            "no rule for a cast to float16: it rounds, and MIL programs here compute in float32",
            "give the model in float32 and ask for the precision fp16",
        )
    if to in NARROW and value.type not in {to, NUMBERS["bool"]}:
        node.refuse(
            f"no rule for a cast to {type_name(to)}: it wraps around, MIL holds it in 32 bits",
            "cast to int32",
        )
    return Value(node.cast(node.var(), held), to)
