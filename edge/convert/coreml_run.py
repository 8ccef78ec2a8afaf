"""Run a Core ML package on the golden inputs here, by the MIL reference executor.

It is not Apple's runtime (see ``edge.convert.mil_executor``): no accumulation order of any
hardware, no timing. What it cannot compute stays unverified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, samples
from edge.convert import coremltools_library, golden_sqnr, mil_executor
from edge.convert.accuracy import Shapes, deployed, scored
from edge.convert.golden_sqnr import HIGHEST_DB
from edge.convert.mil_executor.run import Interpreter
from edge.convert.mil_package import PORTS
from edge.convert.run_model import finite
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

EXTRA = "coreml"
TOOLS = ("coremltools", "numpy")
RUNTIME = "MIL reference executor (not Apple's runtime)"
# ONNX's names of element types that numpy calls otherwise.
NUMPY = {"float": "float32", "double": "float64"}
Port = dict[str, Any]


@dataclass(frozen=True)
class Package:
    """A saved package: its MIL program, and its ports as ``mil_package`` wrote them down."""

    program: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def run(self, case: Mapping[str, Array]) -> tuple[dict[str, Array], list[tuple[str, str]]]:
        """Outputs by ONNX's names in ONNX's types, and the operations that made NaN or infinity.

        Raises :class:`mil_executor.Unverified` for what the executor does not know.
        """
        given = {port["name"]: held(port, case) for port in self.inputs}
        ran = mil_executor.run(self.program, given)
        found = {port["onnx"]: _told(port, ran.outputs[port["name"]]) for port in self.outputs}
        return found, ran.odd

    def peaks(self, case: Mapping[str, Array]) -> Iterator[tuple[str, float]]:
        """The largest finite |value| of each operation that gives float numbers."""
        import numpy as np

        function, walker = self.program.functions["main"], Interpreter(half=False)
        for port in self.inputs:
            walker.values[function.inputs[port["name"]]] = held(port, case)
        walker.block(function.operations)
        for op in function.operations:
            arrays = [np.asarray(walker.values[var]) for var in op.outputs]
            sizes = [np.abs(a[np.isfinite(a)]) for a in arrays if a.dtype.kind == "f"]
            if sizes and op.op_type != "const":
                yield op.name, max(float(each.max(initial=0.0)) for each in sizes)


def read(package: Path) -> Package:
    """A package (a folder) that ``mil_package`` made.

    Raises :class:`errors.ModelRefused` where it says nothing of its ports.
    """
    program = mil_executor.load(package)
    spec = coremltools_library.module().utils.load_spec(str(package))
    try:
        ports = json.loads(spec.description.metadata.userDefined[PORTS])
        return Package(program, tuple(ports["inputs"]), tuple(ports["outputs"]))
    except (KeyError, ValueError, TypeError) as error:
        raise errors.ModelRefused(f"{package.name} does not say which ports are whose") from error


def held(port: Port, case: Mapping[str, Array]) -> Array:
    """An input as Core ML takes it: float32 or int32, a scalar as one element.

    Raises :class:`errors.RunFailed` for one that is missing or of another shape, and for 64-bit
    integers that 32 bits do not hold: an app would feed something else.
    """
    import numpy as np

    if port["onnx"] not in case:
        raise errors.RunFailed(f"the samples have no input {port['onnx']!r}")
    array, shape = case[port["onnx"]], () if port["scalar"] else tuple(port["shape"])
    if array.shape != shape:
        raise errors.RunFailed(f"input {port['onnx']!r} has the shape {array.shape}, not {shape}")
    limits, whole = np.iinfo(np.int32), array.dtype.kind in "iu" and array.size
    if whole and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
        raise errors.RunFailed(
            f"input {port['onnx']!r} has values that 32 bits do not hold; Core ML has no more",
            remedy="give samples within the range of int32",
        )
    return array.astype(port["held"]).reshape(port["shape"])


def _told(port: Port, array: Array) -> Array:
    made = array.astype(NUMPY.get(port["dtype"], port["dtype"]))
    return made.reshape(()) if port["scalar"] else made


@step(version=1, tools=TOOLS, timeout=3600, extra=EXTRA)
def run_coreml(out: Path, *, model: Path, golden: Path) -> Facts:
    """The package's outputs, in the samples' form (``samples.tsv`` and raw files).

    ``golden`` is the index file of the golden samples, ``model`` the package's ``Manifest.json``.
    Facts: ``runtime``, ``not_finite``, ``unverified``: why nothing could be run (then there are
    no outputs), empty where all was.
    """
    package, cases = read(model.parent), samples.cases(golden.parent, "input")
    try:
        pairs = [(case, package.run(case)[0]) for case in cases]
    except mil_executor.Unverified as error:
        return {"runtime": RUNTIME, "not_finite": [], "unverified": error.message}
    samples.write(out, pairs)
    odd = {name for _, outs in pairs for name, a in outs.items() if not finite(a)}
    return {"runtime": RUNTIME, "not_finite": sorted(odd), "unverified": ""}


@step(version=1, tools=TOOLS, timeout=7200, extra=EXTRA)
def coreml_accuracy(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    model: Path,
    metric: Path,
    score: str,
    reads: dict[str, Any],
    inputs: list[dict[str, Any]],
    exported: dict[str, list[dict[str, Any]]],
) -> Facts:
    """Facts: ``accuracy`` of the package by the executor, None where it cannot run it.

    Arguments as of ``edge.convert.accuracy.artifact_accuracy``, and of :func:`run_coreml`.
    """
    del out, reads  # facts only
    package = read(model.parent)
    shapes: Shapes = {
        port["onnx"]: [] if port["scalar"] else port["shape"] for port in package.inputs
    }

    run = deployed(lambda case: package.run(case)[0], shapes, inputs, exported)
    try:
        return {"accuracy": scored(run, metric, score)}
    except mil_executor.Unverified:
        return {"accuracy": None}


# -------------------------------------------------------------------------------------- judging
@dataclass(frozen=True)
class Judged:
    """What the executor says of a package over all samples.

    ``sqnr_db``: of the worst output; None where the executor cannot run it (``unverified`` says
    why). ``odd``: names of operations that made NaN or infinity of finite numbers, in order.
    """

    sqnr_db: float | None
    odd: tuple[str, ...] = ()
    unverified: str = ""

    @property
    def db(self) -> float:
        """``sqnr_db`` as a number that can be compared; what cannot be run counts as right."""
        return HIGHEST_DB if self.sqnr_db is None else self.sqnr_db


class Golden:
    """The samples in ``folder``: inputs with the outputs that are right."""

    def __init__(self, folder: Path) -> None:
        self._pairs = golden_sqnr.pairs(folder)

    def judge(self, package: Path) -> Judged:
        """SQNR of the worst output of all samples, and what was not finite on the way."""
        opened, lowest = read(package), HIGHEST_DB
        odd: dict[str, None] = {}
        try:
            for case, expected in self._pairs:
                actual, strange = opened.run(case)
                odd |= dict.fromkeys(name for name, _ in strange)
                lowest = min(lowest, golden_sqnr.worst(expected, actual))
        except mil_executor.Unverified as error:
            return Judged(None, unverified=error.message)
        return Judged(lowest, tuple(odd))

    def peaks(self, package: Path) -> dict[str, float]:
        """The largest finite |value| that each operation gives over all samples, by its name."""
        opened, found = read(package), dict[str, float]()
        for case, _ in self._pairs:
            for name, peak in opened.peaks(case):
                found[name] = max(found.get(name, 0.0), peak)
        return found
