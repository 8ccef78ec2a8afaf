"""Ports of a Core ML program that comes from a framework: those of the canonical model.

Names, types and shapes are what the canonical ONNX gives them on its own way to Core ML, so that a
runner and an app see the same package whatever route it was made by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edge import errors
from edge.convert.onnx_to_mil.names import Names
from edge.convert.onnx_to_mil.program import Port, port_of

HELD = {"float32": "fp32", "int32": "int32"}  # how Core ML holds a port: numpy's name, MIL's


@dataclass(frozen=True)
class Ports:
    """Inputs and outputs, in the canonical model's order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def ordered(self, names: Sequence[str]) -> list[Port]:
        """The inputs in the order of ``names``, ONNX's.

        Raises :class:`errors.ModelRefused` where a framework's model has others.
        """
        known = {port.onnx: port for port in self.inputs}
        if sorted(known) != sorted(names):
            raise errors.ModelRefused(
                f"it has the inputs {', '.join(names)}, the canonical model {', '.join(known)}"
            )
        return [known[name] for name in names]


def of(like: Path) -> Ports:
    """The ports of a canonical model.

    Raises :class:`errors.ModelRefused` for free dimensions, and for types that Core ML lacks.
    """
    import onnx

    graph, names = onnx.load(like, load_external_data=False).graph, Names()
    stored = {tensor.name for tensor in graph.initializer}
    inputs = tuple(port_of(each, names) for each in graph.input if each.name not in stored)
    return Ports(inputs, tuple(port_of(each, names, given=False) for each in graph.output))


# ------------------------------------------------------------------------------------ a program
def fit(program: Any, ports: Ports) -> Ports:
    """Name the outputs of a MIL program as ``ports`` say; the ports with the shapes they have.

    Inputs must have their names already. Raises :class:`errors.ModelRefused` where number, names,
    types or an input's shape are others.
    """
    function = program.functions["main"]
    _inputs(function, ports.inputs)
    found = list(function.outputs)
    if len(found) != len(ports.outputs):
        raise errors.ModelRefused(
            f"it has {len(found)} outputs, the canonical model {len(ports.outputs)}"
        )
    own = [_own(function, var, found[:place]) for place, var in enumerate(found)]
    function.set_outputs(own)
    _make_way({port.name for port in (*ports.inputs, *ports.outputs)}, function, own)
    for var, port in zip(own, ports.outputs, strict=True):
        _same_type(var, port)
        if len(var.op.outputs) == 1:
            var.op.name = port.name
        var.name = port.name
    outputs = zip(own, ports.outputs, strict=True)
    return Ports(ports.inputs, tuple(replace(port, shape=_shape(var)) for var, port in outputs))


def _shape(var: Any) -> tuple[int, ...]:
    try:
        return tuple(int(dim) for dim in var.shape)
    except TypeError as error:  # a symbol of coremltools
        raise errors.ModelRefused(f"the shape of {var.name!r} depends on data") from error


def _inputs(function: Any, ports: Sequence[Port]) -> None:
    wanted = {port.name: port for port in ports}
    if function.inputs.keys() != wanted.keys():
        raise errors.ModelRefused(
            f"coremltools made the inputs {', '.join(function.inputs)} of {', '.join(wanted)}"
        )
    for name, var in function.inputs.items():
        _same_type(var, wanted[name])
        if tuple(var.shape) != wanted[name].shape:
            raise errors.ModelRefused(
                f"{name!r} has the shape {var.shape}, no {wanted[name].shape}"
            )


def _same_type(var: Any, port: Port) -> None:
    from coremltools.converters.mil.mil import types

    if (has := types.builtin_to_string(var.dtype)) != HELD[port.held]:
        raise errors.ModelRefused(f"{port.onnx!r} is {has}, no {HELD[port.held]}")


def _own(function: Any, var: Any, before: Sequence[Any]) -> Any:
    """A variable that an operation gives for this output alone: it can bear the output's name."""
    from coremltools.converters.mil import Builder

    if var.op is not None and var.op.op_type != "const" and var not in before:
        return var
    scopes = [op.scopes for op in function.operations if op.scopes]
    with function:
        made = Builder.identity(x=var)
    # Where an operation is from in the framework's code: coremltools' passes want it of each.
    made.op.scopes = dict(scopes[-1]) if scopes else {}
    return made


def _make_way(taken: set[str], function: Any, outputs: Sequence[Any]) -> None:
    """Rename what bears the name of a port inside of the program."""
    for op in _walk(function):
        for var in op.outputs:
            if var.name in taken and var not in outputs:
                var.name = f"{var.name}_inside"
        if op.name in taken:
            op.name = f"{op.name}_inside"


def _walk(block: Any) -> Iterator[Any]:
    for op in block.operations:
        yield op
        for inner in op.blocks:
            yield from _walk(inner)
