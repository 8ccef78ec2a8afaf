"""Values of a graph while it is converted: constants as arrays, all others as MIL variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# TensorProto.DataType, by number: what each is called and what it becomes in MIL.
NAMES = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip
NUMBERS = {name: number for number, name in NAMES.items()}
FLOATS = frozenset(NUMBERS[name] for name in ("float", "float16", "double"))
WHOLE = frozenset(NUMBERS[name] for name in ("int32", "int64"))
# Held in int32, which is wider: they move and compare rightly, but wrap around nowhere.
NARROW = frozenset(NUMBERS[name] for name in ("uint8", "int8", "uint16", "int16"))
BOOL = frozenset({NUMBERS["bool"]})


@dataclass(frozen=True)
class Value:
    """A tensor: ``data`` is an array (constant) or a MIL variable, ``type`` ONNX's element type."""

    data: Any
    type: int

    @property
    def constant(self) -> bool:
        """Whether the value is known now."""
        import numpy as np

        return isinstance(self.data, np.ndarray)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes; a scalar has none."""
        return tuple(int(size) for size in self.data.shape)


def type_name(number: int) -> str:
    """``int64``; numbers that have no name here as they are."""
    return NAMES.get(number, f"type {number}")


def mil_dtype(number: int) -> str | None:
    """The MIL type that an ONNX element type is held in; None where there is none."""
    if number in FLOATS:
        return "fp32"
    if number in WHOLE or number in NARROW:
        return "int32"
    return "bool" if number in BOOL else None


def constant(array: Any) -> Value:
    """An array as a value, with the element type of its dtype."""
    import numpy as np
    from onnx import helper

    whole = np.asarray(array)
    return Value(whole, helper.np_dtype_to_tensor_dtype(whole.dtype))


def fitting(array: Array) -> Array | None:
    """``array`` in the dtype that MIL has for it, or None where a value does not fit."""
    import numpy as np

    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        limits = np.iinfo(np.int32)
        if array.size and not limits.min <= array.min() <= array.max() <= limits.max:
            return None
        return array.astype(np.int32)
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    return narrow if np.array_equal(np.isfinite(narrow), np.isfinite(array)) else None
