"""What a step is: a function from files to files, with a name, a version and its tools.

A step function takes ``out`` (an empty folder that it fills) and keyword arguments; arguments
that are :class:`pathlib.Path` are its input files, all others must be JSON values. It returns a
small JSON mapping of facts, or None. Scratch folders go beside ``out``: the store sweeps that
place, also after a kill. Same inputs, same bytes: no time of day, no absolute path,
no host name may reach what it writes. Raise ``version`` whenever the output for the same input
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Facts = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A step: ``tools`` are distributions whose installed versions go into the key.

    Of ``a|b`` one is needed, ``a?`` is used where it is installed; ``extra`` is the extra of this
    package that brings them. ``aside`` are arguments that say where and how a result is made,
    never what: not in the key; ``a.b`` is the entry ``b`` of the argument ``a``.
    """

    function: Callable[..., Facts | None]
    version: int
    tools: tuple[str, ...]
    isolated: bool
    timeout: float
    aside: tuple[str, ...] = ()
    extra: str = ""

    @property
    def name(self) -> str:
        """The function's name, which is the step's name in keys, manifests and logs."""
        return self.function.__name__

    @property
    def address(self) -> str:
        """``module:name`` of the function, for a process of its own."""
        return f"{self.function.__module__}:{self.name}.function"


def step(
    *,
    version: int,
    tools: tuple[str, ...] = (),
    isolated: bool = True,
    timeout: float = 1800,
    aside: tuple[str, ...] = (),
    extra: str = "",
) -> Callable[[Callable[..., Facts | None]], Step]:
    """Declare a step. ``isolated`` steps run in a process of their own, native code must."""

    def declare(function: Callable[..., Facts | None]) -> Step:
        return Step(function, version, tools, isolated, timeout, aside, extra)

    return declare
