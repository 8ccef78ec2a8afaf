"""What an iOS bundle holds for Core ML beside ``model.ort``, which is for the CPU.

A second ORT-format file for the CoreML execution provider, whose operators the CPU's fusions are
not, and the native package, where coremltools is installed and its frontend knows the operators.
Neither is run here: a device's health run holds both against the golden samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edge import errors, log
from edge.bundle import BundleFile
from edge.convert.compressed_size import compressed_size
from edge.convert.coreml_cache_key import coreml_cache_key
from edge.convert.coreml_package import converted, how_facts, package_file, warn
from edge.convert.coreml_partitions import FILE, coreml_partitions
from edge.convert.coreml_provider.options import MLPROGRAM_COREML, Options, coreml_version
from edge.convert.golden_sqnr import HIGHEST_DB
from edge.convert.int8_static import plain
from edge.convert.mil_package import PACKAGE
from edge.convert.optimize import optimize
from edge.convert.ort_format import ort_format
from edge.convert.precision import WEIGHT_BITS, at_precision, ort_options
from edge.job import Job
from edge.store import Result

FOLDER = "coreml"
ARTIFACT = f"{FOLDER}/model.basic.ort"
CPU = "CPUExecutionProvider"
# Units by the names that ONNX Runtime's provider and coremltools have for them.
OF_PROVIDER = ("", ":CPUOnly", ":CPUAndGPU", ":CPUAndNeuralEngine")
OF_COREML = ("CPU_ONLY", "CPU_AND_GPU", "CPU_AND_NE", "ALL")
BY_PROVIDER = ("XnnpackExecutionProvider", *(f"CoreMLExecutionProvider{u}" for u in OF_PROVIDER))
PREDICTED = ("nodes", "taken", "share", "partitions", "refused", "coreml", "release", "unverified")
NATIVE = tuple(f"coreml:{units}" for units in OF_COREML)
PROOF = "the health run of edge bench on an Apple device proves it"
# For the manifest, of what there is.
UNVERIFIED_PROVIDER = f"ONNX Runtime's CoreML provider did not run {ARTIFACT} here: {PROOF}"
UNVERIFIED_NATIVE = f"Apple's runtime did not run {FOLDER}/{PACKAGE} here: {PROOF}"


@dataclass(frozen=True)
class Side:
    """Files for the bundle, what the app's template is filled with, and facts for the manifest.

    ``unverified``: what of it only a device can prove.
    """

    files: tuple[BundleFile, ...]
    variables: Mapping[str, Any]
    facts: Mapping[str, Any]
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """What is for the provider, or for Core ML itself; ``left_out`` says why there is nothing.

    ``path`` and ``key`` (of what a device compiles of it) are empty then.
    """

    files: tuple[BundleFile, ...] = ()
    path: str = ""
    key: str = ""
    ways: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    left_out: str = ""

    def to_json(self) -> dict[str, Any]:
        """Its facts, or why there are none."""
        return {"left_out": self.left_out} if self.left_out else {"path": self.path, **self.facts}


def side(job: Job) -> Side:
    """All of it, for an ``ios`` bundle."""
    provider, own = by_provider(job), native(job)
    ways = [CPU, *provider.ways, *own.ways]
    variables = {
        "artifact": provider.path,
        "key": provider.key,
        "options": provider.facts.get("options", {}),
        "package": own.path,
        "package_key": own.key,
        "ways": ways,
    }
    return Side(
        files=(*provider.files, *own.files),
        variables=variables if provider.files or own.files else {},
        facts={"provider": provider.to_json(), "native": own.to_json(), "ways": ways},
        unverified=(
            *([UNVERIFIED_PROVIDER] if provider.files else ()),
            *([UNVERIFIED_NATIVE] if own.files else ()),
        ),
    )


def by_provider(job: Job) -> Part:
    """``model.basic.ort`` with the provider's options and a prediction of what it will take."""
    if job.making is not None:
        return Part(left_out="a reduced runtime has the operators of model.ort alone")
    keyed = job.step(coreml_cache_key, model=at_precision(job))
    basic = {**ort_options(job), "style": "Fixed", "level": "basic"}
    made = job.step(ort_format, model=keyed.file("model.onnx"), **basic)
    told = options(job)
    predicted = _predicted(job, told)
    ort = BundleFile.of(ARTIFACT, made.file("model.ort"), "app")
    return Part(
        files=(ort, BundleFile.of(f"plan/{FILE}", predicted.file(FILE), "plan")),
        path=ARTIFACT,
        key=keyed.facts["key"],
        ways=BY_PROVIDER,
        facts={
            **{name: predicted.facts[name] for name in PREDICTED},
            "cache_key": keyed.facts["key"],
            "options": told,
            "size": _size(job, [ort]),
        },
    )


def options(job: Job) -> dict[str, str]:
    """The CoreML provider's own options; where it keeps what it compiles only a device knows."""
    enough = coreml_version(job.app().ios_deployment_target) >= MLPROGRAM_COREML
    return Options(
        model_format="MLProgram" if enough else "NeuralNetwork",
        compute_units=job.target.coreml.compute_units,
        require_static_input_shapes=True,
    ).provider_options()


def _predicted(job: Job, told: dict[str, str]) -> Result:
    """What the provider will take of the file that it is given, as ONNX."""
    given = job.step(optimize, model=at_precision(job), level="basic").file("model.onnx")
    ios = job.app().ios_deployment_target
    return job.step(coreml_partitions, model=given, options=told, ios=ios)


def native(job: Job) -> Part:
    """``model.mlpackage`` in half precision, which is what the Neural Engine computes in.

    With the weights of the job's precision, where that is one of weights. A build goes on without
    it: where coremltools is not installed, an operator is not known to the frontend, or the target
    says ``native = false``.
    """
    if not job.target.coreml.native:
        return Part(left_out="the target says so")
    try:
        mine, made = _package(job)
    except (errors.ToolMissing, errors.ModelRefused) as error:
        _warn(job, "no Core ML package", error)
        return Part(left_out=error.message)
    warn(mine)
    files = [
        BundleFile.of(f"{FOLDER}/{name}", file, "app")
        for name, file in made.files.items()
        if name.startswith(f"{PACKAGE}/")
    ]
    facts = {
        "minimum_deployment_target": job.target.coreml.minimum_deployment_target,
        "precision": mine.precision,
        **how_facts(mine),
        "sqnr_db": _decibels(made.facts["sqnr_db"]),
        "size": _size(job, files),
        "tolerance": mine.tolerance.model_dump(),
        "unverified": True,  # Core ML itself was not asked
    }
    path, key = f"{FOLDER}/{PACKAGE}", package_file(made).sha256
    return Part(tuple(files), path, key, NATIVE, facts)


def _package(job: Job) -> tuple[Job, Result]:
    """The package, and the job at its precision: fp16 where weights cannot be compressed."""
    half = replace(job, precision="fp16")
    made = converted(half)  # what it refuses there is no package for at all
    if job.precision in WEIGHT_BITS:
        try:
            return job, _proven(job)
        except errors.ModelRefused as error:
            _warn(job, "the Core ML package is in fp16", error)
    return half, made


def _proven(job: Job) -> Result:
    """The package with compressed weights; refused outside the tolerance, as no gate is behind."""
    made, least = converted(job), job.tolerance.sqnr_db
    found = made.facts["sqnr_db"]
    if found is not None and least is not None and found < least:
        raise errors.ModelRefused(
            f"{job.precision} has {found} dB of SQNR by the reference executor, the tolerance "
            f"is {least} dB",
            remedy="choose another precision, or a tolerance for it",
        )
    return made


def _warn(job: Job, what: str, error: errors.EdgeError) -> None:
    fix = f"; {error.remedy}" if error.remedy else ""
    log.warn(f"{job.target.name}/{job.model.name}: {what}: {error.message}{fix}")


def _decibels(found: float | None) -> float | str | None:
    """As everywhere in manifests: steps have a number for outputs that do not differ at all."""
    return plain(math.inf) if found == HIGHEST_DB else found


def _size(job: Job, files: Sequence[BundleFile]) -> dict[str, int]:
    """Bytes as they lie there and under gzip -9, all files together."""
    found = [job.step(compressed_size, file=file.source).facts for file in files]
    return {kind: sum(each[kind] or 0 for each in found) for kind in ("raw", "compressed")}
