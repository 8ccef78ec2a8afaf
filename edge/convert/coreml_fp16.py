"""A Core ML package that computes in half precision, and in single precision where it must.

Half precision ends at 65504: what overflows becomes infinity and then NaN (a SqueezeNet all of it,
upstream apple/coremltools #2603, #2625), and a long chain of operations adds noise. The package is
run by the MIL reference executor; where it is not good enough, the fewest operations that were
found to help keep single precision, in this order:

1. where something overflows, those whose results half precision does not hold, and those that read
   them;
2. the last or the first eighth, quarter or half of all operations as well, where noise is too
   high: of two that help the smaller package;
3. all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.convert import mil_executor
from edge.convert.coreml_run import EXTRA, Golden, Judged
from edge.convert.int8_static import plain
from edge.convert.mil_package import PACKAGE, mil_package
from edge.step import Facts, step

HALF = "_cast_fp16"  # what coremltools adds to the name of what it computes in half precision
LARGEST = 65504.0
ROUNDS = 3  # of overflows that only show once an earlier one is gone: rounding went the other way
SHARES = (8, 4, 2)
ALL = "all"


@dataclass(frozen=True)
class Trial:
    """A package that was made: ``kept`` in single precision (all: None), and what it is worth.

    ``odd``: what should have single precision as well, since something overflows.
    """

    folder: Path
    kept: tuple[str, ...] | None
    judged: Judged
    odd: tuple[str, ...]
    facts: Facts = field(repr=False)

    def good(self, goal: float) -> bool:
        """Whether nothing is left to wish for; what cannot be run is left as it is."""
        return self.judged.db >= goal and not self.odd


class Maker:
    """Makes and judges packages of one model in a scratch folder."""

    def __init__(self, work: Path, model: Path, golden: Path, target: str) -> None:
        self._work, self._model, self._golden = work, model, Golden(golden.parent)
        self._target = target
        self.trials: dict[tuple[str, ...] | None, Trial] = {}

    def make(self, kept: tuple[str, ...] | None) -> Trial:
        """The package with ``kept`` in single precision; None: all of it."""
        if kept in self.trials:
            return self.trials[kept]
        folder = Path(tempfile.mkdtemp(dir=self._work))
        options = {
            "minimum_deployment_target": self._target,
            "compute_precision": "fp32" if kept is None else "fp16",
            "fp32_operations": list(kept or ()),
        }
        facts = self.write(folder, options)
        judged = self._golden.judge(folder / PACKAGE)
        odd = () if kept is None else self._overflowing(folder / PACKAGE, judged.odd)
        self.trials[kept] = Trial(folder, kept, judged, odd, facts)
        return self.trials[kept]

    def write(self, folder: Path, options: Mapping[str, Any]) -> Facts:
        """The package that these options of ``mil_package`` ask for, in ``folder``; its facts."""
        return mil_package.function(folder, model=self._model, options=dict(options)) or {}

    def _overflowing(self, package: Path, odd: Sequence[str]) -> tuple[str, ...]:
        """As the function; what single precision makes infinity of as well is no overflow."""
        own = set(self.make(None).judged.odd) if odd else set()
        return _overflowing(package, [name for name in odd if name.removesuffix(HALF) not in own])

    def too_large(self) -> list[str]:
        """Operations whose results half precision does not hold, by running all in single."""
        package = self.make(None).folder / PACKAGE
        return [name for name, peak in self._golden.peaks(package).items() if peak > LARGEST]


@step(version=3, tools=("coremltools", "onnx", "numpy"), timeout=7200, extra=EXTRA)
def coreml_fp16(
    out: Path, *, model: Path, golden: Path, minimum_deployment_target: str, goal: float
) -> Facts:
    """``model.mlpackage`` in half precision from an ONNX file; see the module.

    ``golden`` is the index file of the golden samples, ``goal`` the SQNR in dB that the worst
    output should have. Facts: those of ``mil_package``, and ``fp32`` (names of the operations that
    keep single precision, or ["all"]), ``why`` (empty where there are none), ``sqnr_db`` (None
    where the executor cannot run it).
    """
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        return best(out, Maker(Path(work), model, golden, minimum_deployment_target), goal)


def best(out: Path, maker: Maker, goal: float) -> Facts:
    """The package that :func:`search` finds, in ``out``; facts as of :func:`coreml_fp16`."""
    found, why = search(maker, goal)
    (found.folder / PACKAGE).rename(out / PACKAGE)
    sqnr = found.judged.sqnr_db
    return {
        **found.facts,
        "fp32": [ALL] if found.kept is None else list(found.kept),
        "why": why,
        "sqnr_db": None if sqnr is None else plain(sqnr),
    }


def search(maker: Maker, goal: float) -> tuple[Trial, str]:
    """The trial with the least single precision that is good enough, and why it has any."""
    first = maker.make(())
    if first.good(goal):
        return first, ""
    why = f"half precision has {plain(first.judged.db)} dB, and {plain(goal)} are wanted"
    if first.odd:
        why = f"{first.odd[0]} overflows in half precision"
    tamed = _without_overflow(maker, first)
    if tamed.good(goal):
        return tamed, why
    names = half_operations(first.folder / PACKAGE)
    for share in SHARES:
        count = max(1, len(names) // share)
        parts = (names[-count:], names[:count])
        tried = [maker.make(_merged(names, tamed.kept or (), part)) for part in parts]
        if good := [trial for trial in tried if trial.good(goal)]:
            return min(good, key=lambda trial: trial.facts["bytes"]), why
    return maker.make(None), why


def _without_overflow(maker: Maker, first: Trial) -> Trial:
    """A trial in which nothing overflows, as far as that can be found; ``first`` if it is one."""
    if not first.odd:
        return first
    package, names = first.folder / PACKAGE, half_operations(first.folder / PACKAGE)
    large = [name + HALF for name in maker.too_large()]
    trial = maker.make(_merged(names, first.odd, _overflowing(package, large)))
    for _ in range(ROUNDS):
        if trial.odd:
            trial = maker.make(_merged(names, trial.kept or (), trial.odd))
    return trial


def _merged(order: Sequence[str], kept: Sequence[str], added: Sequence[str]) -> tuple[str, ...]:
    """Both, in the order of the program; what it does not name stands behind."""
    wanted = dict.fromkeys((*kept, *added))
    known = dict.fromkeys(name for name in order if name in wanted)
    return tuple(known | wanted)


# ---------------------------------------------------------------------------- looking at packages
def half_operations(package: Path) -> list[str]:
    """Operations of a package that compute in half precision, in order.

    Names are those before coremltools' conversion to half precision.
    """
    return [op.name.removesuffix(HALF) for op in _operations(package) if _halved(op)]


def _overflowing(package: Path, odd: Sequence[str]) -> tuple[str, ...]:
    """What has to be in single precision where ``odd`` overflow: they, and what reads them."""
    by_name = {op.name: op for op in _operations(package)}
    found: dict[str, None] = {}
    for op in (by_name[name] for name in odd if name in by_name):
        if op.op_type != "cast" and not _halved(op):
            continue  # in single precision already: the source computes infinity as well
        reading = list(_readers(op))
        names = [each.name for each in (op, *reading) if _halved(each)]
        found |= dict.fromkeys(name.removesuffix(HALF) for name in names)
    return tuple(found)


def _readers(op: Any) -> Iterator[Any]:
    for child in (child for var in op.outputs for child in var.child_ops):
        if child.op_type == "cast":
            yield from _readers(child)
        else:
            yield child


def _halved(op: Any) -> bool:
    return bool(op.name.endswith(HALF)) and op.op_type not in {"const", "cast"}


def _operations(package: Path) -> list[Any]:
    return list(mil_executor.load(package).functions["main"].operations)
