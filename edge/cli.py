"""The command line: one short function a subcommand, one place that turns errors into exit codes.

Standard output carries ``--json`` alone; everything for people goes to standard error.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from edge import __version__, cli_container, cli_field, cli_known, errors, log, process
from edge.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    DimOption,
    EmbedOption,
    JobsOption,
    JsonOption,
    ModelOption,
    NameOption,
    OnOption,
    OrtSourceOption,
    OutputOption,
    PackOption,
    PickleOption,
    PlanOption,
    PrecisionOption,
    RuntimeOption,
    SamplesOption,
    SetOption,
    TargetOption,
    VersionOption,
    say_json,
)

if TYPE_CHECKING:
    from types import FrameType

    from edge.context import Context
    from edge.devices import DeviceSettings
    from edge.pipeline import Outcome
    from edge.project import Project
    from edge.runtime_making import RuntimeWish

app = typer.Typer(
    name="edge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="One source model in, tailored and proven bundles for every edge target out.",
)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with the designed code; the only place errors are caught."""
    words = list(sys.argv[1:] if words is None else words) or ["--help"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        code = app(args=words, prog_name="edge", standalone_mode=False)
    except errors.EdgeError as error:
        log.error(error.message, error.remedy)
        if "--json" in words:
            say_json({"error": {"message": error.message, "remedy": error.remedy}})
        code = error.exit_code
    except typer.Exit as stop:
        code = stop.exit_code
    except Stopped as stop:
        log.error("interrupted")
        code = 128 + stop.number
        if "--json" in words:
            say_json({"error": {"message": "interrupted", "remedy": ""}})
    except BrokenPipeError:
        # The reader of our output went away (a pager, head): nothing left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:  # noqa: BLE001 - the top: see _click_error
        code = _click_error(error, as_json="--json" in words)
    sys.exit(code if isinstance(code, int) else 0)


class Stopped(BaseException):
    """Ctrl-C, or SIGTERM as CI systems cancel. No KeyboardInterrupt: typer would swallow that."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    process.stop_all()
    raise Stopped(number)


def _click_error(error: Exception, *, as_json: bool) -> int:
    """Wrong usage in the parser's words; anything else is a bug and keeps its traceback.

    The parser's exceptions are click's, which some releases of typer carry inside themselves:
    they are known by their method, since they cannot be imported from one place.
    """
    show = getattr(error, "format_message", None)
    if show is None:
        traceback.print_exception(error)
        message = f"internal error: {type(error).__name__}: {error}"
        log.error(message, "please report it, with the lines above")
        if as_json:
            say_json({"error": {"message": message, "remedy": "please report it"}})
        return errors.EdgeError.exit_code
    remedy = "edge COMMAND --help lists the options"
    log.error(str(show()), remedy)
    if as_json:
        say_json({"error": {"message": str(show()), "remedy": remedy}})
    return 2


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


def _host(project: Project, name: str) -> DeviceSettings | None:
    """The device that is to build, None for this machine."""
    from edge import field

    return field.settings(name, project.device(name), project.base) if name else None


def _context(
    project: Project,
    targets: list[str],
    *,
    output: str,
    embed: bool = False,
    runtime: RuntimeWish,
    allow_pickle: bool = False,
    pack: bool = False,
    jobs: int = 2,
    dry: bool = False,
) -> Context:
    from edge.context import Context, Request
    from edge.store import Store, default_root

    request = Request(
        base=project.base,
        project=project.file,
        models=project.models,
        targets=project.targets(targets),
        output=project.output(output),
        embed_runtime=embed,
        runtime=runtime,
        allow_pickle=allow_pickle,
        pack=pack,
        jobs=jobs,
        only=project.only,
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
    precision: PrecisionOption = "",
    set_: SetOption = [],
    allow_pickle: PickleOption = False,
    output: OutputOption = "",
    embed_runtime: EmbedOption = False,
    runtime: RuntimeOption = "",
    ort_source: OrtSourceOption = None,
    plan: PlanOption = False,
    on: OnOption = "",
    pack: PackOption = False,
    jobs: JobsOption = 2,
    as_json: JsonOption = False,
) -> None:
    """Build bundles: every model of the project for every target named."""
    from edge import pipeline
    from edge.project import Said, load, parse_dims
    from edge.runtime_making import wish

    said = Said(
        model,
        name,
        model_version,
        samples,
        parse_dims(dim),
        settings=tuple(set_),
        precision=precision,
    )
    project = load(config, said)
    context = _context(
        project,
        target,
        output=output,
        embed=embed_runtime,
        runtime=wish(runtime, planned=plan, source=ort_source, on=_host(project, on)),
        allow_pickle=allow_pickle,
        pack=pack,
        jobs=jobs,
    )
    outcomes = pipeline.build(context)
    pipeline.show(outcomes)
    _complain(outcomes)
    if not context.made and all(outcome.state == "unchanged" for outcome in outcomes):
        log.say(f"nothing to do: {len(outcomes)} bundles are up to date")
    code = pipeline.worst(outcomes)
    if as_json:
        say_json({"exit_code": code, "bundles": [_outcome_json(each) for each in outcomes]})
    raise typer.Exit(code)


def _complain(outcomes: list[Outcome]) -> None:
    seen = {}
    for outcome in outcomes:
        if outcome.state == "missing":
            continue  # said before the work
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
        "precision": outcome.manifest.get("precision", {}).get("made"),
        "seconds": round(outcome.seconds, 3),
        "exit_code": outcome.exit_code,
    }
    if outcome.error:
        plain["error"] = {"message": outcome.error.message, "remedy": outcome.error.remedy}
    return plain


@app.command()
def explain(
    named: Annotated[list[str], typer.Argument(help="As --target.")] = [],
    target: TargetOption = [],
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    name: NameOption = "",
    model_version: VersionOption = "",
    samples: SamplesOption = "",
    dim: DimOption = [],
    precision: PrecisionOption = "",
    set_: SetOption = [],
    allow_pickle: PickleOption = False,
    output: OutputOption = "",
    embed_runtime: EmbedOption = False,
    runtime: RuntimeOption = "",
    ort_source: OrtSourceOption = None,
    plan: PlanOption = False,
    on: OnOption = "",
    as_json: JsonOption = False,
) -> None:
    """Say what a build would do again, and why. Nothing is built."""
    from edge import explain as explaining
    from edge.project import Said, load, parse_dims
    from edge.runtime_making import wish

    said = Said(
        model,
        name,
        model_version,
        samples,
        parse_dims(dim),
        settings=tuple(set_),
        precision=precision,
    )
    project = load(config, said)
    context = _context(
        project,
        [*named, *target],
        output=output,
        embed=embed_runtime,
        runtime=wish(runtime, planned=plan, source=ort_source, on=_host(project, on)),
        allow_pickle=allow_pickle,
        dry=True,
    )
    reports = explaining.explain(context)
    for report in reports:
        for line in report.lines():
            log.say(line)
    if as_json:
        say_json([report.to_json() for report in reports])


@app.command()
def closure(
    target: Annotated[str, typer.Argument(help="Target.")],
    config: ConfigOption = DEFAULT_CONFIG,
    model: ModelOption = "",
    dim: DimOption = [],
    precision: PrecisionOption = "",
    set_: SetOption = [],
    allow_pickle: PickleOption = False,
    ort_source: OrtSourceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the operators that the runtime must hold; with its sources, whether it would."""
    from edge import closures
    from edge.project import Said, load, parse_dims
    from edge.runtime_making import wish

    said = Said(model, dims=parse_dims(dim), settings=tuple(set_), precision=precision)
    project = load(config, said)
    planned = wish("", planned=True, source=ort_source)
    context = _context(project, [target], output="", runtime=planned, allow_pickle=allow_pickle)
    if len(context.request.targets) != 1:
        raise errors.UsageError(f"{target} is no single target", remedy="edge targets lists them")
    found = closures.report(context, context.request.targets[0])
    closures.show(found)
    if not found.covers:
        log.say("give --ort-source to see what a reduced build of ONNX Runtime would hold")
    refusal = closures.refusal(found)
    code = refusal.exit_code if refusal else 0
    if refusal:
        log.error(refusal.message, refusal.remedy)
    if as_json:
        # One document, whatever it says: the error that main would print were a second one.
        told = {"message": refusal.message, "remedy": refusal.remedy} if refusal else None
        say_json({**found.to_json(), "exit_code": code, **({"error": told} if told else {})})
    raise typer.Exit(code)


app.command("targets")(cli_known.targets)
app.command("doctor")(cli_known.doctor)
app.command("schema")(cli_known.schema)
app.command("deploy")(cli_field.deploy)
app.command("bench")(cli_field.measure)
app.command("report")(cli_field.compare)
app.command("devices")(cli_field.devices)
app.command("container")(cli_container.container)


if __name__ == "__main__":
    main()
