"""What is known of a model: its inputs and outputs, how they are bound, which release reads it.

Pure functions over plain values; the file itself is only opened by steps, in processes of
their own (``edge.sources``, ``edge.convert``).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.samples import ITEM_BYTES, MAX_TENSOR_BYTES

if TYPE_CHECKING:  # steps read models where pydantic is not installed
    from edge import config

# Highest ai.onnx opset and IR version that a release reads. Probed release by release with models
# stamped one higher ("Unsupported model IR version: 99, max supported IR version: 14").
RELEASES: Mapping[str, tuple[int, int]] = {
    "1.19": (21, 10), "1.20": (21, 10), "1.21": (22, 10), "1.22": (22, 10), "1.23": (23, 11),
    "1.24": (25, 13), "1.25": (26, 13), "1.26": (26, 13), "1.27": (26, 13), "1.28": (26, 13),
    "1.29": (26, 13), "1.30": (26, 13), "1.31": (26, 13), "1.32": (28, 14),
}  # fmt: skip
# A protobuf message, and an ORT-format flatbuffer, cannot be larger.
FORMAT_LIMIT_BYTES = 2**31 - 1


@dataclass(frozen=True)
class Port:
    """An input or output: dtype by numpy's name; a dimension is a size, a symbol or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class BoundInput:
    """An input with all its dimensions known. ``constant``: the same value in every run."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    range: tuple[float, float] | None = None
    constant: bool | int | float | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, for a step's parameters."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "range": list(self.range) if self.range else None,
            "constant": self.constant,
        }


def ports(entries: list[dict[str, Any]]) -> tuple[Port, ...]:
    """Ports from the facts of the import step."""
    return tuple(Port(e["name"], e["dtype"], tuple(e["shape"])) for e in entries)


def bind(inputs: tuple[Port, ...], spec: config.ModelSpec) -> tuple[BoundInput, ...]:
    """Every input with its dimensions bound: by its declared shape, else by the symbols' values.

    Raises :class:`errors.ConfigError` for names that the model does not have, for shapes that
    contradict it and for dimensions that nothing binds.
    """
    names = [port.name for port in inputs]
    shapes = [port.shape for port in inputs] + [said.shape or () for said in spec.inputs.values()]
    symbols = sorted({dim for shape in shapes for dim in shape if isinstance(dim, str)})
    _known(f"model {spec.name}: inputs", spec.inputs, names)
    _known(f"model {spec.name}: dims", spec.dims, symbols)
    return tuple(_bind_one(port, spec) for port in inputs)


def _known(where: str, said: Mapping[str, Any], known: list[str]) -> None:
    for name in said:
        if name not in known:
            none = "the model has none; give shapes: --set 'model.inputs.NAME.shape=[1, 3]'"
            raise errors.ConfigError(
                f"{where}.{name}: the model has no such name",
                remedy=errors.did_you_mean(name, known) or none,
            )


def _bind_one(port: Port, spec: config.ModelSpec) -> BoundInput:
    from edge import config

    said = spec.inputs.get(port.name, config.InputSpec())
    if said.dtype and said.dtype != port.dtype:
        raise errors.ConfigError(
            f"model {spec.name}: input {port.name} is {port.dtype}, the project says {said.dtype}"
        )
    if said.shape is not None:
        shape = _declared(port, said.shape, spec)
    else:
        shape = tuple(_size(port, position, dim, spec) for position, dim in enumerate(port.shape))
    _check_values(port, said, spec.name)
    size = prod(shape) * ITEM_BYTES.get(port.dtype, 1)
    if size > MAX_TENSOR_BYTES:
        raise errors.ConfigError(
            f"model {spec.name}: input {port.name} {list(shape)} would hold {size} bytes",
            remedy=f"bind its dimensions smaller; at most {MAX_TENSOR_BYTES} bytes are possible",
        )
    return BoundInput(port.name, port.dtype, shape, said.range, said.constant)


def _check_values(port: Port, said: config.InputSpec, model: str) -> None:
    """Range and constant must be values of the input's dtype: nothing is rounded or wrapped."""
    signed = port.dtype.startswith("int")
    if not signed and not port.dtype.startswith("uint"):
        return
    bits = int(port.dtype.lstrip("uint"))
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    values = [*(said.range or ()), *([] if said.constant is None else [said.constant])]
    for value in values:
        if value != int(value) or not low <= value <= high:
            raise errors.ConfigError(
                f"model {model}: input {port.name} is {port.dtype}; {value} is no value of it"
            )


def _declared(port: Port, said: tuple[int | str, ...], spec: config.ModelSpec) -> tuple[int, ...]:
    shape = tuple(_size(port, n, dim, spec) for n, dim in enumerate(said))
    fits = len(shape) == len(port.shape) and all(
        (not isinstance(dim, int) or dim == size)
        and (not isinstance(dim, str) or spec.dims.get(dim, size) == size)
        for dim, size in zip(port.shape, shape, strict=False)
    )
    if not fits:
        raise errors.ConfigError(
            f"model {spec.name}: input {port.name} has the shape {describe(port.shape)}, "
            f"which {list(shape)} does not fit"
        )
    return shape


def _size(port: Port, position: int, dim: int | str | None, spec: config.ModelSpec) -> int:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str) and dim in spec.dims:
        return spec.dims[dim]
    by_name = f"--dim {shlex.quote(f'{dim}=N')}, or " if isinstance(dim, str) else ""
    raise errors.ConfigError(
        f"model {spec.name}: dimension {position} of input {port.name} "
        f"{describe(port.shape)} is not bound",
        remedy=f"{by_name}a shape for the input {port.name} of model {spec.name} in edge.toml, or "
        f"--set {shlex.quote(f'model.inputs.{_toml_key(port.name)}.shape=[...]')}",
    )


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def describe(shape: tuple[int | str | None, ...]) -> str:
    """A shape for a person: ``[batch, 3, ?]``."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


NO_LIMIT = (10**6, 10**6)


def limits(version: str) -> tuple[int, int]:
    """Highest ai.onnx opset and IR version that a release reads.

    Releases outside the table are left to the runtime itself, which the build runs anyway.
    """
    return RELEASES.get(version.rpartition(".")[0], NO_LIMIT)
