"""Linux: an ONNX file optimized offline, the pinned shared library and the C runner."""

from edge.bundle import Bundle
from edge.convert.optimize import optimize
from edge.convert.precision import at_precision
from edge.convert.runner_files import python_runner, runner_files
from edge.job import Job
from edge.store import File


def artifact(job: Job) -> File:
    """``model.onnx``, optimized for any CPU of the platform unless the target says otherwise."""
    level = job.target.optimization.level
    return job.step(optimize, model=at_precision(job), level=level).file("model.onnx")


def build(job: Job) -> Bundle:
    """The artifact with library, runner (binary and source) and a runner for Python devices."""
    return Bundle(
        files=(
            *job.runtime_files(),
            *runner_files(job).files,
            *python_runner(job, "onnxruntime"),
        ),
        runtime={"optimization": job.target.optimization.level},
    )
