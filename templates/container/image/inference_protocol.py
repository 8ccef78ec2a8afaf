"""Requests and responses of the Open Inference Protocol v2, with its binary tensor extension.

https://github.com/kserve/open-inference-protocol (specification/protocol/inference_rest.md) and
Triton's docs/protocol/extension_binary_data.md. Nothing of a request is trusted: whatever is not
exactly a tensor of the model is :class:`Refused`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

from served_model import DATATYPES, Port

JSON_LENGTH = "Inference-Header-Content-Length"


class Refused(Exception):
    """A request that is not answered: status code and the message of its error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Request(NamedTuple):
    """Inputs by name, and the outputs wanted with whether each is to be binary."""

    id: str | None
    feeds: dict[str, Any]
    outputs: dict[str, bool]


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _is(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise Refused(400, f"{what} is no {kind.__name__}")
    return value


def parse(
    body: bytes | bytearray, json_length: int, ports: tuple[list[Port], list[Port]], most: int
) -> Request:
    """A request whose tensors are exactly the model's; :class:`Refused` for any other.

    ``ports`` are the model's inputs and outputs, ``most`` the values that the JSON may hold.
    """
    inputs, outputs = ports
    said = _read(body, json_length, len(inputs) + len(outputs), most)
    _is(said, dict, "the body")
    feeds: dict[str, Any] = {}
    known, binary = {port.name: port for port in inputs}, memoryview(body)[json_length:]
    for each in _is(said.get("inputs"), list, "inputs"):
        name = _is(_is(each, dict, "an input").get("name"), str, "an input's name")
        if name not in known or name in feeds:
            raise Refused(400, f"the model has no input {name!r}, or it is given twice")
        feeds[name], binary = _tensor(each, known[name], binary)
    if len(feeds) < len(known):
        raise Refused(400, f"the inputs {sorted(set(known) - set(feeds))} are missing")
    if len(binary):
        raise Refused(400, f"{len(binary)} bytes of binary data belong to no input")
    identity = said.get("id")
    wanted = _wanted(said, [port.name for port in outputs])
    return Request(None if identity is None else _is(identity, str, "id"), feeds, wanted)


def _read(body: bytes | bytearray, length: int, ports: int, most: int) -> Any:
    """The JSON, after a look at how large it can get: an empty object of 2 bytes takes 72."""
    bounds = {b",": most, b"[": most, b"{": 4 * ports + 8, b'"': 32 * ports + 64}
    if any(body.count(sign, 0, length) > bound for sign, bound in bounds.items()):
        raise Refused(400, f"the JSON holds more than the model's tensors, or {most} values")
    try:
        with memoryview(body) as view:
            text = str(view[:length], "utf-8")
        return json.loads(text, parse_constant=_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a name that comes twice two readers may take either."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _parameters(said: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _is(said.get("parameters", {}), dict, "parameters")
    return found


def _wanted(said: dict[str, Any], names: list[str]) -> dict[str, bool]:
    usual = _is(_parameters(said).get("binary_data_output", False), bool, "binary_data_output")
    if "outputs" not in said:
        return dict.fromkeys(names, usual)
    found: dict[str, bool] = {}
    for each in _is(said["outputs"], list, "outputs"):
        name = _is(_is(each, dict, "an output").get("name"), str, "an output's name")
        if name not in names or name in found:
            raise Refused(400, f"the model has no output {name!r}, or it is asked for twice")
        found[name] = _is(_parameters(each).get("binary_data", usual), bool, "binary_data")
    return found


def _tensor(said: dict[str, Any], port: Port, binary: memoryview) -> tuple[Any, memoryview]:
    """The array of one input, and what is left of the binary data behind the JSON."""
    import numpy as np

    name, dtype = port.name, np.dtype(port.dtype)
    if said.get("datatype") != DATATYPES[port.dtype]:
        raise Refused(
            400, f"input {name} is {DATATYPES[port.dtype]}, not {said.get('datatype')!r:.20}"
        )
    shape = _is(said.get("shape"), list, f"the shape of {name}")
    if len(shape) != len(port.shape) or any(
        type(size) is not int or not 0 < size < 2**31 or fixed not in (-1, size)
        for size, fixed in zip(shape, port.shape, strict=True)
    ):
        raise Refused(400, f"input {name} is {list(port.shape)}, not {shape!r:.100}")
    count = prod(shape)
    size = _parameters(said).get("binary_data_size")
    if size is None:
        return _from_json(said.get("data"), shape, dtype, name).reshape(shape), binary
    if (
        "data" in said
        or type(size) is not int
        or size != count * dtype.itemsize
        or size > len(binary)
    ):
        raise Refused(400, f"input {name} needs {count * dtype.itemsize} bytes of binary data")
    array = np.frombuffer(binary[:size], dtype.newbyteorder("<")).astype(dtype)
    if dtype.kind == "b" and (np.frombuffer(binary[:size], np.uint8) > 1).any():
        raise Refused(400, f"input {name} has bytes other than 0 and 1")
    return array.reshape(shape), binary[size:]


def _flat(data: Any, shape: list[int], name: str) -> list[Any]:
    """The elements in row-major order, given as one list or as nested ones."""
    flat: list[Any] = _is(data, list, f"the data of {name}")
    return _nested(flat, shape, name) if any(type(each) is list for each in flat) else flat


def _nested(data: Any, shape: list[int], name: str) -> list[Any]:
    if type(data) is not list or not shape or len(data) != shape[0]:
        raise Refused(400, f"the data of {name} is not nested as its shape says")
    if len(shape) == 1:
        return data
    return [value for part in data for value in _nested(part, shape[1:], name)]


def _from_json(data: Any, shape: list[int], dtype: Any, name: str) -> Any:
    import numpy as np

    flat = _flat(data, shape, name)
    if len(flat) != prod(shape):
        raise Refused(400, f"input {name} has {len(flat)} elements, not {prod(shape)}")
    kinds: set[type] = {int, float} if dtype.kind == "f" else {bool if dtype.kind == "b" else int}
    if set(map(type, flat)) - kinds:
        raise Refused(400, f"input {name} has elements that are no {DATATYPES[dtype.name]}")
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    if limits and not limits.min <= min(flat) <= max(flat) <= limits.max:
        raise Refused(400, f"input {name} has elements outside {DATATYPES[dtype.name]}")
    with suppress(OverflowError), np.errstate(over="ignore"):
        array = np.array(flat, np.float64 if dtype.kind == "f" else dtype).astype(dtype)
        if dtype.kind != "f" or np.isfinite(array).all():
            return array
    raise Refused(400, f"input {name} has elements outside {DATATYPES[dtype.name]}")


def render(
    asked: Request, model: tuple[str, str], found: dict[str, Any]
) -> tuple[bytes, int | None]:
    """The response's body, and the length of its JSON where binary data follow."""
    import numpy as np

    outputs, parts = [], []
    for name, binary in asked.outputs.items():
        value = found[name]
        entry: dict[str, Any] = {
            "name": name,
            "datatype": DATATYPES[value.dtype.name],
            "shape": list(value.shape),
        }
        if binary:
            parts.append(value.astype(value.dtype.newbyteorder("<")).tobytes())
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        elif value.dtype.kind == "f" and not np.isfinite(value).all():
            raise Refused(400, f"output {name} is not finite: JSON cannot hold it, binary_data can")
        else:
            entry["data"] = value.ravel().tolist()
        outputs.append(entry)
    said: dict[str, Any] = {"model_name": model[0], "model_version": model[1], "outputs": outputs}
    if asked.id is not None:
        said["id"] = asked.id
    text = json.dumps(said).encode()
    return text + b"".join(parts), len(text) if parts else None
