"""Which of two IRs of one model is kept: of the canonical ONNX, or of the framework's own model.

1. What is not within the target's tolerance against the golden outputs is not kept.
2. Of two that are, the one with clearly less noise: by 6 dB (twice the amplitude), counted no
   further than 100 dB, above which differences are float32's rounding.
3. Else the one that is clearly smaller, by 1 % of the bytes of both files.
4. Else the one with fewer operations.
5. Else, where they are equal in all of it, the canonical one, which every other target has as well.

Times are no criterion: they would make the artifact depend on the host that builds.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, parity
from edge.convert import golden_sqnr
from edge.convert import openvino_library as ov
from edge.convert.int8_static import plain
from edge.convert.openvino_ir import EXTRA
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

ROUNDING_DB = 100.0
CLEARLY_DB = 6.0
CLEARLY_SMALLER = 0.99
CANONICAL, FRAMEWORK = "canonical", "framework"
EQUAL = "no clear difference in noise or bytes, as many operations: other targets have it as well"


@dataclass(frozen=True)
class Way:
    """An IR's figures.

    ``sqnr_db`` of its worst output, ``bytes`` of both files, ``operations`` without constants;
    ``why_not``: why it is outside the tolerance, empty when it is within.
    """

    sqnr_db: float
    bytes: int
    operations: int
    why_not: str = ""

    def to_json(self) -> dict[str, Any]:
        """For facts."""
        found = {"sqnr_db": plain(self.sqnr_db), "bytes": self.bytes, "why_not": self.why_not}
        return {**found, "operations": self.operations}


def better(canonical: Way, framework: Way) -> tuple[str, str]:
    """Which is kept, and why in a phrase, by the rules of the module's docstring."""
    ways = {CANONICAL: canonical, FRAMEWORK: framework}
    for name, other in ((CANONICAL, FRAMEWORK), (FRAMEWORK, CANONICAL)):
        if ways[other].why_not:
            return name, f"the other is not within tolerance: {ways[other].why_not}"
    noise = {name: min(way.sqnr_db, ROUNDING_DB) for name, way in ways.items()}
    for name, other in ((CANONICAL, FRAMEWORK), (FRAMEWORK, CANONICAL)):
        if noise[name] >= noise[other] + CLEARLY_DB:
            return name, f"SQNR {noise[name]:.1f} dB, the other {noise[other]:.1f} dB"
    for name, other in ((CANONICAL, FRAMEWORK), (FRAMEWORK, CANONICAL)):
        if ways[name].bytes < CLEARLY_SMALLER * ways[other].bytes:
            return name, f"{ways[name].bytes} bytes, the other {ways[other].bytes}"
    if framework.operations < canonical.operations:
        return FRAMEWORK, f"{framework.operations} operations, the other {canonical.operations}"
    if framework.operations > canonical.operations:
        return CANONICAL, f"{canonical.operations} operations, the other {framework.operations}"
    return CANONICAL, EQUAL


@step(version=2, tools=("openvino", "numpy"), timeout=3600, extra=EXTRA)
def openvino_choice(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    canonical: Path,
    framework: Path,
    golden: Path,
    properties: dict[str, str],
    tolerance: dict[str, Any],
    release: str,
) -> Facts:
    """``model.xml`` and ``model.bin``: the better of two, each with its ``.bin`` beside it.

    ``golden`` is the index file of the golden samples, ``tolerance`` the fields of
    :class:`edge.parity.Tolerance`. Facts: ``kept`` (canonical, framework), ``why``, and the
    figures of both by these names.
    """
    openvino = ov.module(release)
    limits = parity.Tolerance(**tolerance)
    paths = {CANONICAL: canonical, FRAMEWORK: framework}
    found = {}
    for name, path in paths.items():
        read = ov.read(openvino, path, release)
        figures = ov.figures(read, path.parent)
        try:
            ready = ov.compiled(openvino, read, properties, release)
            db, why = _held(ready, golden.parent, limits)
        except (errors.ModelRefused, errors.RunFailed) as error:
            db, why = -math.inf, error.message
        found[name] = Way(db, figures["bytes"], figures["operations"], why)
    kept, why = better(found[CANONICAL], found[FRAMEWORK])
    for name in (ov.IR, "model.bin"):
        shutil.copyfile(paths[kept].parent / name, out / name)
    return {"kept": kept, "why": why, **{name: way.to_json() for name, way in found.items()}}


def _held(ready: Any, golden: Path, limits: parity.Tolerance) -> tuple[float, str]:
    """The model's :func:`difference` from the golden samples."""
    pairs = golden_sqnr.pairs(golden)
    actual = (ov.infer(ready, case, list(expected)) for case, expected in pairs)
    return difference([expected for _, expected in pairs], actual, limits)


def difference(
    expected: Iterable[Arrays], actual: Iterable[Arrays], limits: parity.Tolerance
) -> tuple[float, str]:
    """SQNR of the worst output in dB (inf: none differs), and the first one outside ``limits``."""
    worst, first = math.inf, ""
    for number, (wanted, found) in enumerate(zip(expected, actual, strict=True)):
        if wanted.keys() - found.keys():
            return -math.inf, f"sample {number}: there is no output {min(wanted.keys() - found)!r}"
        for name, array in wanted.items():
            measured = parity.measure(array, found[name], limits)
            reasons = parity.verdict(measured, limits)
            first = first or (f"sample {number}, {name!r}: {reasons[0]}" if reasons else "")
            worst = min(worst, math.inf if measured.sqnr_db is None else measured.sqnr_db)
    return worst, first
