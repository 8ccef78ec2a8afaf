"""PyTorch modules on which routes to Core ML differ: a project's own code, by factory."""

# torch types a module's call as Any and its attributes as Tensor | Module.
# mypy: disable-error-code="no-any-return, no-untyped-call, operator, index"

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Branch(nn.Module):
    """Goes one way or the other by the values: a trace knows one of them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


class Number(nn.Module):
    """A value of a tensor as a number of Python's: a trace keeps that of its sample."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * int(x.sum() * 10)


class Ports(nn.Module):
    """All that Core ML holds otherwise, an output given twice, and one that is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(10, 8), nn.Linear(8, 4)

    def forward(
        self, index: torch.Tensor, on: torch.Tensor, k: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        y = self.last(self.table(index)) * k
        y = torch.where(on.unsqueeze(-1), y, torch.zeros_like(y))
        best, total = y.argmax(-1), y.double().sum()
        return {"y": y, "best": best, "any": y > 0, "total": total, "same": index, "again": y}


class Opaque(nn.Module):
    """An operator that coremltools does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigh(x @ x.T)[0]


def seeded(make: Any) -> nn.Module:
    torch.manual_seed(0)
    return make().eval()


def branch() -> nn.Module:
    return seeded(Branch)


def scripted() -> nn.Module:
    return torch.jit.script(seeded(Branch))


def number() -> nn.Module:
    return seeded(Number)


def ports() -> nn.Module:
    return seeded(Ports)


def opaque() -> nn.Module:
    return seeded(Opaque)
