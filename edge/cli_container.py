"""``edge container``: a built bundle as an image, for Kubernetes, Triton and KServe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edge import errors, log
from edge.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    DeviceOption,
    JsonOption,
    ModelOption,
    NameOption,
    OutputOption,
    ResultsOption,
    TargetArgument,
    VersionOption,
    say_json,
)

if TYPE_CHECKING:
    from edge.containers import Made


def container(
    target: TargetArgument,
    device: DeviceOption = "local",
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    output: OutputOption = "",
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder to write; default: TARGET.container.")
    ] = None,
    registry: Annotated[
        str, typer.Option("--registry", help="Before the image's name: registry.example.com/team.")
    ] = "",
    replicas: Annotated[int, typer.Option("--replicas", min=1, max=10_000)] = 1,
    threads: Annotated[
        int, typer.Option("--threads", min=1, max=1024, help="Of one run; a pod's CPUs.")
    ] = 1,
    memory: Annotated[
        str, typer.Option("--memory", help="512Mi; default: from the peak measured on --device.")
    ] = "",
    storage_uri: Annotated[
        str, typer.Option("--storage-uri", help="KServe: where the model repository will lie.")
    ] = "",
    results: ResultsOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write what a built bundle needs to be served: image, Kubernetes, Triton, KServe."""
    from edge import containers, field
    from edge.containers import memory as sizing
    from edge.project import Said, load
    from edge.results import Results

    project = load(config, Said(model, name, model_version))
    wish = containers.Wish(registry, replicas, threads, storage_uri)
    folders = project.bundles(target, output)
    if to and len(folders) > 1:
        raise errors.UsageError(
            "--to is one folder, the project has several models", remedy="--name"
        )
    if not memory:
        project.device(device)  # refused where there is none of that name
    done: list[Made] = []
    for folder in folders:
        what = field.read(folder)
        containers.refuse_misfit(what)
        database = Results(project.results(results))
        need = sizing.said(memory) if memory else sizing.measured(database, what, device)
        place = to or folder.with_name(folder.name + containers.SUFFIX)
        template = project.registry.template("container").path
        done.append(containers.write(what, place, wish, need, template))
        show(done[-1])
    if as_json:
        say_json([_json(made) for made in done])


def show(made: Made) -> None:
    """What was written, and what nobody has tried."""
    rows = [("folder", str(made.folder)), ("image", made.image)]
    rows += [("memory", f"{made.memory.mib} MiB: {made.memory.source}")]
    rows += [("parts", ", ".join(made.parts))]
    untried = [each for each in made.notes if each.startswith("unverified")]
    rows += [("note", each) for each in untried]
    log.table("container", ("", "what"), rows)
    for each in made.notes:
        if each not in untried:
            log.warn(each)


def _json(made: Made) -> dict[str, object]:
    return {
        "folder": str(made.folder),
        "image": made.image,
        "memory_mib": made.memory.mib,
        "memory_source": made.memory.source,
        "parts": list(made.parts),
        "notes": list(made.notes),
    }
