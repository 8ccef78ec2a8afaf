"""A native TensorRT plan: made on a GPU host (``--on``), or the exact commands for it."""

from edge.bundle import Bundle, BundleFile
from edge.convert.rtx_partition import rtx_partition
from edge.convert.runner_files import python_runner
from edge.convert.runner_options import runner_options
from edge.convert.tensorrt_model import derived_profiles, run_model_here, said, tensorrt_model
from edge.convert.tensorrt_options import plan_options
from edge.convert.tensorrt_plan import PLANNED, gpus, plan_files, tensorrt_plan
from edge.job import Job
from edge.store import File, Result
from edge.tools.tensorrt_plan import ENGINE

UNVERIFIED = "what the plan computes: it runs on the GPU that it was made for alone"


def artifact(job: Job) -> File:
    """``engine.plan``, or without a host the ``model.onnx`` that it is to be made of."""
    model = tensorrt_model(job)
    making = job.making
    if making is None:
        return model
    return job.step(
        tensorrt_plan,
        model=model,
        script=job.template("tensorrt/build_plan.py"),
        profiles=derived_profiles(job, model).file("profiles.json"),
        request={**_request(job), "host": dict(making.toolchain)},
        where=dict(making.where),
    ).file(ENGINE)


def run(job: Job, file: File) -> Result | None:
    """A plan cannot be run here; the model of a planned one can."""
    return run_model_here(job, file) if job.making is None else None


def accuracy(job: Job, file: File, arguments: object) -> None:
    """The user's metric needs a GPU, too."""


def build(job: Job) -> Bundle:
    """The artifact with its runner, or with the commands that make it."""
    model = tensorrt_model(job)
    profiles = derived_profiles(job, model)
    facts = {
        "profiles": said(profiles, "profiles"),
        "partition": said(job.tool(rtx_partition, model=model), "partition"),
    }
    told = plan_options(job.target)
    options = (runner_options(job, told),) if told else ()
    runner = (*python_runner(job, "tensorrt"), *options)
    if job.making is not None:
        host = dict(job.making.toolchain)
        requires = {**job.target.requires, **gpus(host, job.target.tensorrt.options)}
        return Bundle(
            runner, {**facts, "host": host, "requires": requires}, None, (), (UNVERIFIED,)
        )
    script, profile = job.template("tensorrt/build_plan.py"), profiles.file("profiles.json")
    plan = job.step(plan_files, script=script, profiles=profile, request=_request(job))
    files: tuple[BundleFile, ...] = (*runner, *job.tree("plan", plan, "plan"))
    facts = {**facts, "commands": said(plan, "commands")}
    return Bundle(files, facts, None, (PLANNED,), (UNVERIFIED,))


def _request(job: Job) -> dict[str, object]:
    wish = job.target.tensorrt
    version = job.target.runtime.version
    return {"builder": wish.builder, "options": dict(wish.options), "version": version}
