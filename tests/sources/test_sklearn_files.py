"""Files of estimators: what each may do, and what is refused before it does harm."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edge import errors
from edge.convert import run_model
from edge.sources import sklearn_files, sklearn_walk
from tests.sources.sklearn_models import (
    as_factory,
    data,
    export,
    held_out,
    need_libraries,
    options,
    save,
    trained,
)


@pytest.fixture(autouse=True)
def libraries() -> None:
    need_libraries()


def test_a_pickle_is_opened_only_when_allowed(tmp_path: Path) -> None:
    import joblib

    path = tmp_path / "estimator.joblib"
    joblib.dump(trained("logistic"), path)
    with pytest.raises(errors.UsageError, match="runs whatever code") as caught:
        export(path, tmp_path / "out")
    assert "--allow-pickle" in caught.value.remedy
    facts = export(path, tmp_path / "again", allow_pickle=True)
    assert facts["estimator"] == "Pipeline(StandardScaler, LogisticRegression)"


def test_a_type_that_nobody_trusts_is_named(tmp_path: Path) -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    function = FunctionTransformer(json.dumps)
    source = save(make_pipeline(function).fit(data("iris")[0]), tmp_path)
    with pytest.raises(errors.UsageError, match="not trusted: json"):
        sklearn_files.load(source, "", options())
    loaded, _ = sklearn_files.load(source, "", options(allow_pickle=True))
    assert sklearn_walk.describe(loaded) == "Pipeline(FunctionTransformer)"


@pytest.mark.parametrize("name", ["forest", "hist"])
def test_a_tree_that_points_outside_itself_is_refused(name: str, tmp_path: Path) -> None:
    """scikit-learn would follow the index: the process dies, or reads foreign memory."""
    estimator = copy.deepcopy(trained(name))
    if name == "forest":
        estimator.estimators_[0].tree_.children_left[0] = 10**6
    else:
        estimator._predictors[0][0].nodes["left"][0] = 10**6
    with pytest.raises(errors.ModelRefused, match="points outside of itself"):
        sklearn_files.load(save(estimator, tmp_path), "", options())


@pytest.mark.parametrize("suffix", [".skops", ".ubj", ".json", ".txt", ".onnx"])
def test_what_is_no_model_is_refused_in_words(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(b"PK\x03\x04 not a model\n" * 9)
    with pytest.raises(errors.UsageError, match=r"broken\."):
        sklearn_files.load(path, "", options())


def test_a_file_that_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"0" * 5000)
    monkeypatch.setattr(sklearn_files, "MAX_BYTES", 4000)
    with pytest.raises(errors.ModelRefused, match="unpack to 5000 bytes"):
        sklearn_files.load(path, "", options())


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("xgboost", ".ubj"), ("xgboost-binary", ".json"), ("xgboost-value", ".ubj"),
     ("lightgbm", ".txt"), ("lightgbm-binary", ".txt"), ("lightgbm-value", ".txt")],
)  # fmt: skip
def test_the_boosters_own_files(name: str, suffix: str, tmp_path: Path) -> None:
    estimator, rows = trained(name), held_out(name)
    path = tmp_path / f"model{suffix}"
    booster = estimator.booster_ if suffix == ".txt" else estimator
    booster.save_model(str(path))
    export(path, tmp_path / "out")
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    given = list(run_model.run_session(session, {"x": rows}).values())
    if hasattr(estimator, "predict_proba"):
        np.testing.assert_array_equal(given[0], estimator.predict(rows))
        np.testing.assert_allclose(given[1], estimator.predict_proba(rows), atol=1e-6)
    else:
        np.testing.assert_allclose(given[0][:, 0], estimator.predict(rows), rtol=2e-6)


def test_a_library_that_is_not_installed_names_the_extra() -> None:
    with pytest.raises(errors.ToolMissing, match="no_such_library") as caught:
        sklearn_files.need("sklearn", "no_such_library")
    assert "edgewright[sklearn]" in caught.value.remedy


@pytest.mark.parametrize("name", ["forest", "hist"])
def test_a_tree_that_reads_beyond_the_rows_is_refused(name: str, tmp_path: Path) -> None:
    estimator = copy.deepcopy(trained(name))
    estimator.n_features_in_ -= 1
    if name == "hist":
        estimator._predictors[0][0].nodes["feature_idx"][0] = 3
    else:
        tree = estimator.estimators_[0].tree_
        tree.feature[0] = 63
    with pytest.raises(errors.ModelRefused, match="points outside of itself"):
        sklearn_files.load(save(estimator, tmp_path), "", options())


@pytest.mark.parametrize("name", ["xgboost-binary", "lightgbm"])
def test_a_bare_booster_of_a_factory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator, rows = trained(name), held_out(name)
    booster = estimator.booster_ if name == "lightgbm" else estimator.get_booster()
    facts = export(Path("p.py"), tmp_path / "out", as_factory(booster, monkeypatch))
    assert facts["estimator"] == type(estimator).__name__
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    given = run_model.run_session(session, {"x": rows})
    np.testing.assert_allclose(given["probabilities"], estimator.predict_proba(rows), atol=1e-6)
