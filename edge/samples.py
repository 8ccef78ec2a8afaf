"""Golden samples on disk: ``samples.tsv`` and one raw file a tensor.

One line a tensor, seven fields between tabs: sample, role, index, dtype, shape, file, name. The
format is meant to be read in ten lines of C, Kotlin, Swift or JavaScript. Tensors are little
endian, C order. The reader treats the folder as untrusted: names, shapes and sizes are checked
before memory is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

INDEX = "samples.tsv"
ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4,
    "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
ROLES = ("input", "output")
MAX_TENSORS = 10_000
MAX_TENSOR_BYTES = 2**31
_FILE = re.compile(r"[0-9A-Za-z_.-]+")
_SHAPE = re.compile(r"-|[0-9]{1,10}(x[0-9]{1,10})*")


@dataclass(frozen=True)
class Tensor:
    """One tensor of the samples: ``shape`` in elements, ``dtype`` by numpy's name."""

    sample: int
    role: str
    index: int
    dtype: str
    shape: tuple[int, ...]
    file: str
    name: str

    @property
    def nbytes(self) -> int:
        """Size of the raw file in bytes."""
        return ITEM_BYTES[self.dtype] * prod(self.shape)

    def line(self) -> str:
        """The tensor's line in ``samples.tsv``."""
        shape = "x".join(map(str, self.shape)) or "-"
        fields = (self.sample, self.role, self.index, self.dtype, shape, self.file, self.name)
        return "\t".join(map(str, fields)) + "\n"


def file_name(sample: int, role: str, index: int) -> str:
    """The file of one tensor: ``000.input.0.bin``."""
    return f"{sample:03d}.{role}.{index}.bin"


def check_name(name: str) -> str:
    """``name`` itself, or :class:`errors.ModelRefused` when the index cannot hold it."""
    if any(character in name for character in "\t\n\r\0"):
        raise errors.ModelRefused(
            f"the tensor name {name!r} holds a tab or a line break",
            remedy="rename the model's inputs and outputs",
        )
    return name


def parse_line(line: str, where: str) -> Tensor:
    """One line of ``samples.tsv``; :class:`errors.RunFailed` when it is not one."""
    fields = line.split("\t")
    bad = errors.RunFailed(f"{where} is no line of samples: {line[:200]!r}")
    if len(fields) != 7:
        raise bad
    sample, role, index, dtype, shape, file, name = fields
    if role not in ROLES or dtype not in ITEM_BYTES or not _SHAPE.fullmatch(shape):
        raise bad
    numbers = sample + index
    if not (numbers.isascii() and numbers.isdigit() and sample and index and len(numbers) < 12):
        raise bad
    if not _FILE.fullmatch(file) or set(file) == {"."}:
        raise bad
    dims = () if shape == "-" else tuple(map(int, shape.split("x")))
    tensor = Tensor(int(sample), role, int(index), dtype, dims, file, name)
    if len(dims) > 32 or tensor.nbytes > MAX_TENSOR_BYTES:
        raise bad
    return tensor


def read_index(folder: Path) -> tuple[Tensor, ...]:
    """All tensors of a samples folder; nothing but the index is read."""
    path = folder / INDEX
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.RunFailed(f"cannot read {path}: {error}") from error
    # Not splitlines(): it also splits at characters that a name may hold, such as U+2028.
    lines = text.removesuffix("\n").split("\n") if text else []
    if len(lines) > MAX_TENSORS:
        raise errors.RunFailed(f"{path} lists more than {MAX_TENSORS} tensors")
    return tuple(parse_line(line, f"{path}:{n}") for n, line in enumerate(lines, 1))


def read_tensor(folder: Path, tensor: Tensor) -> Array:
    """The tensor's values; :class:`errors.RunFailed` when its file has another size."""
    import numpy as np

    path = folder / tensor.file
    try:
        size = path.stat().st_size
        if size != tensor.nbytes:
            raise errors.RunFailed(f"{path} holds {size} bytes, its line says {tensor.nbytes}")
        data = path.read_bytes()
    except OSError as error:
        raise errors.RunFailed(f"cannot read {path}: {error.strerror}") from error
    little = np.dtype(tensor.dtype).newbyteorder("<")
    return np.frombuffer(data, little).reshape(tensor.shape).astype(tensor.dtype)


def write(folder: Path, cases: list[tuple[dict[str, Array], dict[str, Array]]]) -> None:
    """Write one (inputs, outputs) pair of name-to-array mappings for each sample."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for sample, pair in enumerate(cases):
        for role, arrays in zip(ROLES, pair, strict=True):
            for index, (name, array) in enumerate(arrays.items()):
                lines.append(_write_tensor(folder, (sample, role, index), name, array).line())
    (folder / INDEX).write_bytes("".join(lines).encode())


def _write_tensor(folder: Path, place: tuple[int, str, int], name: str, array: Array) -> Tensor:
    import numpy as np

    dtype = array.dtype.name
    if dtype not in ITEM_BYTES:
        raise errors.ModelRefused(
            f"the tensor {name!r} has the type {dtype}, which samples cannot hold",
            remedy=f"types that can be held: {', '.join(ITEM_BYTES)}",
        )
    tensor = Tensor(*place, dtype, array.shape, file_name(*place), check_name(name))
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    (folder / tensor.file).write_bytes(little.tobytes())
    return tensor


def cases(folder: Path, role: str) -> list[dict[str, Array]]:
    """Name-to-array mappings of one role, one for each sample, in index order.

    A sample without a tensor of that role (a model without inputs) has an empty mapping.
    """
    found: dict[int, dict[str, Array]] = {}
    for tensor in read_index(folder):
        case = found.setdefault(tensor.sample, {})
        if tensor.role == role:
            case[tensor.name] = read_tensor(folder, tensor)
    return [found[sample] for sample in sorted(found)]
