"""The values of a graph: who makes them, who reads them, what they hold.

Values are tensors by name. Subgraphs (If, Loop, Scan) read those of the graphs around them by
name alone; :func:`expose_captures` writes such reads down as inputs of the node, so that code
that walks inputs misses none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.convert import run_model

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

# Bytes of intermediate tensors that one run of the model hands out.
CHUNK_BYTES = 2**26
FLOAT = "tensor(float)"


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that a node carries in its attributes."""
    found = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return found + [body for attribute in node.attribute for body in attribute.graphs]


def walk(body: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all graphs inside it."""
    pending = [body]
    while pending:
        current = pending.pop()
        yield current
        pending += [inner for node in current.node for inner in subgraphs(node)]


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Values that the node's subgraphs read from outside, in the order of their first use."""
    found: dict[str, None] = {}
    for body in subgraphs(node):
        own = {value.name for value in body.input} | set(initializers(body))
        own |= {tensor.values.name for tensor in body.sparse_initializer}
        own |= {name for each in body.node for name in each.output}
        read = [name for each in body.node for name in (*each.input, *captured(each))]
        read += [value.name for value in body.output]
        found.update(dict.fromkeys(name for name in read if name and name not in own))
    return tuple(found)


def expose_captures(body: onnx.GraphProto) -> dict[str, tuple[str, ...]]:
    """Append what subgraphs capture to their node's inputs; :func:`hide_captures` undoes it.

    Returns the captured values by node name. Until then the model is no valid one.
    """
    exposed = {node.name: names for node in body.node if (names := captured(node))}
    for node in body.node:
        node.input.extend(exposed.get(node.name, ()))
    return exposed


def hide_captures(body: onnx.GraphProto, exposed: Mapping[str, tuple[str, ...]]) -> None:
    """Take captured values off the inputs again; where one was renamed, its readers follow."""
    for node in body.node:
        names = exposed.get(node.name)
        if not names:
            continue
        now = list(node.input)[-len(names) :]
        del node.input[-len(names) :]
        renamed = {old: new for old, new in zip(names, now, strict=True) if old != new}
        for inner in subgraphs(node):
            _rename_reads(inner, renamed)


def _rename_reads(body: onnx.GraphProto, renamed: Mapping[str, str]) -> None:
    for current in walk(body):
        for node in current.node:
            for index, name in enumerate(node.input):
                node.input[index] = renamed.get(name, name)


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The imported opset versions by domain; that of ai.onnx under ""."""
    return {plain_domain(entry.domain): entry.version for entry in model.opset_import}


def plain_domain(domain: str) -> str:
    """The domain as ONNX itself writes it: ai.onnx is ""."""
    return "" if domain == "ai.onnx" else domain


def initializers(body: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The graph's initializers by name."""
    return {tensor.name: tensor for tensor in body.initializer}


def readers(body: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read each value; see :func:`expose_captures` for subgraphs."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in body.node:
        for name in dict.fromkeys(node.input):
            found.setdefault(name, []).append(node)
    return found


def name_nodes(body: onnx.GraphProto) -> None:
    """Give every node of the graph a name of its own; names that are one already stay."""
    counts: dict[str, int] = {}
    for node in body.node:
        counts[node.name] = counts.get(node.name, 0) + 1
    taken = set(counts)
    for index, node in enumerate(body.node):
        if node.name and counts[node.name] == 1:
            continue
        name = f"{node.name or node.op_type}_{index}"
        while name in taken:
            name += "_"
        taken.add(name)
        node.name = name


def constants_to_initializers(body: onnx.GraphProto) -> None:
    """Constant nodes of the graph (not of its subgraphs) become initializers."""
    import onnx

    outputs = {value.name for value in body.output}
    for node in list(body.node):
        if node.op_type != "Constant" or node.domain or node.output[0] in outputs:
            continue
        value = _constant(node)
        if value is not None:
            body.initializer.append(onnx.numpy_helper.from_array(value, node.output[0]))
            body.node.remove(node)


def _constant(node: onnx.NodeProto) -> Array | None:
    """The value of a Constant node; None for strings and sparse tensors."""
    import numpy as np
    import onnx

    attribute = node.attribute[0]
    if attribute.name == "value":
        return onnx.numpy_helper.to_array(attribute.t)
    dtypes = {"value_float": np.float32, "value_floats": np.float32,
              "value_int": np.int64, "value_ints": np.int64}  # fmt: skip
    if attribute.name not in dtypes:
        return None
    return np.array(onnx.helper.get_attribute_value(attribute), dtypes[attribute.name])


def drop_initializer_inputs(model: onnx.ModelProto) -> None:
    """Initializers are no inputs of the model (files before IR version 4 list them as both)."""
    names = set(initializers(model.graph))
    kept = [value for value in model.graph.input if value.name not in names]
    if len(kept) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)


def sort_nodes(body: onnx.GraphProto) -> None:
    """Topological order, as near to the present one as can be; captures must be exposed.

    Raises :class:`errors.StepFailed` for a graph with a cycle.
    """
    nodes = list(body.node)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [[makers[name] for name in node.input if name in makers] for node in nodes]
    order = _order(needs)
    if order is None:
        raise errors.StepFailed("the graph has a cycle", remedy="please report the model")
    ordered = [type(nodes[index]).FromString(nodes[index].SerializeToString()) for index in order]
    del body.node[:]
    body.node.extend(ordered)


def _order(needs: list[list[int]]) -> list[int] | None:
    """Positions such that what each one needs comes before it; None where there is a cycle."""
    order: list[int] = []
    placed: set[int] = set()
    for start in range(len(needs)):
        stack = [start]
        while stack:
            missing = [each for each in needs[stack[-1]] if each not in placed]
            if missing:
                stack.append(missing[0])
                if len(stack) > len(needs):
                    return None
                continue
            index = stack.pop()
            if index not in placed:
                placed.add(index)
                order.append(index)
    return order


# -------------------------------------------------------------------------------- measured
@dataclass(frozen=True)
class Value:
    """A value's type as ONNX Runtime names it (``tensor(float)``) and its shape."""

    type: str
    shape: tuple[int | str | None, ...]

    @property
    def bytes(self) -> int:
        """Size in bytes where the shape is known, else that of a whole chunk; 4 bytes a float."""
        sizes = [dim for dim in self.shape if isinstance(dim, int)]
        return 4 * prod(sizes) if len(sizes) == len(self.shape) else CHUNK_BYTES


def types(model: onnx.ModelProto, work: Path) -> dict[str, Value]:
    """The types of all values of the main graph, as ONNX Runtime infers them.

    ``work`` is a scratch folder. Knows the operators of ``com.microsoft`` too, which ONNX's own
    shape inference does not. Raises :class:`errors.ModelRefused` for a model that does not load.
    """
    names = [name for node in model.graph.node for name in node.output if name]
    session = _session(model, names, work)
    ports = [*session.get_inputs(), *session.get_outputs()]
    found = {port.name: Value(port.type, tuple(port.shape)) for port in ports}
    for name, tensor in initializers(model.graph).items():
        found[name] = Value(_type_name(tensor), tuple(tensor.dims))
    return found


def _type_name(tensor: onnx.TensorProto) -> str:
    import onnx

    name = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    return f"tensor({name})"


def _session(model: onnx.ModelProto, names: list[str], work: Path) -> Any:
    """A session whose outputs are ``names`` alone, with optimizations off."""
    import onnx

    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    own = {value.name: value for value in model.graph.output}
    del asked.graph.output[:]
    asked.graph.output.extend(own.get(n, onnx.ValueInfoProto(name=n)) for n in names)
    path = work / "observed.onnx"
    graph.save(asked, path)
    return run_model.open_session(path, level="disabled")


def largest(
    model: onnx.ModelProto,
    values: Mapping[str, Value],
    cases: list[dict[str, Array]],
    work: Path,
) -> dict[str, float]:
    """Largest finite magnitude of every float32 value over the samples, inputs included.

    ``values`` come from :func:`types`. The model runs once a sample for each chunk of values
    (``CHUNK_BYTES``), so that memory stays bounded. Values of subgraphs are not seen.
    """
    made = [name for node in model.graph.node for name in node.output]
    found: dict[str, float] = {}
    for case in cases:
        _raise_to(found, case)
    for names in _chunks([name for name in made if _is_float(values, name)], values):
        session = _session(model, names, work)
        for case in cases:
            _raise_to(found, run_model.run_session(session, case))
    return found


def _is_float(values: Mapping[str, Value], name: str) -> bool:
    return name in values and values[name].type == FLOAT


def _chunks(names: list[str], values: Mapping[str, Value]) -> list[list[str]]:
    chunks: list[list[str]] = []
    filled = CHUNK_BYTES
    for name in names:
        if filled + values[name].bytes > CHUNK_BYTES:
            chunks.append([])
            filled = 0
        chunks[-1].append(name)
        filled += values[name].bytes
    return chunks


def _raise_to(found: dict[str, float], arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if array.dtype.name == "float32":
            found[name] = max(found.get(name, 0.0), magnitude(array))


def magnitude(array: Array) -> float:
    """The largest finite |x| of an array; 0 where it holds none."""
    import numpy as np

    size = np.abs(array.astype(np.float64))
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))
