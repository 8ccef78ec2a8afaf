"""OpenVINO on the CPU: IR, the libraries that run it, a C runner and a Python runner."""

from collections.abc import Mapping
from typing import Any

from edge.bundle import Bundle
from edge.convert.openvino_artifact import ir, manifest_facts, properties
from edge.convert.openvino_run import openvino_accuracy, run_openvino
from edge.convert.runner_files import python_runner, runner_files
from edge.convert.runner_options import runner_options
from edge.job import Job
from edge.store import File, Result

# int8-dynamic is not offered: OpenVINO rounds activations in the run only where a CPU has VNNI.
PRECISIONS = ("source", "fp16", "int8", "int8-weights", "int4-weights")


def artifact(job: Job) -> File:
    """``model.xml`` with ``model.bin``."""
    return ir(job)


def run(job: Job, file: File) -> Result:
    """The IR on the golden inputs, by the very release of OpenVINO."""
    return job.step(run_openvino, model=file, golden=job.samples.tree("samples.tsv"), **_how(job))


def accuracy(job: Job, file: File, arguments: Mapping[str, Any]) -> Result:
    """The user's metric on the IR."""
    return job.step(openvino_accuracy, model=file, **_how(job), **arguments)


def _how(job: Job) -> dict[str, Any]:
    return {"properties": properties(job), "release": job.target.runtime.version}


def build(job: Job) -> Bundle:
    """The artifact with libraries, runners and their options."""
    told = {f"provider.{name}": value for name, value in properties(job).items()}
    compiled = runner_files(job).files if job.target.runner else ()
    return Bundle(
        files=(
            *job.runtime_files(),
            *compiled,
            *python_runner(job, "openvino"),
            runner_options(job, told),
        ),
        runtime=manifest_facts(job),
        cache=job.target.openvino.cache,
    )
