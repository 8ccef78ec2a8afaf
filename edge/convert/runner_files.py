"""The runners of a target, as its bundle carries them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edge import errors
from edge.bundle import BundleFile
from edge.convert.compile_runner import binary_name, compile_runner, sources
from edge.job import Job
from edge.store import File

# Providers whose Python runner asks NVIDIA's driver for the GPU.
ON_NVIDIA = ("CUDAExecutionProvider", "TensorrtExecutionProvider")


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
    backend = _backend(job)
    files = {name: job.template(f"runner/{name}") for name in sources(wanted.triple, backend)}
    compiled = job.step(
        compile_runner,
        source=_together(files),
        header=job.fetch(wanted.header),
        triple=wanted.triple,
        backend=backend,
    )
    name = binary_name(wanted.triple)
    binary = compiled.file(name)
    beside = [BundleFile.of(f"runner/{each}", file, "runner") for each, file in files.items()]
    return Runner(
        binary, (BundleFile.of(f"runner/{name}", binary, "runner", executable=True), *beside)
    )


def _backend(job: Job) -> str:
    """What the C runner loads: the target's runtime decides."""
    runtime = job.target.runtime
    if not runtime.onnxruntime and runtime.name != "openvino":
        raise errors.ConfigError(
            f"target {job.target.name}: there is no C runner for {runtime.name}",
            remedy="take [runner] out of the target",
        )
    return "onnxruntime" if runtime.onnxruntime else "openvino"


def _together(files: Mapping[str, File]) -> File:
    """The main file, with the others as what lies beside it."""
    main = files["edge_runner.c"]
    apart = [name for name, file in files.items() if file.path.parent != main.path.parent]
    if apart:
        raise errors.ConfigError(
            f"templates/runner: {apart[0]} does not lie beside the edge_runner.c that is used",
            remedy="put all files of the C runner into one folder",
        )
    others = sorted((name, file.sha256) for name, file in files.items() if file is not main)
    return replace(main, companions=tuple(others))


def python_runner(job: Job, backend: str) -> tuple[BundleFile, ...]:
    """The Python runner's files with ``backend`` (onnxruntime, openvino, tensorrt) beside them."""
    names = ["edge_runner", "edge_bundle", f"edge_{backend}"]
    if backend == "tensorrt" or job.target.provider in ON_NVIDIA:
        names.append("edge_cuda")
    paths = [f"runner/{name}.py" for name in names]
    return tuple(BundleFile.of(path, job.template(path), "runner") for path in paths)
