"""One ONNX node, as the functions that convert operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from edge import errors
from edge.convert.onnx_to_mil.emit import Emitter
from edge.convert.onnx_to_mil.values import Value, type_name

if TYPE_CHECKING:
    import onnx

    from edge.convert.onnx_to_mil.values import Array

Var = Any


class Node:
    """Inputs, attributes and the means to emit MIL; every failure names the node."""

    def __init__(
        self,
        proto: onnx.NodeProto,
        opset: int,
        inputs: list[Value | None],
        attributes: dict[str, Any],
        emitter: Emitter,
    ) -> None:
        self.proto, self.opset, self.inputs = proto, opset, inputs
        self.kind = proto.op_type
        self._attributes = attributes
        self._read: set[str] = set()
        self._emitter = emitter
        self._base = next((name for name in proto.output if name), proto.name) or "node"

    # ------------------------------------------------------------------------------ failures
    @property
    def title(self) -> str:
        """``node 'conv1' (Conv, opset 17)``."""
        name = self.proto.name or next(iter(self.proto.output), "")
        domain = f"{self.proto.domain}." if self.proto.domain not in {"", "ai.onnx"} else ""
        return f"node {name!r} ({domain}{self.kind}, opset {self.opset})"

    def refuse(self, reason: str, remedy: str = "") -> NoReturn:
        """Raise :class:`errors.ModelRefused` with the node's title."""
        raise errors.ModelRefused(f"{self.title}: {reason}", remedy=remedy)

    # ------------------------------------------------------------------------------ attributes
    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value; a string comes as str. What is never read is a refusal."""
        self._read.add(name)
        found = self._attributes.get(name, default)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found

    def unread(self) -> list[str]:
        """Attributes that the conversion did not look at."""
        return sorted(set(self._attributes) - self._read)

    def output_used(self, index: int) -> bool:
        """Whether the node names that output."""
        return len(self.proto.output) > index and bool(self.proto.output[index])

    # ------------------------------------------------------------------------------ inputs
    def has(self, index: int) -> bool:
        """Whether the optional input is given."""
        return len(self.inputs) > index and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """An input; a missing one is a refusal."""
        found = self.inputs[index] if len(self.inputs) > index else None
        return found if found is not None else self.refuse(f"input {index} is missing")

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Sizes of an input."""
        return self.value(index).shape

    def rank(self, index: int = 0) -> int:
        """Number of dimensions of an input."""
        return len(self.shape(index))

    def type(self, index: int = 0) -> str:
        """Element type of an input, as ONNX calls it."""
        return type_name(self.value(index).type)

    def constant(self, index: int) -> bool:
        """Whether an input is there and known now."""
        return self.has(index) and self.value(index).constant

    def array(self, index: int, what: str) -> Array:
        """A constant input as it is; one that is computed is a refusal that says ``what``."""
        value = self.value(index)
        if not value.constant:
            self.refuse(
                f"{what} must be constant",
                remedy="bind it (a constant input of the project), or compute it before the model",
            )
        array: Array = value.data
        return array

    def ints(self, index: int, what: str) -> list[int]:
        """A constant input as Python integers."""
        return [int(each) for each in self.array(index, what).reshape(-1)]

    def ints_either(self, name: str, index: int, *, moved: int) -> list[int] | None:
        """What was attribute ``name`` and is input ``index`` since opset ``moved``; or None."""
        if self.opset >= moved:
            return self.ints(index, name) if self.has(index) else None
        found = self.attribute(name)
        return None if found is None else [int(each) for each in found]

    def var(self, index: int = 0) -> Var:
        """An input as a MIL variable; constants become ``const`` operations."""
        return self._emitter.var(self.value(index), self.title)

    def axis(self, default: int, *, rank: int | None = None) -> int:
        """Attribute ``axis``, not negative."""
        return self.positive(int(self.attribute("axis", default)), rank=rank)

    def positive(self, axis: int, *, rank: int | None = None) -> int:
        """An axis counted from the front; of the first input unless ``rank`` is given."""
        of = self.rank() if rank is None else rank
        if not -of <= axis < max(of, 1):
            self.refuse(f"axis {axis} is outside of a tensor with {of} dimensions")
        return axis % of if of else 0

    # ------------------------------------------------------------------------------ MIL
    def op(self, kind: str, **arguments: Any) -> Var:
        """One MIL operation; what coremltools refuses is refused with its words."""
        return self._emitter.op(kind, self._base, self.title, arguments)

    def const(self, array: Any) -> Var:
        """An array as a MIL constant."""
        return self._emitter.const(array, self._base, self.title)

    def cast(self, var: Var, dtype: str) -> Var:
        """``var`` as "fp32", "int32" or "bool"; itself where it is that."""
        return var if self.dtype(var) == dtype else self.op("cast", x=var, dtype=dtype)

    def dtype(self, var: Var) -> str:
        """``fp32``, ``int32`` or ``bool``."""
        return self._emitter.dtype(var)

    @property
    def target(self) -> int:
        """The least iOS release: 15 to 18."""
        return self._emitter.target
