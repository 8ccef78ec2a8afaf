"""From a model to a program: its ports, its function, its names."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import coremltools_library
from edge.convert.onnx_to_mil.emit import RANK_LIMIT, Emitter
from edge.convert.onnx_to_mil.names import Names
from edge.convert.onnx_to_mil.registry import NEWEST
from edge.convert.onnx_to_mil.values import Value, mil_dtype, type_name
from edge.convert.onnx_to_mil.walk import Scope, Walker, initializer

if TYPE_CHECKING:
    import onnx

TARGETS = {"iOS15": 15, "iOS16": 16, "iOS17": 17, "iOS18": 18}
OLDEST = 7
# The IR version since which an initializer need not be an input too: what binding inputs leaves.
PLAIN_INITIALIZERS = 4


@dataclass(frozen=True)
class Port:
    """An input or output: ``onnx`` is its name there, ``name`` and ``shape`` are Core ML's.

    ``dtype`` is ONNX's element type, ``held`` what Core ML holds it in (float32, int32): a scalar
    has shape [1], a boolean is 0 or 1.
    """

    onnx: str
    name: str
    dtype: str
    held: str
    shape: tuple[int, ...]
    scalar: bool

    def to_json(self) -> dict[str, Any]:
        """For facts and manifests."""
        return {
            "onnx": self.onnx,
            "name": self.name,
            "dtype": self.dtype,
            "held": self.held,
            "shape": list(self.shape),
            "scalar": self.scalar,
        }


@dataclass(frozen=True)
class Converted:
    """A MIL program with its ports; ``operators`` counts what was converted, by ONNX's names."""

    program: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    operators: dict[str, int]
    folded: int


def convert(model: onnx.ModelProto, *, target: str = "iOS15") -> Converted:
    """A MIL program that computes ``model``, whose sizes are all fixed.

    ``target``: the least release, one of TARGETS. Raises :class:`errors.ModelRefused` naming node,
    operator, opset and reason.
    """
    if target not in TARGETS:
        raise errors.UsageError(f"no target {target!r}", remedy="known: " + ", ".join(TARGETS))
    builder = coremltools_library.builder()
    whole, opsets = _readable(model)
    names = Names()
    stored = {tensor.name: initializer(tensor) for tensor in whole.graph.initializer}
    inputs = [port_of(port, names) for port in whole.graph.input if port.name not in stored]
    outputs = [port_of(port, names, given=False) for port in whole.graph.output]
    walker = Walker(Emitter(builder, TARGETS[target], names), opsets)
    with _function(builder, inputs, target) as function:
        scope: Scope = ChainMap({}, stored)
        for port in inputs:
            scope[port.onnx] = _received(builder, names, function.inputs[port.name], port)
        walker.run(whole.graph.node, scope)
        taken: set[Any] = set()
        made = [_given(builder, names, scope, port, taken) for port in outputs]
        function.set_outputs([var for var, _ in made])
    program = _program(function)
    ports = tuple(port for _, port in made)
    return Converted(
        program, tuple(inputs), ports, dict(sorted(walker.counts.items())), walker.folded
    )


# ----------------------------------------------------------------------------------- the model
def _readable(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The model without functions of its own, and its opsets."""
    import onnx
    import onnx.inliner

    whole = onnx.inliner.inline_local_functions(model) if model.functions else model
    if whole.ir_version < PLAIN_INITIALIZERS:
        older, whole = whole, onnx.ModelProto()
        whole.CopyFrom(older)
        whole.ir_version = PLAIN_INITIALIZERS
    try:
        onnx.checker.check_model(whole)
    except onnx.checker.ValidationError as error:
        text = " ".join(str(error).split())[:300]
        raise errors.ModelRefused(f"not a valid ONNX model: {text}") from error
    if whole.graph.sparse_initializer:
        raise errors.ModelRefused("sparse initializers are not taken", remedy="store them dense")
    opsets = {each.domain.replace("ai.onnx", "", 1) if each.domain == "ai.onnx" else each.domain:
              each.version for each in whole.opset_import}  # fmt: skip
    if not OLDEST <= opsets.get("", 0) <= NEWEST:
        raise errors.ModelRefused(
            f"opset {opsets.get('', 0)}: rules are for {OLDEST} to {NEWEST}",
            remedy="export the model again with an opset between",
        )
    return whole, opsets


def port_of(port: onnx.ValueInfoProto, names: Names, *, given: bool = True) -> Port:
    """An input (``given``) or output under the name that it gets in a package.

    Raises :class:`errors.ModelRefused` for types that Core ML does not hold, and for an input of
    no fixed shape or of too many dimensions.
    """
    tensor = port.type.tensor_type
    held = mil_dtype(tensor.elem_type)
    if not port.type.HasField("tensor_type") or held is None:
        kind = port.type.WhichOneof("value")
        what = type_name(tensor.elem_type) if kind == "tensor_type" else kind
        raise errors.ModelRefused(f"{port.name!r} is a {what}, which Core ML does not hold")
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    if given:
        _check_shape(port)
    return Port(
        port.name,
        names.unique(port.name),
        type_name(tensor.elem_type),
        "float32" if held == "fp32" else "int32",
        shape or (1,),
        not shape,
    )


def _check_shape(port: onnx.ValueInfoProto) -> None:
    dims = port.type.tensor_type.shape.dim
    if len(dims) > RANK_LIMIT:
        raise errors.ModelRefused(
            f"input {port.name!r} has {len(dims)} dimensions, Core ML has at most {RANK_LIMIT}",
            remedy="export the model with fewer: some of its sizes as one, reshaped within",
        )
    if any(dim.dim_value == 0 for dim in dims):
        raise errors.ModelRefused(
            f"input {port.name!r} has no fixed shape: "
            f"{[dim.dim_param or dim.dim_value for dim in dims]}",
            remedy="bind its sizes (shape of the input in the project)",
        )


# ---------------------------------------------------------------------------------- the program
def _function(builder: Any, inputs: list[Port], target: str) -> Any:
    from coremltools.converters.mil.mil import Function, types

    ct = coremltools_library.module()

    held = {"float32": types.fp32, "int32": types.int32}
    ports = {port.name: builder.placeholder(port.shape, held[port.held]) for port in inputs}
    return Function(ports, getattr(ct.target, target))


def _program(function: Any) -> Any:
    from coremltools.converters.mil.mil import Program

    program = Program()
    program.add_function("main", function)
    return program


def _received(builder: Any, names: Names, var: Any, port: Port) -> Value:
    """An input as the graph sees it: scalars have no dimension, booleans are booleans."""
    from edge.convert.onnx_to_mil.values import NUMBERS

    made = var
    if port.scalar:
        made = builder.squeeze(x=made, axes=[0], name=names.unique(port.name))
    if port.dtype == "bool":
        made = builder.cast(x=made, dtype="bool", name=names.unique(port.name))
    return Value(made, NUMBERS[port.dtype])


def _named(builder: Any, var: Any, name: str, taken: set[Any]) -> Any:
    """``var`` as ``name``: the operation's own output, or a copy where it has a name to keep."""
    if var.op is None or var.op.op_type == "const" or var in taken:
        return builder.identity(x=var, name=name)
    if len(var.op.outputs) == 1:
        var.op.name = name
    var.name = name
    taken.add(var)
    return var


def _given(
    builder: Any, names: Names, scope: Scope, port: Port, taken: set[Any]
) -> tuple[Any, Port]:
    """An output under its own name, as Core ML gives it, and its port with the shape it has."""
    from dataclasses import replace

    if port.onnx not in scope:
        raise errors.ModelRefused(f"output {port.onnx!r} is computed by no node")
    value = scope[port.onnx]
    made = Emitter(builder, 0, names).var(value, f"output {port.onnx!r}")
    if not value.shape:
        made = builder.expand_dims(x=made, axes=[0], name=names.unique(port.name))
    if port.dtype == "bool":
        made = builder.cast(x=made, dtype="int32", name=names.unique(port.name))
    named = _named(builder, made, port.name, taken)
    return named, replace(port, shape=tuple(named.shape), scalar=not value.shape)
