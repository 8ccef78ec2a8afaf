"""Where a model comes from: its file, its framework, and all that its code read.

Found before anything is exported. Everything that the source's steps depend on is in the
:class:`Origin`: contents of files, what the project says of the model, versions of packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge import config, errors, model
from edge.job import PENDING, Steps
from edge.process import Environment
from edge.sources.factory import Wish, closure
from edge.sources.frameworks import FRAMEWORKS, Framework
from edge.sources.locate import SAVED_MODEL, Located, locate
from edge.sources.onnx_file import external_files
from edge.step import Step
from edge.store import File, Result, as_file, hash_file
from edge.tools.environment import environment

# What exporters are asked for: read by every release that targets pin, the oldest included.
USUAL_OPSET = 20


@dataclass(frozen=True)
class Trust:
    """What a source may do (``allow_pickle``), and what the targets need of it.

    ``opset`` is the highest that all of them read; ``calibrates``: one measures activations.
    """

    allow_pickle: bool = False
    opset: int = USUAL_OPSET
    calibrates: bool = True


@dataclass(frozen=True)
class Origin:
    """A source: ``framework`` None is an ONNX file; ``options`` go to its framework's steps."""

    source: File
    framework: Framework | None = None
    factory: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Environment | None = None

    @property
    def title(self) -> str:
        """The framework's name; empty for an ONNX file."""
        return self.framework.title if self.framework else ""

    def run(
        self, steps: Steps, step: Step, more: Mapping[str, Any] | None = None, *, title: str
    ) -> Result:
        """Run one of the framework's steps on the source, in its environment."""
        arguments = {
            "source": self.source,
            "factory": self.factory,
            "options": dict(self.options),
            **(more or {}),
        }
        return steps.run(step, arguments, title=title, environment=self.environment)


def origin_of(steps: Steps, spec: config.ModelSpec, base: Path, trust: Trust) -> Origin:
    """The origin of a project's model; relative paths start at ``base``."""
    located = locate(spec.source, base)
    if located.framework == "onnx":
        _refuse_unused(spec)
        return Origin(with_external_data(steps, located.path, spec.name))
    where = environment(steps.store, spec.environment) if spec.environment else None
    options = _options(spec, trust)
    if not located.factory:
        return Origin(_whole(located), FRAMEWORKS[located.framework], "", options, where)
    wish = Wish(spec.files, where)
    traced = closure(steps, located.path, located.factory, base, wish)
    known = traced.source.sha256 != PENDING
    options["traced"] = traced.parameters() if known else PENDING
    # A dry run knows nothing of a factory that was never run: any framework's steps are pending.
    framework = FRAMEWORKS[traced.framework or "torch"]
    return Origin(traced.source, framework, located.factory, options, where)


def _refuse_unused(spec: config.ModelSpec) -> None:
    """What a framework's source may say and an ONNX file cannot: never silently ignored."""
    said = [
        name for name in ("outputs", "signature", "files", "environment") if getattr(spec, name)
    ]
    if said:
        raise errors.ConfigError(
            f"model {spec.name}: {', '.join(said)} says nothing of an ONNX file",
            remedy="leave it out, or name the source that the file was exported from",
        )


def _options(spec: config.ModelSpec, trust: Trust) -> dict[str, Any]:
    """What the project says of the model, as the frameworks' steps read it."""
    inputs = [
        {
            "name": name,
            "dtype": said.dtype,
            "shape": None if said.shape is None else list(said.shape),
            "range": None if said.range is None else list(said.range),
        }
        for name, said in spec.inputs.items()
    ]
    return {
        "opset": min(spec.opset or USUAL_OPSET, trust.opset),
        "inputs": inputs,
        "dims": dict(spec.dims),
        "outputs": list(spec.outputs),
        "signature": spec.signature,
        "allow_pickle": trust.allow_pickle,
    }


def _whole(located: Located) -> File:
    """The source's file; of a SavedModel with all files of its folder."""
    path = located.path
    if path.name != SAVED_MODEL:
        return as_file(path)
    inner = sorted(path.parent.rglob("*"))
    if linked := [each.name for each in inner if each.is_symlink() and each.is_dir()]:
        raise errors.ModelRefused(
            f"the SavedModel {path.parent.name} holds a link to a folder, {linked[0]}",
            remedy="copy the model as it is: cp -rL",
        )
    # Links to files too, as caches of downloads have them: by their content, like any file.
    others = [each for each in inner if each.is_file() and each != path]
    listed = tuple((e.relative_to(path.parent).as_posix(), hash_file(e)[0]) for e in others)
    return as_file(path, listed)


def with_external_data(steps: Steps, path: Path, name: str) -> File:
    """The source with its external data as companions, so that all of it goes into every key."""
    plain = as_file(path)
    listed = steps.run(external_files, {"model": plain}, title=f"{name}: read")
    others = {location: path.parent / location for location in listed.facts["files"] or ()}
    for location, other in others.items():
        if not other.resolve().is_relative_to(path.parent.resolve()) or not other.is_file():
            raise errors.ModelRefused(
                f"model {name}: the external data file {location} is not beside {path.name}, "
                "or is a link to elsewhere",
                remedy="copy the external data files together with the model",
            )
    total = plain.size + sum(other.stat().st_size for other in others.values())
    if total > model.FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            f"model {name} holds {total} bytes with its external data; 2 GB is what ONNX and ORT "
            "format files can hold, and what this release builds",
            remedy="use a smaller model or precision",
        )
    companions = [(location, hash_file(other)[0]) for location, other in others.items()]
    return File(path, plain.sha256, plain.size, tuple(companions))
