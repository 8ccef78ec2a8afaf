"""Which of two Core ML packages of one model is kept: of the canonical ONNX, or of the framework's.

By the rules of ``edge.convert.openvino_choice``: tolerance, noise, bytes, operations, else the
canonical one. Operations are those of the MIL program, in a loop as well as outside counted once.
Both are run by the MIL reference executor; what it cannot run is not proven, and not kept where
the other is.

The two come from converters that know nothing of each other. So they are held against each other
as well, and where they disagree beyond the tolerance, ``disagreement`` says so: one of them is
wrong, and the golden outputs have decided which.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, parity, samples
from edge.convert import mil_executor
from edge.convert.coreml_run import EXTRA, TOOLS, read
from edge.convert.coreml_saved import described
from edge.convert.mil_package import PACKAGE, mil_package
from edge.convert.openvino_choice import CANONICAL, FRAMEWORK, Way, better, difference
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Outputs = Sequence[Mapping[str, Array]]

NOT_PROVEN = "not proven"


@dataclass(frozen=True)
class Ran:
    """A package on the golden inputs: its ``outputs`` (none where it could not be run).

    ``sqnr_db``: of the worst output (inf: none differs); ``why_not``: why it is outside the
    tolerance, or could not be run; empty when it is within.
    """

    outputs: Outputs
    sqnr_db: float
    why_not: str = ""


def ran(package: Path, golden: Path, limits: parity.Tolerance) -> Ran:
    """``package`` (a folder) by the executor on the samples in ``golden``."""
    given, expected = (samples.cases(golden, role) for role in samples.ROLES)
    try:
        opened = read(package)
        outputs = [opened.run(case)[0] for case in given]
    except mil_executor.Unverified as error:
        return Ran((), -math.inf, f"{NOT_PROVEN}: {error.message}")
    except (errors.RunFailed, errors.ModelRefused) as error:
        return Ran((), -math.inf, error.message)
    return Ran(outputs, *difference(expected, outputs, limits))


def way(proof: Ran, facts: Mapping[str, Any]) -> Way:
    """The figures of a package that was run; ``facts`` are those of ``described``."""
    count = sum(facts["operations"].values())
    return Way(proof.sqnr_db, facts["bytes"], count, proof.why_not)


@step(version=1, tools=("coremltools", "onnx", "numpy"), timeout=3600, extra=EXTRA)
def coreml_canonical(out: Path, *, model: Path, options: dict[str, Any]) -> Facts:
    """As ``mil_package``; what it refuses is told in the fact ``refused``, which is no failure."""
    try:
        return {"refused": "", **(mil_package.function(out, model=model, options=options) or {})}
    except errors.ModelRefused as error:
        return {"refused": error.message}


@step(version=2, tools=TOOLS, timeout=7200, extra=EXTRA)
def coreml_choice(
    out: Path, *, canonical: Path, framework: Path, golden: Path, tolerance: dict[str, Any]
) -> Facts:
    """``model.mlpackage``: the better of two, each given by its ``Manifest.json``.

    ``golden`` is the index file of the golden samples, ``tolerance`` the fields of
    :class:`edge.parity.Tolerance`. Facts: ``kept`` (canonical, framework), ``why``,
    ``disagreement`` (of the two; empty where they agree), the figures of both by these names, and
    those of the package that is kept as of ``mil_package``.
    """
    limits = parity.Tolerance(**tolerance)
    packages = {CANONICAL: canonical.parent, FRAMEWORK: framework.parent}
    facts = {name: described(package) for name, package in packages.items()}
    tried = {name: ran(package, golden.parent, limits) for name, package in packages.items()}
    ways = {name: way(each, facts[name]) for name, each in tried.items()}
    kept, why = better(ways[CANONICAL], ways[FRAMEWORK])
    shutil.copytree(packages[kept], out / PACKAGE)
    return {
        **facts[kept],
        "kept": kept,
        "why": why,
        "disagreement": _disagreement(tried[CANONICAL], tried[FRAMEWORK], limits),
        **{name: each.to_json() for name, each in ways.items()},
    }


def _disagreement(canonical: Ran, framework: Ran, limits: parity.Tolerance) -> str:
    """Where the framework's outputs are not the canonical ones'; empty where one has none."""
    if not (canonical.outputs and framework.outputs):
        return ""
    return difference(canonical.outputs, framework.outputs, limits)[1]
