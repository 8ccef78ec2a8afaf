"""Core ML: a package (an ML Program) that Apple's systems load by themselves."""

from collections.abc import Mapping
from typing import Any

from edge.bundle import Bundle
from edge.convert.coreml_package import manifest_facts, package
from edge.convert.coreml_run import coreml_accuracy, run_coreml
from edge.convert.runner_options import runner_options
from edge.job import Job
from edge.store import File, Result

# 8-bit activations are measured by Core ML itself, on a Mac alone.
PRECISIONS = ("source", "fp16", "int8-weights", "int4-weights")
UNVERIFIED = (
    "Apple's runtime did not run here: outputs are the MIL reference executor's, which knows "
    "nothing of the order of sums, of the Neural Engine and of time"
)


def artifact(job: Job) -> File:
    """``model.mlpackage``, a folder."""
    return package(job)


def run(job: Job, file: File) -> Result | None:
    """The package on the golden inputs, by the executor; None where it lacks an operation."""
    ran = job.step(run_coreml, model=file, golden=job.samples.tree("samples.tsv"))
    return None if ran.facts["unverified"] else ran


def accuracy(job: Job, file: File, arguments: Mapping[str, Any]) -> Result | None:
    """The user's metric on the package, by the executor."""
    return job.step(coreml_accuracy, model=file, **arguments)


def build(job: Job) -> Bundle:
    """The package, and where an app should let it run. There is no runtime: the system has it."""
    options = {"provider.MLComputeUnits": job.target.coreml.compute_units}
    ran = job.step(run_coreml, model=job.built(), golden=job.samples.tree("samples.tsv"))
    why = ran.facts["unverified"]
    return Bundle(
        files=(runner_options(job, options),),
        runtime=manifest_facts(job),
        runtime_size={"raw": 0, "compressed": 0},
        unverified=(UNVERIFIED, *([why] if why else [])),
    )
