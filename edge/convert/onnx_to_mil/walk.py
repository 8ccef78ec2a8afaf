"""Walk an ONNX graph: fold what is known, convert what is not, take the one branch that is."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert.onnx_to_mil import definitions, folding, registry
from edge.convert.onnx_to_mil.emit import REFUSALS, Emitter
from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.values import (
    BOOL,
    FLOATS,
    NARROW,
    WHOLE,
    Value,
    constant,
    type_name,
)

if TYPE_CHECKING:
    import onnx

Scope = MutableMapping[str, Value]
TAKEN = {"floats": FLOATS, "numbers": FLOATS | WHOLE | BOOL,
         "moved": FLOATS | WHOLE | BOOL | NARROW}  # fmt: skip
DOMAINS = ("", "ai.onnx")
DEPTH = 32  # of subgraphs and definitions in each other


class Walker:
    """Converts nodes in order; ``counts`` says how many of which operator became MIL."""

    def __init__(self, emitter: Emitter, opsets: dict[str, int]) -> None:
        self._emitter, self._opsets = emitter, opsets
        self._depth = 0
        self.counts: dict[str, int] = {}
        self.folded = 0

    def run(self, nodes: Iterable[onnx.NodeProto], scope: Scope) -> None:
        """Convert ``nodes``; their outputs are added to ``scope``."""
        self._depth += 1
        if self._depth > DEPTH:
            raise errors.ModelRefused(f"subgraphs are nested more than {DEPTH} deep")
        for proto in nodes:
            made = self._node(proto, scope)
            for name, value in zip(proto.output, made, strict=False):
                if name and value is not None:
                    scope[name] = value
        self._depth -= 1

    def _node(self, proto: onnx.NodeProto, scope: Scope) -> list[Value | None]:
        opset = self._opsets.get(proto.domain if proto.domain not in DOMAINS else "", 0)
        inputs = [_lookup(scope, name, proto) if name else None for name in proto.input]
        node = Node(proto, opset, inputs, _attributes(proto), self._emitter)
        if proto.domain not in DOMAINS:
            node.refuse("Core ML has no such operator", "export with ONNX's own operators")
        if proto.op_type == "If":
            return self._branch(node, proto, scope)
        if folding.foldable(proto) and all(each is None or each.constant for each in inputs):
            return self._folded(node, inputs)
        found = registry.find(proto.op_type, opset)
        if found is None:
            return self._defined(node, inputs)
        return self._converted(node, found)

    # ------------------------------------------------------------------------------ one node
    def _folded(self, node: Node, inputs: list[Value | None]) -> list[Value | None]:
        self.folded += 1
        arrays = [None if each is None else each.data for each in inputs]
        made = folding.fold(node.proto, self._opsets, arrays, node.title)
        return [constant(array) for array in made]

    def _branch(self, node: Node, proto: onnx.NodeProto, scope: Scope) -> list[Value | None]:
        """The branch that the constant condition takes, in the place of the If."""
        condition = node.array(0, "the condition of If")
        name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        branch = next(each.g for each in proto.attribute if each.name == name)
        inner: Scope = ChainMap({}, scope)
        for tensor in branch.initializer:
            inner[tensor.name] = initializer(tensor)
        self.run(branch.node, inner)
        return [_lookup(inner, output.name, proto) for output in branch.output]

    def _defined(self, node: Node, inputs: list[Value | None]) -> list[Value | None]:
        """An operator without a function here, by ONNX's own definition of it."""
        body = definitions.body(node.proto, node.opset, inputs)
        if body is None:
            node.refuse("no rule for this operator", "replace it, or take another target")
        inner: Scope = {}
        for name, value in zip(body.inputs, inputs, strict=False):
            if value is not None:
                inner[name] = value
        before, self._opsets = self._opsets, {**self._opsets, **body.opsets}
        self.run(body.nodes, inner)
        self._opsets = before
        return [inner.get(name) for name in body.outputs]

    def _converted(self, node: Node, found: registry.Operator) -> list[Value | None]:
        self._check_types(node, found)
        try:
            made = found.function(node)
        except REFUSALS as error:  # shapes that do not fit each other: no checker looks at them
            text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            node.refuse(f"it is malformed: {text}")
        if unread := node.unread():
            node.refuse(f"no rule for attribute {', '.join(unread)}")
        self.counts[node.kind] = self.counts.get(node.kind, 0) + 1
        results = list(made) if isinstance(made, list | tuple) else [made]
        types = definitions.output_types(node.proto, node.opset, node.inputs)
        return [
            None if each is None else self._value(each, types[min(place, len(types) - 1)])
            for place, each in enumerate(results)
        ]

    def _value(self, made: Any, kind: int | None) -> Value:
        import numpy as np

        if isinstance(made, Value):
            return made
        if isinstance(made, np.ndarray | np.generic):
            return constant(made)
        own = {"fp32": 1, "int32": 7, "bool": 9}[self._emitter.dtype(made)]
        return Value(made, own if kind is None else kind)

    def _check_types(self, node: Node, found: registry.Operator) -> None:
        given = [each for each in node.inputs if each is not None]
        asked = given[:1] if found.types == "floats" else given
        for each in asked:
            if each.type not in TAKEN[found.types]:
                wrong = type_name(each.type)
                node.refuse(
                    f"no rule for {wrong}: MIL does not compute as ONNX does with that type",
                    "cast to float32 or int32 before it",
                )


def initializer(tensor: onnx.TensorProto) -> Value:
    """A stored tensor as a constant."""
    from onnx import numpy_helper

    return Value(numpy_helper.to_array(tensor), tensor.data_type)


def _lookup(scope: Scope, name: str, proto: onnx.NodeProto) -> Value:
    try:
        return scope[name]
    except KeyError:
        raise errors.ModelRefused(
            f"node {proto.name!r} ({proto.op_type}) reads {name!r}, which nothing computes"
        ) from None


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    return {each.name: helper.get_attribute_value(each) for each in proto.attribute}
