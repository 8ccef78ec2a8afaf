"""The proof that an exported file computes what the PyTorch module computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, parity
from edge.convert import run_model
from edge.sources import torch_checks, torch_ports
from edge.sources.torch_loading import Loaded, to_numpy
from edge.sources.torch_ports import Input

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort

    Array = np.ndarray[Any, Any]

Call = Callable[[Sequence[Any]], list[tuple[str, Any]]]
# A graph that computes something else is far beyond; sums in another order are far below.
# float16's unit is 1e-3, and onnxruntime computes much of it in float32.
TOLERANCES = {
    "float16": parity.Tolerance(max_abs=5e-2, max_rel=5e-2),
    "other": parity.Tolerance(max_abs=1e-3, max_rel=1e-3),
}


def prove(
    path: Path, loaded: Loaded, call: Call, inputs: Sequence[Input], names: Sequence[str]
) -> dict[str, float]:
    """Hold the file against the module; largest absolute difference of each output.

    Once on the examples, once with every free dimension larger by one where the module itself
    takes that: a dimension that tracing has fixed comes out here. Raises
    :class:`errors.ModelRefused` where onnxruntime does not run the file and
    :class:`errors.StepFailed` where it computes something else.
    """
    session = _session(path, loaded)
    worst = dict.fromkeys(names, 0.0)
    for case, expected in _cases(call, inputs):
        actual = _run(session, inputs, case, loaded)
        for name, array in zip(names, expected, strict=True):
            worst[name] = max(worst[name], _hold(name, array, actual[name]))
    return worst


def _cases(call: Call, inputs: Sequence[Input]) -> Iterator[tuple[list[Any], list[Array]]]:
    yield (first := [each.example for each in inputs]), _expected(call, first)
    if not any(isinstance(dim, str) for each in inputs for dim in each.shape):
        return
    larger = torch_ports.other_sizes(inputs)
    try:
        expected = _expected(call, larger)
    except errors.ModelRefused:
        return  # not every size has to fit: tables of positions end, heads divide
    yield larger, expected


def _expected(call: Call, tensors: Sequence[Any]) -> list[Array]:
    return [to_numpy(tensor) for _, tensor in torch_checks.run(call, tensors, 0)]


def _session(path: Path, loaded: Loaded) -> ort.InferenceSession:
    try:
        return run_model.open_session(path, level="basic")
    except errors.ModelRefused as error:
        raise _unrunnable(error, loaded) from error


def _run(
    session: ort.InferenceSession, inputs: Sequence[Input], case: Sequence[Any], loaded: Loaded
) -> dict[str, Array]:
    feeds = {each.name: to_numpy(tensor) for each, tensor in zip(inputs, case, strict=True)}
    try:
        return run_model.run_session(session, feeds)
    except errors.RunFailed as error:
        raise _unrunnable(error, loaded) from error


def _unrunnable(error: errors.EdgeError, loaded: Loaded) -> errors.ModelRefused:
    odd = {dtype: count for dtype, count in dtypes(loaded).items() if dtype in UNUSUAL}
    if not odd:
        return errors.ModelRefused(error.message[:700], remedy=error.remedy)
    listed = ", ".join(f"{count} of {dtype}" for dtype, count in odd.items())
    return errors.ModelRefused(
        f"onnxruntime's CPU provider cannot run the model, whose parameters are {listed}: "
        f"{error.message[:400]}",
        remedy="call module.float() in the factory; precision is then chosen by the target",
    )


UNUSUAL = ("float64", "float16", "bfloat16", "complex64", "complex128")


def dtypes(loaded: Loaded) -> dict[str, int]:
    """The number of parameters and buffers of each type, by numpy's name."""
    found = Counter(str(t.dtype).removeprefix("torch.") for _, t in torch_checks.tensors(loaded))
    return dict(sorted(found.items()))


def _hold(name: str, expected: Array, actual: Array) -> float:
    tolerance = TOLERANCES.get(expected.dtype.name, TOLERANCES["other"])
    found = parity.measure(expected, actual, tolerance, name=name)
    if reasons := parity.verdict(found, tolerance):
        raise errors.StepFailed(
            f"the exported model gives another {name!r} than the PyTorch module: {reasons[0]}",
            remedy="control flow that tracing has fixed? Use torch.where or torch.cond; else "
            "please report the model",
        )
    return found.max_abs or 0.0
