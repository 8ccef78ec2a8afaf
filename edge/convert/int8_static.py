"""Static 8-bit quantization: weights and activations, by ranges measured on calibration data.

1. The model is prepared (``edge.convert.quantizable``).
2. Ranges are measured (``edge.convert.activation_ranges``).
3. ``onnxruntime.quantization`` writes the quantized model, in QDQ or QOperator format.
4. It is measured against the golden samples; nodes go back to float until it is within
   the goals (``edge.convert.sensitivity``).
5. The result is looked at: it loads, has 8-bit weights, and the same inputs and outputs.

Measuring is made to give the same on every host: a CPU that has AVX2 but no VNNI saturates in
uint8 x int8 products (onnxruntime #6004), and the host would be measured instead of the model.
Whether a target saturates is for ``reduce_range`` to prevent.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, parity, samples
from edge.convert import activation_ranges, quantizable, run_model, sensitivity
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime as ort

    Array = np.ndarray[Any, Any]

CHOICES = {
    "method": ("minmax", "entropy", "percentile"),
    "activations": ("uint8", "int8"),
    "weights": ("int8", "uint8"),
    "format": ("qdq", "qoperator"),
}
# Session settings against saturation. int8 activations are kept, as on arm, instead of being
# turned into uint8.
EXACT = {
    "uint8": ("session.x64quantprecision", "1"),
    "int8": ("session.qdqisint8allowed", "1"),
}
TYPES = {"int8": "QInt8", "uint8": "QUInt8"}


@dataclass(frozen=True)
class Options:
    """What may be said of static quantization; names as in ``onnxruntime.quantization``.

    ``percentile`` in percent; ``symmetric_weights`` None: as onnxruntime does it, for int8 only.
    ``exclude``: names of nodes or operator types. ``operators``: types, empty for all that
    onnxruntime quantizes.
    """

    method: str = "minmax"
    percentile: float = 99.99
    activations: str = "uint8"
    weights: str = "int8"
    per_channel: bool = False
    reduce_range: bool = False
    symmetric_activations: bool = False
    symmetric_weights: bool | None = None
    format: str = "qdq"
    exclude: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @classmethod
    def of(cls, said: dict[str, Any]) -> Options:
        """The options from JSON; :class:`errors.ConfigError` for what is none."""
        if unknown := sorted(set(said) - {field.name for field in fields(cls)}):
            raise errors.ConfigError(f"int8: unknown options {', '.join(unknown)}")
        lists = {key: tuple(said.get(key, ())) for key in ("exclude", "operators")}
        made = cls(**{**said, **lists})
        for key, allowed in CHOICES.items():
            if (value := getattr(made, key)) not in allowed:
                raise errors.ConfigError(f"int8: {key} = {value!r} is none of {', '.join(allowed)}")
        if not 0 < made.percentile <= 100:
            raise errors.ConfigError(f"int8: percentile = {made.percentile} is not in (0, 100]")
        if (made.activations, made.weights) == ("int8", "uint8"):
            raise errors.ConfigError(
                "int8: no runtime has kernels for int8 activations with uint8 weights",
                remedy="use weights = 'int8'",
            )
        return made


@step(version=1, tools=("onnx", "onnxruntime", "numpy"), timeout=7200)
def int8(
    out: Path,
    *,
    model: Path,
    cases: Path,
    golden: Path,
    options: dict[str, Any],
    goals: list[float],
) -> Facts:
    """``model.onnx``, quantized to 8 bits; ``options`` are those of :class:`Options`.

    ``cases`` and ``golden`` are index files of samples: inputs to calibrate on, and inputs with
    outputs to measure by. ``goals`` are SQNRs in dB, of the worst output over all golden samples:
    the first that can be reached is; without any, everything is quantized. Facts:
    ``quantized_nodes``, ``weights`` (counts), ``kept`` (nodes left in float for that, with the
    SQNR of the model when they, or the few nodes around them that were measured together, alone
    are quantized), ``infinite`` (tensors that hold infinity: their nodes stay in float), ``zero``
    (tensors that were always zero in calibration, the first 20), ``sqnr_db``, ``sqnr_all_db``
    (before reverting; "inf" when nothing differs, None when no output has one), ``runs`` (models
    measured), ``calibration_samples``.

    Raises :class:`errors.UsageError` without calibration samples, :class:`errors.ModelRefused`
    when nothing can be quantized or an activation is NaN, :class:`errors.ParityFailed` when
    no goal is reached.
    """
    said = Options.of(options)
    given = _cases(cases.parent)
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        work = Path(folder)
        quantizer = _Quantizer(model, given, work, said)
        judge = _Judge(golden.parent, work, said.activations)
        choice, made = _reached(quantizer, judge, goals)
        facts = quantizable.finish(made, model, out / "model.onnx")
    return {
        **facts,
        "kept": {name: plain(db) for name, db in choice.kept.items()},
        "infinite": sorted(quantizer.ranges.infinite),
        "zero": list(quantizer.ranges.zero[:20]),
        "sqnr_db": plain(choice.db),
        "sqnr_all_db": plain(choice.all_db),
        "runs": choice.runs,
        "calibration_samples": len(given),
    }


def _reached(
    quantizer: _Quantizer, judge: _Judge, goals: list[float]
) -> tuple[sensitivity.Choice, onnx.ModelProto]:
    """What is quantized for the first goal that can be reached; the last one's error if none."""
    for place, goal in enumerate(goals or [None], 1):
        try:
            choice = quantizer.choose(judge, goal)
            made = quantizer.quantize(choice.quantized)
            if choice.kept and not quantizable.eight_bit_weights(made):
                raise errors.ParityFailed(
                    f"int8 reaches an SQNR of {goal:g} dB only with no weight quantized; "
                    f"with all it is {choice.all_db:.1f} dB",
                    remedy=sensitivity.REMEDY,
                )
        except errors.ParityFailed:
            if place >= len(goals):
                raise
        else:
            return choice, made
    raise AssertionError("the last goal returns or raises")


def plain(db: float) -> float | str | None:
    """An SQNR as standard JSON can hold it: rounded to 0.01 dB, infinities as strings."""
    if math.isnan(db):
        return None
    return round(db, 2) if math.isfinite(db) else str(db)


def _cases(folder: Path) -> list[dict[str, Array]]:
    given = samples.cases(folder, "input")
    if not given:
        raise errors.UsageError(
            "there are no samples to calibrate on",
            remedy="give some hundred real inputs, as the model will see them",
        )
    return given


class _Quantizer:
    """A prepared model with its ranges: quantized as often as the search asks."""

    def __init__(
        self, model: Path, cases: list[dict[str, Array]], work: Path, said: Options
    ) -> None:
        self.said = said
        self.prepared = quantizable.prepare(model, work, per_channel=said.per_channel)
        operators = list(said.operators) or _operators()
        nodes = quantizable.chosen(self.prepared, model, operators, list(said.exclude))
        if not nodes:
            raise quantizable.nothing_quantized()
        measured = {"method": said.method, "percentile": said.percentile}
        self.ranges = activation_ranges.measure(self.prepared, cases, work, measured)
        self.nodes = tuple(name for name in nodes if name not in self._beyond())

    def _beyond(self) -> set[str]:
        """Nodes that touch a tensor without a range."""
        unknown = set(quantizable.float_tensors(self.prepared)) - set(self.ranges.limits)
        body = self.prepared.graph.node
        return {node.name for node in body if unknown & {*node.input, *node.output}}

    def choose(self, judge: _Judge, goal: float | None) -> sensitivity.Choice:
        """What to quantize: all, or what the search finds."""
        if not self.nodes or not quantizable.eight_bit_weights(self.quantize(self.nodes)):
            raise quantizable.nothing_quantized()
        if goal is None:
            db = judge.sqnr(self.quantize(self.nodes))
            return sensitivity.Choice(self.nodes, {}, db, db, 1)
        sizes = quantizable.weight_counts(self.prepared)
        return sensitivity.choose(
            self.nodes, lambda nodes: judge.sqnr(self.quantize(nodes)), goal, sizes
        )

    def quantize(self, nodes: tuple[str, ...]) -> onnx.ModelProto:
        """A copy of the prepared model with just ``nodes`` quantized; not one means none."""
        import onnx
        from onnxruntime.quantization import quant_utils

        copy = onnx.ModelProto()
        copy.CopyFrom(self.prepared)
        if not nodes:
            return copy
        # Says that types are inferred, which the quantizer otherwise does again each time.
        quant_utils.add_infer_metadata(copy)
        quantizer = self._upstream(copy, list(nodes))
        quantizer.quantize_model()
        quantizer.model.topological_sort()
        made: onnx.ModelProto = quantizer.model.model
        return made

    def _upstream(self, model: onnx.ModelProto, nodes: list[str]) -> Any:
        from onnxruntime.quantization import QDQQuantizer, QuantizationMode, QuantType
        from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer

        said = self.said
        extra = {"ActivationSymmetric": said.symmetric_activations}
        if said.symmetric_weights is not None:
            extra["WeightSymmetric"] = said.symmetric_weights
        weights, activations = (
            getattr(QuantType, TYPES[kind]) for kind in (said.weights, said.activations)
        )
        types: tuple[Any, ...] = (
            weights,
            activations,
            self._limits(),
            nodes,
            [],
            _operators(),
            extra,
        )
        if said.format == "qdq":
            return QDQQuantizer(model, said.per_channel, said.reduce_range, *types)
        mode = QuantizationMode.QLinearOps
        static = True
        return ONNXQuantizer(model, said.per_channel, said.reduce_range, mode, static, *types)

    def _limits(self) -> Any:
        import numpy as np
        from onnxruntime.quantization import CalibrationMethod, TensorData, TensorsData

        kinds = quantizable.float_tensors(self.prepared)
        made = {}
        for name, limits in self.ranges.limits.items():
            dtype = np.float32 if kinds[name] == 1 else np.float16
            low, high = (np.array(limit, dtype) for limit in limits)
            made[name] = TensorData(lowest=low, highest=high)
        return TensorsData(CalibrationMethod.MinMax, made)


def _operators() -> list[str]:
    """The operator types that onnxruntime quantizes statically."""
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*QLinearOpsRegistry, *QDQRegistry})


class _Judge:
    """Holds quantized models against the golden samples."""

    def __init__(self, golden: Path, work: Path, activations: str) -> None:
        self.path, self.exact = work / "candidate.onnx", [EXACT[activations]]
        inputs, outputs = (samples.cases(golden, role) for role in samples.ROLES)
        self.pairs = list(zip(inputs, outputs, strict=True))

    def sqnr(self, model: onnx.ModelProto) -> float:
        """SQNR in dB of the worst output over all samples; NaN when none has one."""
        import onnx

        onnx.save(model, self.path)
        session = self._session()
        figures = []
        for case, expected in self.pairs:
            actual = run_model.run_session(session, case)
            figures += [output_sqnr(array, actual[name]) for name, array in expected.items()]
        told = [figure for figure in figures if not math.isnan(figure)]
        return min(told, default=math.nan)

    def _session(self) -> ort.InferenceSession:
        settings = run_model.options("all")
        for entry in self.exact:
            settings.add_session_config_entry(*entry)
            settings.log_severity_level = 4
        try:
            return run_model.create(self.path, settings)
        except errors.ModelRefused:
            if not self.exact:
                raise
        # With x64quantprecision onnxruntime 1.32 does not load a model in which nodes share
        # int8 weights ("Attempt to replace the existing tensor").
        self.exact = []
        return self._session()


def output_sqnr(expected: Array, actual: Array) -> float:
    """SQNR in dB of one output: -inf for a changed shape or place of NaN and infinity.

    NaN where there is no figure: nothing but zeros, or integers (labels), which parity judges.
    """
    if expected.dtype.kind != "f" and expected.shape == actual.shape:
        return math.nan
    found = parity.compare(expected, actual)
    if found.shape_expected != found.shape_actual or not (found.nan_agree and found.inf_agree):
        return -math.inf
    return math.nan if found.sqnr_db is None else found.sqnr_db
