"""The subcommands that need a device, or what was measured on one."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edge import errors, log
from edge.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    DeviceOption,
    IterationsOption,
    JsonOption,
    MinSecondsOption,
    ModelOption,
    NameOption,
    OutputOption,
    ProfileOption,
    ProviderOption,
    QuickOption,
    RepeatsOption,
    ResultsOption,
    RunnerOption,
    TargetArgument,
    ThreadsOption,
    VersionOption,
    say_json,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge.project import Project
    from edge.results import Record


def deploy(
    target: TargetArgument,
    device: DeviceOption = "local",
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    output: OutputOption = "",
    runner: RunnerOption = "",
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the release before.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a target's bundle onto a device; prove it there; switch to it."""
    from edge import deploy as deploying
    from edge import field
    from edge.devices import open_device
    from edge.project import Said, load

    project = load(config, Said(model, name, model_version))
    where = field.settings(device, project.device(device), project.base)
    done: list[dict[str, Any]] = []
    if not rollback:
        _warn_of_older_bundles(project, target, output)
    with open_device(where) as there:
        for folder in project.bundles(target, output):
            what = field.read(folder)
            if rollback:
                back = deploying.rollback(there, what.name)
                log.say(f"{what.name} on {device} is back at {back.id[:12]}")
                done.append({"bundle": what.name, "release_dir": back.folder})
                continue
            options = field.bench_options(what.manifest, where)
            deployed, _, _ = field.install(there, what, options, runner)
            done.append({"bundle": what.name, **vars(deployed)})
    if as_json:
        say_json({"device": device, "deployed": done})


def _warn_of_older_bundles(project: Project, target: str, output: str) -> None:
    """What lies in the folder may not be what the project would build now."""
    from edge import explain
    from edge.context import Context, Request
    from edge.store import Store, default_root

    try:
        asked = _asked(project.bundles(target, output))
        request = Request(
            base=project.base,
            project=project.file,
            models=project.models,
            targets=replace(project, precision=asked).targets([target]),
            output=project.output(output),
            only=project.only,
        )
        reports = explain.explain(
            Context(request, Store(default_root()), project.registry, dry=True)
        )
    except errors.EdgeError as error:
        log.warn(f"whether the bundle is current cannot be told: {error.message}")
        return
    for report in reports:
        if report.state not in ("up to date", explain.NEVER):
            log.warn(
                f"the bundle {report.model}.{report.target} is not what the project would build "
                f"now ({report.state}): edge build --target {report.target}"
            )


def _asked(bundles: list[Path]) -> str:
    """The precision that the bundles were built at, which the command line may have asked for."""
    from edge.bundle import read_manifest

    for folder in bundles:
        with contextlib.suppress(errors.UsageError):
            return str((read_manifest(folder).get("precision") or {}).get("asked", ""))
    return ""


def measure(
    target: TargetArgument,
    device: DeviceOption = "local",
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    output: OutputOption = "",
    runner: RunnerOption = "",
    provider: ProviderOption = [],
    threads: ThreadsOption = 0,
    iterations: IterationsOption = 0,
    min_seconds: MinSecondsOption = 0,
    repeats: RepeatsOption = 0,
    quick: QuickOption = False,
    profile: ProfileOption = False,
    results: ResultsOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bring what is missing, check the golden samples on the device, measure, keep the record."""
    from edge import field, field_apple, report, report_sides
    from edge.devices import open_device
    from edge.project import Said, load
    from edge.results import Results, to_json

    project = load(config, Said(model, name, model_version))
    said: dict[str, float] = {
        "threads": threads,
        "iterations": iterations,
        "min_seconds": min_seconds,
        "repeats": repeats,
    }
    _warn_of_older_bundles(project, target, output)
    spec = project.device(device)
    where = field.settings(device, spec, project.base)
    database = Results(project.results(results))
    records: list[Record] = []
    troubles: list[errors.EdgeError] = []
    with open_device(where) as there:
        for folder in project.bundles(target, output):
            what = field.read(folder)
            options = field.options(
                project.file.bench, what, where, said, quick=quick, profile=profile
            )
            found = field_apple.measured(there, what, spec, options, runner, provider)
            for record, taken in found.records:
                database.add(record, taken.loops)
                records.append(record)
            troubles += found.troubles
    report.show(report.compare(records, ()))
    report_sides.show(report_sides.sides(records))
    if as_json:
        say_json([to_json(record) for record in records])
    _end(records, troubles)


def _end(records: Sequence[Record], troubles: Sequence[errors.EdgeError]) -> None:
    """The exit code, and why; not raised: the records are whole, standard output one document."""
    for trouble in troubles:
        log.error(trouble.message, trouble.remedy)
    if troubles:
        raise typer.Exit(troubles[0].exit_code)
    if not all(record.verdict for record in records):
        log.error(
            "the measurement allows no verdict; its evidence is in the table",
            "quiet the device, cool it down, or measure longer (--min-seconds, --repeats)",
        )
        raise typer.Exit(errors.Inconclusive.exit_code)


def compare(
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = "",
    results: ResultsOption = "",
    write: Annotated[
        list[Path], typer.Option("--write", "-w", help="Also write .json, .csv, .md or .html.")
    ] = [],
    as_json: JsonOption = False,
) -> None:
    """Compare targets and devices: sizes, load, latency, memory, parity; precisions tried."""
    from edge import field, report, report_files, report_sides, report_variants
    from edge.project import Said, load
    from edge.results import Results

    project = load(config, Said())
    folder = project.output(output)
    records = Results(project.results(results)).latest()
    found = report.compare(records, field.built_bundles(folder))
    sides = report_sides.sides(records)
    choices = report_variants.read_all(folder)
    if not (found or choices):
        raise errors.UsageError(
            f"there is nothing to compare in {folder}", remedy="edge build, then edge bench"
        )
    report.show(found)
    report_sides.show(sides)
    report_variants.show(choices)
    for path in write:
        report_files.write(path, found, choices, sides)
        log.say(f"wrote {path}")
    if as_json:
        sys.stdout.write(report_files.to_json(found, choices, sides))


def devices(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """List the devices of devices.toml, and what each of them says of itself."""
    from edge import field
    from edge.project import devices_of

    found = [
        field.describe(name, spec, config.resolve().parent)
        for name, spec in devices_of(config).items()
    ]
    rows = [(each.name, each.where, each.state, each.detail) for each in found]
    log.table("devices", ("device", "where", "state", "what"), rows)
    if as_json:
        say_json([vars(each) for each in found])
    raise typer.Exit(max(each.exit_code for each in found))
