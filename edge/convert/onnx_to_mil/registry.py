"""Which function converts which operator, of which opsets, for which element types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge.convert.onnx_to_mil.node import Node

    Handler = Callable[[Node], Any]

NEWEST = 26
MODULES = (
    "activations", "casts", "convolution", "elementwise", "indexing", "logic", "normalization",
    "padding", "pooling", "products", "recurrent", "reductions", "resize", "selection", "shapes",
    "sorting",
)  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """``function`` converts nodes of opsets ``since`` to ``until``.

    ``types``: "floats" (the first input is one of them), "numbers" (floats, int32, int64, bool;
    the default) or "moved" (narrow integers as well: values move or are compared, never computed).
    """

    function: Handler
    since: int
    until: int
    types: str


_FOUND: dict[str, list[Operator]] = {}


def operator(
    *names: str, since: int = 7, until: int = NEWEST, types: str = "numbers"
) -> Callable[[Handler], Handler]:
    """Declare what converts the operators ``names`` of ONNX's own domain."""

    def declare(function: Handler) -> Handler:
        for name in names:
            _FOUND.setdefault(name, []).append(Operator(function, since, until, types))
        return function

    return declare


def operators() -> dict[str, list[Operator]]:
    """All operators by name."""
    for name in MODULES:
        import_module(f"edge.convert.onnx_to_mil.{name}")
    return _FOUND


def find(name: str, opset: int) -> Operator | None:
    """What converts ``name`` of ``opset``, or None."""
    for each in operators().get(name, []):
        if each.since <= opset <= each.until:
            return each
    return None
