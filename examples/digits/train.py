"""Trains the CNN of digits.py; writes weights.pt, samples.npz and calibration.npz beside it."""

from __future__ import annotations

import numpy as np
import torch
from digits import HERE, architecture
from metric import data
from torch import nn

EPOCHS = 15


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, held_out, labels, _ = data()
    model = architecture().train()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    torch.save(model.state_dict(), HERE / "weights.pt")
    # Rows that were not trained on, and rows that were: what is proven, what is calibrated on.
    np.savez(HERE / "samples.npz", **{f"image/{n}": held_out[n : n + 1] for n in range(10)})
    np.savez(HERE / "calibration.npz", **{f"image/{n}": images[n : n + 1] for n in range(100)})


if __name__ == "__main__":
    main()
