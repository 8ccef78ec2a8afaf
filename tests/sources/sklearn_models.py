"""Estimators that are really trained, on scikit-learn's bundled data, small enough for a test."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NEEDED = ("sklearn", "skops", "skl2onnx", "onnxmltools", "xgboost", "lightgbm")
Array = np.ndarray[Any, Any]


def need_libraries() -> None:
    """Without the extra the test is skipped by name, and fails under CI."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        reason = f"needs {', '.join(missing)}: pip install 'edgewright[sklearn]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@cache
def data(name: str) -> tuple[Array, Array, Array]:
    """Training rows, their targets and held-out rows (a third) of a bundled data set, float32."""
    from sklearn import datasets

    rows, targets = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))
    train, held = order[len(rows) // 3 :], order[: len(rows) // 3]
    return rows[train].astype(np.float32), targets[train], rows[held].astype(np.float32)


def _forest(**options: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(n_estimators=20, random_state=0, **options)


def _scaled(scaler: str, final: Any, **options: Any) -> Any:
    from sklearn import preprocessing
    from sklearn.pipeline import make_pipeline

    return make_pipeline(getattr(preprocessing, scaler)(**options), final)


def _columns() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    parts = [("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), slice(2, 4))]
    chosen = ColumnTransformer(parts, remainder="passthrough")
    return make_pipeline(chosen, LogisticRegression(max_iter=200))


def _from(module: str, name: str, *arguments: Any, **options: Any) -> Any:
    return getattr(importlib.import_module(module), name)(*arguments, **options)


def _voting() -> Any:
    from sklearn.ensemble import VotingClassifier

    tree = _from("sklearn.tree", "DecisionTreeClassifier", random_state=0)
    members = [("t", tree), ("l", _from("sklearn.naive_bayes", "GaussianNB"))]
    return VotingClassifier(members, voting="soft")


_BOOST = {"n_estimators": 8, "random_state": 0}
ESTIMATORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "forest": ("digits", _forest),
    "forest-binary": ("breast_cancer", _forest),
    "extra-trees": ("iris", lambda: _from("sklearn.ensemble", "ExtraTreesClassifier", 9)),
    "forest-scaled": ("digits", lambda: _scaled("StandardScaler", _forest())),
    "forest-minmax": ("breast_cancer", lambda: _scaled("MinMaxScaler", _forest(), clip=True)),
    "forest-robust": ("breast_cancer", lambda: _scaled("RobustScaler", _forest())),
    "forest-maxabs": ("breast_cancer", lambda: _scaled("MaxAbsScaler", _forest())),
    "boosting": ("breast_cancer",
                 lambda: _from("sklearn.ensemble", "GradientBoostingClassifier", **_BOOST)),
    "hist": ("iris",
             lambda: _from("sklearn.ensemble", "HistGradientBoostingClassifier", max_iter=8)),
    "hist-binary": ("breast_cancer",
                    lambda: _from("sklearn.ensemble", "HistGradientBoostingClassifier",
                                  max_iter=8)),
    "logistic": ("digits",
                 lambda: _scaled("StandardScaler",
                                 _from("sklearn.linear_model", "LogisticRegression"))),
    "columns": ("iris", _columns),
    "svc": ("digits", lambda: _scaled("MinMaxScaler", _from("sklearn.svm", "SVC"))),
    "linear-svc": ("breast_cancer",
                   lambda: _scaled("StandardScaler", _from("sklearn.svm", "LinearSVC"))),
    "mlp": ("digits",
            lambda: _scaled("MinMaxScaler", _from("sklearn.neural_network", "MLPClassifier", (16,),
                                                  max_iter=15, random_state=0))),
    "voting": ("iris", _voting),
    "kmeans": ("iris", lambda: _from("sklearn.cluster", "KMeans", 3, random_state=0)),
    "scaler": ("iris", lambda: _from("sklearn.preprocessing", "StandardScaler")),
    "xgboost": ("digits", lambda: _from("xgboost", "XGBClassifier", **_BOOST)),
    "xgboost-binary": ("breast_cancer", lambda: _from("xgboost", "XGBClassifier", **_BOOST)),
    "lightgbm": ("digits", lambda: _from("lightgbm", "LGBMClassifier", verbose=-1, **_BOOST)),
    "lightgbm-binary": ("breast_cancer",
                        lambda: _from("lightgbm", "LGBMClassifier", verbose=-1, **_BOOST)),
    "tree-value": ("diabetes",
                   lambda: _from("sklearn.tree", "DecisionTreeRegressor", random_state=0)),
    "forest-value": ("diabetes",
                     lambda: _from("sklearn.ensemble", "RandomForestRegressor", 10,
                                   random_state=0)),
    "hist-value": ("diabetes",
                   lambda: _from("sklearn.ensemble", "HistGradientBoostingRegressor", max_iter=8)),
    "hist-poisson": ("diabetes",
                     lambda: _from("sklearn.ensemble", "HistGradientBoostingRegressor",
                                   loss="poisson", max_iter=8)),
    "boosting-value": ("diabetes",
                       lambda: _from("sklearn.ensemble", "GradientBoostingRegressor", **_BOOST)),
    "ridge": ("diabetes", lambda: _from("sklearn.linear_model", "Ridge")),
    "xgboost-value": ("diabetes", lambda: _from("xgboost", "XGBRegressor", **_BOOST)),
    "lightgbm-value": ("diabetes",
                       lambda: _from("lightgbm", "LGBMRegressor", verbose=-1, **_BOOST)),
}  # fmt: skip


@cache
def trained(name: str) -> Any:
    """The estimator ``name``, fitted. Shared: tests must not change it."""
    import warnings

    dataset, make = ESTIMATORS[name]
    rows, targets, _ = data(dataset)
    from threadpoolctl import threadpool_limits

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # fifteen rounds do not converge
        return make().fit(rows, targets)


def held_out(name: str) -> Array:
    """Rows that the estimator ``name`` was not trained on, float32 [rows, features]."""
    return data(ESTIMATORS[name][0])[2]


def options(**said: Any) -> dict[str, Any]:
    """A step's options with the usual values."""
    usual: dict[str, Any] = {"opset": 20, "inputs": [], "dims": {}, "outputs": [],
                             "signature": "", "allow_pickle": False}  # fmt: skip
    return usual | said


def save(estimator: Any, folder: Path) -> Path:
    """The estimator as a ``.skops`` file in a folder."""
    import skops.io

    path = folder / "estimator.skops"
    skops.io.dump(estimator, path)
    return path


def as_factory(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A factory that gives the estimator, which no file can hold or which is not worth one."""
    monkeypatch.setattr("edge.sources.factory.make", lambda _source, _factory: estimator)
    return "project:make"


def export(source: Path, out: Path, factory: str = "", **said: Any) -> dict[str, Any]:
    """The facts of an export into the new folder ``out``, with options as said."""
    from edge.sources.sklearn_estimator import export_sklearn

    out.mkdir()
    facts = export_sklearn.function(out, source=source, factory=factory, options=options(**said))
    assert facts is not None
    json.dumps(facts)
    return facts


def both(name: str, rows: Array, tmp_path: Path) -> tuple[list[Array], list[Array]]:
    """What the estimator and the ONNX model give for the rows, outputs in order."""
    from edge.convert import run_model
    from edge.sources.sklearn_estimator import runner

    source = save(trained(name), tmp_path)
    export(source, tmp_path / "out")
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    ours = runner(source, "", options())({"x": rows})
    return list(ours), list(run_model.run_session(session, {"x": rows}).values())


def on_thresholds(estimator: Any, rows: Array) -> Array:
    """Three copies of 300 rows: values on, just below and just above the float64 thresholds."""
    from edge.sources import sklearn_thresholds

    generator = np.random.default_rng(5)
    rows = rows[generator.integers(len(rows), size=300)].copy()
    variants = [rows, rows.copy(), rows.copy()]
    for feature, found in sklearn_thresholds.by_feature(estimator, rows.shape[1]).items():
        drawn = generator.choice(found, len(rows))
        nearest = drawn.astype(np.float32)
        for variant, to in zip(variants, (None, -np.inf, np.inf), strict=True):
            value = nearest if to is None else np.nextafter(nearest, np.float32(to))
            variant[:, feature] = value
    return np.concatenate(variants)
