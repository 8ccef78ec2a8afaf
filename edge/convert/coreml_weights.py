"""Core ML packages with weights of 8 or 4 bits, or of lookup tables, by coremltools.optimize.

Activations stay as they are: coremltools measures them by Core ML itself, on a Mac alone
(``linear_quantize_activations``). Scales are of a channel (8 bits) or of a block of a channel's
inputs (4 bits). Lookup tables are found by one-dimensional k-means, which has one best answer: what
coremltools takes for small tensors (scikit-learn) starts at random places and is slow.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import coremltools_library, mil_executor
from edge.convert.coreml_run import EXTRA, Golden, Judged
from edge.convert.int8_static import plain
from edge.convert.mil_package import PACKAGE, operations, save_package
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LEAST = 512  # elements; below, what describes a compressed weight costs what it saves
# What gets more bits together, the least first, as for OpenVINO (see openvino_weights).
GIVEN_BACK: tuple[tuple[str, ...], ...] = ((), ("grouped",), ("grouped", "conv"))
# Operations whose constants are weights: products, embeddings, recurrent layers.
READERS = ("linear", "matmul", "gather", "lstm", "gru", "rnn")
# The target's block_size is one of the first five; 8 is what is tried last where it does not fit.
BLOCKS = (256, 128, 64, 32, 16, 8)


@dataclass(frozen=True)
class Weight:
    """A constant that can be compressed: its name and shape in MIL, and what reads it.

    ``kind``: ``grouped`` and ``conv`` are convolutions, anything else is an operation's name.
    ``inputs``: along how many values of a channel blocks are cut.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    inputs: int


@dataclass(frozen=True)
class Trial:
    """A package that was made; ``bits`` counts its compressed weights."""

    folder: Path
    given_back: tuple[str, ...]
    bits: dict[str, int]
    judged: Judged
    facts: Facts = field(repr=False)


@step(version=1, tools=("coremltools", "numpy"), timeout=7200, extra=EXTRA)
def coreml_weights(
    out: Path, *, model: Path, golden: Path, scheme: dict[str, Any], goal: float
) -> Facts:
    """``model.mlpackage`` with compressed weights.

    ``model`` is the ``Manifest.json`` of a package, ``golden`` the index file of the golden
    samples. ``scheme``: ``bits`` (8 or 4; with ``palettize`` 8, 6 or 4), ``palettize``,
    ``symmetric``, ``block_size`` of 4 bits. ``goal``: SQNR in dB of the worst output; where it is
    not reached, kinds of ``GIVEN_BACK`` get 8 bits, or none less than they had, and where that
    does not help either, the best is made. Facts: ``operations``, ``bytes``, ``weights`` (how many
    of how many bits), ``given_back``, ``sqnr_db``. Raises :class:`errors.ModelRefused` where
    nothing is compressed.
    """
    judge = Golden(golden.parent)
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        best: Trial | None = None
        for trial in trials(model.parent, scheme, judge, Path(work)):
            if best is None or trial.judged.db > best.judged.db:
                best = trial
            if best.judged.db >= goal:
                break
        if best is None:
            blocks = "" if scheme["bits"] != 4 or scheme["palettize"] else (
                f" whose inputs block_size = {scheme['block_size']} divides, or a smaller "
                f"power of two down to {BLOCKS[-1]}"
            )  # fmt: skip
            raise errors.ModelRefused(
                f"nothing to compress: no weight of {LEAST} elements or more{blocks}",
                remedy="use precision = 'fp16' or 'source'",
            )
        (best.folder / PACKAGE).rename(out / PACKAGE)
    sqnr = best.judged.sqnr_db
    return {
        **best.facts,
        "weights": best.bits,
        "given_back": list(best.given_back),
        "sqnr_db": None if sqnr is None else plain(sqnr),
    }


def trials(package: Path, scheme: Mapping[str, Any], judge: Golden, work: Path) -> Iterator[Trial]:
    """Packages with more and more bits, each another one, with weights of the bits asked for."""
    ct = coremltools_library.module()
    found, before = weights(package), None
    for number, kept in enumerate(GIVEN_BACK):
        bits = {weight: _bits(weight, kept, scheme) for weight in found}
        chosen = {weight: count for weight, count in bits.items() if count}
        if chosen == before or scheme["bits"] not in chosen.values():
            continue
        before, folder = chosen, work / str(number)
        folder.mkdir()
        # Read anew: coremltools may change the model that it is given.
        made = ct.models.MLModel(str(package), skip_model_load=True)
        made = compressed(made, chosen, scheme)
        save_package(made, folder / PACKAGE)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        facts = {"operations": operations(made), "bytes": size}
        counts = {f"{n}": list(chosen.values()).count(n) for n in sorted({*chosen.values()})}
        yield Trial(folder, kept, counts, judge.judge(folder / PACKAGE), facts)


def _bits(weight: Weight, given_back: tuple[str, ...], scheme: Mapping[str, Any]) -> int:
    """How many bits a weight gets; 0: it stays as it is."""
    bits: int = scheme["bits"]
    if weight.kind in given_back:
        return 0 if bits == 8 else 8
    if bits == 4 and not scheme["palettize"] and not block_size(weight, scheme["block_size"]):
        return 8
    return bits


def block_size(weight: Weight, wanted: int) -> int:
    """The largest block, up to ``wanted``, that divides a channel's inputs; 0: there is none."""
    return next((size for size in BLOCKS if size <= wanted and weight.inputs % size == 0), 0)


def weights(package: Path) -> list[Weight]:
    """Weights of a package that are large enough, in the order of the program."""
    from coremltools.optimize import _utils

    found = []
    for op in mil_executor.load(package).functions["main"].operations:
        if op.op_type != "const" or not _large(value := op.outputs[0].val):
            continue
        axis, _ = _utils.select_input_output_channel_axis(op)
        if (kind := _kind(op.outputs[0])) and axis is not None:
            found.append(Weight(op.name, tuple(value.shape), kind, value.shape[axis]))
    return found


def _large(value: Any) -> bool:
    """Whether a constant is a matrix, or more, of enough float numbers."""
    rank = getattr(value, "ndim", 0)
    return bool(rank > 1 and value.dtype.kind == "f" and value.size >= LEAST)


def _kind(var: Any) -> str:
    """What reads a weight; empty for what is none, or is read in two ways."""
    kinds = {each.op_type for each in var.child_ops}
    kind = str(kinds.pop()) if len(kinds) == 1 else ""
    if kind in {"conv", "conv_transpose"}:
        return "grouped" if var.shape[1] == 1 else "conv"
    return kind if kind in READERS else ""


# ---------------------------------------------------------------------------------- compressing
def compressed(model: Any, bits: Mapping[Weight, int], scheme: Mapping[str, Any]) -> Any:
    """The model with these weights compressed to so many bits each.

    Raises :class:`errors.ModelRefused` with coremltools' reason.
    """
    import coremltools.optimize.coreml as cto

    config = cto.OptimizationConfig()
    for weight, count in bits.items():
        config.set_op_name(weight.name, _config(cto, weight, count, scheme))
    compress = cto.palettize_weights if scheme["palettize"] else cto.linear_quantize_weights
    try:
        with coremltools_library.silent():
            return compress(model, config)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:300]
        raise errors.ModelRefused(f"coremltools cannot compress the weights: {reason}") from error


def _config(cto: Any, weight: Weight, bits: int, scheme: Mapping[str, Any]) -> Any:
    if scheme["palettize"]:
        return cto.OpPalettizerConfig(
            mode="custom", lut_function=table(bits), weight_threshold=LEAST - 1
        )
    more: dict[str, Any] = {"granularity": "per_channel"}
    if bits == 4:
        more = {"granularity": "per_block", "block_size": block_size(weight, scheme["block_size"])}
    return cto.OpLinearQuantizerConfig(
        mode="linear_symmetric" if scheme["symmetric"] else "linear",
        dtype=f"int{bits}",
        weight_threshold=LEAST - 1,
        **more,
    )


def table(bits: int) -> Callable[[Array], tuple[Array, Array]]:
    """What coremltools calls for a weight: values of ``2**bits`` entries, and indices of them."""

    def found(weight: Array) -> tuple[Array, Array]:
        import numpy as np
        from coremltools._deps import kmeans1d

        # Half precision has few values, so that any weight is sorted out in seconds.
        exponent = math.frexp(float(np.abs(weight).max(initial=0.0)))[1] - 15
        near = np.ldexp(weight.astype(np.float64), -exponent).astype(np.float16).astype(np.float64)
        values, places, counts = np.unique(near, return_inverse=True, return_counts=True)
        entries = np.zeros(2**bits)
        best = kmeans1d.cluster(values, min(len(values), 2**bits), weights=counts)
        entries[: len(best.centroids)] = best.centroids
        indices = np.asarray(best.clusters)[places.reshape(-1)]
        return np.ldexp(entries, exponent).astype(weight.dtype), indices.astype(np.uint8)

    return found
