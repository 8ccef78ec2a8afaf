"""Bench: the health run, what is fetched, what is refused, and a whole measurement."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import bench, errors, process, samples
from edge.bench import BenchOptions, Checked, Release, check
from edge.parity import Tolerance
from edge.process import Completed

CPU = "CPUExecutionProvider"
RUNNER = ("/opt/edge/runner/edge_runner",)
FOLDER = "/opt/edge/current"
GOLDEN = ({"x": np.ones((1, 2), "f4")}, {"y": np.array([[0.5, 2.0]], "f4")})
TIGHT = Tolerance(max_abs=1e-4)
OUTPUT = {
    "event": "output", "sample": 0, "index": 0, "name": "y", "dtype": "float32", "shape": [1, 2],
}  # fmt: skip


@dataclass
class FakeDevice:
    """Replays a runner: ``outputs`` are (event, bytes written) pairs, ``env`` overrides."""

    outputs: list[tuple[dict[str, Any], bytes]]
    env: dict[str, Any] = field(default_factory=dict)
    samples: tuple[int, ...] = (1000, 1010) * 50
    profile: Any = None
    returncode: int = 0
    stderr: str = ""
    cut: int | None = None  # events printed before the process died
    calls: list[list[str]] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        self.calls.append(list(argv))
        self.timeouts.append(timeout)
        text = self._told(list(argv))
        return Completed(tuple(argv), self.returncode, text, self.stderr, 0.1)

    def make_folder(self, path: str) -> None:
        self.calls.append(["make", path])

    def remove_folder(self, path: str) -> None:
        self.calls.append(["remove", path])

    def _told(self, argv: list[str]) -> str:
        def value(name: str) -> str:
            return argv[argv.index(name) + 1] if name in argv else ""

        env = {
            "event": "env", "protocol": 1, "runner": "c", "runtime": "onnxruntime",
            "version": "1.32.0", "arch": "aarch64", "os": "linux",
            "threads": int(value("--threads")), "provider": value("--provider"),
            "optimization": value("--optimization"),
        }  # fmt: skip
        events = [env | self.env, {"event": "load", "ns": 500}, {"event": "first", "ns": 90}]
        for event, data in self.outputs:
            file = f"{event['sample']:03d}.output.{event['index']}.bin"
            digest = {"sha256": hashlib.sha256(data).hexdigest()}
            events.append(digest | event | {"file": file if value("--output") else None})
        timed = () if "--check-only" in argv else self.samples
        if timed:
            events.append({"event": "warmup", "runs": 20, "ns": 500, "stable": True})
            events += [{"event": "sample", "ns": timed[n : n + 100]}
                       for n in range(0, len(timed), 100)]  # fmt: skip
        events.append({"event": "memory", "peak_bytes": 4096, "load_peak_bytes": -1})
        if "--profile" in argv and self.profile is not None:
            events.append({"event": "profile", "file": value("--profile") + ".json"})
        events.append({"event": "end", "runs": len(timed), "wall_ns": sum(timed),
                       "cpu_ns": sum(timed), "involuntary_switches": 0})  # fmt: skip
        return "".join(json.dumps(event) + "\n" for event in events[: self.cut])

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        self.fetched.append(remote)
        name = remote.rpartition("/")[2]
        files = {f"{e['sample']:03d}.output.{e['index']}.bin": data for e, data in self.outputs}
        data = json.dumps(self.profile).encode() if name == "profile.json" else files[name]
        if len(data) > limit:
            raise errors.RunFailed(f"{remote} has more than {limit} bytes")
        local.write_bytes(data)


def giving(*values: float, **changes: Any) -> FakeDevice:
    data = np.array([values], "f4").tobytes()
    return FakeDevice([(OUTPUT | changes, data)])


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    samples.write(tmp_path / "samples", [GOLDEN])
    return tmp_path / "samples"


def checked(
    device: FakeDevice, golden: Path, tolerance: Tolerance = TIGHT, **options: Any
) -> Checked:
    return check(device, FOLDER, RUNNER, golden, tolerance, BenchOptions(**options))


def failed(device: FakeDevice, golden: Path, tolerance: Tolerance = TIGHT) -> str:
    with pytest.raises(errors.ParityFailed) as caught:
        checked(device, golden, tolerance)
    assert caught.value.remedy
    return caught.value.message


# --------------------------------------------------------------------------- health run
def test_outputs_with_the_golden_hash_are_not_fetched(golden: Path) -> None:
    device = giving(0.5, 2.0)
    found = checked(device, golden)
    assert (found.fetched, device.fetched) == (0, [])
    assert found.outputs[0].exact
    assert (found.outputs[0].name, found.providers) == ("y", {})


def test_outputs_within_tolerance_are_fetched_and_measured(golden: Path) -> None:
    device = giving(0.50005, 2.0)
    found = checked(device, golden)
    assert found.fetched == len(device.fetched) == 1
    assert found.outputs[0].max_abs == pytest.approx(5e-5, rel=1e-2)


def test_the_runner_is_asked_in_the_protocols_words(golden: Path) -> None:
    device = giving(0.5, 2.0)
    checked(device, golden, threads=4, timeout=77.0, scratch="/tmp/s/")
    made, asked, removed = device.calls
    folder = made[-1]
    assert made == ["make", folder]
    assert folder.startswith("/tmp/s.check-")
    assert asked == [
        *RUNNER, "--bundle", FOLDER, "--threads", "4", "--provider", CPU,
        "--optimization", "disabled", "--output", folder, "--check-only",
    ]  # fmt: skip
    assert removed == ["remove", folder]
    assert device.timeouts == [77.0]


def test_another_result_names_sample_output_and_figures(golden: Path) -> None:
    message = failed(giving(0.6, 2.0), golden)
    assert "sample 0, output 0 'y': max_abs 1.00e-01 > 0.0001" in message


def test_nan_is_never_within_tolerance(golden: Path) -> None:
    message = failed(giving(float("nan"), 2.0), golden, Tolerance(max_abs=1e30))
    assert "NaN: 1, expected 0" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"index": 1}, "sample 0, output 0 is missing (and 1 more)"),
        ({"name": "z"}, "is called 'z', not 'y'"),
        ({"dtype": "int32"}, "dtype int32, not float32"),
        ({"shape": [2, 1]}, "shape [2, 1], not [1, 2]"),
        ({"shape": [100, 100]}, "shape [100, 100], not [1, 2]"),
    ],
)
def test_structure_is_said(golden: Path, changes: dict[str, Any], words: str) -> None:
    device = giving(0.5, 2.0, **changes)
    assert words in failed(device, golden)
    assert device.fetched == []  # nothing that could not be right anyway


def test_an_added_output_is_a_failure(golden: Path) -> None:
    device = giving(0.5, 2.0)
    device.outputs.append((OUTPUT | {"sample": 1}, b"\0" * 8))
    assert "sample 1, output 0 is not expected" in failed(device, golden)


def test_the_worst_output_comes_first(tmp_path: Path) -> None:
    outputs = {name: np.array([1, 2], "f4") for name in ("a", "b")}
    samples.write(tmp_path, [({"x": np.zeros(1, "f4")}, outputs)])
    events = [OUTPUT | {"index": n, "name": name, "shape": [2]} for n, name in enumerate("ab")]
    wrong = [np.array([1.1, 2], "f4").tobytes(), np.array([5, 2], "f4").tobytes()]
    message = failed(FakeDevice(list(zip(events, wrong, strict=True))), tmp_path)
    assert "output 1 'b': max_abs 4.00e+00" in message
    assert "(and 1 more)" in message


# --------------------------------------------------------------------- what is not believed
def test_a_file_that_is_not_what_was_hashed_is_refused(golden: Path) -> None:
    with pytest.raises(errors.RunFailed, match="not what the runner wrote"):
        checked(giving(0.5, 2.1, sha256="00" * 32), golden)


def test_a_file_larger_than_its_shape_is_not_taken(golden: Path) -> None:
    device = giving(0.5, 2.1)
    device.outputs[0] = (OUTPUT, b"\0" * 1000)
    with pytest.raises(errors.RunFailed, match="more than 8 bytes"):
        checked(device, golden)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"provider": "XnnpackExecutionProvider"}, "asked for the provider CPUExecutionProvider"),
        ({"threads": 4}, "asked for the number of threads 1 and took 4"),
    ],
)
def test_a_runner_that_did_something_else_is_refused(
    golden: Path, env: dict[str, Any], words: str
) -> None:
    device = replace(giving(0.5, 2.0), env=env)
    with pytest.raises(errors.RunFailed, match=words):
        checked(device, golden)


def test_a_crash_tells_how_the_process_ended(golden: Path) -> None:
    device = replace(giving(0.5, 2.0), cut=2, returncode=-11, stderr="oh\x1b[31m no\n")
    with pytest.raises(errors.RunFailed) as caught:
        checked(device, golden)
    assert "without its 'first' event; the runner ended with signal 11 (SIGSEGV)" in str(
        caught.value
    )
    assert "oh\\x1b[31m no" in str(caught.value)
    assert device.calls[-1][0] == "remove"  # the folder goes even so


def test_a_failure_after_the_end_is_a_failure(golden: Path) -> None:
    device = replace(giving(0.5, 2.0), returncode=3)
    with pytest.raises(errors.RunFailed, match="exit code 3 after it had reported success"):
        checked(device, golden)


def test_a_folder_without_golden_outputs_checks_nothing_and_fails(tmp_path: Path) -> None:
    samples.write(tmp_path, [(GOLDEN[0], {})])
    with pytest.raises(errors.RunFailed, match="no golden outputs"):
        bench.compare_folders(tmp_path, {}, TIGHT)


def test_a_golden_file_that_is_gone_is_told(golden: Path) -> None:
    (golden / "000.output.0.bin").unlink()
    with pytest.raises(errors.RunFailed, match=r"cannot read .*000\.output\.0\.bin"):
        checked(giving(0.5, 2.0), golden)


# ------------------------------------------------------------------------------ profile
XNNPACK = "XnnpackExecutionProvider"


def profile_of(*providers: str) -> list[dict[str, Any]]:
    return [
        {"name": f"n{n}", "dur": 10 * (n + 1), "args": {"provider": name}}
        for n, name in enumerate(providers)
    ]


def test_a_profile_counts_the_nodes(golden: Path) -> None:
    device = replace(giving(0.5, 2.0), profile=profile_of(CPU, CPU))
    assert checked(device, golden, profile=True).providers == {CPU: (2, 30_000, 1.0, 1.0)}


@pytest.mark.parametrize(
    ("provider", "profiled"),
    [(CPU, False), ("openvino:CPU", False), ("tensorrt-rtx", False), ("wasm", False),
     (XNNPACK, True), ("OpenVINOExecutionProvider", True), ("CUDAExecutionProvider", True)],
)  # fmt: skip
def test_what_nodes_may_fall_back_from_is_always_profiled(
    golden: Path, provider: str, profiled: bool
) -> None:
    device = replace(giving(0.5, 2.0), profile=profile_of(provider))
    found = checked(device, golden, provider=provider)
    assert ("--profile" in device.calls[1]) == profiled
    assert list(found.providers) == [provider] * profiled


def test_a_target_may_ask_for_less_than_all(golden: Path) -> None:
    device = replace(giving(0.5, 2.0), profile=profile_of(CPU, XNNPACK, XNNPACK))
    asked: dict[str, Any] = {"provider": XNNPACK, "least_nodes": 0.6, "least_time": 0.8}
    assert checked(device, golden, **asked).providers[XNNPACK].time_share == pytest.approx(5 / 6)
    for more in ({"least_nodes": 0.7}, {"least_time": 0.9}):
        with pytest.raises(errors.RunFailed, match="nodes ran like this: 1 nodes"):
            checked(device, golden, **asked | more)


def test_the_cache_is_named_in_every_run(golden: Path) -> None:
    device = giving(0.5, 2.0)
    measured(device, golden, repeats=1, cache="edgewright/cache")
    runs = [call for call in device.calls if call[0] == RUNNER[0]]
    assert [call[call.index("--cache") + 1] for call in runs] == ["edgewright/cache"] * 2


@pytest.mark.parametrize("ran", [(CPU,), (XNNPACK, CPU), ()])
def test_nodes_on_another_provider_are_a_failure(golden: Path, ran: tuple[str, ...]) -> None:
    device = replace(giving(0.5, 2.0), profile=profile_of(*ran))
    with pytest.raises(errors.RunFailed, match="nodes ran like this"):
        checked(device, golden, provider=XNNPACK)


def test_a_profile_that_is_not_written_is_a_failure(golden: Path) -> None:
    with pytest.raises(errors.RunFailed, match="wrote no profile"):
        checked(giving(0.5, 2.0), golden, profile=True)


# -------------------------------------------------------------------------- measurement
def measured(device: FakeDevice, golden: Path, *contexts: Any, **options: Any) -> bench.Measurement:
    told = iter(contexts or ({}, {}))
    release = Release(FOLDER, RUNNER, golden, TIGHT)
    return bench.bench(device, release, lambda: next(told), BenchOptions(**options))


def test_a_measurement_is_a_check_and_fresh_processes(golden: Path) -> None:
    device = giving(0.5, 2.0)
    found = measured(device, golden, {"temperature": 40}, {"temperature": 50}, repeats=2)
    assert [call[0] for call in device.calls] == ["make", RUNNER[0], "remove", RUNNER[0], RUNNER[0]]
    assert (found.before, found.after) == ({"temperature": 40}, {"temperature": 50})
    assert [loop.samples_ns for loop in found.loops] == [device.samples] * 2
    assert (found.summary.runs, found.summary.median_ns) == (200, 1005)
    assert (found.load_ns, found.first_ns, found.peak_bytes) == (500, 90, 4096)
    assert found.verdict.kind == "valid"
    assert found.deterministic


def test_timed_runs_are_asked_for_in_nanoseconds(golden: Path) -> None:
    device = giving(0.5, 2.0)
    options = {"warmup": 5, "warmup_seconds": 0.25, "iterations": 200, "min_seconds": 1.5}
    measured(device, golden, repeats=1, max_seconds=20.0, timeout=100.0, **options)
    assert device.calls[-1] == [
        *RUNNER, "--bundle", FOLDER, "--threads", "1", "--provider", CPU,
        "--optimization", "disabled", "--warmup", "5", "--warmup-ns", "250000000",
        "--warmup-limit-ns", "10000000000", "--iterations", "200", "--min-ns", "1500000000",
        "--max-ns", "20000000000",
    ]  # fmt: skip
    assert device.timeouts[-1] == 130.0


def test_quick_is_one_process_of_thirty_runs(golden: Path) -> None:
    device = replace(giving(0.5, 2.0), samples=(1000,) * 30)
    found = measured(device, golden, quick=True)
    assert (found.options.iterations, found.options.min_seconds, len(found.runs)) == (30, 0.0, 1)
    assert (found.summary.p90_ns, found.summary.low_ns) == (None, 1000)


def test_a_wrong_result_is_not_timed(golden: Path) -> None:
    device = giving(0.7, 2.0)
    with pytest.raises(errors.ParityFailed):
        measured(device, golden)
    assert [call[0] for call in device.calls] == ["make", RUNNER[0], "remove"]


def test_a_timed_run_without_samples_is_a_failure(golden: Path) -> None:
    with pytest.raises(errors.RunFailed, match="no timed samples"):
        measured(replace(giving(0.5, 2.0), samples=()), golden)


def test_throttling_is_in_the_verdict(golden: Path) -> None:
    found = measured(giving(0.5, 2.0), golden, {"nr_throttled": 1}, {"nr_throttled": 4})
    assert found.verdict.kind == "throttled"
    assert "3 periods" in found.verdict.evidence[0]


def test_processes_with_other_outputs_are_told(golden: Path, monkeypatch: Any) -> None:
    device = giving(0.5, 2.0)
    told = device._told

    def changing(argv: list[str]) -> str:
        if len(device.calls) > 4:
            device.outputs = giving(0.5, 2.00001).outputs
        return told(argv)

    monkeypatch.setattr(device, "_told", changing)
    assert not measured(device, golden, repeats=2).deterministic


def test_memory_that_nobody_can_tell_is_none(golden: Path) -> None:
    found = measured(giving(0.5, 2.0), golden)
    runs = tuple(replace(run, memory=replace(run.memory, peak_bytes=-1)) for run in found.runs)
    assert replace(found, runs=runs).peak_bytes is None


# ------------------------------------------------------------------ the Python runner, here
class Here:
    """This machine, with the methods that bench uses."""

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        return process.run(argv, timeout=timeout, stdin=stdin, check=check)

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        data = Path(remote).read_bytes()
        assert len(data) <= limit
        local.write_bytes(data)

    def make_folder(self, path: str) -> None:
        Path(path).mkdir()

    def remove_folder(self, path: str) -> None:
        shutil.rmtree(path)


def write_model(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", sides[:1], sides[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, str(path))


@pytest.fixture
def release(tmp_path: Path) -> Release:
    write_model(tmp_path / "model.onnx")
    x = np.array([[0.5, -1.0]], "f4")
    samples.write(tmp_path / "samples", [({"x": x}, {"y": np.exp(x)})])
    runner = Path(__file__).parent.parent / "templates" / "runner" / "edge_runner.py"
    words = (sys.executable, str(runner))
    return Release(str(tmp_path), words, tmp_path / "samples", Tolerance(max_abs=1e-5))


@pytest.mark.process
def test_the_python_runner_is_measured_on_this_machine(release: Release) -> None:
    options = BenchOptions(
        warmup_seconds=0.0, iterations=60, min_seconds=0.0, repeats=2, profile=True
    )
    found = bench.bench(Here(), release, dict, options)
    assert found.checked.providers[CPU].nodes == 1
    assert found.checked.providers[CPU].node_share == found.checked.providers[CPU].time_share == 1
    assert found.checked.run.env.runner == "python"
    assert [len(run.samples_ns) for run in found.runs] == [60, 60]
    assert found.summary.low_ns is not None
    assert found.summary.low_ns <= found.summary.median_ns
    assert found.deterministic
    assert list(Path(release.folder).parent.glob("*.check-*")) == []


@pytest.mark.process
def test_the_python_runner_is_caught_computing_something_else(release: Release) -> None:
    wrong = np.array([[1.0, 2.0]], "f4")
    samples.write(release.golden, [({"x": np.array([[0.5, -1.0]], "f4")}, {"y": wrong})])
    with pytest.raises(errors.ParityFailed, match="output 0 'y': max_abs"):
        check(Here(), release.folder, release.runner, release.golden, release.tolerance)
