"""Accuracy by the user's own metric, on the source framework's model and on artifacts.

The metric is ``module:callable`` of the project: ``accuracy(run) -> float``, higher is better,
where ``run(inputs) -> outputs`` takes and gives numpy arrays by name. It reads its own data; all
that it reads goes into the keys of these steps, as for a source that is code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@step(version=1, tools=("onnxruntime", "numpy"), timeout=7200)
def artifact_accuracy(
    out: Path,
    *,
    model: Path,
    metric: Path,
    score: str,
    reads: dict[str, Any],
    inputs: list[dict[str, Any]],
) -> Facts:
    """Facts: ``accuracy`` of a ``.onnx`` or ``.ort`` file by the metric ``score`` in ``metric``.

    ``reads`` are parameters of the metric's trace: part of the key alone. ``inputs`` are
    BoundInput.to_json values: those that are constant are fed where the model still has them.
    Where the model's batch is bound, rows are fed in batches of it.
    """
    del out, reads  # facts only
    session = run_model.open_session(model, level="disabled")
    shapes = {each.name: each.shape for each in session.get_inputs()}
    fixed = {
        each["name"]: _constant(each)
        for each in inputs
        if each["constant"] is not None and each["name"] in shapes
    }

    def once(case: Mapping[str, Array]) -> dict[str, Array]:
        return run_model.run_session(session, {**fixed, **case})

    return {"accuracy": scored(in_batches(once, shapes), metric, score)}


def _constant(spec: Mapping[str, Any]) -> Array:
    import numpy as np

    return np.full(tuple(spec["shape"]), spec["constant"], spec["dtype"])


def scored(run: Run, metric: Path, score: str) -> float:
    """What the user's metric returns for ``run``.

    Raises :class:`errors.ModelRefused` for what is no finite number.
    """
    value = user_code.call(metric, score, run)
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


def in_batches(run: Run, shapes: Mapping[str, Sequence[int | str | None]]) -> Run:
    """``run`` for any number of rows: fed in batches where the leading dimension is bound.

    Inputs that have the bound shape already are fed to every batch as they are; the last batch
    is filled up with its last row, whose outputs are dropped. Outputs are joined along axis 0.
    """

    def whole(case: Mapping[str, Array]) -> dict[str, Array]:
        import numpy as np

        longer = [name for name, array in case.items() if _is_longer(array, shapes.get(name))]
        if not longer:
            return run(case)
        rows = len(case[longer[0]])
        batch = int(shapes[longer[0]][0] or 1)
        parts: list[dict[str, Array]] = []
        for start in range(0, rows, batch):
            places = np.minimum(np.arange(start, start + batch), rows - 1)
            parts.append(run({n: a[places] if n in longer else a for n, a in case.items()}))
        return {name: np.concatenate([part[name] for part in parts])[:rows] for name in parts[0]}

    return whole


def _is_longer(array: Array, shape: Sequence[int | str | None] | None) -> bool:
    """True for rows of a bound batch that are not exactly one batch."""
    return bool(
        shape and isinstance(shape[0], int) and array.ndim == len(shape) and len(array) != shape[0]
    )
