"""The C runner with OpenVINO, as a process, with the wheel's own libraries."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import placement, process, samples
from edge.config import Target, read_target
from edge.convert.compile_runner import compile_runner
from edge.store import Store
from edge.tools.fetch import fetch
from tests import test_runners
from tests.test_runners import SHORT, TRIPLES, Runner, named

pytestmark = pytest.mark.process
ROOT = process.PACKAGE_PARENT
PROVIDER = "openvino:CPU"
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="session")
def target() -> Target:
    """The target whose libraries run here."""
    name = {"x86_64": "openvino-x64", "aarch64": "openvino-arm64"}.get(platform.machine())
    if not name or sys.platform != "linux":
        pytest.skip("OpenVINO's targets are Linux on x86-64 and 64-bit ARM")
    return read_target(ROOT / "targets" / f"{name}.toml", {}, "")


@pytest.fixture(scope="session")
def runner(
    tmp_path_factory: pytest.TempPathFactory, download_store: Store, target: Target
) -> Runner:
    """The C runner for this machine."""
    out = tmp_path_factory.mktemp("c-runner-openvino")
    assert target.runner is not None
    compile_runner.function(
        out,
        source=ROOT / "templates" / "runner" / "edge_runner.c",
        header=fetch(download_store, target.runner.header).path,
        triple=TRIPLES[platform.machine()],
        backend="openvino",
    )
    return Runner((str(out / "edge_runner"),))


@pytest.fixture(scope="session")
def libraries(
    tmp_path_factory: pytest.TempPathFactory, download_store: Store, target: Target
) -> Path:
    """The folder of the libraries that the target pins, and no others."""
    folder = tmp_path_factory.mktemp("openvino") / "runtime"
    folder.mkdir()
    for pin in target.runtime.files:
        shutil.copyfile(fetch(download_store, pin).path, folder / Path(pin.path).name)
    return folder


def python_api(folder: Path, cases: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """What OpenVINO's Python API gives in f32."""
    import openvino

    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    compiled = openvino.Core().compile_model(folder / "model.xml", "CPU", config)
    found = []
    for case in cases:
        values = compiled(case)
        found.append({port.get_any_name(): values[port].copy() for port in compiled.outputs})
    return found


def as_ir(folder: Path, libraries: Path, cases: list[dict[str, Array]]) -> Path:
    """A bundle of ONNX made one of OpenVINO; golden outputs are the Python API's."""
    import openvino

    model = openvino.Core().read_model(folder / "model.onnx")
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    (folder / "model.onnx").unlink()
    shutil.rmtree(folder / "runtime")
    (folder / "runtime").symlink_to(libraries)
    golden = python_api(folder, cases)
    samples.write(folder / "samples", list(zip(cases, golden, strict=True)))
    return folder


MLP = [{"x": test_runners.floats(1, 8)}, {"x": test_runners.floats(3, 8)}]
KINDS = [test_runners.some([0, 1, 0, 2, 0, 3], 21), test_runners.some([0] * 6, -4)]


@pytest.fixture
def mlp(tmp_path: Path, libraries: Path) -> Path:
    """The MLP with two samples of different batch."""
    folder = test_runners.write_bundle(tmp_path / "bundle", test_runners.mlp(), MLP)
    return as_ir(folder, libraries, MLP)


def outputs_are_golden(events: list[test_runners.Event], folder: Path, output: Path) -> None:
    lines = (folder / "samples" / "samples.tsv").read_text("utf-8").split("\n")
    golden = [samples.parse_line(line, "") for line in lines if "\toutput\t" in line]
    told = named(events, "output")
    assert len(told) == len(golden)
    for event, tensor in zip(told, golden, strict=True):
        assert (event["name"], event["dtype"]) == (tensor.name, tensor.dtype)
        assert event["shape"] == list(tensor.shape)
        ours = (output / event["file"]).read_bytes()
        assert ours == (folder / "samples" / tensor.file).read_bytes()


@pytest.mark.parametrize("model", ["mlp", "kinds"])
def test_outputs_are_the_python_apis_own(
    runner: Runner, tmp_path: Path, libraries: Path, model: str
) -> None:
    made, cases = {
        "mlp": (test_runners.mlp(), MLP),
        "kinds": (test_runners.kinds(), KINDS),
    }[model]
    folder = as_ir(test_runners.write_bundle(tmp_path / "b", made, cases), libraries, cases)
    (tmp_path / "out").mkdir()
    events = runner.good("--bundle", folder, "--output", tmp_path / "out", "--check-only")
    outputs_are_golden(events, folder, tmp_path / "out")


def test_every_event_comes_in_order_with_all_fields(runner: Runner, mlp: Path) -> None:
    events = runner.good("--bundle", mlp, *SHORT, "--threads", "2")
    order = "env load first output output warmup sample memory end"
    assert " ".join(event["event"] for event in events) == order
    env, load, *_, memory, end = events
    assert env == {
        "event": "env", "protocol": 1, "runner": "c", "runtime": "openvino",
        "version": "2026.4.1", "arch": platform.machine(), "os": "linux",
        "threads": 2, "provider": PROVIDER, "optimization": "disabled",
    }  # fmt: skip
    assert set(load) == {"event", "ns"}  # nothing is kept without --cache
    assert min(memory["peak_bytes"], memory["load_peak_bytes"]) > 5_000_000
    assert (end["runs"], end["cpu_ns"] > 0) == (5, True)


def test_the_second_start_takes_what_the_first_has_compiled(
    runner: Runner, mlp: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    words = ("--check-only", "--cache", cache)
    first = runner.good("--bundle", mlp, *words)
    assert named(first, "load")[0]["cached"] is False
    kept = list(cache.iterdir())
    assert kept
    # By content: a bundle that lies elsewhere, and is newer, is the same model.
    moved = tmp_path / "moved"
    shutil.copytree(mlp, moved, symlinks=True, copy_function=shutil.copyfile)
    second = runner.good("--bundle", moved, *words)
    assert named(second, "load")[0]["cached"] is True
    assert named(second, "output") == named(first, "output")
    assert list(cache.iterdir()) == kept


def test_other_weights_in_the_same_place_are_another_model(
    runner: Runner, mlp: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    words = ("--bundle", mlp, "--check-only", "--cache", cache)
    first = runner.good(*words)
    weights = np.fromfile(mlp / "model.bin", np.float32)
    (mlp / "model.bin").write_bytes((weights * 2).tobytes())
    second = runner.good(*words)
    assert named(second, "load")[0]["cached"] is False
    hashes = [[event["sha256"] for event in named(each, "output")] for each in (first, second)]
    assert hashes[0] != hashes[1]


def test_the_bundles_properties_are_used(runner: Runner, mlp: Path) -> None:
    (mlp / "runner").mkdir()
    options = mlp / "runner" / "options.tsv"
    options.write_text("provider.PERFORMANCE_HINT\tLATENCY\nprovider.NUM_STREAMS\t1\n")
    assert runner.good("--bundle", mlp, "--check-only")
    options.write_text("provider.PERFORMANCE_HINT\tSLOWNESS\n")
    stage, message = runner.bad("--bundle", mlp)
    assert stage == "load"
    assert "SLOWNESS" in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("provider.CACHE_DIR\t/tmp", "CACHE_DIR is not the bundle's to set"),
        ("provider.INFERENCE_NUM_THREADS\t9", "INFERENCE_NUM_THREADS is not the bundle's"),
        ("session.x\t1", "no options session.*"),
        ("runner.cuda_graph\t1", "runner.cuda_graph"),
    ],
)
def test_options_that_openvino_has_not(runner: Runner, mlp: Path, line: str, message: str) -> None:
    (mlp / "runner").mkdir()
    (mlp / "runner" / "options.tsv").write_text(line + "\n")
    found = runner.bad("--bundle", mlp)
    assert (found[0], message in found[1]) == ("bundle", True), found


def test_a_profile_has_the_form_of_onnx_runtimes(runner: Runner, mlp: Path, tmp_path: Path) -> None:
    events = runner.good("--bundle", mlp, "--check-only", "--profile", tmp_path / "it's")
    (event,) = named(events, "profile")
    content = Path(event["file"]).read_bytes()
    assert set(placement.read(content)) == {PROVIDER}
    assert all(node["name"].endswith("_kernel_time") for node in json.loads(content))
    stage, _ = runner.bad("--bundle", mlp, "--check-only", "--profile", tmp_path / "no" / "way")
    assert stage == "output"


def test_a_profile_that_cannot_be_written(runner: Runner, mlp: Path, tmp_path: Path) -> None:
    (tmp_path / "full.json").symlink_to("/dev/full")
    words = ("--bundle", mlp, "--check-only", "--profile", tmp_path / "full")
    stage, message = runner.bad(*words)
    assert (stage, message) == (
        "output", f"cannot write {tmp_path / 'full.json'}: No space left on device"
    )  # fmt: skip


@pytest.mark.parametrize("provider", ["openvino:GPU.7", "openvino:", "CPUExecutionProvider"])
def test_a_device_that_is_not_there(runner: Runner, mlp: Path, provider: str) -> None:
    stage, message = runner.bad("--bundle", mlp, "--provider", provider)
    assert stage == "runtime"
    assert f"no {provider}, it has:" in message
    assert PROVIDER in message


def test_broken_bundles(runner: Runner, mlp: Path, tmp_path: Path) -> None:
    def spoilt(name: str) -> Path:
        folder = tmp_path / name
        shutil.copytree(mlp, folder, symlinks=True)
        return folder

    wrong = spoilt("dtype")
    test_runners.wrong_dtype(wrong)
    assert runner.bad("--bundle", wrong)[0] == "run"
    (spoilt("xml") / "model.xml").write_text("<net>")
    assert runner.bad("--bundle", tmp_path / "xml")[0] == "load"
    (spoilt("bin") / "model.bin").unlink()
    assert runner.bad("--bundle", tmp_path / "bin")[0] == "load"
    (spoilt("none") / "model.xml").unlink()
    found = runner.bad("--bundle", tmp_path / "none")
    assert found == ("bundle", f"{tmp_path}/none holds no model.xml, not one artifact")
    stage, message = runner.bad("--bundle", mlp, "--library", "libc.so.6")
    assert (stage, "is no OpenVINO of this release" in message) == ("runtime", True)
