"""What is inside a fitted estimator: its parts, its trees, their thresholds.

Estimators nest in pipelines, ensembles and calibrators under names that change between
releases, so parts are found by walking over all attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_LIBRARIES = ("sklearn", "xgboost", "lightgbm")
MAX_PARTS = 1_000_000
_PLAIN = (str, bytes, int, float, complex, type(None))


@dataclass(frozen=True)
class Tree:
    """One decision tree, ``n`` nodes: at a split, ``x[feature] <= threshold`` goes left.

    ``threshold`` float64 [n], ``feature``, ``left``, ``right`` int64 [n], ``leaf`` and
    ``missing_left`` (where NaN goes) bool [n], ``value`` float64 [n, outputs].
    """

    feature: Array
    threshold: Array
    left: Array
    right: Array
    leaf: Array
    missing_left: Array
    value: Array


def describe(estimator: Any) -> str:
    """The estimator by name: ``Pipeline(StandardScaler, RandomForestClassifier)``."""
    name = type(estimator).__name__
    steps = getattr(estimator, "steps", None)
    if isinstance(steps, list):
        return f"{name}({', '.join(describe(step) for _, step in steps)})"
    return name


def parts(estimator: Any) -> Iterator[Any]:
    """Every object of scikit-learn, XGBoost and LightGBM in the estimator, itself first."""
    import numpy as np

    seen: dict[int, Any] = {}
    waiting = [estimator]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _PLAIN):
            continue
        if len(seen) > MAX_PARTS:
            raise errors.ModelRefused(f"the estimator holds more than {MAX_PARTS} objects")
        seen[id(each)] = each
        if isinstance(each, list | tuple | set):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, np.ndarray) and each.dtype == object:
            waiting += each.ravel().tolist()
        elif type(each).__module__.split(".")[0] in _LIBRARIES or each is estimator:
            yield each
            waiting += getattr(each, "__dict__", {}).values()


def trees(estimator: Any) -> list[Tree]:
    """All of scikit-learn's trees in the estimator."""
    return [tree for part in parts(estimator) if (tree := as_tree(part)) is not None]


def as_tree(part: Any) -> Tree | None:
    """A ``sklearn.tree._tree.Tree`` or a ``TreePredictor`` in plain arrays; None for others."""
    name = type(part).__name__
    if name == "Tree" and type(part).__module__ == "sklearn.tree._tree":
        return _from_tree(part)
    if name == "TreePredictor":
        return _from_predictor(part)
    return None


def _from_tree(tree: Any) -> Tree:
    import numpy as np

    value = np.asarray(tree.value, np.float64)
    return Tree(
        np.asarray(tree.feature, np.int64),
        np.asarray(tree.threshold, np.float64),
        np.asarray(tree.children_left, np.int64),
        np.asarray(tree.children_right, np.int64),
        np.asarray(tree.children_left) == -1,
        np.asarray(getattr(tree, "missing_go_to_left", np.zeros(len(value))), bool),
        # [n, outputs, classes]: one output with its classes, or several outputs of one value.
        value.reshape(len(value), -1),
    )


def _from_predictor(predictor: Any) -> Tree:
    import numpy as np

    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    if (nodes["is_categorical"].astype(bool) & ~leaf).any():
        raise errors.ModelRefused(
            "the histogram gradient boosting has categorical splits, which are not converted",
            remedy="train with categorical_features=None on ordinal or one-hot columns",
        )
    return Tree(
        nodes["feature_idx"].astype(np.int64),
        nodes["num_threshold"].astype(np.float64),
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        leaf,
        nodes["missing_go_to_left"].astype(bool),
        nodes["value"].astype(np.float64)[:, None],
    )


def check_trees(estimator: Any) -> None:
    """:class:`errors.ModelRefused` for a tree that points outside its arrays, or its rows.

    scikit-learn follows the indices of a loaded tree unchecked, also in a circle.
    """
    for part in parts(estimator):
        if (tree := as_tree(part)) is not None:
            _check_tree(tree, int(getattr(part, "n_features", 2**31)))
        width: Any = getattr(part, "n_features_in_", None)
        for owned in _trees_of(part):
            _check_tree(owned, int(width))


def _trees_of(part: Any) -> Iterator[Tree]:
    """Trees that are run on the very rows that ``part`` takes."""
    import numpy as np

    members = np.ravel(np.array(getattr(part, "estimators_", ()), object)).tolist()
    owned = [getattr(each, "tree_", None) for each in (part, *members)]
    owned += [each for iteration in getattr(part, "_predictors", ()) for each in iteration]
    for each in owned:
        if (tree := as_tree(each)) is not None:
            yield tree


def _check_tree(tree: Tree, width: int) -> None:
    import numpy as np

    inner = ~tree.leaf
    own, split = np.arange(len(tree.leaf))[inner], tree.feature[inner]
    good = len(tree.leaf) > 0 and bool(((split >= 0) & (split < width)).all())
    for child in (tree.left[inner], tree.right[inner]):
        # Behind its parent, as all builders number them: no circle.
        good = good and bool(((child > own) & (child < len(tree.leaf))).all())
    if not good:
        raise errors.ModelRefused(
            "a decision tree of the estimator points outside of itself",
            remedy="the file is damaged or made to harm; do not trust it",
        )


def one_thread(estimator: Any) -> None:
    """Let every part run on one thread, for results that do not depend on the machine."""
    for part in parts(estimator):
        if getattr(part, "n_jobs", None) not in (None, 1):
            part.n_jobs = 1
        if type(part).__module__.startswith("xgboost") and hasattr(part, "set_param"):
            part.set_param({"nthread": 1})


def around_booster(booster: Any, name: str) -> Any:
    """An LGBMClassifier or LGBMRegressor around a LightGBM booster that was read from a file.

    LightGBM has no public way to do this; what ``fit`` would have set is set here.
    """
    import lightgbm
    import numpy as np
    from sklearn.preprocessing import LabelEncoder

    objective = str(booster.dump_model(num_iteration=1).get("objective", "")).split(" ")[0]
    if objective.startswith(("lambdarank", "rank_", "cross_entropy", "custom", "multiclassova")):
        raise errors.ModelRefused(
            f"{name} has the objective {objective}, which onnxmltools does not convert",
            remedy="objectives that are converted: binary, multiclass, regression and its kin",
        )
    classifier = objective.startswith(("binary", "multiclass"))
    estimator = lightgbm.LGBMClassifier() if classifier else lightgbm.LGBMRegressor()
    features = booster.num_feature()
    said = {"_Booster": booster, "fitted_": True, "_objective": objective,
            "_n_features": features, "_n_features_in": features}  # fmt: skip
    if classifier:
        count = 2 if objective.startswith("binary") else booster.num_model_per_iteration()
        classes = np.arange(count)
        said |= {"_n_classes": count, "_classes": classes, "_le": LabelEncoder().fit(classes)}
    for attribute, value in said.items():
        setattr(estimator, attribute, value)
    return estimator
