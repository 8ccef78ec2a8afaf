"""Linux with little room: an ORT-format model, a runtime built for it, the C runner."""

from edge.bundle import Bundle, BundleFile
from edge.convert import reduced_runtime
from edge.convert.ort_format import ort_format
from edge.convert.precision import at_precision, ort_options
from edge.convert.runner_files import runner_files
from edge.job import Job
from edge.store import File


def artifact(job: Job) -> File:
    """``model.ort``, without layouts of any CPU."""
    return job.step(ort_format, model=at_precision(job), **ort_options(job)).file("model.ort")


def build(job: Job) -> Bundle:
    """The artifact with the C runner and the built library, or the plan for it."""
    runner = runner_files(job)
    made = reduced_runtime.reduced(job)
    if made.built is None:
        plan = job.tree("plan", made.plan, "plan")
        return Bundle((*plan, *runner.files), made.facts, None, made.planned)
    library = BundleFile.of(f"runtime/{made.product.path.name}", made.product, "runtime")
    facts = {
        **made.facts,
        "proof": reduced_runtime.prove(job, made, runner.binary),
        "sizes": reduced_runtime.sizes(job, made),
        "requires": reduced_runtime.requires(job, made),
    }
    return Bundle(files=(library, *runner.files), runtime=facts)
