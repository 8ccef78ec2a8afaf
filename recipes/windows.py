"""Windows: an ONNX file, ONNX Runtime's DLLs, the C runner and one for devices with Python."""

from edge.bundle import Bundle
from edge.convert.optimize import optimize
from edge.convert.precision import at_precision
from edge.convert.runner_files import python_runner, runner_files
from edge.convert.runner_options import runner_options
from edge.convert.windows_libraries import windows_needs
from edge.job import Job
from edge.store import File

CPU = "CPUExecutionProvider"
UNVERIFIED = {
    "DmlExecutionProvider": "what DirectML computes: the artifact was run here on the CPU alone"
}


def artifact(job: Job) -> File:
    """``model.onnx``; for a GPU the target's level is one that no provider is chosen by."""
    level = job.target.optimization.level
    return job.step(optimize, model=at_precision(job), level=level).file("model.onnx")


def build(job: Job) -> Bundle:
    """The artifact with DLLs and runners, and what the device must have beside them."""
    libraries, provider = job.runtime_files(), job.target.provider
    told = {"runner.least_nodes": job.target.placement.least_nodes}
    options = () if provider == CPU else (runner_options(job, told),)
    online = {} if provider == CPU else {"online_optimization": "all"}
    return Bundle(
        files=(
            *libraries,
            *runner_files(job).files,
            *python_runner(job, "onnxruntime"),
            *options,
        ),
        runtime={
            "optimization": job.target.optimization.level,
            "needs": windows_needs(job, libraries),
            **online,
        },
        unverified=tuple(UNVERIFIED[name] for name in (provider,) if name in UNVERIFIED),
    )
