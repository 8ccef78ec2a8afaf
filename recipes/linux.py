"""Linux: an ONNX file optimized offline, the pinned shared library and the C runner."""

from edge.bundle import Bundle, BundleFile
from edge.convert.compile_runner import compile_runner
from edge.convert.optimize import optimize
from edge.errors import ConfigError
from edge.job import Job
from edge.store import File


def artifact(job: Job) -> File:
    """``model.onnx``, optimized for any CPU of the platform unless the target says otherwise."""
    level = job.target.optimization.level
    return job.step(optimize, model=job.canonical, level=level).file("model.onnx")


def build(job: Job) -> Bundle:
    """The artifact with library, runner (binary and source) and a runner for Python devices."""
    runner = job.target.runner
    if runner is None:
        raise ConfigError(f"target {job.target.name}: the recipe linux needs [runner]")
    source = job.template("runner/edge_runner.c")
    python = job.template("runner/edge_runner.py")
    compiled = job.step(
        compile_runner, source=source, header=job.fetch(runner.header), triple=runner.triple
    )
    binary = compiled.file("edge_runner")
    return Bundle(
        files=(
            *job.runtime_files(),
            BundleFile.of("runner/edge_runner", binary, "runner", executable=True),
            BundleFile.of("runner/edge_runner.c", source, "runner"),
            BundleFile.of("runner/edge_runner.py", python, "runner"),
        ),
        runtime={"optimization": job.target.optimization.level},
    )
