"""How precisely a target computes: the precisions, their options, and the choice among them."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from edge.config.fields import Name, Strict

LossyPrecision = Literal["fp16", "int8", "int8-dynamic", "int8-weights", "int4-weights"]
Precision = Literal["source", LossyPrecision]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30,
          "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}  # fmt: skip
MAX_DIGITS = 30
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*")
_RELEASES = re.compile(r"(>=|<=|==|<|>)([0-9]+(?:\.[0-9]+){0,2})")
_COMPARE = {">=": operator.ge, "<=": operator.le, "==": operator.eq, "<": operator.lt,
            ">": operator.gt}  # fmt: skip


class Tolerance(Strict):
    """How far an artifact's outputs may be from the golden ones (see ``edge.parity``)."""

    max_abs: Annotated[float, Field(ge=0)] | None = 1e-4
    max_rel: Annotated[float, Field(ge=0)] | None = 1e-3
    floor: Annotated[float, Field(gt=0)] = 1e-3
    sqnr_db: float | None = None
    argmax: Annotated[float, Field(ge=0, le=1)] | None = None


class Lossy(Strict):
    """What a target says of a precision that loses something; None: the precision's usual."""

    max_abs: Annotated[float, Field(ge=0)] | None = None
    max_rel: Annotated[float, Field(ge=0)] | None = None
    floor: Annotated[float, Field(gt=0)] = 1e-3
    sqnr_db: float | None = None
    argmax: Annotated[float, Field(ge=0, le=1)] | None = None

    def over(self, sqnr_db: float) -> Tolerance:
        """The tolerance, with ``sqnr_db`` where nothing is said of noise.

        Noise is the usual limit: one on single elements says little of rounded weights.
        """
        said = self.model_dump()
        return Tolerance(**{**said, "sqnr_db": sqnr_db if self.sqnr_db is None else self.sqnr_db})


# Signal to noise that a precision keeps where the target says nothing, in dB: 40 is 1 % of noise,
# 20 is 10 %.
LOSSY_DB: Mapping[str, float] = {
    "fp16": 40.0,
    "int8": 20.0,
    "int8-dynamic": 20.0,
    "int8-weights": 30.0,
    "int4-weights": 12.0,
}


class Fp16(Strict):
    """``block``: operators that stay in fp32, beside those of onnxruntime's own list."""

    block: tuple[str, ...] = ()


# What has weights or passes values on unchanged. Other operators cost accuracy and time in int8:
# Magika takes 0.18 of its fp32 time with these alone and 0.53 with all that onnxruntime knows.
COMPUTING = (
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Relu", "Clip", "MaxPool", "Reshape", "Transpose",
    "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat",
)  # fmt: skip
# Convolutions with dynamic activations took 5 to 12 times as long as in fp32.
DYNAMIC = ("MatMul", "Gemm", "LSTM", "Attention", "EmbedLayerNormalization")


class Int8(Strict):
    """How int8 is made with calibrated activations; names and values are onnxruntime's.

    ``percentile`` is what the method of that name keeps, in percent. ``reduce_range``: weights of
    7 bits, for x86 CPUs without VNNI, whose 8-bit products saturate (onnxruntime #6004).
    ``exclude``: nodes by name or operator that stay as they are; ``operators``: those that are
    quantized (none: onnxruntime's own list).
    """

    method: Literal["minmax", "entropy", "percentile"] = "minmax"
    percentile: Annotated[float, Field(gt=50, le=100)] = 99.99
    activations: Literal["uint8", "int8"] = "uint8"
    weights: Literal["int8", "uint8"] = "int8"
    per_channel: bool = True
    reduce_range: bool = False
    symmetric_activations: bool = False
    symmetric_weights: bool = True
    format: Literal["qdq", "qoperator"] = "qdq"
    exclude: tuple[str, ...] = ()
    operators: tuple[str, ...] = COMPUTING


class Int8Dynamic(Strict):
    """How int8 is made with activations that are measured in every run; see :class:`Int8`.

    int8 weights are slow on x86 whatever its CPU has: 4 to 12 times fp32, uint8 1 to 1.8 times.
    """

    weights: Literal["int8", "uint8"] = "uint8"
    per_channel: bool = True
    reduce_range: bool = False
    exclude: tuple[str, ...] = ()
    operators: tuple[str, ...] = DYNAMIC


class WeightOnly(Strict):
    """Weights of MatMul alone in 4 or 8 bits, ``block_size`` of them with one scale."""

    block_size: Literal[16, 32, 64, 128, 256] = 32
    symmetric: bool = True


class Broken(Strict):
    """A precision that releases of the target's runtime get wrong, and why.

    ``releases``: comparisons that all hold for them, ``>=1.28,<1.32``.
    """

    precision: Precision
    releases: Annotated[str, Field(pattern=rf"^{_RELEASES.pattern}(,{_RELEASES.pattern})*$")]
    why: str

    def concerns(self, version: str) -> bool:
        """True when the release ``version`` is one of them."""
        has = _numbers(version)
        return all(
            _COMPARE[sign](has, _numbers(limit)) for sign, limit in _RELEASES.findall(self.releases)
        )


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


def _quantity(units: tuple[str, ...]) -> BeforeValidator:
    """Numbers as they are, texts with one of ``units``: ``"2 MB"`` in bytes, ``"5 ms"`` in ns."""

    def read(value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("it is no number")  # noqa: TRY004 - pydantic wants this one
        if not isinstance(value, str):
            return value
        found = _QUANTITY.fullmatch(value)
        if found is None or found[2].lower() not in units or len(found[1]) > MAX_DIGITS:
            raise ValueError(f"{value!r:.80} is no number with a unit of {', '.join(units)}")
        return round(float(found[1]) * _UNITS[found[2].lower()])

    return BeforeValidator(read)


_BYTES = _quantity(("b", "kb", "mb", "gb", "kib", "mib", "gib"))
_TIME = _quantity(("ns", "us", "ms", "s"))
Bytes = Annotated[int, _BYTES, Field(gt=0)]
Nanoseconds = Annotated[int, _TIME, Field(gt=0)]


class Choice(Strict):
    """What ``precision = "auto"`` chooses by: the smallest or fastest within all limits.

    ``candidates`` (none: all that the target can hold) are made and measured. ``max_size`` is the
    artifact's, in bytes or as ``"2 MB"``; ``max_p50`` in ns or as ``"5 ms"``; ``min_sqnr`` in dB
    over all outputs; ``max_drop`` of the model's ``accuracy``. ``device`` of devices.toml is where
    time and memory are measured (none: this machine, where it can run the bundle).
    """

    candidates: tuple[Precision, ...] = ()
    prefer: Literal["size", "p50"] = "size"
    max_size: Bytes | None = None
    max_p50: Nanoseconds | None = None
    max_peak_memory: Bytes | None = None
    min_sqnr: float | None = None
    max_drop: Annotated[float, Field(ge=0)] | None = None
    device: Name | None = None

    @property
    def measures_loss(self) -> bool:
        """True when the user limits what a precision may lose."""
        return self.min_sqnr is not None or self.max_drop is not None

    @model_validator(mode="after")
    def _distinct(self) -> Choice:
        if len(set(self.candidates)) != len(self.candidates):
            raise ValueError("a candidate is named twice")
        return self
