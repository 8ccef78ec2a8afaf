"""Half precision of a Core ML package in single precision, whatever route it was made by.

The search is that of ``edge.convert.coreml_fp16``, which starts from ONNX; here each trial starts
from the program of the saved package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.convert import mil_executor
from edge.convert.coreml_fp16 import Maker, best
from edge.convert.coreml_run import EXTRA, TOOLS, read
from edge.convert.coreml_saved import described, save
from edge.convert.mil_package import PACKAGE, convert_program
from edge.step import Facts, step


class PackageMaker(Maker):
    """Makes trials of the program of a package, which ``model`` is the ``Manifest.json`` of."""

    def write(self, folder: Path, options: Mapping[str, Any]) -> Facts:
        """See :meth:`edge.convert.coreml_fp16.Maker.write`."""
        package, made = self._model.parent, folder / PACKAGE
        packed = convert_program(
            mil_executor.load(package),
            target=self._target,
            precision=options["compute_precision"],
            fp32=tuple(options["fp32_operations"]),
        )
        ports = read(package)
        save(packed, ports.inputs, ports.outputs, made)
        return described(made)


@step(version=2, tools=TOOLS, timeout=7200, extra=EXTRA)
def coreml_half(
    out: Path, *, package: Path, golden: Path, minimum_deployment_target: str, goal: float
) -> Facts:
    """``model.mlpackage`` in half precision from one in single; see ``coreml_fp16``.

    ``package`` is the ``Manifest.json`` of a package; other arguments and facts as there.
    """
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        return best(out, PackageMaker(Path(work), package, golden, minimum_deployment_target), goal)
