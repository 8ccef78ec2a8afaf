"""From a project's model to what every target starts from: checked model, golden samples.

For an ONNX file the golden outputs are its own. For any other source they are what the framework
itself gives, so that parity is measured against what the user trained, all the way to the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import config, errors, log, model
from edge.convert.accuracy import artifact_accuracy, as_metric
from edge.convert.calibration import calibration, calibration_file
from edge.convert.canonical import canonical
from edge.convert.golden import draw_samples, onnx_golden, read_samples
from edge.convert.opset import convert_opset
from edge.job import PENDING, PendingFacts, Steps
from edge.samples import INDEX, ITEM_BYTES
from edge.sources.factory import Wish, closure, find
from edge.sources.locate import user_path
from edge.sources.onnx_file import import_onnx
from edge.sources.origin import Origin, Trust, origin_of
from edge.store import File, Result, as_file


@dataclass(frozen=True)
class Metric:
    """The user's metric with all that it reads, as steps take it, and what it says of the source.

    ``source`` is None in a dry run.
    """

    arguments: Mapping[str, Any]
    source: float | None


@dataclass(frozen=True)
class Prepared:
    """A model, ready for every target. ``inputs`` are BoundInput.to_json values.

    ``drawn`` holds the samples' inputs, ``samples`` also the golden outputs without the inputs
    that are constant for the deployment; ``cases`` is the index of what activations are
    calibrated on; ``history`` are the steps that led here.
    """

    spec: config.ModelSpec
    origin: Origin
    imported: Result
    inputs: list[dict[str, Any]]
    drawn: Result
    samples: Result
    cases: File
    metric: Metric | None
    history: tuple[Result, ...]

    @property
    def source(self) -> File:
        """The source's own file."""
        return self.origin.source

    @property
    def exporter(self) -> str:
        """The framework that exported the model; empty for an ONNX file."""
        return self.origin.title

    def canonical(self, steps: Steps, target: config.Target) -> File:
        """The canonical form for a target: dimensions bound or left, an opset that it reads.

        Raises :class:`errors.ModelRefused` where no conversion leads to that opset.
        """
        arguments = {
            "model": self.imported.file("model.onnx"),
            "cases": self.drawn.tree(INDEX),
            "inputs": self.inputs,
            "bind": target.dims == "bound",
        }
        made = steps.run(canonical, arguments, title=f"{self.spec.name}: canonical")
        if not target.runtime.onnxruntime:  # such a runtime's own converter says what it reads
            return made.file("model.onnx")
        opset, ir_version = model.limits(target.runtime.onnxruntime)
        facts = self.imported.facts
        has = (facts["opset"] or 0, facts["ir_version"] or 0)
        if has[0] <= opset and has[1] <= ir_version:
            return made.file("model.onnx")
        wanted = {"opset": min(has[0], opset), "ir_version": min(has[1], ir_version)}
        title = f"{target.name}/{self.spec.name}: opset {wanted['opset']}"
        return steps.run(
            convert_opset, {"model": made.file("model.onnx"), **wanted}, title=title
        ).file("model.onnx")


def prepare(steps: Steps, spec: config.ModelSpec, base: Path, trust: Trust) -> Prepared:
    """Locate, export, check and sample one model; relative paths start at ``base``.

    ``trust`` says what its source may do and the highest opset that every target reads.
    """
    origin = origin_of(steps, spec, base, trust)
    imported = _imported(steps, spec, origin)
    # In a dry run they may be unknown, and are then no change that explain could name.
    inputs: Any = PENDING
    names: Any = PENDING
    if not isinstance(imported.facts, PendingFacts):
        bound = model.bind(model.ports(imported.facts["inputs"]), spec)
        inputs = [each.to_json() for each in bound]
        names = [port["name"] for port in imported.facts["outputs"]]
        _holdable(spec.name, imported.facts["inputs"] + imported.facts["outputs"])
    drawn = _drawn(steps, spec, base, inputs)
    samples = _golden(steps, spec, origin, imported, (drawn, inputs, names))
    if odd := samples.facts["not_finite"]:
        log.warn(
            f"model {spec.name}: the source itself gives NaN or infinity for its samples, in "
            f"{', '.join(odd)}; give real samples, or a range for its inputs"
        )
    cases = _cases(steps, spec, base, (samples, inputs), calibrates=trust.calibrates)
    metric = _metric(steps, spec, base, (origin, imported, inputs, names))
    return Prepared(
        spec, origin, imported, inputs, drawn, samples, cases, metric, tuple(steps.used)
    )


def _imported(steps: Steps, spec: config.ModelSpec, origin: Origin) -> Result:
    exported = origin.source
    if origin.framework:
        made = origin.run(steps, origin.framework.export, title=f"{spec.name}: export")
        for word in (*(made.facts.get("notes") or ()), *(made.facts.get("warnings") or ())):
            log.warn(f"model {spec.name}: {word}")
        exported = made.file("model.onnx")
    imported = steps.run(import_onnx, {"model": exported}, title=f"{spec.name}: import")
    if spec.opset is None or imported.facts["opset"] in (None, spec.opset):
        return imported
    arguments = {"model": imported.file("model.onnx"), "opset": spec.opset, "ir_version": None}
    made = steps.run(convert_opset, arguments, title=f"{spec.name}: opset {spec.opset}")
    checked = {"model": made.file("model.onnx")}
    return steps.run(import_onnx, checked, title=f"{spec.name}: import")


def _holdable(name: str, ports: list[dict[str, Any]]) -> None:
    for port in ports:
        if port["dtype"] not in ITEM_BYTES:
            raise errors.ModelRefused(
                f"model {name}: {port['name']!r} has the type {port['dtype']}, "
                "which runners cannot feed or read",
                remedy="move that conversion out of the model",
            )


def _drawn(
    steps: Steps, spec: config.ModelSpec, base: Path, inputs: list[dict[str, Any]]
) -> Result:
    arguments: dict[str, Any] = {"inputs": inputs}
    title = f"{spec.name}: samples"
    if spec.samples:
        arguments["arrays"] = as_file(base / user_path(spec.samples))
        return steps.run(read_samples, arguments, title=title)
    arguments |= {"count": spec.sample_count, "seed": spec.seed}
    return steps.run(draw_samples, arguments, title=title)


def _golden(
    steps: Steps,
    spec: config.ModelSpec,
    origin: Origin,
    imported: Result,
    drawn: tuple[Result, list[dict[str, Any]], list[str]],
) -> Result:
    cases, inputs, names = drawn
    title = f"{spec.name}: golden samples"
    arguments: dict[str, Any] = {"cases": cases.tree(INDEX), "inputs": inputs}
    if origin.framework:
        arguments["names"] = names
        return origin.run(steps, origin.framework.golden, arguments, title=title)
    arguments["model"] = imported.file("model.onnx")
    return steps.run(onnx_golden, arguments, title=title)


def _cases(
    steps: Steps,
    spec: config.ModelSpec,
    base: Path,
    golden: tuple[Result, list[dict[str, Any]]],
    *,
    calibrates: bool,
) -> File:
    """The index of the calibration samples: the user's where any target calibrates, or golden."""
    samples, inputs = golden
    if not (spec.calibration and calibrates):
        return samples.tree(INDEX)
    arrays, files = calibration_file(base / user_path(spec.calibration))
    arguments = {
        "arrays": arrays,
        "files": files,
        "inputs": inputs,
        "limit": spec.calibration_count,
    }
    made = steps.run(calibration, arguments, title=f"{spec.name}: calibration data")
    return made.tree(INDEX)


def _metric(
    steps: Steps,
    spec: config.ModelSpec,
    base: Path,
    model: tuple[Origin, Result, list[dict[str, Any]], list[str]],
) -> Metric | None:
    """The metric, and what it says of the source framework's own model."""
    if not spec.accuracy:
        return None
    origin, imported, inputs, names = model
    exported = {side: imported.facts[side] or [] for side in ("inputs", "outputs")}
    wish = Wish(spec.files, outputs=exported["outputs"])
    try:
        path = find(spec.accuracy, base)
        traced = closure(steps, path, spec.accuracy, base, wish)
    except (errors.UsageError, errors.ToolMissing) as error:
        raise as_metric(error) from error
    arguments = {
        "metric": traced.source,
        "score": spec.accuracy,
        "reads": traced.parameters(),
        "inputs": inputs,
    }
    on_artifacts = {**arguments, "exported": exported}
    title = f"{spec.name}: accuracy of the source"
    if origin.framework:
        given = {**arguments, "names": names}
        ran = origin.run(steps, origin.framework.accuracy, given, title=title)
    else:
        given = {**on_artifacts, "model": imported.file("model.onnx")}
        ran = steps.run(artifact_accuracy, given, title=title)
    return Metric(on_artifacts, ran.facts["accuracy"])
