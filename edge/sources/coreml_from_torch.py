"""MIL programs of a PyTorch model, by ``torch.export`` and by ``torch.jit.trace``.

1. Exported: the module with all sizes fixed, decomposed. ``torch.export`` refuses control flow
   that depends on data by itself. What coremltools 9.0 then lacks is told ("Unsupported fx node
   lstm, kind lstm.input").
2. Traced: of what was exported, where that could be: in it no Python is left that could decide
   anything, and sizes are numbers, whose arithmetic coremltools 9.0 cannot read under numpy 2.4
   ("only 0-dimensional arrays can be converted to Python scalars"). Else of the module itself.
   A trace in which a value of a tensor became Python's (a branch, an index) would be right for the
   sample that it was made with alone: it is refused, and so is one that another sample disproves.

TorchScript is first turned into an exported program, as for ONNX (see ``torch_script``).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge import errors, samples
from edge.convert.coreml_run import held
from edge.convert.onnx_to_mil.program import Port
from edge.sources import torch_checks, torch_export, torch_ports, torch_script
from edge.sources.coreml_ports import Ports
from edge.sources.torch_loading import Loaded, load, plain_attention, require_torch

EXPORT, TRACE = "torch.export", "torch.jit.trace"
Tensors = tuple[Any, ...]


def routes(
    given: tuple[Path, str, dict[str, Any]], ports: Ports, golden: Path, target: Any
) -> Mapping[str, Callable[[], Any]]:
    """The routes from a source, its factory and options to a MIL program, in order.

    ``golden`` is the index file of the samples, whose inputs the model is converted with.
    """
    source, factory, options = given
    require_torch().set_num_threads(1)
    loaded = load(source, factory, options)
    torch_checks.refuse_unready(loaded)
    pairs = torch_ports.names_of(loaded, options)
    inputs = ports.ordered([name for name, _ in pairs])
    made = Made(loaded, [parameter for _, parameter in pairs], inputs, examples(inputs, golden))
    return {EXPORT: lambda: made.exported(target), TRACE: lambda: made.traced(target)}


def examples(inputs: Sequence[Port], golden: Path) -> list[Tensors]:
    """The inputs of all samples as Core ML takes them, as tensors."""
    torch = require_torch()
    cases = samples.cases(golden.parent, "input")
    return [
        tuple(torch.from_numpy(held(port.to_json(), case)) for port in inputs) for case in cases
    ]


class Made:
    """A loaded model that is exported once and converted in two ways."""

    def __init__(
        self,
        loaded: Loaded,
        parameters: Sequence[str],
        inputs: Sequence[Port],
        cases: list[Tensors],
    ) -> None:
        self._loaded, self._parameters, self._inputs = loaded, parameters, inputs
        self._cases = cases
        self._program: Any = None  # exported, where it could be

    def exported(self, target: Any) -> Any:
        """Of the exported program with its operators decomposed."""
        torch = require_torch()
        with plain_attention():
            module = _plain(self._exportable(), self._parameters, self._inputs)
            self._program = torch.export.export(module, self._cases[0])
            return _mil(self._program.run_decompositions({}), self._inputs, target)

    def _exportable(self) -> Loaded:
        if self._loaded.kind != "torchscript":
            return self._loaded
        given = [_restored(t, p) for t, p in zip(self._cases[0], self._inputs, strict=True)]
        module = torch_script.as_module(self._loaded.module, given)
        return dataclasses.replace(self._loaded, module=module)

    def traced(self, target: Any) -> Any:
        """Of a trace; :class:`errors.ModelRefused` where it may hold for one sample alone."""
        plain = _plain(self._loaded, self._parameters, self._inputs)
        if self._program is None:
            return self._of_trace(plain, target)
        try:
            return self._of_trace(_without_checks(self._program), target)
        except (NotImplementedError, RuntimeError):
            if self._loaded.kind != "torchscript":
                raise
        # A branch of TorchScript stays one in a trace, and in what coremltools makes of it.
        return self._of_trace(plain, target)

    def _of_trace(self, module: Any, target: Any) -> Any:
        with plain_attention():
            return _mil(_proven_trace(module, self._cases), self._inputs, target)


def _plain(loaded: Loaded, parameters: Sequence[str], inputs: Sequence[Port]) -> Any:
    """The model as a module from tensors as Core ML holds them to a tuple of such tensors."""
    from torch import nn

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = torch_export.flat(loaded, parameters)

        def forward(self, *tensors: Any) -> tuple[Any, ...]:
            given = [_restored(t, port) for t, port in zip(tensors, inputs, strict=True)]
            return tuple(_held(tensor) for tensor in self.flat(*given))

    made = Plain()
    made.training = False
    return made


def _restored(tensor: Any, port: Port) -> Any:
    """A tensor in the model's own type and rank."""
    torch = require_torch()
    dtype = getattr(torch, {"double": "float64", "float": "float32"}.get(port.dtype, port.dtype))
    return (tensor.reshape(()) if port.scalar else tensor).to(dtype)


def _held(tensor: Any) -> Any:
    torch = require_torch()
    plain = tensor.reshape(1) if tensor.dim() == 0 else tensor
    return plain.to(torch.float32 if tensor.is_floating_point() else torch.int32)


def _without_checks(program: Any) -> Any:
    """The program as a module without its checks of sizes, which a trace would take for branches.

    They hang on it as hooks and guards.
    """
    from torch import fx

    module = program.module(check_guards=False)
    return fx.GraphModule(module, module.graph)


def _proven_trace(module: Any, cases: Sequence[Tensors]) -> Any:
    """A trace of the first sample that holds for all, and in which no value became Python's."""
    torch = require_torch()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", torch.jit.TracerWarning)
        try:
            # Traced anew for each sample and compared, graph and outputs.
            traced, other = torch.jit.trace(module, cases[0], check_inputs=list(cases[1:])), False
        except torch.jit.TracingCheckError:
            traced, other = None, True
    if fixed := _fixed(warned):
        raise errors.ModelRefused(f"what it computes depends on its data: {fixed}")
    if other:
        raise errors.ModelRefused("a trace of another sample is another graph")
    return traced


def _fixed(warned: Sequence[warnings.WarningMessage]) -> str:
    """The first of a trace's warnings of values that it took for constants; empty: there is none.

    Those of torch's own code are about sizes; torch ignores them likewise
    (TracerWarning.ignore_lib_warnings).
    """
    torch = require_torch()
    library = Path(torch.__file__).parent
    for each in warned:
        path = Path(each.filename)
        if issubclass(each.category, torch.jit.TracerWarning) and library not in path.parents:
            what = " ".join(str(each.message).split()).partition(". ")[0][:200]
            return f"{what} ({path.name}:{each.lineno})"
    return ""


def _mil(model: Any, inputs: Sequence[Port], target: Any) -> Any:
    """A traced model or an exported program as a MIL program in fp32."""
    import coremltools as ct
    import numpy as np

    types = [
        ct.TensorType(name=port.name, shape=port.shape, dtype=np.dtype(port.held).type)
        for port in inputs
    ]
    return ct.convert(
        model,
        source="pytorch",
        inputs=types,
        convert_to="milinternal",
        minimum_deployment_target=target,
        compute_precision=ct.precision.FLOAT32,
    )
