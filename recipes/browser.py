"""The browser: an ORT-format model, the two files of onnxruntime-web that it needs, a page."""

from typing import Any

from edge.bundle import Bundle, BundleFile
from edge.convert import reduced_runtime
from edge.convert.compressed_size import compressed_size
from edge.convert.ort_format import ort_format
from edge.convert.precision import at_precision, ort_options
from edge.convert.render_app import render_app
from edge.errors import ConfigError
from edge.job import Job
from edge.store import File
from edge.tools import web_runtime


def artifact(job: Job) -> File:
    """``model.ort``, without layouts of any CPU."""
    return job.step(ort_format, model=at_precision(job), **ort_options(job)).file("model.ort")


def build(job: Job) -> Bundle:
    """The artifact with the runtime, a page that checks and measures, and a runner for Node."""
    made = reduced_runtime.reduced(job)
    if made.planned:
        return Bundle(job.tree("plan", made.plan, "plan"), made.facts, None, made.planned)
    provider = web_runtime.provider(job.target.provider)
    runtime = _built(job, made) if made.built else _prebuilt(job, provider)
    paths = [file.path for file in runtime]
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
    return Bundle(
        files=(*runtime, *files, *job.tree("plan", made.plan, "plan")),
        runtime={**made.facts, "provider": provider.name},
    )


def _prebuilt(job: Job, provider: web_runtime.WebProvider) -> tuple[BundleFile, ...]:
    """The two files of the release that the provider needs, the module first."""
    found = {file.path: file for file in job.runtime_files()}
    paths = [web_runtime.bundle_path(member) for member in provider.members]
    if sorted(paths) != sorted(found):
        raise ConfigError(
            f"target {job.target.name}: the provider {provider.name} needs {', '.join(paths)}"
        )
    return tuple(found[path] for path in paths)


def _built(job: Job, made: reduced_runtime.Reduced) -> tuple[BundleFile, ...]:
    """The release's module, and the built ``.wasm`` with its glue."""
    version = job.target.runtime.version
    packages = [pin.package for pin in job.target.runtime.reduced.files]
    if any(p.startswith("npm:") and not p.endswith(f"@{version}") for p in packages):
        raise ConfigError(
            f"target {job.target.name}: the files of [runtime.reduced] are not those of {version}",
            remedy="pin the module of the very release that is built",
        )
    files = [
        BundleFile.of(f"runtime/{name}", made.file(name), "runtime")
        for name in (made.product.path.name, f"{made.product.path.stem}.mjs")
    ]
    return (*job.reduced_files(), *files)


def _download(job: Job, path: str, file: File) -> dict[str, Any]:
    facts = job.step(compressed_size, file=file).facts
    return {"path": path, "raw": facts["raw"], "compressed": facts["compressed"]}
