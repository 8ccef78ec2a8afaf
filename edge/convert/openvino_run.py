"""Run an IR on the golden inputs, and the user's metric on it, with the target's OpenVINO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import samples
from edge.convert import golden_sqnr
from edge.convert import openvino_library as ov
from edge.convert.accuracy import deployed, scored
from edge.convert.openvino_ir import EXTRA
from edge.convert.run_model import finite
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PRECISION = "INFERENCE_PRECISION_HINT"
TOOLS = ("openvino", "numpy")


@step(version=1, tools=TOOLS, timeout=1800, extra=EXTRA)
def run_openvino(
    out: Path, *, model: Path, golden: Path, properties: dict[str, str], release: str
) -> Facts:
    """The IR's outputs, in the samples' form (``samples.tsv`` and raw files), on this CPU.

    ``golden`` is the index file of the golden samples, ``model`` the ``.xml`` with its ``.bin``
    beside it, ``properties`` those that the target's runner sets. One thread. Facts: ``runtime``,
    ``not_finite``, and ``inference_precision``, what OpenVINO really computes in: it takes f32
    without a word where the CPU has no bf16 or f16.
    """
    openvino = ov.module(release)
    ready = ov.compiled(openvino, ov.read(openvino, model, release), properties, release)
    pairs = []
    for case, expected in golden_sqnr.pairs(golden.parent):
        pairs.append((case, ov.infer(ready, case, list(expected))))
    samples.write(out, pairs)
    odd = {name for _, outs in pairs for name, a in outs.items() if not finite(a)}
    return {
        "runtime": f"openvino {release}",
        "not_finite": sorted(odd),
        "inference_precision": ready.get_property(PRECISION).get_type_name(),
    }


@step(version=1, tools=TOOLS, timeout=7200, extra=EXTRA)
def openvino_accuracy(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    model: Path,
    properties: dict[str, str],
    release: str,
    metric: Path,
    score: str,
    reads: dict[str, Any],
    inputs: list[dict[str, Any]],
    exported: dict[str, list[dict[str, Any]]],
) -> Facts:
    """Facts: ``accuracy`` of the IR.

    Arguments as of ``edge.convert.accuracy.artifact_accuracy``, and of :func:`run_openvino`.
    """
    del out, reads  # facts only
    openvino = ov.module(release)
    ready = ov.compiled(openvino, ov.read(openvino, model, release), properties, release)
    names = [str(port["name"]) for port in exported["outputs"]]
    shapes = {name: _shape(port) for port in ready.inputs for name in port.get_names()}

    def once(case: dict[str, Array]) -> dict[str, Array]:
        return ov.infer(ready, case, names)

    run = deployed(once, shapes, inputs, exported)
    return {"accuracy": scored(run, metric, score)}


def _shape(port: Any) -> list[int | str | None]:
    """The port's shape, None where a dimension is free."""
    return [dim.get_length() if dim.is_static else None for dim in port.get_partial_shape()]
