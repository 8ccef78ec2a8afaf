"""scikit-learn sources: exported, equal to the estimator row by row, or refused with a reason."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import errors, process, samples
from edge.convert import run_model
from edge.sources import (
    sklearn_agreement,
    sklearn_ports,
    sklearn_rows,
    sklearn_thresholds,
)
from edge.sources.sklearn_estimator import export_sklearn, runner, sklearn_golden
from tests.sources.sklearn_models import (
    ESTIMATORS,
    as_factory,
    both,
    data,
    export,
    held_out,
    need_libraries,
    on_thresholds,
    options,
    save,
    trained,
)

Array = np.ndarray[Any, Any]
TREES = ("forest", "forest-binary", "extra-trees", "boosting", "hist", "hist-binary", "xgboost",
         "xgboost-binary", "lightgbm", "lightgbm-binary", "tree-value", "forest-value",
         "hist-value", "boosting-value", "xgboost-value", "lightgbm-value")  # fmt: skip


@pytest.fixture(autouse=True)
def libraries() -> None:
    need_libraries()


# ------------------------------------------------------------------------------- what is equal
@pytest.mark.parametrize("name", ESTIMATORS)
def test_held_out_rows_come_out_as_from_the_estimator(name: str, tmp_path: Path) -> None:
    ours, theirs = both(name, held_out(name), tmp_path)
    assert len(ours) == len(theirs)
    # Distances are differences of squares, in float32.
    atol = 5e-5 if name == "kmeans" else 5e-6
    for estimator, model in zip(ours, theirs, strict=True):
        assert (estimator.dtype, estimator.shape) == (model.dtype, model.shape)
        np.testing.assert_allclose(model, estimator, rtol=2e-6, atol=atol)


@pytest.mark.parametrize("name", TREES)
def test_rows_on_and_beside_thresholds_take_the_same_branch(name: str, tmp_path: Path) -> None:
    estimator = trained(name)
    rows = on_thresholds(estimator, held_out(name))
    ours, theirs = both(name, rows, tmp_path)
    for own, model in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(model, own, rtol=2e-6, atol=5e-6)


def test_a_tied_vote_of_two_classes_has_scikit_learns_label(tmp_path: Path) -> None:
    """Half the trees say 1: 10 times 0.05f is above 0.5f, and skl2onnx's label is 1, not 0."""
    rows = on_thresholds(trained("forest-binary"), held_out("forest-binary"))
    (label, values), (onnx_label, _) = both("forest-binary", rows, tmp_path)
    tied = values[:, 0] == values[:, 1]
    assert tied.sum() > 3
    assert (label[tied] == 0).all()
    np.testing.assert_array_equal(onnx_label, label)


@pytest.mark.parametrize("name", ["forest", "hist", "tree-value", "xgboost", "lightgbm"])
def test_missing_values_go_where_the_trees_send_them(name: str, tmp_path: Path) -> None:
    rows = held_out(name).copy()
    rows[np.random.default_rng(0).random(rows.shape) < 0.3] = np.nan
    ours, theirs = both(name, rows, tmp_path)
    for own, model in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(model, own, rtol=2e-6, atol=5e-6)


# -------------------------------------------------------------------------------- what is said
def test_facts_say_how_the_model_was_made(tmp_path: Path) -> None:
    facts = export(save(trained("forest-scaled"), tmp_path), tmp_path / "out")
    assert facts["estimator"] == "Pipeline(StandardScaler, RandomForestClassifier)"
    assert "skl2onnx" in facts["exporter"]
    assert facts["classes"] == list(range(10))
    assert facts["agreement"]["rows"] == facts["agreement"]["at_thresholds"]["rows"] == 1000
    assert facts["agreement"]["rows_that_differ"] == 0
    assert facts["agreement"]["at_thresholds"]["rows_that_differ"] == 0
    assert facts["thresholds"]["checked"] > 1000
    assert facts["thresholds"]["moved"] > 0
    assert (facts["notes"], facts["warnings"]) == ([], [])
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 64]}]
    assert facts["outputs"] == [
        {"name": "label", "dtype": "int64", "shape": ["batch"]},
        {"name": "probabilities", "dtype": "float32", "shape": ["batch", 10]},
    ]


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("name", ["forest-binary", "forest-minmax", "hist", "xgboost"])
def test_opsets_are_written_once_and_kept_low(name: str, opset: int, tmp_path: Path) -> None:
    export(save(trained(name), tmp_path), tmp_path / "out", opset=opset)
    model = onnx.load(tmp_path / "out" / "model.onnx")
    domains = [entry.domain for entry in model.opset_import]
    assert len(domains) == len(set(domains))
    assert max(entry.version for entry in model.opset_import) <= opset
    assert "ZipMap" not in {node.op_type for node in model.graph.node}


def test_names_shape_and_type_are_those_of_the_project(tmp_path: Path) -> None:
    said = [{"name": "features", "dtype": "float64", "shape": [1, 64], "range": [0.0, 16.0]}]
    source = save(trained("forest"), tmp_path)
    facts = export(source, tmp_path / "out", inputs=said, outputs=["digit", "chances"])
    assert facts["inputs"] == [{"name": "features", "dtype": "float64", "shape": [1, 64]}]
    assert [each["name"] for each in facts["outputs"]] == ["digit", "chances"]
    assert facts["outputs"][1]["shape"] == [1, 10]
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    row = held_out("forest")[:1].astype(np.float64)
    given = run_model.run_session(session, {"features": row})
    ours = runner(source, "", options(inputs=said, outputs=["digit", "chances"]))({"features": row})
    np.testing.assert_array_equal(given["digit"], ours[0])
    np.testing.assert_allclose(given["chances"], ours[1], atol=1e-6)


def test_rows_of_the_check_lie_in_the_declared_range() -> None:
    said = [{"name": "x", "range": [2.0, 3.0]}]
    estimator = trained("forest-scaled")
    port = sklearn_ports.read_input(estimator, options(inputs=said))
    for rows in sklearn_rows.make_rows(estimator, port):
        assert rows.min() >= 2.0
        assert rows.max() <= 3.0


@pytest.mark.parametrize(
    ("inputs", "outputs", "told"),
    [
        ([{"name": "a"}, {"name": "b"}], [], "2 inputs"),
        ([{"name": "x", "shape": [1, 63]}], [], r"takes \[batch, 64\]"),
        ([{"name": "x", "dtype": "string"}], [], "cannot be string"),
        ([], ["label"], "has the outputs label, probabilities"),
        ([], ["x", "y"], "both called x"),
    ],
)
def test_a_project_that_contradicts_the_estimator_is_refused(
    inputs: list[Any], outputs: list[str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(errors.UsageError, match=told):
        export(save(trained("forest"), tmp_path), tmp_path / "out", inputs=inputs, outputs=outputs)


def test_string_labels_leave_the_probabilities_and_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, targets, held = data("breast_cancer")
    estimator = ESTIMATORS["forest-binary"][1]().fit(rows, np.array(["ill", "well"])[targets])
    factory = as_factory(estimator, monkeypatch)
    facts = export(Path("p.py"), tmp_path / "out", factory)
    assert [each["name"] for each in facts["outputs"]] == ["probabilities"]
    assert facts["classes"] == ["ill", "well"]
    assert "strings" in facts["notes"][0]
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    given = run_model.run_session(session, {"x": held})["probabilities"]
    np.testing.assert_allclose(given, estimator.predict_proba(held), atol=1e-6)


# --------------------------------------------------------------------------- what is refused
def test_a_conversion_that_computes_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxmltools 1.16 divides LightGBM's random forests by a hundred, whatever their size."""
    from lightgbm import LGBMClassifier

    rows, targets, _ = data("breast_cancer")
    forest = LGBMClassifier(n_estimators=5, boosting_type="rf", bagging_freq=1,
                            bagging_fraction=0.5, verbose=-1).fit(rows, targets)  # fmt: skip
    with pytest.raises(errors.ModelRefused, match="LGBMClassifier computes something else"):
        export(Path("p.py"), tmp_path / "out", as_factory(forest, monkeypatch))


def test_isotonic_calibration_is_refused_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sklearn-onnx #1151."""
    from sklearn.calibration import CalibratedClassifierCV

    rows, targets, _ = data("iris")
    forest = ESTIMATORS["forest"][1]()
    estimator = CalibratedClassifierCV(forest, method="isotonic", cv=2).fit(rows, targets)
    with pytest.raises(errors.ModelRefused, match="CalibratedClassifierCV computes something"):
        export(Path("p.py"), tmp_path / "out", as_factory(estimator, monkeypatch))


def test_missing_values_that_come_out_otherwise_are_refused_unless_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.ensemble import IsolationForest

    rows, _, _ = data("iris")
    forest = IsolationForest(n_estimators=5, random_state=0).fit(rows)
    factory = as_factory(forest, monkeypatch)
    with pytest.raises(errors.ModelRefused, match="missing values") as caught:
        export(Path("p.py"), tmp_path / "out", factory)
    assert "declare the range" in caught.value.remedy
    said = [{"name": "x", "range": [0.0, 10.0]}]
    facts = export(Path("p.py"), tmp_path / "again", factory, inputs=said)
    assert [each["name"] for each in facts["outputs"]] == ["label", "scores"]


def test_an_unsupported_estimator_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.isotonic import IsotonicRegression
    from sklearn.semi_supervised import LabelSpreading

    rows, targets, _ = data("iris")
    estimator = LabelSpreading().fit(rows, targets)
    with pytest.raises(errors.ModelRefused, match="LabelSpreading cannot be converted"):
        export(Path("p.py"), tmp_path / "out", as_factory(estimator, monkeypatch))
    with pytest.raises(errors.ModelRefused, match="not fitted"):
        export(Path("p.py"), tmp_path / "2", as_factory(IsotonicRegression(), monkeypatch))
    with pytest.raises(errors.ModelRefused, match="dict, which is no scikit-learn estimator"):
        export(Path("p.py"), tmp_path / "3", as_factory({}, monkeypatch))


def test_categorical_splits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    generator = np.random.default_rng(0)
    rows = generator.integers(0, 6, (300, 2)).astype(np.float32)
    target = (rows[:, 0] % 2) * 5 + rows[:, 1]
    estimator = HistGradientBoostingRegressor(categorical_features=[0], max_iter=5)
    estimator.fit(rows, target)
    with pytest.raises(errors.ModelRefused, match="categorical splits"):
        export(Path("p.py"), tmp_path / "out", as_factory(estimator, monkeypatch))


def test_a_threshold_that_the_converter_moved_is_refused(tmp_path: Path) -> None:
    estimator = trained("hist")
    export(save(estimator, tmp_path), tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model.onnx")
    assert sklearn_thresholds.check(estimator, model)["checked"] > 0
    (node,) = [each for each in model.graph.node if each.op_type.startswith("TreeEnsemble")]
    (values,) = [each for each in node.attribute if each.name == "nodes_values"]
    place = next(at for at, value in enumerate(values.floats) if value)
    values.floats[place] = float(np.nextafter(np.float32(values.floats[place]), np.float32(99)))
    with pytest.raises(errors.ModelRefused, match="thresholds are not those"):
        sklearn_thresholds.check(estimator, model)


def test_labels_differ_only_where_no_tie_explains_it() -> None:
    wanted = (sklearn_ports.Output("label", "label", "predict", 0),
              sklearn_ports.Output("p", "value", "predict_proba", 1))  # fmt: skip
    values = np.array([[0.5, 0.5], [0.9, 0.1], [0.3, 0.7]], np.float32)
    ours = [np.array([0, 0, 1]), values]
    theirs = [np.array([1, 1, 1]), values + np.array([[0], [0], [0.01]], np.float32)]
    differs, ties, largest = sklearn_agreement.compare(wanted, ours, theirs)
    assert differs.tolist() == [False, True, True]
    assert ties.tolist() == [True, False, False]
    assert largest == pytest.approx(0.01, rel=1e-3)


# ----------------------------------------------------------------------- golden and the bytes
def test_golden_outputs_are_the_estimators_own(tmp_path: Path) -> None:
    source = save(trained("linear-svc"), tmp_path)
    facts = export(source, tmp_path / "out")
    rows = held_out("linear-svc")
    samples.write(tmp_path / "cases", [({"x": rows[at : at + 1]}, {}) for at in range(3)])
    bound = [{"name": "x", "dtype": "float32", "shape": [1, 30], "range": None, "constant": None}]
    names = [each["name"] for each in facts["outputs"]]
    (tmp_path / "golden").mkdir()
    made = sklearn_golden.function(
        tmp_path / "golden", source=source, factory="", options=options(),
        cases=tmp_path / "cases" / samples.INDEX, inputs=bound, names=names,
    )  # fmt: skip
    assert made == {"samples": 3, "not_finite": []}
    session = run_model.open_session(tmp_path / "out" / "model.onnx", level="all")
    for at, golden in enumerate(samples.cases(tmp_path / "golden", "output")):
        own = trained("linear-svc").decision_function(rows[at : at + 1])
        np.testing.assert_array_equal(golden["scores"][:, 0], own.astype(np.float32))
        for name, made_by in run_model.run_session(session, {"x": rows[at : at + 1]}).items():
            assert (made_by.dtype, made_by.shape) == (golden[name].dtype, golden[name].shape)


def test_two_exports_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("forest-minmax", "xgboost", "lightgbm"):
        source = save(trained(name), tmp_path)
        export(source, tmp_path / f"{name}-1")
        export(source, tmp_path / f"{name}-2")
        first, second = (tmp_path / f"{name}-{at}" / "model.onnx" for at in (1, 2))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.process
def test_another_process_makes_the_same_bytes(tmp_path: Path) -> None:
    source = save(trained("forest-minmax"), tmp_path)
    facts = export(source, tmp_path / "here")
    (tmp_path / "there").mkdir()
    arguments = {"out": tmp_path / "there", "source": source, "factory": "", "options": options()}
    address = export_sklearn.address
    assert process.run_python(address, arguments, timeout=300) == facts
    digests = {
        hashlib.sha256((tmp_path / each / "model.onnx").read_bytes()).hexdigest()
        for each in ("here", "there")
    }
    assert len(digests) == 1
