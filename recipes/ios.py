"""iOS: ORT-format models for CPU and Core ML, a native package, and a Swift package around all."""

from edge.bundle import Bundle, BundleFile
from edge.convert import ios_coreml, reduced_runtime
from edge.convert.ort_format import ort_format
from edge.convert.prebuilt_runtime import XCFRAMEWORK, pack_xcframework
from edge.convert.precision import at_precision, ort_options
from edge.convert.render_app import render_app
from edge.job import Job
from edge.store import File

SLICES = ["ios-arm64", "ios-arm64_x86_64-simulator"]


def artifact(job: Job) -> File:
    """``model.ort``, without layouts of any CPU."""
    return job.step(ort_format, model=at_precision(job), **ort_options(job)).file("model.ort")


def build(job: Job) -> Bundle:
    """Package and app, on request the runtime that they link, full or reduced, and its plan."""
    app = job.app()
    coreml = ios_coreml.side(job)
    variables = {
        **job.app_variables(),
        "coreml": coreml.variables,
        "ios_deployment_target": app.ios_deployment_target,
        "pod_checksum": job.target.runtime.archive_sha256,
    }
    project = job.step(render_app, template=job.template("ios"), variables=variables)
    made = reduced_runtime.reduced(job, ios_deployment_target=app.ios_deployment_target)
    sources = [file.source for file in job.runtime_files()]
    if made.built:
        sources = [made.product]
    packed = [job.step(pack_xcframework, source=source, slices=SLICES) for source in sources]
    runtime = [
        BundleFile.of(f"runtime/{XCFRAMEWORK}", each.file(XCFRAMEWORK), "runtime")
        for each in packed
    ]
    return Bundle(
        files=(
            *runtime,
            *coreml.files,
            *job.tree("app", project, "app"),
            *job.tree("plan", made.plan, "plan"),
        ),
        runtime={
            **made.facts,
            "slices": packed[0].facts["slices"] if packed else [],
            "coreml": coreml.facts,
        },
        # A static framework's size says nothing of what an app grows by.
        runtime_size=None,
        planned=made.planned,
        unverified=coreml.unverified,
        cache=bool(coreml.files),
    )
