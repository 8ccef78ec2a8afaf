"""The Python runner's backends for NVIDIA GPUs, on a stand-in for the driver and the runtimes.

What a GPU would compute is not shown by this; that device and host memory are kept apart, that
runs are waited for, that graphs are captured and replayed, and that a fallback is caught, is.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from edge import bench, errors, placement, process, protocol, samples
from edge.bench import BenchOptions
from edge.parity import Tolerance
from edge.store import hash_file
from edge.tools import zig
from tests.test_bench import Here
from tests.test_runner_backends import real
from tests.test_runners import RUNNERS, SHORT, TRIPLES, Event, named

FAKES = Path(__file__).parent / "fakes"
CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
KEY = "0123456789abcdef" * 4
NO_DRIVER = "there is no NVIDIA driver: libcuda.so.1: cannot open"
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in driver is a Linux library"),
]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in's libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    words = [*zig.find().argv, "cc", "-target", TRIPLES[platform.machine()], "-Os", "-shared"]
    words += ["-fPIC", "-Wall", "-Wextra", "-Werror", str(FAKES / "cuda.c")]
    process.run([*words, "-o", folder / "libcuda.so.1"], timeout=300)
    (folder / "libnvinfer.so.10").symlink_to("libcuda.so.1")
    return folder


class Machine(Here):
    """This machine with the stand-ins on it; ``told`` is what ONNX Runtime's was asked for."""

    def __init__(self, folder: Path, driver: Path | None, **environment: str) -> None:
        self.log = folder / "told.jsonl"
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(FAKES),
            "LD_LIBRARY_PATH": str(driver or ""),
            "FAKE_ORT_TOLD": str(self.log),
            **environment,
        }

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def run(self, argv: Any, *, timeout: float, stdin: bytes = b"", check: bool = True) -> Any:
        kept = self.environment
        return process.run(argv, timeout=timeout, stdin=stdin, check=check, env=kept)

    def runner(self, bundle: Path, *words: str | Path) -> tuple[list[Event], str]:
        """The events, and what libraries printed."""
        argv = [sys.executable, RUNNERS / "edge_runner.py", "--bundle", bundle, *words]
        done = self.run([str(word) for word in argv], timeout=60, check=False)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        if events[-1]["event"] == "end":
            protocol.parse(done.stdout)
        return events, done.stderr

    def bad(self, bundle: Path, *words: str | Path) -> tuple[str, str]:
        events, _ = self.runner(bundle, *words)
        assert events[-1]["event"] == "error", events
        return events[-1]["stage"], events[-1]["message"]


def write(folder: Path, artifact: str, content: bytes, *shapes: tuple[int, ...]) -> Path:
    """A bundle whose golden outputs are its inputs, doubled."""
    folder.mkdir()
    (folder / artifact).write_bytes(content)
    rng = np.random.default_rng(3)
    cases = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    samples.write(folder / "samples", [({"x": case}, {"y": case + case}) for case in cases])
    return folder


def options(bundle: Path, **values: object) -> None:
    lines = [f"{key.replace('__', '.')}\t{value}\n" for key, value in values.items()]
    (bundle / "runner").mkdir(exist_ok=True)
    (bundle / "runner" / "options.tsv").write_text("".join(lines))


def right(events: list[Event], bundle: Path) -> bool:
    """Whether every output has the golden hash."""
    folder = bundle / "samples"
    golden = [tensor.file for tensor in samples.read_index(folder) if tensor.role == "output"]
    wanted = [hash_file(folder / file)[0] for file in golden]
    return [event["sha256"] for event in named(events, "output")] == wanted


# ------------------------------------------------------------------ TensorRT, TensorRT for RTX
def engine(*output: Any) -> bytes:
    """x[n, 8] -> y of this shape."""
    said = {"x": ["INPUT", "FLOAT", [-1, 8]], "y": ["OUTPUT", "FLOAT", output or [-1, 8]]}
    return json.dumps(said).encode()


@pytest.fixture
def rtx(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle", "engine.rtx", engine(), (1, 8), (3, 8))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle", "engine.plan", engine(), (1, 8), (3, 8))


@pytest.mark.parametrize("artifact", ["engine.rtx", "engine.plan"])
@pytest.mark.parametrize("graph", [0, 1])
def test_engines_compute_and_are_timed(
    tmp_path: Path, driver: Path, artifact: str, graph: int
) -> None:
    bundle = write(tmp_path / "bundle", artifact, engine(), (1, 8), (3, 8))
    options(bundle, runner__cuda_graph=graph)
    events, printed = Machine(tmp_path, driver).runner(bundle, *SHORT)
    assert events[-1]["event"] == "end", events[-1]
    provider = {"engine.rtx": "tensorrt-rtx", "engine.plan": "tensorrt"}[artifact]
    assert (events[0]["runtime"], events[0]["provider"]) == (provider, provider)
    assert right(events, bundle)
    assert events[-1]["runs"] == 5
    strategy = ("DISABLED", "WHOLE_GRAPH_CAPTURE")[graph] if provider == "tensorrt-rtx" else "none"
    assert f"graphs {strategy}" in printed
    shapes = [line for line in printed.splitlines() if line.startswith("fake: run")]
    timed = shapes[len(shapes) - shapes[::-1].index("fake: run (3, 8)") :]
    assert timed == ["fake: run (1, 8)"] * len(timed)  # sample 0 again, which is what is timed
    assert len(timed) >= 6
    assert "cached" not in named(events, "load")[0]


def test_an_output_whose_shape_is_found_on_the_gpu(tmp_path: Path, driver: Path) -> None:
    bundle = write(tmp_path / "bundle", "engine.rtx", engine("?"), (1, 8), (3, 8), (2, 8))
    events, _ = Machine(tmp_path, driver).runner(bundle, *SHORT)
    assert [event["shape"] for event in named(events, "output")] == [[1, 8], [3, 8], [2, 8]]
    assert right(events, bundle)


def test_a_gpu_without_memory_for_an_output(tmp_path: Path, driver: Path) -> None:
    bundle = write(tmp_path / "bundle", "engine.rtx", engine("?"), (1, 8))
    stage, message = Machine(tmp_path, driver, FAKE_CUDA="small").bad(bundle, *SHORT)
    assert (stage, message) == (
        "run", "TensorRT refuses the run: the NVIDIA driver: cuMemAlloc_v2: error 2, fake error"
    )  # fmt: skip


def test_an_engine_that_cannot_be_captured(plan: Path, tmp_path: Path, driver: Path) -> None:
    options(plan, runner__cuda_graph=1)
    stage, message = Machine(tmp_path, driver, FAKE_CUDA="strict").bad(plan)
    assert (stage, message) == ("run", "TensorRT refuses the run: it does not say why")


def test_kernels_are_kept_by_content_gpu_and_release(
    rtx: Path, tmp_path: Path, driver: Path
) -> None:
    options(rtx, runner__engine_key=KEY)
    cache = tmp_path / "cache"
    cache.mkdir()
    machine = Machine(tmp_path, driver)
    loads = []
    for _ in range(2):
        events, _ = machine.runner(rtx, "--check-only", "--cache", cache)
        loads.append(named(events, "load")[0]["cached"])
    assert loads == [False, True]
    kept = cache / f"{KEY}-sm86-trt1.7.1.116" / "runtime.cache"
    assert [path for path in cache.rglob("*") if path.is_file()] == [kept]
    kept.write_bytes(b"spoilt")
    events, _ = machine.runner(rtx, "--check-only", "--cache", cache)
    assert named(events, "load")[0]["cached"] is False
    assert kept.read_bytes() == b"kernels"


def test_a_profile_of_layers_is_a_placement(rtx: Path, tmp_path: Path, driver: Path) -> None:
    words = ("--check-only", "--profile", tmp_path / "profile")
    events, _ = Machine(tmp_path, driver).runner(rtx, *words)
    found = placement.read(Path(named(events, "profile")[0]["file"]).read_bytes())
    assert found == {"tensorrt-rtx": placement.Part(1, 500_000, 1.0, 1.0)}


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FAKE_CUDA": "none"}, "there is no GPU 0: the NVIDIA driver has 0"),
        ({"FAKE_CUDA": "old"}, "error 35, CUDA driver version is insufficient"),
        ({"FAKE_DIAGNOSTICS": "6"}, "engine.rtx is not for this machine: OLD_CUDA_DRIVER, UNS"),
    ],
)
def test_why_an_engine_does_not_load(
    rtx: Path, tmp_path: Path, driver: Path, environment: dict[str, str], words: str
) -> None:
    stage, message = Machine(tmp_path, driver, **environment).bad(rtx)
    assert (stage, words in message) == ("load", True), message


def test_a_broken_engine_is_told_with_the_runtimes_words(
    rtx: Path, tmp_path: Path, driver: Path
) -> None:
    (rtx / "engine.rtx").write_bytes(b"\0" * 100)
    stage, message = Machine(tmp_path, driver).bad(rtx)
    gpu = "Fake GPU, compute capability 8.6, driver for CUDA 13.1"
    assert stage == "load"
    assert message == f"TensorRT cannot load engine.rtx ({gpu}): the magic tag does not match"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"x": ["INPUT", "INT32", [-1, 8]]}, "the input x is float32, the engine takes int32"),
        ({"x": ["INPUT", "FLOAT", [-1, 9]]}, "TensorRT refuses the shape of x"),
        ({"z": ["INPUT", "FLOAT", [-1, 8]]}, "the engine's inputs are z, not x"),
    ],
)
def test_samples_that_an_engine_does_not_take(
    rtx: Path, tmp_path: Path, driver: Path, said: dict[str, Any], words: str
) -> None:
    (rtx / "engine.rtx").write_text(json.dumps({**said, "y": ["OUTPUT", "FLOAT", [-1, 8]]}))
    stage, message = Machine(tmp_path, driver).bad(rtx)
    assert (stage, words in message) == ("run", True), message


def test_an_output_that_numpy_has_no_type_for(rtx: Path, tmp_path: Path, driver: Path) -> None:
    said = {"x": ["INPUT", "FLOAT", [-1, 8]], "y": ["OUTPUT", "BF16", [-1, 8]]}
    (rtx / "engine.rtx").write_text(json.dumps(said))
    stage, message = Machine(tmp_path, driver).bad(rtx)
    assert (stage, message) == ("output", "the output y is a BF16, which cannot be told")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"provider__device_id": 0}, "an engine has no options provider.* and session.*"),
        ({"session__x": 0}, "an engine has no options provider.* and session.*"),
    ],
)
def test_options_that_engines_have_not(plan: Path, said: dict[str, Any], words: str) -> None:
    options(plan, **said)
    assert Machine(plan, None).bad(plan) == ("bundle", words)


def test_an_engine_runs_on_its_own_runtime(plan: Path) -> None:
    stage, message = Machine(plan, None).bad(plan, "--provider", "tensorrt-rtx")
    assert (stage, message) == ("bundle", "engine.plan does not run on tensorrt-rtx")
    stage, message = Machine(plan, None).bad(plan, "--provider", CUDA)
    assert (stage, message) == ("runtime", f"engine.plan does not run on {CUDA}")


def module(name: str) -> ModuleType:
    """A stand-in, read without being found as the module that it stands for."""
    spec = importlib.util.spec_from_file_location(f"fake_{name}", FAKES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def only_real(fake: ModuleType, there_is: ModuleType) -> list[str]:
    """What a stand-in has that the real module has not; its own names begin with ``_``."""
    skipped = ("annotations", "Any", "ClassVar", "SimpleNamespace", "DRIVER", "WORK", "PERFORM",
               "MODE", "CUDA", "TENSORRT", "CPU")  # fmt: skip
    odd = []
    for name, value in vars(fake).items():
        if name.startswith("_") or isinstance(value, ModuleType) or name in skipped:
            continue
        if getattr(value, "__module__", fake.__name__) not in (fake.__name__, "types"):
            continue
        there = getattr(there_is, name, None)
        if there is None:
            odd.append(name)
            continue
        members = vars(value)
        odd += [f"{name}.{each}" for each in members if each[0] != "_" and each not in dir(there)]
    return odd


def test_the_stand_in_offers_nothing_that_tensorrt_rtx_lacks(
    driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trt = real("tensorrt_rtx")
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: load(str(driver / name)))
    assert only_real(module("tensorrt_rtx"), trt) == []


def test_the_stand_in_offers_nothing_that_onnxruntime_lacks() -> None:
    import onnxruntime

    assert only_real(module("onnxruntime"), onnxruntime) == []


def test_tensorrt_rtx_itself_says_that_there_is_no_driver(tmp_path: Path) -> None:
    """A real engine, built here without a GPU, which only a GPU can run."""
    trt = real("tensorrt_rtx")
    if process.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"],
                   timeout=60, check=False).returncode == 0:  # fmt: skip
        pytest.skip("there is an NVIDIA driver here")
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(0)
    given = network.add_input("x", trt.float32, (2, 8))
    layer = network.add_unary(given, trt.UnaryOperation.EXP)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    content = builder.build_serialized_network(network, builder.create_builder_config())
    bundle = write(tmp_path / "bundle", "engine.rtx", bytes(content), (2, 8))
    machine = Machine(tmp_path, None)
    machine.environment.pop("PYTHONPATH")
    events, _ = machine.runner(bundle)
    assert [event["event"] for event in events] == ["env", "error"]
    assert (events[0]["runtime"], events[0]["version"]) == ("tensorrt-rtx", trt.__version__)
    assert events[1]["stage"] == "load"
    assert NO_DRIVER in events[1]["message"]
    assert "CUDA driver version is insufficient" in events[1]["message"]


# ------------------------------------------------------------------ ONNX Runtime, CUDA and TensorRT
@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle", "model.onnx", b"", (1, 8), (3, 8))


def test_inputs_and_outputs_stay_on_the_gpu(model: Path, tmp_path: Path, driver: Path) -> None:
    options(model, provider__device_id=0, provider__use_tf32=0, session__ep__x=1)
    machine = Machine(tmp_path, driver)
    events, _ = machine.runner(model, *SHORT, "--provider", CUDA)
    assert events[0]["gpu"] == "Fake GPU, compute capability 8.6, driver for CUDA 13.1"
    assert right(events, model)
    preload, session, *runs = machine.told
    assert preload == {"call": "preload"}
    assert session == {
        "call": "session", "fallback": 0,
        "entries": {"ep.x": "1", "session.disable_cpu_ep_fallback": "1"},
        "providers": [[CUDA, {"device_id": "0", "use_tf32": "0"}]],
    }  # fmt: skip
    assert [run["places"] for run in runs] == [["cuda:0", "cuda:0"]] * len(runs)
    assert {run["graph"] for run in runs} == {""}


@pytest.mark.parametrize(
    ("provider", "option"),
    [(CUDA, ("enable_cuda_graph", "1")), (TENSORRT, ("trt_cuda_graph_enable", "True"))],
)
def test_samples_of_one_shape_share_a_cuda_graph(
    tmp_path: Path, driver: Path, provider: str, option: tuple[str, str]
) -> None:
    bundle = write(tmp_path / "bundle", "model.onnx", b"", (2, 8), (2, 8), (2, 8))
    options(bundle, runner__cuda_graph=1)
    machine = Machine(tmp_path, driver)
    events, _ = machine.runner(bundle, *SHORT, "--provider", provider)
    assert right(events, bundle)
    runs = [call for call in machine.told if call["call"] == "run"]
    assert {run["graph"] for run in runs} == {"1"}
    seen = [run["first"] for run in runs]
    assert len(set(seen[:3])) == 3
    assert set(seen[3:]) == {seen[0]}  # sample 0 again, which is what is timed
    assert option in machine.told[1]["providers"][0][1].items()


def test_each_shape_has_a_cuda_graph(model: Path, tmp_path: Path, driver: Path) -> None:
    options(model, runner__cuda_graph=1)
    machine = Machine(tmp_path, driver)
    events, _ = machine.runner(model, *SHORT, "--provider", CUDA)
    assert right(events, model)
    assert [call["graph"] for call in machine.told if call["call"] == "run"][:2] == ["1", "2"]
    stage, message = machine.bad(model, "--provider", TENSORRT)
    assert (stage, message) == ("run", "one CUDA graph cannot run samples of several shapes")


def test_without_a_cache_folder_nothing_of_tensorrt_is_kept(
    model: Path, tmp_path: Path, driver: Path
) -> None:
    options(model, runner__engine_key=KEY, runner__least_nodes=0.9)
    machine = Machine(tmp_path, driver)
    machine.runner(model, "--check-only", "--provider", TENSORRT)
    session = next(call for call in machine.told if call["call"] == "session")
    off = {"trt_engine_cache_enable": "False", "trt_timing_cache_enable": "False"}
    # Less than every node on TensorRT: the rest on the GPU, too, and the CPU is not forbidden.
    assert session["providers"] == [[TENSORRT, off], [CUDA, {"device_id": "0"}]]
    assert session["entries"] == {}


def test_what_tensorrt_leaves_runs_on_the_same_gpu(
    model: Path, tmp_path: Path, driver: Path
) -> None:
    options(model, provider__device_id=1, runner__least_nodes=0.9)
    machine = Machine(tmp_path, driver, FAKE_CUDA="two")
    machine.runner(model, "--check-only", "--provider", TENSORRT)
    session = next(call for call in machine.told if call["call"] == "session")
    assert [told["device_id"] for _, told in session["providers"]] == ["1", "1"]


def test_engines_are_kept_by_content_gpu_and_release(
    model: Path, tmp_path: Path, driver: Path
) -> None:
    provider = tmp_path / "capi" / "libonnxruntime_providers_tensorrt.so"
    provider.parent.mkdir()
    provider.write_bytes(b"\x7fELF\0libnvinfer.so.10\0")
    machine = Machine(tmp_path, driver, FAKE_ORT_FILE=str(tmp_path / "__init__.py"))
    words = ("--check-only", "--provider", TENSORRT, "--cache", tmp_path)
    loads = []
    for key in (KEY, KEY, KEY[::-1]):
        options(model, runner__engine_key=key)
        events, _ = machine.runner(model, *words)
        loads.append(named(events, "load")[0]["cached"])
    assert loads == [False, True, False]
    machine.environment["FAKE_ORT"] = "stale"  # built again in its place
    events, _ = machine.runner(model, *words)
    assert named(events, "load")[0]["cached"] is False
    asked = [call["providers"][0][1] for call in machine.told if call["call"] == "session"]
    folder = str(tmp_path / f"{KEY}-sm86-trt10.13.3")
    assert asked[0] == asked[1] == {
        "trt_engine_cache_enable": "True", "trt_engine_cache_path": folder,
        "trt_engine_cache_prefix": KEY[:16],
        "trt_timing_cache_enable": "True", "trt_timing_cache_path": folder,
    }  # fmt: skip
    assert asked[2]["trt_engine_cache_path"] == folder.replace(KEY, KEY[::-1])


def test_a_cache_of_engines_needs_to_know_which_tensorrt(
    model: Path, tmp_path: Path, driver: Path
) -> None:
    options(model, runner__engine_key=KEY)
    words = ("--provider", TENSORRT, "--cache", tmp_path)
    stage, message = Machine(tmp_path, driver).bad(model, *words)
    assert stage == "load"
    assert "which TensorRT the provider loads cannot be told" in message


@pytest.mark.parametrize(
    ("option", "decided"),
    [
        ("trt_engine_cache_path", "--cache"), ("trt_timing_cache_enable", "--cache"),
        ("cache_dir", "--cache"), ("enable_cuda_graph", "runner.cuda_graph"),
        ("num_of_threads", "--threads"),
    ],
)  # fmt: skip
def test_options_that_are_the_runners_own(
    model: Path, tmp_path: Path, option: str, decided: str
) -> None:
    options(model, **{f"provider__{option}": 1})
    found = Machine(tmp_path, None).bad(model, "--provider", CUDA)
    assert found == ("bundle", f"the provider's option {option} follows from {decided}")


# ----------------------------------------------------------------------- a fallback is a failure
def test_a_provider_that_is_compiled_in_is_not_there_without_a_driver(
    model: Path, tmp_path: Path
) -> None:
    stage, message = Machine(tmp_path, None).bad(model, "--provider", CUDA)
    assert stage == "runtime"
    assert NO_DRIVER in message


@pytest.mark.parametrize(
    ("least", "words"), [(1, "has been explicitly disabled"), (0.5, f"{CUDA} was not registered")]
)
def test_a_session_on_the_cpu_is_refused(
    model: Path, tmp_path: Path, driver: Path, least: float, words: str
) -> None:
    options(model, runner__least_nodes=least)
    stage, message = Machine(tmp_path, driver, FAKE_ORT="cpu").bad(model, "--provider", CUDA)
    assert (stage, words in message) == ("load", True), message


def checked(machine: Machine, bundle: Path, **values: Any) -> bench.Checked:
    runner = (sys.executable, str(RUNNERS / "edge_runner.py"))
    asked = BenchOptions(provider=CUDA, **values)
    return bench.check(machine, str(bundle), runner, bundle / "samples", Tolerance(), asked)


def test_nodes_on_the_cpu_are_caught_by_the_health_run(
    model: Path, tmp_path: Path, driver: Path
) -> None:
    options(model, runner__least_nodes=0.5)
    machine = Machine(tmp_path, driver, FAKE_ORT="nodes")
    with pytest.raises(errors.RunFailed) as caught:
        checked(machine, model)
    assert caught.value.exit_code == 4
    assert "1 nodes (33%, 18% of their time) on CPUExecutionProvider" in caught.value.message
    found = checked(machine, model, least_nodes=0.6, least_time=0.8).providers
    assert found[CUDA][:2] == (2, 140_000)
    assert found[CUDA][2:] == pytest.approx((2 / 3, 14 / 17))
    with pytest.raises(errors.RunFailed, match=r"to run 0\.6 of the nodes and 0\.9 of their time"):
        checked(machine, model, least_nodes=0.6, least_time=0.9)


def test_a_run_wholly_on_the_gpu_passes(model: Path, tmp_path: Path, driver: Path) -> None:
    found = checked(Machine(tmp_path, driver), model)
    assert found.providers == {CUDA: placement.Part(2, 140_000, 1.0, 1.0)}
    assert found.run.env.gpu.startswith("Fake GPU")
