"""Run a model with ONNX Runtime on this host, one thread, and say clearly why it cannot.

Called inside steps only, that is in a process of its own: some releases die on some models.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort

    Array = np.ndarray[Any, Any]

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
# What the runtime says for an operator or type that it has no kernel for.
NO_KERNEL = (
    "Could not find an implementation",
    "is not a registered function/op",
    "NOT_IMPLEMENTED",
)


def options(level: str) -> ort.SessionOptions:
    """Session options: one thread, given optimization level, errors only in the log."""
    import onnxruntime as ort

    made = ort.SessionOptions()
    made.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    made.intra_op_num_threads = 1
    made.inter_op_num_threads = 1
    made.log_severity_level = 3
    return made


def open_session(model: Path, *, level: str) -> ort.InferenceSession:
    """A CPU session for a ``.onnx`` or ``.ort`` file.

    Raises :class:`errors.ModelRefused` where this release has no kernel for the model, or
    cannot read it.
    """
    return create(model, options(level))


def create(model: Path, settings: ort.SessionOptions) -> ort.InferenceSession:
    """As :func:`open_session`, with the settings made by the caller."""
    import onnxruntime as ort

    try:
        return ort.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    except session_errors() as error:
        text = " ".join(str(error).split())[:500]
        if any(mark in text for mark in NO_KERNEL):
            raise errors.ModelRefused(
                f"onnxruntime {ort.__version__} has no kernel for this model: {text}",
                remedy="replace the operator or type, or pin a runtime that has it",
            ) from error
        raise errors.ModelRefused(
            f"onnxruntime {ort.__version__} cannot load the model: {text}"
        ) from error


def session_errors() -> tuple[type[Exception], ...]:
    """What a session raises: the binding has an exception class of its own for each status."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = [getattr(state, name) for name in dir(state)]
    own = [each for each in found if isinstance(each, type) and issubclass(each, Exception)]
    return (RuntimeError, ValueError, *own)


def run_session(session: ort.InferenceSession, inputs: dict[str, Array]) -> dict[str, Array]:
    """Outputs by name; :class:`errors.RunFailed` with the runtime's own words."""
    import numpy as np

    names = [output.name for output in session.get_outputs()]
    known = {each.name for each in session.get_inputs()}
    if unknown := [name for name in inputs if name not in known]:
        raise errors.RunFailed(f"the model has no input {', '.join(unknown)}")
    try:
        values = session.run(names, inputs)
    except session_errors() as error:
        raise errors.RunFailed(
            f"the model does not run on its samples: {' '.join(str(error).split())[:500]}"
        ) from error
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def finite(array: Array) -> bool:
    """False when a float array holds NaN or infinity."""
    import numpy as np

    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
