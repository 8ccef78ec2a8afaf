"""The canonical model at a job's precision: what a recipe turns into its artifact."""

from __future__ import annotations

from typing import Any

from edge.config.precision import LOSSY_DB
from edge.convert.fp16 import fp16
from edge.convert.int8_dynamic import int8_dynamic
from edge.convert.int8_static import int8
from edge.convert.weight_only import weight_only
from edge.job import Job
from edge.samples import INDEX
from edge.step import Step
from edge.store import File

MARGIN_DB = 1.0
WEIGHT_BITS = {"int8-weights": 8, "int4-weights": 4}


def at_precision(job: Job) -> File:
    """The canonical model, converted by one step where the precision is not the source's own.

    Those steps run under the installed onnxruntime: targets that want the same share one result.
    Raises :class:`errors.ModelRefused` where the model has nothing that could be converted, and
    :class:`errors.ParityFailed` where int8 cannot be made as right as it has to be.
    """
    wanted = conversion(job)
    if wanted is None:
        return job.canonical
    step, arguments = wanted
    return job.tool(step, **arguments).file("model.onnx")


def conversion(job: Job) -> tuple[Step, dict[str, Any]] | None:
    """The step of the job's precision and its arguments; None for the source's own."""
    target, model = job.target, {"model": job.canonical}
    if job.precision == "source":
        return None
    if job.precision == "fp16":
        return fp16, {**model, "cases": job.cases, "block": list(target.fp16.block)}
    if job.precision == "int8":
        golden = job.samples.tree(INDEX)
        options = target.int8.model_dump(mode="json")
        given = {**model, "cases": job.cases, "golden": golden}
        return int8, {**given, "options": options, "goals": goals(job)}
    if job.precision == "int8-dynamic":
        return int8_dynamic, {**model, "options": target.int8_dynamic.model_dump(mode="json")}
    bits = WEIGHT_BITS[job.precision]
    return weight_only, {**model, "bits": bits, **target.weight_only.model_dump()}


def ort_options(job: Job) -> dict[str, Any]:
    """Options of the ORT-format converter for the job's precision.

    At level ``all`` the converter folds fp16 weights back to fp32 (releases 1.29 to 1.32, on
    hosts whose CPU computes in fp32): ``extended`` keeps their size.
    """
    options = job.target.ort_format.model_dump()
    if job.precision == "fp16" and options["level"] == "all":
        options["level"] = "extended"
    return options


def goals(job: Job) -> list[float]:
    """What int8 tries to reach by giving nodes back, in dB, the best first.

    The tolerance with a margin (kernels of other releases and CPUs round otherwise: 0.5 dB on
    PP-OCR's rec), then the tolerance itself. Where the user limits the loss by a metric alone,
    the usual noise is tried before anything more.
    """
    limit = job.tolerance.sqnr_db or 0.0
    usual = LOSSY_DB["int8"]
    if job.target.precision == "auto" and job.target.choice.min_sqnr is None and limit < usual:
        return [usual + MARGIN_DB, usual / 2, limit]
    return [limit + MARGIN_DB, limit]
