"""The range of every activation over the calibration samples.

Measured here and not by onnxruntime's calibrators, whose histogram methods fail on ragged
samples (onnxruntime #18792), whose MinMax passes over NaN without a word (``np.nanmin``), and
whose Entropy has one candidate to choose from as long as samples do not differ in range (128
bins for 128 levels): it is MinMax under another name. Two passes, one sample in memory at a time:

1. lowest and highest value of every tensor, which is also where NaN and infinity are found;
2. for ``entropy`` and ``percentile``, a histogram of 2,048 bins between them.

``percentile`` P is the narrowest range that leaves (100 - P) / 2 percent of the values off at
either end, rounded outwards to bins. ``entropy`` is the symmetric threshold with the least
Kullback-Leibler divergence between the values and the values in 128 levels (TensorRT's, GTC 2017
S7310; details as NVIDIA's pytorch-quantization: the bin at zero counts as its neighbour does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isnan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import quantizable, run_model

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

BINS = 2048
LEVELS = 128  # of one sign in 8 bits
STRIDE = 16  # bins between candidates: a threshold is found to 1/128 of the range
FETCH_BYTES = 2**29  # activations held at a time, where shapes are known


@dataclass(frozen=True)
class Ranges:
    """``limits``: lowest and highest by tensor. ``infinite``: tensors that hold infinity.

    ``zero``: tensors that never were anything but zero, whose scale says nothing.
    """

    limits: dict[str, tuple[float, float]]
    infinite: frozenset[str]
    zero: tuple[str, ...]


def measure(
    model: onnx.ModelProto, cases: list[dict[str, Array]], work: Path, options: dict[str, Any]
) -> Ranges:
    """Ranges of the float tensors of ``model`` over ``cases``.

    ``options``: ``method`` (minmax, entropy, percentile) and ``percentile``. ``work``: a folder
    for the model that shows its activations. Raises :class:`errors.ModelRefused` for NaN,
    naming tensor and sample.
    """
    seen = _Activations(model, work)
    limits: dict[str, tuple[float, float]] = {}
    for number, case in enumerate(cases):
        for name, array in seen.run(case):
            _widen(limits, name, array, number)
    infinite = frozenset(n for n, (low, high) in limits.items() if low == -inf or high == inf)
    kept = {name: limit for name, limit in limits.items() if name not in infinite}
    zero = tuple(sorted(name for name, limit in kept.items() if limit == (0.0, 0.0)))
    if options["method"] != "minmax":
        kept = _narrowed(seen, cases, kept, options)
    return Ranges(kept, infinite, zero)


class _Activations:
    """Runs the model one thread wide, unoptimized, with every float tensor as an output."""

    def __init__(self, model: onnx.ModelProto, work: Path) -> None:
        import onnx

        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        self.inputs = {value.name for value in shown.graph.input}
        self.names = [n for n in quantizable.float_tensors(model) if n not in self.inputs]
        known = {value.name: value for value in model.graph.value_info}
        there = {value.name for value in shown.graph.output}
        shown.graph.output.extend(known[n] for n in self.names if n not in there)
        sizes = {name: _nbytes(known.get(name)) for name in self.names}
        self.batches = list(_batches(sizes))
        onnx.save(shown, work / "activations.onnx")
        self.session = run_model.open_session(work / "activations.onnx", level="disabled")

    def run(self, case: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """Name and values of every float tensor that is not empty, inputs included."""
        given = {name: array for name, array in case.items() if name in self.inputs}
        yield from ((n, a) for n, a in given.items() if a.dtype.kind == "f" and a.size)
        for names in self.batches:
            try:
                found = self.session.run(names, given)
            except run_model.session_errors() as error:
                raise errors.RunFailed(
                    f"the model does not run on the calibration data: {error}"[:500]
                ) from error
            yield from ((n, a) for n, a in zip(names, found, strict=True) if a.size)


def _nbytes(value: onnx.ValueInfoProto | None) -> int:
    sizes: list[int] = [d.dim_value for d in value.type.tensor_type.shape.dim] if value else []
    return 4 * prod(max(1, size) for size in sizes)


def _batches(sizes: dict[str, int]) -> Iterator[list[str]]:
    names: list[str] = []
    total = 0
    for name, size in sizes.items():
        if names and total + size > FETCH_BYTES:
            yield names
            names, total = [], 0
        names.append(name)
        total += size
    if names:
        yield names


def _widen(limits: dict[str, tuple[float, float]], name: str, array: Array, number: int) -> None:
    low, high = float(array.min()), float(array.max())
    if isnan(low):  # numpy's minimum of anything with NaN is NaN
        raise errors.ModelRefused(
            f"calibration: the tensor {name!r} holds NaN for sample {number}",
            remedy="find out why the model computes NaN there: no range can be given for it",
        )
    before = limits.get(name, (low, high))
    limits[name] = (min(low, before[0]), max(high, before[1]))


def _narrowed(
    seen: _Activations,
    cases: list[dict[str, Array]],
    limits: dict[str, tuple[float, float]],
    options: dict[str, Any],
) -> dict[str, tuple[float, float]]:
    import numpy as np

    entropy = options["method"] == "entropy"
    counts = {name: np.zeros(BINS, np.int64) for name in limits}
    spans = {
        n: (0.0, max(-low, high)) if entropy else (low, high) for n, (low, high) in limits.items()
    }
    for case in cases:
        for name, array in seen.run(case):
            if name in counts and spans[name][0] < spans[name][1]:
                values = np.abs(array) if entropy else array
                counts[name] += _histogram(values.astype(np.float64), *spans[name])
    narrowed = {}
    for name, (low, high) in limits.items():
        if not counts[name].any():
            narrowed[name] = (low, high)
        elif entropy:
            threshold = entropy_threshold(counts[name], spans[name][1])
            narrowed[name] = (max(low, -threshold), min(high, threshold))
        else:
            narrowed[name] = percentile_range(counts[name], spans[name], options["percentile"])
    return narrowed


def _histogram(values: Array, low: float, high: float) -> Array:
    import numpy as np

    counts: Array = np.histogram(values, BINS, (low, high))[0]
    return counts


def percentile_range(
    counts: Array, span: tuple[float, float], percentile: float
) -> tuple[float, float]:
    """The range that leaves (100 - ``percentile``) / 2 percent of the counts off at either end.

    ``counts``: int64 [bins], of equal width over ``span``.
    """
    import numpy as np

    off = counts.sum() * (100.0 - percentile) / 200.0
    below = np.concatenate([[0], np.cumsum(counts)])  # below[i]: values left of edge i
    first = int(np.searchsorted(below, off, side="right")) - 1
    last = int(np.searchsorted(below, below[-1] - off, side="left"))
    width = (span[1] - span[0]) / len(counts)
    low = span[0] + width * min(first, len(counts) - 1)
    high = span[1] if last >= len(counts) else span[0] + width * last
    return low, high


def entropy_threshold(counts: Array, highest: float) -> float:
    """The magnitude at which to cut, by least divergence; ``counts``: int64 [bins] of |x|."""
    import numpy as np

    bins = counts.astype(np.float64)
    bins[0] = bins[1]
    best, cut = inf, len(bins)
    for size in range(LEVELS, len(bins) + 1, STRIDE):
        divergence = _divergence(bins, size)
        if divergence <= best:  # of equals the widest: nothing is gained by cutting
            best, cut = divergence, size
    return highest * cut / len(bins)


def _divergence(bins: Array, size: int) -> float:
    """Kullback-Leibler divergence of the first ``size`` bins, outliers in the last, in levels."""
    import numpy as np

    reference = bins[:size].copy()
    occupied = reference > 0
    level = np.arange(size) * LEVELS // size
    held = np.bincount(level, reference, LEVELS)
    spread = np.bincount(level, occupied, LEVELS)
    levels = np.where(occupied, (held / np.maximum(spread, 1))[level], 0.0)
    reference[-1] += bins[size:].sum()
    if not levels.sum() or (reference[-1] > 0 and levels[-1] == 0):
        return inf  # all values, or the outliers, fall where the levels have none
    p, q = reference / reference.sum(), levels / levels.sum()
    return float(np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0])))
