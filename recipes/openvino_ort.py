"""OpenVINO by ONNX Runtime's provider: an ONNX file and a Python runner, in its own environment."""

from edge.bundle import Bundle
from edge.convert.openvino_artifact import properties
from edge.convert.precision import at_precision
from edge.convert.run_ort_openvino import provider_options, run_ort_openvino
from edge.convert.runner_files import python_runner
from edge.convert.runner_options import runner_options
from edge.job import Job
from edge.store import File, Result


def artifact(job: Job) -> File:
    """``model.onnx`` without ONNX Runtime's fusions, whose operators OpenVINO does not read."""
    return at_precision(job)


def run(job: Job, file: File) -> Result:
    """The model on the golden inputs, by this provider alone."""
    return job.apart(
        run_ort_openvino,
        model=file,
        golden=job.samples.tree("samples.tsv"),
        options=provider_options(properties(job)),
        release=job.target.runtime.version,
    )


def build(job: Job) -> Bundle:
    """The artifact, the runner and its options; what is needed comes by ``runtime.python``."""
    told = provider_options(properties(job))
    options = {f"provider.{name}": value for name, value in told.items()}
    return Bundle(
        files=(*python_runner(job, "onnxruntime"), runner_options(job, options)),
        runtime={"device": "CPU", "properties": properties(job)},
        runtime_size=None,
        cache=job.target.openvino.cache,
    )
