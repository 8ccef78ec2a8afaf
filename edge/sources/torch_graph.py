"""The exported ONNX graph put in order: names as wanted, nothing of this machine in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import onnx

# Operators whose results differ each time; onnx.defs says so in words only.
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
          "Multinomial")  # fmt: skip


def strip(model: onnx.ModelProto) -> None:
    """Take out what tells of the machine: stack traces with paths, notes, local versions.

    torch 2.13 writes each node's Python stack into ``metadata_props`` (absolute paths), the
    graph's signature, and in the older exporter the stack into ``doc_string``.
    """
    model.producer_version = model.producer_version.partition("+")[0]
    model.ClearField("doc_string")
    del model.metadata_props[:]
    for function in model.functions:
        function.ClearField("doc_string")
        del function.metadata_props[:]
        for value in function.value_info:
            _bare(value)
        _strip_nodes(function.node)
    for graph in graphs(model):
        _bare(graph)
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            _bare(value)
        _strip_nodes(graph.node)


def _bare(message: Any) -> None:
    message.ClearField("doc_string")
    del message.metadata_props[:]


def _strip_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    for node in nodes:
        _bare(node)
        for attribute in node.attribute:
            attribute.ClearField("doc_string")


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The model's graph and all subgraphs in it and in its functions."""
    waiting = [model.graph]
    for function in model.functions:
        waiting += _subgraphs(function.node)
    while waiting:
        graph = waiting.pop()
        waiting += _subgraphs(graph.node)
        yield graph


def _subgraphs(nodes: Sequence[onnx.NodeProto]) -> list[onnx.GraphProto]:
    found = []
    for node in nodes:
        for attribute in node.attribute:
            found += [attribute.g] if attribute.HasField("g") else []
            found += attribute.graphs
    return found


def rename(model: onnx.ModelProto, wanted: Mapping[str, str]) -> None:
    """Give values other names: ``wanted`` maps present to new names.

    What else has one of the new names gives way first: the exporter names values after torch's
    functions and parameters, and ONNX Runtime refuses a file with a name twice (pytorch #158094).
    """
    used = _value_names(model)
    mapping = dict(wanted)
    for name in sorted(set(wanted.values()) & used - set(wanted)):
        fresh = f"{name}_value"
        while fresh in used or fresh in mapping.values():
            fresh += "_"
        mapping[name] = fresh
    for graph in _scopes(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = mapping.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [mapping.get(name, name) for name in node.input]
            node.output[:] = [mapping.get(name, name) for name in node.output]


def _scopes(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and its subgraphs, which see its values; functions have names of their own."""
    yield graph
    for inner in _subgraphs(graph.node):
        yield from _scopes(inner)


def _value_names(model: onnx.ModelProto) -> set[str]:
    names: set[str] = set()
    for graph in _scopes(model.graph):
        names |= {value.name for value in (*graph.input, *graph.initializer)}
        names |= {name for node in graph.node for name in node.output}
    return names


def shorten_parameters(model: onnx.ModelProto, prefix: str) -> None:
    """Parameters by the names that they have in the user's module: ``prefix`` comes off."""
    used = _value_names(model)
    names = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith(prefix)]
    new = {name: name.removeprefix(prefix) for name in names}
    rename(model, {name: short for name, short in new.items() if short not in used})


def separate_outputs(model: onnx.ModelProto) -> None:
    """Outputs that are an input, a parameter or one another get an Identity of their own."""
    import onnx

    graph = model.graph
    taken = {value.name for value in (*graph.input, *graph.initializer)}
    for index, output in enumerate(graph.output):
        if output.name in taken:
            fresh = f"edge_copy_{index}"
            graph.node.append(onnx.helper.make_node("Identity", [output.name], [fresh]))
            output.name = fresh
        taken.add(output.name)


def refuse_random(model: onnx.ModelProto) -> None:
    """Refuse nodes that still train or draw: the file would give other outputs each time."""
    nodes = [node for graph in graphs(model) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    for node in nodes:
        # A Dropout's mode is its third input; a missing one means inference.
        training = any(a.name == "training_mode" and a.i for a in node.attribute)
        if node.op_type in RANDOM or training or _drops(model, node):
            raise errors.ModelRefused(
                f"the exported model holds a {node.op_type} node that is random or in training "
                f"mode ({node.name or 'no name'})",
                remedy="call model.eval(), and leave functional dropout out of inference",
            )


def _drops(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    from onnx import numpy_helper

    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    mode = known.get(node.input[2])
    # A mode that is computed cannot be told: the two runs of the model have shown no difference.
    return mode is not None and bool(numpy_helper.to_array(mode).any())
