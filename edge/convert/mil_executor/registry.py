"""Which function computes which MIL operation."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Arguments = dict[str, Any]
Function = Callable[[Arguments], Any]
MODULES = ("convolution", "elementwise", "indexing", "normalization", "products", "recurrent",
           "reductions", "resizing", "shapes")  # fmt: skip
_FOUND: dict[str, Function] = {}


def operation(*names: str) -> Callable[[Function], Function]:
    """Declare what computes the operations ``names``.

    The function is given the inputs by name (arrays, float32 where MIL says fp16; numbers, strings
    and booleans where MIL has constants; tuples; None for what is absent), and ``op``, its name. It
    returns an array, or a tuple of them.
    """

    def declare(function: Function) -> Function:
        for name in names:
            _FOUND[name] = function
        return function

    return declare


def operations() -> dict[str, Function]:
    """All functions by the operations that they compute."""
    for name in MODULES:
        import_module(f"edge.convert.mil_executor.{name}")
    return _FOUND
