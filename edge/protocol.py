"""Runner protocol, version 1: a runner's standard output into one frozen value.

Pure, and the text is untrusted: lines, counts, numbers and names are bounded, the order is
checked, and whatever is wrong is :class:`errors.RunFailed`. Fields that this release does not
know are ignored, events are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn

from edge import errors
from edge.samples import ITEM_BYTES, MAX_TENSOR_BYTES, MAX_TENSORS

VERSION = 1
FAILED = "the runner failed"  # what messages begin with that are the runner's own
MAX_LINE = 2**16  # characters; 100 samples of 13 digits are 1,400
MAX_TEXT = 2**27  # characters of the whole output
MAX_SAMPLES = 10_000_000  # 5 s of the shortest runs seen (0.8 us) are 6 million
MAX_PER_LINE = 100
MAX_NS = 10**15  # eleven days
MAX_BYTES = 2**50
MAX_RANK = 32
SHOWN = 160  # characters of a wrong line in a message
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_FILE = re.compile(r"(?!\.+$)[0-9A-Za-z_.-]{1,128}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

# Rank in the order of events; only output and sample may come more than once.
ORDER = {
    name: rank
    for rank, name in enumerate(
        ("env", "load", "first", "output", "warmup", "sample", "memory", "profile", "end")
    )
}
REPEATED = ("output", "sample")
THERMAL_STATES = 3  # Apple's: 0 nominal, 1 fair, 2 serious, 3 critical
REQUIRED = ("env", "load", "first", "output", "end")


@dataclass(frozen=True)
class Env:
    """What ran: the runner's kind, the runtime and its version, and what was asked of it.

    ``gpu`` names the GPU and its driver where the runner tells.
    """

    runner: str
    runtime: str
    version: str
    arch: str
    os: str
    threads: int
    provider: str
    optimization: str
    gpu: str = ""


@dataclass(frozen=True)
class Load:
    """Creating the session, in ns; ``cached``: of a kept compiled model, None: nothing is kept."""

    ns: int
    cached: bool | None = None


@dataclass(frozen=True)
class Output:
    """One output of one golden sample; ``file`` is its name in the output folder, or None."""

    sample: int
    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str | None
    sha256: str

    @property
    def nbytes(self) -> int:
        """Size of the raw file in bytes."""
        return ITEM_BYTES[self.dtype] * prod(self.shape)


@dataclass(frozen=True)
class Warmup:
    """Warm-up runs, their time in ns, and whether they had become stable."""

    runs: int
    ns: int
    stable: bool


@dataclass(frozen=True)
class Memory:
    """Peak resident bytes of the process, of the whole and after load; -1 unknown."""

    peak_bytes: int
    load_peak_bytes: int


@dataclass(frozen=True)
class End:
    """The timed loop: runs, wall and CPU time in ns, preemptions (-1 unknown), runs a sample.

    ``state`` of the device at the end, where the runner tells: see :func:`state`.
    """

    runs: int
    wall_ns: int
    cpu_ns: int
    involuntary_switches: int
    batch: int = 1
    state: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All that one runner process said; times in ns. ``warmup`` is None with --check-only."""

    env: Env
    load_ns: int
    first_ns: int
    outputs: tuple[Output, ...]
    warmup: Warmup | None
    samples_ns: tuple[int, ...]
    memory: Memory
    profile: str | None
    end: End
    cached: bool | None = None


def printable(text: str) -> str:
    """``text`` with characters that could steer a terminal, or are no characters, escaped."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def parse(text: str) -> Run:
    """The run that a runner's standard output tells.

    Raises :class:`errors.RunFailed`: the runner's own error event with its stage and message,
    another protocol version, anything unknown, out of order, out of range, too large or missing.
    """
    if len(text) > MAX_TEXT:
        _refuse(f"it printed more than {MAX_TEXT} characters")
    return _Reader().read(text)


def _refuse(what: str) -> NoReturn:
    raise errors.RunFailed(
        f"the runner's output is wrong: {what}",
        remedy="deploy the bundle again; a bundle and its runner belong together",
    )


def _lines(text: str) -> Iterator[str]:
    """Lines ended by LF or CRLF only: a name may hold other Unicode line separators."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start > MAX_LINE:
            _refuse(f"a line has more than {MAX_LINE} characters")
        yield text[start:end].removesuffix("\r")
        start = end + 1


class _Fields:
    """Checked access to one event's fields."""

    def __init__(self, line: str) -> None:
        try:
            event = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            _refuse(f"no event: {printable(line[:SHOWN])}")
        self.values: dict[str, Any] = event
        self.event: str = event["event"]

    def integer(self, key: str, low: int, high: int) -> int:
        value = self.values.get(key)
        if type(value) is not int or not low <= value <= high:
            self.refuse(key)
        return value

    def text(self, key: str, limit: int = 1024) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or len(value) > limit:
            self.refuse(key)
        return printable(value)

    def match(self, key: str, pattern: re.Pattern[str]) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.refuse(key)
        return value

    def integers(self, key: str, most: int, high: int) -> tuple[int, ...]:
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) > most:
            self.refuse(key)
        if not all(type(item) is int and 0 <= item <= high for item in value):
            self.refuse(key)
        return tuple(value)

    def refuse(self, key: str) -> NoReturn:
        value = printable(repr(self.values.get(key, "missing"))[:SHOWN])
        _refuse(f"the event {printable(self.event[:32])!r} has {key} = {value}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


class _Reader:
    """The events read so far."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"output": [], "sample": []}
        self.rank = -1

    def read(self, text: str) -> Run:
        for line in _lines(text):
            if self.rank == ORDER["end"]:
                _refuse(f"something came after the end: {printable(line[:SHOWN])}")
            self._take(_Fields(line))
        return self._finish()

    def _take(self, fields: _Fields) -> None:
        name = fields.event
        if name == "error":
            stage, message = fields.text("stage", 64), fields.text("message", MAX_LINE)
            raise errors.RunFailed(f"{FAILED} ({stage}): {message}")
        if name not in ORDER:
            _refuse(f"unknown event {printable(name[:SHOWN])!r}")
        again = name in REPEATED and ORDER[name] == self.rank
        if ORDER[name] <= self.rank and not again:
            _refuse(f"the event {name!r} came out of order")
        self.rank = ORDER[name]
        value = READERS[name](fields)
        if name == "output":
            self._add_output(value)
        elif name == "sample":
            self._add_samples(value)
        else:
            self.found[name] = value

    def _add_output(self, output: Output) -> None:
        before: list[Output] = self.found["output"]
        if before and (output.sample, output.index) <= (before[-1].sample, before[-1].index):
            _refuse(f"output {output.index} of sample {output.sample} came out of order")
        if len(before) >= MAX_TENSORS:
            _refuse(f"more than {MAX_TENSORS} outputs")
        before.append(output)

    def _add_samples(self, samples: tuple[int, ...]) -> None:
        if len(self.found["sample"]) + len(samples) > MAX_SAMPLES:
            _refuse(f"more than {MAX_SAMPLES} samples")
        self.found["sample"] += samples

    def _finish(self) -> Run:
        found = self.found
        missing = [name for name in REQUIRED if found.get(name) in (None, [])]
        if missing:
            raise errors.RunFailed(
                f"the runner stopped without its {missing[0]!r} event",
                remedy="it may have crashed or been stopped (out of memory?): run it by hand there",
            )
        end: End = found["end"]
        timed = len(found["sample"])
        if timed and (end.runs != timed * end.batch or "warmup" not in found):
            _refuse(f"{timed} samples came of {end.runs} runs")
        return Run(
            env=found["env"],
            load_ns=found["load"].ns,
            first_ns=found["first"],
            outputs=tuple(found["output"]),
            warmup=found.get("warmup"),
            samples_ns=tuple(found["sample"]),
            memory=found.get("memory", Memory(-1, -1)),
            profile=found.get("profile"),
            end=end,
            cached=found["load"].cached,
        )


def _env(fields: _Fields) -> Env:
    protocol = fields.integer("protocol", 0, MAX_NS)
    if protocol != VERSION:
        raise errors.RunFailed(
            f"the runner speaks protocol {protocol}, this release speaks {VERSION}",
            remedy="build and deploy the bundle again with this release",
        )
    return Env(
        runner=fields.text("runner", 64),
        runtime=fields.text("runtime", 64),
        version=fields.text("version", 64),
        arch=fields.text("arch", 64),
        os=fields.text("os", 64),
        threads=fields.integer("threads", 0, 4096),
        provider=fields.text("provider", 64),
        optimization=fields.text("optimization", 64),
        gpu=fields.text("gpu", 256) if "gpu" in fields.values else "",
    )


def _load(fields: _Fields) -> Load:
    cached = fields.values.get("cached")
    if cached is not None and not isinstance(cached, bool):
        fields.refuse("cached")
    return Load(_ns(fields), cached)


def _ns(fields: _Fields) -> int:
    return fields.integer("ns", 0, MAX_NS)


def _output(fields: _Fields) -> Output:
    dtype = fields.match("dtype", _WORD)
    if dtype not in ITEM_BYTES:
        fields.refuse("dtype")
    file = None if fields.values.get("file") is None else fields.match("file", _FILE)
    output = Output(
        fields.integer("sample", 0, MAX_TENSORS),
        fields.integer("index", 0, MAX_TENSORS),
        fields.text("name"),
        dtype,
        fields.integers("shape", MAX_RANK, MAX_TENSOR_BYTES),
        file,
        fields.match("sha256", _SHA256),
    )
    if output.nbytes > MAX_TENSOR_BYTES:
        fields.refuse("shape")
    return output


def _warmup(fields: _Fields) -> Warmup:
    stable = fields.values.get("stable")
    if not isinstance(stable, bool):
        fields.refuse("stable")
    return Warmup(fields.integer("runs", 0, MAX_NS), _ns(fields), stable)


def _samples(fields: _Fields) -> tuple[int, ...]:
    samples = fields.integers("ns", MAX_PER_LINE, MAX_NS)
    if not samples:
        fields.refuse("ns")
    return samples


def _memory(fields: _Fields) -> Memory:
    keys = ("peak_bytes", "load_peak_bytes")
    return Memory(*(fields.integer(key, -1, MAX_BYTES) for key in keys))


def _end(fields: _Fields) -> End:
    return End(
        runs=fields.integer("runs", 0, MAX_NS),
        wall_ns=fields.integer("wall_ns", 0, MAX_NS),
        cpu_ns=fields.integer("cpu_ns", -1, MAX_NS),
        involuntary_switches=fields.integer("involuntary_switches", -1, MAX_NS),
        batch=fields.integer("batch", 1, 10**6) if "batch" in fields.values else 1,
        state=state(fields.values),
    )


def state(event: Mapping[str, Any]) -> dict[str, int]:
    """Apple's ``thermal_state`` (0 nominal to 3 critical) and ``low_power`` (0, 1) of an event."""
    heat, low = event.get("thermal_state"), event.get("low_power")
    found: dict[str, int] = {}
    if type(heat) is int and 0 <= heat <= THERMAL_STATES:
        found["thermal_state"] = heat
    if isinstance(low, bool):
        found["low_power"] = int(low)
    return found


READERS: dict[str, Callable[[_Fields], Any]] = {
    "env": _env,
    "load": _load,
    "first": _ns,
    "output": _output,
    "warmup": _warmup,
    "sample": _samples,
    "memory": _memory,
    "profile": lambda fields: fields.text("file", 4096),
    "end": _end,
}
