"""PyTorch's exporters: from a loaded model to ONNX under the names and dimensions asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.sources import torch_graph, torch_ports, torch_script
from edge.sources.torch_errors import explain, specialised
from edge.sources.torch_loading import Loaded, in_words, require_torch
from edge.sources.torch_ports import Input

if TYPE_CHECKING:
    import onnx

_INPUT, _OUTPUT = "edge_input_{}", "edge_output_{}"


def flat(loaded: Loaded, parameters: Sequence[str]) -> Any:
    """The model as a module from tensors in order to a tuple of distinct tensors."""
    from torch import nn

    call = loaded.caller(parameters)

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = loaded.module

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            outputs, seen = [], [id(tensor) for tensor in tensors]
            for _, tensor in torch_ports.flatten(call(tensors)):
                # The exporter takes an output that is an input, or given twice, for one value.
                outputs.append(tensor.clone() if id(tensor) in seen else tensor)
                seen.append(id(tensor))
            return tuple(outputs)

    made = Flat()
    # Of itself alone: an exported program refuses train() and eval().
    made.training = loaded.kind == "factory" and loaded.module.training
    return made


def export(
    loaded: Loaded, inputs: Sequence[Input], outputs: int, opset: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The raw model and the facts about how it was made."""
    torch = require_torch()
    name = f"torch.onnx.export {torch.__version__.partition('+')[0]}"
    facts = {"exporter": name, "exporter_note": "", "source_kind": loaded.kind}
    if loaded.kind != "torchscript":
        return _export_present(loaded, inputs, outputs, opset), facts
    try:
        converted = _converted(loaded, inputs)
        model = _export_present(converted, inputs, outputs, opset)
    except errors.ModelRefused as first:
        try:
            model = _export_older(loaded, inputs, outputs, opset)
        except errors.ModelRefused as second:
            raise errors.ModelRefused(
                f"{second.message[:400]}; the present exporter says: {first.message[:400]}",
                remedy="torch.jit.trace exports where torch.jit.script does not; "
                "better torch.export.save(torch.export.export(...), 'model.pt2'), or a factory",
            ) from second
        note = f"the present exporter cannot take this TorchScript: {first.message[:300]}"
        return model, {**facts, "exporter": f"{name} (dynamo=False)", "exporter_note": note}
    note = "TorchScript was turned into an exported program by torch's TS2EPConverter"
    return model, {**facts, "exporter_note": note}


def _converted(loaded: Loaded, inputs: Sequence[Input]) -> Loaded:
    """TorchScript as an exported program; :class:`errors.ModelRefused` where that fails."""
    with _refused(inputs):
        # The converted module takes its inputs by order, as TorchScript does.
        module = torch_script.as_module(loaded.module, [each.example for each in inputs])
        return dataclasses.replace(loaded, module=module)


def _refused(inputs: Sequence[Input]) -> contextlib.AbstractContextManager[None]:
    """What an exporter raises, in words."""
    return in_words(lambda error: explain(error, inputs))


def _export_present(
    loaded: Loaded, inputs: Sequence[Input], outputs: int, opset: int
) -> onnx.ModelProto:
    torch = require_torch()
    free = [{a: d for a, d in enumerate(i.shape) if isinstance(d, str)} for i in inputs]
    with _refused(inputs):
        # torch.cond compiles itself when it is run, and what it compiled for the trial run breaks
        # the export (torch 2.13: "Attempted to inline function marked as skipped").
        torch.compiler.reset()
        program = torch.onnx.export(
            flat(loaded, [each.parameter for each in inputs]),
            tuple(each.example for each in inputs),
            dynamo=True,
            verbose=False,
            external_data=False,
            opset_version=opset,
            input_names=[_INPUT.format(index) for index in range(len(inputs))],
            output_names=[_OUTPUT.format(index) for index in range(outputs)],
            dynamic_shapes=(tuple(free),) if any(free) else None,
        )
        model: onnx.ModelProto = program.model_proto
    return model


def _export_older(
    loaded: Loaded, inputs: Sequence[Input], outputs: int, opset: int
) -> onnx.ModelProto:
    import onnx

    torch = require_torch()
    names = [_INPUT.format(index) for index in range(len(inputs))]
    free = [{a: d for a, d in enumerate(i.shape) if isinstance(d, str)} for i in inputs]
    written = io.BytesIO()
    with _native_silence(), _refused(inputs):
        torch.onnx.export(
            loaded.module,
            tuple(each.example for each in inputs),
            written,
            dynamo=False,
            opset_version=opset,
            input_names=names,
            output_names=[_OUTPUT.format(index) for index in range(outputs)],
            dynamic_axes={name: axes for name, axes in zip(names, free, strict=True) if axes},
        )
    return onnx.load_from_string(written.getvalue())


@contextlib.contextmanager
def _native_silence() -> Iterator[None]:
    """Keep what C++ prints from both streams.

    torch 2.13's older exporter prints the whole graph when it fails, asked to or not:
    ``setup_onnx_logging`` tests the function ``_jit_is_onnx_log_enabled`` instead of calling it.
    """
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(nowhere)


def finish(model: onnx.ModelProto, inputs: Sequence[Input], names: Sequence[str]) -> None:
    """Names, free dimensions and cleanliness of the raw model; see rules 3 to 5 of torch_module."""
    ports = model.graph.input
    if len(ports) != len(inputs) or len(model.graph.output) != len(names):
        raise errors.StepFailed(
            f"torch.onnx.export gave {len(ports)} inputs and {len(model.graph.output)} outputs, "
            f"the model has {len(inputs)} and {len(names)}",
            remedy="please report the model: its inputs and outputs must be taken one by one",
        )
    torch_graph.strip(model)
    torch_graph.separate_outputs(model)
    present = [value.name for value in (*ports, *model.graph.output)]
    wanted = [*(each.name for each in inputs), *names]
    torch_graph.rename(model, dict(zip(present, wanted, strict=True)))
    for prefix in ("model.edge_script.", "model."):  # of torch_script, and of Flat
        torch_graph.shorten_parameters(model, prefix)
    torch_graph.refuse_random(model)
    for port, each in zip(ports, inputs, strict=True):
        _refuse_bound(port, each)


def _refuse_bound(port: onnx.ValueInfoProto, wanted: Input) -> None:
    """A dimension that was to be free and is a number, or that became another one's."""
    dims = port.type.tensor_type.shape.dim
    for axis, (dim, symbol) in enumerate(zip(dims, wanted.shape, strict=True)):
        if not isinstance(symbol, str) or dim.dim_param == symbol:
            continue
        if dim.HasField("dim_value"):
            raise specialised(wanted.name, axis, symbol, str(dim.dim_value))
        raise errors.ModelRefused(
            f"dimension {axis} of the input {wanted.name!r} ({symbol}) must be equal to "
            f"{dim.dim_param} in this model",
            remedy=f"give both the same name: {dim.dim_param}",
        )
