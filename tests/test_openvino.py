"""OpenVINO's bundles of real models: built, in tolerance or refused with a reason, run here.

``openvino-ort-x64`` installs 0.4 GB into an environment of its own: ``pytest -m slow`` on this
file, its log is in docs/openvino.md.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import bench, bundle, parity, process, protocol, samples
from edge.store import Store
from edge.tools import emulator
from tests import models
from tests.built import Built, once
from tests.command import Outcome, edge
from tests.convert.openvino_setup import RELEASE, need_openvino
from tests.support import need
from tests.test_real_models import project_text

TARGET = "openvino-x64"
NAMES = ("magika", "silero", "ppocr-cls", "ppocr-rec", "ppocr-det")
FREE = f'[targets.{TARGET}]\ndims = "symbolic"\n'
LIBRARIES = {
    "libopenvino.so.2641", "libopenvino_c.so.2641", "libopenvino_intel_cpu_plugin.so",
    "libopenvino_ir_frontend.so.2641", "libtbb.so.12",
}  # fmt: skip


def with_det(silero: Path, rapidocr: Path) -> str:
    return (
        project_text(silero, rapidocr)
        + f"""
[models.ppocr-det]
source = "{rapidocr / "PP-OCRv6_det_small.onnx"}"
[models.ppocr-det.inputs.x]
shape = [1, 3, 320, 320]
"""
    )


@pytest.fixture(scope="session")
def built(silero: Path, rapidocr: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    need_openvino("nncf")

    def prepare(root: Path) -> None:
        (root / "edge.toml").write_text(with_det(silero, rapidocr))

    return once(tmp_path_factory, "openvino", prepare, "-t", TARGET)


@pytest.fixture(scope="module")
def free(
    silero: Path, rapidocr: Path, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Outcome]:
    """All but Silero, with free dimensions."""
    root = tmp_path_factory.mktemp("free")
    (root / "edge.toml").write_text(FREE + without_silero(with_det(silero, rapidocr)))
    return root, edge(root, built[1], "build", "-t", TARGET)


def without_silero(text: str) -> str:
    return text.replace(only_silero(text), "")


def only_silero(text: str) -> str:
    """The model's part of a project's text."""
    start = text.index("[models.silero]")
    return text[start : text.index("[models.ppocr-cls]")]


def folder(root: Path, name: str, target: str = TARGET) -> Path:
    return root / "dist" / name / "0" / target


def within(place: Path, *, stages: int = 2) -> dict[str, Any]:
    """The manifest of a bundle, each of whose stages is within its tolerance."""
    manifest = bundle.verify(place)
    limits = parity.Tolerance(**manifest["tolerance"])
    assert len(manifest["parity"]) == stages
    assert manifest["parity"][-1]["runtime"].startswith("openvino ")
    for output in manifest["parity"][-1]["outputs"]:
        plain = {key: value for key, value in output.items() if key != "sample"}
        assert parity.verdict(parity.OutputParity.from_json(plain), limits) == ()
    return manifest


def files_of(manifest: dict[str, Any], role: str) -> set[str]:
    return {entry["path"] for entry in manifest["files"] if entry["role"] == role}


def agrees(place: Path, words: Sequence[str], output: Path) -> protocol.Run:
    """The bundle's own runner computes what the golden samples say."""
    output.mkdir()
    given = [*words, "--bundle", str(place), "--output", str(output), "--check-only"]
    run = protocol.parse(process.run(given, timeout=300).stdout)
    assert (run.env.runtime, run.env.version) == ("openvino", RELEASE)
    assert run.env.provider == "openvino:CPU"
    produced = {(o.sample, o.index): (o, output / str(o.file)) for o in run.outputs}
    limits = parity.Tolerance(**bundle.read_manifest(place)["tolerance"])
    compared = bench.compare_folders(place / "samples", produced, limits)
    assert compared.failures == ()
    assert compared.outputs
    return run


@pytest.mark.models
@pytest.mark.parametrize("name", NAMES)
def test_a_real_model_is_within_tolerance(built: Built, name: str) -> None:
    root, _, done = built
    assert done.code == 0, done.err
    manifest = within(folder(root, name))
    assert manifest["parity"][-1]["stage"] == "model.xml"
    assert manifest["parity"][-1]["runtime"] == f"openvino {RELEASE}"
    assert files_of(manifest, "artifact") == {"model.xml", "model.bin"}
    assert files_of(manifest, "closure") == set()
    assert files_of(manifest, "runtime") == {f"runtime/{each}" for each in LIBRARIES}
    told = (folder(root, name) / "runner" / "options.tsv").read_text()
    assert told == "provider.INFERENCE_PRECISION_HINT\tf32\nprovider.PERFORMANCE_HINT\tLATENCY\n"


@pytest.mark.models
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["c", "python"])
def test_the_bundles_own_runners_agree(built: Built, name: str, kind: str, tmp_path: Path) -> None:
    """The C runner with the five libraries of the bundle, and nothing of this environment."""
    place = folder(built[0], name)
    runner = place / "runner"
    words = (
        [str(runner / "edge_runner")]
        if kind == "c"
        else [sys.executable, str(runner / "edge_runner.py")]
    )
    agrees(place, words, tmp_path / "out")


@pytest.mark.models
def test_a_second_build_does_no_work(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "build", "-t", TARGET, "--json")
    assert done.code == 0, done.err
    assert done.steps == []
    assert {row["state"] for row in done.json["bundles"]} == {"unchanged"}


@pytest.mark.models
@pytest.mark.parametrize("name", [name for name in NAMES if name != "silero"])
def test_free_dimensions_stay_free(free: tuple[Path, Outcome], name: str) -> None:
    root, done = free
    assert done.code == 0, done.err
    within(folder(root, name))
    assert "<dim>-1</dim>" in (folder(root, name) / "model.xml").read_text()


@pytest.mark.models
def test_silero_with_free_dimensions_is_refused_with_openvinos_reason(
    silero: Path, built: Built, tmp_path: Path
) -> None:
    """Its branches depend on the length then, and what they give has no known rank."""
    (tmp_path / "edge.toml").write_text(FREE + only_silero(project_text(silero, tmp_path)))
    done = edge(tmp_path, built[1], "build", "-t", TARGET)
    assert done.code == 2, done.err
    assert f"openvino {RELEASE} cannot read the model: " in done.err
    assert "Conv-16: The input data tensor's rank has to be known (static)" in done.err
    assert 'dims = "bound"' in done.err
    assert not folder(tmp_path, "silero").exists()


def first_bytes(count: int, skip: int) -> dict[str, Any]:
    """int32 [1, 2048] each: real files of this Python as Magika reads them, 256 where they end."""
    found = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[skip :: 160 // count]
    arrays: dict[str, Any] = {}
    for number, path in enumerate(found[:count]):
        head, tail = path.read_bytes().lstrip()[:1024], path.read_bytes().rstrip()[-1024:]
        padded = np.full((1, 2048), 256, np.int32)
        padded[0, : len(head)] = np.frombuffer(head, np.uint8)
        padded[0, 2048 - len(tail) :] = np.frombuffer(tail, np.uint8)
        arrays[f"bytes/{number}"] = padded
    return arrays


@pytest.mark.models
def test_int8_of_magika_on_real_files(built: Built, tmp_path: Path) -> None:
    for name, files in (("proven", first_bytes(5, 0)), ("calibrated", first_bytes(40, 1))):
        np.savez(tmp_path / f"{name}.npz", **files)
    (tmp_path / "edge.toml").write_text(
        f"""
[targets.{TARGET}]
precision = "int8"
[models.magika]
source = "pkg:magika/models/standard_v3_3/model.onnx"
samples = "proven.npz"
calibration = "calibrated.npz"
inputs.bytes = {{ shape = [1, 2048] }}
"""
    )
    done = edge(tmp_path, built[1], "build", "-t", TARGET)
    assert done.code == 0, done.err
    place = folder(tmp_path, "magika")
    manifest = within(place)
    assert all(output["sqnr_db"] >= 20 for output in manifest["parity"][-1]["outputs"])
    assert (place / "model.bin").stat().st_size < 1_000_000
    assert len(samples.cases(place / "samples", "input")) == 5
    agrees(place, [str(place / "runner" / "edge_runner")], tmp_path / "out")


@pytest.mark.process
def test_precisions_that_openvino_has_not_are_refused_before_any_work(
    tmp_path: Path, store: Store
) -> None:
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    (tmp_path / "edge.toml").write_text(
        f'[targets.{TARGET}]\nprecision = "int8-dynamic"\n[models.m]\nsource = "m.onnx"\n'
    )
    done = edge(tmp_path, store, "build", "-t", TARGET)
    assert done.code == 2
    assert "int8-weights, int4-weights" in done.err
    assert not [step for step in done.steps if "openvino" in step]


@pytest.mark.process
def test_another_release_than_the_installed_one_is_refused(tmp_path: Path, store: Store) -> None:
    need_openvino()
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    (tmp_path / "edge.toml").write_text(
        f'[targets.{TARGET}.runtime]\nversion = "2025.4.1"\n[models.m]\nsource = "m.onnx"\n'
    )
    done = edge(tmp_path, store, "build", "-t", TARGET)
    assert done.code == 3
    assert f"the target is for openvino 2025.4.1, and {RELEASE} is installed" in done.err


@pytest.mark.qemu
def test_arm64_is_right_also_on_a_cpu_that_computes_in_fp16(tmp_path: Path, store: Store) -> None:
    """Neoverse N1 does, and there fp16 is OpenVINO's default: 7e-4 off on SqueezeNet."""
    need_openvino()
    if not emulator.name("linux-arm64"):
        need("qemu-aarch64-static")
        need("libstdc++.so.6 for arm64")
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    done = edge(tmp_path, store, "build", "-t", "openvino-arm64", "-m", "m.onnx")
    assert done.code == 0, done.err
    place = folder(tmp_path, "m", "openvino-arm64")
    for name in ("linux-arm64", "linux-arm64+asimdhp"):
        words = emulator.words(name, tmp_path / f"root-{name}")
        run = agrees(place, [*words, str(place / "runner" / "edge_runner")], tmp_path / name)
        assert run.env.arch == "aarch64"


@pytest.mark.slow
def test_onnx_runtimes_provider_runs_every_real_model(
    silero: Path, rapidocr: Path, tmp_path: Path, store: Store
) -> None:
    (tmp_path / "edge.toml").write_text(with_det(silero, rapidocr))
    target = "openvino-ort-x64"
    done = edge(tmp_path, store, "build", "-t", target, "--json", timeout=1500)
    assert done.code == 0, done.err
    for name in NAMES:
        place = folder(tmp_path, name, target)
        manifest = bundle.verify(place)
        last = manifest["parity"][-1]
        assert (last["stage"], last["runtime"]) == ("model.onnx", "onnxruntime-openvino 1.24.1")
        options = dict(
            line.split("\t") for line in (place / "runner" / "options.tsv").read_text().splitlines()
        )
        config = json.loads(options["provider.load_config"])
        assert config["CPU"]["INFERENCE_PRECISION_HINT"] == "f32"
    words = ["bench", target, "--name", "magika", "--quick", "--profile"]
    done = edge(tmp_path, store, *words, timeout=1500)
    assert done.code in (0, 5), done.err


LSTM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, rows):
        return self.head(self.lstm(rows)[0][:, -1])

def make():
    torch.manual_seed(5)
    return Net().eval()
"""


@pytest.mark.process
def test_the_frameworks_own_model_is_tried_and_what_is_kept_is_said(
    tmp_path: Path, store: Store
) -> None:
    """PyTorch's LSTM stays whole when OpenVINO reads it from PyTorch itself."""
    need_openvino()
    (tmp_path / "net.py").write_text(LSTM)
    given = ("-m", "net:make", "--name", "net", "--set", "model.inputs.rows.shape=[1, 12, 8]")
    done = edge(tmp_path, store, "build", "-t", TARGET, *given)
    assert done.code == 0, done.err
    made = bundle.verify(folder(tmp_path, "net"))
    facts = made["runtime"]
    assert facts["ir_of"] in ("framework", "canonical")
    assert facts["why"]
    steps = {each["step"] for each in made["steps"]}
    assert {"openvino_ir", "openvino_torch", "openvino_choice"} <= steps
