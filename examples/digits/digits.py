"""A small CNN for scikit-learn's handwritten digits: 8x8 pixels in, ten classes out."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

HERE = Path(__file__).parent


def architecture() -> nn.Module:
    """image[batch, 1, 8, 8] -> logits[batch, 10], untrained."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def model() -> nn.Module:
    """The trained module, ready to run."""
    made = architecture()
    made.load_state_dict(torch.load(HERE / "weights.pt", weights_only=True))
    return made.eval()
