"""The user's PyTorch model in memory, called alike whatever it came from.

A factory's module is called by the names of ``forward``'s parameters, an exported program in the
structure that it was exported with, TorchScript by order.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.sources import torch_files

if TYPE_CHECKING:
    import numpy as np
    import torch

    Array = np.ndarray[Any, Any]

REMEDY = "pip install 'edgewright[torch]'"


@dataclass(frozen=True)
class Loaded:
    """A model: ``kind`` is factory, program or torchscript.

    ``parameters`` are the names that its inputs have by themselves, ``required`` the number of
    those that must be given; ``examples`` are tensors that came with it, by these names;
    ``symbols`` are dimensions that the program keeps open, by input and axis. ``variadic``: it
    takes as many as it is given, in order.
    """

    kind: str
    module: torch.nn.Module
    parameters: tuple[str, ...]
    required: int = 0
    examples: Mapping[str, torch.Tensor] = field(default_factory=dict)
    symbols: Mapping[tuple[str, int], str] = field(default_factory=dict)
    program: Any = None
    variadic: bool = False

    def caller(self, names: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
        """A function of tensors in the order of ``names`` (each a name of ``parameters``)."""
        if self.kind == "program":
            return _program_call(self.module, self.program, tuple(names))
        if self.kind == "torchscript" or self.variadic:
            return lambda tensors: self.module(*tensors)
        return lambda tensors: self.module(**dict(zip(names, tensors, strict=True)))


def require_torch() -> Any:
    """The torch module; :class:`errors.ToolMissing` naming the extra when it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise errors.ToolMissing(f"PyTorch is not installed: {error}", remedy=REMEDY) from error
    return torch


def to_numpy(tensor: Any) -> Array:
    """A copy of a tensor's values in C order."""
    array: Array = tensor.detach().cpu().contiguous().numpy().copy()
    return array


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep back what torch logs and warns of while its loaders and exporters work.

    They warn of their own workings (deprecated calls between torch's parts, attributes of an LSTM
    that tracing sets), and under ``-W error`` such a warning would be a failed export.
    """
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def in_words(tell: Callable[[Exception], errors.EdgeError]) -> Iterator[None]:
    """Run a converter: what it raises is raised as ``tell`` says it, our own errors as they are.

    What it prints (progress bars, whole graphs) is kept back.
    """
    printed = io.StringIO()
    with quiet(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            yield
        except errors.EdgeError:
            raise
        except Exception as error:  # the user's code runs in it, and asserts of the converters
            raise tell(error) from error


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Switch attention's inference-only kernel off.

    It has no ONNX form, and it cuts padded rows away: the module itself would give other shapes
    than what is exported.
    """
    torch = require_torch()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(value=False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(value=fast)


def load(source: Path, factory: str, options: Mapping[str, Any]) -> Loaded:
    """The model; :class:`errors.ModelRefused` for what is none or may not be opened."""
    require_torch()
    if factory:
        from edge.sources.factory import make

        return _from_factory(make(source, factory), factory)
    trusted = bool(options.get("allow_pickle"))
    kind = torch_files.recognise(source)
    with quiet():
        if kind.name == "program":
            return _load_program(source, trusted=trusted)
        if kind.name == "torchscript":
            return _load_script(source, trusted=trusted)
        if kind.name == "module" and trusted:
            return _load_module(source)
    raise torch_files.refuse_pickle(kind, source)


def _from_factory(made: Any, factory: str) -> Loaded:
    torch = require_torch()
    module, examples = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise errors.ModelRefused(
            f"{factory} returned {_article(module)}, no nn.Module",
            remedy="return the module itself, or (module, example_inputs)",
        )
    return _from_module(module, examples, factory)


def _from_module(module: torch.nn.Module, examples: Any, where: str) -> Loaded:
    torch = require_torch()
    if isinstance(module, torch.jit.ScriptModule):
        names = _script_names(module)
        return Loaded("torchscript", module, names, len(names), _examples(examples, names, where))
    kinds = inspect.Parameter
    signature = inspect.signature(module.forward).parameters.values()
    if any(each.kind in (kinds.VAR_POSITIONAL, kinds.POSITIONAL_ONLY) for each in signature):
        count = len(examples) if isinstance(examples, Sequence) else 0
        names = tuple(f"input_{index}" for index in range(count))
        found = _examples(examples, names, where)
        return Loaded("factory", module, names, 0, found, variadic=True)
    plain = [each for each in signature if each.kind != kinds.VAR_KEYWORD]
    required = sum(each.default is kinds.empty for each in plain)
    names = tuple(each.name for each in plain)
    return Loaded("factory", module, names, required, _examples(examples, names, where))


def _examples(given: Any, names: tuple[str, ...], where: str) -> dict[str, torch.Tensor]:
    torch = require_torch()
    if given is None:
        return {}
    if isinstance(given, torch.Tensor):
        given = (given,)
    if isinstance(given, Mapping):
        found = dict(given)
    elif isinstance(given, list | tuple) and len(given) <= len(names):
        found = dict(zip(names, given, strict=False))
    else:
        raise errors.ModelRefused(
            f"the example inputs of {where} are {_article(given)} that forward() does not take",
            remedy=f"a tuple or a dict of tensors; forward() has: {', '.join(names)}",
        )
    for name, value in found.items():
        if name not in names:
            raise errors.ModelRefused(
                f"{where} gives an example for {str(name)[:50]!r}, which forward() does not have",
                remedy=f"it has: {', '.join(names)}",
            )
        if not isinstance(value, torch.Tensor):
            raise errors.ModelRefused(
                f"the example input {str(name)[:50]!r} of {where} is {_article(value)}, no tensor",
                remedy="wrap the module in one whose forward() takes tensors alone",
            )
    return found


def _article(value: Any) -> str:
    name = type(value).__name__[:50]
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _script_names(module: Any) -> tuple[str, ...]:
    return tuple(argument.name for argument in module.forward.schema.arguments[1:])


def _load_script(source: Path, *, trusted: bool) -> Loaded:
    torch = require_torch()
    if not trusted:
        torch_files.refuse_unsafe_script(source)
    with _damage(source, "TorchScript"):
        module = torch.jit.load(str(source), map_location="cpu")
        names = _script_names(module)
    return Loaded("torchscript", module, names, len(names))


def _load_module(source: Path) -> Loaded:
    torch = require_torch()
    with _damage(source, "pickled module"):
        module = torch.load(source, map_location="cpu", weights_only=False)
    if not isinstance(module, torch.nn.Module):
        raise errors.ModelRefused(
            f"{source.name} holds {_article(module)}, no nn.Module", remedy=torch_files.FACTORY
        )
    return _from_module(module, None, source.name)


def _load_program(source: Path, *, trusted: bool) -> Loaded:
    torch = require_torch()
    if not trusted:
        torch_files.refuse_unsafe_program(source)
    with _damage(source, "exported program"), source.open("rb") as stream:
        program = torch.export.load(stream)
        module = program.module()
    names, symbols = [], {}
    examples: dict[str, Any] = {}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for name in _user_inputs(program):
        if name is None:
            continue
        names.append(name)
        examples[name], open_axes = _example_of(name, values[name])
        symbols.update({(name, axis): symbol for axis, symbol in open_axes.items()})
    return Loaded("program", module, tuple(names), len(names), examples, symbols, program)


@contextlib.contextmanager
def _damage(source: Path, what: str) -> Iterator[None]:
    """What torch raises for a damaged file, or one that another release wrote, as a refusal."""
    try:
        yield
    except errors.EdgeError:
        raise
    except Exception as error:  # a pickle, a C++ reader or a deserializer raises anything
        torch = require_torch()
        raise errors.ModelRefused(
            f"torch {torch.__version__} cannot load the {what} {source.name}: "
            f"{type(error).__name__}: {graph.first_line(error)}",
            remedy=f"save it again with this torch release, or {torch_files.FACTORY}",
        ) from error


def _user_inputs(program: Any) -> list[str | None]:
    """The program's inputs in order; None for one that is a constant of the program."""
    from torch.export.graph_signature import ConstantArgument, InputKind

    specs = program.graph_signature.input_specs
    user = [spec.arg for spec in specs if spec.kind == InputKind.USER_INPUT]
    return [None if isinstance(arg, ConstantArgument) else arg.name for arg in user]


def _constants(program: Any) -> list[Any]:
    from torch.export.graph_signature import InputKind

    specs = program.graph_signature.input_specs
    return [getattr(s.arg, "value", None) for s in specs if s.kind == InputKind.USER_INPUT]


def _example_of(name: str, value: Any) -> tuple[torch.Tensor, dict[int, str]]:
    """An empty tensor like the one that was traced, and its open dimensions by axis."""
    torch = require_torch()
    if not isinstance(value, torch.Tensor):
        raise errors.ModelRefused(
            f"the program's input {name!r} is {_article(value)}, no tensor",
            remedy="export a module whose forward() takes tensors alone",
        )
    sizes = [dim if isinstance(dim, int) else dim.node.hint for dim in value.shape]
    open_axes = {axis: str(dim) for axis, dim in enumerate(value.shape) if not isinstance(dim, int)}
    return torch.empty([size or 2 for size in sizes], dtype=value.dtype, device="meta"), open_axes


def _program_call(
    module: Any, program: Any, names: tuple[str, ...]
) -> Callable[[Sequence[Any]], Any]:
    from torch.utils import _pytree as pytree

    order = _user_inputs(program)
    constants = _constants(program)
    spec = program.call_spec.in_spec

    def call(tensors: Sequence[Any]) -> Any:
        given = dict(zip(names, tensors, strict=True))
        flat = [c if n is None else given[n] for n, c in zip(order, constants, strict=True)]
        args, kwargs = pytree.tree_unflatten(flat, spec)
        return module(*args, **kwargs)

    return call
