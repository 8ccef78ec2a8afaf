"""A reference executor for MIL programs and saved ``.mlpackage`` files, in numpy.

It walks the program operation by operation and computes what Core ML's documentation of each says:
half-precision values are widened, computed in float32 and rounded once an operation. It reads the
*saved* package, so frontend, coremltools' passes, serialization, weights and compression are all
in what it checks. It is not Apple's runtime: no accumulation order of any hardware, no timing.

An operation that has no function here raises :class:`Unverified`: never a guess.
"""

from __future__ import annotations

from edge.convert.mil_executor.program import load
from edge.convert.mil_executor.run import Run, Unverified, run

__all__ = ["Run", "Unverified", "load", "run"]
