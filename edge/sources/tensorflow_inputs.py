"""Inputs of a TensorFlow model as the project and the model say them, and how things are named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from edge import errors
from edge.model import describe
from edge.samples import ITEM_BYTES

Shape = tuple[int | str | None, ...]
DECLARE = "declare them in edge.toml: [model.inputs.NAME] dtype = ..., shape = [...]"


@dataclass(frozen=True)
class Input:
    """An input: dtype by numpy's name; a dimension is a size or a symbol.

    Before binding a dimension may be None, and so may the shape where the rank is unknown.
    """

    name: str
    dtype: str
    shape: Shape | None


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts output_2 before output_10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def short(error: Exception) -> str:
    """The error in one line: what is behind the traceback that AutoGraph and Keras put in it."""
    # Keras writes in bold; a name out of a file may hold any control character.
    text = re.sub(r"\x1b\[[0-9;]*m|[^\S\n]+|[\x00-\x09\x0b-\x1f\x7f]", " ", str(error))
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    marks = r"[\w.]+(Error|Exception): |Exception encountered: "
    named = [n for n, line in enumerate(lines) if re.match(marks, line)]
    said = lines[named[-1] : named[-1] + 2] if named else lines[:1]
    return " ".join(said or [type(error).__name__])[:300]


def declared(options: Mapping[str, Any], title: str) -> list[Input]:
    """The inputs as the project says them, for a model that does not say them itself."""
    found = []
    for each in options["inputs"]:
        if not each.get("dtype") or each.get("shape") is None:
            raise errors.UsageError(
                f"{title} says nothing of its inputs; the project lacks dtype or shape of "
                f"{each['name']}",
                remedy=DECLARE,
            )
        found.append(Input(each["name"], each["dtype"], tuple(each["shape"])))
    if not found:
        raise errors.UsageError(f"{title} says nothing of its inputs", remedy=DECLARE)
    return found


def refuse_type(name: str, kind: str) -> NoReturn:
    """Refuse an input or output that is no plain numeric tensor."""
    raise errors.ModelRefused(
        f"{name} is a {kind} tensor; a deployed model takes and gives plain numeric ones",
        remedy="move the preprocessing (text, tokens, sparse or ragged rows) out of the model",
    )


def bind(inputs: Sequence[Input], options: Mapping[str, Any]) -> tuple[Input, ...]:
    """Inputs with every dimension a size or a symbol: the project's, else ``batch`` for the first.

    Raises :class:`errors.UsageError` for names, dtypes and shapes that contradict the model.
    """
    names = [each.name for each in inputs]
    said = {each["name"]: each for each in options["inputs"]}
    for name in said:
        if name not in names:
            raise errors.UsageError(
                f"the model has no input {name!r}; it has: {', '.join(names) or 'none'}",
                remedy=errors.did_you_mean(name, names) or "name the inputs as the model does",
            )
    if len(set(names)) != len(names):
        raise errors.ModelRefused(f"two inputs have the same name: {', '.join(names)}")
    return tuple(_bind_one(each, said.get(each.name, {})) for each in inputs)


def _bind_one(known: Input, said: Mapping[str, Any]) -> Input:
    if known.dtype not in ITEM_BYTES:
        refuse_type(known.name, known.dtype)
    if said.get("dtype") not in (None, known.dtype):
        raise errors.UsageError(
            f"the input {known.name} is {known.dtype}, the project says {said['dtype']}"
        )
    shape = said.get("shape")
    if shape is None:
        return replace(known, shape=_symbols(known))
    own = known.shape
    if own is not None and not (len(shape) == len(own) and all(map(_fits, own, shape))):
        raise errors.UsageError(
            f"the input {known.name} has the shape {describe(own)}, which "
            f"{describe(tuple(shape))} does not fit"
        )
    return replace(known, shape=tuple(shape))


def _fits(own: int | str | None, said: int | str) -> bool:
    return own in (None, said)


def _symbols(known: Input) -> Shape:
    if known.shape is None:
        raise errors.UsageError(
            f"the number of dimensions of the input {known.name} is unknown", remedy=DECLARE
        )
    return tuple(
        dim if dim is not None else ("batch" if n == 0 else f"{known.name}_dim{n}")
        for n, dim in enumerate(known.shape)
    )


def unique(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """``names`` with _1, _2 ... where one would come twice, or is among the ``taken``."""
    used = set(taken) | {""}
    found = []
    for name in names:
        number = 0
        made = name
        while made in used:
            number += 1
            made = f"{name}_{number}"
        used.add(made)
        found.append(made)
    return found
