"""The canonical model at a job's precision: what a recipe turns into its artifact."""

from __future__ import annotations

from typing import Any

from edge.convert.fp16 import fp16
from edge.convert.int8_dynamic import int8_dynamic
from edge.convert.int8_static import int8
from edge.convert.weight_only import weight_only
from edge.job import Job
from edge.samples import INDEX
from edge.store import File

# What a refusal of these depends on, beside their inputs.
STEP_VERSIONS = {each.name: each.version for each in (fp16, int8, int8_dynamic, weight_only)}
MARGIN_DB = 1.0
WEIGHT_BITS = {"int8-weights": 8, "int4-weights": 4}


def at_precision(job: Job) -> File:
    """The canonical model, converted by one step where the precision is not the source's own.

    Those steps run under the installed onnxruntime: targets that want the same share one result.
    Raises :class:`errors.ModelRefused` where the model has nothing that could be converted.
    """
    target, model = job.target, job.canonical
    if job.precision == "source":
        return model
    if job.precision == "fp16":
        made = job.tool(fp16, model=model, cases=job.cases, block=list(target.fp16.block))
    elif job.precision == "int8":
        golden = job.samples.tree(INDEX)
        options = target.int8.model_dump(mode="json")
        limit = least_sqnr(job)
        made = job.tool(
            int8, model=model, cases=job.cases, golden=golden, options=options, min_sqnr=limit
        )
    elif job.precision == "int8-dynamic":
        said = target.int8_dynamic.model_dump(mode="json")
        made = job.tool(int8_dynamic, model=model, options=said)
    else:
        bits = WEIGHT_BITS[job.precision]
        made = job.tool(weight_only, model=model, bits=bits, **target.weight_only.model_dump())
    return made.file("model.onnx")


def ort_options(job: Job) -> dict[str, Any]:
    """Options of the ORT-format converter for the job's precision.

    At level ``all`` the converter folds fp16 weights back to fp32 (releases 1.29 to 1.32, on
    hosts whose CPU computes in fp32): ``extended`` keeps their size.
    """
    options = job.target.ort_format.model_dump()
    if job.precision == "fp16" and options["level"] == "all":
        options["level"] = "extended"
    return options


def least_sqnr(job: Job) -> float | None:
    """What int8 has to reach by giving nodes back, in dB: the strictest of tolerance and choice.

    With a margin: kernels of other releases and CPUs round otherwise (0.5 dB on PP-OCR's rec).
    """
    chosen = job.target.choice.min_sqnr if job.target.precision == "auto" else None
    limits = [limit for limit in (job.tolerance.sqnr_db, chosen) if limit is not None]
    return max(limits) + MARGIN_DB if limits else None
