"""The exported model and the estimator side by side, on rows that find what is wrong.

skl2onnx converts some estimators of some releases wrongly and without a word (LightGBM's
``boosting_type="rf"``, say). No list of them would stay true, so each export is tried out: rows
around what the estimator learned, rows exactly on, just below and just above every kind of
threshold, whole numbers, zeros, and missing values where the estimator takes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.sources import sklearn_ports, sklearn_rows, sklearn_walk
from edge.sources.sklearn_ports import Input, Output
from edge.step import Facts

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# A row differs when a value is off by more than ABSOLUTE + RELATIVE * |estimator's|, or with
# another label. float32 against float64 arithmetic stays far below on well-made estimators.
ABSOLUTE, RELATIVE = 1e-4, 1e-3
# Rows that may differ: a value that is computed in float32 may fall on the other side of a step.
ALLOWED_SHARE = 0.005
# Of rows laid at thresholds many more may, behind a PCA for instance.
ALLOWED_SHARE_AT_THRESHOLDS = 0.2
# Two classes whose values are this near are a tie that rounding decides.
TIE = 1e-6


def check(
    estimator: Any, model: Path, port: Input, wanted: tuple[Output, ...]
) -> tuple[Facts, list[str]]:
    """The facts of the comparison, and notes on it for the user.

    Facts: ``rows``, ``rows_that_differ``, ``ties`` (labels that only rounding decides),
    ``max_abs``, ``at_thresholds`` (the same for rows whose values lie at thresholds) and
    ``missing_values``. Raises :class:`errors.ModelRefused` when too many rows differ, or with
    missing values, unless a declared range of the input excludes those.
    """
    plain, near = sklearn_rows.make_rows(estimator, port)
    facts = _side_by_side(estimator, model, (port, wanted), plain)
    _refuse(estimator, facts, ALLOWED_SHARE, "rows")
    facts["at_thresholds"] = _side_by_side(estimator, model, (port, wanted), near)
    _refuse(estimator, facts["at_thresholds"], ALLOWED_SHARE_AT_THRESHOLDS, "rows at thresholds")
    facts["missing_values"] = _missing(estimator, model, (port, wanted), plain)
    count = facts["at_thresholds"]["rows_that_differ"]
    if not count:
        return facts, []
    note = (
        f"{count} of {len(near)} rows laid at the trees' thresholds take another branch: what "
        "stands before the trees computes in float32 here"
    )
    return facts, [note]


def _side_by_side(
    estimator: Any, model: Path, ports: tuple[Input, tuple[Output, ...]], rows: Array
) -> Facts:
    if not len(rows):
        return {"rows": 0, "rows_that_differ": 0, "ties": 0, "max_abs": 0.0}
    port, wanted = ports
    given = _of_estimator(estimator, wanted, rows, port)
    differs, ties, largest = compare(wanted, given, _of_model(model, port, rows))
    return {
        "rows": len(rows),
        "rows_that_differ": int(differs.sum()),
        "ties": int(ties.sum()),
        "max_abs": largest,
    }


def _refuse(estimator: Any, facts: Facts, allowed: float, what: str) -> None:
    if facts["rows_that_differ"] > allowed * facts["rows"]:
        raise errors.ModelRefused(
            f"the ONNX model of {sklearn_walk.describe(estimator)} computes something else: "
            f"{facts['rows_that_differ']} of {facts['rows']} {what} differ, values by up to "
            f"{facts['max_abs']:.3g}",
            remedy="its converter gets this estimator, its parameters or this release wrong; "
            "change those, or declare the input's range if such values never come",
        )


def compare(
    wanted: tuple[Output, ...], given: list[Array], converted: list[Array]
) -> tuple[Array, Array, float]:
    """Which rows differ, which are only ties between labels, and the largest difference."""
    import numpy as np

    differs = np.zeros(len(given[0]), bool)
    labels = np.zeros(len(given[0]), bool)
    largest = 0.0
    for each, ours, theirs in zip(wanted, given, converted, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise errors.ModelRefused(
                f"the output {each.name} of the ONNX model is {theirs.dtype}{list(theirs.shape)}, "
                f"the estimator's {ours.dtype}{list(ours.shape)}",
                remedy="please report the estimator",
            )
        if ours.dtype == np.int64:
            labels |= (ours != theirs).reshape(len(ours), -1).any(axis=1)
            continue
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.where(same, 0.0, np.abs(ours.astype(np.float64) - theirs))
            differs |= ~(same | (apart <= ABSOLUTE + RELATIVE * np.abs(ours))).all(axis=1)
        finite = apart[np.isfinite(apart)]
        largest = max(largest, float(finite.max(initial=0.0)))
    ties = labels & _tied(given)
    return differs | (labels & ~ties), ties, largest


def _tied(given: list[Array]) -> Array:
    """Rows whose two best classes are too near to each other to say which is the label."""
    import numpy as np

    values = given[-1]
    if values.dtype != np.float32 or values.ndim != 2:
        return np.zeros(len(values), bool)
    if values.shape[1] == 1:
        return np.asarray(np.abs(values[:, 0]) < TIE)
    best = np.sort(values, axis=1)
    return np.asarray(best[:, -1] - best[:, -2] < TIE)


def _missing(
    estimator: Any, model: Path, ports: tuple[Input, tuple[Output, ...]], rows: Array
) -> str:
    """How missing values (NaN) come out, in words."""
    import numpy as np

    port, wanted = ports
    if not port.dtype.startswith("float") or port.range is not None:
        return "not tried: the input has a declared range, or cannot hold them"
    holed = rows.copy()
    holed[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    try:
        given = sklearn_ports.run(estimator, wanted, holed)
    except ValueError:
        return "refused by the estimator"
    differs, _, largest = compare(wanted, given, _of_model(model, port, holed))
    if differs.mean() > ALLOWED_SHARE:
        raise errors.ModelRefused(
            f"the ONNX model of {sklearn_walk.describe(estimator)} treats missing values otherwise "
            f"than the estimator: {int(differs.sum())} of {len(rows)} rows differ, values by up to "
            f"{largest:.3g}",
            remedy=f"declare the range of the input {port.name} in the project if it never holds "
            "NaN, or put a SimpleImputer first",
        )
    return "as the estimator"


def _of_estimator(
    estimator: Any, wanted: tuple[Output, ...], rows: Array, port: Input
) -> list[Array]:
    try:
        return sklearn_ports.run(estimator, wanted, rows)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise errors.ModelRefused(
            f"{sklearn_walk.describe(estimator)} does not run on an array of {len(rows)} rows and "
            f"{port.shape[1]} columns: {graph.first_line(error)}",
            remedy="choose columns by number, not by name; where the values must lie in a range, "
            f"declare it for the input {port.name} in the project",
        ) from error


def _of_model(model: Path, port: Input, rows: Array) -> list[Array]:
    from edge.convert import run_model

    session = run_model.open_session(model, level="disabled")
    return list(run_model.run_session(session, {port.name: rows}).values())
