"""Targets for NVIDIA GPUs by the real command line, on a host that has none.

Real models are built for all four; engines of TensorRT-RTX are built, and built again with the
same bytes. What needs the GPU is said to be missing, or unverified, and never done.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge import bundle, process
from edge.convert.rtx_engine import rtx_engine
from edge.store import Store
from tests import models
from tests.built import Built, once
from tests.command import Outcome, edge
from tests.conftest import share_downloads
from tests.rtx import need_rtx
from tests.test_real_models import project_text
from tests.tools import fake_trtexec

pytestmark = pytest.mark.models
TARGETS = ("cuda", "tensorrt", "tensorrt-plan", "tensorrt-rtx")
NAMES = ("magika", "silero", "ppocr-cls", "ppocr-rec", "ppocr-det")
DET = """
[models.ppocr-det]
source = "{path}"
[models.ppocr-det.inputs.x]
shape = [1, 3, 320, 320]
"""


@pytest.fixture(scope="session")
def built(silero: Path, rapidocr: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Five real models for all four targets."""
    need_rtx()

    def prepare(root: Path) -> None:
        det = DET.format(path=rapidocr / "PP-OCRv6_det_small.onnx")
        (root / "edge.toml").write_text(project_text(silero, rapidocr) + det)

    return once(tmp_path_factory, "gpu-models", prepare, "-t", ",".join(TARGETS), "--plan")


def manifest_of(built: Built, name: str, target: str) -> dict[str, Any]:
    return bundle.verify(built[0] / "dist" / name / "0" / target)


# ------------------------------------------------------------------------------ real models
def test_every_model_is_built_for_every_target(built: Built) -> None:
    _, _, done = built
    assert done.code == 0, done.err
    states = {(row["model"], row["target"]): row["state"] for row in done.json["bundles"]}
    assert states == {
        (name, target): "planned" if target == "tensorrt-plan" else "built"
        for name in NAMES
        for target in TARGETS
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_what_only_a_gpu_can_prove_is_unverified(built: Built, name: str, target: str) -> None:
    manifest = manifest_of(built, name, target)
    assert manifest["unverified"]
    requires = manifest["runtime"]["requires"]
    assert (requires["gpu"], requires["driver"]) == ("nvidia", "580")
    assert "compute_capability" in requires
    assert manifest["runtime"]["python"]
    stages = {stage["stage"]: stage["runtime"] for stage in manifest["parity"]}
    assert stages["canonical"]
    # The engine cannot be run here, and no runtime is claimed to have run it.
    assert stages.get("engine.rtx", "ran") == ("ran" if target != "tensorrt-rtx" else None)


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("name", NAMES)
def test_tensorrts_parser_takes_every_node(built: Built, name: str, target: str) -> None:
    partition = manifest_of(built, name, target)["runtime"]["partition"]
    assert partition["parser"].startswith("tensorrt-rtx ")
    assert partition["unsupported"] == partition["errors"] == []
    assert partition["supported_nodes"] == partition["nodes"] > 0


def test_engines_are_kept_apart_by_content(built: Built) -> None:
    keys = {manifest_of(built, name, "tensorrt")["runtime"]["engine_key"] for name in NAMES}
    assert len(keys) == len(NAMES)
    for name in NAMES:
        options = built[0] / "dist" / name / "0" / "tensorrt" / "runner" / "options.tsv"
        key = manifest_of(built, name, "tensorrt")["runtime"]["engine_key"]
        assert f"runner.engine_key\t{key}\n" in options.read_text()


AGAIN = [*((name, 20) for name in NAMES), *(("silero", length) for length in range(40, 190, 30))]


@pytest.mark.parametrize(("name", "length"), AGAIN)
def test_an_engine_that_is_built_again_has_the_same_bytes(
    built: Built, name: str, length: int, tmp_path: Path
) -> None:
    """In a process of its own, whatever lies in its memory: Silero once had two forms by that."""
    folder = built[0] / "dist" / name / "0"
    profiles = manifest_of(built, name, "tensorrt-rtx")["runtime"]["profiles"]
    (tmp_path / "profiles.json").write_text(json.dumps(profiles))
    out = tmp_path / ("o" * length)
    out.mkdir()
    arguments = {
        "out": out,
        "model": folder / "tensorrt" / "model.onnx",
        "profiles": tmp_path / "profiles.json",
        "compute_capabilities": [],
    }
    process.run_python(rtx_engine.address, arguments, timeout=600)
    again = (out / "engine.rtx").read_bytes()
    assert again == (folder / "tensorrt-rtx" / "engine.rtx").read_bytes()
    assert again.startswith(b"vtrt")


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_has_the_exact_command(built: Built, name: str) -> None:
    manifest = manifest_of(built, name, "tensorrt-plan")
    (line,) = [line for line in manifest["runtime"]["commands"] if line.startswith("trtexec ")]
    for word in ("--onnx=../model.onnx", "--saveEngine=engine.plan", "--stronglyTyped"):
        assert word in line.split()
    assert manifest["state"] == "planned"


def test_a_second_build_does_no_work(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "build", "-t", ",".join(TARGETS), "--plan", "--json")
    assert done.steps == []


# -------------------------------------------------------------------------- small projects
@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for all small projects: their model is the same."""
    root = tmp_path_factory.mktemp("shared-store")
    share_downloads(root)
    return Store(root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    models.save(models.mlp(), folder / "mlp.onnx")
    write(folder, "")
    return folder


def write(folder: Path, more: str) -> None:
    text = '[model]\nname = "mlp"\nsource = "mlp.onnx"\ndims = {batch = 2}\n'
    (folder / "edge.toml").write_text(text + more)


def made(project: Path, target: str) -> dict[str, Any]:
    return bundle.verify(project / "dist" / "mlp" / "0" / target)


def no_gpu(folder: Path) -> dict[str, str]:
    """The environment of a host whose driver lists no GPU, also where the real one does."""
    path = fake_trtexec.programs(folder, gpu="")
    (path / "trtexec").unlink()
    return {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}


def fails(done: Outcome, code: int, *words: str) -> None:
    assert done.code == code, done.err
    for word in words:
        assert word in done.err


def test_without_a_gpu_bench_says_what_is_missing(
    project: Path, shared: Store, tmp_path: Path
) -> None:
    """Exit 3, before gigabytes are installed, and never a measurement of the CPU."""
    assert edge(project, shared, "build", "-t", "cuda,tensorrt").code == 0
    for target in ("cuda", "tensorrt"):
        words = ("bench", target, "--device", "local", "--quick", "--json")
        results = ("--results", str(tmp_path / "results.db"))
        done = edge(project, shared, *words, *results, env=no_gpu(tmp_path / target))
        fails(done, 3, "no NVIDIA GPU", "580")
        assert "p50" not in done.out


SYMBOLIC = """
[targets.tensorrt]
dims = "symbolic"
[targets.tensorrt.tensorrt.profiles]
batch = [1, 4, 16]
"""


def test_open_dimensions_become_profiles(project: Path, shared: Store) -> None:
    write(project, SYMBOLIC)
    done = edge(project, shared, "build", "-t", "tensorrt")
    assert done.code == 0, done.err
    manifest = made(project, "tensorrt")
    options = (project / "dist/mlp/0/tensorrt/runner/options.tsv").read_text().splitlines()
    assert "provider.trt_profile_min_shapes\tx:1x4" in options
    assert "provider.trt_profile_opt_shapes\tx:4x4" in options
    assert "provider.trt_profile_max_shapes\tx:16x4" in options
    (profile,) = manifest["runtime"]["profiles"]
    assert profile["dims"] == ["batch", 4]
    wider = SYMBOLIC.replace("16", "32")
    write(project, wider)
    assert edge(project, shared, "build", "-t", "tensorrt").code == 0
    other = made(project, "tensorrt")
    assert other["artifact"] == manifest["artifact"]
    assert other["runtime"]["engine_key"] != manifest["runtime"]["engine_key"]


METRIC = """
def accuracy(run):
    import numpy as np
    return float(next(iter(run({"x": np.ones((2, 4), np.float32)}).values())).mean())
"""


def test_a_plan_without_a_gpu_host_is_not_made(project: Path, shared: Store) -> None:
    done = edge(project, shared, "build", "-t", "tensorrt-plan")
    assert done.code == 3
    assert "a GPU host with TensorRT is missing" in done.err
    assert "--on" in done.err
    assert "--plan" in done.err
    assert not (project / "dist").exists()


def test_a_metric_that_only_the_gpu_can_say_is_no_failure(project: Path, shared: Store) -> None:
    (project / "metric.py").write_text(METRIC)
    text = (project / "edge.toml").read_text()
    (project / "edge.toml").write_text(text + 'accuracy = "metric:accuracy"\n')
    done = edge(project, shared, "build", "-t", "tensorrt-plan", "--plan")
    assert done.code == 0, done.err
    assert "metric:accuracy cannot be asked here" in done.err
    said = made(project, "tensorrt-plan")["accuracy"]
    assert said["artifact"] is None
    assert said["source"] is not None


def test_wrong_wishes_are_told(project: Path, shared: Store) -> None:
    write(project, SYMBOLIC.replace("batch", "btach"))
    done = edge(project, shared, "build", "-t", "tensorrt")
    fails(done, 2, "no open dimension", "did you mean 'batch'?")
    write(project, SYMBOLIC.replace('dims = "symbolic"', ""))
    done = edge(project, shared, "build", "-t", "tensorrt")
    fails(done, 2, "that are bound", 'dims = "symbolic"')


def test_a_dimension_without_a_name_is_refused(project: Path, shared: Store) -> None:
    model = onnx.load(project / "mlp.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    onnx.save(model, project / "mlp.onnx")
    text = '[model]\nname = "mlp"\nsource = "mlp.onnx"\n[model.inputs.x]\nshape = [2, 4]\n'
    (project / "edge.toml").write_text(text + '[targets.tensorrt]\ndims = "symbolic"\n')
    done = edge(project, shared, "build", "-t", "tensorrt")
    fails(done, 2, "a dimension without a name", 'dims = "bound"')


def test_int8_is_symmetric_and_in_pairs(project: Path, shared: Store) -> None:
    need_rtx()
    targets = "tensorrt,tensorrt-rtx"
    done = edge(project, shared, "build", "-t", targets, "--precision", "int8")
    assert done.code == 0, done.err
    partition = made(project, "tensorrt")["runtime"]["partition"]
    assert partition["supported_nodes"] == partition["nodes"] > 2
    options = (project / "dist/mlp/0/tensorrt/runner/options.tsv").read_text()
    assert "provider.trt_int8_enable\tTrue\n" in options


def test_precisions_that_tensorrt_does_not_have(project: Path, shared: Store) -> None:
    done = edge(project, shared, "build", "-t", "tensorrt", "--precision", "int8-dynamic")
    fails(done, 2, "DynamicQuantizeLinear")


def test_compute_capabilities_of_the_target(project: Path, shared: Store) -> None:
    need_rtx()
    write(project, '[targets.tensorrt-rtx.tensorrt]\ncompute_capabilities = ["8.6", "8.9"]\n')
    assert edge(project, shared, "build", "-t", "tensorrt-rtx").code == 0
    requires = made(project, "tensorrt-rtx")["runtime"]["requires"]
    assert requires["compute_capabilities"] == "8.6 8.9"
    write(project, '[targets.tensorrt-rtx.tensorrt]\ncompute_capabilities = ["9.0"]\n')
    fails(edge(project, shared, "build", "-t", "tensorrt-rtx"), 2, "compute capability 9.0", "12.0")


# ------------------------------------------------------------------------ on a GPU host
@pytest.fixture
def gpu_host(tmp_path: Path) -> dict[str, str]:
    """The environment of a host with a GPU and TensorRT, as far as edge can see."""
    path = fake_trtexec.programs(tmp_path / "bin")
    return {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}


def test_a_plan_is_made_where_the_gpu_is(
    project: Path, shared: Store, gpu_host: dict[str, str]
) -> None:
    words = ("build", "-t", "tensorrt-plan", "--on", "local", "--json")
    done = edge(project, shared, *words, env=gpu_host)
    assert done.code == 0, done.err
    manifest = made(project, "tensorrt-plan")
    assert (manifest["state"], manifest["artifact"]) == ("built", "engine.plan")
    assert manifest["runtime"]["requires"]["compute_capabilities"] == "8.6"
    host = {"gpu": "NVIDIA RTX A4000", "compute_capability": "8.6", "tensorrt": "10.16.1"}
    assert manifest["runtime"]["host"] == host
    plan = json.loads((project / "dist/mlp/0/tensorrt-plan/engine.plan").read_text())
    assert "--stronglyTyped" in plan["words"]
    assert edge(project, shared, *words, env=gpu_host).steps == []


def test_another_gpu_gets_another_plan(
    project: Path, shared: Store, gpu_host: dict[str, str], tmp_path: Path
) -> None:
    words = ("build", "-t", "tensorrt-plan", "--on", "local")
    assert edge(project, shared, *words, env=gpu_host).code == 0
    other = fake_trtexec.programs(tmp_path / "other", gpu="NVIDIA L4, 8.9, 580.95.05")
    environment = {"PATH": f"{other}{os.pathsep}{os.environ['PATH']}"}
    done = edge(project, shared, *words, env=environment)
    assert [step for step in done.steps if "tensorrt_plan" in step]
    assert made(project, "tensorrt-plan")["runtime"]["requires"]["compute_capabilities"] == "8.9"


def test_a_host_without_gpu_or_tensorrt_is_told(
    project: Path, shared: Store, tmp_path: Path
) -> None:
    words = ("build", "-t", "tensorrt-plan", "--on", "local")
    done = edge(project, shared, *words, env=no_gpu(tmp_path / "none"))
    fails(done, 3, "an NVIDIA GPU", "trtexec 10.16.1")
