"""Accuracy by the user's own metric, on the source framework's model and on artifacts.

The metric is ``module:callable`` of the project: ``accuracy(run) -> float``, higher is better,
where ``run(inputs) -> outputs`` takes and gives numpy arrays by name. It reads its own data; all
that it reads goes into the keys of these steps, as for a source that is code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import run_model
from edge.sources import user_code
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Run = Callable[[Mapping[str, "Array"]], "dict[str, Array]"]
Shapes = Mapping[str, Sequence[int | str | None]]
Ports = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Accuracy:
    """What the metric says of the source and of the artifact; None where there is no metric."""

    metric: str | None = None
    source: float | None = None
    artifact: float | None = None

    @property
    def drop(self) -> float | None:
        """What the artifact lost."""
        if self.source is None or self.artifact is None:
            return None
        return self.source - self.artifact

    def to_json(self) -> dict[str, Any] | None:
        """For the manifest; None where there is no metric."""
        if self.metric is None:
            return None
        return {"metric": self.metric, "source": self.source, "artifact": self.artifact}


@step(version=2, tools=("onnxruntime", "numpy"), timeout=7200)
def artifact_accuracy(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    model: Path,
    metric: Path,
    score: str,
    reads: dict[str, Any],
    inputs: list[dict[str, Any]],
    exported: dict[str, list[dict[str, Any]]],
) -> Facts:
    """Facts: ``accuracy`` of a ``.onnx`` or ``.ort`` file by the metric ``score`` in ``metric``.

    ``reads`` are parameters of the metric's trace: part of the key alone. ``inputs`` are
    BoundInput.to_json values, ``exported`` the ports (``inputs``, ``outputs``) of the model
    before its dimensions were bound: they say which of them is the batch.
    """
    del out, reads  # facts only
    session = run_model.open_session(model, level="disabled")
    shapes = {each.name: each.shape for each in session.get_inputs()}

    run = deployed(partial(run_model.run_session, session), shapes, inputs, exported)
    return {"accuracy": scored(run, metric, score)}


def deployed(
    run: Callable[[dict[str, Array]], dict[str, Array]],
    shapes: Shapes,
    inputs: list[dict[str, Any]],
    exported: Ports,
) -> Run:
    """A deployed model as a metric may feed it: any number of rows, constants given or not.

    ``run`` is the model itself, for the inputs that ``shapes`` names, in these shapes (a constant
    may be no input any more); ``inputs`` and ``exported`` as of :func:`artifact_accuracy`.
    """

    def known(case: Mapping[str, Array]) -> dict[str, Array]:
        return run({name: array for name, array in case.items() if name in shapes})

    return with_constants(in_batches(known, shapes, exported), inputs)


def with_constants(run: Run, inputs: list[dict[str, Any]]) -> Run:
    """``run`` with the inputs that are constant for the deployment filled in, always the same.

    Also where the metric gives them: the deployed model would not listen.
    """
    import numpy as np

    fixed = {
        each["name"]: np.full(tuple(each["shape"]), each["constant"], each["dtype"])
        for each in inputs
        if each["constant"] is not None
    }
    return lambda case: run({**case, **fixed})


def scored(run: Run, metric: Path, score: str) -> float:
    """What the user's metric returns for ``run``.

    Raises :class:`errors.ModelRefused` for what is no finite number.
    """
    try:
        value = user_code.call(metric, score, run)
    except (errors.ModelRefused, errors.UsageError, errors.ToolMissing) as error:
        raise as_metric(error) from error
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise errors.ModelRefused(
            f"the metric {score} returned {value!r:.60}, which is no finite number",
            remedy="return one number, higher is better: the fraction that is right, say",
        )
    return number


def as_metric(error: errors.EdgeError) -> errors.EdgeError:
    """An error of user code in the words for a metric, which is no source."""
    message = error.message.replace("the source ", "the metric ", 1)
    return type(error)(message, remedy="call it by itself in Python until it returns a number")


def in_batches(run: Run, shapes: Shapes, exported: Ports) -> Run:
    """``run`` for any number of rows, fed in batches where the batch is bound.

    ``shapes`` are those of the bound model. Inputs that have their bound shape already are fed to
    every batch as they are; the last batch is filled up with its last row, whose outputs are
    dropped. Outputs are joined along axis 0. The batch is a leading dimension that was free, under
    one name, in all inputs that are longer and in all outputs: anything else (rows that see
    each other, a sequence's length) would be cut into pieces that mean something else.
    """

    def whole(case: Mapping[str, Array]) -> dict[str, Array]:
        import numpy as np

        longer = [name for name, array in case.items() if _is_longer(array, shapes.get(name))]
        if not longer:
            return run(case)
        _refuse_no_batch(longer, exported)
        rows = len(case[longer[0]])
        batch = int(shapes[longer[0]][0] or 1)
        parts: list[dict[str, Array]] = []
        for start in range(0, rows, batch):
            places = np.minimum(np.arange(start, start + batch), rows - 1)
            parts.append(run({n: a[places] if n in longer else a for n, a in case.items()}))
        return {name: np.concatenate([part[name] for part in parts])[:rows] for name in parts[0]}

    return whole


def _refuse_no_batch(longer: list[str], exported: Ports) -> None:
    leading = {
        port["name"]: port["shape"][0] if port["shape"] else None
        for port in (*exported["inputs"], *exported["outputs"])
    }
    names = {leading.get(name) for name in longer}
    names |= {leading[port["name"]] for port in exported["outputs"]}
    if len(names) != 1 or not isinstance(next(iter(names)), str):
        raise errors.ModelRefused(
            f"the metric feeds more rows of {', '.join(longer)} than the deployed model takes, and "
            "they are no batch: the leading dimensions of inputs and outputs are not one symbol",
            remedy="feed what the deployed model takes, one call after the other",
        )


def _is_longer(array: Array, shape: Sequence[int | str | None] | None) -> bool:
    """True for rows of a bound batch that are not exactly one batch."""
    return bool(
        shape and isinstance(shape[0], int) and array.ndim == len(shape) and len(array) != shape[0]
    )
