#!/usr/bin/env python3
"""Load a bundle's artifact with the device's own runtime, run the golden samples, measure.

Prints JSON lines on standard output (runner protocol 1) and nothing else; the last line is "end"
or "error", and an error is a non-zero exit. Outputs are hashed and written here and compared on
the host. Python 3.8 or newer, nothing but numpy and the runtime's own package.

The runtime is the business of one module beside this file, named after the artifact
(``BACKENDS``). Whatever such a module raises becomes an error of the stage that it was called in:

* ``PROVIDERS``: which ``--provider`` it takes, as a regular expression; ``check(request)``: the
  options of the bundle (stage "bundle");
* ``open_runtime(request)``: an object with ``facts`` (fields of the "env" event: at least runtime,
  version, provider, optimization) and ``load()`` ("runtime");
* ``load()``: a session: ``cached`` (whether a kept compiled model was loaded, None: nothing is
  kept), ``bind(arrays, names)`` and ``close()``, which returns the profile's file or None ("load",
  "run", "output");
* ``bind``: a job: ``run()`` (one run, to its end on the device; its time in ns), ``outputs()``
  (name, dtype by numpy's name, array), ``settle()`` (called once before the timed runs, after
  other samples were run). ``names`` are the golden outputs' names in order.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import os
import platform
import re
import statistics
import sys
import time
from array import array
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

sys.dont_write_bytecode = True  # this folder is the bundle's, and nothing is added to it
HERE = str(Path(__file__).resolve().parent)
if HERE not in sys.path:  # python -I
    sys.path.append(HERE)

from edge_bundle import (  # noqa: E402
    BACKENDS,
    DTYPES,
    Failure,
    Request,
    Sample,
    Stage,
    find_artifact,
    number,
    read_index,
    read_request,
    read_tensor,
)

PROTOCOL = 1
SURROGATE = re.compile("[\ud800-\udfff]")
MAX_MESSAGE = 8000  # characters of an error message: readers bound their lines
BLOCK = 10  # runs a warm-up median is taken of
LINE = 100  # timed samples printed on one line


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


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """The options of the protocol, times in nanoseconds."""
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--profile")
    parser.add_argument("--provider")
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
    if options.cache and not options.cache.is_dir():
        parser.error(f"--cache {options.cache} is no folder")
    return options


# ---- runtime and session ------------------------------------------------------------------------


def find_backend(artifact: Path) -> Any:
    """The module beside this file that runs such artifacts."""
    return importlib.import_module(BACKENDS[artifact.name])


def choose(backend: Any, request: Request) -> Request:
    """The request with the backend's usual provider where none was asked for."""
    provider = request.provider or backend.usual_provider(request)
    if not re.match(backend.PROVIDERS + r"\Z", provider):
        raise Failure("runtime", f"{request.artifact.name} does not run on {provider}")
    return request._replace(provider=provider)


def architecture() -> str:
    """The process's own: a 64-bit kernel may run a 32-bit Python."""
    machine = platform.machine()
    return "armv7l" if machine == "aarch64" and sys.maxsize < 2**32 else machine


def open_runtime(lines: Lines, backend: Any, request: Request) -> Any:
    """The backend's runtime, told in the "env" event."""
    import numpy as np  # noqa: F401 - its absence is the runtime's, not the samples'

    runtime = backend.open_runtime(request)
    lines.put(
        "env",
        protocol=PROTOCOL,
        runner="python",
        runtime=runtime.facts.pop("runtime"),
        version=runtime.facts.pop("version"),
        arch=architecture(),
        os=platform.system().lower(),
        threads=request.threads,
        **runtime.facts,
    )
    return runtime


def load(lines: Lines, runtime: Any) -> Any:
    """The session, on the provider asked for and no other."""
    start = time.perf_counter_ns()
    session = runtime.load()
    ns = time.perf_counter_ns() - start
    cached = {} if session.cached is None else {"cached": session.cached}
    lines.put("load", ns=ns, **cached)
    return session


# ---- runs and outputs ---------------------------------------------------------------------------


def put_outputs(lines: Lines, job: Any, sample: int, folder: Path | None) -> None:
    """Hash every output of a sample, and write it when there is a folder."""
    for index, (name, dtype, data) in enumerate(job.outputs()):
        if dtype not in DTYPES:
            raise Failure("output", f"the output {name} is a {dtype}, which cannot be told")
        raw = data.tobytes()
        file = f"{sample:03d}.output.{index}.bin" if folder else None
        if folder and file:
            (folder / file).write_bytes(raw)
        lines.put(
            "output",
            sample=sample,
            index=index,
            name=name,
            dtype=dtype,
            shape=list(data.shape),
            file=file,
            sha256=hashlib.sha256(raw).hexdigest(),
        )


def bind(session: Any, folder: Path, sample: Sample) -> Any:
    """A job of one sample."""
    with Stage("bundle"):
        arrays = {tensor.name: read_tensor(folder, tensor) for tensor in sample.inputs}
    return session.bind(arrays, sample.outputs)


def run_samples(
    lines: Lines, session: Any, options: argparse.Namespace, samples: list[Sample]
) -> Any:
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


def warm_up(lines: Lines, job: Any, options: argparse.Namespace) -> None:
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


def time_runs(job: Any, options: argparse.Namespace) -> tuple[array[int], dict[str, int]]:
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


def measure(lines: Lines, job: Any, options: argparse.Namespace, load_peak: int) -> dict[str, int]:
    """Print the measurement; the fields of the "end" event."""
    end = {"runs": 0, "wall_ns": 0, "cpu_ns": 0, "involuntary_switches": 0}
    if options.check_only:
        lines.put("memory", peak_bytes=peak_bytes(), load_peak_bytes=load_peak)
        return end
    job.settle()
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
        request = read_request(options, find_artifact(options.bundle))
        samples = read_index(options.bundle / "samples")
        backend = find_backend(request.artifact)
        request = choose(backend, request)
        backend.check(request)
    with Stage("runtime"):
        runtime = open_runtime(lines, backend, request)
    with Stage("load"):
        session = load(lines, runtime)
        load_peak = peak_bytes()
        reset_peak()
    with Stage("run"):
        job = run_samples(lines, session, options, samples)
        end = measure(lines, job, options, load_peak)
    with Stage("output"):
        profile = session.close()
    if profile:
        lines.put("profile", file=profile)
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
