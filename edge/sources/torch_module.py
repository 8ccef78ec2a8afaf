"""Source: a PyTorch model, from a factory, an exported program or TorchScript.

Exported by ``torch.onnx.export`` with its present exporter. Rules that hold for all three:

1. The model is exported as it is. Training mode, an active Dropout, NaN weights or a model that
   changes itself are errors; nothing is switched to eval(), filled or clamped.
2. The exporter sees the model behind a module that takes tensors in order and returns a flat
   tuple of tensors, so that dicts, dataclasses, None, outputs that are inputs and outputs that
   are given twice come out alike. The runner uses the same flattening.
3. Inputs and outputs are exported under names that nothing else has and renamed in the file
   (pytorch #158094: an output named like a value gave a file that ONNX Runtime refuses).
4. A dimension that the project names stays free. What was traced is proven on the examples and
   once more with every free dimension larger by one, against the module itself.
5. The file holds nothing of this machine: no path, no stack trace.

TorchScript: the present exporter refuses a ScriptModule (torch 2.13: "Exporting a ScriptModule is
not supported. Maybe try ... TS2EPConverter"). So it is turned into an exported program by that
converter, and where the converter fails, exported by the older exporter (``dynamo=False``); the
facts say which and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import graph
from edge.sources import torch_checks, torch_export, torch_ports, torch_proof
from edge.sources.framework import TRUST, Runner, accuracy_step, golden_step
from edge.sources.torch_loading import Loaded, load, plain_attention, require_torch, to_numpy
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

TOOLS = ("torch", "onnxscript", "onnx", "onnxruntime", "numpy")
# The opset that the exporter writes by itself; others go through its version converter.
BEST_OPSET = 20


@step(version=1, tools=TOOLS, timeout=3600, extra="torch", aside=TRUST)
def export_torch(out: Path, *, source: Path, factory: str, options: dict[str, Any]) -> Facts:
    """``model.onnx`` from a PyTorch model.

    Facts: as of an ONNX file (``inputs``, ``outputs``, ``opset`` that came out, ...), and
    ``exporter``, ``exporter_note`` (why not the present one), ``source_kind``, ``parameters``
    (elements), ``parameter_bytes``, ``parameter_dtypes`` (tensors by type), ``max_abs`` (of the
    proof, per output). Raises :class:`errors.ModelRefused` and :class:`errors.UsageError`.
    """
    _one_thread()
    loaded = load(source, factory, options)
    torch_checks.refuse_unready(loaded)
    with plain_attention():
        inputs = torch_ports.bind(loaded, options)
        call = _named_call(loaded, [each.parameter for each in inputs])
        examples = [each.example for each in inputs]
        given = torch_checks.try_out(loaded, call, examples)
        names = torch_ports.output_names(
            [name for name, _ in given], options.get("outputs") or (), [i.name for i in inputs]
        )
        opset = min(BEST_OPSET, int(options.get("opset") or BEST_OPSET))
        model, exporter = torch_export.export(loaded, inputs, len(names), opset)
        torch_export.finish(model, inputs, names)
        graph.save(model, out / "model.onnx")
        worst = torch_proof.prove(out / "model.onnx", loaded, call, inputs, names)
    return {**graph.facts(model), **exporter, **_figures(loaded), "max_abs": worst}


def runner(source: Path, factory: str, options: dict[str, Any]) -> Runner:
    """The module itself: inputs by ONNX name -> outputs as numpy arrays, in the exported order.

    One thread, ``torch.inference_mode``. Raises :class:`errors.ModelRefused` as the export does.
    """
    torch = require_torch()
    _one_thread()
    loaded = load(source, factory, options)
    torch_checks.refuse_unready(loaded)
    pairs = torch_ports.names_of(loaded, options)
    call = _named_call(loaded, [parameter for _, parameter in pairs])

    def run(arrays: Mapping[str, Array]) -> Sequence[Array]:
        # A copy: a module may write into its inputs, which the caller keeps.
        tensors = [torch.from_numpy(arrays[name].copy()) for name, _ in pairs]
        with plain_attention(), torch.inference_mode():
            return [to_numpy(tensor) for _, tensor in call(tensors)]

    return run


def _one_thread() -> None:
    """One thread: sums in the same order on every machine."""
    require_torch().set_num_threads(1)


def _named_call(
    loaded: Loaded, parameters: Sequence[str]
) -> Callable[[Sequence[Any]], list[tuple[str, Any]]]:
    call = loaded.caller(parameters)
    return lambda tensors: list(torch_ports.flatten(call(tensors)))


def _figures(loaded: Loaded) -> Facts:
    tensors = [tensor for _, tensor in torch_checks.tensors(loaded)]
    return {
        "parameters": sum(tensor.numel() for tensor in tensors),
        "parameter_bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        "parameter_dtypes": torch_proof.dtypes(loaded),
    }


torch_golden = golden_step("torch_golden", runner, TOOLS, "torch")
torch_accuracy = accuracy_step("torch_accuracy", runner, TOOLS, "torch")
