"""What a PyTorch model must be before it is exported: ready for inference, finite, repeatable."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.model import FORMAT_LIMIT_BYTES
from edge.sources.torch_errors import excerpt, place
from edge.sources.torch_loading import Loaded, require_torch

if TYPE_CHECKING:
    import torch

# Layers that compute something else in training mode.
_MODED = ("Dropout", "BatchNorm", "InstanceNorm", "RReLU", "SyncBatch", "FractionalMaxPool")
_SHOWN = 5
Call = Callable[[Sequence[Any]], list[tuple[str, Any]]]


def refuse_unready(loaded: Loaded) -> None:
    """Raise :class:`errors.ModelRefused` for a model that cannot be exported as it stands."""
    for name, tensor in tensors(loaded):
        _refuse_elsewhere(name, tensor)
    total = sum(tensor.numel() * tensor.element_size() for _, tensor in tensors(loaded))
    if total > FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            f"the model's parameters hold {total} bytes; one ONNX file holds less than 2 GB",
            remedy="use a smaller model, or module.half() where that is precise enough",
        )
    for name, tensor in tensors(loaded):
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise errors.ModelRefused(
                f"the parameter {name} holds NaN",
                remedy="the training diverged, or the weights were not loaded; train or load again",
            )
    if loaded.kind == "program":
        _refuse_training_program(loaded.program)
    else:
        _refuse_training(loaded)


def tensors(loaded: Loaded) -> list[tuple[str, torch.Tensor]]:
    """Names and values of parameters and buffers, shared ones once."""
    module = loaded.module
    return [*module.named_parameters(), *module.named_buffers()]


def _refuse_elsewhere(name: str, tensor: Any) -> None:
    torch = require_torch()
    if torch.nn.parameter.is_lazy(tensor):
        raise errors.ModelRefused(
            f"the parameter {name} has no shape yet (a lazy module)",
            remedy="run the module once in the factory before it is returned",
        )
    if tensor.device.type == "meta":
        raise errors.ModelRefused(
            f"the parameter {name} is on the meta device: it has no values",
            remedy="build the module on the CPU and load its weights in the factory",
        )
    if tensor.device.type != "cpu":
        raise errors.ModelRefused(
            f"the parameter {name} is on the device {tensor.device}",
            remedy="call module.cpu() in the factory (torch.load(..., map_location='cpu'))",
        )


def _refuse_training(loaded: Loaded) -> None:
    """Training mode is refused, never switched off: eval() is part of what the user trained."""
    active = [(name, each) for name, each in loaded.module.named_modules() if each.training]
    if not active:
        return
    moded = [name for name, each in active if any(word in _type(each) for word in _MODED)]
    names = [f"model.{name}" if name else "model" for name in moded or [name for name, _ in active]]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    are = "is" if len(names) == 1 else "are"
    where = "before torch.jit.script or trace" if loaded.kind == "torchscript" else "in the factory"
    raise errors.ModelRefused(
        f"{', '.join(names[:_SHOWN])}{more} {are} in training mode",
        remedy=f"call model.eval() {where}",
    )


def _type(module: Any) -> str:
    return str(getattr(module, "original_name", type(module).__name__))


def _refuse_training_program(program: Any) -> None:
    for node in program.graph.nodes:
        target = str(node.target)
        train = _argument(node, "train" if "dropout" in target else "training")
        if ("dropout" in target or "batch_norm" in target) and train is True:
            at = place(str(node.meta.get("stack_trace", "")))
            raise errors.ModelRefused(
                f"the exported program runs {target} in training mode{at}",
                remedy="call model.eval() before torch.export.export",
            )


def _argument(node: Any, name: str) -> Any:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    names = [argument.name for argument in schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return given.get(name)


def try_out(loaded: Loaded, call: Call, inputs: Sequence[Any]) -> list[tuple[str, Any]]:
    """Run the model twice on example inputs; its named outputs.

    Raises :class:`errors.ModelRefused` when it does not run, draws random numbers, changes
    itself, gives other outputs each time, or is made infinite by infinite parameters.
    """
    before = [tensor.clone() for _, tensor in tensors(loaded)]
    drawn: list[str] = []
    first, second = (run(call, inputs, seed, drawn) for seed in (0, 1))
    if drawn:
        raise errors.ModelRefused(
            f"the model draws random numbers when it runs: {drawn[0]}",
            remedy="leave F.dropout(..., training=True), torch.rand and the like out of inference, "
            "or make the randomness an input",
        )
    _refuse_changed(loaded, before)
    for (name, one), (_, two) in zip(first, second, strict=True):
        if not _same(one, two):
            raise errors.ModelRefused(
                f"the model gives another {name or 'output'} each time it is run",
                remedy="make the randomness or the state an input of the model",
            )
    _refuse_infinite(loaded, first)
    _refuse_types(first)
    return first


def run(
    call: Call, inputs: Sequence[Any], seed: int, drawn: list[str] | None = None
) -> list[tuple[str, Any]]:
    """The outputs on copies of ``inputs``; what draws random numbers is added to ``drawn``.

    Raises :class:`errors.ModelRefused` with the user's line where the module raises.
    """
    torch = require_torch()
    watch = contextlib.nullcontext() if drawn is None else _watch(drawn)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), watch:
        torch.manual_seed(seed)
        try:
            return call([tensor.clone() for tensor in inputs])
        except errors.EdgeError:
            raise
        except Exception as error:  # the user's own code raises what it likes
            shapes = ", ".join(str(list(tensor.shape)) for tensor in inputs)
            raise errors.ModelRefused(
                f"the model does not run on inputs of shape {shapes}: "
                f"{type(error).__name__}: {excerpt(error)}{place_of(error)}",
                remedy="correct the shapes and types under [model.inputs] or the example inputs",
            ) from error


def place_of(error: BaseException) -> str:
    """`` at FILE:LINE (code)`` of the user's own code in a traceback; empty when there is none."""
    return place("".join(traceback.format_tb(error.__traceback__)))


def _watch(drawn: list[str]) -> Any:
    """A mode that writes down every operator that draws random numbers, with the user's line."""
    torch = require_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True  # torch.cond

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
                return func(*args, **(kwargs or {}))
            # Attention has the tag too, and draws only with a dropout.
            before = torch.get_rng_state()
            result = func(*args, **(kwargs or {}))
            if not torch.equal(before, torch.get_rng_state()):
                drawn.append(f"{func}{place(''.join(traceback.format_stack()))}")
            return result

    return Watch()  # type: ignore[no-untyped-call]


def _refuse_changed(loaded: Loaded, before: Sequence[Any]) -> None:
    for (name, after), kept in zip(tensors(loaded), before, strict=True):
        if not _same(after, kept):
            raise errors.ModelRefused(
                f"the model changes its own {name} when it runs; the exported model would not",
                remedy="a batch_norm in training mode? Call eval(); else make the state an input "
                "and an output",
            )


def _same(one: Any, two: Any) -> bool:
    import torch

    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    return bool(torch.equal(one, two) or torch.allclose(one, two, rtol=0, atol=0, equal_nan=True))


def _refuse_infinite(loaded: Loaded, outputs: Sequence[tuple[str, Any]]) -> None:
    """Infinite parameters are usual in attention masks: refused where they reach an output."""
    if all(bool(tensor.isfinite().all()) for _, tensor in outputs):
        return
    for name, tensor in tensors(loaded):
        if tensor.is_floating_point() and bool(tensor.isinf().any()):
            raise errors.ModelRefused(
                f"the parameter {name} holds infinity, and the outputs are not finite",
                remedy="the training diverged, or the weights were not loaded; train or load again",
            )


def _refuse_types(outputs: Sequence[tuple[str, Any]]) -> None:
    from edge.samples import ITEM_BYTES

    if not outputs:
        raise errors.ModelRefused(
            "the model returns no tensor", remedy="return the outputs from forward()"
        )
    for name, tensor in outputs:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in ITEM_BYTES or str(tensor.layout) != "torch.strided":
            raise errors.ModelRefused(
                f"the output {name or 'of the model'} is {dtype} ({tensor.layout}), which neither "
                "numpy nor samples can hold",
                remedy="convert it in forward(): .float(), .to_dense()",
            )
