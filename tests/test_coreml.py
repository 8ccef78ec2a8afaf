"""Core ML's bundles: networks of every kind and real models, within tolerance or refused by name.

All by the MIL reference executor: nothing here runs on Apple's runtime. What takes minutes is
``pytest -m slow`` on this file; figures of every precision are in docs/coreml.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import bundle, parity, samples
from edge.convert import coreml_run
from edge.store import Store
from tests import models
from tests.built import Built, once
from tests.command import edge
from tests.convert.coreml_setup import need_coremltools, parsed
from tests.sources import tensorflow_models
from tests.test_real_models import project_text

TARGET = "coreml"
NETS = ("mobile", "gru")
SLOW = ("cnn", "encoder", "lstm", "keras", "ppocr-det", "ppocr-rec")
REAL = ("magika", "silero", "ppocr-cls")
FILES = {
    "model.mlpackage/Data/com.apple.CoreML/model.mlmodel",
    "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin",
    "model.mlpackage/Manifest.json",
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


def nets(root: Path, names: Sequence[str]) -> str:
    """These networks' code in ``root``, a module for each, and their part of a project's text."""
    from tests import coreml_nets

    parts = []
    for name in names:
        shape = coreml_nets.INPUTS[name]
        shutil.copyfile(coreml_nets.__file__, root / f"net_{name}.py")
        parts.append(f'[models.{name}]\nsource = "net_{name}:{name}"\n')
        parts.append(f"inputs.x = {{ shape = {list(shape)} }}\n")
    return "".join(parts)


@pytest.fixture(scope="session")
def built(silero: Path, rapidocr: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    need_coremltools()

    def prepare(root: Path) -> None:
        text = project_text(silero, rapidocr)
        real = text[: text.index("[models.ppocr-rec]")]
        (root / "edge.toml").write_text(real + nets(root, NETS))

    return once(tmp_path_factory, "coreml", prepare, "-t", TARGET)


@pytest.fixture(scope="session")
def more(rapidocr: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    need_coremltools()
    tensorflow_models.need_tensorflow()

    def prepare(root: Path) -> None:
        tensorflow_models.train_digits(root)
        text = '[models.keras]\nsource = "digits.keras"\ndims = { batch = 1 }\n'
        for name, shape in (("det", [320, 320]), ("rec", [48, 320])):
            source = rapidocr / f"PP-OCRv6_{name}_small.onnx"
            text += f'[models.ppocr-{name}]\nsource = "{source}"\n'
            text += f"inputs.x = {{ shape = {[1, 3, *shape]} }}\n"
        (root / "edge.toml").write_text(text + nets(root, ("cnn", "encoder", "lstm")))

    return once(tmp_path_factory, "coreml-more", prepare, "-t", TARGET)


def folder(root: Path, name: str, target: str = TARGET) -> Path:
    return root / "dist" / name / "0" / target


def within(place: Path) -> dict[str, Any]:
    """The manifest of a bundle whose package is within its tolerance by the executor."""
    manifest = bundle.verify(place)
    limits = parity.Tolerance(**manifest["tolerance"])
    assert [stage["stage"] for stage in manifest["parity"]][1:] == ["model.mlpackage"]
    last = manifest["parity"][-1]
    assert last["runtime"] == coreml_run.RUNTIME
    assert last["outputs"]
    for output in last["outputs"]:
        plain = {key: value for key, value in output.items() if key != "sample"}
        assert parity.verdict(parity.OutputParity.from_json(plain), limits) == ()
    return manifest


@pytest.mark.models
@pytest.mark.parametrize("name", [*NETS, *REAL])
def test_half_precision_is_within_tolerance(built: Built, name: str) -> None:
    root, _, done = built
    assert done.code == 0, done.err
    manifest = within(folder(root, name))
    files = {entry["path"] for entry in manifest["files"] if entry["role"] == "artifact"}
    assert files == FILES
    assert manifest["artifact"] == "model.mlpackage"
    assert manifest["precision"] == {"asked": "fp16", "made": "fp16"}
    assert manifest["tolerance"]["sqnr_db"] == 40.0
    assert manifest["runtime"]["compute_precision"] == "fp16"
    assert manifest["runtime"]["fp32_operations"] == []
    assert "Apple's runtime did not run here" in manifest["unverified"][0]


@pytest.mark.models
def test_the_saved_package_of_a_bundle_is_what_was_proven(built: Built) -> None:
    """Read from the bundle itself, and run once more, here in the test's process."""
    place = folder(built[0], "silero")
    package = coreml_run.read(place / "model.mlpackage")
    assert [port["onnx"] for port in package.inputs] == ["input", "state"]
    assert place.joinpath("runner", "options.tsv").read_text() == "provider.MLComputeUnits\tALL\n"
    told = bundle.verify(place)["runtime"]["io"]
    assert told == {"inputs": list(package.inputs), "outputs": list(package.outputs)}
    given, wanted = (samples.cases(place / "samples", role) for role in samples.ROLES)
    for case, expected in zip(given, wanted, strict=True):
        actual, odd = package.run(case)
        assert odd == []
        for name, array in expected.items():
            assert (array.dtype, array.shape) == (actual[name].dtype, actual[name].shape)
            np.testing.assert_allclose(actual[name], array, atol=2e-2 * np.abs(array).max())


@pytest.mark.models
def test_a_second_build_does_no_work(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "build", "-t", TARGET, "--json")
    assert done.code == 0, done.err
    assert done.steps == []
    assert {row["state"] for row in done.json["bundles"]} == {"unchanged"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("precision", "reason"),
    [("int8", "int8"), ("int4-weights", "int4-weights needs iOS18, and the package is for iOS16")],
)
def test_what_cannot_be_made_is_refused_by_name(
    tmp_path: Path, store: Store, precision: str, reason: str
) -> None:
    need_coremltools()
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    done = edge(tmp_path, store, "build", "-t", TARGET, "-m", "m.onnx", "-p", precision)
    assert done.code == 2, done.err
    assert reason in done.err
    assert not [step for step in done.steps if "coreml_" in step]


@pytest.mark.process
def test_an_operator_that_core_ml_lacks_is_refused_by_name(tmp_path: Path, store: Store) -> None:
    need_coremltools()
    models.save(parsed("g (float[2,2] x) => (float y) { y = Det(x) }"), tmp_path / "m.onnx")
    done = edge(tmp_path, store, "build", "-t", TARGET, "-m", "m.onnx")
    assert done.code == 2, done.err
    assert "Det" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_what_takes_minutes_is_within_tolerance(more: Built, name: str) -> None:
    """det has 36 dB in half precision alone, so that a part of it keeps single precision."""
    root, _, done = more
    assert done.code == 0, done.err
    manifest = within(folder(root, name))
    assert bool(manifest["runtime"]["fp32_operations"]) == (name == "ppocr-det")
