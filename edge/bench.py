"""Drives a bundle's runner on a device: first that it computes the right thing, then how fast.

Both go through the runner protocol (``edge.protocol``), whatever the device and the runner's
language. Only outputs whose SHA-256 is not that of the golden file are fetched.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from edge import errors, log, parity, placement, protocol, samples, stats
from edge.parity import OutputParity, Tolerance
from edge.placement import CPU, Placement
from edge.process import Completed, describe_exit
from edge.protocol import Output, Run
from edge.store import hash_file

# Whose loop keeps the CPU busy: cpu / wall says something. OpenVINO's provider is given the CPU.
HOST_CPU_PROVIDERS = (CPU, "wasm", "openvino:CPU", "OpenVINOExecutionProvider")
WARMUP_LIMIT_NS = 10 * 10**9
QUICK_RUNS = 30
Context = Callable[[], Mapping[str, Any]]
Key = tuple[int, int]  # sample, index of the output
CALLED = "sample %d, output %d"


class Device(Protocol):
    """What is used of a device (see ``edge.devices.base``)."""

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        """Run a list of words there."""

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        """Fetch a file of at most ``limit`` bytes."""

    def make_folder(self, path: str) -> None:
        """Make a folder there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder there."""


@dataclass(frozen=True)
class BenchOptions:
    """What is asked of the runner.

    ``warmup`` and ``iterations`` are minima in runs, ``warmup_seconds`` is a minimum as well;
    ``min_seconds`` and ``max_seconds`` bound the timed loop; ``repeats`` is the number of fresh
    processes. ``quick``: 30 runs of one process, no minimum time. ``timeout``: seconds a process
    may take beside warm-up and timed loop. ``scratch``: folder on the device for output files
    (default: beside the release). ``profile``: let the health run write a profile and count the
    nodes by provider, which it does anyway with a provider that nodes may fall back from;
    ``least_nodes`` and ``least_time`` are the shares that the provider must then have run.
    ``cache``: existing folder on the device for what runtimes compile (default: none is kept).
    """

    warmup: int = 3
    warmup_seconds: float = 0.5
    iterations: int = 100
    min_seconds: float = 5.0
    max_seconds: float = 60.0
    threads: int = 1
    repeats: int = 3
    quick: bool = False
    provider: str = CPU
    optimization: str = "disabled"
    timeout: float = 300.0
    scratch: str = ""
    profile: bool = False
    least_nodes: float = 1.0
    least_time: float = 1.0
    cache: str = ""

    @property
    def profiled(self) -> bool:
        """Whether the health run writes a profile."""
        return self.profile or placement.can_fall_back(self.provider)

    def effective(self) -> BenchOptions:
        """These options with ``quick`` worked in."""
        if not self.quick:
            return self
        return replace(self, iterations=QUICK_RUNS, min_seconds=0.0, repeats=1, quick=False)

    def common(self, release_dir: str) -> list[str]:
        """Arguments of every run."""
        words = ["--bundle", release_dir, "--threads", str(self.threads)]
        words += ["--provider", self.provider, "--optimization", self.optimization]
        return [*words, "--cache", self.cache] if self.cache else words

    def timed(self) -> list[str]:
        """Arguments of a timed run beside the common ones."""
        return [
            "--warmup", str(self.warmup), "--warmup-ns", _ns(self.warmup_seconds),
            "--warmup-limit-ns", str(WARMUP_LIMIT_NS), "--iterations", str(self.iterations),
            "--min-ns", _ns(self.min_seconds), "--max-ns", _ns(self.max_seconds),
        ]  # fmt: skip


def _ns(seconds: float) -> str:
    return str(round(seconds * 1e9))


DEFAULTS = BenchOptions()


@dataclass(frozen=True)
class Release:
    """A bundle installed on a device, and what its outputs are held against.

    ``folder`` and the words of ``runner`` are the device's; ``golden`` is this machine's.
    """

    folder: str
    runner: tuple[str, ...]
    golden: Path
    tolerance: Tolerance


@dataclass(frozen=True)
class Compared:
    """Outputs held against the golden ones by (sample, index), and what is wrong, worst first."""

    outputs: tuple[OutputParity, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Checked:
    """A health run that passed; ``fetched`` outputs were not bit-exact.

    ``providers``: nodes and time by execution provider, empty unless ``BenchOptions.profiled``.
    """

    run: Run
    outputs: tuple[OutputParity, ...]
    fetched: int
    providers: Placement


@dataclass(frozen=True)
class Measurement:
    """A checked and timed release. ``deterministic``: every process gave the checked outputs."""

    checked: Checked
    runs: tuple[Run, ...]
    summary: stats.Summary
    verdict: stats.Verdict
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    options: BenchOptions
    deterministic: bool

    @property
    def loops(self) -> tuple[stats.Loop, ...]:
        """The timed loops with all raw samples, one a process."""
        return tuple(loop_of(run) for run in self.runs)

    @property
    def load_ns(self) -> float:
        """Median over the processes of the time to create the session, ns."""
        return float(median(run.load_ns for run in self.runs))

    @property
    def first_ns(self) -> float:
        """Median over the processes of the first run, ns."""
        return float(median(run.first_ns for run in self.runs))

    @property
    def peak_bytes(self) -> int | None:
        """Largest peak memory of a process in bytes, None where the device cannot tell."""
        peak = max(run.memory.peak_bytes for run in self.runs)
        return peak if peak >= 0 else None


def loop_of(run: Run) -> stats.Loop:
    """The timed loop of a run."""
    end = run.end
    return stats.Loop(run.samples_ns, end.wall_ns, end.cpu_ns, end.involuntary_switches, end.batch)


def check(
    device: Device,
    release_dir: str,
    runner_argv: Sequence[str],
    golden_folder: Path,
    tolerance: Tolerance,
    options: BenchOptions = DEFAULTS,
) -> Checked:
    """The health run: load, run the golden samples, hold the outputs against them.

    Raises :class:`errors.ParityFailed` with the worst output's reason, and
    :class:`errors.RunFailed` when the runner fails or did not do what it was asked to.
    """
    with _scratch(device, options.scratch or release_dir) as folder:
        words = [*runner_argv, *options.common(release_dir), "--output", folder, "--check-only"]
        if options.profiled:
            words += ["--profile", f"{folder}/profile"]
        run = _start(device, words, options.timeout)
        _did_what_was_asked(run, options)
        with tempfile.TemporaryDirectory(prefix="edge-outputs-") as place:
            produced, fetched = _collect(device, folder, run, golden_folder, Path(place))
            compared = compare_folders(golden_folder, produced, tolerance)
            providers = _providers(device, run, options, Path(place))
    if compared.failures:
        more = f" (and {len(compared.failures) - 1} more)" if len(compared.failures) > 1 else ""
        raise errors.ParityFailed(
            f"the device computes something else than the source: {compared.failures[0]}{more}",
            remedy="see whether runtime and precision suit the device; then the target's tolerance",
        )
    return Checked(run, compared.outputs, fetched, providers)


@contextmanager
def _scratch(device: Device, beside: str) -> Iterator[str]:
    """A folder on the device for one health run."""
    folder = f"{beside.rstrip('/')}.check-{secrets.token_hex(4)}"
    device.make_folder(folder)
    try:
        yield folder
    finally:
        # A device that is gone has said so already; this must not hide why.
        with suppress(errors.EdgeError):
            device.remove_folder(folder)


def _start(device: Device, words: Sequence[str], timeout: float) -> Run:
    done = device.run(words, timeout=timeout, check=False)
    ended = f"the runner ended with {describe_exit(done.returncode)}"
    tail = "\n".join(protocol.printable(line) for line in done.tail().splitlines())
    try:
        run = protocol.parse(done.stdout)
    except errors.RunFailed as error:
        if done.returncode == 0 or error.message.startswith(protocol.FAILED):
            raise
        raise errors.RunFailed(f"{error.message}; {ended}:\n{tail}", remedy=error.remedy) from error
    if done.returncode != 0:
        raise errors.RunFailed(f"{ended} after it had reported success:\n{tail}")
    return run


def _did_what_was_asked(run: Run, options: BenchOptions) -> None:
    pairs = {"provider": (options.provider, run.env.provider)}
    pairs["number of threads"] = (str(options.threads), str(run.env.threads))
    for what, (asked, ran) in pairs.items():
        if asked != ran:
            raise errors.RunFailed(
                f"the runner was asked for the {what} {asked} and took {ran}",
                remedy=f"ask for {ran}, or use a runtime that has {asked}",
            )


def _collect(
    device: Device, folder: str, run: Run, golden: Path, place: Path
) -> tuple[dict[Key, tuple[Output, Path | None]], int]:
    """Each output with the local file of its values; None where its kind is wrong anyway."""
    wanted = _golden_outputs(golden)
    produced: dict[Key, tuple[Output, Path | None]] = {}
    fetched = 0
    for output in run.outputs:
        key = (output.sample, output.index)
        tensor = wanted.get(key)
        path: Path | None = None
        if tensor and _same_kind(tensor, output):
            path = golden / tensor.file
            if _sha256(path) != output.sha256:
                path = _fetch(device, folder, output, place)
                fetched += 1
        produced[key] = (output, path)
    return produced, fetched


def _same_kind(tensor: samples.Tensor, output: Output) -> bool:
    return (tensor.dtype, tensor.shape) == (output.dtype, output.shape)


def _sha256(path: Path) -> str:
    try:
        return hash_file(path)[0]
    except OSError as error:
        raise errors.RunFailed(
            f"cannot read {path}: {error.strerror}", remedy="build the bundle again"
        ) from error


def _golden_outputs(golden: Path) -> dict[Key, samples.Tensor]:
    index = samples.read_index(golden)
    return {(t.sample, t.index): t for t in index if t.role == "output"}


def _fetch(device: Device, folder: str, output: Output, place: Path) -> Path:
    if output.file is None:
        raise errors.RunFailed("the runner wrote no output files although it was asked to")
    path = place / samples.file_name(output.sample, "output", output.index)
    device.get(f"{folder}/{output.file}", path, limit=output.nbytes)
    if _sha256(path) != output.sha256:
        raise errors.RunFailed(f"the output file {output.file} is not what the runner wrote")
    return path


def compare_folders(
    golden: Path, produced: Mapping[Key, tuple[Output, Path | None]], tolerance: Tolerance
) -> Compared:
    """Hold a runner's outputs, each with its file, against golden samples, one pair at a time.

    A missing, an added and a renamed output are failures, as is what ``parity.verdict`` says.
    """
    wanted = _golden_outputs(golden)
    if not wanted:
        raise errors.RunFailed(f"{golden} holds no golden outputs", remedy="build the bundle again")
    wrong = [f"{CALLED % key} is missing" for key in sorted(wanted.keys() - produced.keys())]
    wrong += [f"{CALLED % key} is not expected" for key in sorted(produced.keys() - wanted.keys())]
    outputs = []
    failures: list[tuple[float, str]] = []
    for key in sorted(wanted.keys() & produced.keys()):
        output, path = produced[key]
        name = protocol.printable(wanted[key].name)
        if output.name != name:
            wrong.append(f"{CALLED % key} is called {output.name!r}, not {name!r}")
        found = _compare_one(golden, wanted[key], output, path, tolerance)
        outputs.append(found)
        worst = -1e9 if found.sqnr_db is None else found.sqnr_db
        reasons = "; ".join(parity.verdict(found, tolerance))
        if reasons:
            failures.append((worst, f"{CALLED % key} {name!r}: {reasons}"))
    return Compared(tuple(outputs), (*wrong, *(text for _, text in sorted(failures))))


def _compare_one(
    golden: Path, tensor: samples.Tensor, output: Output, path: Path | None, tolerance: Tolerance
) -> OutputParity:
    name, floor = protocol.printable(tensor.name), tolerance.floor
    if path is None or not _same_kind(tensor, output):
        kinds = (tensor.dtype, output.dtype)
        return OutputParity(name, *kinds, tensor.shape, output.shape, prod(tensor.shape), floor)
    actual = samples.read_tensor(path.parent, replace(tensor, file=path.name))
    return parity.measure(samples.read_tensor(golden, tensor), actual, tolerance, name=name)


def _providers(device: Device, run: Run, options: BenchOptions, place: Path) -> Placement:
    """What each provider ran, from the run's profile; too little of the asked one is a failure."""
    if not options.profiled:
        return {}
    if run.profile is None:
        raise errors.RunFailed("the runner wrote no profile although it was asked to")
    path = place / "profile.json"
    device.get(run.profile, path, limit=placement.MAX_PROFILE_BYTES)
    found = placement.read(path.read_bytes())
    placement.require(found, options.provider, options.least_nodes, options.least_time)
    return found


def bench(
    device: Device, release: Release, context: Context, options: BenchOptions = DEFAULTS
) -> Measurement:
    """Check a release, then time it in fresh processes.

    ``context`` is asked before and after for the device's state (JSON values; keys that
    ``stats.throttling`` reads are evidence). Raises what :func:`check` does, and
    :class:`errors.RunFailed` for a run without timed samples.
    """
    options = options.effective()
    with log.step("golden samples") as step:
        arguments = (release.folder, release.runner, release.golden, release.tolerance)
        checked = check(device, *arguments, options)
        step.note = f"{len(checked.outputs)} outputs, {checked.fetched} not bit-exact"
    before = {**context(), **checked.run.end.state}
    names = [f"process {number + 1} of {options.repeats}" for number in range(options.repeats)]
    runs = tuple(timed(device, release, options, name) for name in names)
    after = {**context(), **runs[-1].end.state}
    summary = stats.summarize([loop_of(run) for run in runs])
    busy = options.provider in HOST_CPU_PROVIDERS
    limits = stats.Limits() if busy else stats.Limits(cpu_share=None)
    verdict = stats.judge(summary, throttling=stats.throttling(before, after), limits=limits)
    hashes = [[output.sha256 for output in run.outputs] for run in (checked.run, *runs)]
    same = all(found == hashes[0] for found in hashes)
    return Measurement(checked, runs, summary, verdict, before, after, options, same)


def timed(device: Device, release: Release, options: BenchOptions, title: str) -> Run:
    """One timed run in a fresh process, logged as a step called ``title``."""
    words = [*release.runner, *options.common(release.folder), *options.timed()]
    timeout = options.timeout + options.max_seconds + WARMUP_LIMIT_NS / 1e9
    with log.step(title) as step:
        run = _start(device, words, timeout)
        _did_what_was_asked(run, options)
        if not run.samples_ns:
            raise errors.RunFailed("the runner took no timed samples")
        step.note = f"p50 {log.human_ns(median(run.samples_ns))}, {run.end.runs} runs"
    return run
