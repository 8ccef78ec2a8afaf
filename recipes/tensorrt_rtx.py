"""NVIDIA RTX GPUs by TensorRT-RTX: an engine that is built ahead of time, without a GPU."""

from edge.bundle import Bundle
from edge.convert.rtx_engine import ENGINE, LEAST, rtx_engine
from edge.convert.rtx_partition import rtx_partition
from edge.convert.runner_files import python_runner
from edge.convert.runner_options import runner_options
from edge.convert.tensorrt_model import derived_profiles, said, tensorrt_model
from edge.convert.tensorrt_options import rtx_options
from edge.job import Job
from edge.store import File, Result

UNVERIFIED = "what the engine computes: it runs on an RTX GPU alone"


def artifact(job: Job) -> File:
    """``engine.rtx`` for the target's compute capabilities."""
    return _engine(job).file(ENGINE)


def _engine(job: Job) -> Result:
    model = tensorrt_model(job)
    return job.step(
        rtx_engine,
        model=model,
        profiles=derived_profiles(job, model).file("profiles.json"),
        compute_capabilities=list(job.target.tensorrt.compute_capabilities),
    )


def run(job: Job, file: File) -> None:
    """An engine needs an RTX GPU."""


def accuracy(job: Job, file: File, arguments: object) -> None:
    """The user's metric needs one, too."""


def build(job: Job) -> Bundle:
    """The engine with its runner; what kernels become on the device is kept there."""
    model, engine = tensorrt_model(job), _engine(job)
    wanted = job.target.tensorrt.compute_capabilities
    gpus = {"compute_capabilities": " ".join(wanted)} if wanted else {"compute_capability": LEAST}
    told = rtx_options(job.target, job.precision, job.built().sha256)
    return Bundle(
        files=(*python_runner(job, "tensorrt"), runner_options(job, told)),
        runtime={
            "profiles": said(derived_profiles(job, model), "profiles"),
            "partition": said(job.tool(rtx_partition, model=model), "partition"),
            "layers": said(engine, "layers"),
            "warnings": said(engine, "warnings"),
            "requires": {**job.target.requires, **gpus},
        },
        runtime_size=None,
        unverified=(UNVERIFIED,),
        cache=True,
    )
