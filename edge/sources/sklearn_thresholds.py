"""Thresholds of an estimator's trees, in float64, and those of its ONNX model, in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.sources import sklearn_walk
from edge.sources.sklearn_trees import floor32
from edge.step import Facts

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]


def by_feature(part: Any, width: int) -> dict[int, Array]:
    """float64 thresholds of all trees in ``part``, by feature; empty without trees."""
    import numpy as np

    found: dict[int, list[Array]] = {}
    for features, thresholds in _splits(part):
        for feature in np.unique(features):
            if 0 <= feature < width:
                found.setdefault(int(feature), []).append(thresholds[features == feature])
    return {feature: np.unique(np.concatenate(arrays)) for feature, arrays in found.items()}


def _splits(part: Any) -> Iterator[tuple[Array, Array]]:
    """(features, float64 thresholds) of the splits of each tree of any of the libraries."""
    for each in sklearn_walk.parts(part):
        tree = sklearn_walk.as_tree(each)
        if tree is not None:
            yield tree.feature[~tree.leaf], tree.threshold[~tree.leaf]
        elif type(each).__name__ == "Booster":
            library = type(each).__module__.split(".")[0]
            yield from _of_xgboost(each) if library == "xgboost" else _of_lightgbm(each)


def _of_xgboost(booster: Any) -> Iterator[tuple[Array, Array]]:
    import json

    import numpy as np

    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    model = learner["gradient_booster"]
    for tree in model.get("gbtree", model).get("model", {}).get("trees", []):
        split = np.asarray(tree["left_children"]) != -1
        values = np.asarray(tree["split_conditions"], np.float64).astype(np.float32)
        yield np.asarray(tree["split_indices"])[split], values[split].astype(np.float64)


def _of_lightgbm(booster: Any) -> Iterator[tuple[Array, Array]]:
    import numpy as np

    features = None
    for line in booster.model_to_string().splitlines():
        name, _, values = line.partition("=")
        if name == "split_feature":
            features = np.array(values.split(), np.int64)
        elif name == "threshold" and features is not None:
            yield features, np.array(values.split(), np.float64)
            features = None


def check(estimator: Any, model: onnx.ModelProto) -> Facts:
    """Every threshold of the model is the float32 that no row can tell from the estimator's.

    Facts: ``checked`` splits of the model, ``moved`` thresholds of the estimator whose nearest
    float32 would have been another one. Raises :class:`errors.ModelRefused` otherwise.
    """
    import numpy as np

    own = [values for _, values in _splits(estimator)]
    exact = np.unique(np.concatenate(own)) if own else np.zeros(0)
    allowed = floor32(exact)
    checked = 0
    for node in model.graph.node:
        attributes = {each.name: each for each in node.attribute}
        if not node.op_type.startswith("TreeEnsemble") or "nodes_values" not in attributes:
            continue
        modes = np.array([mode.decode() for mode in attributes["nodes_modes"].strings])
        values = np.array(attributes["nodes_values"].floats, np.float32)
        found = values[np.isin(modes, ("BRANCH_LEQ", "BRANCH_LT"))]
        checked += len(found)
        if not np.isin(found, allowed).all():
            raise errors.ModelRefused(
                f"{node.name or node.op_type}: {int((~np.isin(found, allowed)).sum())} of "
                f"{len(found)} thresholds are not those of {sklearn_walk.describe(estimator)}: "
                "rows near them would take another branch",
                remedy="please report the estimator and its release",
            )
    return {"checked": checked, "moved": int((exact.astype(np.float32) != allowed).sum())}
