"""Small networks in PyTorch for Core ML, seeded and not trained: a project's own code, by factory.

Copied into a project, ``net_cnn:cnn`` say is then a source. Each takes ``x`` (INPUTS).
"""

# torch types a module's call as Any and its attributes as Tensor | Module.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator"

from __future__ import annotations

import torch
from torch import nn

INPUTS = {
    "cnn": (1, 1, 28, 28),
    "mobile": (1, 3, 64, 64),
    "encoder": (1, 16, 64),
    "lstm": (1, 20, 32),
    "gru": (1, 20, 32),
}


class Inverted(nn.Module):
    """MobileNetV3's block: widened, convolved a channel alone, squeezed and excited, narrowed."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        wide = 4 * given
        self.body = nn.Sequential(
            nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(),
        )  # fmt: skip
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, given, 1), nn.ReLU(),
            nn.Conv2d(given, wide, 1), nn.Hardsigmoid(),
        )  # fmt: skip
        self.last = nn.Sequential(nn.Conv2d(wide, made, 1, bias=False), nn.BatchNorm2d(made))
        self.adds = stride == 1 and given == made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y = self.last(y * self.gate(y))
        return x + y if self.adds else y


class Recurrent(nn.Module):
    """Two layers that read a sequence in both directions, and a product over each step."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.layers = kind(32, 48, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.layers(x)
        return self.head(y)


def settled(model: nn.Module) -> nn.Module:
    """The model as after training: batch normalization has means and variances of its own."""
    for name, values in model.named_buffers():
        if name.endswith("running_mean"):
            values.normal_(0, 0.1)
        elif name.endswith("running_var"):
            values.uniform_(0.5, 1.5)
    return model.eval()


def cnn() -> nn.Module:
    """Convolutions, batch normalization, pools; images (1, 1, 28, 28)."""
    torch.manual_seed(0)
    return settled(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10), nn.Softmax(-1),
        )
    )  # fmt: skip


def mobile() -> nn.Module:
    """A small MobileNetV3; images (1, 3, 64, 64)."""
    torch.manual_seed(0)
    return settled(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
            Inverted(16, 16, 1), Inverted(16, 32, 2), Inverted(32, 32, 1), Inverted(32, 64, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100),
        )
    )  # fmt: skip


def encoder() -> nn.Module:
    """Two layers of nn.TransformerEncoder; rows (1, 16, 64)."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return settled(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


def lstm() -> nn.Module:
    """LSTM, two layers in both directions; (1, 20, 32)."""
    torch.manual_seed(0)
    return settled(Recurrent(nn.LSTM))


def gru() -> nn.Module:
    """GRU, two layers in both directions; (1, 20, 32)."""
    torch.manual_seed(0)
    return settled(Recurrent(nn.GRU))
