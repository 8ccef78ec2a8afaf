"""The browser: an ORT-format model, the two files of onnxruntime-web that it needs, a page."""

from typing import Any

from edge.bundle import Bundle, BundleFile
from edge.convert.compressed_size import compressed_size
from edge.convert.ort_format import ort_format
from edge.convert.render_app import render_app
from edge.errors import ConfigError
from edge.job import Job
from edge.store import File
from edge.tools import web_runtime


def artifact(job: Job) -> File:
    """``model.ort``, without layouts of any CPU."""
    options = job.target.ort_format.model_dump()
    return job.step(ort_format, model=job.canonical, **options).file("model.ort")


def build(job: Job) -> Bundle:
    """The artifact with the runtime, a page that checks and measures, and a runner for Node."""
    provider = web_runtime.provider(job.target.provider)
    runtime = job.runtime_files()
    paths = [web_runtime.bundle_path(member) for member in provider.members]
    if sorted(paths) != sorted(file.path for file in runtime):
        raise ConfigError(
            f"target {job.target.name}: the provider {provider.name} needs {', '.join(paths)}"
        )
    downloads = [_download(job, "model.ort", job.built())]
    downloads += [_download(job, file.path, file.source) for file in runtime]
    variables = {
        **job.variables(),
        "provider": provider.name,
        "runtime": paths,
        "downloads": downloads,
    }
    page = job.step(render_app, template=job.template("browser"), variables=variables)
    files = [
        BundleFile.of(path, file, "runner" if path.startswith("runner/") else "app")
        for path, file in page.files.items()
    ]
    return Bundle(files=(*runtime, *files), runtime={"provider": provider.name})


def _download(job: Job, path: str, file: File) -> dict[str, Any]:
    facts = job.step(compressed_size, file=file).facts
    return {"path": path, "raw": facts["raw"], "compressed": facts["compressed"]}
