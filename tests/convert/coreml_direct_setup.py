"""Frameworks' models with golden samples, and Core ML packages made of them in one process.

coremltools looks for frameworks when it is imported, and other tests import it without: the steps
run as in a build, in a process of their own, here all of a framework in one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edge import process, samples
from edge.convert.coreml_package import HEAD
from edge.convert.mil_package import PACKAGE
from edge.samples import INDEX

Array = np.ndarray[Any, Any]
Cases = list[tuple[dict[str, Array], dict[str, Array]]]
HOW: dict[str, Any] = {
    "release": "9.0", "minimum_deployment_target": "iOS16",
    "tolerance": {"max_abs": 1e-4, "max_rel": 1e-3},
}  # fmt: skip
PROGRAM = """
import json, sys
from pathlib import Path
from edge.sources import coreml_direct

facts = []
for name, calls in json.load(sys.stdin):
    paths = {key: Path(calls[key]) for key in ("source", "like", "golden")}
    facts.append(getattr(coreml_direct, name).function(Path(calls.pop("out")), **calls | paths))
print("FACTS" + json.dumps(facts))
"""


@dataclass(frozen=True)
class Source:
    """A model (``source`` and ``factory``), and what it gives for some inputs (``golden``)."""

    name: str
    source: Path
    factory: str
    golden: Cases
    options: dict[str, Any]
    how: dict[str, Any] = field(default_factory=dict)

    def call(self, folder: Path) -> dict[str, Any]:
        """The arguments of a step, its files in ``folder``."""
        made = folder / self.name
        (made / "out").mkdir(parents=True)
        samples.write(made / "golden", self.golden)
        onnx.save(ports_alone(*self.golden[0]), made / "like.onnx")
        return {
            "out": str(made / "out"), "source": str(self.source), "factory": self.factory,
            "options": self.options, "like": str(made / "like.onnx"),
            "golden": str(made / "golden" / INDEX), "how": {**HOW, **self.how},
        }  # fmt: skip


def ports_alone(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> onnx.ModelProto:
    """What a step reads of a canonical model: its ports."""

    def told(side: Mapping[str, Array]) -> list[onnx.ValueInfoProto]:
        number = onnx.helper.np_dtype_to_tensor_dtype
        return [
            onnx.helper.make_tensor_value_info(name, number(array.dtype), array.shape)
            for name, array in side.items()
        ]

    return onnx.helper.make_model(onnx.helper.make_graph([], "g", told(inputs), told(outputs)))


def made(step: str, folder: Path, sources: Sequence[Source]) -> dict[str, dict[str, Any]]:
    """Facts by the sources' names; the packages lie in ``folder``."""
    calls = [(step, source.call(folder)) for source in sources]
    done = process.run(
        [sys.executable, "-c", PROGRAM], timeout=300, cwd=process.PACKAGE_PARENT,
        stdin=json.dumps(calls).encode(),
    )  # fmt: skip
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("FACTS")]
    facts = json.loads(line.removeprefix("FACTS"))
    return {source.name: found for source, found in zip(sources, facts, strict=True)}


def head(folder: Path, name: str) -> Path:
    """The head of a source's package."""
    return folder / name / "out" / PACKAGE / HEAD
