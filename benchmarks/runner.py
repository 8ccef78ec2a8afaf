"""The C runner's p50 against Python's ``session.run`` and ``run_with_iobinding``.

The same artifact (the linux-x64 bundle of ``edge build``), sample 0, one thread. A round is a
fresh process of the C runner and a fresh one of Python, in turn; Python's two ways also take
turns in being first. Ratios are of the two medians of a round, their interval is from edge.stats.

    python benchmarks/runner.py [ROUNDS] [PP-OCR_CLS.onnx]
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

from edge import errors, log, process, protocol, samples, stats

ROOT = process.PACKAGE_PARENT
C, RUN, BINDING = WAYS = ("C runner", "session.run", "run_with_iobinding")
ROUNDS = 30  # below that edge.stats gives no interval
LOOP_NS = WARM_NS = 60_000_000  # of each loop
LEAST = 10  # runs of a loop, however long they take
PPM = 1_000_000  # edge.stats takes integers

MAGIKA = """[models.magika]
source = "pkg:magika/models/standard_v3_3/model.onnx"
inputs.bytes = {shape = [1, 2048], range = [0, 256]}
"""
CLS = """[models.ppocr-cls]
source = "cls.onnx"
inputs.x = {shape = [1, 3, 48, 192]}
"""


@dataclass(frozen=True)
class Round:
    """The timed runs of each way, ns, in the order of ``WAYS``."""

    loops: tuple[tuple[int, ...], ...]

    def ratio(self, way: str, other: str) -> float:
        """Median of one way over that of another."""
        one, two = (median(self.loops[WAYS.index(each)]) for each in (way, other))
        return float(one / two)


def c_loop(bundle: Path, *more: str) -> tuple[tuple[int, ...], list[str]]:
    """Timed runs (ns) of a fresh C runner; runtime's version and SHA-256 of sample 0's outputs.

    ``more`` are further arguments of the runner.
    """
    warm = ["--warmup-ns", str(WARM_NS), "--warmup-limit-ns", str(WARM_NS)]
    timed = ["--iterations", str(LEAST), "--min-ns", str(LOOP_NS), "--threads", "1"]
    words = [str(bundle / "runner" / "edge_runner"), "--bundle", str(bundle), *warm, *timed, *more]
    run = protocol.parse(process.run(words, timeout=120).stdout)
    hashes = [output.sha256 for output in run.outputs if output.sample == 0]
    return run.samples_ns, [run.env.version, *hashes]


def python_loops(bundle: Path, order: Sequence[str]) -> dict[str, Any]:
    """The same from Python, called in a fresh process: runs by way, and ``what`` was run."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # As the C runner does: the artifact was optimized at build.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        str(bundle / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    folder = bundle / "samples"
    first = [t for t in samples.read_index(folder) if (t.sample, t.role) == (0, "input")]
    feed = {tensor.name: samples.read_tensor(folder, tensor) for tensor in first}
    outputs = session.run(None, feed)
    binding = session.io_binding()
    for name, values in feed.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(values))
    for output, values in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(output.name, ort.OrtValue.ortvalue_from_numpy(values))
    calls: dict[str, Callable[[], object]] = {
        RUN: lambda: session.run(None, feed),
        BINDING: lambda: session.run_with_iobinding(binding),
    }
    hashes = [hashlib.sha256(values.tobytes()).hexdigest() for values in outputs]
    return {"what": [ort.__version__, *hashes], **{way: timed(calls[way]) for way in order}}


def timed(call: Callable[[], object]) -> list[int]:
    """Runs (ns) of at least ``LOOP_NS`` in all, after a warm-up; one call between two readings."""
    found: list[int] = []
    for length in (WARM_NS, LOOP_NS):
        found = []
        until = perf_counter_ns() + length
        while len(found) < LEAST or perf_counter_ns() < until:
            start = perf_counter_ns()
            call()
            found.append(perf_counter_ns() - start)
    return found


def one_round(bundle: Path, number: int) -> Round:
    """Both processes; refuses to compare other releases, or runs that computed other things."""
    order = (RUN, BINDING) if number % 2 else (BINDING, RUN)
    from_c, what = c_loop(bundle)
    call = {"bundle": bundle, "order": order}
    found = process.run_python("benchmarks.runner:python_loops", call, timeout=120)
    if found["what"] != what:
        raise errors.RunFailed(f"C ran {what}, Python {found['what']} (release, output hashes)")
    return Round((from_c, tuple(found[RUN]), tuple(found[BINDING])))


def build(folder: Path, cls: Path | None) -> list[Path]:
    """The linux-x64 bundles of the models, built in ``folder``."""
    if cls:
        (folder / "cls.onnx").write_bytes(cls.read_bytes())
    (folder / "edge.toml").write_text(MAGIKA + (CLS if cls else ""))
    words = [sys.executable, str(ROOT / "build.py"), "--target", "linux-x64"]
    process.run(words, cwd=folder, env={**os.environ, "CI": "1"}, timeout=600)
    return sorted(folder.glob("dist/*/*/linux-x64"))


def show(bundle: Path, rounds: Sequence[Round]) -> None:
    """A table of one model: each way's p50, and the C runner's ratio to it."""
    print(f"\n{bundle.parent.parent.name}, {len(rounds)} rounds, brackets: 95 % interval")
    print(f"{'':20}{'p50':>10}{'':22}C runner / this, pair by pair")
    for place, way in enumerate(WAYS):
        loops = [each.loops[place] for each in rounds]
        middle = median(ns for loop in loops for ns in loop)
        around = interval(stats.median_interval(loops), log.human_ns)
        ratios = [each.ratio(C, way) for each in rounds]
        inside = stats.median_interval([[round(ratio * PPM) for ratio in ratios]])
        text = f"{median(ratios):.3f} {interval(inside, lambda ppm: f'{ppm / PPM:.3f}')}"
        print(f"{way:20}{log.human_ns(middle):>10} {around:21}{'' if way == C else text}")


def interval(found: tuple[float, float] | None, shown: Callable[[float], str]) -> str:
    """``[low, high]``, or why there is none."""
    return f"[{shown(found[0])}, {shown(found[1])}]" if found else "[too few rounds]"


def main() -> None:
    """Build, measure and print a table a model."""
    import onnxruntime

    words = sys.argv[1:]
    rounds = int(words.pop(0)) if words and words[0].isdigit() else ROUNDS
    print(f"Python {sys.version.split()[0]}, onnxruntime {onnxruntime.__version__}")
    with tempfile.TemporaryDirectory() as place:
        for bundle in build(Path(place), Path(words[0]) if words else None):
            show(bundle, [one_round(bundle, number) for number in range(rounds)])


if __name__ == "__main__":
    main()
