"""Emit MIL operations under names that come from the ONNX graph: same model, same program."""

from __future__ import annotations

from typing import Any

from edge import errors
from edge.convert.onnx_to_mil.names import Names
from edge.convert.onnx_to_mil.values import Value, fitting, mil_dtype, type_name

RANK_LIMIT = 5  # of Core ML's tensors
# What coremltools raises for arguments that an operation does not take.
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError, IndexError, KeyError)


class Emitter:
    """The builder of one program."""

    def __init__(self, builder: Any, target: int, names: Names) -> None:
        self._builder, self.target, self._names = builder, target, names
        self._constants: dict[int, tuple[Value, Any]] = {}

    def op(self, kind: str, base: str, title: str, arguments: dict[str, Any]) -> Any:
        """One operation. Raises :class:`errors.ModelRefused` with ``title`` and the reason."""
        make = getattr(self._builder, kind)
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            made = make(name=self._names.unique(base), **given)
        except REFUSALS as error:
            reason = " ".join(str(error).split())[:300]
            raise errors.ModelRefused(
                f"{title}: coremltools takes no such {kind}: {reason}"
            ) from error
        for var in made if isinstance(made, list | tuple) else (made,):
            self._check(var.shape, title)
        return made

    def const(self, array: Any, base: str, title: str) -> Any:
        """A constant in MIL's own types."""
        import numpy as np

        fits = fitting(np.asarray(array))
        if fits is None:
            raise errors.ModelRefused(
                f"{title}: a constant does not fit: MIL has no more than 32 bits",
                remedy="keep values within int32 and float32",
            )
        self._check(fits.shape, title)
        value = fits[()] if fits.ndim == 0 else fits
        return self._builder.const(val=value, name=self._names.unique(f"{base}_const"))

    def var(self, value: Value, title: str) -> Any:
        """A value as a variable; a constant is written once, however often it is read."""
        if mil_dtype(value.type) is None:
            raise errors.ModelRefused(
                f"{title}: MIL has no element type for {type_name(value.type)}",
                remedy="export the model with float32, int32 or int64",
            )
        if not value.constant:
            return value.data
        if id(value) not in self._constants:
            # The value is kept beside its variable: an id is only unique among living objects.
            self._constants[id(value)] = value, self.const(value.data, "weights", title)
        return self._constants[id(value)][1]

    def dtype(self, var: Any) -> str:
        """``fp32``, ``int32`` or ``bool``."""
        from coremltools.converters.mil.mil import types

        name = types.builtin_to_string(var.dtype)
        return str(name)

    def _check(self, shape: Any, title: str) -> None:
        sizes = tuple(shape)
        if len(sizes) > RANK_LIMIT:
            raise errors.ModelRefused(
                f"{title}: {len(sizes)} dimensions, Core ML has at most {RANK_LIMIT}"
            )
        if any(not isinstance(size, int) and not hasattr(size, "__index__") for size in sizes):
            raise errors.ModelRefused(f"{title}: a size depends on values: {sizes}")
        if 0 in sizes:
            raise errors.ModelRefused(f"{title}: an empty tensor of shape {sizes}")
