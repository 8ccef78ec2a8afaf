"""Source: a fitted scikit-learn estimator or Pipeline, also XGBoost's and LightGBM's.

:func:`export_sklearn` converts it and proves the model against the estimator;
:func:`sklearn_golden` writes samples whose outputs are the estimator's own. The outputs are
``label`` (int64) and ``probabilities`` or ``scores`` of a classifier, ``value`` of a regressor,
``transformed`` of a transformer, everything else than labels float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.sources import (
    sklearn_agreement,
    sklearn_convert,
    sklearn_files,
    sklearn_graph,
    sklearn_ports,
    sklearn_thresholds,
    sklearn_walk,
)
from edge.sources.framework import TRUST, Runner, accuracy_step, golden_step
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

TOOLS = ("scikit-learn", "skl2onnx", "skops?", "onnx", "onnxruntime", "numpy", "onnxmltools?",
         "xgboost?", "xgboost-cpu?", "lightgbm?")  # fmt: skip


def runner(source: Path, factory: str, options: dict[str, Any]) -> Runner:
    """The estimator itself, on one thread, as a function from inputs to outputs.

    Raises as :func:`edge.sources.sklearn_files.load` does.
    """
    estimator, _ = sklearn_files.load(source, factory, options)
    port = sklearn_ports.read_input(estimator, options)
    wanted, _ = sklearn_ports.outputs(estimator, list(options.get("outputs") or []))

    def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
        if port.name not in inputs:
            raise errors.UsageError(
                f"the model's input is called {port.name}, not {', '.join(inputs)}"
            )
        return sklearn_ports.run(estimator, wanted, inputs[port.name])

    return run


sklearn_golden = golden_step("sklearn_golden", runner, TOOLS, "sklearn")
sklearn_accuracy = accuracy_step("sklearn_accuracy", runner, TOOLS, "sklearn")


@step(version=1, tools=TOOLS, timeout=1800, extra="sklearn", aside=TRUST)
def export_sklearn(out: Path, *, source: Path, factory: str, options: dict[str, Any]) -> Facts:
    """``model.onnx``: one input [batch, features], checked row by row against the estimator.

    Facts: ``exporter``, ``estimator``, ``opset``, ``inputs``, ``outputs`` and the other facts of
    the model, ``classes`` (of a classifier), ``agreement`` (:func:`sklearn_agreement.check`),
    ``thresholds`` (:func:`sklearn_thresholds.check`), ``notes`` (what a user must know) and
    ``warnings`` (what the libraries said).

    Raises :class:`errors.ModelRefused` for an estimator that is not supported, or whose model
    computes something else.
    """
    estimator, said = sklearn_files.load(source, factory, options)
    port = sklearn_ports.read_input(estimator, options)
    wanted, notes = sklearn_ports.outputs(estimator, list(options.get("outputs") or []))
    model, warned = sklearn_convert.convert(estimator, port, wanted, int(options["opset"]))
    thresholds = sklearn_thresholds.check(estimator, model)
    path = out / "model.onnx"
    graph.save(model, path)
    agreement, more = sklearn_agreement.check(estimator, path, port, wanted)
    sklearn_graph.bind_batch(model, port.shape[0])
    graph.save(model, path)
    _check(path)
    return {
        **graph.facts(model),
        "exporter": _exporter(estimator),
        "estimator": sklearn_walk.describe(estimator),
        "classes": _classes(estimator),
        "agreement": agreement,
        "thresholds": thresholds,
        "notes": [*notes, *more],
        "warnings": sorted({*said, *warned}),
    }


def _check(path: Path) -> None:
    import onnx

    from edge.convert import run_model

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise errors.StepFailed(
            f"skl2onnx made a model that onnx.checker refuses: {graph.first_line(error)}",
            remedy="please report the estimator",
        ) from error
    run_model.open_session(path, level="disabled")


def _exporter(estimator: Any) -> str:
    """The converters and libraries that took part, with their versions."""
    from importlib.metadata import PackageNotFoundError, version

    names = {"sklearn": ["skl2onnx", "scikit-learn"], "xgboost": ["onnxmltools", "xgboost"],
             "lightgbm": ["onnxmltools", "lightgbm"]}  # fmt: skip
    used = ["sklearn"]
    used += [type(part).__module__.split(".")[0] for part in sklearn_walk.parts(estimator)]
    words = []
    for name in dict.fromkeys(each for library in used for each in names.get(library, [])):
        for distribution in (name, f"{name}-cpu"):
            try:
                words.append(f"{name} {version(distribution)}")
                break
            except PackageNotFoundError:
                continue
    return ", ".join(words)


def _classes(estimator: Any) -> list[Any]:
    """The classes in the order of the columns, as JSON values; at most a thousand."""
    classes = getattr(estimator, "classes_", None)
    if classes is None or len(classes) > 1000:
        return []
    return [each if isinstance(each, str | int | float | bool) else str(each)
            for each in classes.tolist()]  # fmt: skip
