"""Inputs and outputs of a PyTorch model: their names, their shapes, values to trace it with."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.samples import ITEM_BYTES
from edge.sources.framework import refuse_swapped
from edge.sources.torch_loading import Loaded, require_torch

if TYPE_CHECKING:
    import torch

Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Input:
    """An input: its ONNX ``name``, forward()'s ``parameter``, ``shape`` with symbols by name.

    ``example`` is a tensor of the input's dtype to run and trace the model with.
    """

    name: str
    parameter: str
    shape: Dims
    example: torch.Tensor


def names_of(loaded: Loaded, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(ONNX name, forward()'s parameter) of each input, in order.

    As the project says; where it says nothing the examples' names, else forward()'s parameters.
    The project's names are parameters of forward(), or else new names for them in order.
    """
    said = [str(each["name"]) for each in options.get("inputs") or ()]
    if not said:
        return [(name, name) for name in _own_names(loaded)]
    if loaded.variadic:
        return [(name, f"input_{index}") for index, name in enumerate(said)]
    known = loaded.parameters
    strange = [name for name in said if name not in known]
    needed = [name for name in known[: loaded.required] if name not in said]
    if not strange and not needed:
        return [(name, name) for name in said]
    if strange and len(strange) < len(said):
        raise errors.UsageError(
            f"the project names an input {strange[0]!r} that forward() does not have",
            remedy=errors.did_you_mean(strange[0], list(known)) or f"it has: {', '.join(known)}",
        )
    if not strange:
        raise errors.UsageError(
            f"forward() also needs {', '.join(needed)}", remedy=f"write:\n{_toml(needed[0])}"
        )
    if not loaded.required <= len(said) <= len(known):
        raise errors.UsageError(
            f"the project names {len(said)} inputs, the model takes {', '.join(known[:20])}",
            remedy="say [model.inputs.NAME] for each of them, in their order",
        )
    return list(zip(said, known, strict=False))


def _own_names(loaded: Loaded) -> list[str]:
    """The inputs that come with examples, else those that must be given."""
    given = [name for name in loaded.parameters if name in loaded.examples]
    return given or list(loaded.parameters[: loaded.required or 1])


def bind(loaded: Loaded, options: Mapping[str, Any]) -> list[Input]:
    """The inputs with shapes, dtypes and example values.

    Raises :class:`errors.UsageError` with the lines to write where nothing says a shape.
    """
    said = {str(each["name"]): each for each in options.get("inputs") or ()}
    pairs = names_of(loaded, options)
    if not pairs:
        raise errors.UsageError("nothing says what inputs the model takes", remedy=_toml("NAME"))
    missing = [
        name
        for name, parameter in pairs
        if said.get(name, {}).get("shape") is None and parameter not in loaded.examples
    ]
    if missing:
        raise errors.UsageError(
            f"nothing says the shape of the input {', '.join(missing)}",
            remedy="return (module, example_inputs) from the factory, or write in edge.toml:\n"
            + "\n".join(_toml(name) for name in missing),
        )
    dims = _Dims(options.get("dims") or {})
    return [
        _bind_one(loaded, name, parameter, said.get(name, {}), dims) for name, parameter in pairs
    ]


def _toml(name: str) -> str:
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
    return f'[model.inputs.{key}]\nshape = ["batch", 3, 224, 224]\ndtype = "float32"'


class _Dims:
    """Sizes of symbols: the project's, else what the first example has for them.

    At least 2: exporters take a dimension of 1 for one that is never anything else (an LSTM's
    first state is then made for it), and the golden samples are not run with these anyway.
    """

    def __init__(self, said: Mapping[str, int]) -> None:
        self._sizes = dict(said)

    def size(self, symbol: str, example: int | None) -> int:
        if not re.fullmatch(r"[A-Za-z_]\w*", symbol):
            raise errors.UsageError(
                f"the dimension's name {symbol[:50]!r} is no plain word",
                remedy="letters, digits and underscores: batch, seq_len",
            )
        return max(2, self._sizes.setdefault(symbol, 2 if example is None else example))


def _bind_one(
    loaded: Loaded, name: str, parameter: str, said: Mapping[str, Any], dims: _Dims
) -> Input:
    torch = require_torch()
    example = loaded.examples.get(parameter)
    shape = _shape(loaded, name, parameter, said)
    own = list(example.shape) if example is not None else [None] * len(shape)
    sizes = [
        dims.size(dim, have) if isinstance(dim, str) else dim
        for dim, have in zip(shape, own, strict=True)
    ]
    dtype = _dtype(name, said.get("dtype"), example)
    usable = example is not None and example.device.type != "meta" and example.dtype == dtype
    if example is not None and usable and list(example.shape) == sizes:
        if example.device.type != "cpu":
            raise errors.ModelRefused(
                f"the example input {name!r} is on the device {example.device}",
                remedy="return CPU tensors from the factory: example.cpu()",
            )
        return Input(name, parameter, shape, example.detach().clone())
    generator = torch.Generator().manual_seed(0)
    return Input(name, parameter, shape, draw(sizes, dtype, said.get("range"), generator))


def _shape(loaded: Loaded, name: str, parameter: str, said: Mapping[str, Any]) -> Dims:
    example = loaded.examples.get(parameter)
    if said.get("shape") is None and example is not None:
        axes = enumerate(example.shape)
        return tuple(loaded.symbols.get((parameter, axis), int(dim)) for axis, dim in axes)
    shape = tuple(said["shape"])
    if example is not None and len(example.shape) != len(shape):
        raise errors.UsageError(
            f"the input {name!r} has {len(example.shape)} dimensions ({list(example.shape)}), "
            f"the project says {len(shape)}: {list(shape)}",
            remedy="say a shape of as many dimensions; a word stands for one that may vary",
        )
    return shape


def _dtype(name: str, said: str | None, example: torch.Tensor | None) -> Any:
    torch = require_torch()
    if said is None:
        dtype = torch.float32 if example is None else example.dtype
    else:
        dtype = getattr(torch, said, None)
    plain = str(dtype).removeprefix("torch.")
    if not isinstance(dtype, torch.dtype) or plain not in ITEM_BYTES:
        raise errors.UsageError(
            f"the input {name!r} has the type {said or plain}, which samples cannot hold",
            remedy=f"types that can be held: {', '.join(ITEM_BYTES)}; "
            "convert in a module around yours",
        )
    return dtype


def draw(sizes: Sequence[int], dtype: Any, limits: Any, generator: Any) -> Any:
    """Seeded values in ``limits``, else in [-1, 1] for floats and in {0, 1} for integers."""
    torch = require_torch()
    if dtype == torch.bool:
        return torch.randint(0, 2, sizes, generator=generator).to(dtype)
    if dtype.is_floating_point:
        low, high = limits or (-1.0, 1.0)
        return (torch.rand(sizes, generator=generator) * (high - low) + low).to(dtype)
    low, high = limits or (0, 1)
    # float64 would lose an int64's last bits, which no example needs.
    return torch.randint(int(low), int(high) + 1, sizes, generator=generator).to(dtype)


def other_sizes(inputs: Sequence[Input]) -> list[torch.Tensor]:
    """Examples in which every symbol is larger by one than in the inputs' own."""
    torch = require_torch()
    generator = torch.Generator().manual_seed(1)
    found = []
    for each in inputs:
        have = each.example.shape
        sizes = [d + isinstance(s, str) for d, s in zip(have, each.shape, strict=True)]
        values = each.example.flatten()
        limits = (values.min().item(), values.max().item()) if values.numel() else None
        found.append(draw(sizes, each.example.dtype, limits, generator))
    return found


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of all tensors in what a model returned, in order; None is left out.

    Names come from keys and field names; elements without one are numbered. Raises
    :class:`errors.ModelRefused` for anything that is no tensor.
    """
    torch = require_torch()
    if value is None:
        return
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    entries = _entries(value)
    if entries is None:
        raise errors.ModelRefused(
            f"the output {name or 'of the model'} is {_kind(value)}, no tensor",
            remedy="return tensors alone (in tuples, lists, dicts or dataclasses) from forward()",
        )
    for key, inner in entries:
        yield from flatten(inner, f"{name}_{key}" if name else str(key))


def _kind(value: Any) -> str:
    plain = f" ({str(value)[:30]!r})" if isinstance(value, bool | int | float | str) else ""
    return f"of type {type(value).__name__[:50]}{plain}"


def _entries(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """Keys and values of a container; None for anything else."""
    if isinstance(value, Mapping):  # also ModelOutput of transformers
        return iter(value.items())
    if isinstance(value, tuple) and (names := getattr(value, "_fields", None)):
        return zip(names, value, strict=True)
    if isinstance(value, list | tuple):
        return iter(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return iter([(each.name, getattr(value, each.name)) for each in fields])
    return None


def output_names(
    found: Sequence[str], wanted: Sequence[str], inputs: Sequence[str]
) -> tuple[str, ...]:
    """The outputs' ONNX names: the project's, else made of the keys; all distinct.

    Raises :class:`errors.UsageError` for names that do not fit the model.
    """
    if not wanted:
        return _distinct([name or "output" for name in map(_with_letter, found)], set(inputs))
    if len(wanted) != len(found):
        raise errors.UsageError(
            f"the project names {len(wanted)} outputs, the model gives {len(found)}: "
            f"{', '.join(_distinct([_with_letter(n) or 'output' for n in found], set()))}",
            remedy="name all of them, in this order, or none",
        )
    twice = [name for name in wanted if wanted.count(name) > 1 or name in inputs]
    if twice:
        raise errors.UsageError(
            f"the output name {twice[0]!r} is also the name of another input or output",
            remedy="give every input and output a name of its own",
        )
    refuse_swapped(list(found), wanted)
    return tuple(wanted)


def _with_letter(name: str) -> str:
    return f"output_{name}" if name[:1].isdigit() else name


def _distinct(names: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    found: list[str] = []
    for name in names:
        spelled, number = name, 0
        while spelled in taken:
            spelled = f"{name}_out" if number == 0 else f"{name}_out{number}"
            number += 1
        taken.add(spelled)
        found.append(spelled)
    return tuple(found)
