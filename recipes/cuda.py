"""NVIDIA GPUs by ONNX Runtime's CUDA provider: an ONNX file and a Python runner."""

from edge.bundle import Bundle
from edge.convert.optimize import optimize
from edge.convert.precision import at_precision
from edge.convert.runner_files import python_runner
from edge.convert.runner_options import runner_options
from edge.convert.tensorrt_options import cuda_options
from edge.job import Job
from edge.store import File

UNVERIFIED = "what the CUDA provider computes: the artifact was run here on the CPU alone"


def artifact(job: Job) -> File:
    """``model.onnx``, optimized as far as no provider is chosen by it.

    Fusions of ``extended`` are made for the provider that a node was assigned to, which here
    would be the CPU; on the device the provider's own are made when the model is loaded.
    """
    level = job.target.optimization.level
    return job.step(optimize, model=at_precision(job), level=level).file("model.onnx")


def build(job: Job) -> Bundle:
    """The artifact, the runner and its options; what is needed comes by ``runtime.python``."""
    options = runner_options(job, cuda_options(job.target))
    return Bundle(
        files=(*python_runner(job, "onnxruntime"), options),
        runtime={"optimization": job.target.optimization.level, "online_optimization": "all"},
        runtime_size=None,
        unverified=(UNVERIFIED,),
    )
