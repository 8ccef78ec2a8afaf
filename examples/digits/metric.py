"""The data, and how good a model is on what it was not trained on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

Arrays = dict[str, np.ndarray]


def data() -> list[np.ndarray]:
    """Training and held-out images (float32, 0 to 1), training and held-out labels."""
    found = load_digits()
    images = (found.images / 16).astype(np.float32)[:, None]
    return train_test_split(images, found.target, test_size=0.3, random_state=0)


def accuracy(run: Callable[[Arrays], Arrays]) -> float:
    """The fraction of held-out images that get the right class."""
    _, images, _, labels = data()
    return float((run({"image": images})["logits"].argmax(axis=1) == labels).mean())
