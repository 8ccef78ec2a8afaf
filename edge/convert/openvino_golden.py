"""Golden samples that compiled models are held against while they are being made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.convert import golden_sqnr
from edge.convert import openvino_library as ov


class Golden:
    """The samples in ``folder``: inputs with the outputs that are right."""

    def __init__(self, folder: Path) -> None:
        self.pairs = golden_sqnr.pairs(folder)

    def sample(self, ready: Any, place: int) -> float:
        """SQNR in dB of the worst output of one sample."""
        case, expected = self.pairs[place]
        return golden_sqnr.worst(expected, ov.infer(ready, case, list(expected)))

    def measure(self, ready: Any) -> float:
        """SQNR in dB of the worst output of all samples."""
        found = [self.sample(ready, place) for place in range(len(self.pairs))]
        return min(found, default=golden_sqnr.HIGHEST_DB)
