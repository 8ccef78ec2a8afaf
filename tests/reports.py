"""Records, bundles and choices of precision that tests of reports share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from edge import errors
from edge.choice import Limits, Variant, choose, excluded
from edge.choice_record import ChoiceRecord, ModelRef
from edge.parity import OutputParity
from edge.report import Built
from edge.results import ModelId, Record, Size, Sizes
from edge.stats import Summary, Verdict

MODEL = ModelId("magika", "3.3", "11" * 32)
SIZES = Sizes(Size(2_950_000, 1_210_000), Size(34_800_000, 9_000_000), Size(37_800_000, 10_300_000))
SUMMARY = Summary(
    runs=900, repeats=3, median_ns=1.24e6, low_ns=1.2e6, high_ns=1.28e6, p90_ns=1.5e6,
    p99_ns=None, mean_ns=1.3e6, min_ns=1.1e6, iqr_ns=4e4, throughput=806.47, drift=1.0,
    cpu_share=0.99, involuntary_switches=0, medians_ns=(1.24e6,) * 3, spread=0.0,
)  # fmt: skip
OUTPUT = OutputParity(
    "y", "float32", "float32", (1, 2), (1, 2), 2, 1e-3, max_abs=3e-7, sqnr_db=120.0
)
RECORD = Record(
    id="a1", created="2026-01-01T00:00:00+00:00", model=MODEL, samples_sha256="22" * 32,
    target="linux-x64", manifest_sha256="33" * 32, device="pi", runner="c",
    runtime="onnxruntime 1.32.0", facts={}, before={}, after={}, options={"threads": 4},
    sizes=SIZES, load_ns=(40_000_000, 42_000_000), first_ns=(3_000_000,), peak_bytes=61_500_000,
    summary=SUMMARY, outputs=(OUTPUT, replace(OUTPUT, max_abs=2e-6, sqnr_db=math.inf)),
    verdict=Verdict("noisy", ("it had the CPU for 40% of the time only",)),
)  # fmt: skip
BUILT = Built("built", "android", MODEL, "22" * 32, "44" * 32, SIZES)
PLANNED = replace(BUILT, state="planned", target="ios")

SOURCE = Variant(
    "source", "made", artifact_raw=3_170_000, artifact_compressed=1_200_000, sqnr_db=131.2,
    max_abs=2.8e-7, accuracy=0.9722, drop=0.0, p50_ns=1.7e6, p50_low_ns=1.65e6,
    p50_high_ns=1.75e6, peak_bytes=60_000_000, sha256="aa" * 32,
)  # fmt: skip
INT8 = replace(
    SOURCE, precision="int8", artifact_raw=830_000, artifact_compressed=500_000, sqnr_db=24.3,
    max_abs=0.061, accuracy=0.9694, drop=0.0028, p50_ns=2.6e6, p50_low_ns=2.5e6,
    p50_high_ns=2.7e6, sha256="bb" * 32,
)  # fmt: skip
WEIGHTS = replace(INT8, precision="int8-weights", artifact_raw=1_020_000, sqnr_db=38.5)
FAILED = Variant("int4-weights", "failed", "could not be made: no MatMul with constant weights")
VARIANTS = (SOURCE, INT8, WEIGHTS, FAILED)


def untimed(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """The same, as they are where nothing can be run."""
    return tuple(replace(v, p50_ns=None, p50_low_ns=None, p50_high_ns=None) for v in variants)


def decided(
    target: str, variants: Sequence[Variant], limits: Limits, device: str | None = None
) -> ChoiceRecord:
    """The record of what is chosen of ``variants``."""
    chosen, reasons = None, excluded(variants, limits)
    warnings: tuple[str, ...] = ()
    try:
        decision = choose(variants, limits, target=target)
    except errors.BudgetExceeded:
        pass
    else:
        chosen, reasons = decision.chosen.precision, dict(decision.reasons)
        warnings = decision.warnings
    return ChoiceRecord(
        target=target, platform=target, model=ModelRef("digits", "1.0", "55" * 32),
        samples_sha256="22" * 32, limits=limits, variants=tuple(variants), reasons=reasons,
        chosen=chosen, warnings=warnings, device=device, source_accuracy=0.9731, metric="top-1",
    )  # fmt: skip


X64 = decided("linux-x64", VARIANTS, Limits(max_drop=0.01), "local")
ANDROID = decided("android", untimed(VARIANTS), Limits(min_sqnr=30.0))
NOTHING = decided("ios", untimed(VARIANTS), Limits(max_size=500_000))
ENDLESS = replace(SOURCE, sqnr_db=math.inf)
