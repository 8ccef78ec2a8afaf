"""The command line: one short function a subcommand, one place that turns errors into exit codes.

Standard output carries ``--json`` alone; everything for people goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from edge import __version__, errors, log, process

if TYPE_CHECKING:
    from edge.pipeline import Context, Outcome
    from edge.project import Project

app = typer.Typer(
    name="edge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One source model in, tailored and proven bundles for every edge target out.",
)

# Each option is declared once; every subcommand that has it takes it from here.
TargetOption = Annotated[
    list[str],
    typer.Option("--target", "-t", help="Target name, TOML path, or all; may be repeated."),
]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="Project file.")]
ModelOption = Annotated[
    str, typer.Option("--model", "-m", help="Source instead of the project's: path or pkg:...")
]
NameOption = Annotated[str, typer.Option("--name", help="Model name (which of several models).")]
VersionOption = Annotated[str, typer.Option("--model-version", help="Version of the model.")]
SamplesOption = Annotated[str, typer.Option("--samples", help="Golden inputs, a .npz file.")]
DimOption = Annotated[list[str], typer.Option("--dim", help="Bind a symbolic dimension: NAME=N.")]
OutputOption = Annotated[str, typer.Option("--output", "-o", help="Folder for bundles.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable result on stdout.")]
EmbedOption = Annotated[
    bool, typer.Option("--embed-runtime", help="Put the prebuilt runtime into mobile bundles.")
]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Targets built at once.")]

DEFAULT_CONFIG = Path("edge.toml")


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with the designed code; the only place errors are caught."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        code = app(args=words, prog_name="edge", standalone_mode=False)
    except errors.EdgeError as error:
        log.error(error.message, error.remedy)
        if "--json" in words:
            say_json({"error": {"message": error.message, "remedy": error.remedy}})
        code = error.exit_code
    except typer.Exit as stop:
        code = stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        process.stop_all()
        log.error("interrupted")
        code = 130
    except BrokenPipeError:
        # The reader of our output went away (a pager, head): nothing left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # noqa: BLE001 - the top: see _click_error
        code = _click_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def _click_error(error: Exception) -> int:
    """Wrong usage in the parser's words; anything else is our own bug and keeps its traceback.

    The parser's exceptions are click's, which some releases of typer carry inside themselves:
    they are known by their method, since they cannot be imported from one place.
    """
    show = getattr(error, "format_message", None)
    if show is None:
        raise error
    log.error(str(show()), "edge COMMAND --help lists the options")
    return 2


def say_json(value: Any) -> None:
    """The one thing on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, default=str) + "\n")


def _version(value: bool) -> None:
    if value:
        sys.stdout.write(f"edgewright {__version__}\n")
        raise typer.Exit


@app.callback()
def top(
    _version_: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    """One source model in, tailored and proven bundles for every edge target out."""


def _context(
    project: Project,
    targets: list[str],
    *,
    output: str,
    embed: bool = False,
    jobs: int = 2,
    dry: bool = False,
) -> Context:
    from edge.pipeline import Context, Request
    from edge.store import Store, default_root

    request = Request(
        base=project.base,
        project=project.file,
        models=project.models,
        targets=project.targets(targets),
        output=project.output(output),
        embed_runtime=embed,
        jobs=jobs,
    )
    return Context(request, Store(default_root()), project.registry, dry)


@app.command()
def build(
    target: TargetOption = [],
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    samples: SamplesOption = "",
    dim: DimOption = [],
    output: OutputOption = "",
    embed_runtime: EmbedOption = False,
    jobs: JobsOption = 2,
    as_json: JsonOption = False,
) -> None:
    """Build bundles: every model of the project for every target named."""
    from edge import pipeline
    from edge.project import Said, load, parse_dims

    project = load(config, Said(model, name, model_version, samples, parse_dims(dim)))
    context = _context(project, target, output=output, embed=embed_runtime, jobs=jobs)
    outcomes = pipeline.build(context)
    pipeline.show(outcomes)
    _complain(outcomes)
    if all(outcome.state == "unchanged" for outcome in outcomes):
        log.say(f"nothing to do: {len(outcomes)} bundles are up to date")
    code = pipeline.worst(outcomes)
    if as_json:
        say_json({"exit_code": code, "bundles": [_outcome_json(each) for each in outcomes]})
    raise typer.Exit(code)


def _complain(outcomes: list[Outcome]) -> None:
    seen = {}
    for outcome in outcomes:
        if outcome.error and outcome.error.message not in seen:
            seen[outcome.error.message] = outcome.error
            log.error(outcome.error.message, outcome.error.remedy)


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "target": outcome.target,
        "model": outcome.model,
        "state": outcome.state,
        "folder": str(outcome.folder) if outcome.folder else None,
        "manifest_sha256": outcome.digest or None,
        "sizes": outcome.manifest.get("sizes"),
        "seconds": round(outcome.seconds, 3),
        "exit_code": outcome.exit_code,
    }
    if outcome.error:
        plain["error"] = {"message": outcome.error.message, "remedy": outcome.error.remedy}
    return plain


@app.command()
def explain(
    target: Annotated[list[str], typer.Argument(help="Targets, or all.")],
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    samples: SamplesOption = "",
    dim: DimOption = [],
    output: OutputOption = "",
    embed_runtime: EmbedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a build would do again, and why. Nothing is built."""
    from edge import explain as explaining
    from edge.project import Said, load, parse_dims

    project = load(config, Said(model, name, model_version, samples, parse_dims(dim)))
    context = _context(project, target, output=output, embed=embed_runtime, dry=True)
    reports = explaining.explain(context)
    for report in reports:
        for line in report.lines():
            log.say(line)
    if as_json:
        say_json([report.to_json() for report in reports])


DeviceOption = Annotated[str, typer.Option("--device", "-d", help="A name of devices.toml.")]
RunnerOption = Annotated[
    str, typer.Option("--runner", help="c, python or node; default: the bundle's first.")
]
ResultsOption = Annotated[
    str, typer.Option("--results", help="Database of records; default: .edge/results.db.")
]
TargetArgument = Annotated[str, typer.Argument(help="Target whose bundle is meant.")]


@app.command()
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
    from edge import bench, field
    from edge import deploy as deploying
    from edge.devices import open_device
    from edge.project import Said, load

    project = load(config, Said(model, name, model_version))
    where = field.settings(device, project.device(device))
    done: list[dict[str, Any]] = []
    with open_device(where) as there:
        for folder in project.bundles(target, output):
            what = field.read(folder)
            if rollback:
                back = deploying.rollback(there, what.name)
                log.say(f"{what.name} on {device} is back at {back.id[:12]}")
                done.append({"bundle": what.name, "release": back.folder})
                continue
            options = bench.BenchOptions(provider=what.manifest["provider"])
            deployed, _, _ = field.install(there, what, options, runner)
            done.append({"bundle": what.name, **vars(deployed)})
    if as_json:
        say_json({"device": device, "deployed": done})


@app.command(name="bench")
def measure(
    target: TargetArgument,
    device: DeviceOption = "local",
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    output: OutputOption = "",
    runner: RunnerOption = "",
    threads: Annotated[int, typer.Option("--threads", min=0, help="0: the project's.")] = 0,
    iterations: Annotated[int, typer.Option("--iterations", min=0, help="0: project's.")] = 0,
    repeats: Annotated[int, typer.Option("--repeats", min=0, help="Fresh processes.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="30 runs, one process.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also prove which provider ran each node.")
    ] = False,
    results: ResultsOption = "",
    as_json: JsonOption = False,
) -> None:
    """Deploy what is missing, check the golden samples on the device, measure, keep the record."""
    from edge import field, report
    from edge.devices import open_device
    from edge.project import Said, load
    from edge.results import Results, to_json

    project = load(config, Said(model, name, model_version))
    said = {"threads": threads, "iterations": iterations, "repeats": repeats}
    where = field.settings(device, project.device(device))
    database = Results(project.results(results))
    records = []
    with open_device(where) as there:
        for folder in project.bundles(target, output):
            what = field.read(folder)
            options = field.options(project.file.bench, what, said, quick=quick, profile=profile)
            record, taken = field.measure(there, what, options, runner)
            database.add(record, taken.loops)
            records.append(record)
    report.show(report.compare(records, ()))
    if as_json:
        say_json([to_json(record) for record in records])
    if not all(record.verdict for record in records):
        # Not raised: the records are whole, and standard output holds one document.
        log.error(
            "the measurement allows no verdict; its evidence is in the table",
            "quiet the device, cool it down, or measure longer (--iterations, --repeats)",
        )
        raise typer.Exit(errors.Inconclusive.exit_code)


@app.command(name="report")
def compare(
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = "",
    results: ResultsOption = "",
    write: Annotated[
        list[Path], typer.Option("--write", "-w", help="Also write .json, .csv or .md.")
    ] = [],
    as_json: JsonOption = False,
) -> None:
    """Compare targets and devices: sizes, load, latency, memory, parity of each model."""
    from edge import field, report
    from edge.project import Said, load
    from edge.results import Results

    project = load(config, Said())
    folder = project.output(output)
    found = report.compare(Results(project.results(results)).latest(), field.built_bundles(folder))
    if not found:
        raise errors.UsageError(
            f"there is nothing to compare in {folder}", remedy="edge build, then edge bench"
        )
    report.show(found)
    for path in write:
        report.write(found, path)
        log.say(f"wrote {path}")
    if as_json:
        sys.stdout.write(report.to_json(found))


@app.command()
def devices(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """List the devices of devices.toml, and what each of them says of itself."""
    from edge import field
    from edge.project import devices_of

    found = [field.describe(name, spec) for name, spec in devices_of(config).items()]
    rows = [(each.name, each.where, each.state, each.detail) for each in found]
    log.table("devices", ("device", "where", "state", "what"), rows)
    if as_json:
        say_json([vars(each) for each in found])
    raise typer.Exit(max(each.exit_code for each in found))


@app.command()
def targets(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """List the targets that can be built."""
    from edge.config import ProjectFile, read_project
    from edge.registry import Registry

    registry = Registry(config.resolve().parent)
    project = read_project(config) if config.is_file() else ProjectFile()
    found = [registry.target(n, project, str(config)) for n in registry.target_names()]
    if as_json:
        say_json([each.model_dump(mode="json") for each in found])
        return
    rows = [
        (t.name, t.recipe, f"{t.runtime.name} {t.runtime.version}", t.description) for t in found
    ]
    log.table("targets", ("target", "recipe", "runtime", "what"), rows)


@app.command()
def doctor(
    config: ConfigOption = DEFAULT_CONFIG,
    target: TargetOption = [],
    as_json: JsonOption = False,
) -> None:
    """Say what this host can build, and for the rest what is missing and how to get it."""
    from edge.config import ProjectFile, read_project
    from edge.registry import Registry, preflight
    from edge.store import Store, default_root

    registry = Registry(config.resolve().parent)
    project = read_project(config) if config.is_file() else ProjectFile()
    names = [n for n in target if n != "all"] or list(registry.target_names())
    found = [registry.target(n, project, str(config)) for n in names]
    lacks = preflight(Store(default_root()), found, embed=False)
    rows = []
    for each in found:
        missing = [lack for lack in lacks if lack.target == each.name]
        state = "missing: " + ", ".join(lack.what for lack in missing) if missing else "ready"
        rows.append((each.name, state, "; ".join(lack.remedy for lack in missing)))
    log.table("this host", ("target", "state", "fix"), rows)
    if as_json:
        say_json([{"target": t, "state": s, "fix": f} for t, s, f in rows])
    raise typer.Exit(errors.Unavailable.exit_code if lacks else 0)


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="project, target, devices or manifest.")] = "",
) -> None:
    """Print the JSON Schema of a file; without a name, of all of them."""
    from edge.config import SCHEMAS, did_you_mean
    from edge.manifest import SCHEMA

    found = {name: model.model_json_schema() for name, model in SCHEMAS.items()}
    found["manifest"] = SCHEMA
    if kind and kind not in found:
        raise errors.UsageError(f"no schema {kind!r}", remedy=did_you_mean(kind, sorted(found)))
    say_json(found[kind] if kind else found)


if __name__ == "__main__":
    main()
