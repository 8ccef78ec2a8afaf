"""The browser bundle's runner under Node: the very .mjs and .wasm that ship are what runs."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from edge import process, protocol, samples
from edge.tools import web_runtime
from tests.support import need

TEMPLATE = Path(__file__).resolve().parent.parent / "templates" / "browser"
SHORT = ("--warmup-ns", "0", "--warmup", "3", "--warmup-limit-ns", "2000000000",
         "--min-ns", "0", "--iterations", "120")  # fmt: skip
Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


@pytest.fixture(scope="session")
def node() -> Path:
    return need("node")


def _weights(name: str, *shape: int) -> TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def make_model(path: Path) -> None:
    """x (batch, 4), a scalar, bools and int64 in; floats, int64, bool, a scalar, float16 and an
    output whose shape depends on the data out."""
    value, types = helper.make_tensor_value_info, TensorProto
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Gemm", ["x", "w1", "b1"], ["h"]),
            node("Relu", ["h"], ["r"]),
            node("Gemm", ["r", "w2", "b2"], ["g"]),
            node("Mul", ["g", "scale"], ["scores"]),
            node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
            node("Add", ["best", "ids"], ["label"]),
            node("Greater", ["scores", "scale"], ["above"]),
            node("ReduceMean", ["scores"], ["mean"], keepdims=0),
            node("And", ["above", "mask"], ["chosen"]),
            node("NonZero", ["chosen"], ["places"]),
            node("Cast", ["scores"], ["half"], to=types.FLOAT16),
        ],
        "mlp",
        [value("x", types.FLOAT, ["batch", 4]), value("scale", types.FLOAT, []),
         value("mask", types.BOOL, [3]), value("ids", types.INT64, ["batch"])],
        [value("scores", types.FLOAT, ["batch", 3]), value("label", types.INT64, ["batch"]),
         value("above", types.BOOL, ["batch", 3]), value("mean", types.FLOAT, []),
         value("places", types.INT64, [2, "n"]), value("half", types.FLOAT16, ["batch", 3])],
        [_weights("w1", 4, 16), _weights("b1", 16), _weights("w2", 16, 3), _weights("b2", 3)],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def make_inputs() -> list[Arrays]:
    rng = np.random.default_rng(7)
    return [
        {
            "x": rng.standard_normal((batch, 4)).astype(np.float32),
            "scale": np.array(0.5, np.float32),
            "mask": np.array([True, False, True]),
            "ids": np.arange(batch, dtype=np.int64) + 2**62,
        }
        for batch in (1, 3)
    ]


def golden(model: Path, inputs: list[Arrays]) -> list[tuple[Arrays, Arrays]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    runs = [session.run(names, feed) for feed in inputs]
    return [
        (feed, {name: np.asarray(value) for name, value in zip(names, run, strict=True)})
        for feed, run in zip(inputs, runs, strict=True)
    ]


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle folder without its runtime: artifact, samples, runner."""
    folder = tmp_path_factory.mktemp("browser") / "bundle"
    folder.mkdir()
    make_model(folder / "model.onnx")
    samples.write(folder / "samples", golden(folder / "model.onnx", make_inputs()))
    shutil.copytree(TEMPLATE / "runner", folder / "runner")
    return folder


@pytest.fixture
def bundle(pristine: Path, onnxruntime_web: Path, tmp_path: Path) -> Path:
    """A bundle of its own for each test; the runtime is linked, it is 14 MB."""
    folder = tmp_path / "bundle"
    shutil.copytree(pristine, folder)
    for member in web_runtime.provider("wasm").members:
        place = folder / web_runtime.bundle_path(member)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(onnxruntime_web / "dist" / Path(member).name)
    return folder


def run(node: Path, folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and parsed lines; the runner prints nothing else."""
    program = folder / "runner" / "node_runner.mjs"
    argv: list[str | Path] = [node, program, "--bundle", folder, *words]
    done = process.run(argv, timeout=120, check=False)
    if done.returncode == 0 and "--version" not in words:
        protocol.parse(done.stdout)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def refused(node: Path, folder: Path, *words: str) -> tuple[str, str]:
    """Stage and message of a run that has to fail, the error line being its last."""
    code, lines = run(node, folder, "--check-only", *words)
    assert code == 1
    assert [line["event"] for line in lines].index("error") == len(lines) - 1
    return lines[-1]["stage"], lines[-1]["message"]


def write_manifest(folder: Path) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [
        {
            "path": path.relative_to(folder).as_posix(),
            "role": "app",
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in paths
    ]
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "files": files}))


# ------------------------------------------------------------------------------ good runs
@pytest.mark.node
def test_every_event_of_the_protocol_comes_in_order(node: Path, bundle: Path) -> None:
    code, lines = run(node, bundle, *SHORT)
    events = [line["event"] for line in lines]
    assert code == 0
    assert events == (
        ["env", "load", "first"] + ["output"] * 12 + ["warmup", "sample", "sample", "memory", "end"]
    )
    env, load, first = lines[:3]
    assert env["protocol"] == 1
    assert (env["runner"], env["runtime"], env["version"]) == ("js", "onnxruntime", "1.30.0")
    assert (env["threads"], env["optimization"]) == (1, "disabled")
    assert env["provider"] == "CPUExecutionProvider"
    assert load["ns"] > 1_000_000  # 14 MB of WebAssembly are compiled in it
    assert 0 < first["ns"] < load["ns"]


@pytest.mark.node
def test_figures_of_the_timed_loop_fit_together(node: Path, bundle: Path) -> None:
    _, lines = run(node, bundle, *SHORT)
    warmup, *chunks, memory, end = lines[15:]
    times = [ns for chunk in chunks for ns in chunk["ns"]]
    assert [len(chunk["ns"]) for chunk in chunks] == [100, 20]
    assert all(isinstance(ns, int) and ns > 0 for ns in times)
    assert warmup["runs"] >= 3
    assert end["runs"] == 120
    assert sum(times) <= end["wall_ns"] * 1.001
    assert end["cpu_ns"] > 0
    assert end["involuntary_switches"] >= 0
    assert memory["peak_bytes"] >= memory["load_peak_bytes"] > memory["wasm_bytes"] > 2**20


@pytest.mark.node
def test_outputs_are_those_of_python(node: Path, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    _, lines = run(node, bundle, "--check-only", "--output", str(tmp_path / "out"))
    told = [line for line in lines if line["event"] == "output"]
    wanted = [t for t in samples.read_index(bundle / "samples") if t.role == "output"]
    assert [(line["name"], line["file"]) for line in told] == [(t.name, t.file) for t in wanted]
    for line, tensor in zip(told, wanted, strict=True):
        data = (tmp_path / "out" / line["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == line["sha256"]
        assert (line["dtype"], tuple(line["shape"])) == (tensor.dtype, tensor.shape)
        actual = samples.read_tensor(tmp_path / "out", tensor)
        expected = samples.read_tensor(bundle / "samples", tensor)
        if tensor.dtype == "float16":
            np.testing.assert_allclose(actual, expected, rtol=2e-3)  # one step of binary16
        else:
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.node
def test_check_only_measures_nothing(node: Path, bundle: Path) -> None:
    _, lines = run(node, bundle, "--check-only")
    events = [line["event"] for line in lines]
    assert events == ["env", "load", "first"] + ["output"] * 12 + ["memory", "end"]
    assert lines[-1]["runs"] == 0
    assert {line["file"] for line in lines if line["event"] == "output"} == {None}


@pytest.mark.node
def test_ort_format_is_loaded_as_it_is(node: Path, bundle: Path) -> None:
    (bundle / "model.onnx").rename(bundle / "source.onnx")
    to_ort_format(bundle / "source.onnx", bundle / "model.ort")
    code, lines = run(node, bundle, "--check-only", "--optimization", "all")
    assert code == 0
    assert lines[0]["optimization"] == "disabled"  # it was optimized when it was made


def to_ort_format(model: Path, target: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(target)
    # Higher levels would bake this machine's layouts in, which WebAssembly has no kernels for.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.mark.node
@pytest.mark.parametrize("level", ["basic", "all"])
def test_the_level_of_an_onnx_file_is_given(node: Path, bundle: Path, level: str) -> None:
    code, lines = run(node, bundle, "--check-only", "--optimization", level)
    assert (code, lines[0]["optimization"]) == (0, level)


@pytest.mark.node
def test_a_manifest_that_fits_is_fine(node: Path, bundle: Path) -> None:
    write_manifest(bundle)
    assert run(node, bundle, "--check-only")[0] == 0


@pytest.mark.node
def test_the_module_and_its_wasm_may_come_from_elsewhere(
    node: Path, bundle: Path, onnxruntime_web: Path
) -> None:
    shutil.rmtree(bundle / "runtime")
    library = onnxruntime_web / "dist" / "ort.wasm.min.mjs"
    assert run(node, bundle, "--check-only", "--library", str(library))[0] == 0


@pytest.mark.node
def test_version_is_one_line(node: Path, bundle: Path) -> None:
    expected = {"event": "version", "protocol": 1, "runner": "js"}
    assert run(node, bundle, "--version") == (0, [expected])


# ----------------------------------------------------------------------------- refusals
@pytest.mark.node
@pytest.mark.parametrize(
    ("words", "stage", "said"),
    [
        (("--nonsense",), "arguments", 'unknown argument "--nonsense"'),
        (("stray",), "arguments", 'unknown argument "stray"'),
        (("--iterations",), "arguments", "--iterations needs a value"),
        (("--iterations", "0"), "arguments", "count from 1"),
        (("--iterations", "-5"), "arguments", "needs a whole number"),
        (("--min-ns", "1e9"), "arguments", "needs a whole number"),
        (("--optimization", "most"), "arguments", "--optimization is one of"),
        (("--threads", "2"), "arguments", "one thread"),
        (("--profile", "p"), "arguments", "no profile"),
        (("--provider", "WebGpuExecutionProvider"), "runtime", "no provider"),
        (("--bundle", "/nowhere"), "bundle", "cannot read the bundle: ENOENT"),
        (("--library", "/nowhere/ort.mjs"), "bundle", "ENOENT"),
        (("--output", "/nowhere"), "output", "ENOENT"),
    ],
)
def test_wrong_arguments(
    node: Path, bundle: Path, words: tuple[str, ...], stage: str, said: str
) -> None:
    found, message = refused(node, bundle, *words)
    assert (found, said in message) == (stage, True), message


@pytest.mark.node
def test_an_artifact_too_many_or_too_few(node: Path, bundle: Path) -> None:
    shutil.copy(bundle / "model.onnx", bundle / "model.ort")
    assert refused(node, bundle)[1].startswith("the bundle has 2 artifacts")
    (bundle / "model.ort").unlink()
    (bundle / "model.onnx").unlink()
    assert refused(node, bundle)[1].startswith("the bundle has 0 artifacts")


@pytest.mark.node
@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x09" + bytes(200)])
def test_a_corrupted_model(node: Path, bundle: Path, content: bytes) -> None:
    (bundle / "model.onnx").write_bytes(content)
    stage, message = refused(node, bundle)
    assert stage == "load"
    assert message


@pytest.mark.node
def test_a_truncated_ort_file(node: Path, bundle: Path) -> None:
    to_ort_format(bundle / "model.onnx", bundle / "model.ort")
    (bundle / "model.onnx").unlink()
    data = (bundle / "model.ort").read_bytes()
    (bundle / "model.ort").write_bytes(data[: len(data) // 2])
    assert refused(node, bundle)[0] == "load"


@pytest.mark.node
def test_a_wasm_that_is_none(node: Path, bundle: Path) -> None:
    wasm = bundle / "runtime" / "ort-wasm-simd-threaded.wasm"
    wasm.unlink()
    wasm.write_bytes(b"\0asm and then nonsense")
    stage, message = refused(node, bundle)
    assert stage == "runtime"
    assert "no available backend found" in message


@pytest.mark.node
@pytest.mark.parametrize("change", [-1, 1])
def test_a_sample_of_another_size(node: Path, bundle: Path, change: int) -> None:
    path = bundle / "samples" / "000.input.0.bin"
    path.write_bytes(bytes(path.stat().st_size + change))
    stage, message = refused(node, bundle)
    assert stage == "bundle"
    assert re.search(rf"samples/000\.input\.0\.bin holds {16 + change} bytes", message)


@pytest.mark.node
@pytest.mark.parametrize(
    "path", ["samples/001.output.0.bin", "model.onnx", "samples/samples.tsv",
             "runtime/ort.wasm.bundle.min.mjs"],
)  # fmt: skip
def test_a_file_with_another_hash(node: Path, bundle: Path, path: str) -> None:
    write_manifest(bundle)
    data = (bundle / path).read_bytes()
    (bundle / path).unlink()
    (bundle / path).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert refused(node, bundle) == ("bundle", f"{path} is not the file that manifest.json lists")


@pytest.mark.node
def test_a_file_that_the_manifest_does_not_list(node: Path, bundle: Path) -> None:
    (bundle / "manifest.json").write_text('{"schema": 1, "files": []}')
    assert refused(node, bundle) == ("bundle", "manifest.json does not list samples/samples.tsv")


@pytest.mark.node
@pytest.mark.parametrize("text", ["{", "[]", "null", '{"schema": 2, "files": []}', '{"schema": 1}'])
def test_a_manifest_that_is_none(node: Path, bundle: Path, text: str) -> None:
    (bundle / "manifest.json").write_text(text)
    stage, message = refused(node, bundle)
    assert stage == "bundle"
    assert message.startswith("manifest.json is no manifest: ")


@pytest.mark.node
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "", "lists no sample"),
        (lambda text: re.sub("1\tinput\t0.*\n", "", text), "sample 1 lacks the inputs x"),
        (lambda text: text.replace("\tscale\n", "\tsize\n"), "inputs that the model has not: size"),
        (lambda text: text.replace("\tmean\n", "\tmeans\n"), "outputs that the model has not"),
        (lambda text: re.sub("(?m)^1\t", "2\t", text), "has no sample 1"),
        (lambda text: text + text, "twice"),
        (lambda text: text * 1000, "more than 10000 tensors"),
    ],
)
def test_samples_that_do_not_fit_the_model(
    node: Path, bundle: Path, change: Any, said: str
) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_text(change(index.read_text()))
    stage, message = refused(node, bundle)
    assert stage == "bundle"
    assert said in message


@pytest.mark.node
def test_an_index_that_is_not_utf8(node: Path, bundle: Path) -> None:
    (bundle / "samples" / "samples.tsv").write_bytes(b"0\tinput\t0\tint8\t1\tf\t\xff\n")
    assert refused(node, bundle) == ("bundle", "samples/samples.tsv is not UTF-8")


@pytest.mark.node
def test_a_wrong_dtype_fails_in_the_run(node: Path, bundle: Path) -> None:
    index = bundle / "samples" / "samples.tsv"
    index.write_text(index.read_text().replace("0\tinput\t0\tfloat32", "0\tinput\t0\tint32"))
    stage, message = refused(node, bundle)
    assert stage == "run"
    assert "Unexpected input data type" in message
