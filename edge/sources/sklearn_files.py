"""From a file or a factory to a fitted estimator, with what each kind of file may do.

* ``.skops``: read by skops, which makes only objects of types that it or this file trusts.
* ``.pkl``, ``.pickle``, ``.joblib``: run whatever code they hold; only with ``allow_pickle``.
* ``.ubj``, ``.json``: XGBoost's own format. ``.txt``: LightGBM's own format.
* a factory: the user's own Python.
"""

from __future__ import annotations

import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

from edge import errors, graph
from edge.sources import sklearn_walk

PICKLES = (".pkl", ".pickle", ".joblib")
SUFFIXES = (".skops", *PICKLES, ".ubj", ".json", ".txt")
# What a .skops file may unpack to; a zip says its sizes before anything is read.
MAX_BYTES = 2**31
# Types beyond skops' own list. Those of trees are left out there since a crafted file can hold
# indices outside their arrays (skops, _trusted_types.py): sklearn_walk.check_trees looks at them.
TRUSTED = frozenset({
    "collections.OrderedDict", "collections.defaultdict",
    "lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier", "lightgbm.sklearn.LGBMRegressor",
    "sklearn.calibration._CalibratedClassifier", "sklearn.calibration._SigmoidCalibration",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree", "sklearn.utils._bunch.Bunch",
    "xgboost.core.Booster", "xgboost.sklearn.XGBClassifier", "xgboost.sklearn.XGBRegressor",
    "xgboost.sklearn.XGBRFClassifier", "xgboost.sklearn.XGBRFRegressor",
})  # fmt: skip
# What the readers raise for a file that is none of theirs, or a damaged one.
_UNREADABLE = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, ImportError, EOFError,
    RuntimeError, NotImplementedError, AssertionError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def load(source: Path, factory: str, options: dict[str, Any]) -> tuple[Any, list[str]]:
    """The fitted estimator, set to one thread, and the warnings that were given for it.

    ``options["allow_pickle"]`` lets the file run code. Raises :class:`errors.UsageError` for a
    file that may not be read, :class:`errors.ModelRefused` for one that is no fitted estimator
    and :class:`errors.ToolMissing` where a library is not installed.
    """
    need("sklearn", "skl2onnx")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if factory:
            from edge.sources.factory import make

            estimator = _estimator_of(make(source, factory), factory)
        else:
            estimator = _read(source, allow_pickle=bool(options.get("allow_pickle")))
        _refuse_unusable(estimator, factory or source.name)
    sklearn_walk.check_trees(estimator)
    sklearn_walk.one_thread(estimator)
    return estimator, first_lines(caught)


def need(*modules: str) -> None:
    """:class:`errors.ToolMissing` when one of the modules is not installed."""
    import importlib.util

    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise errors.ToolMissing(
            f"a scikit-learn source needs {', '.join(missing)}, which is not installed",
            remedy="pip install 'edgewright[sklearn]', or add it to the model's environment if it "
            "has one",
        )


def first_lines(caught: list[warnings.WarningMessage]) -> list[str]:
    """The different warnings, each as ``Category: first line``, at most twenty."""
    lines = {
        f"{each.category.__name__}: {graph.first_line(Exception(each.message))}"
        for each in caught
        if not issubclass(each.category, DeprecationWarning | FutureWarning)
    }
    return sorted(lines)[:20]


def _read(source: Path, *, allow_pickle: bool) -> Any:
    suffix = source.suffix.lower()
    if suffix == ".skops":
        need("skops")
    readers = {".skops": _skops, ".ubj": _xgboost, ".json": _xgboost, ".txt": _lightgbm}
    if suffix not in SUFFIXES:
        raise errors.UsageError(
            f"{source.name} is no file of a scikit-learn estimator: {', '.join(SUFFIXES)}",
            remedy="save it with skops.io.dump(estimator, 'NAME.skops')",
        )
    if suffix in PICKLES and not allow_pickle:
        raise errors.UsageError(
            f"{source.name} is a pickle: reading it runs whatever code it holds",
            remedy="save the estimator with skops.io.dump(estimator, 'NAME.skops'), or say "
            "--allow-pickle when you made the file yourself",
        )
    try:
        if suffix in PICKLES:
            return _pickle(source)
        if suffix == ".skops":
            return _skops(source, allow_all=allow_pickle)
        return readers[suffix](source)
    except _UNREADABLE as error:
        raise errors.ModelRefused(
            f"{source.name} cannot be read: {type(error).__name__}: {graph.first_line(error)}",
            remedy="was it saved whole, by the versions of the libraries that are installed here?",
        ) from error


def _pickle(source: Path) -> Any:
    import joblib

    return joblib.load(source)


def _skops(source: Path, *, allow_all: bool = False) -> Any:
    import skops.io

    with zipfile.ZipFile(source) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_BYTES:
        raise errors.ModelRefused(f"{source.name} would unpack to {size} bytes")
    untrusted = skops.io.get_untrusted_types(file=source)
    refused = sorted(set(untrusted) - TRUSTED)
    if refused and not allow_all:
        raise errors.UsageError(
            f"{source.name} holds types that are not trusted: {', '.join(refused[:10])}",
            remedy="make the estimator of scikit-learn's own parts, use a factory "
            "(module:callable), or say --allow-pickle when you made the file yourself",
        )
    return skops.io.load(source, trusted=untrusted)


def _xgboost(source: Path) -> Any:
    """An XGBClassifier or XGBRegressor, as the objective in the file says."""
    need("xgboost", "onnxmltools")
    import xgboost

    try:
        booster = xgboost.Booster(model_file=str(source))
    except xgboost.core.XGBoostError as error:
        raise errors.ModelRefused(
            f"{source.name} is no model of XGBoost: {graph.first_line(error)}",
            remedy="save it with save_model('NAME.ubj'), or the estimator as .skops",
        ) from error
    return _around_xgboost(booster, source.name)


def _around_xgboost(booster: Any, name: str) -> Any:
    import json

    import xgboost

    objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
    if objective.startswith(("rank:", "survival:")):
        raise errors.ModelRefused(
            f"{name} has the objective {objective}, which onnxmltools does not convert",
            remedy="objectives that are converted: binary:*, multi:*, reg:*, count:poisson",
        )
    classifier = objective.startswith(("binary:", "multi:"))
    estimator = xgboost.XGBClassifier() if classifier else xgboost.XGBRegressor()
    estimator.load_model(booster.save_raw("ubj"))
    return estimator


def _estimator_of(made: Any, name: str) -> Any:
    """What a factory gave; a bare booster gets the estimator that its objective asks for."""
    if type(made).__name__ != "Booster":
        return made
    if type(made).__module__.startswith("xgboost"):
        return _around_xgboost(made, name)
    return sklearn_walk.around_booster(made, name)


def _lightgbm(source: Path) -> Any:
    """An LGBMClassifier or LGBMRegressor around the booster in the file."""
    need("lightgbm", "onnxmltools")
    import lightgbm

    try:
        booster = lightgbm.Booster(model_file=str(source))
    except lightgbm.basic.LightGBMError as error:
        raise errors.ModelRefused(
            f"{source.name} is no model of LightGBM: {graph.first_line(error)}",
            remedy="save it with booster_.save_model('NAME.txt'), or the estimator as .skops",
        ) from error
    return sklearn_walk.around_booster(booster, source.name)


def _refuse_unusable(estimator: Any, name: str) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    if not any(callable(getattr(estimator, each, None)) for each in ("predict", "transform")):
        raise errors.ModelRefused(
            f"{name} gives a {type(estimator).__name__}, which is no scikit-learn estimator",
            remedy="an estimator or a Pipeline with predict or transform is needed",
        )
    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise errors.ModelRefused(
            f"{name} gives a {type(estimator).__name__} that is not fitted",
            remedy="call fit before it is saved or returned",
        ) from error
    except TypeError as error:
        raise errors.ModelRefused(
            f"{name} gives a {type(estimator).__name__}: {graph.first_line(error)}"
        ) from error
