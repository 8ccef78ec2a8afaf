"""Trained models of every framework, for four targets, against the framework's own outputs.

Each is trained here, on data that scikit-learn brings, and saved the way its users save it.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from edge import bundle, parity
from tests.built import Built, once
from tests.command import edge
from tests.sources import sklearn_models, tensorflow_models, torch_models
from tests.support import NO_PACKAGE

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
TARGETS = ("linux-x64", "android", "ios", "browser")
TITLES = {
    "cnn": "PyTorch",
    "lstm": "PyTorch",
    "transformer": "PyTorch",
    "keras": "TensorFlow",
    "forest": "scikit-learn",
    "boosting": "scikit-learn",
    "logistic": "scikit-learn",
}
# The user's own code: weights are read beside it, and are part of every key.
FACTORY = """
from pathlib import Path

import torch
from torch import nn


{classes}

def make():
    model = Transformer()
    weights = torch.load(Path(__file__).with_name("transformer.pth"), weights_only=True)
    model.load_state_dict(weights)
    return model.eval()
"""
PROJECT = """
[models.cnn]
source = "m.pt2"
dims = { batch = 1 }
inputs.image = { shape = ["batch", 1, 8, 8], range = [0, 1] }
outputs = ["digit"]

[models.lstm]
source = "m.ts"
dims = { batch = 1 }
inputs.rows = { shape = ["batch", 8, 8], range = [0, 1] }

[models.transformer]
source = "nets:make"
dims = { batch = 1 }
inputs.rows = { shape = ["batch", 8, 8], range = [0, 1] }

[models.keras]
source = "digits.keras"
dims = { batch = 1 }

[models.forest]
source = "forest.skops"
dims = { batch = 1 }
inputs.x = { shape = ["batch", 64], range = [0, 16] }

[models.boosting]
source = "boosting.skops"
dims = { batch = 1 }

[models.logistic]
source = "logistic.skops"
dims = { batch = 1 }
"""


def trained(folder: Path) -> None:
    """All seven models as files in ``folder``."""
    import torch

    torch_models.saved("cnn", "program", folder)
    torch_models.saved("lstm", "script", folder)
    torch.save(torch_models.trained("transformer").state_dict(), folder / "transformer.pth")
    classes = inspect.getsource(torch_models.Transformer)
    (folder / "nets.py").write_text(FACTORY.format(classes=classes))
    tensorflow_models.train_digits(folder)
    for name in ("forest", "boosting", "logistic"):
        made = sklearn_models.save(sklearn_models.trained(name), folder)
        made.rename(folder / f"{name}.skops")
    (folder / "edge.toml").write_text(PROJECT + NO_PACKAGE)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The seven built for the four targets."""
    sklearn_models.need_libraries()
    tensorflow_models.need_tensorflow()
    return once(tmp_path_factory, "frameworks", trained, "-t", ",".join(TARGETS))


def test_all_are_built(built: Built) -> None:
    _, _, done = built
    assert done.code == 0, done.err
    states = {(row["model"], row["target"]): row["state"] for row in done.json["bundles"]}
    assert states == {(name, target): "built" for name in TITLES for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(TITLES))
def test_every_stage_is_within_tolerance_of_the_framework(
    built: Built, name: str, target: str
) -> None:
    manifest = bundle.verify(built[0] / "dist" / name / "0" / target)
    assert manifest["model"]["exporter"] == TITLES[name]
    limits = parity.Tolerance(**manifest["tolerance"])
    first, *_ = manifest["parity"]
    assert TITLES[name] in first["stage"]
    for stage in manifest["parity"]:
        assert len(stage["outputs"]) >= 3
        for output in stage["outputs"]:
            plain = {key: value for key, value in output.items() if key != "sample"}
            measured = parity.OutputParity.from_json(plain)
            assert parity.verdict(measured, limits) == ()


def test_golden_outputs_are_the_frameworks_own(built: Built) -> None:
    """Held against the estimator itself, here in the test's process."""
    import numpy as np

    from edge import samples

    folder = built[0] / "dist" / "forest" / "0" / "android" / "samples"
    estimator = sklearn_models.trained("forest")
    for case, outputs in zip(
        samples.cases(folder, "input"), samples.cases(folder, "output"), strict=True
    ):
        expected = estimator.predict_proba(case["x"])
        np.testing.assert_array_equal(outputs["probabilities"], expected.astype(np.float32))


def test_a_second_build_does_nothing(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "build", "-t", ",".join(TARGETS), "--json", timeout=300)
    assert (done.code, done.steps) == (0, []), done.err
    assert {row["state"] for row in done.json["bundles"]} == {"unchanged"}


def test_other_weights_are_another_model(built: Built) -> None:
    """The factory's code is the same: what it reads is not."""
    root, store, _ = built
    path = root / "transformer.pth"
    before = path.read_bytes()
    import torch

    weights = torch.load(path, weights_only=True)
    weights["head.bias"] += 1
    try:
        torch.save(weights, path)
        done = edge(root, store, "explain", "android", "--json", timeout=300)
    finally:
        path.write_bytes(before)
    (found,) = (row for row in done.json if row["model"] == "transformer")
    assert "export_torch" in {each["step"] for each in found["steps"]}
