"""Estimator -> ONNX model: skl2onnx and onnxmltools, with our converters where theirs differ."""

from __future__ import annotations

import importlib.util
import re
import warnings
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.sources import sklearn_graph, sklearn_scalers, sklearn_trees
from edge.sources.sklearn_files import first_lines
from edge.sources.sklearn_ports import Input, Output
from edge.sources.sklearn_walk import describe

if TYPE_CHECKING:
    import onnx

# What skl2onnx can be asked for and every release of onnxruntime that targets name can read.
HIGHEST_OPSET = 20
# What the converters raise for what they do not support, beside their own MissingConverter.
_UNSUPPORTED = (
    RuntimeError, NotImplementedError, ValueError, TypeError, NameError, KeyError, IndexError,
    AttributeError, AssertionError, ImportError,
)  # fmt: skip


def convert(
    estimator: Any, port: Input, wanted: tuple[Output, ...], opset: int
) -> tuple[onnx.ModelProto, list[str]]:
    """The model with the input ``port`` (its batch symbolic) and the outputs ``wanted``.

    Also the warnings of the converters. Raises :class:`errors.ModelRefused` with the converter's
    words for an estimator that it does not support.
    """
    _register_boosters()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = _skl2onnx(estimator, port, min(HIGHEST_OPSET, opset))
        except _UNSUPPORTED as error:
            raise errors.ModelRefused(
                f"{describe(estimator)} cannot be converted: {graph.first_line(error)}",
                remedy="https://onnx.ai/sklearn-onnx/supported.html lists what skl2onnx converts",
            ) from error
    binary = len(getattr(estimator, "classes_", ())) < 3
    sklearn_graph.mend(model, port, wanted, binary=binary)
    return model, first_lines(caught)


def _skl2onnx(estimator: Any, port: Input, opset: int) -> onnx.ModelProto:
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    if type(estimator).__name__ == "VotingClassifier":
        # skl2onnx refuses the default, which only shapes transform(), never a prediction.
        estimator.flatten_transform = False
    # ai.onnx.ml 3 came with ONNX 1.11 (opset 16), 2 with 1.6 (opset 11).
    ml = 3 if opset >= 16 else 2 if opset >= 11 else 1
    model: onnx.ModelProto = convert_sklearn(
        estimator,
        name=re.sub(r"\W+", "_", type(estimator).__name__),  # else a random one
        initial_types=[(port.name, FloatTensorType([None, port.shape[1]]))],
        target_opset={"": opset, "ai.onnx.ml": ml},
        options=_options(estimator),
        custom_conversion_functions={
            **sklearn_trees.converters(),
            **sklearn_scalers.converters(),
            **_lightgbm_converters(),
        },
        custom_shape_calculators=_shape_calculators(),
    )
    return model


def _options(estimator: Any) -> dict[int, dict[str, Any]]:
    """ZipMap off (its maps are no tensors); scores as they are where there are no probabilities."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import _converter_pool
    from sklearn.base import is_classifier

    final = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    alias = sklearn_operator_name_map.get(type(final))
    allowed = (_converter_pool[alias].get_allowed_options() or {}) if alias else {}
    wanted: dict[str, Any] = {"zipmap": False}
    if is_classifier(final) and not callable(getattr(final, "predict_proba", None)):
        wanted["raw_scores"] = True
    chosen = {name: value for name, value in wanted.items() if name in allowed}
    return {id(final): chosen} if chosen else {}


def _shape_calculators() -> dict[type, Any]:
    """skl2onnx's own for the types that have a converter of ours: it asks for both together."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import get_shape_calculator

    types = [*sklearn_trees.converters(), *sklearn_scalers.converters(), *_lightgbm_converters()]
    return {each: get_shape_calculator(sklearn_operator_name_map[each]) for each in types}


def _register_boosters() -> None:
    """Make the converters of onnxmltools known to skl2onnx, where the libraries are installed."""
    from skl2onnx import update_registered_converter
    from skl2onnx.common import shape_calculator

    if importlib.util.find_spec("onnxmltools") is None:
        return
    shapes = {
        "Classifier": shape_calculator.calculate_linear_classifier_output_shapes,
        "Regressor": shape_calculator.calculate_linear_regressor_output_shapes,
    }
    for library, converter, types in _boosters():
        for each in types:
            kind = "Classifier" if each.__name__.endswith("Classifier") else "Regressor"
            options = {"nocl": [True, False], "zipmap": [True, False, "columns"]}
            update_registered_converter(
                each,
                f"{library}{each.__name__}",
                shapes[kind],
                converter,
                options=options if kind == "Classifier" else {"split": None},
            )


def _boosters() -> list[tuple[str, Any, tuple[Any, ...]]]:
    found: list[tuple[str, Any, tuple[Any, ...]]] = []
    if importlib.util.find_spec("xgboost"):
        import xgboost
        from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost

        types: tuple[Any, ...] = (xgboost.XGBClassifier, xgboost.XGBRegressor,
                 xgboost.XGBRFClassifier, xgboost.XGBRFRegressor)  # fmt: skip
        found.append(("XGBoost", convert_xgboost, types))
    if importlib.util.find_spec("lightgbm"):
        import lightgbm
        from onnxmltools.convert.lightgbm.operator_converters import LightGbm

        types = (lightgbm.LGBMClassifier, lightgbm.LGBMRegressor)
        found.append(("LightGbm", LightGbm.convert_lightgbm, types))
    return found


def _lightgbm_converters() -> dict[type, sklearn_trees.Converter]:
    if importlib.util.find_spec("onnxmltools") is None:
        return {}
    return {
        each: _lightgbm_rounded
        for library, _, types in _boosters()
        if library == "LightGbm"
        for each in types
    }


def _lightgbm_rounded(scope: Any, operator: Any, container: Any) -> None:
    """LightGBM's float64 thresholds are brought to :func:`sklearn_trees.floor32` beforehand.

    The booster's text is changed, not the estimator: that one goes on as it was trained.
    """
    import copy

    import lightgbm
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm

    given = operator.raw_operator
    text = round_thresholds(given.booster_.model_to_string())
    rounded = copy.copy(given)
    rounded._Booster = lightgbm.Booster(model_str=text)  # noqa: SLF001
    operator.raw_operator = rounded
    try:
        convert_lightgbm(scope, operator, container)
    finally:
        operator.raw_operator = given


def round_thresholds(text: str) -> str:
    """LightGBM's text model with every threshold rounded down to a float32."""
    import numpy as np

    def rounded(line: re.Match[str]) -> str:
        values = np.array(line[1].split(), np.float64)
        return "threshold=" + " ".join(repr(float(v)) for v in sklearn_trees.floor32(values))

    # Lengths of the trees in the head would no longer be true; without them it is read in order.
    without = re.sub(r"(?m)^tree_sizes=.*\n", "", text)
    return re.sub(r"(?m)^threshold=(.*)$", rounded, without)
