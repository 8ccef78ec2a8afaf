"""The operator closure of an ONNX file.

Rules:

1. Nodes of the graph and of all graphs in it (If, Loop, Scan) count; a Constant node does not,
   the runtime makes an initializer of it.
2. A call of a model-local function counts as the function's body, with its own opset imports.
3. An operator that the installed runtime has no CPU kernel for, but that ONNX defines by other
   operators (HardSwish, Mish, CastLike), counts as those. Files that the runtime itself has
   optimized no longer hold any.
4. Opsets are resolved to the operator's since-version.
5. Types come from shape inference; where it knows none (after operators of the runtime's own, in
   bodies of functions) the operator asks for every type.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.closure import Closure, Entry, Types, operators
from edge.convert import runtime_operators

if TYPE_CHECKING:
    import onnx

MAX_NODES = 1_000_000
MAX_DEPTH = 32
# Shape inference copies the model; weights larger than this cannot be shapes.
KEPT_WEIGHT_BYTES = 1024

# Element types of values by name, the innermost graph first.
Elements = ChainMap[str, int]
Opsets = Mapping[str, int]


def read(path: Path) -> tuple[Closure, str]:
    """The closure of a ``.onnx`` file, and why types are not known ("" when all are).

    Raises :class:`errors.ModelRefused` for a damaged file, an operator that does not exist and
    a domain that the model does not import.
    """
    model = graph.read(path)
    walk = _Walk(model)
    inferred, reason = _inferred(model)
    walk.graph(inferred.graph, _opsets(model.opset_import), ChainMap(), 1)
    unknown = ", ".join(f"{domain} {name}" for domain, name in sorted(walk.unknown))
    return Closure(tuple(walk.entries)), reason or (unknown and f"types of {unknown} are not known")


def _inferred(model: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    import onnx

    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > KEPT_WEIGHT_BYTES:
            tensor.ClearField("raw_data")
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    # Inference walks a function once for each call, so nested calls take exponential time.
    del bare.functions[:]
    try:
        return onnx.shape_inference.infer_shapes(bare), ""
    except (
        onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError,
    ) as error:  # fmt: skip
        return model, f"shape inference failed: {graph.first_line(error)}"


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> Opsets:
    return {each.domain or operators.ONNX: each.version for each in imports}


class _Walk:
    """Collects the entries of all graphs and functions."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.functions = {
            (f.domain or operators.ONNX, f.name, f.overload): f for f in model.functions
        }
        self.known = runtime_operators.vocabulary()
        self.kernels = runtime_operators.kernel_ranges()
        self.entries: list[Entry] = []
        self.unknown: set[tuple[str, str]] = set()
        self.visited: set[tuple[str, str, str]] = set()
        self.left = MAX_NODES

    def graph(self, of: onnx.GraphProto, opsets: Opsets, outer: Elements, depth: int) -> None:
        """One graph; ``outer``: element types of the values that are visible from outside."""
        elements: dict[str, int] = {tensor.name: tensor.data_type for tensor in of.initializer}
        for sparse in of.sparse_initializer:
            elements[sparse.values.name] = sparse.values.data_type
        for value in (*of.input, *of.value_info, *of.output):
            elements[value.name] = _element(value.type)
        self.nodes(of.node, opsets, outer.new_child(elements), depth)

    def nodes(
        self, nodes: Iterable[onnx.NodeProto], opsets: Opsets, elements: Elements, depth: int
    ) -> None:
        """The nodes of one graph or function, and what is in them."""
        if depth > MAX_DEPTH:
            raise errors.ModelRefused(f"graphs and functions are nested deeper than {MAX_DEPTH}")
        for node in nodes:
            self.left -= 1
            if self.left < 0:
                raise errors.ModelRefused(f"the model has more than {MAX_NODES} nodes")
            self.node(node, opsets, elements, depth)
            for attribute in node.attribute:
                for inner in (
                    *attribute.graphs,
                    *([attribute.g] if attribute.HasField("g") else ()),
                ):
                    self.graph(inner, opsets, elements, depth + 1)

    def node(self, node: onnx.NodeProto, opsets: Opsets, elements: Elements, depth: int) -> None:
        """One node: an entry, or what it stands for."""
        domain = node.domain or operators.ONNX
        local = self.functions.get((domain, node.op_type, node.overload))
        if local is not None:
            # Visited once: what a body needs does not depend on who calls it.
            key = (domain, node.op_type, node.overload)
            if key not in self.visited:
                self.visited.add(key)
                self.nodes(local.node, _opsets(local.opset_import), ChainMap(), depth + 1)
            return
        if (domain, node.op_type) == (operators.ONNX, "Constant"):
            return
        opset = self.since(node, domain, opsets)
        body = None if self.runs((domain, node.op_type), opset) else _body(node, opsets, elements)
        if body is not None:
            self.nodes(body.node, _opsets(body.opset_import), ChainMap(), depth + 1)
            return
        name = node.name or next(iter(node.output), "")
        types = self.types(node, domain, elements)
        self.entries.append(Entry(domain, node.op_type, opset, types, name))

    def since(self, node: onnx.NodeProto, domain: str, opsets: Opsets) -> int:
        """The since-version of the node's operator (of a foreign domain: the import itself)."""
        who = f"node {node.name[:80]!r}: {domain[:80]} {node.op_type[:80]}"
        if domain not in opsets:
            raise errors.ModelRefused(f"{who}: the model does not import that domain")
        opset = opsets[domain]
        if domain not in self.known.highest:
            return opset
        objection = self.known.objection(domain, node.op_type, opset)
        if objection:
            raise errors.ModelRefused(f"{who}: {objection}")
        return self.known.since(domain, node.op_type, opset)

    def runs(self, key: tuple[str, str], since: int) -> bool:
        """Whether the installed runtime has a CPU kernel; True when that cannot be known."""
        ranges = self.kernels.get(key, ())
        return not self.kernels or any(operators.serves(each, since) for each in ranges)

    def types(self, node: onnx.NodeProto, domain: str, elements: Elements) -> Types | None:
        """The types at the places that reduced builds track."""
        key = (domain, node.op_type)
        tracked = operators.TRACKED.get(key)
        if tracked is None:
            return None
        inputs = _named(node.input, tracked.inputs, elements)
        outputs = _named(node.output, tracked.outputs, elements)
        # The order of OneHot's kernel names: indices, values, depth.
        custom = _named(node.input, (0, 2, 1), elements) if tracked.custom else {}
        if None in (*inputs.values(), *outputs.values(), *custom.values()):
            self.unknown.add(key)
            return None
        triples = (tuple(str(name) for name in custom.values()),) if custom else ()
        return Types(_places(inputs), _places(outputs), triples)


def _places(named: Mapping[int, str | None]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    return tuple((index, (name,)) for index, name in named.items() if name)


def _named(
    values: Iterable[str], wanted: tuple[int, ...], elements: Elements
) -> dict[int, str | None]:
    """C++ type by index of the values that are there; None where it is not known."""
    names = list(values)
    return {
        index: operators.CPP_TYPES.get(elements.get(names[index], 0))
        for index in wanted
        if index < len(names) and names[index]
    }


def _element(type_: onnx.TypeProto) -> int:
    """The element type of a tensor, or of the tensors in a sequence; 0 for anything else."""
    if type_.HasField("sequence_type"):
        return _element(type_.sequence_type.elem_type)
    return int(type_.tensor_type.elem_type)


def _body(node: onnx.NodeProto, opsets: Opsets, elements: Elements) -> onnx.FunctionProto | None:
    """What ONNX defines the node's operator by; None when it does not, or types are missing."""
    import onnx

    domain = "" if node.domain == operators.ONNX else node.domain
    opset = opsets[domain or operators.ONNX]
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    told = b""
    if versions := [each for each in schema.function_opset_versions if each <= opset]:
        told = schema.get_function_with_opset_version(max(versions))
    elif versions := [v for v in schema.context_dependent_function_opset_versions if v <= opset]:
        types = [
            onnx.helper.make_tensor_type_proto(elements.get(name, 0), None).SerializeToString()
            for name in node.input
        ]
        told = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), types
        )
    return onnx.FunctionProto.FromString(told) if told else None
