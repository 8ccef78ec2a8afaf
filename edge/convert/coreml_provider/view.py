"""A graph as the provider's rules read it: nodes with typed, shaped inputs.

What ``GraphViewer``, ``NodeArg`` and ``NodeAttrHelper`` say in ONNX Runtime. Shapes are those of
onnx's shape inference, which knows no operator of ``com.microsoft``; files that ONNX Runtime has
written carry the shapes of those too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import graph_values
from edge.graph import first_line

if TYPE_CHECKING:
    import onnx

UNKNOWN = -1  # a dimension without a value
FIRST_VERSION_WITH_CONSTANTS = 4  # IR version from which an initializer may be an input as well


@dataclass(frozen=True)
class Value:
    """An input or output. ``dtype`` is TensorProto's number, 0: none; ``shape`` None: unknown.

    ``constant``: an initializer that no input of the model overrides, here or in a graph around
    this one; ``initializer``: any initializer of this graph.
    """

    name: str
    dtype: int = 0
    shape: tuple[int, ...] | None = None
    tensor: onnx.TensorProto | None = None
    constant: bool = False
    initializer: bool = False

    @property
    def exists(self) -> bool:
        """Whether it is given; left out optional inputs have no name."""
        return bool(self.name)

    @property
    def static(self) -> bool:
        """Whether every dimension has a value."""
        return self.shape is not None and UNKNOWN not in self.shape

    def numbers(self) -> list[int]:
        """An integer initializer's elements; empty when it is none."""
        return [int(each) for each in self._elements()]

    def reals(self) -> list[float]:
        """A float initializer's elements; empty when it is none."""
        return [float(each) for each in self._elements()]

    def _elements(self) -> Any:
        import onnx

        if self.tensor is None:
            return ()
        if self.tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise errors.ModelRefused(
                f"the value of {self.name!r} lies in an external file",
                remedy="give the canonical model, which is one file",
            )
        return onnx.numpy_helper.to_array(self.tensor).ravel()


ABSENT = Value("")


@dataclass
class Node:
    """A node; ``since`` is the opset version that its operator's schema is from."""

    index: int
    proto: onnx.NodeProto
    since: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, Any]
    sources: list[Node] = field(default_factory=list)  # one an edge, by input
    readers: list[Node] = field(default_factory=list)  # one an edge

    @property
    def kind(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    def value(self, index: int) -> Value:
        """An input; :data:`ABSENT` beyond the last."""
        return self.inputs[index] if index < len(self.inputs) else ABSENT

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """An input's dimensions; the common checks have refused inputs without."""
        return self.value(index).shape or ()

    def number(self, name: str, default: int) -> int:
        """An integer attribute."""
        found = self.attributes.get(name)
        return found if isinstance(found, int) else default

    def real(self, name: str, default: float) -> float:
        """A float attribute."""
        found = self.attributes.get(name)
        return found if isinstance(found, float) else default

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        found = self.attributes.get(name)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else default

    def list(self, name: str) -> tuple[Any, ...] | None:
        """A list attribute; None when it is not there."""
        found = self.attributes.get(name)
        return None if found is None or isinstance(found, (int, float, bytes)) else tuple(found)


@dataclass(frozen=True)
class Graph:
    """The nodes of one graph in the file's order; ``path`` is "" or ``if_node/then_branch``."""

    path: str
    nodes: tuple[Node, ...]


def graphs(model: onnx.ModelProto) -> list[Graph]:
    """The model's graph and its subgraphs, outermost first. The model gets shapes.

    Constant nodes become initializers, as ONNX Runtime makes them when it loads a file. The model
    is not put to onnx's checker, which refuses what ONNX Runtime itself writes into the domain of
    ONNX (SimplifiedLayerNormalization).
    Raises :class:`errors.ModelRefused` for a model that cannot be read or inferred.
    """
    import onnx

    try:
        for body in graph_values.walk(model.graph):
            graph_values.constants_to_initializers(body)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        reader = _Reader(graph_values.opsets(inferred), inferred.ir_version)
        return list(reader.read(inferred.graph, "", {}))
    except (onnx.shape_inference.InferenceError, ValueError, TypeError, IndexError) as error:
        raise errors.ModelRefused(
            f"not a valid ONNX model: {first_line(error)}",
            remedy="check the model with onnx.checker.check_model",
        ) from error


class _Reader:
    def __init__(self, opsets: dict[str, int], ir_version: int) -> None:
        self.opsets, self.ir_version = opsets, ir_version

    def read(self, body: onnx.GraphProto, path: str, outer: dict[str, Value]) -> Iterator[Graph]:
        scope = {**outer, **self._values(body)}
        nodes = tuple(self._node(index, node, scope) for index, node in enumerate(body.node))
        _connect(nodes)
        yield Graph(path, nodes)
        seen = {name: _seen_from_inside(value) for name, value in scope.items()}
        for node in body.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    title = f"{path}/{node.name or node.op_type}/{attribute.name}".lstrip("/")
                    yield from self.read(attribute.g, title, seen)

    def _values(self, body: onnx.GraphProto) -> dict[str, Value]:
        found = {value.name: _typed(value) for value in body.value_info}
        found |= {value.name: _typed(value) for value in (*body.output, *body.input)}
        overridable = {value.name for value in body.input}
        if self.ir_version < FIRST_VERSION_WITH_CONSTANTS:
            overridable = set()
        for tensor in body.initializer:
            found[tensor.name] = Value(
                tensor.name,
                tensor.data_type,
                tuple(tensor.dims),
                tensor,
                constant=tensor.name not in overridable,
                initializer=True,
            )
        return found

    def _node(self, index: int, node: onnx.NodeProto, scope: dict[str, Value]) -> Node:
        from onnx import helper

        return Node(
            index,
            node,
            self._since(node),
            tuple(scope.get(name, Value(name)) for name in node.input),
            tuple(scope.get(name, Value(name)) for name in node.output),
            {each.name: helper.get_attribute_value(each) for each in node.attribute},
        )

    def _since(self, node: onnx.NodeProto) -> int:
        """1 for what onnx has no schema of: ONNX Runtime's own operators are all of version 1."""
        from onnx import defs

        domain = graph_values.plain_domain(node.domain)
        opset = self.opsets.get(domain, 1)
        try:
            return int(defs.get_schema(node.op_type, opset, domain).since_version)
        except defs.SchemaError:
            return 1


def _seen_from_inside(value: Value) -> Value:
    return Value(value.name, value.dtype, value.shape, value.tensor, value.constant)


def _typed(value: onnx.ValueInfoProto) -> Value:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return Value(value.name, tensor.elem_type)
    dims = [dim.dim_value if dim.HasField("dim_value") else UNKNOWN for dim in tensor.shape.dim]
    return Value(value.name, tensor.elem_type, tuple(max(dim, UNKNOWN) for dim in dims))


def _connect(nodes: Sequence[Node]) -> None:
    """One edge an input that another node makes; those of a node's subgraphs are edges too."""
    makers = {name: node for node in nodes for name in node.proto.output if name}
    for node in nodes:
        for name in (*node.proto.input, *graph_values.captured(node.proto)):
            if name in makers and makers[name] is not node:
                node.sources.append(makers[name])
                makers[name].readers.append(node)
