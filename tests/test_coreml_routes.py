"""Core ML's bundles by the frameworks' own models: built, proven, and said so in the manifest.

``pytest -m slow`` alone; figures are in docs/coreml.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import bundle
from edge.convert.coreml_package import ONNX
from edge.sources.coreml_from_tensorflow import ROUTE
from edge.sources.coreml_from_torch import EXPORT, TRACE
from tests.built import Built, once
from tests.convert.coreml_setup import need_coremltools
from tests.sources import tensorflow_models
from tests.test_coreml import folder, nets, within

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]
NETS = ("cnn", "mobile", "encoder", "lstm", "gru")


def project(root: Path, origin: str) -> None:
    tensorflow_models.need_tensorflow()
    tensorflow_models.train_digits(root)
    text = '[models.keras]\nsource = "digits.keras"\ndims = { batch = 1 }\n' + nets(root, NETS)
    target = f'[targets.coreml]\ncoreml.origin = "{origin}"\n'
    (root / "edge.toml").write_text(text + target)


@pytest.fixture(scope="session")
def auto(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need_coremltools()
    return once(tmp_path_factory, "coreml-auto", lambda root: project(root, "auto"), "-t", "coreml")


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need_coremltools()
    words = ("-t", "coreml", "-p", "int8-weights")
    return once(tmp_path_factory, "coreml-own", lambda root: project(root, "framework"), *words)


@pytest.mark.parametrize(
    ("name", "tried", "kept"),
    [
        *((name, EXPORT, ONNX) for name in ("cnn", "mobile", "encoder")),
        *(("lstm", TRACE, ONNX), ("gru", TRACE, TRACE), ("keras", ROUTE, ONNX)),
    ],
)
def test_the_better_of_two_routes_is_halved_and_within_tolerance(
    auto: Built, name: str, tried: str, kept: str
) -> None:
    root, _, done = auto
    assert done.code == 0, done.err
    assert "warning" not in done.err
    facts = within(folder(root, name))["runtime"]
    assert facts["route"] == kept
    for route in (tried, ONNX):
        assert facts["tried"][route]["why_not"] == ""
        assert facts["tried"][route]["sqnr_db"] > 100
    assert facts["why"]
    assert facts["compute_precision"] == "fp16"


@pytest.mark.parametrize("name", [*NETS, "keras"])
def test_weights_of_the_frameworks_own_package_are_compressed(own: Built, name: str) -> None:
    root, _, done = own
    assert done.code == 0, done.err
    place = folder(root, name)
    facts = within(place)["runtime"]
    assert facts["route"] in (EXPORT, TRACE, ROUTE)
    assert facts["why"] == "the target says so"
    assert facts["weights"]
    assert str(root) not in (place / bundle.MANIFEST).read_text()
