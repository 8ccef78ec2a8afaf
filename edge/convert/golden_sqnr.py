"""SQNR against golden samples as searches compare it: always a finite number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import samples
from edge.convert.int8_static import output_sqnr

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Arrays = dict[str, Array]

LOWEST_DB = -300.0  # of outputs with NaN, infinity or a shape that is not expected
HIGHEST_DB = 300.0  # of equal outputs


def pairs(folder: Path) -> list[tuple[Arrays, Arrays]]:
    """Inputs of the samples in ``folder``, each with the outputs that are right."""
    inputs, outputs = (samples.cases(folder, role) for role in samples.ROLES)
    return list(zip(inputs, outputs, strict=True))


def worst(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> float:
    """SQNR in dB of the worst output; what has none (labels, zeros alone) does not count."""
    found = [output_sqnr(array, actual[name]) for name, array in expected.items()]
    told = [min(max(db, LOWEST_DB), HIGHEST_DB) for db in found if not math.isnan(db)]
    return min(told, default=HIGHEST_DB)
