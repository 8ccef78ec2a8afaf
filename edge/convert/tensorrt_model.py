"""What every kind of TensorRT engine is made of: the model at its precision, and its profiles."""

from __future__ import annotations

from typing import Any

from edge import errors
from edge.convert.precision import at_precision
from edge.convert.run_artifact import run_artifact
from edge.convert.tensorrt_profiles import tensorrt_profiles
from edge.convert.tensorrt_qdq import tensorrt_qdq
from edge.job import PENDING, Job, PendingFacts
from edge.samples import INDEX
from edge.store import File, Result


def tensorrt_model(job: Job) -> File:
    """``model.onnx``: the canonical model at the job's precision; int8 by Q/DQ as TensorRT does it.

    Raises :class:`errors.ModelRefused` where Q/DQ is not symmetric.
    """
    model = at_precision(job)
    return (
        job.tool(tensorrt_qdq, model=model).file("model.onnx") if job.precision == "int8" else model
    )


def derived_profiles(job: Job, model: File) -> Result:
    """The profile of every input, proven on the CPU (see ``tensorrt_profiles``)."""
    ranges = {symbol: list(sizes) for symbol, sizes in job.target.tensorrt.profiles.items()}
    if ranges and job.target.dims == "bound":
        raise errors.ConfigError(
            f"target {job.target.name}: tensorrt.profiles say sizes of dimensions that are bound",
            remedy='say dims = "symbolic"',
        )
    return job.step(tensorrt_profiles, model=model, golden=job.samples.tree(INDEX), ranges=ranges)


def run_model_here(job: Job, model: File) -> Result:
    """What ONNX Runtime gives for the golden inputs, on the CPU."""
    return job.step(run_artifact, model=model, golden=job.samples.tree(INDEX))


def said(result: Result, name: str) -> Any:
    """A fact for the manifest; in a dry run, where nothing was run, that it is not known."""
    return PENDING if isinstance(result.facts, PendingFacts) else result.facts[name]
