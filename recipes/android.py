"""Android: an ORT-format model and a Gradle project around it, with the plan for less runtime."""

from edge.bundle import Bundle, BundleFile
from edge.convert import reduced_runtime
from edge.convert.ort_format import ort_format
from edge.convert.prebuilt_runtime import android_libraries
from edge.convert.precision import at_precision, ort_options
from edge.convert.render_app import render_app
from edge.job import Job
from edge.store import File


def artifact(job: Job) -> File:
    """``model.ort``, without layouts of any CPU."""
    return job.step(ort_format, model=at_precision(job), **ort_options(job)).file("model.ort")


def build(job: Job) -> Bundle:
    """The app, on request the runtime that it links, full or reduced, and the plan for it."""
    app = job.app()
    abis = list(app.abis)
    variables = {
        **job.app_variables(),
        "min_sdk": app.min_sdk,
        "abis": abis,
    }
    project = job.step(render_app, template=job.template("android"), variables=variables)
    made = reduced_runtime.reduced(job, abis=tuple(abis), min_sdk=app.min_sdk)
    runtime = job.runtime_files()
    if made.built:
        archive = f"runtime/onnxruntime-android-{job.target.runtime.version}.aar"
        runtime = (BundleFile.of(archive, made.product, "runtime"),)
    own = made.built is not None
    read = [job.step(android_libraries, aar=f.source, abis=abis, built=own) for f in runtime]
    return Bundle(
        files=(*runtime, *job.tree("app", project, "app"), *job.tree("plan", made.plan, "plan")),
        runtime={
            **made.facts,
            "libraries": [entry for each in read for entry in each.facts["libraries"] or ()],
            "requires": {
                **job.target.requires,
                "abis": " ".join(abis),
                "api": str(app.min_sdk),
            },
        },
        # What a phone of the target's first ABI gets of it.
        runtime_size=read[0].facts["first_abi"] if read else None,
        planned=made.planned,
    )
