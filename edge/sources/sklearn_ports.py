"""What a converted estimator takes and gives: one float input, outputs by their purpose.

The estimator alone decides this, so that it and the ONNX model can be run side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.sources.framework import refuse_swapped
from edge.sources.sklearn_walk import describe

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

NUMBERS = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


@dataclass(frozen=True)
class Input:
    """The model's one input: ``shape`` [batch, features], the batch a symbol or a size."""

    name: str
    dtype: str
    shape: tuple[int | str, int]
    range: tuple[float, float] | None


@dataclass(frozen=True)
class Output:
    """An output: ``method`` of the estimator gives it, ``index`` among skl2onnx's outputs."""

    name: str
    purpose: str
    method: str
    index: int


def read_input(estimator: Any, options: dict[str, Any]) -> Input:
    """The input, as the project says and the estimator has it.

    Raises :class:`errors.UsageError` where the two contradict each other.
    """
    said = options.get("inputs") or [{}]
    if len(said) > 1:
        raise errors.UsageError(
            f"the project names {len(said)} inputs; a scikit-learn model has one",
            remedy="choose columns by number in a ColumnTransformer over one array",
        )
    name, dtype = said[0].get("name") or "x", said[0].get("dtype") or "float32"
    if dtype not in NUMBERS:
        raise errors.UsageError(
            f"the input {name} cannot be {dtype}", remedy=f"possible: {', '.join(NUMBERS)}"
        )
    shape = said[0].get("shape")
    features = getattr(estimator, "n_features_in_", None)
    if features is None and shape:
        features = shape[-1]
    if not isinstance(features, int):
        raise errors.UsageError(
            f"{describe(estimator)} does not say how many features it takes",
            remedy=f"say the shape of the input {name} in the project: shape = [1, N]",
        )
    limits = said[0].get("range")
    between = (float(limits[0]), float(limits[1])) if limits else None
    return Input(name, dtype, _shape(name, shape, features), between)


def _shape(name: str, shape: list[int | str] | None, features: int) -> tuple[int | str, int]:
    if not shape:
        return ("batch", features)
    if len(shape) != 2 or (isinstance(shape[1], int) and shape[1] != features):
        raise errors.UsageError(
            f"the input {name} is said to be {shape}; the estimator takes [batch, {features}]",
            remedy=f"shape = [1, {features}]",
        )
    return (shape[0], features)


def outputs(estimator: Any, wanted: list[str]) -> tuple[tuple[Output, ...], list[str]]:
    """The model's outputs in order, under the wanted names, and what a user must know of them.

    Raises :class:`errors.ModelRefused` for an estimator that gives nothing exportable,
    :class:`errors.UsageError` for another number of names than outputs.
    """
    found, notes = _outputs(estimator)
    if wanted and (len(wanted) != len(found) or len(set(wanted)) != len(wanted)):
        raise errors.UsageError(
            f"{describe(estimator)} has the outputs {', '.join(each.name for each in found)}; "
            f"the project names {', '.join(wanted)}",
            remedy=f"name {len(found)} different outputs, in this order",
        )
    refuse_swapped([each.name for each in found], wanted)
    names = wanted or [each.name for each in found]
    renamed = [
        Output(name, each.purpose, each.method, each.index)
        for name, each in zip(names, found, strict=True)
    ]
    return tuple(renamed), notes


def _outputs(estimator: Any) -> tuple[list[Output], list[str]]:
    from sklearn.base import is_classifier, is_clusterer, is_outlier_detector, is_regressor

    if is_classifier(estimator):
        return _of_classifier(estimator)
    if is_regressor(estimator):
        return [Output("value", "value", "predict", 0)], []
    label = Output("label", "label", "predict", 0)
    if is_outlier_detector(estimator):
        label = Output("label", "column", "predict", 0)
        return [label, Output("scores", "scores", "decision_function", 1)], []
    if is_clusterer(estimator):
        distances = [Output("distances", "value", "transform", 1)]
        return [label, *(distances if _has(estimator, "transform") else [])], []
    if _has(estimator, "transform"):
        return [Output("transformed", "value", "transform", 0)], []
    raise errors.ModelRefused(
        f"{describe(estimator)} is no classifier, regressor, clusterer or transformer",
        remedy="scikit-learn asks the estimator's tags; derive from ClassifierMixin or the like",
    )


def _listed(classes: Any) -> str:
    shown = [str(each)[:40] for each in list(classes)[:20]]
    return ", ".join(shown) + (f" and {len(classes) - 20} more" if len(classes) > 20 else "")


def _of_classifier(estimator: Any) -> tuple[list[Output], list[str]]:
    classes = getattr(estimator, "classes_", None)
    if classes is None or isinstance(classes, list) or getattr(classes, "ndim", 1) != 1:
        raise errors.ModelRefused(
            f"{describe(estimator)} predicts several labels at once, which is not exported",
            remedy="export one classifier for each of them",
        )
    found = [Output("label", "label", "predict", 0)]
    if _has(estimator, "predict_proba"):
        found.append(Output("probabilities", "value", "predict_proba", 1))
    elif _has(estimator, "decision_function"):
        found.append(Output("scores", "scores", "decision_function", 1))
    if whole_numbers(classes):
        return found, []
    kinds = "strings" if classes.dtype.kind in "OUS" else f"{classes.dtype} values"
    if len(found) == 1:
        raise errors.ModelRefused(
            f"the labels of {describe(estimator)} are {kinds}, which a model on a device cannot "
            "give, and there are no scores",
            remedy="encode the labels as integers (LabelEncoder) and train again",
        )
    note = (
        f"the labels are {kinds}, which tensors on a device cannot hold: only {found[1].name} are "
        f"exported; their columns are the classes, in this order: {_listed(classes)}"
    )
    return found[1:], [note]


def whole_numbers(classes: Array) -> bool:
    """True for integer and bool labels, and for floats that are whole numbers."""
    import numpy as np

    if classes.dtype.kind in "iub":
        return True
    return classes.dtype.kind == "f" and bool((classes == np.round(classes)).all())


def _has(estimator: Any, method: str) -> bool:
    # Pipelines and searches have a method only when their last step has it.
    return callable(getattr(estimator, method, None))


def run(estimator: Any, wanted: tuple[Output, ...], rows: Array) -> list[Array]:
    """What the estimator itself gives for ``rows`` [batch, features], as the ONNX model shapes it.

    Labels int64 [batch], everything else float32 [batch, columns].
    """
    import warnings

    import numpy as np
    from threadpoolctl import threadpool_limits

    made = []
    with threadpool_limits(1), warnings.catch_warnings():
        # Trained on a DataFrame, run on an array: the columns have no names.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        # Rows that are tried may overflow; NaN and infinity are compared, too.
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        for each in wanted:
            result = getattr(estimator, each.method)(rows)
            dense = result.toarray() if hasattr(result, "toarray") else np.asarray(result)
            made.append(_shaped(dense, each.purpose, len(rows)))
    return made


def _shaped(array: Array, purpose: str, rows: int) -> Array:
    import numpy as np

    if purpose == "label":
        return array.astype(np.int64).reshape(rows)
    if purpose == "column":
        return array.astype(np.int64).reshape(rows, 1)
    return np.ascontiguousarray(array.astype(np.float32).reshape(rows, -1))
