"""From a project's model to what every target starts from: checked model, golden samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import config, errors, log, model
from edge.convert.canonical import canonical
from edge.convert.golden import golden, golden_from_file
from edge.job import PendingFacts, Steps
from edge.samples import INDEX, ITEM_BYTES
from edge.sources.locate import locate
from edge.sources.onnx_file import external_files, import_onnx
from edge.store import File, Result, as_file, hash_file


@dataclass(frozen=True)
class Prepared:
    """A model, ready for every target. ``inputs`` are BoundInput.to_json values.

    ``history`` are the steps that led here.
    """

    spec: config.ModelSpec
    source: File
    imported: Result
    inputs: list[dict[str, Any]]
    samples: Result
    history: tuple[Result, ...]

    def canonical(self, steps: Steps, *, bind: bool) -> Result:
        """The canonical form, dimensions bound or left symbolic."""
        arguments = {
            "model": self.imported.file("model.onnx"),
            "golden": self.samples.tree(INDEX),
            "inputs": self.inputs,
            "bind": bind,
        }
        return steps.run(canonical, arguments, title=f"{self.spec.name}: canonical")


def prepare(steps: Steps, spec: config.ModelSpec, base: Path) -> Prepared:
    """Locate, check and sample one model; relative paths start at ``base``."""
    source = with_external_data(steps, locate(spec.source, base), spec.name)
    imported = steps.run(import_onnx, {"model": source}, title=f"{spec.name}: import")
    inputs: list[dict[str, Any]] = []
    if not isinstance(imported.facts, PendingFacts):
        bound = model.bind(model.ports(imported.facts["inputs"]), spec)
        inputs = [each.to_json() for each in bound]
        _holdable(spec.name, imported.facts["inputs"] + imported.facts["outputs"])
    samples = _samples(steps, (spec, base), imported, inputs)
    if odd := samples.facts["not_finite"]:
        log.warn(
            f"model {spec.name}: the source itself gives NaN or infinity for its samples, in "
            f"{', '.join(odd)}; give real samples, or a range for its inputs"
        )
    return Prepared(spec, source, imported, inputs, samples, tuple(steps.used))


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


def _holdable(name: str, ports: list[dict[str, Any]]) -> None:
    for port in ports:
        if port["dtype"] not in ITEM_BYTES:
            raise errors.ModelRefused(
                f"model {name}: {port['name']!r} has the type {port['dtype']}, "
                "which runners cannot feed or read",
                remedy="move that conversion out of the model",
            )


def _samples(
    steps: Steps,
    said: tuple[config.ModelSpec, Path],
    imported: Result,
    inputs: list[dict[str, Any]],
) -> Result:
    spec, base = said
    arguments: dict[str, Any] = {"model": imported.file("model.onnx"), "inputs": inputs}
    title = f"{spec.name}: golden samples"
    if spec.samples:
        arguments["arrays"] = as_file(base / Path(spec.samples).expanduser())
        return steps.run(golden_from_file, arguments, title=title)
    arguments |= {"count": spec.sample_count, "seed": spec.seed}
    return steps.run(golden, arguments, title=title)
