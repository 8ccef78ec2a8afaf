"""Converters for scikit-learn's trees that take every float32 row down the same branches.

scikit-learn compares a float32 feature with a float64 threshold, ONNX with a float32 one. The
nearest float32 may lie above the threshold, and a row on it changes sides (sklearn-onnx #1192;
isotonic calibration makes such a step visible, #1151). :func:`floor32` is the float32 that no
row can tell from the threshold. Beyond skl2onnx 1.20 these converters also

* convert histogram gradient boosting, which fails there on its uint32 node numbers,
* send a missing value where the tree sends it, not always to the right,
* count a forest's votes as they are and divide once: 50 votes of 100 stay a tie, as in
  scikit-learn, where 50 times 0.01f is not 0.5f and the label was another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge.sources.sklearn_walk import Tree, as_tree

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Converter = Callable[[Any, Any, Any], None]  # skl2onnx's: scope, operator, container


def floor32(threshold: Array) -> Array:
    """The largest float32 that is not above each float64 threshold.

    For every float32 x: ``x <= threshold`` exactly when ``x <= floor32(threshold)``.
    """
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):  # beyond float32: infinity, or zero
        nearest = np.asarray(threshold, np.float64).astype(np.float32)
        below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest.astype(np.float64) > threshold, below, nearest)


def converters() -> dict[type, Converter]:
    """Converters by estimator type, for skl2onnx's ``custom_conversion_functions``."""
    from sklearn import ensemble, tree

    classifiers = (tree.DecisionTreeClassifier, tree.ExtraTreeClassifier,
                   ensemble.RandomForestClassifier, ensemble.ExtraTreesClassifier)  # fmt: skip
    regressors = (tree.DecisionTreeRegressor, tree.ExtraTreeRegressor,
                  ensemble.RandomForestRegressor, ensemble.ExtraTreesRegressor)  # fmt: skip
    return {
        **dict.fromkeys(classifiers, _forest_classifier),
        **dict.fromkeys(regressors, _forest_regressor),
        ensemble.HistGradientBoostingClassifier: _hist_classifier,
        ensemble.HistGradientBoostingRegressor: _hist_regressor,
    }


def _forest_classifier(scope: Any, operator: Any, container: Any) -> None:
    estimator = operator.raw_operator
    if getattr(estimator, "n_outputs_", 1) != 1 or len(operator.outputs) != 2:
        _theirs(scope, operator, container)  # decision paths, several outputs
        return
    trees = _trees(getattr(estimator, "estimators_", [estimator]))
    attributes = _attributes(trees, [0] * len(trees), "class")
    attributes |= _labels(scope, estimator) | {"post_transform": "NONE"}
    label, probabilities = (each.full_name for each in operator.outputs)
    votes = scope.get_unique_variable_name("votes")
    made = label
    if len(estimator.classes_) == 2:
        # onnxruntime holds the second class of two against 0.5, which are not votes.
        made = scope.get_unique_variable_name("label_of_sums")
        _label_of_votes(scope, container, (votes, label), attributes)
    _add(scope, operator, container, ("TreeEnsembleClassifier", [made, votes], attributes))
    _divide(scope, container, (votes, probabilities, len(trees)))


def _forest_regressor(scope: Any, operator: Any, container: Any) -> None:
    estimator = operator.raw_operator
    if len(operator.outputs) != 1:
        _theirs(scope, operator, container)
        return
    trees = _trees(getattr(estimator, "estimators_", [estimator]))
    attributes = _attributes(trees, [0] * len(trees), "target")
    attributes |= {"n_targets": int(estimator.n_outputs_), "post_transform": "NONE"}
    total = scope.get_unique_variable_name("total")
    _add(scope, operator, container, ("TreeEnsembleRegressor", [total], attributes))
    _divide(scope, container, (total, operator.outputs[0].full_name, len(trees)))


def _hist_classifier(scope: Any, operator: Any, container: Any) -> None:
    attributes, per_iteration = _hist(operator.raw_operator, "class")
    attributes |= _labels(scope, operator.raw_operator)
    attributes["post_transform"] = "LOGISTIC" if per_iteration == 1 else "SOFTMAX"
    outputs = [each.full_name for each in operator.outputs]
    _add(scope, operator, container, ("TreeEnsembleClassifier", outputs, attributes))


def _hist_regressor(scope: Any, operator: Any, container: Any) -> None:
    attributes, _ = _hist(operator.raw_operator, "target")
    attributes |= {"n_targets": 1, "post_transform": "NONE"}
    output = operator.outputs[0].full_name
    link = type(operator.raw_operator._loss.link).__name__  # noqa: SLF001 - its only name
    if link not in ("IdentityLink", "LogLink"):
        raise NotImplementedError(f"the link {link} of a histogram gradient boosting")
    raw = scope.get_unique_variable_name("raw") if link == "LogLink" else output
    _add(scope, operator, container, ("TreeEnsembleRegressor", [raw], attributes))
    if raw != output:
        container.add_node("Exp", [raw], [output], op_version=_opset(container))


def _hist(estimator: Any, prefix: str) -> tuple[dict[str, Any], int]:
    """Attributes of all iterations' trees, and how many trees an iteration has."""
    import numpy as np

    iterations = estimator._predictors  # noqa: SLF001 - fitted state, no public name
    trees = [as_tree(part) for iteration in iterations for part in iteration]
    ids = [place for iteration in iterations for place in range(len(iteration))]
    attributes = _attributes([tree for tree in trees if tree is not None], ids, prefix)
    baseline = np.asarray(estimator._baseline_prediction, np.float64)  # noqa: SLF001
    attributes["base_values"] = baseline.ravel().tolist()
    return attributes, int(estimator.n_trees_per_iteration_)


def _trees(estimators: Sequence[Any]) -> list[Tree]:
    found = [as_tree(each.tree_) for each in estimators]
    return [tree for tree in found if tree is not None]


def _attributes(trees: Sequence[Tree], ids: Sequence[int], prefix: str) -> dict[str, Any]:
    """A TreeEnsemble's attributes; a leaf's values go to the outputs from ``ids[tree]`` on."""
    import numpy as np

    sizes = [len(tree.leaf) for tree in trees]
    leaf = np.concatenate([tree.leaf for tree in trees])

    def split(arrays: list[Array], dtype: type) -> list[Any]:
        return list(np.where(leaf, 0, np.concatenate(arrays)).astype(dtype).tolist())

    return {
        "nodes_treeids": np.repeat(np.arange(len(trees)), sizes).tolist(),
        "nodes_nodeids": np.concatenate([np.arange(size) for size in sizes]).tolist(),
        "nodes_featureids": split([tree.feature for tree in trees], int),
        "nodes_modes": np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values": split([floor32(tree.threshold) for tree in trees], np.float32),
        "nodes_truenodeids": split([tree.left for tree in trees], int),
        "nodes_falsenodeids": split([tree.right for tree in trees], int),
        "nodes_missing_value_tracks_true": split([tree.missing_left for tree in trees], int),
        **_leaves(trees, ids, prefix),
    }


def _leaves(trees: Sequence[Tree], ids: Sequence[int], prefix: str) -> dict[str, Any]:
    """Values of the leaves; zeros are left out, except that each leaf has one value.

    With two classes they stay: onnxruntime fills in the second one by rules of its own.
    """
    import numpy as np

    columns: list[list[Any]] = [[], [], [], []]
    for number, (tree, first) in enumerate(zip(trees, ids, strict=True)):
        kept = tree.leaf[:, None] & ((tree.value != 0) | (tree.value.shape[1] == 2))
        kept[tree.leaf & ~kept.any(axis=1), 0] = True
        node, place = np.nonzero(kept)
        columns[0] += [number] * len(node)
        columns[1] += node.tolist()
        columns[2] += (place + first).tolist()
        columns[3] += tree.value[node, place].astype(np.float32).tolist()
    names = ("treeids", "nodeids", "ids", "weights")
    return {f"{prefix}_{name}": column for name, column in zip(names, columns, strict=True)}


def _labels(scope: Any, estimator: Any) -> dict[str, Any]:
    from skl2onnx.common.utils_classifier import get_label_classes

    classes = list(get_label_classes(scope, estimator))
    if all(isinstance(each, str) for each in classes):
        return {"classlabels_strings": [str(each) for each in classes]}
    return {"classlabels_int64s": [int(each) for each in classes]}


def _add(scope: Any, operator: Any, container: Any, node: tuple[str, list[str], Any]) -> None:
    """Append a TreeEnsemble node over the operator's input, cast to float32 where needed."""
    from onnx import TensorProto
    from skl2onnx.common.data_types import FloatTensorType

    op_type, outputs, attributes = node
    (variable,) = operator.inputs
    name = variable.full_name
    if not isinstance(variable.type, FloatTensorType):
        cast = scope.get_unique_variable_name("features")
        container.add_node(
            "Cast", [name], [cast], op_version=_opset(container), to=TensorProto.FLOAT
        )
        name = cast
    container.add_node(
        op_type,
        [name],
        outputs,
        op_domain="ai.onnx.ml",
        op_version=1,
        name=scope.get_unique_operator_name(op_type),
        **attributes,
    )


def _label_of_votes(
    scope: Any, container: Any, names: tuple[str, str], attributes: dict[str, Any]
) -> None:
    """The class with the most votes, of equal ones the first: numpy.argmax, as scikit-learn."""
    from onnx import TensorProto

    votes, label = names
    best = scope.get_unique_variable_name("best")
    classes = scope.get_unique_variable_name("classes")
    whole = attributes.get("classlabels_int64s")
    kind = TensorProto.STRING if whole is None else TensorProto.INT64
    values = attributes["classlabels_strings"] if whole is None else whole
    container.add_initializer(classes, kind, [len(values)], values)
    container.add_node("ArgMax", [votes], [best], op_version=_opset(container), axis=1, keepdims=0)
    container.add_node("Gather", [classes, best], [label], op_version=_opset(container), axis=0)


def _opset(container: Any) -> int:
    """The version to ask of plain operators, which look the same in all opsets up to this one."""
    return min(13, int(container.target_opset))


def _divide(scope: Any, container: Any, what: tuple[str, str, int]) -> None:
    from onnx import TensorProto

    total, output, count = what
    divisor = scope.get_unique_variable_name("trees")
    container.add_initializer(divisor, TensorProto.FLOAT, [1], [float(count)])
    container.add_node("Div", [total, divisor], [output], op_version=_opset(container))


def _theirs(scope: Any, operator: Any, container: Any) -> None:
    """Convert as skl2onnx does; needed for outputs that only its own converters have."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import get_converter

    alias = sklearn_operator_name_map[type(operator.raw_operator)]
    get_converter(alias)(scope, operator, container)
