"""The C runner of a Linux target, as its bundle carries it."""

from __future__ import annotations

from dataclasses import dataclass

from edge import errors
from edge.bundle import BundleFile
from edge.convert.compile_runner import compile_runner
from edge.job import Job
from edge.store import File


@dataclass(frozen=True)
class Runner:
    """The compiled runner, and all files that belong to it in a bundle."""

    binary: File
    files: tuple[BundleFile, ...]


def runner_files(job: Job) -> Runner:
    """The target's runner, compiled for its triple; :class:`errors.ConfigError` without one."""
    wanted = job.target.runner
    if wanted is None:
        raise errors.ConfigError(
            f"target {job.target.name}: the recipe {job.target.recipe} needs [runner]"
        )
    source = job.template("runner/edge_runner.c")
    compiled = job.step(
        compile_runner, source=source, header=job.fetch(wanted.header), triple=wanted.triple
    )
    binary = compiled.file("edge_runner")
    return Runner(
        binary,
        (
            BundleFile.of("runner/edge_runner", binary, "runner", executable=True),
            BundleFile.of("runner/edge_runner.c", source, "runner"),
        ),
    )
