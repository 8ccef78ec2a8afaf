"""The same bytes for the same model, whatever process converted it.

tf2onnx goes through sets of strings, so the order of nodes, the numbers in names and which of two
equal nodes survives change with Python's hash seed. Here the order and the names follow from the
graph alone: nodes in the order in which the outputs need them, names from the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx


def canonical(model: onnx.ModelProto, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    """``model`` in canonical order and names; its inputs and outputs get the names given.

    Nodes that no output needs are left out. Initializers keep their values, value_info is left
    to shape inference, documentation strings and unused operator sets go.
    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    names = _Names([*inputs, *outputs])
    names.given = {value.name: name for value, name in zip(graph.input, inputs, strict=True)}
    _drop_identities(graph)
    names.given |= {value.name: name for value, name in zip(graph.output, outputs, strict=True)}
    _order(graph)
    _rename(graph, names)
    graph.name = "model"
    graph.ClearField("doc_string")
    made.ClearField("doc_string")
    used = {node.domain for each in graphs(graph) for node in each.node} | {""}
    kept = sorted((e for e in made.opset_import if e.domain in used), key=lambda e: e.domain)
    del made.opset_import[:]
    made.opset_import.extend(kept)
    return made


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all its subgraphs."""
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        yield found
        for node in found.node:
            waiting += subgraphs(node)


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The bodies of If, Loop and Scan, in the order of the attributes' names."""
    found = []
    for attribute in sorted(node.attribute, key=lambda each: each.name):
        if attribute.HasField("g"):
            found.append(attribute.g)
        found += attribute.graphs
    return found


class _Names:
    """New names for old ones, each given once, never one of the reserved."""

    def __init__(self, reserved: list[str]) -> None:
        self.given: dict[str, str] = {}
        self.count: dict[str, int] = {}
        self.reserved = set(reserved)

    def make(self, base: str) -> str:
        """``base_0``, ``base_1`` ..."""
        while True:
            number = self.count.get(base, 0)
            self.count[base] = number + 1
            name = f"{base}_{number}"
            if name not in self.reserved:
                return name

    def value(self, old: str, base: str) -> str:
        """The new name of a value that is produced here; an absent one ("") stays absent."""
        if old and old not in self.given:
            self.given[old] = self.make(base)
        return self.given.get(old, old)


def _drop_identities(graph: onnx.GraphProto) -> None:
    """Read what an Identity read: which of two names for one value is used must not matter.

    Every output then has a node of its own in its graph, where it is an input, a constant or
    another output too. Bodies may hand their inputs on.
    """
    source = {
        node.output[0]: node.input[0]
        for each in graphs(graph)
        for node in each.node
        if node.op_type == "Identity" and node.domain == ""
    }
    for each in graphs(graph):
        for node in each.node:
            for position, name in enumerate(node.input):
                node.input[position] = _origin(name, source)
        _own_outputs(each, source, may_pass=each is not graph)


def _origin(name: str, source: Mapping[str, str]) -> str:
    while name in source:
        name = source[name]
    return name


def _own_outputs(graph: onnx.GraphProto, source: Mapping[str, str], *, may_pass: bool) -> None:
    produced = {name for node in graph.node for name in node.output}
    passing = {value.name for value in graph.input} if may_pass else set()
    for number, value in enumerate(graph.output):
        name = _origin(value.name, source)
        if name in produced or name in passing:
            produced.discard(name)
            passing.discard(name)
            value.name = name
        else:
            node = graph.node.add(op_type="Identity", input=[name])
            value.name = f"{name}/own_{number}"
            node.output.append(value.name)


# Order


def _order(graph: onnx.GraphProto) -> list[str]:
    """Sort nodes and initializers by need, in subgraphs too; the names needed from outside."""
    needs = [
        [*node.input, *(name for body in subgraphs(node) for name in _order(body))]
        for node in graph.node
    ]
    producer = {name: n for n, node in enumerate(graph.node) for name in node.output if name}
    order, used = _needed([value.name for value in graph.output], producer, needs)
    values = {tensor.name: tensor for tensor in graph.initializer}
    own = {*producer, *values, *(value.name for value in graph.input)}
    _replace(graph, "node", [graph.node[n] for n in order])
    _replace(graph, "initializer", [values[name] for name in used if name in values])
    graph.ClearField("value_info")
    return [name for name in used if name not in own]


def _replace(message: Any, field: str, content: list[Any]) -> None:
    copies = [type(each).FromString(each.SerializeToString()) for each in content]
    message.ClearField(field)
    getattr(message, field).extend(copies)


def _needed(
    outputs: list[str], producer: Mapping[str, int], needs: list[list[str]]
) -> tuple[list[int], list[str]]:
    """Nodes in depth-first order from the outputs, and all names in the order of first use."""
    order: list[int] = []
    used: dict[str, None] = {}
    entered: set[int] = set()
    # A name that is needed, or a node whose needs are met.
    waiting: list[str | int] = list(reversed(outputs))
    while waiting:
        item = waiting.pop()
        if isinstance(item, int):
            order.append(item)
            continue
        used.setdefault(item)
        node = producer.get(item)
        if node is not None and node not in entered:
            entered.add(node)
            waiting += [node, *reversed([name for name in needs[node] if name])]
    return order, list(used)


# Names


def _rename(graph: onnx.GraphProto, names: _Names) -> None:
    for value in graph.input:
        value.name = names.value(value.name, "input")
        _forget_unknown(value)
    for tensor in graph.initializer:
        tensor.name = names.value(tensor.name, "constant")
        tensor.ClearField("doc_string")
    for node in graph.node:
        _rename_node(node, names)
    for value in graph.output:
        value.name = names.given.get(value.name, value.name)
        _forget_unknown(value)


def _forget_unknown(value: onnx.ValueInfoProto) -> None:
    """tf2onnx numbers unknown dimensions (unk__12) through the whole process."""
    value.ClearField("doc_string")
    for dim in value.type.tensor_type.shape.dim:
        if dim.HasField("dim_param"):
            dim.ClearField("dim_param")


def _rename_node(node: onnx.NodeProto, names: _Names) -> None:
    node.name = names.make(node.op_type)
    node.ClearField("doc_string")
    if not node.domain:
        node.ClearField("domain")  # set to "" on some nodes, not set on others
    for position, name in enumerate(node.input):
        # Not there: an optional input, or a value that nothing makes (ONNX Runtime will say so).
        node.input[position] = names.given.get(name, name)
    for body in subgraphs(node):
        body.name = f"{node.name}_body"
        _rename(body, names)
    for position, name in enumerate(node.output):
        node.output[position] = names.value(name, f"{node.name}_out")
    _replace(node, "attribute", sorted(node.attribute, key=lambda each: each.name))
