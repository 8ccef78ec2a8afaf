"""Golden samples that compiled models are held against while they are being made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import samples
from edge.convert import openvino_library as ov
from edge.convert.int8_static import output_sqnr

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LOWEST_DB = -300.0  # of a model that computes NaN: these figures are subtracted
HIGHEST_DB = 300.0  # of equal outputs


class Golden:
    """The samples in ``folder``: inputs with the outputs that are right."""

    def __init__(self, folder: Path) -> None:
        inputs, outputs = (samples.cases(folder, role) for role in samples.ROLES)
        self.pairs = list(zip(inputs, outputs, strict=True))

    def sample(self, ready: Any, place: int) -> float:
        """SQNR in dB of the worst output of one sample."""
        case, expected = self.pairs[place]
        actual = ov.infer(ready, case, list(expected))
        found = [output_sqnr(array, actual[name]) for name, array in expected.items()]
        told = [min(max(db, LOWEST_DB), HIGHEST_DB) for db in found if not math.isnan(db)]
        return min(told, default=HIGHEST_DB)

    def measure(self, ready: Any) -> float:
        """SQNR in dB of the worst output of all samples."""
        found = [self.sample(ready, place) for place in range(len(self.pairs))]
        return min(found, default=HIGHEST_DB)
