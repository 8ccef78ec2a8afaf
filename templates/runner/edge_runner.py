#!/usr/bin/env python3
"""Load a bundle's artifact with the device's own onnxruntime, run the golden samples, measure.

Prints JSON lines on standard output (runner protocol 1) and nothing else; the last line is "end"
or "error", and an error is a non-zero exit. Outputs are hashed and written here and compared on
the host. One file, Python 3.8 or newer, nothing but numpy and onnxruntime.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import os
import platform
import re
import statistics
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

PROTOCOL = 1
CPU = "CPUExecutionProvider"
DTYPES = {
    "float32": "tensor(float)",
    "float16": "tensor(float16)",
    "float64": "tensor(double)",
    "int8": "tensor(int8)",
    "uint8": "tensor(uint8)",
    "int16": "tensor(int16)",
    "uint16": "tensor(uint16)",
    "int32": "tensor(int32)",
    "uint32": "tensor(uint32)",
    "int64": "tensor(int64)",
    "uint64": "tensor(uint64)",
    "bool": "tensor(bool)",
}
FILE = re.compile(r"(?!\.*\Z)[0-9A-Za-z_.-]+\Z")
SHAPE = re.compile(r"(-|[0-9]{1,10}(x[0-9]{1,10})*)\Z")
SURROGATE = re.compile("[\ud800-\udfff]")
MAX_MESSAGE = 8000  # characters of an error message: readers bound their lines
MAX_RANK = 32
MAX_TENSORS = 10_000
MAX_INDEX_BYTES = 8 << 20
MAX_TENSOR_BYTES = 1 << 31
MAX_NUMBER = 10**18  # 31 years in nanoseconds
BLOCK = 10  # runs a warm-up median is taken of
LINE = 100  # timed samples printed on one line


class Failure(Exception):
    """What ends the run, with the stage that the error line names."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message


class Stage:
    """Whatever goes wrong inside becomes a :class:`Failure` of this stage.

    onnxruntime raises classes of its own that share no base but Exception.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Failure):
            raise Failure(self.name, str(error) or type(error).__name__) from error


# ---- JSON lines ---------------------------------------------------------------------------------


class Lines:
    """Standard output, ours alone: what libraries print there goes to standard error."""

    def __init__(self) -> None:
        self.stream: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def put(self, event: str, **fields: object) -> None:
        """Print one event, flushed: what was found stays known when the process dies later.

        In ASCII: no reader can take U+2028 for the end of the line.
        """
        for key, value in fields.items():
            if isinstance(value, str):  # bytes of an argument that are no UTF-8
                fields[key] = SURROGATE.sub("\ufffd", value)
        line = json.dumps({"event": event, **fields}, separators=(",", ":"))
        self.stream.write(line.encode() + b"\n")
        self.stream.flush()


# ---- arguments ----------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser that raises where argparse would print and exit."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        raise Failure("arguments", message)


def number(least: int, most: int = MAX_NUMBER) -> Callable[[str], int]:
    """Make a parser of plain numbers within limits."""

    def parse(text: str) -> int:
        plain = text.isascii() and text.isdigit() and len(text) < 20
        if not plain or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is no number from {least} to {most}")
        return int(text)

    return parse


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """The options of the protocol, times in nanoseconds."""
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--profile")
    parser.add_argument("--provider", default=CPU)
    levels = ("disabled", "basic", "extended", "all")
    parser.add_argument("--optimization", default=levels[0], choices=levels)
    parser.add_argument("--warmup", type=number(0), default=3)
    parser.add_argument("--warmup-ns", type=number(0), default=500_000_000)
    parser.add_argument("--warmup-limit-ns", type=number(0), default=10_000_000_000)
    parser.add_argument("--iterations", type=number(1), default=100)
    parser.add_argument("--min-ns", type=number(0), default=5_000_000_000)
    parser.add_argument("--max-ns", type=number(0), default=60_000_000_000)
    parser.add_argument("--threads", type=number(1, 1024), default=1)
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--version", action="store_true")
    options = parser.parse_args(words)
    if not options.bundle and not options.version:
        parser.error("--bundle is missing")
    return options


# ---- bundle: untrusted input --------------------------------------------------------------------


class Tensor(NamedTuple):
    """A golden input: ``shape`` in elements, ``dtype`` by numpy's name."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]


def sane_size(path: Path) -> int:
    """Bytes of a regular file."""
    if not path.is_file():
        raise Failure("bundle", f"cannot read {path}: it is no file")
    return path.stat().st_size


def find_artifact(bundle: Path) -> Path:
    """The only model of the bundle."""
    found = [path for path in (bundle / "model.onnx", bundle / "model.ort") if path.exists()]
    if len(found) != 1:
        names = " and ".join(path.name for path in found) or "neither model.onnx nor model.ort"
        raise Failure("bundle", f"{bundle} holds {names}, not one artifact")
    return found[0]


def parse_shape(text: str, dtype: str) -> tuple[int, ...]:
    """``1x3x48``, ``-`` for a scalar; ValueError when it is none or above the limit."""
    if dtype not in DTYPES or not SHAPE.match(text):
        raise ValueError("a bad dtype or shape")
    shape = () if text == "-" else tuple(map(int, text.split("x")))
    bits = re.sub("[^0-9]", "", dtype)
    size = int(bits) // 8 if bits else 1
    for extent in shape:
        size *= extent
    if len(shape) > MAX_RANK or max(size, *shape, 0) > MAX_TENSOR_BYTES:
        raise ValueError("a bad dtype or shape")
    return shape


def parse_line(line: str, samples: list[list[Tensor]], last: tuple[int, int, int]) -> Any:
    """Add a line's input to ``samples``; its (sample, role, index), which must follow ``last``."""
    fields = line.split("\t")
    if len(fields) != 7:
        raise ValueError(f"{len(fields)} fields, not 7")
    sample, role, index, dtype, shape, file, name = fields
    if role not in {"input", "output"}:
        raise ValueError("a bad role")
    place = (number(0, MAX_TENSORS)(sample), int(role == "output"), number(0, MAX_TENSORS)(index))
    same = place[:2] == last[:2]
    starts = place[0] == last[0] + 1 or (place[0] == last[0] and place[1] > last[1])
    if place[2] != (last[2] + 1 if same else 0) or not (same or starts):
        raise ValueError("a sample or index out of order")
    tensor = Tensor(name, file, dtype, parse_shape(shape, dtype))
    if not FILE.match(file):
        raise ValueError("a bad file name")
    samples.extend([] for _ in range(place[0] + 1 - len(samples)))
    if role == "input":
        samples[place[0]].append(tensor)
    return place


def read_index(folder: Path) -> list[list[Tensor]]:
    """The inputs of every sample; lines come sorted by sample, role and index, with no gap."""
    path = folder / "samples.tsv"
    if sane_size(path) > MAX_INDEX_BYTES:
        raise Failure("bundle", f"{path} is no file of a sane size")
    lines = path.read_bytes().decode().split("\n")
    if len(lines) > MAX_TENSORS + 1:
        raise Failure("bundle", f"{path} lists more than {MAX_TENSORS} tensors")
    samples: list[list[Tensor]] = []
    place = (-1, 1, 0)
    for count, line in enumerate(lines, 1):
        if line or count < len(lines):
            try:
                place = parse_line(line, samples, place)
            except (ValueError, argparse.ArgumentTypeError) as error:
                raise Failure("bundle", f"{path}:{count}: {error}") from error
    if not samples:
        raise Failure("bundle", f"{path} lists no samples")
    return samples


def read_tensor(folder: Path, tensor: Tensor) -> Any:
    """The tensor's values as a numpy array."""
    import numpy as np

    path = folder / tensor.file
    dtype = np.dtype(tensor.dtype)
    count = 1
    for extent in tensor.shape:
        count *= extent
    size = sane_size(path)
    if size != count * dtype.itemsize:
        wanted = count * dtype.itemsize
        raise Failure("bundle", f"{path} holds {size} bytes, its line says {wanted}")
    return np.fromfile(path, dtype, count).reshape(tensor.shape)


# ---- runtime and session ------------------------------------------------------------------------


def architecture() -> str:
    """The process's own: a 64-bit kernel may run a 32-bit Python."""
    machine = platform.machine()
    return "armv7l" if machine == "aarch64" and sys.maxsize < 2**32 else machine


def open_runtime(lines: Lines, options: argparse.Namespace, artifact: Path) -> Any:
    """The onnxruntime module; it must have the provider asked for."""
    import numpy as np  # noqa: F401 - its absence is the runtime's, not the samples'

    # From 1.29 the runtime reports its use to its maker unless this is set before it is loaded.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    available = onnxruntime.get_available_providers()
    if options.provider not in available:
        has = " ".join(available)
        raise Failure("runtime", f"the runtime has no {options.provider}, it has: {has}")
    if artifact.suffix == ".ort":
        options.optimization = "disabled"  # was done when it was made
    lines.put(
        "env",
        protocol=PROTOCOL,
        runner="python",
        runtime="onnxruntime",
        version=onnxruntime.__version__,
        arch=architecture(),
        os=platform.system().lower(),
        threads=options.threads,
        provider=options.provider,
        optimization=options.optimization,
    )
    return onnxruntime


def session_options(ort: Any, options: argparse.Namespace, artifact: Path) -> Any:
    """One thread between operators, no second optimization of what was optimized at build."""
    made = ort.SessionOptions()
    made.intra_op_num_threads = options.threads
    made.inter_op_num_threads = 1
    made.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    if artifact.suffix == ".onnx":
        level = {"disabled": "DISABLE_ALL"}.get(options.optimization)
        level = level or "ENABLE_" + options.optimization.upper()
        made.graph_optimization_level = getattr(ort.GraphOptimizationLevel, "ORT_" + level)
    if options.profile:
        made.enable_profiling = True
        made.profile_file_prefix = options.profile
    if options.provider != CPU:
        made.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return made


def load(lines: Lines, ort: Any, options: argparse.Namespace, artifact: Path) -> Any:
    """The session, on the provider asked for and no other."""
    made = session_options(ort, options, artifact)
    start = time.perf_counter_ns()
    # enable_fallback: or else a provider that fails is replaced by the CPU with a printed word.
    session = ort.InferenceSession(
        str(artifact), made, providers=[options.provider], enable_fallback=0
    )
    ns = time.perf_counter_ns() - start
    registered = session.get_providers()
    if not registered or registered[0] != options.provider:
        raise Failure("load", f"{options.provider} was not registered, only {registered}")
    lines.put("load", ns=ns)
    return session


# ---- runs and outputs ---------------------------------------------------------------------------


class Job:
    """One sample, bound once and run as often as wanted."""

    def __init__(self, session: Any, arrays: dict[str, Any]) -> None:
        from onnxruntime import OrtValue

        self.session = session
        self.inputs = arrays  # the bound values point into them
        self.outputs: list[Any] = []
        self.names = [output.name for output in session.get_outputs()]
        self.binding = session.io_binding()
        for name, values in arrays.items():
            self.binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(values))
        for name in self.names:
            self.binding.bind_output(name, "cpu")

    def run(self) -> int:
        """Nanoseconds of one run."""
        start = time.perf_counter_ns()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter_ns() - start

    def keep_outputs(self) -> None:
        """Let later runs write into output values made now, of the first run's shapes.

        Not into the first run's own: until 1.19 at least, these are references into the binding
        and dangle as soon as it is bound anew (the process dies).
        """
        from onnxruntime import OrtValue

        self.outputs = [value.numpy().copy() for value in self.binding.get_outputs()]
        for index, values in enumerate(self.outputs):
            value = OrtValue.ortvalue_from_numpy(values)
            self.binding.bind_ortvalue_output(self.names[index], value)


def put_outputs(lines: Lines, job: Job, sample: int, folder: Path | None) -> None:
    """Hash every output of a sample, and write it when there is a folder."""
    dtypes = {onnx: name for name, onnx in DTYPES.items()}
    for index, value in enumerate(job.binding.get_outputs()):
        name, kind = job.names[index], value.data_type()
        if kind not in dtypes:
            raise Failure("output", f"the output {name} is a {kind}, which cannot be told")
        data = value.numpy()
        raw = data.tobytes()
        file = f"{sample:03d}.output.{index}.bin" if folder else None
        if folder and file:
            (folder / file).write_bytes(raw)
        lines.put(
            "output",
            sample=sample,
            index=index,
            name=name,
            dtype=dtypes[kind],
            shape=list(data.shape),
            file=file,
            sha256=hashlib.sha256(raw).hexdigest(),
        )


def bind(session: Any, folder: Path, inputs: list[Tensor]) -> Job:
    """A job of one sample."""
    with Stage("bundle"):
        arrays = {tensor.name: read_tensor(folder, tensor) for tensor in inputs}
    return Job(session, arrays)


def run_samples(
    lines: Lines, session: Any, options: argparse.Namespace, samples: list[list[Tensor]]
) -> Job:
    """Run every sample; the job of sample 0 stays for the timed runs."""
    folder = options.bundle / "samples"
    first = bind(session, folder, samples[0])
    lines.put("first", ns=first.run())
    with Stage("output"):
        put_outputs(lines, first, 0, options.output)
    for sample in range(1, len(samples)):
        job = bind(session, folder, samples[sample])
        job.run()
        with Stage("output"):
            put_outputs(lines, job, sample, options.output)
    first.keep_outputs()
    return first


# ---- measuring ----------------------------------------------------------------------------------


def peak_bytes() -> int:
    """The process's peak resident set, -1 where /proc does not say.

    Not ru_maxrss: that starts from the parent's.
    """
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_bytes()
        found = re.search(rb"^VmHWM:\s*([0-9]+) kB", status, re.MULTILINE)
        return int(found.group(1)) * 1024 if found else -1
    return -1


def reset_peak() -> None:
    """Let the peak start anew from what is resident now, where the kernel allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_bytes(b"5")


def involuntary_switches() -> int:
    """How often the kernel took the processor away so far, -1 where that is not told."""
    try:
        import resource
    except ImportError:
        return -1
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def warm_up(lines: Lines, job: Job, options: argparse.Namespace) -> None:
    """Run until the medians of two successive blocks are within 3 % of the larger."""
    block: list[int] = []
    last, runs, spent, stable = -1.0, 0, 0, False
    start = time.perf_counter_ns()
    while runs < options.warmup or (
        spent < options.warmup_limit_ns and (spent < options.warmup_ns or not stable)
    ):
        block.append(job.run())
        runs += 1
        spent = time.perf_counter_ns() - start
        if len(block) == BLOCK:
            median = statistics.median(block)
            stable = last >= 0 and abs(median - last) <= 0.03 * max(median, last)
            last = median
            block.clear()
    lines.put("warmup", runs=runs, ns=spent, stable=stable)


def time_runs(job: Job, options: argparse.Namespace) -> tuple[array[int], dict[str, int]]:
    """Nanoseconds of each run, and the fields of the "end" event."""
    samples = array("q")
    gc.collect()
    gc.disable()
    switches = involuntary_switches()
    cpu = time.process_time_ns()
    start = time.perf_counter_ns()
    wall = 0
    while wall < options.max_ns and (len(samples) < options.iterations or wall < options.min_ns):
        samples.append(job.run())
        wall = time.perf_counter_ns() - start
    cpu = time.process_time_ns() - cpu
    switches = involuntary_switches() - switches if switches >= 0 else -1
    gc.enable()
    return samples, {
        "runs": len(samples),
        "wall_ns": wall,
        "cpu_ns": cpu,
        "involuntary_switches": switches,
    }


def measure(lines: Lines, job: Job, options: argparse.Namespace, load_peak: int) -> dict[str, int]:
    """Print the measurement; the fields of the "end" event."""
    end = {"runs": 0, "wall_ns": 0, "cpu_ns": 0, "involuntary_switches": 0}
    if options.check_only:
        lines.put("memory", peak_bytes=peak_bytes(), load_peak_bytes=load_peak)
        return end
    warm_up(lines, job, options)
    before = peak_bytes()
    reset_peak()
    samples, end = time_runs(job, options)
    # The memory for the samples is not the model's.
    peak = max(before, peak_bytes() - samples.itemsize * len(samples))
    for done in range(0, len(samples), LINE):
        lines.put("sample", ns=samples[done : done + LINE].tolist())
    lines.put("memory", peak_bytes=peak, load_peak_bytes=load_peak)
    return end


def run(lines: Lines, words: list[str]) -> None:
    """Everything from the arguments to the last line."""
    options = parse_arguments(words)
    if options.version:
        lines.put("version", protocol=PROTOCOL, runner="python")
        return
    with Stage("bundle"):
        artifact = find_artifact(options.bundle)
        samples = read_index(options.bundle / "samples")
    with Stage("runtime"):
        ort = open_runtime(lines, options, artifact)
    with Stage("load"):
        session = load(lines, ort, options, artifact)
        load_peak = peak_bytes()
        reset_peak()
    with Stage("run"):
        job = run_samples(lines, session, options, samples)
        end = measure(lines, job, options, load_peak)
    if options.profile:
        with Stage("output"):
            lines.put("profile", file=session.end_profiling())
    lines.put("end", **end)


def main() -> int:
    """Exit code 0 after "end", 1 after "error"."""
    lines = Lines()
    try:
        run(lines, sys.argv[1:])
    except Failure as failure:
        lines.put("error", stage=failure.stage, message=failure.message[:MAX_MESSAGE])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
