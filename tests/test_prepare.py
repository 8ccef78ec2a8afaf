"""From a project's model to its canonical form: opsets that targets read, sources that are code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import config, errors, samples
from edge.job import Steps
from edge.prepare import Prepared, prepare
from edge.registry import Registry
from edge.sources.origin import Trust
from edge.store import Store
from tests import models

pytestmark = pytest.mark.process
FACTORY = """
import numpy as np
import onnx
from onnx import helper, numpy_helper

def make():
    weights = np.load("weights.npy")
    ports = [helper.make_tensor_value_info(name, 1, ["batch", 4]) for name in "xy"]
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:],
                              [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

def score(run):
    return run({"x": np.ones((3, 4), np.float32)})["y"].sum()
"""


def steps(store: Store) -> Steps:
    return Steps(store, lambda _release: None)


def made(folder: Path, store: Store, **said: Any) -> Prepared:
    plain = {"source": "m.onnx", "dims": {"batch": 2}}
    spec = config.check(config.ModelSpec, {**plain, **said}, "test")
    return prepare(steps(store), spec, folder, Trust())


def target(version: str) -> config.Target:
    found = Registry(Path("/nonexistent")).target("linux-x64", config.ProjectFile(), "tests")
    runtime = found.runtime.model_copy(update={"version": version})
    return found.model_copy(update={"runtime": runtime})


def opset(path: Path) -> int:
    return next(int(each.version) for each in onnx.load(path).opset_import if not each.domain)


def test_the_opset_that_the_project_wants(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(opset=17), tmp_path / "m.onnx")
    found = made(tmp_path, store, opset=21)
    assert found.imported.facts["opset"] == 21
    assert opset(found.canonical(steps(store), target("1.32.0")).path) == 21


def test_a_model_that_a_release_cannot_read_is_brought_down(tmp_path: Path, store: Store) -> None:
    """onnxruntime 1.19 reads opset 21 and IR version 10."""
    model = models.mlp(opset=23)
    model.ir_version = 11
    models.save(model, tmp_path / "m.onnx")
    found = made(tmp_path, store)
    canonical = found.canonical(steps(store), target("1.19.0")).path
    assert opset(canonical) == 21
    assert onnx.load(canonical).ir_version == 10
    assert opset(found.canonical(steps(store), target("1.32.0")).path) == 23


def test_an_opset_that_cannot_be_reached_is_said(tmp_path: Path, store: Store) -> None:
    """Gelu is of opset 20; no adapter leads below it."""
    node = onnx.helper.make_node("Gelu", ["x"], ["y"])
    models.save(models._one_node(node, ["x"], opset=20), tmp_path / "m.onnx")
    with pytest.raises(errors.ModelRefused, match="Gelu"):
        made(tmp_path, store, dims={}, opset=17)


def test_a_factory_may_return_an_onnx_model(tmp_path: Path, store: Store) -> None:
    (tmp_path / "net.py").write_text(FACTORY)
    np.save(tmp_path / "weights.npy", np.full(4, 3, np.float32))
    found = made(tmp_path, store, source="net:make", accuracy="net:score")
    assert found.exporter == "ONNX"
    folder = found.samples.tree(samples.INDEX).path.parent
    case, outputs = (samples.cases(folder, role)[0] for role in ("input", "output"))
    np.testing.assert_array_equal(outputs["y"], case["x"] * 3)
    assert found.metric is not None
    assert found.metric.source == 36.0

    np.save(tmp_path / "weights.npy", np.full(4, 5, np.float32))
    again = made(tmp_path, store, source="net:make", accuracy="net:score")
    assert again.metric is not None
    assert again.metric.source == 60.0


def test_a_metric_is_read_with_all_that_it_reads(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    (tmp_path / "metric.py").write_text(
        "import numpy as np\n\ndef score(run):\n    return np.load('truth.npy').sum()\n"
    )
    np.save(tmp_path / "truth.npy", np.ones(3))
    first = made(tmp_path, store, accuracy="metric:score").metric
    np.save(tmp_path / "truth.npy", np.ones(4))
    second = made(tmp_path, store, accuracy="metric:score").metric
    assert first
    assert second
    assert (first.source, second.source) == (3.0, 4.0)


@pytest.mark.parametrize(("name", "says"), [("m.tflite", "TF Lite"), ("m.pkl", "--allow-pickle")])
def test_files_that_are_not_opened(tmp_path: Path, store: Store, name: str, says: str) -> None:
    (tmp_path / name).write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(20))
    with pytest.raises(errors.EdgeError) as caught:
        made(tmp_path, store, source=name)
    assert says in caught.value.message + caught.value.remedy


def test_an_empty_calibration_set_is_said(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    with pytest.raises(errors.UsageError, match=r"holds 0 \.npz files"):
        made(tmp_path, store, calibration="data")
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 2, 4), np.float32))
    with pytest.raises(errors.UsageError, match="no sample"):
        made(tmp_path, store, calibration="none.npz")


def test_nan_in_calibration_data_is_said(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    rows = np.zeros((4, 2, 4), np.float32)
    rows[2, 0, 1] = np.nan
    np.savez(tmp_path / "data.npz", x=rows)
    with pytest.raises(errors.UsageError, match=r"'x'.*sample 2|sample 2.*'x'"):
        made(tmp_path, store, calibration="data.npz")


OLDER = """
def make():
    import sklearn
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    assert sklearn.__version__ == "1.6.1", sklearn.__version__
    return LogisticRegression(max_iter=200).fit(*load_iris(return_X_y=True))
"""


def test_a_source_runs_in_an_environment_of_its_own(tmp_path: Path, store: Store) -> None:
    """An older scikit-learn than the one here: loaded, exported and run there alone."""
    import sklearn

    assert sklearn.__version__ != "1.6.1"
    (tmp_path / "net.py").write_text(OLDER)
    wanted = ["scikit-learn==1.6.1", "skl2onnx==1.19.1"]
    found = made(tmp_path, store, source="net:make", environment=wanted)
    assert found.exporter == "scikit-learn"
    assert found.samples.ingredients["tools"]["scikit-learn"] == "1.6.1"
    folder = found.samples.tree(samples.INDEX).path.parent
    outputs = samples.cases(folder, "output")[0]
    assert outputs["probabilities"].shape == (2, 3)
    np.testing.assert_allclose(outputs["probabilities"].sum(axis=1), 1, rtol=1e-6)
