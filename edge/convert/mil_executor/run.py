"""Walk a MIL program."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert.mil_executor import control, registry
from edge.convert.mil_executor.program import load

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# MIL's scalar types by their names in coremltools, as numpy has them.
DTYPES = {"fp16": "float16", "fp32": "float32", "int32": "int32", "bool": "bool", "int8": "int8",
          "uint8": "uint8", "int16": "int16", "uint16": "uint16"}  # fmt: skip


class Unverified(errors.EdgeError):
    """The program holds an operation that this executor does not know: nothing is proven."""

    exit_code = 5


@dataclass(frozen=True)
class Run:
    """``outputs`` by name, in MIL's dtypes; ``odd``: operations that made NaN or infinity.

    ``odd`` holds (operation's name, its type) in order, where all inputs were finite: where
    half precision overflows, the first one says where.
    """

    outputs: dict[str, Array]
    odd: list[tuple[str, str]] = field(default_factory=list)


def run(program: Any, inputs: dict[str, Array], *, half: bool = False) -> Run:
    """Outputs of ``program`` (a Program, or the path of a package) for ``inputs`` by name.

    ``half`` rounds every float32 value to float16, weights too: what a package in half precision
    would hold. Raises :class:`Unverified` for an unknown operation, :class:`errors.RunFailed` where
    inputs are missing or one is of another shape.
    """
    whole = load(program) if isinstance(program, Path) else program
    function = whole.functions["main"]
    interpreter = Interpreter(half=half)
    for name, var in function.inputs.items():
        interpreter.values[var] = interpreter.rounded(_input(name, var, inputs))
    interpreter.block(function.operations)
    outputs = {var.name: interpreter.value(var) for var in function.outputs}
    return Run(outputs, interpreter.odd)


def _input(name: str, var: Any, inputs: dict[str, Array]) -> Array:
    if name not in inputs:
        raise errors.RunFailed(f"the program's input {name!r} is not given")
    array = inputs[name]
    if array.shape != tuple(var.shape):
        raise errors.RunFailed(f"input {name!r} has shape {array.shape}, not {tuple(var.shape)}")
    return array.astype(dtype_of(var))


def dtype_of(var: Any) -> str:
    """The numpy dtype of a MIL variable."""
    from coremltools.converters.mil.mil import types

    name = types.builtin_to_string(var.dtype)
    if name not in DTYPES:
        raise Unverified(f"{var.name}: no dtype for MIL's {name}")
    return DTYPES[name]


class Interpreter:
    """Values of variables while blocks are walked."""

    def __init__(self, *, half: bool) -> None:
        self.values: dict[Any, Any] = {}
        self.odd: list[tuple[str, str]] = []
        self._half = half
        self._known = registry.operations()

    def block(self, operations: Any) -> None:
        """Compute operations in order."""
        for op in operations:
            self._operation(op)

    def value(self, var: Any) -> Any:
        """A variable's value; a constant's own where nothing computed it."""
        return self.values.get(var, var.val)

    def rounded(self, array: Any) -> Any:
        """In half precision and back, where that was asked for."""
        import numpy as np

        if not self._half or getattr(array, "dtype", None) != np.float32:
            return array
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)

    def _operation(self, op: Any) -> None:

        if op.op_type == "const":
            held = op.val.val
            self.values[op.outputs[0]] = self.rounded(held)
            return
        if op.op_type.startswith("constexpr_"):
            self.values[op.outputs[0]] = op.materialized_val_inference()
            return
        if op.op_type in control.CONTROL:
            made: Any = control.CONTROL[op.op_type](self, op)
        elif op.op_type in self._known:
            made = self._computed(op)
        else:
            raise Unverified(
                f"{op.name}: the executor does not know the operation {op.op_type}",
                remedy="a device has to prove this package",
            )
        self._store(op, made if isinstance(made, tuple) else (made,))

    def _computed(self, op: Any) -> Any:
        import numpy as np

        arguments = dict.fromkeys(op.input_spec.input_types)
        arguments |= {name: self._argument(given) for name, given in op.inputs.items()}
        try:
            with np.errstate(all="ignore"):
                return self._known[op.op_type]({**arguments, "op": op.op_type})
        except NotImplementedError as error:
            raise Unverified(
                f"{op.name}: the executor does not know {error}",
                remedy="a device has to prove this package",
            ) from error
        except (IndexError, ValueError) as error:
            raise errors.RunFailed(f"{op.name} ({op.op_type}): {error}") from error

    def _argument(self, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return tuple(self._argument(each) for each in given)
        return None if given is None else _wide(self.value(given))

    def _store(self, op: Any, made: tuple[Any, ...]) -> None:
        import numpy as np

        for var, value in zip(op.outputs, made, strict=True):
            with np.errstate(all="ignore"):
                array = self.rounded(np.asarray(value).astype(dtype_of(var)))
            if array.shape != tuple(var.shape):
                raise Unverified(
                    f"{op.name} ({op.op_type}): the executor computes the shape {array.shape}, "
                    f"the program says {tuple(var.shape)}"
                )
            self.values[var] = array
            if not _finite(array) and all(_finite(each) for each in self._given(op)):
                self.odd.append((op.name, op.op_type))

    def _given(self, op: Any) -> list[Any]:
        flat: list[Any] = []
        for each in op.inputs.values():
            flat += each if isinstance(each, list | tuple) else [each]
        return [self.value(var) for var in flat if var is not None]


def _wide(value: Any) -> Any:
    """Half precision as float32; arrays stay arrays, other constants as they are."""
    import numpy as np

    if isinstance(value, np.ndarray | np.generic) and value.dtype == np.float16:
        return value.astype(np.float32)
    return value


def _finite(value: Any) -> bool:
    import numpy as np

    array = np.asarray(value)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
