"""The C and the Python runner, as processes, on small bundles made here."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from edge import placement, process, protocol, samples
from edge.convert.compile_runner import compile_runner

RUNNERS = Path(__file__).parents[1] / "templates" / "runner"
TRIPLES = {"x86_64": "x86_64-linux-gnu.2.17", "aarch64": "aarch64-linux-gnu.2.17"}
HOSTILE = 'q"\\\x01\x7f\x0b\u2028é𝄞'
SHORT = (
    "--iterations", "5", "--min-ns", "0",
    "--warmup", "1", "--warmup-ns", "0", "--warmup-limit-ns", "0",
)  # fmt: skip
Event = dict[str, Any]
both = pytest.mark.parametrize("kind", ["c", "python"])
pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Runner:
    """How a runner is started, and what it says."""

    argv: tuple[str, ...]

    def run(self, *words: str | Path) -> tuple[list[Event], process.Completed]:
        """The events and how the process ended; every line is one JSON object, in ASCII."""
        done = process.run([*self.argv, *words], timeout=60, check=False)
        assert done.stdout.endswith("\n"), done
        assert done.stdout.isascii()
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(next(iter(event)) == "event" for event in events)
        return events, done

    def good(self, *words: str | Path) -> list[Event]:
        """The events of a run that succeeds."""
        events, done = self.run(*words)
        assert done.returncode == 0, events[-1]
        protocol.parse(done.stdout)  # what the host makes of it
        return events

    def bad(self, *words: str | Path) -> tuple[str, str]:
        """Stage and message of a run that fails."""
        events, done = self.run(*words)
        assert done.returncode == 1
        assert [event["event"] for event in events].index("error") == len(events) - 1
        assert set(events[-1]) == {"event", "stage", "message"}
        return events[-1]["stage"], events[-1]["message"]


@pytest.fixture(scope="session")
def c_runner(tmp_path_factory: pytest.TempPathFactory, ort_header: Path) -> Runner:
    """The C runner for this machine."""
    triple = TRIPLES.get(platform.machine())
    if not triple or sys.platform != "linux":
        pytest.skip("the C runner is for Linux on x86-64 and 64-bit ARM")
    out = tmp_path_factory.mktemp("c-runner")
    source = RUNNERS / "edge_runner.c"
    compile_runner.function(out, source=source, header=ort_header, triple=triple)
    return Runner((str(out / "edge_runner"),))


@pytest.fixture
def runner(kind: str, request: pytest.FixtureRequest) -> Runner:
    """The runner of the test's ``kind``."""
    if kind == "python":
        return Runner((sys.executable, str(RUNNERS / "edge_runner.py")))
    found: Runner = request.getfixturevalue("c_runner")
    return found


def graph(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, tuple[int, list[Any]]],
    weights: tuple[onnx.TensorProto, ...] = (),
) -> onnx.ModelProto:
    """A model from nodes and name -> (type, shape)."""
    first, last = (
        [helper.make_tensor_value_info(name, *kind) for name, kind in part.items()]
        for part in (inputs, outputs)
    )
    made = helper.make_graph(nodes, "test", first, last, list(weights))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mlp(name: str = "x") -> onnx.ModelProto:
    """name[n, 8] float32 -> MatMul -> Relu -> y[n, 4]."""
    weights = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", [name, "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    floats = TensorProto.FLOAT
    tensor = onnx.numpy_helper.from_array(weights, "w")
    return graph(nodes, {name: (floats, ["n", 8])}, {"y": (floats, ["n", 4])}, (tensor,))


def kinds() -> onnx.ModelProto:
    """x[6] float32 and a scalar s -> int64 of a data-dependent shape, bool, float16, scalar."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["x"], ["set"], to=TensorProto.BOOL),
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Add", ["s", "s"], ["twice"]),
    ]
    outputs: dict[str, tuple[int, list[Any]]] = {
        "places": (TensorProto.INT64, [1, "found"]),
        "set": (TensorProto.BOOL, [6]),
        "half": (TensorProto.FLOAT16, [6]),
        "twice": (TensorProto.INT32, []),
    }
    inputs = {"x": (TensorProto.FLOAT, [6]), "s": (TensorProto.INT32, [])}
    return graph(nodes, inputs, outputs)  # type: ignore[arg-type]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def session(model: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])


def write_bundle(folder: Path, model: onnx.ModelProto, cases: list[dict[str, Any]]) -> Path:
    """A bundle whose golden outputs are onnxruntime's own."""
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"), None)
    (folder / "runtime").mkdir(parents=True)
    if library:
        (folder / "runtime" / library.name).symlink_to(library)
    onnx.save(model, folder / "model.onnx")
    golden = session(folder / "model.onnx")
    names = [output.name for output in golden.get_outputs()]
    pairs = [(case, dict(zip(names, golden.run(None, case), strict=True))) for case in cases]
    samples.write(folder / "samples", pairs)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The MLP with two samples of different batch."""
    return write_bundle(tmp_path / "bundle", mlp(), [{"x": floats(1, 8)}, {"x": floats(3, 8)}])


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


# ---------------------------------------------------------------------------------- good runs
@both
def test_every_event_comes_in_order_with_all_fields(
    runner: Runner, kind: str, bundle: Path
) -> None:
    events = runner.good("--bundle", bundle, *SHORT)
    order = "env load first output output warmup sample memory end"
    assert " ".join(event["event"] for event in events) == order
    env, load, first, *_, warmup, sample, memory, end = events
    assert env == {
        "event": "env", "protocol": 1, "runner": kind, "runtime": "onnxruntime",
        "version": onnxruntime.__version__, "arch": platform.machine(), "os": "linux",
        "threads": 1, "provider": "CPUExecutionProvider", "optimization": "disabled",
    }  # fmt: skip
    assert min(load["ns"], first["ns"]) > 0
    assert warmup == {"event": "warmup", "runs": 1, "ns": warmup["ns"], "stable": False}
    assert warmup["ns"] > 0
    assert len(sample["ns"]) == end["runs"] == 5
    assert 0 < sum(sample["ns"]) <= end["wall_ns"]
    assert min(memory["peak_bytes"], memory["load_peak_bytes"]) > 5_000_000
    assert end["cpu_ns"] > 0
    assert end["involuntary_switches"] >= 0


@both
@pytest.mark.parametrize("model", ["mlp", "kinds", "hostile"])
def test_outputs_are_onnxruntimes_own(runner: Runner, tmp_path: Path, model: str) -> None:
    models: dict[str, tuple[onnx.ModelProto, list[dict[str, Any]]]] = {
        "mlp": (mlp(), [{"x": floats(2, 8)}]),
        "kinds": (kinds(), [some([0, 1, 0, 2, 0, 3], 21), some([0] * 6, -4)]),
        "hostile": (mlp(HOSTILE), [{HOSTILE: floats(1, 8)}]),
    }
    bundle = write_bundle(tmp_path / "bundle", *models[model])
    (tmp_path / "out").mkdir()
    outputs = runner.good("--bundle", bundle, "--output", tmp_path / "out", "--check-only")[3:-2]
    lines = (bundle / "samples" / "samples.tsv").read_text("utf-8").split("\n")
    golden = [samples.parse_line(line, "") for line in lines if "\toutput\t" in line]
    assert len(outputs) == len(golden)
    for event, tensor in zip(outputs, golden, strict=True):
        values = (bundle / "samples" / tensor.file).read_bytes()
        assert (tmp_path / "out" / event["file"]).read_bytes() == values
        assert event == {
            "event": "output", "sample": tensor.sample, "index": tensor.index,
            "name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape),
            "file": tensor.file, "sha256": hashlib.sha256(values).hexdigest(),
        }  # fmt: skip


def some(values: list[int], scalar: int) -> dict[str, Any]:
    return {"x": np.array(values, np.float32), "s": np.array(scalar, np.int32)}


@both
def test_data_dependent_shapes_can_be_timed(runner: Runner, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", kinds(), [some([0, 1, 0, 2, 0, 3], 1)])
    events = runner.good("--bundle", bundle, *SHORT)
    assert named(events, "output")[0]["shape"] == [1, 3]
    assert events[-1]["runs"] == 5


@both
@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 119, 1000])
def test_hashes_are_right_for_every_padding(runner: Runner, tmp_path: Path, length: int) -> None:
    kind = (TensorProto.UINT8, ["n"])
    model = graph([helper.make_node("Identity", ["x"], ["y"])], {"x": kind}, {"y": kind})
    values = np.arange(length).astype(np.uint8)
    bundle = write_bundle(tmp_path / "bundle", model, [{"x": values}])
    (output,) = named(runner.good("--bundle", bundle, "--check-only"), "output")
    assert output["file"] is None
    assert output["sha256"] == hashlib.sha256(values.tobytes()).hexdigest()


@both
def test_a_hostile_name_stays_inside_its_string(runner: Runner, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", mlp(), [{"x": floats(1, 8)}])
    index = bundle / "samples" / "samples.tsv"
    index.write_bytes(index.read_bytes().replace(b"\tx\n", f"\t{HOSTILE}\n".encode()))
    stage, message = runner.bad("--bundle", bundle)
    assert stage == "run"
    assert HOSTILE in message


@both
def test_bytes_that_are_no_text_do_not_break_the_line(runner: Runner, bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_bytes(index.read_bytes().replace(b"\tx\n", b"\t\xc0\xaf\xed\xa0\x80\n"))
    stage, _ = runner.bad("--bundle", bundle)  # the C runner hands it on, onnxruntime refuses it
    assert stage in {"bundle", "run"}


@both
def test_a_long_message_is_cut(runner: Runner, bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_bytes(index.read_bytes().replace(b"\tx\n", b"\t" + b"x" * 100_000 + b"\n"))
    stage, message = runner.bad("--bundle", bundle)
    assert stage == "run"
    assert len(message) == 8000


@both
def test_check_only_takes_no_time(runner: Runner, bundle: Path) -> None:
    events = runner.good("--bundle", bundle, "--check-only")
    assert " ".join(event["event"] for event in events) == "env load first output output memory end"
    numbers = {"runs": 0, "wall_ns": 0, "cpu_ns": 0, "involuntary_switches": 0}
    assert events[-1] == {"event": "end", **numbers}


@both
def test_samples_come_a_hundred_a_line(runner: Runner, bundle: Path) -> None:
    events = runner.good("--bundle", bundle, *SHORT, "--iterations", "250")
    assert [len(event["ns"]) for event in named(events, "sample")] == [100, 100, 50]


@both
def test_the_loop_runs_its_minimum_and_ends_at_its_limit(runner: Runner, bundle: Path) -> None:
    longer = runner.good("--bundle", bundle, *SHORT, "--iterations", "1", "--min-ns", "20000000")
    assert longer[-1]["wall_ns"] >= 20_000_000
    assert longer[-1]["runs"] > 1
    ended = runner.good("--bundle", bundle, *SHORT, "--iterations", "10000000", "--max-ns", "1")
    assert ended[-1]["runs"] == 1


@both
def test_warm_up_goes_on_until_two_blocks_agree(runner: Runner, bundle: Path) -> None:
    limit = 5_000_000_000
    events = runner.good("--bundle", bundle, *SHORT, "--warmup-limit-ns", str(limit))
    (warmup,) = named(events, "warmup")
    if warmup["stable"]:
        assert warmup["runs"] >= 20
        assert warmup["runs"] % 10 == 0
    else:
        assert warmup["ns"] >= limit


@both
def test_warm_up_keeps_its_minima(runner: Runner, bundle: Path) -> None:
    (runs,) = named(runner.good("--bundle", bundle, *SHORT, "--warmup", "7"), "warmup")
    assert runs["runs"] == 7
    words = ("--warmup-ns", "30000000", "--warmup-limit-ns", "5000000000")
    (spent,) = named(runner.good("--bundle", bundle, *SHORT, *words), "warmup")
    assert spent["ns"] >= 30_000_000


@both
def test_a_profile_says_which_provider_ran_the_nodes(
    runner: Runner, bundle: Path, tmp_path: Path
) -> None:
    events = runner.good("--bundle", bundle, "--check-only", "--profile", tmp_path / "profile")
    (event,) = named(events, "profile")
    assert Path(event["file"]).parent == tmp_path
    share = placement.read(Path(event["file"]).read_bytes())
    assert [(name, part.nodes) for name, part in share.items()] == [("CPUExecutionProvider", 2)]


@both
def test_the_ort_format_is_not_optimized_again(runner: Runner, bundle: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(bundle / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(
        str(bundle / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (bundle / "model.onnx").unlink()
    events = runner.good("--bundle", bundle, "--check-only", "--optimization", "all")
    assert events[0]["optimization"] == "disabled"
    assert len(named(events, "output")) == 2


@both
def test_the_optimization_asked_for_is_used(runner: Runner, tmp_path: Path) -> None:
    operators = (("Relu", "x", "a"), ("Identity", "a", "b"), ("Neg", "b", "y"))
    made = [helper.make_node(operator, [one], [two]) for operator, one, two in operators]
    kind: tuple[int, list[Any]] = (TensorProto.FLOAT, [2])
    bundle = write_bundle(
        tmp_path / "bundle", graph(made, {"x": kind}, {"y": kind}), [{"x": floats(2)}]
    )
    nodes = {}
    for level in ("disabled", "all"):
        words = ("--check-only", "--optimization", level, "--profile", str(tmp_path / level))
        events = runner.good("--bundle", bundle, *words)
        assert events[0]["optimization"] == level
        profile = Path(named(events, "profile")[0]["file"]).read_bytes()
        nodes[level] = placement.read(profile)["CPUExecutionProvider"].nodes
    assert nodes == {"disabled": 3, "all": 2}


@both
def test_threads_are_told(runner: Runner, bundle: Path) -> None:
    events = runner.good("--bundle", bundle, "--check-only", "--threads", "2")
    assert events[0]["threads"] == 2


@both
def test_the_version_is_one_line(runner: Runner, kind: str) -> None:
    events, done = runner.run("--version")
    assert events == [{"event": "version", "protocol": 1, "runner": kind}]
    assert done.returncode == 0


# ---------------------------------------------------------------------------------- failures
@both
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bogus"], "--bogus"),
        (["--threads"], "--threads"),
        (["--threads", "0"], "0 is no number from 1 to 1024"),
        (["--iterations", "1e3"], "1e3 is no number from 1 to "),
        (["--warmup-ns", "-1"], "--warmup-ns"),
        (["--min-ns", "99999999999999999999"], "99999999999999999999 is no number"),
        (["--optimization", "most"], "most"),
        ([], "--bundle is missing"),
    ],
)
def test_wrong_arguments(runner: Runner, words: list[str], message: str) -> None:
    stage, found = runner.bad(*words)
    assert stage == "arguments"
    assert message in found


def truncate(bundle: Path) -> None:
    file = bundle / "samples" / "000.input.0.bin"
    file.write_bytes(file.read_bytes()[:-1])


def wrong_dtype(bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_text(index.read_text().replace("float32\t1x8", "int32\t1x8"))


def add_input(bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    line = "0\tinput\t1\tfloat32\t1x8\t000.input.0.bin\textra\n"
    index.write_text(index.read_text().replace("0\toutput", line + "0\toutput", 1))


def only_outputs(bundle: Path) -> None:
    (bundle / "samples" / "samples.tsv").write_text("0\toutput\t0\tbool\t-\t000.output.0.bin\ty\n")


def folder_for_file(bundle: Path) -> None:
    file = bundle / "samples" / "000.input.0.bin"
    file.unlink()
    file.mkdir()


def spoil_model(bundle: Path) -> None:
    (bundle / "model.onnx").write_bytes(b"\x00\xff" * 500)


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no bundle": (shutil.rmtree, "bundle", "neither model.onnx nor model.ort"),
    "two artifacts": (
        lambda b: (b / "model.ort").touch(), "bundle", "model.onnx and model.ort, not one",
    ),
    "no artifact": (lambda b: (b / "model.onnx").unlink(), "bundle", "neither model.onnx"),
    "no samples": (lambda b: shutil.rmtree(b / "samples"), "bundle", "samples.tsv"),
    "truncated sample": (truncate, "bundle", "holds 31 bytes, its line says 32"),
    "missing sample": (lambda b: (b / "samples/001.input.0.bin").unlink(), "bundle", "001.input"),
    "folder for a file": (folder_for_file, "bundle", "000.input.0.bin"),
    "wrong dtype": (wrong_dtype, "run", "expected: (tensor(float))"),
    "unknown input": (add_input, "run", "extra"),
    "missing input": (only_outputs, "run", "x"),
    "corrupted model": (spoil_model, "load", "model.onnx"),
}  # fmt: skip


@both
@pytest.mark.parametrize("case", BROKEN)
def test_broken_bundles(runner: Runner, bundle: Path, case: str) -> None:
    spoil, stage, message = BROKEN[case]
    spoil(bundle)
    found = runner.bad("--bundle", bundle, *SHORT)
    assert found[0] == stage, found
    assert message in found[1]


@both
@pytest.mark.parametrize(
    "line",
    [
        "0\tinput\t0\tfloat32\t1x8\t../model.onnx\tx",
        "0\tinput\t0\tfloat32\t1x8\t/etc/passwd\tx",
        "0\tinput\t0\tfloat32\t1x8\t..\tx",
        "0\tinput\t0\tfloat32\t1x8\t\tx",
        "0\tinput\t0\tfloat32\t-1x8\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t1xx8\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t+1x8\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t2147483648x2147483648\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t4294967296x4294967297\t000.input.0.bin\tx",
        "0\tinput\t0\tuint8\t2147483649\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t99999999999999999999\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t" + "x".join("1" * 33) + "\t000.input.0.bin\tx",
        "0\tinput\t0\tcomplex64\t1x8\t000.input.0.bin\tx",
        "0\tinner\t0\tfloat32\t1x8\t000.input.0.bin\tx",
        "-1\tinput\t0\tfloat32\t1x8\t000.input.0.bin\tx",
        "x\tinput\t1\tfloat32\t1x8\t000.input.0.bin\tx",
        "1\tinput\t0\tfloat32\t1x8\t000.input.0.bin\tx",
        "0\tinput\t1\tfloat32\t1x8\t000.input.0.bin\tx",
        "0\tinput\t4294967296\tfloat32\t1x8\t000.input.0.bin\tx",
        "0\tinput\t0\tfloat32\t1x8\t000.input.0.bin",
        "0\tinput\t0\tfloat32\t1x8\t000.input.0.bin\tx\ty",
        "",
    ],
)
def test_hostile_lines_of_the_index(runner: Runner, bundle: Path, line: str) -> None:
    (bundle / "samples" / "samples.tsv").write_text(line + "\n")
    stage, message = runner.bad("--bundle", bundle, *SHORT)
    assert stage == "bundle"
    assert "samples.tsv" in message


@both
def test_a_huge_index_is_refused(runner: Runner, bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_text("0\toutput\t0\tbool\t-\ta\ty\n" * 10_001)
    assert "more than 10000 tensors" in runner.bad("--bundle", bundle)[1]
    index.write_bytes(bytes(9 << 20))
    assert "no file of a sane size" in runner.bad("--bundle", bundle)[1]


@both
def test_as_many_tensors_as_the_host_lists(runner: Runner, bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    outputs = "".join(f"0\toutput\t{n}\tbool\t-\ta\ty\n" for n in range(9_999))
    index.write_text("0\tinput\t0\tfloat32\t1x8\t000.input.0.bin\tx\n" + outputs)
    assert runner.good("--bundle", bundle, "--check-only")


@both
def test_a_shape_without_end_is_refused_at_once(runner: Runner, bundle: Path) -> None:
    shape = "x".join(["9999999999"] * 500_000)  # whose product takes minutes
    line = f"0\tinput\t0\tfloat32\t{shape}\t000.input.0.bin\tx\n"
    (bundle / "samples" / "samples.tsv").write_text(line)
    assert runner.bad("--bundle", bundle)[1].endswith("samples.tsv:1: a bad dtype or shape")


@both
def test_nothing_is_left_unread_behind_a_nul(runner: Runner, bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_bytes(index.read_bytes() + b"\0 is no line\n")
    stage, message = runner.bad("--bundle", bundle)
    assert (stage, "samples.tsv" in message) == ("bundle", True)


@both
def test_a_large_sample_that_is_not_there_takes_no_memory(runner: Runner, bundle: Path) -> None:
    line = "0\tinput\t0\tuint8\t2147483648\t000.input.0.bin\tx\n"
    (bundle / "samples" / "samples.tsv").write_text(line)
    stage, message = runner.bad("--bundle", bundle)
    assert (stage, "its line says 2147483648" in message) == ("bundle", True)


@both
def test_a_provider_that_is_not_there(runner: Runner, bundle: Path) -> None:
    stage, message = runner.bad("--bundle", bundle, "--provider", "WarpExecutionProvider")
    assert stage == "runtime"
    assert "has no WarpExecutionProvider" in message
    assert "CPUExecutionProvider" in message


@both
def test_a_fallback_to_the_cpu_is_a_failure(runner: Runner, bundle: Path) -> None:
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs an onnxruntime with the Azure provider, which runs no node of its own")
    stage, message = runner.bad("--bundle", bundle, "--provider", "AzureExecutionProvider")
    assert stage == "load"
    assert "fallback to CPU EP has been explicitly disabled" in message


@both
def test_text_cannot_be_an_output(runner: Runner, bundle: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["words"], to=TensorProto.STRING)]
    model = graph(
        nodes, {"x": (TensorProto.FLOAT, ["n", 8])}, {"words": (TensorProto.STRING, ["n", 8])}
    )
    onnx.save(model, bundle / "model.onnx")
    stage, message = runner.bad("--bundle", bundle)
    assert stage == "output"
    assert "the output words" in message


@both
def test_outputs_that_cannot_be_written(runner: Runner, bundle: Path) -> None:
    stage, message = runner.bad("--bundle", bundle, "--output", bundle / "nowhere")
    assert stage == "output"
    assert "000.output.0.bin" in message


# ------------------------------------------------------------------------- one runner's own
def test_the_python_runner_says_when_onnxruntime_is_missing(bundle: Path) -> None:
    runner = Runner((sys.executable, "-I", "-S", str(RUNNERS / "edge_runner.py")))
    stage, message = runner.bad("--bundle", bundle)
    assert stage == "runtime"
    assert "No module named" in message


@pytest.mark.parametrize("path", sorted(RUNNERS.glob("*.py")), ids=lambda path: path.name)
def test_the_python_runner_is_python_38(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_the_c_runner_finds_exactly_one_library(c_runner: Runner, bundle: Path) -> None:
    (library,) = (bundle / "runtime").iterdir()
    (bundle / "runtime" / "libonnxruntime.so.1").symlink_to(library.name)
    stage, message = c_runner.bad("--bundle", bundle)
    assert stage == "runtime"
    assert "more than one libonnxruntime.so*" in message
    assert c_runner.good("--bundle", bundle, "--check-only", "--library", library)
    shutil.rmtree(bundle / "runtime")
    assert "holds no libonnxruntime.so*" in c_runner.bad("--bundle", bundle)[1]


@pytest.mark.parametrize(
    ("library", "message"),
    [("/nonexistent.so", "cannot open the runtime"), ("libc.so.6", "is no ONNX Runtime")],
)
def test_the_c_runner_wants_a_real_library(
    c_runner: Runner, bundle: Path, library: str, message: str
) -> None:
    stage, found = c_runner.bad("--bundle", bundle, "--library", library)
    assert stage == "runtime"
    assert message in found


def test_the_c_runner_refuses_a_model_that_is_no_file(c_runner: Runner, bundle: Path) -> None:
    (bundle / "model.onnx").unlink()
    (bundle / "model.onnx").mkdir()
    assert c_runner.bad("--bundle", bundle)[0] == "load"
