"""What a runner reads of its bundle: the artifact's name, golden samples, options.

All of it is untrusted: names, shapes, counts and sizes are bounded before memory is taken.
Python 3.8 or newer; numpy where tensors are read.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BACKENDS = {
    "model.onnx": "edge_onnxruntime",
    "model.ort": "edge_onnxruntime",
    "model.xml": "edge_openvino",
    "engine.plan": "edge_tensorrt",
    "engine.rtx": "edge_tensorrt",
}
DTYPES = (
    "float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32",
    "int64", "uint64", "bool",
)  # fmt: skip
FILE = re.compile(r"(?!\.*\Z)[0-9A-Za-z_.-]+\Z")
SHAPE = re.compile(r"(-|[0-9]{1,10}(x[0-9]{1,10})*)\Z")
OPTION = re.compile(r"(provider|session)\.([A-Za-z][A-Za-z0-9_.]{0,99})\Z")
VALUE = re.compile(r"[^\t\r\n\0]{0,4000}\Z")
RUNNER_OPTIONS = {
    "runner.cuda_graph": re.compile(r"[01]\Z"),
    "runner.least_nodes": re.compile(r"(0(\.[0-9]{1,20})?|1(\.0{1,20})?)\Z"),
    "runner.engine_key": re.compile(r"[0-9a-f]{16,128}\Z"),
}
MAX_RANK = 32
MAX_TENSORS = 10_000
MAX_INDEX_BYTES = 8 << 20
MAX_OPTIONS_BYTES = 1 << 22  # 200 of the longest in the longest characters
MAX_OPTIONS = 200
MAX_TENSOR_BYTES = 1 << 31
MAX_NUMBER = 10**18  # 31 years in nanoseconds


class Failure(Exception):
    """What ends the run, with the stage that the error line names."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message


class Stage:
    """Whatever goes wrong inside becomes a :class:`Failure` of this stage.

    Runtimes raise classes of their own that share no base but Exception.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Failure):
            raise Failure(self.name, str(error) or type(error).__name__) from error


def number(least: int, most: int = MAX_NUMBER) -> Callable[[str], int]:
    """Make a parser of plain numbers within limits."""

    def parse(text: str) -> int:
        plain = text.isascii() and text.isdigit() and len(text) < 20
        if not plain or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is no number from {least} to {most}")
        return int(text)

    return parse


# ---- artifact and samples -----------------------------------------------------------------------


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
    found = [bundle / name for name in BACKENDS if (bundle / name).exists()]
    if len(found) != 1:
        names = " and ".join(path.name for path in found) or "neither " + " nor ".join(BACKENDS)
        raise Failure("bundle", f"{bundle} holds {names}, not one artifact")
    return found[0]


def parse_shape(text: str, dtype: str) -> tuple[int, ...]:
    """``1x3x48``, ``-`` for a scalar; ValueError when it is none or above the limit."""
    if dtype not in DTYPES or not SHAPE.match(text) or text.count("x") >= MAX_RANK:
        raise ValueError("a bad dtype or shape")
    shape = () if text == "-" else tuple(map(int, text.split("x")))
    bits = re.sub("[^0-9]", "", dtype)
    size = int(bits) // 8 if bits else 1
    for extent in shape:
        size *= extent
    if max(size, *shape, 0) > MAX_TENSOR_BYTES:
        raise ValueError("a bad dtype or shape")
    return shape


class Sample(NamedTuple):
    """A golden sample: its inputs, and the names of its outputs in order."""

    inputs: list[Tensor]
    outputs: list[str]


def parse_line(line: str, samples: list[Sample], last: tuple[int, int, int]) -> Any:
    """Add a line's tensor to ``samples``; its (sample, role, index), which must follow ``last``."""
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
    samples.extend(Sample([], []) for _ in range(place[0] + 1 - len(samples)))
    if role == "input":
        samples[place[0]].inputs.append(tensor)
    else:
        samples[place[0]].outputs.append(name)
    return place


def read_index(folder: Path) -> list[Sample]:
    """Every sample; lines come sorted by sample, role and index, with no gap."""
    path = folder / "samples.tsv"
    if sane_size(path) > MAX_INDEX_BYTES:
        raise Failure("bundle", f"{path} is no file of a sane size")
    lines = path.read_bytes().decode().split("\n")
    if len(lines) > MAX_TENSORS + 1:
        raise Failure("bundle", f"{path} lists more than {MAX_TENSORS} tensors")
    samples: list[Sample] = []
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


# ---- options ------------------------------------------------------------------------------------


class Request(NamedTuple):
    """What a backend is asked for. ``provider`` and ``session`` are options of the runtime.

    ``profile`` is the prefix of the profile's path, or None. ``cache`` is an existing folder, or
    None: nothing is kept; ``engine_key`` is the content key (hex) of what may be kept in it.
    ``least_nodes``: the share of nodes that the provider must run, 0 to 1.
    """

    artifact: Path
    threads: int
    provider: str
    optimization: str
    profile: str | None
    cache: Path | None
    provider_options: dict[str, str]
    session_options: dict[str, str]
    cuda_graph: bool
    least_nodes: float
    engine_key: str


def read_options(path: Path) -> dict[str, str]:
    """The lines KEY<TAB>VALUE of runner/options.tsv; none where there is no such file."""
    if not path.exists():
        return {}
    if sane_size(path) > MAX_OPTIONS_BYTES:
        raise Failure("bundle", f"{path} is no file of a sane size")
    found: dict[str, str] = {}
    lines = path.read_bytes().decode().split("\n")
    for count, line in enumerate(lines, 1):
        if not line and count == len(lines):
            break
        key, tab, value = line.partition("\t")
        if not tab or not VALUE.match(value) or count > MAX_OPTIONS:
            raise Failure("bundle", f"{path}:{count}: no KEY<TAB>VALUE")
        own = RUNNER_OPTIONS.get(key)
        if key in found or not (own.match(value) if own else OPTION.match(key)):
            raise Failure("bundle", f"{path}:{count}: unknown option {key} = {value}")
        found[key] = value
    return found


def read_request(options: argparse.Namespace, artifact: Path) -> Request:
    """What the arguments and the bundle's options ask for."""
    said = read_options(options.bundle / "runner" / "options.tsv")
    groups: dict[str, dict[str, str]] = {"provider": {}, "session": {}, "runner": {}}
    for key, value in said.items():
        group, _, name = key.partition(".")
        groups[group][name] = value
    own = groups["runner"]
    return Request(
        artifact,
        options.threads,
        options.provider or "",
        options.optimization,
        options.profile,
        options.cache,
        groups["provider"],
        groups["session"],
        own.get("cuda_graph") == "1",
        float(own.get("least_nodes", "1")),
        own.get("engine_key", ""),
    )
