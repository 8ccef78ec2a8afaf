"""Four real model families, for every target: built, in tolerance, reproducible, runnable.

The whole acceptance of the spine in one module. Magika is installed by the ``demo`` extra,
silero-vad and rapidocr are downloaded into the cache and never installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import bench, bundle, parity, process, protocol
from edge.store import Store
from tests.built import Built, once
from tests.command import edge
from tests.support import NO_PACKAGE, need

pytestmark = pytest.mark.models
TARGETS = ("android", "browser", "ios", "linux-arm64", "linux-x64")
NAMES = ("magika", "silero", "ppocr-cls", "ppocr-rec")
RUNNERS = {
    "linux-x64": ("runner/edge_runner",),
    "browser": ("node", "runner/node_runner.mjs"),
}


def project_text(silero: Path, rapidocr: Path) -> str:
    return f"""
[models.magika]
source = "pkg:magika/models/standard_v3_3/model.onnx"
[models.magika.inputs.bytes]
shape = [1, 2048]
range = [0, 256]

[models.silero]
source = "{silero / "silero_vad.onnx"}"
[models.silero.inputs.input]
shape = [1, 576]
[models.silero.inputs.state]
shape = [2, 1, 128]
[models.silero.inputs.sr]
constant = 16000

[models.ppocr-cls]
source = "{rapidocr / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"}"
[models.ppocr-cls.inputs.x]
shape = [1, 3, 48, 192]

[models.ppocr-rec]
source = "{rapidocr / "PP-OCRv6_rec_small.onnx"}"
[models.ppocr-rec.inputs.x]
shape = [1, 3, 48, 320]
"""


@pytest.fixture(scope="session")
def built(silero: Path, rapidocr: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The four families built for all targets."""

    def prepare(root: Path) -> None:
        (root / "edge.toml").write_text(project_text(silero, rapidocr) + NO_PACKAGE)

    return once(tmp_path_factory, "real-models", prepare, "-t", ",".join(TARGETS))


def folder(root: Path, name: str, target: str) -> Path:
    return root / "dist" / name / "0" / target


def test_all_four_build_for_all_five(built: Built) -> None:
    _, _, done = built
    assert done.code == 0, done.err
    states = {(row["model"], row["target"]): row["state"] for row in done.json["bundles"]}
    assert states == {(name, target): "built" for name in NAMES for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_every_stage_is_within_tolerance(built: Built, name: str, target: str) -> None:
    manifest = bundle.verify(folder(built[0], name, target))
    limits = parity.Tolerance(**manifest["tolerance"])
    assert len(manifest["parity"]) == 2
    for stage in manifest["parity"]:
        assert stage["runtime"] == manifest["runtime"]["version"]
        assert len(stage["outputs"]) >= 3
        for output in stage["outputs"]:
            plain = {key: value for key, value in output.items() if key != "sample"}
            measured = parity.OutputParity.from_json(plain)
            assert parity.verdict(measured, limits) == ()


@pytest.mark.parametrize("target", TARGETS)
def test_the_closure_holds_all_four(built: Built, target: str) -> None:
    texts = {
        (folder(built[0], name, target) / "required_operators_and_types.config").read_text()
        for name in NAMES
    }
    (text,) = texts
    # One operator of each family: Magika, Silero, PP-OCR.
    for operator in ("LayerNormalization", "LSTM", "GlobalAveragePool"):
        assert operator in text


@pytest.mark.parametrize("target", ["android", "ios", "browser"])
def test_no_layout_of_this_host_goes_to_other_cpus(built: Built, target: str) -> None:
    for name in NAMES:
        text = (folder(built[0], name, target) / "required_operators_and_types.config").read_text()
        assert "nchwc" not in text


def test_a_second_folder_gives_the_same_manifests(
    built: Built, tmp_path: Path, silero: Path, rapidocr: Path, store: Store
) -> None:
    """Another project folder, another store: everything is made again, byte for byte."""
    (tmp_path / "edge.toml").write_text(project_text(silero, rapidocr) + NO_PACKAGE)
    done = edge(tmp_path, store, "build", "-t", ",".join(TARGETS), timeout=900)
    assert done.code == 0, done.err
    for name in NAMES:
        for target in TARGETS:
            first, second = (
                (folder(root, name, target) / "manifest.json").read_bytes()
                for root in (built[0], tmp_path)
            )
            assert first == second, f"{name} for {target}"


@pytest.mark.parametrize("target", list(RUNNERS))
@pytest.mark.parametrize("name", NAMES)
def test_the_bundles_own_runner_agrees(
    built: Built, name: str, target: str, tmp_path: Path
) -> None:
    place = folder(built[0], name, target)
    words = list(RUNNERS[target])
    words[-1] = str(place / words[-1])
    if words[0] == "node":
        words[0] = str(need("node"))
    words += ["--bundle", str(place), "--output", str(tmp_path), "--check-only"]
    run = protocol.parse(process.run(words, timeout=300).stdout)
    produced = {(o.sample, o.index): (o, tmp_path / str(o.file)) for o in run.outputs}
    limits = parity.Tolerance(**bundle.read_manifest(place)["tolerance"])
    assert bench.compare_folders(place / "samples", produced, limits).failures == ()


def test_a_third_build_does_no_work(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "build", "-t", ",".join(TARGETS), "--json")
    assert done.steps == []
    rows: list[dict[str, Any]] = done.json["bundles"]
    assert {row["state"] for row in rows} == {"unchanged"}
