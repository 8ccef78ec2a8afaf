"""Inputs and outputs of a bundle's artifact, as the golden samples and the model say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from edge import errors, graph, samples
from edge.field import Bundle

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Port:
    """An input or output: -1 is an open dimension, ``symbol`` the name of an open first one."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    symbol: str = ""

    def to_json(self) -> dict[str, Any]:
        """What the server in the container reads."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


def ports(what: Bundle, role: str) -> tuple[Port, ...]:
    """The ports of a role (input, output) in the model's order.

    A dimension is open where the model says so and where golden samples differ; engines, which
    cannot be read here, say it in the manifest's profiles.
    """
    seen: dict[str, list[samples.Tensor]] = {}
    for tensor in samples.read_index(what.folder / "samples"):
        if tensor.role == role:
            seen.setdefault(tensor.name, []).append(tensor)
    dims = _dims(what, role)
    return tuple(_port(tensors, dims.get(name, ())) for name, tensors in seen.items())


def _port(tensors: list[samples.Tensor], dims: Dims) -> Port:
    first = tensors[0]
    if any(len(each.shape) != len(first.shape) for each in tensors):
        raise errors.UsageError(
            f"the golden samples have {first.name} in several ranks, which no server declares"
        )
    shape = list(first.shape)
    for axis, size in enumerate(first.shape):
        said = dims[axis] if axis < len(dims) else size
        if not isinstance(said, int) or any(each.shape[axis] != size for each in tensors):
            shape[axis] = -1
    symbol = dims[0] if dims and isinstance(dims[0], str) else ""
    return Port(first.name, first.dtype, tuple(shape), symbol)


def _dims(what: Bundle, role: str) -> Mapping[str, Dims]:
    """Dimensions by the port's name, as far as the artifact can be read."""
    artifact = what.folder / what.manifest["artifact"]
    if artifact.suffix == ".onnx":
        found = graph.facts(graph.read(artifact))
        return {each["name"]: tuple(each["shape"]) for each in found[f"{role}s"]}
    if artifact.suffix == ".xml":
        return _ir_dims(artifact)
    profiles = what.manifest["runtime"].get("profiles") or []
    return {each["name"]: tuple(each["dims"]) for each in profiles}


def _ir_dims(path: Path) -> dict[str, Dims]:
    """Dimensions of every named tensor of an OpenVINO IR; None is an open one."""
    try:
        tree = ET.parse(path)  # noqa: S314 - a verified file; expat bounds what entities become
        found: dict[str, Dims] = {}
        for port in tree.iter("port"):
            sizes = [int(dim.text or "") for dim in port.findall("dim")]
            for name in filter(None, port.get("names", "").split(",")):
                found[name] = tuple(size if size >= 0 else None for size in sizes)
    except (ET.ParseError, ValueError) as error:
        raise errors.UsageError(
            f"{path} is no OpenVINO IR: {error}", remedy="build the bundle again"
        ) from error
    return found
