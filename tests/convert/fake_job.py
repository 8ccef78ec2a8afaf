"""A job whose steps are only written down: for what recipes' helpers do with results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge.config import ModelSpec, Pin, ProjectFile, Target
from edge.job import Job, Making, PendingFacts, Steps
from edge.process import Environment
from edge.registry import Registry
from edge.step import Step
from edge.store import File, Result, Store


class AnyFiles(dict[str, File]):
    """Files of a step that was not run: every name is there."""

    def __missing__(self, name: str) -> File:
        return File(Path(name), f"sha256 of {name}", len(name))


@dataclass
class Recorder(Steps):
    """Steps that answer with ``facts`` by step, and what they were called with."""

    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stored: tuple[Result, ...] = ()
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def run(
        self,
        step: Step,
        arguments: Mapping[str, Any],
        *,
        ort: str = "",
        title: str = "",
        environment: Environment | None = None,
    ) -> Result:
        self.calls.append((step.name, dict(arguments)))
        return result(step.name, self.facts.get(step.name, PendingFacts()))

    def alike(self, step: Step, arguments: Mapping[str, Any], *, but: str) -> list[Result]:
        assert but in arguments
        return [each for each in self.stored if each.step == step.name]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def arguments(self, name: str) -> dict[str, Any]:
        """Of the only call of a step."""
        (found,) = (arguments for called, arguments in self.calls if called == name)
        return found


def result(step: str, facts: Mapping[str, Any], **sizes: int) -> Result:
    """A result with any file; ``sizes`` of some by name."""
    files = AnyFiles({name: File(Path(name), name, size) for name, size in sizes.items()})
    return Result(step, f"key of {step}", {}, Path(), files, facts)


def target(name: str, **changes: Any) -> Target:
    """A shipped target, changed."""
    found = Registry(Path("/nonexistent")).target(name, ProjectFile(), "tests")
    return found.model_copy(update=changes)


def job(steps: Recorder, wanted: Target, making: Making | None = None) -> Job:
    """A job that knows everything, in ``build(job)``."""

    def fetch(pin: Pin) -> File:
        return File(Path(pin.sha256), pin.sha256, 0)

    made = Job(
        model=ModelSpec(source="m.onnx", name="m"),
        target=wanted,
        steps=steps,
        canonical=File(Path("canonical"), "c", 1),
        samples=result("samples", {}),
        cases=File(Path("samples.tsv"), "s", 1),
        template=lambda name: File(Path(name), f"sha256 of {name}", 1),
        fetch=fetch,
        making=making,
    )
    return replace(made, artifact=File(Path("model.ort"), "a", 1), closure=result("closure", {}))


def recorder(store: Path, stored: tuple[Result, ...] = (), **facts: Mapping[str, Any]) -> Recorder:
    """Steps over an empty store."""
    return Recorder(Store(store), lambda _release: None, facts=facts, stored=stored)
