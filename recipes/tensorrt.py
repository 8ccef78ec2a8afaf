"""NVIDIA GPUs by ONNX Runtime's TensorRT provider: engines are built and kept on the device."""

from edge.bundle import Bundle
from edge.convert.rtx_partition import rtx_partition
from edge.convert.runner_files import python_runner
from edge.convert.runner_options import runner_options
from edge.convert.tensorrt_model import derived_profiles, said, tensorrt_model
from edge.convert.tensorrt_options import tensorrt_options
from edge.job import Job
from edge.store import File

UNVERIFIED = "what TensorRT computes: the artifact was run here by ONNX Runtime on the CPU"


def artifact(job: Job) -> File:
    """``model.onnx`` without ONNX Runtime's fusions, which TensorRT has no parser for."""
    return tensorrt_model(job)


def build(job: Job) -> Bundle:
    """The artifact, the runner, its options with profiles and the key of the engines."""
    model = job.built()
    profiles = derived_profiles(job, model)
    partition = job.tool(rtx_partition, model=model)
    told = tensorrt_options(job.target, job.precision, model.sha256, profiles.facts)
    return Bundle(
        files=(*python_runner(job, "onnxruntime"), runner_options(job, told)),
        runtime={
            "profiles": said(profiles, "profiles"),
            "partition": said(partition, "partition"),
            "engine_key": told["runner.engine_key"],
        },
        runtime_size=None,
        unverified=(UNVERIFIED,),
        cache=True,
    )
