"""A recipe: one file of ``recipes/``, with the functions that it must have and may have.

``artifact(job)`` converts the canonical model, ``build(job)`` says what the bundle holds. Where
the artifact is none of ONNX Runtime's, ``run(job, file)`` runs it on the golden inputs here
(None: this host cannot, the health run on the device is its proof), ``accuracy(job, file,
arguments)`` holds the user's metric against it, and ``PRECISIONS`` are those that ``artifact``
makes itself; without it the model is converted as ONNX before.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors
from edge.bundle import Bundle
from edge.config import PRECISIONS, Precision
from edge.convert.accuracy import artifact_accuracy
from edge.convert.run_artifact import run_artifact
from edge.job import Job
from edge.samples import INDEX
from edge.store import File, Result


def run_by_onnxruntime(job: Job, file: File) -> Result:
    """What the target's release of ONNX Runtime gives for the golden inputs, on the CPU."""
    return job.step(run_artifact, model=file, golden=job.samples.tree(INDEX))


def accuracy_by_onnxruntime(job: Job, file: File, arguments: Mapping[str, Any]) -> Result:
    """The user's metric on the artifact, by the target's release of ONNX Runtime."""
    return job.step(artifact_accuracy, model=file, **arguments)


@dataclass(frozen=True)
class Recipe:
    """What a recipe's file defines; see the module.

    ``precisions``: empty where the pipeline converts.
    """

    name: str
    artifact: Callable[[Job], File]
    build: Callable[[Job], Bundle]
    run: Callable[[Job, File], Result | None] = run_by_onnxruntime
    accuracy: Callable[[Job, File, Mapping[str, Any]], Result | None] = accuracy_by_onnxruntime
    precisions: tuple[Precision, ...] = ()

    def why_not(self, precision: Precision) -> str:
        """Why the recipe cannot make a precision; empty where it can."""
        if not self.precisions or precision in self.precisions:
            return ""
        return f"the recipe {self.name} makes {', '.join(self.precisions)}"


def load(name: str, path: Path) -> Recipe:
    """The recipe in ``path``; by path, so that ``recipes/openvino.py`` never shadows openvino.

    Raises :class:`errors.ConfigError` for a file that is no recipe.
    """
    spec = importlib.util.spec_from_file_location(f"edge.recipes.{name}", path)
    if spec is None or spec.loader is None:
        raise errors.ConfigError(f"{path} cannot be loaded as a recipe")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise errors.ConfigError(f"the recipe {path} cannot be loaded: {error}") from error
    found = vars(module)
    for function in ("artifact", "build"):
        if not callable(found.get(function)):
            raise errors.ConfigError(f"the recipe {path} has no function {function}(job)")
    said = found.get("PRECISIONS", ())
    if unknown := [each for each in said if each not in PRECISIONS]:
        raise errors.ConfigError(
            f"the recipe {path} names a precision that is none: {unknown[0]!r}",
            remedy=f"known: {', '.join(PRECISIONS)}",
        )
    return Recipe(
        name,
        found["artifact"],
        found["build"],
        found.get("run", run_by_onnxruntime),
        found.get("accuracy", accuracy_by_onnxruntime),
        tuple(said),
    )
