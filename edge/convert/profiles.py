"""Optimization profiles of TensorRT: the least, usual and largest shape of every input.

1. A symbolic dimension (``dim_param``) spans the sizes that it has in the golden samples, or what
   the target's ``[tensorrt.profiles]`` says, which must hold those.
2. One name is one size: TensorRT takes dimensions of one name as equal ("Input dimensions with
   this name have different constant values or have contradictory IOptimizationProfile kMIN/kMAX
   constraints"), and refuses PP-OCR's cls, whose height and width are both called ``?``.
3. A dimension without a name is refused: nothing says what it is equal to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edge import errors
from edge.model import Port, describe

Shape = tuple[int, ...]
Range = tuple[int, int, int]
POINTS = ("least", "usual", "most")
# As options of TensorRT call them.
SHORT = {"least": "min", "usual": "opt", "most": "max"}
# "name:1x3,name:2x3" is split at the first colon and at commas (MakeInputNameShapePair of the
# provider; trtexec reads the same form).
SEPARATORS = ":,'\""


@dataclass(frozen=True)
class Profile:
    """One input; shapes in elements. ``dims``: sizes, and the names of dimensions that are open."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    least: Shape
    usual: Shape
    most: Shape

    @property
    def dynamic(self) -> bool:
        """True when a dimension is open."""
        return any(isinstance(dim, str) for dim in self.dims)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}


def from_json(entries: Iterable[Mapping[str, Any]]) -> tuple[Profile, ...]:
    """The profiles of :meth:`Profile.to_json` values."""
    return tuple(_from_json(entry) for entry in entries)


def _from_json(entry: Mapping[str, Any]) -> Profile:
    dims, *shapes = (tuple(entry[key]) for key in ("dims", *POINTS))
    return Profile(entry["name"], entry["dtype"], dims, *shapes)


def derive(
    ports: Sequence[Port],
    cases: Sequence[Mapping[str, Shape]],
    ranges: Mapping[str, Sequence[int]],
) -> tuple[Profile, ...]:
    """Profiles of all inputs, from the shapes of each golden sample's inputs, and the ranges.

    Raises :class:`errors.ModelRefused` by rules 2 and 3, :class:`errors.ConfigError` for a range
    that no dimension has, that is not in order, or that a sample is outside of.
    """
    for port in ports:
        _named(port)
    sizes = _sizes(ports, cases)
    for symbol in ranges:
        if symbol not in sizes:
            raise errors.ConfigError(
                f"tensorrt.profiles.{symbol}: the model has no open dimension of that name",
                remedy=errors.did_you_mean(symbol, sorted(sizes)) or 'say dims = "symbolic"',
            )
    spans = {symbol: _span(symbol, seen, ranges.get(symbol)) for symbol, seen in sizes.items()}
    return tuple(_profile(port, spans) for port in ports)


def _named(port: Port) -> None:
    if None in port.shape:
        raise errors.ModelRefused(
            f"input {port.name} has the shape {describe(port.shape)}: a dimension without a name "
            "has no profile, TensorRT cannot know what it is equal to",
            remedy='say dims = "bound", or name it (onnx.tools.update_model_dims)',
        )


def _sizes(ports: Sequence[Port], cases: Sequence[Mapping[str, Shape]]) -> dict[str, list[int]]:
    """The sizes that each symbol has in the samples, in their order."""
    found: dict[str, list[int]] = {
        dim: [] for port in ports for dim in port.shape if isinstance(dim, str)
    }
    for case in cases:
        sizes: dict[str, tuple[int, str]] = {}
        for port in ports:
            for dim, size in zip(port.shape, case.get(port.name, ()), strict=False):
                if isinstance(dim, str):
                    known, where = sizes.setdefault(dim, (size, port.name))
                    _equal(dim, (known, where), (size, port.name))
        for dim, (size, _) in sizes.items():
            found[dim].append(size)
    return found


def _equal(dim: str, one: tuple[int, str], other: tuple[int, str]) -> None:
    if one[0] != other[0]:
        raise errors.ModelRefused(
            f"the dimension {dim!r} is {one[0]} in input {one[1]} and {other[0]} in input "
            f"{other[1]} of one sample; TensorRT takes dimensions of one name as equal",
            remedy='give them two names, or say dims = "bound"',
        )


def _span(symbol: str, seen: Sequence[int], said: Sequence[int] | None) -> Range:
    if not seen:
        raise errors.ModelRefused(f"no golden sample says how large the dimension {symbol!r} is")
    if said is None:
        return min(seen), seen[0], max(seen)
    least, usual, most = said
    if not 1 <= least <= usual <= most:
        raise errors.ConfigError(
            f"tensorrt.profiles.{symbol} = {list(said)} is not in order: least, usual, largest"
        )
    if not least <= min(seen) <= max(seen) <= most:
        raise errors.ConfigError(
            f"tensorrt.profiles.{symbol} = {list(said)} leaves out {min(seen)} to {max(seen)} of "
            "the golden samples",
            remedy="widen it, or give other samples",
        )
    return least, usual, most


def _profile(port: Port, spans: Mapping[str, Range]) -> Profile:
    dims = tuple(dim for dim in port.shape if dim is not None)
    least, usual, most = (
        tuple(spans[dim][point] if isinstance(dim, str) else dim for dim in dims)
        for point in range(3)
    )
    return Profile(port.name, port.dtype, dims, least, usual, most)


def strings(profiles: Sequence[Profile]) -> dict[str, str]:
    """``name:1x3,other:4`` for each point, of the inputs that are open; nothing without any.

    Raises :class:`errors.ModelRefused` for names that cannot be said in that form.
    """
    open_ones = [each for each in profiles if each.dynamic]
    for each in open_ones:
        if any(letter in SEPARATORS or letter.isspace() for letter in each.name):
            raise errors.ModelRefused(
                f"input {each.name!r}: TensorRT's shape options cannot hold that name",
                remedy='rename the input, or say dims = "bound"',
            )
    if not open_ones:
        return {}
    return {
        point: ",".join(f"{p.name}:{'x'.join(map(str, getattr(p, point)))}" for p in open_ones)
        for point in POINTS
    }
