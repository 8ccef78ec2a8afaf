"""What a bundle's runner is told beside its arguments: ``runner/options.tsv``.

UTF-8, one ``KEY<TAB>VALUE`` a line, sorted by key. Keys:

* ``provider.X``: option X of ONNX Runtime's execution provider, or OpenVINO's property X;
* ``session.X``: entry X of ONNX Runtime's session configuration;
* ``runner.X``: one of :data:`RUNNER`.

Runners take a key that is none of these for an error, and so does this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from edge import errors
from edge.bundle import BundleFile
from edge.job import Job
from edge.step import Facts, step

OPTIONS = "options.tsv"
PATH = f"runner/{OPTIONS}"
# What the runner itself does: capture a CUDA graph (1), accept fewer nodes on the provider than
# all (0 to 1), and the content key (hex) of what it caches on the device.
RUNNER: Mapping[str, re.Pattern[str]] = {
    "runner.cuda_graph": re.compile("[01]"),
    "runner.least_nodes": re.compile(r"0(\.[0-9]{1,20})?|1(\.0{1,20})?"),
    "runner.engine_key": re.compile("[0-9a-f]{16,128}"),
}
MAX_OPTIONS = 200
_KEY = re.compile(r"(provider|session)\.[A-Za-z][A-Za-z0-9_.]{0,99}")
_VALUE = re.compile(r"[^\t\r\n\0]{0,4000}")

Value = str | int | float


def runner_options(job: Job, options: Mapping[str, Value]) -> BundleFile:
    """``runner/options.tsv`` of the job's bundle; True and False are written as 1 and 0.

    Raises :class:`errors.ConfigError` for what no runner knows, when the step runs.
    """
    words = {key: _text(value) for key, value in options.items()}
    made = job.step(options_file, options=words)
    return BundleFile.of(PATH, made.file(OPTIONS), "runner")


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


@step(version=1, isolated=False)
def options_file(out: Path, *, options: dict[str, str]) -> Facts:
    """``options.tsv`` with ``options``; facts: ``options``, their number."""
    if len(options) > MAX_OPTIONS:
        raise errors.ConfigError(f"{len(options)} options of a runner; {MAX_OPTIONS} are enough")
    for key, value in options.items():
        _check(key, value)
    lines = [f"{key}\t{value}\n" for key, value in sorted(options.items())]
    (out / OPTIONS).write_bytes("".join(lines).encode())
    return {"options": len(options)}


def _check(key: str, value: str) -> None:
    own = RUNNER.get(key)
    if own is None and not _KEY.fullmatch(key):
        raise errors.ConfigError(
            f"runners have no option {key[:200]!r}",
            remedy=errors.did_you_mean(key, ["provider.NAME", "session.NAME", *RUNNER]),
        )
    if not (own or _VALUE).fullmatch(value):
        raise errors.ConfigError(f"the runner's option {key} cannot be {value[:200]!r}")
