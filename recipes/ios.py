"""iOS: an ORT-format model and a Swift package around it, with the plan for less runtime."""

from edge.bundle import Bundle, BundleFile
from edge.convert.ort_format import ort_format
from edge.convert.plan_reduced import plan_reduced
from edge.convert.prebuilt_runtime import XCFRAMEWORK, pack_xcframework
from edge.convert.render_app import render_app
from edge.job import Job
from edge.store import File

SLICES = ["ios-arm64", "ios-arm64_x86_64-simulator"]


def artifact(job: Job) -> File:
    """``model.ort``, without layouts of any CPU."""
    options = job.target.ort_format.model_dump()
    return job.step(ort_format, model=job.canonical, **options).file("model.ort")


def build(job: Job) -> Bundle:
    """Package and app, on request the runtime that they link, and the plan for a reduced one."""
    app = job.app()
    variables = {
        **job.app_variables(),
        "ios_deployment_target": app.ios_deployment_target,
        "pod_checksum": job.target.runtime.archive_sha256,
    }
    project = job.step(render_app, template=job.template("ios"), variables=variables)
    request = {
        "version": job.target.runtime.version,
        "platform": job.target.platform,
        "ios_deployment_target": app.ios_deployment_target,
    }
    plan = job.step(plan_reduced, config=job.operators(), request=request)
    packed = [
        job.step(pack_xcframework, source=file.source, slices=SLICES)
        for file in job.runtime_files()
    ]
    runtime = [
        BundleFile.of(f"runtime/{XCFRAMEWORK}", each.file(XCFRAMEWORK), "runtime")
        for each in packed
    ]
    return Bundle(
        files=(*runtime, *job.tree("app", project, "app"), *job.tree("plan", plan, "plan")),
        runtime={"slices": packed[0].facts["slices"] if packed else []},
        # A static framework's size says nothing of what an app grows by.
        runtime_size=None,
    )
