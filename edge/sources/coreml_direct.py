"""Core ML packages straight from a PyTorch or TensorFlow model, without ONNX between.

Steps for the model's own environment, as its export is. What cannot be converted is told in the
facts and no failure: the package of the canonical ONNX is there as well. A package is only given
where the MIL reference executor has run it on all golden samples within the tolerance.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors, parity
from edge.convert import coremltools_library
from edge.convert.coreml_choice import Ran, ran, way
from edge.convert.coreml_saved import described, save
from edge.convert.mil_package import PACKAGE, convert_program
from edge.sources import coreml_from_tensorflow, coreml_from_torch, coreml_ports
from edge.sources.coreml_ports import Ports
from edge.sources.coreml_words import own_words
from edge.sources.framework import TRUST
from edge.sources.tensorflow_model import TOOLS as TENSORFLOW_TOOLS
from edge.sources.torch_module import TOOLS as TORCH_TOOLS
from edge.step import Facts, Step, step

# A MIL program, made when it is asked for; by the route's name.
Routes = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True)
class Wanted:
    """What a package must be like, and how it is judged; see :func:`coreml_torch`."""

    like: Path
    golden: Path
    how: Mapping[str, Any]

    @property
    def target(self) -> str:
        """The minimum deployment target."""
        return str(self.how["minimum_deployment_target"])


@step(version=2, tools=(*TORCH_TOOLS, "coremltools?"), timeout=7200, extra="coreml", aside=TRUST)
def coreml_torch(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    source: Path,
    factory: str,
    options: dict[str, Any],
    like: Path,
    golden: Path,
    how: dict[str, Any],
) -> Facts:
    """``model.mlpackage`` in fp32 of a PyTorch model: exported by ``torch.export``, else traced.

    ``like`` is the canonical ONNX of the same model: names, types and shapes of inputs and outputs
    are its. ``golden`` is the index file of the golden samples. ``how``: ``release`` of
    coremltools, ``minimum_deployment_target``, ``tolerance`` (fields of
    :class:`edge.parity.Tolerance`). Facts: ``refused`` (why there is no package, else empty),
    ``route``, ``tried`` (why not, by route; empty for the one that was taken), ``wrong`` (routes
    that gave other outputs than the framework), ``figures`` of the package (see
    :class:`edge.convert.openvino_choice.Way`), and those of ``mil_package``.
    """

    def routes(ports: Ports, target: Any) -> Routes:
        return coreml_from_torch.routes((source, factory, options), ports, golden, target)

    return _made(out, Wanted(like, golden, how), "torch", routes)


@step(
    version=2,
    tools=(*TENSORFLOW_TOOLS, "onnx", "coremltools?"),
    timeout=7200,
    extra="coreml",
    aside=TRUST,
)
def coreml_tensorflow(  # noqa: PLR0913 - a step's inputs and parameters
    out: Path,
    *,
    source: Path,
    factory: str,
    options: dict[str, Any],
    like: Path,
    golden: Path,
    how: dict[str, Any],
) -> Facts:
    """``model.mlpackage`` of a TensorFlow or Keras model; as :func:`coreml_torch`."""

    def routes(ports: Ports, target: Any) -> Routes:
        return coreml_from_tensorflow.routes((source, factory, options), ports, target)

    return _made(out, Wanted(like, golden, how), "tensorflow", routes)


# The steps, by the framework's title.
DIRECT: dict[str, Step] = {"PyTorch": coreml_torch, "TensorFlow": coreml_tensorflow}


def _made(
    out: Path, wanted: Wanted, framework: str, routes: Callable[[Ports, Any], Routes]
) -> Facts:
    tried: dict[str, str] = {}
    wrong: list[str] = []
    facts: Facts = {"refused": "", "tried": tried, "wrong": wrong}
    try:
        ct = _library(framework, wanted.how["release"])
        ports = coreml_ports.of(wanted.like)
        for route, program in routes(ports, getattr(ct.target, wanted.target)).items():
            proof = _written(out / PACKAGE, program, ports, wanted)
            tried[route] = proof.why_not
            if not proof.why_not:
                made = described(out / PACKAGE)
                return {**facts, "route": route, "figures": way(proof, made).to_json(), **made}
            wrong += [route] if proof.outputs else []
    except (errors.ModelRefused, errors.UsageError, errors.ToolMissing) as error:
        return {**facts, "refused": error.message}
    return {**facts, "refused": "; ".join(f"{name}: {why}" for name, why in tried.items())}


def _written(package: Path, program: Callable[[], Any], ports: Ports, wanted: Wanted) -> Ran:
    """Write a route's package and run it; one that cannot be had has no outputs."""
    try:
        with own_words():
            made = program()
            found = coreml_ports.fit(made, ports)
            packed = convert_program(made, target=wanted.target, precision="fp32")
    except errors.ModelRefused as error:
        return Ran((), -math.inf, error.message)
    inputs, outputs = ([port.to_json() for port in side] for side in (found.inputs, found.outputs))
    save(packed, inputs, outputs, package)
    proof = ran(package, wanted.golden.parent, parity.Tolerance(**wanted.how["tolerance"]))
    if proof.why_not:
        shutil.rmtree(package)
    return proof


def _library(framework: str, release: str) -> Any:
    """The module ``coremltools``, able to read ``framework``'s models.

    Raises :class:`errors.ToolMissing` where it is not installed, or another release.
    """
    ct = coremltools_library.module(framework)
    if ct.__version__ != release:
        raise errors.ToolMissing(
            f"for coremltools {release}, and {ct.__version__} is installed beside {framework}"
        )
    return ct
