"""A frontend for Core ML: ONNX at fixed shapes to a MIL program, built with coremltools.

coremltools reads no ONNX since release 6. Here:

1. Functions of the model are inlined; the checker of ``onnx`` passes it.
2. Nodes are walked in their order. What depends on constants and shapes alone is computed now, by
   the reference evaluator of ``onnx``; an If with a constant condition becomes its branch.
3. Every other operator has one small function (``registry.operator``), or ONNX's own definition
   of it by other operators; without either the model is refused, by node, operator and opset.
4. 64-bit integers become 32-bit ones and doubles floats, since MIL has no others; float16 is
   computed as float32, what it is rounded to is the package's ``compute_precision``.

Nothing is approximated: an attribute that no rule reads, a mode that MIL lacks, a constant that
does not fit is a refusal. Made from coremltools 9.0; numerics are held against ONNX's backend node
tests through ``edge.convert.mil_executor``, not on Apple's hardware.
"""

from __future__ import annotations

from edge.convert.onnx_to_mil.program import TARGETS, Converted, Port, convert

__all__ = ["TARGETS", "Converted", "Port", "convert"]
