"""8-bit weights and activations for OpenVINO, by NNCF's post-training quantization.

NNCF's own accuracy control gives operations back, not this project's search: it takes one
quantizer out of the finished model, with the bias that goes with it, where another choice of nodes
would be quantized from the start (9 s on PP-OCR's det, a hundred times). The metric that it keeps
is the SQNR against the golden outputs, counted no further than the goal, so that it stops there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, samples
from edge.convert import openvino_library as ov
from edge.convert.golden_sqnr import HIGHEST_DB
from edge.convert.int8_static import plain
from edge.convert.openvino_golden import Golden
from edge.convert.openvino_ir import EXTRA
from edge.convert.openvino_nncf import quiet_nncf
from edge.convert.sensitivity import REMEDY
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PROPERTIES = {"INFERENCE_PRECISION_HINT": "f32"}
QUANTIZER = "FakeQuantize"


@step(version=1, tools=("openvino", "nncf", "numpy"), timeout=7200, extra=EXTRA)
def openvino_int8(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    model: Path,
    cases: Path,
    golden: Path,
    preset: str,
    subset_size: int,
    goals: list[float],
    release: str,
) -> Facts:
    """IR in 8 bits, from IR in fp32 (``model``, with ``model.bin`` beside it).

    ``cases`` and ``golden`` are index files of samples: inputs to calibrate on, and inputs with
    outputs to measure by. ``preset`` (performance, mixed) and ``subset_size`` are NNCF's.
    ``goals``: SQNRs in dB of the worst output over all golden samples; the first that can be
    reached is. Facts: ``operations``, ``bytes``, ``quantizers`` (left), ``sqnr_db``,
    ``sqnr_all_db`` (before operations were given back), ``calibration_samples``.

    Raises :class:`errors.ModelRefused` when nothing can be quantized and
    :class:`errors.ParityFailed` when no goal is reached with anything quantized.
    """
    openvino = ov.module(release)
    quantizer = _Quantizer(quiet_nncf(), samples.cases(cases.parent, "input"), preset, subset_size)
    judge = _Judge(golden.parent)
    for goal in goals:
        judge.start(goal)
        with ov.refused("cannot quantize the model", release):
            made = quantizer.quantize(ov.read(openvino, model, release), judge)
        left = sum(1 for each in made.get_ops() if each.get_type_name() == QUANTIZER)
        db = judge.measure(ov.compiled(openvino, made, PROPERTIES, release))
        if left and db >= goal:
            ov.save(openvino, made, out)
            figures = {"sqnr_db": plain(db), "sqnr_all_db": plain(judge.all_db)}
            count = {"quantizers": left, "calibration_samples": len(quantizer.cases)}
            return {**ov.figures(made, out), **count, **figures}
    raise _failed(goals, judge.all_db)


def _failed(goals: list[float], all_db: float) -> errors.EdgeError:
    if math.isnan(all_db) or all_db >= min(goals, default=math.inf):
        return errors.ModelRefused(
            "nothing to quantize: NNCF finds no operation that has an 8-bit form",
            remedy="use precision = 'fp16' or 'source'",
        )
    return errors.ParityFailed(
        f"int8 does not reach an SQNR of {min(goals):g} dB with any operation quantized; with "
        f"all it is {all_db:.1f} dB",
        remedy=REMEDY,
    )


class _Quantizer:
    """NNCF's quantization with accuracy control, on these calibration samples."""

    def __init__(
        self, nncf: Any, cases: list[dict[str, Array]], preset: str, subset_size: int
    ) -> None:
        if not cases:
            raise errors.UsageError(
                "there are no samples to calibrate on",
                remedy="give some hundred real inputs, as the model will see them",
            )
        self.nncf, self.cases = nncf, cases
        self.said = {
            "preset": getattr(nncf.QuantizationPreset, preset.upper()),
            "subset_size": min(subset_size, len(cases)),
        }

    def quantize(self, model: Any, judge: _Judge) -> Any:
        from nncf.quantization import advanced_parameters as advanced

        restorer = advanced.AdvancedAccuracyRestorerParameters(
            num_ranking_workers=1, ranking_subset_size=len(judge.pairs)
        )
        return self.nncf.quantize_with_accuracy_control(
            model,
            self.nncf.Dataset(self.cases),
            self.nncf.Dataset(list(range(len(judge.pairs)))),
            judge.validate,
            max_drop=0.0,
            advanced_accuracy_restorer_parameters=restorer,
            **self.said,
        )


class _Judge(Golden):
    """Golden samples as NNCF's validation asks for them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.start(HIGHEST_DB)

    def start(self, goal: float) -> None:
        """Begin a search: NNCF first measures the model as it was, then with all quantized."""
        self.goal, self.seen = goal, list[float]()

    @property
    def all_db(self) -> float:
        """With everything quantized; NaN where NNCF never measured that."""
        return self.seen[1] if len(self.seen) > 1 else math.nan

    def validate(self, ready: Any, places: Iterable[int]) -> tuple[float, list[float]]:
        """NNCF's validation function: the worst sample's figure, and each of them."""
        found = [self.sample(ready, place) for place in places]
        if len(found) == len(self.pairs):
            self.seen.append(min(found, default=HIGHEST_DB))
        counted = [min(db, self.goal) for db in found]
        return min(counted, default=self.goal), counted
