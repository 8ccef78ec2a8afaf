"""TorchScript for the present exporter: as an exported program whose sizes are numbers again.

``torch.jit.trace`` records arithmetic of sizes (``head_dim = embed_dim // heads``) as arithmetic of
tensors. Read back from them, a size is a value that nothing is known of, and the exporter gives
up ("Could not guard on data-dependent expression"). Here such tensors stay numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def as_module(script: Any, examples: Sequence[Any]) -> nn.Module:
    """A module that the present exporter takes; raises whatever torch's converter raises."""
    from torch import nn
    from torch._export.converter import TS2EPConverter

    inner: Any = TS2EPConverter(script, tuple(examples)).convert().module()
    numbers = _numbers(inner)

    class Script(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge_script = inner

        def forward(self, *tensors: Any) -> Any:
            return _interpreter(self.edge_script, numbers).run(*tensors)

    made = Script()
    made.training = False
    return made


def _numbers(module: Any) -> dict[str, int]:
    """Integer constants without dimensions, by name: read now, since tracing hides values."""
    values = [*module.named_buffers(), *vars(module).items()]
    return {
        name: int(value)
        for name, value in values
        if getattr(value, "shape", None) == () and not value.dtype.is_floating_point
    }


def _interpreter(module: Any, numbers: Mapping[str, int]) -> Any:
    from torch import fx

    table = _arithmetic()

    class Sizes(fx.Interpreter):
        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            return numbers[target] if target in numbers else super().get_attr(target, args, kwargs)

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            # Guards of the converter's own trace; what is exported is proven against the module.
            return None if target == "_guards_fn" else super().call_module(target, args, kwargs)

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            compute = table.get(str(target))
            if compute and all(_plain(each) for each in args):
                return compute(*args, **kwargs)
            return super().call_function(target, args, kwargs)

    return Sizes(module)


def _plain(value: Any) -> bool:
    import torch

    return isinstance(value, int | str | torch.SymInt | torch.SymBool)


def _arithmetic() -> dict[str, Callable[..., Any]]:
    """What the operators of size arithmetic are for whole numbers."""

    def same(value: Any, **_: Any) -> Any:
        return value

    def divide(one: Any, two: Any, rounding_mode: str = "") -> Any:
        if rounding_mode not in ("trunc", "floor"):
            raise NotImplementedError("a size is computed by a division with a remainder")
        return one // two  # sizes are not negative

    found: dict[str, Callable[..., Any]] = {}
    for kind in ("Tensor", "Scalar"):
        found[f"aten.mul.{kind}"] = operator.mul
        found[f"aten.add.{kind}"] = operator.add
        found[f"aten.sub.{kind}"] = operator.sub
        found[f"aten.div.{kind}_mode"] = divide
    found["aten.floor_divide.default"] = operator.floordiv
    found["aten._assert_scalar.default"] = lambda *_: None
    for name in ("aten.scalar_tensor", "aten._to_copy", "aten._local_scalar_dense", "aten.item"):
        found[f"{name}.default"] = same
    return found
