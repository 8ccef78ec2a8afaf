"""What ONNX itself says of an operator: its definition by others, and its output types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.convert.onnx_to_mil.values import NUMBERS, Value

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Body:
    """An operator's definition: ``nodes`` from ``inputs`` to ``outputs``, at ``opsets``."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    opsets: dict[str, int]


def body(proto: onnx.NodeProto, opset: int, inputs: list[Value | None]) -> Body | None:
    """The definition of an operator by simpler ones, or None."""
    schema = _schema(proto, opset)
    if schema is None:
        return None
    function = None
    if schema.has_context_dependent_function:
        function = _dependent(schema, proto, opset, inputs)
    if function is None and schema.has_function:
        function = schema.function_body
    if function is None:
        return None
    opsets = {each.domain: each.version for each in function.opset_import}
    return Body(
        tuple(function.input),
        tuple(function.output),
        _with_attributes(function, proto, schema),
        opsets,
    )


def output_types(proto: onnx.NodeProto, opset: int, inputs: list[Value | None]) -> list[int | None]:
    """Element types of the outputs, as far as the schema alone says; the last one repeats."""
    schema = _schema(proto, opset)
    if schema is None or not schema.outputs:
        return [None]
    known = {}
    for place, value in enumerate(inputs):
        if value is not None:
            port = schema.inputs[min(place, len(schema.inputs) - 1)]
            known[port.type_str] = value.type
    return [known.get(port.type_str, _named(port.type_str)) for port in schema.outputs]


def _named(text: str) -> int | None:
    """``tensor(int64)`` as a number."""
    return NUMBERS.get(text.removeprefix("tensor(").removesuffix(")"))


def _schema(proto: onnx.NodeProto, opset: int) -> Any:  # OpSchema: its stub lacks functions
    import onnx

    try:
        return onnx.defs.get_schema(proto.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def _dependent(
    schema: Any, proto: onnx.NodeProto, opset: int, inputs: list[Value | None]
) -> onnx.FunctionProto | None:
    import onnx

    types = []
    for value in inputs:
        kind = onnx.TypeProto()
        if value is not None:
            kind = onnx.helper.make_tensor_type_proto(value.type, value.shape)
        types.append(kind.SerializeToString())
    versions = [each for each in schema.context_dependent_function_opset_versions if each <= opset]
    if not versions:
        return None
    found = onnx.FunctionProto()
    made = schema.get_context_dependent_function_with_opset_version(
        max(versions), proto.SerializeToString(), types
    )
    found.ParseFromString(made)
    return found


def _with_attributes(
    function: onnx.FunctionProto, proto: onnx.NodeProto, schema: Any
) -> tuple[onnx.NodeProto, ...]:
    """The function's nodes with references to its attributes put in."""
    given = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    given |= {each.name: each for each in function.attribute_proto}
    given |= {each.name: each for each in proto.attribute}
    return tuple(_filled(node, given) for node in function.node)


def _filled(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    import onnx

    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            kept = made.attribute.add()
            kept.CopyFrom(attribute)
            if attribute.HasField("g"):
                inner = [_filled(each, given) for each in attribute.g.node]
                del kept.g.node[:]
                kept.g.node.extend(inner)
        elif attribute.ref_attr_name in given:
            kept = made.attribute.add()
            kept.CopyFrom(given[attribute.ref_attr_name])
            kept.name = attribute.name
    return made
