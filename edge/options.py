"""Every option of the command line, declared once; subcommands take theirs from here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

DEFAULT_CONFIG = Path("edge.toml")

TargetOption = Annotated[
    list[str],
    typer.Option("--target", "-t", help="Target name, TOML path, or all; may be repeated."),
]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="Project file.")]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="Source instead of the project's: path, module:callable or pkg:..."
    ),
]
NameOption = Annotated[str, typer.Option("--name", help="Model name (which of several models).")]
VersionOption = Annotated[str, typer.Option("--model-version", help="Version of the model.")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        "-p",
        help="source, fp16, int8, int8-dynamic, int8-weights, int4-weights or auto; default: what "
        "the target says.",
    ),
]
PickleOption = Annotated[
    bool,
    typer.Option(
        "--allow-pickle", help="Open pickled models, which can run any code: from who you trust."
    ),
]
SamplesOption = Annotated[str, typer.Option("--samples", help="Golden inputs, a .npz file.")]
DimOption = Annotated[list[str], typer.Option("--dim", help="Bind a symbolic dimension: NAME=N.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", help="Any key of edge.toml: model.inputs.x.shape=[1,3]; repeatable."),
]
OutputOption = Annotated[str, typer.Option("--output", "-o", help="Folder for bundles.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable result on stdout.")]
EmbedOption = Annotated[
    bool, typer.Option("--embed-runtime", help="Put the prebuilt runtime into mobile bundles.")
]
RuntimeOption = Annotated[
    str,
    typer.Option(
        "--runtime",
        help="prebuilt, reduced (built with what the models need) or reuse-superset (a stored "
        "one that can do more); default: what the target is made for.",
    ),
]
OrtSourceOption = Annotated[
    Path | None, typer.Option("--ort-source", help="ONNX Runtime's sources: folder or archive.")
]
PlanOption = Annotated[
    bool, typer.Option("--plan", help="Build no runtime: put its commands into the bundle.")
]
OnOption = Annotated[
    str,
    typer.Option("--on", help="Build the runtime on a device of devices.toml: a Mac, an NDK host."),
]
PackOption = Annotated[bool, typer.Option("--pack", help="Also write MODEL-VERSION-TARGET.tar.gz.")]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Targets built at once.")]

DeviceOption = Annotated[str, typer.Option("--device", "-d", help="A name of devices.toml.")]
RunnerOption = Annotated[
    str, typer.Option("--runner", help="c, python, node or swift; default: the bundle's first.")
]
ProviderOption = Annotated[
    list[str],
    typer.Option("--provider", help="Of an app's ways to run its model, these; may be repeated."),
]
ThreadsOption = Annotated[int, typer.Option("--threads", min=0, help="Default: [bench].")]
IterationsOption = Annotated[
    int, typer.Option("--iterations", min=0, help="At least so many runs a process.")
]
MinSecondsOption = Annotated[
    float, typer.Option("--min-seconds", min=0, help="At least so long a process.")
]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=0, help="Fresh processes.")]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="30 runs of one process, no minimum time.")
]
ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Also prove which provider ran each node.")
]
ResultsOption = Annotated[
    str, typer.Option("--results", help="Database of records; default: .edge/results.db.")
]
TargetArgument = Annotated[str, typer.Argument(help="Target whose bundle is meant.")]


def say_json(value: Any) -> None:
    """The one thing on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True, default=str) + "\n")
