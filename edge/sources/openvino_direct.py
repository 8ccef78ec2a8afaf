"""OpenVINO IR straight from a PyTorch or TensorFlow model, without ONNX between.

Steps for the model's own environment, as its export is. What cannot be converted is told in the
facts and no failure: the IR of the canonical ONNX is there as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edge import errors, graph
from edge.convert import openvino_library as ov
from edge.sources import torch_checks, torch_export, torch_ports
from edge.sources.framework import TRUST
from edge.sources.tensorflow_load import load as load_tensorflow
from edge.sources.tensorflow_model import TOOLS as TENSORFLOW_TOOLS
from edge.sources.torch_loading import in_words, load, plain_attention, require_torch
from edge.sources.torch_module import TOOLS as TORCH_TOOLS
from edge.step import Facts, Step, step

Maker = Callable[[Any, Path, str, dict[str, Any]], tuple[Any, list[str], str]]


@step(version=1, tools=(*TORCH_TOOLS, "openvino?"), timeout=3600, extra="torch", aside=TRUST)
def openvino_torch(
    out: Path, *, source: Path, factory: str, options: dict[str, Any], like: Path, release: str
) -> Facts:
    """``model.xml`` and ``model.bin`` of a PyTorch model, traced, else exported.

    ``like`` is the canonical ONNX of the same model: names, shapes and the order of inputs and
    outputs are its. Facts: ``refused`` (why there is no file, else empty), ``converter``,
    ``operations``, ``bytes``.
    """
    return _made(out, (source, factory, options), (like, release), _from_torch)


@step(
    version=1,
    tools=(*TENSORFLOW_TOOLS, "onnx", "openvino?"),
    timeout=3600,
    extra="tensorflow",
    aside=TRUST,
)
def openvino_tensorflow(
    out: Path, *, source: Path, factory: str, options: dict[str, Any], like: Path, release: str
) -> Facts:
    """``model.xml`` and ``model.bin`` of a TensorFlow or Keras model; as :func:`openvino_torch`."""
    return _made(out, (source, factory, options), (like, release), _from_tensorflow)


# The steps, by the framework's title.
DIRECT: dict[str, Step] = {"PyTorch": openvino_torch, "TensorFlow": openvino_tensorflow}


def _made(
    out: Path, given: tuple[Path, str, dict[str, Any]], wanted: tuple[Path, str], make: Maker
) -> Facts:
    like, release = wanted
    try:
        openvino = ov.module(release)
        ports = _bound_ports(like)
        model, names, converter = make(openvino, *given)
        _fit(openvino, model, names, ports)
        ov.simplify(model)
    except (errors.ModelRefused, errors.UsageError, errors.ToolMissing) as error:
        return {"refused": error.message}
    ov.save(openvino, model, out)
    return {"refused": "", "converter": converter, **ov.figures(model, out)}


def _bound_ports(like: Path) -> Facts:
    """Facts of the canonical model; :class:`errors.ModelRefused` where dimensions are free."""
    facts = graph.facts(graph.read(like))
    if not all(isinstance(dim, int) for port in facts["inputs"] for dim in port["shape"]):
        # A trace may have taken an example's size for a constant, which one size does not show.
        raise errors.ModelRefused("what has free dimensions is made of the canonical model alone")
    return facts


def _fit(openvino: Any, model: Any, names: Sequence[str], facts: Facts) -> None:
    """Give the model's ports the names and shapes of ``facts``, whose types they must have.

    ``names``: of the model's inputs, in its order. Raises :class:`errors.ModelRefused`.
    """
    wanted = {port["name"]: port for port in facts["inputs"]}
    _same([*names], [*wanted], "inputs")
    _same([str(n) for n in range(len(model.outputs))],
          [str(n) for n in range(len(facts["outputs"]))], "outputs")  # fmt: skip
    shapes = {}
    for port, name in zip(model.inputs, names, strict=True):
        port.get_tensor().set_names({name})
        shapes[name] = openvino.PartialShape(wanted[name]["shape"])
        _same_type(port, wanted[name])
    with ov.refused("cannot give the model its shapes", ov.installed(openvino)):
        model.reshape(shapes)
    for port, said in zip(model.outputs, facts["outputs"], strict=True):
        port.get_tensor().set_names({said["name"]})
        _same_type(port, said)


def _same(found: list[str], wanted: list[str], what: str) -> None:
    if sorted(found) != sorted(wanted):
        raise errors.ModelRefused(
            f"it has the {what} {', '.join(found)}, the canonical model {', '.join(wanted)}"
        )


def _same_type(port: Any, wanted: dict[str, Any]) -> None:
    has = port.get_element_type().to_dtype().name
    if has != wanted["dtype"]:
        raise errors.ModelRefused(f"{wanted['name']!r} is {has}, not {wanted['dtype']}")


# ---------------------------------------------------------------------------------- PyTorch
def _from_torch(
    openvino: Any, source: Path, factory: str, options: dict[str, Any]
) -> tuple[Any, list[str], str]:
    torch = require_torch()
    torch.set_num_threads(1)
    loaded = load(source, factory, options)
    torch_checks.refuse_unready(loaded)
    with plain_attention(), _own_words():
        inputs = torch_ports.bind(loaded, options)
        flat = torch_export.flat(loaded, [each.parameter for each in inputs])
        examples = tuple(each.example for each in inputs)
        names = [each.name for each in inputs]
        # TorchScript keeps an LSTM whole (14 operations), an exported program unrolls it (126).
        try:
            with _own_words():
                return openvino.convert_model(flat, example_input=examples), names, "TorchScript"
        except errors.ModelRefused as first:
            if loaded.kind == "torchscript":
                raise
            with _own_words(f"; traced: {first.message}"):
                free = torch.export.Dim.AUTO
                open_axes = [
                    {axis: free for axis, dim in enumerate(each.shape) if isinstance(dim, str)}
                    for each in inputs
                ]
                exported = torch.export.export(flat, examples, dynamic_shapes=(tuple(open_axes),))
                return openvino.convert_model(exported), names, "exported program"


def _own_words(more: str = "") -> contextlib.AbstractContextManager[None]:
    """What a converter raises, in words."""
    return in_words(lambda error: errors.ModelRefused(f"{ov.reason(error)}{more}"))


# ------------------------------------------------------------------------------- TensorFlow
def _from_tensorflow(
    openvino: Any, source: Path, factory: str, options: dict[str, Any]
) -> tuple[Any, list[str], str]:
    call = load_tensorflow(source, factory, options)
    with _own_words():
        model = openvino.convert_model(call.concrete)
    names = [each.name for each in call.inputs]
    return model, names, "TensorFlow"
