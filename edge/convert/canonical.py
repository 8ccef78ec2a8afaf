"""Canonical form: the ONNX that every backend reads.

1. Inputs that are constant for the deployment become initializers.
2. Dimensions are bound, where the target wants that.
3. The graph is simplified: constants folded, dead branches gone (25 If nodes of Silero).
   onnxslim, since onnxsim and polygraphy leave Silero's branches broken; and before any ONNX
   Runtime session, since onnxruntime 1.24 to 1.32 dies on silero_vad.onnx bound but not simplified.
4. The result is proven on the samples' inputs against the model as it was: bit-exact, or within
   1e-5 of max(1, |expected|).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph, samples
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

# Folding constants reorders float32 sums: two layers of attention move by 1.2e-6. More than this,
# a tenth of what targets allow, is a changed model.
LIMIT = 1e-5


@step(version=4, tools=("onnx", "onnxslim", "onnxruntime", "numpy"), timeout=1800)
def canonical(
    out: Path, *, model: Path, cases: Path, inputs: list[dict[str, Any]], bind: bool
) -> Facts:
    """``model.onnx`` in canonical form.

    ``cases`` is the index file of samples that hold every input; ``inputs`` are
    BoundInput.to_json values. Facts: ``nodes`` (before and after), ``inputs``, ``outputs``,
    ``max_abs`` against the model as it was.
    Raises :class:`errors.StepFailed` when the simplified model computes something else.
    """
    import onnx

    loaded = onnx.load(model)
    before = len(loaded.graph.node)
    for each in inputs:
        if each["constant"] is not None:
            _to_initializer(loaded.graph, each)
        elif bind:
            _bind_shape(loaded.graph, each)
    # The simplifier drops inputs that nothing reads; callers and samples still give them.
    ports = [value for value in loaded.graph.input if value.name not in _initializers(loaded)]
    simplified = _simplify(loaded)
    del simplified.graph.input[:]
    simplified.graph.input.extend(ports)
    graph.save(simplified, out / "model.onnx")
    facts = graph.facts(simplified)
    constant = {each["name"] for each in inputs if each["constant"] is not None}
    worst = _prove(model, out / "model.onnx", cases.parent, constant)
    return {**facts, "nodes_before": before, "max_abs": worst}


def _initializers(model: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in model.graph.initializer}


def _to_initializer(body: onnx.GraphProto, spec: dict[str, Any]) -> None:
    import numpy as np
    from onnx import numpy_helper

    value = next(each for each in body.input if each.name == spec["name"])
    body.input.remove(value)
    array = np.full(tuple(spec["shape"]), spec["constant"], spec["dtype"])
    body.initializer.append(numpy_helper.from_array(array, spec["name"]))


def _bind_shape(body: onnx.GraphProto, spec: dict[str, Any]) -> None:
    value = next(each for each in body.input if each.name == spec["name"])
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for size in spec["shape"]:
        shape.dim.add().dim_value = size


def _simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx
    import onnxslim

    # Fusing (Conv with BatchNormalization) changes the arithmetic: 2.6e-6 on PP-OCR rec, where
    # folding alone is bit-exact. The runtimes fuse later, under the target's tolerance.
    simplified = onnxslim.slim(model, skip_optimizations=["graph_fusion"])
    if not isinstance(simplified, onnx.ModelProto):
        raise errors.StepFailed("onnxslim returned no model")
    return simplified


def _prove(model: Path, simplified: Path, cases: Path, constant: set[str]) -> float:
    import numpy as np

    from edge.convert import run_model

    before, after = (run_model.open_session(m, level="disabled") for m in (model, simplified))
    worst = 0.0
    for case in samples.cases(cases, "input"):
        expected = run_model.run_session(before, case)
        kept = {name: array for name, array in case.items() if name not in constant}
        for name, actual in run_model.run_session(after, kept).items():
            difference = _difference(expected[name], actual)
            if np.isnan(difference) or difference > LIMIT:
                raise errors.StepFailed(
                    f"the simplified model computes another {name!r}: max abs {difference:.3g}, "
                    f"allowed {LIMIT:g}",
                    remedy="please report the model: simplification must not change results",
                )
            worst = max(worst, difference)
    return worst


def _difference(expected: Array, actual: Array) -> float:
    """Largest absolute difference relative to max(1, |expected|); NaN matches only NaN."""
    import numpy as np

    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return float("inf")
    if np.array_equal(expected, actual, equal_nan=expected.dtype.kind == "f"):
        return 0.0
    if expected.dtype.kind != "f":
        return float("inf")
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide)
    same_odd = np.array_equal(wide[~finite], other[~finite], equal_nan=True)
    if not same_odd or not np.isfinite(other[finite]).all():
        return float("inf")
    scale = np.maximum(1.0, np.abs(wide[finite]))
    return float(np.max(np.abs(wide[finite] - other[finite]) / scale, initial=0.0))
