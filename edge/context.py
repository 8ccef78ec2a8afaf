"""What is asked of a build, and what its stages share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edge import config, model
from edge.job import PENDING, Steps
from edge.registry import Registry
from edge.runtime_making import RuntimeWish
from edge.sources.origin import USUAL_OPSET, Trust
from edge.store import File, Result, Store
from edge.tools.environment import NEEDED, Environment, environment
from edge.tools.fetch import fetch
from edge.tools.ort_release import overlay

# Precisions that are made by what activations are on real data.
MEASURING = ("fp16", "int8", "auto")


@dataclass(frozen=True)
class Request:
    """What to build: ``base`` is the project's folder, relative sources start there."""

    base: Path
    project: config.ProjectFile
    models: tuple[config.ModelSpec, ...]
    targets: tuple[config.Target, ...]
    output: Path
    embed_runtime: bool = False
    runtime: RuntimeWish = field(default_factory=RuntimeWish)
    allow_pickle: bool = False
    pack: bool = False
    jobs: int = 2
    only: str = ""

    def wants(self, spec: config.ModelSpec) -> bool:
        """True for the models whose bundles are written; the closure is over all of them."""
        return self.only in ("", spec.name)

    def folder(self, spec: config.ModelSpec, target: config.Target) -> Path:
        """Where the bundle of one model for one target lies."""
        return self.output / spec.name / spec.version / target.name

    def trust(self) -> Trust:
        """What sources may do, and what the targets need of them."""
        releases = {target.runtime.onnxruntime for target in self.targets} - {""}
        limits = [model.limits(release)[0] for release in releases]
        calibrates = any(target.precision in MEASURING for target in self.targets)
        return Trust(self.allow_pickle, min([USUAL_OPSET, *limits]), calibrates)


@dataclass(frozen=True)
class Context:
    """What the stages share.

    ``dry``: nothing is made. Without ``measure`` variants are made and not timed: their last
    times hold.
    """

    request: Request
    store: Store
    registry: Registry
    dry: bool = False
    measure: bool = True
    made: list[Result] = field(default_factory=list)

    @property
    def measures(self) -> bool:
        """True where variants may be timed."""
        return self.measure and not self.dry

    def steps(self) -> Steps:
        """A fresh record of steps over the shared store."""
        return Steps(self.store, lambda release: overlay(self.store, release), self.dry, self.made)

    def environment(self, requirements: Sequence[str]) -> Environment:
        """The environment of these packages; in a dry run it may not be there yet."""
        needed = {"numpy": NEEDED["numpy"]}  # the same that a bundle's runner has here
        return environment(self.store, requirements, make=not self.dry, needed=needed)

    def fetch(self, pin: config.Pin) -> File:
        """A pinned file; in a dry run it may not be there yet, but its content is known."""
        if self.dry:
            return self.store.blob(pin.sha256) or File(Path(PENDING), pin.sha256, 0)
        return fetch(self.store, pin)
