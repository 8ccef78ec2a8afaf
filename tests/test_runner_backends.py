"""The Python runner with OpenVINO, options of a bundle, and which files make a runner."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import placement, samples
from edge.convert.runner_files import python_runner
from edge.store import hash_file
from tests.convert import fake_job
from tests.test_runners import (
    RUNNERS,
    SHORT,
    Runner,
    floats,
    kinds,
    mlp,
    named,
    some,
    write_bundle,
)

RUNNER = Runner((sys.executable, str(RUNNERS / "edge_runner.py")))
DEVICE = "openvino:CPU"
process = pytest.mark.process


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", mlp(), [{"x": floats(1, 8)}, {"x": floats(3, 8)}])


def real(module: str) -> Any:
    """A runtime's module; without it the test is skipped by name, and fails under CI."""
    if os.environ.get("CI"):
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=f"needs {module}: pip install {module}")


def to_ir(bundle: Path) -> Path:
    """The bundle with OpenVINO IR for its ONNX file."""
    openvino = real("openvino")
    model = openvino.Core().read_model(bundle / "model.onnx")
    openvino.save_model(model, bundle / "model.xml", compress_to_fp16=False)
    (bundle / "model.onnx").unlink()
    return bundle


@pytest.fixture
def ir(bundle: Path) -> Path:
    return to_ir(bundle)


def options(bundle: Path, text: str) -> None:
    (bundle / "runner").mkdir(exist_ok=True)
    (bundle / "runner" / "options.tsv").write_text(text)


# ------------------------------------------------------------------------------------- OpenVINO
@process
def test_openvino_runs_and_is_timed(ir: Path, tmp_path: Path) -> None:
    import openvino

    (tmp_path / "out").mkdir()
    events = RUNNER.good("--bundle", ir, *SHORT, "--output", tmp_path / "out", "--threads", "2")
    order = "env load first output output warmup sample memory end"
    assert " ".join(event["event"] for event in events) == order
    env = {key: events[0][key] for key in ("runtime", "version", "threads", "provider")}
    version = openvino.__version__.partition("-")[0]
    assert env == {"runtime": "openvino", "version": version, "threads": 2, "provider": DEVICE}
    assert events[-1]["runs"] == 5
    for event in named(events, "output"):
        golden = np.fromfile(ir / "samples" / event["file"], np.float32)
        found = np.fromfile(tmp_path / "out" / event["file"], np.float32)
        np.testing.assert_allclose(found, golden, atol=1e-6)


@process
def test_openvino_tells_every_kind_of_output(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    cases = [some([0, 1, 0, 2, 0, 3], 21), some([1] * 6, -4)]
    bundle = to_ir(write_bundle(folder, kinds(), cases))
    golden = [
        tensor for tensor in samples.read_index(folder / "samples") if tensor.role == "output"
    ]
    events = RUNNER.good("--bundle", bundle, *SHORT)
    told = [(e["name"], e["dtype"], tuple(e["shape"])) for e in named(events, "output")]
    assert told == [(tensor.name, tensor.dtype, tensor.shape) for tensor in golden]
    hashes = [event["sha256"] for event in named(events, "output")]
    assert hashes == [hash_file(folder / "samples" / tensor.file)[0] for tensor in golden]


@process
def test_openvino_keeps_a_compiled_model(ir: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    loads = [
        named(RUNNER.good("--bundle", ir, "--check-only", *words), "load")[0]
        for words in ((), ("--cache", cache), ("--cache", cache))
    ]
    assert [load.get("cached") for load in loads] == [None, False, True]
    assert list(cache.glob("*.blob"))


@process
def test_openvinos_profile_is_a_placement(ir: Path, tmp_path: Path) -> None:
    events = RUNNER.good("--bundle", ir, "--check-only", "--profile", tmp_path / "profile")
    (event,) = named(events, "profile")
    found = placement.read(Path(event["file"]).read_bytes())
    assert list(found) == [DEVICE]
    assert found[DEVICE].nodes >= 1
    placement.require(found, DEVICE, 1.0, 1.0)


@process
@pytest.mark.parametrize(
    ("provider", "stage", "words"),
    [
        ("openvino:NPU", "runtime", "OpenVINO has no device NPU here, it has: "),
        ("openvino:AUTO", "runtime", "model.xml does not run on openvino:AUTO"),
        ("CPUExecutionProvider", "runtime", "model.xml does not run on CPUExecutionProvider"),
    ],
)
def test_openvino_runs_on_the_device_asked_for(
    ir: Path, provider: str, stage: str, words: str
) -> None:
    found = RUNNER.bad("--bundle", ir, "--provider", provider)
    assert (found[0], words in found[1]) == (stage, True), found


@process
@pytest.mark.parametrize(
    ("text", "stage", "words"),
    [
        ("provider.PERFORMANCE_HINT\tLATENCY\nprovider.NUM_STREAMS\t1\n", "", ""),
        ("provider.INFERENCE_PRECISION_HINT\tf32\n", "", ""),
        ("provider.NO_SUCH_PROPERTY\t1\n", "load", "NO_SUCH_PROPERTY"),
        ("provider.CACHE_DIR\t/tmp\n", "bundle", "CACHE_DIR is not the bundle's to set"),
        ("provider.INFERENCE_NUM_THREADS\t9\n", "bundle", "INFERENCE_NUM_THREADS is not"),
        ("session.x\t1\n", "bundle", "OpenVINO has no options session.*"),
        ("runner.cuda_graph\t1\n", "bundle", "runner.cuda_graph"),
    ],
)
def test_properties_of_openvino(ir: Path, text: str, stage: str, words: str) -> None:
    options(ir, text)
    if not stage:
        assert RUNNER.good("--bundle", ir, "--check-only")
    else:
        found = RUNNER.bad("--bundle", ir)
        assert (found[0], words in found[1]) == (stage, True), found


@process
def test_openvino_says_why_it_cannot_read_a_model(ir: Path) -> None:
    (ir / "model.bin").write_bytes(b"")
    stage, message = RUNNER.bad("--bundle", ir)
    assert stage == "load"
    assert "Incorrect weights in bin file" in message


# --------------------------------------------------------------------- ONNX Runtime, options, files
@process
def test_options_reach_onnxruntime(bundle: Path) -> None:
    options(bundle, "session.session.intra_op.allow_spinning\t0\nprovider.arena\t1\n")
    assert RUNNER.good("--bundle", bundle, "--check-only")
    options(bundle, "session.session.load_model_format\tORT\n")
    assert RUNNER.bad("--bundle", bundle)[0] == "load"


@process
def test_cuda_asked_of_an_onnxruntime_without_it(bundle: Path) -> None:
    stage, message = RUNNER.bad("--bundle", bundle, "--provider", "CUDAExecutionProvider")
    assert (stage, "CPUExecutionProvider" in message) == ("runtime", True)


@process
def test_a_model_runs_on_its_own_runtime(bundle: Path) -> None:
    found = RUNNER.bad("--bundle", bundle, "--provider", DEVICE)
    assert found == ("runtime", f"model.onnx does not run on {DEVICE}")
    options(bundle, "runner.cuda_graph\t1\n")
    assert RUNNER.bad("--bundle", bundle) == ("bundle", "CPUExecutionProvider has no CUDA graph")


@process
def test_a_cache_must_be_a_folder(bundle: Path) -> None:
    stage, message = RUNNER.bad("--bundle", bundle, "--cache", bundle / "model.onnx")
    assert (stage, message.endswith("model.onnx is no folder")) == ("arguments", True)
    assert RUNNER.good("--bundle", bundle, "--check-only", "--cache", bundle)


@process
def test_a_run_leaves_nothing_in_the_bundle(bundle: Path) -> None:
    for path in RUNNERS.glob("*.py"):
        (bundle / "runner").mkdir(exist_ok=True)
        shutil.copy(path, bundle / "runner")
    before = sorted(bundle.rglob("*"))
    own = Runner((sys.executable, str(bundle / "runner" / "edge_runner.py")))
    own.good("--bundle", bundle, "--check-only")
    assert sorted(bundle.rglob("*")) == before


@process
def test_a_runner_without_its_backend_is_told(bundle: Path, tmp_path: Path) -> None:
    for name in ("edge_runner.py", "edge_bundle.py"):
        shutil.copy(RUNNERS / name, tmp_path)
    stage, message = Runner((sys.executable, str(tmp_path / "edge_runner.py"))).bad(
        "--bundle", bundle
    )
    assert (stage, message) == ("bundle", "No module named 'edge_onnxruntime'")


@pytest.mark.parametrize(
    ("backend", "provider", "names"),
    [
        ("onnxruntime", "CPUExecutionProvider", ""),
        ("onnxruntime", "CUDAExecutionProvider", "edge_cuda"),
        ("onnxruntime", "TensorrtExecutionProvider", "edge_cuda"),
        ("openvino", "openvino:CPU", ""),
        ("tensorrt", "tensorrt-rtx", "edge_cuda"),
    ],
)
def test_the_files_of_a_python_runner(
    tmp_path: Path, backend: str, provider: str, names: str
) -> None:
    target = fake_job.target("linux-x64", provider=provider)
    found = python_runner(fake_job.job(fake_job.recorder(tmp_path), target), backend)
    expected = ["edge_runner", "edge_bundle", f"edge_{backend}", *names.split()]
    assert [file.path for file in found] == [f"runner/{name}.py" for name in expected]
    assert {(file.role, file.executable) for file in found} == {("runner", False)}
    assert all((RUNNERS.parent / file.path).is_file() for file in found)
