"""Whether a runtime that was built for one configuration can run all that another closure needs."""

from __future__ import annotations

from pathlib import Path

from edge.closure import from_json, proof, text
from edge.convert import runtime_operators
from edge.step import Facts, step


@step(version=1, tools=("onnx", "onnxruntime"), timeout=300)
def closure_within(out: Path, *, closure: Path, config: Path) -> Facts:
    """Facts ``missing``: what the configuration ``config`` lacks of ``closure``, in words."""
    del out  # facts only
    needed = from_json(closure.read_text(encoding="utf-8"))
    known = runtime_operators.vocabulary().extended(
        (entry.domain, entry.operator, entry.opset) for entry in needed.entries
    )
    offered = text.as_built(config.read_text(encoding="utf-8"), vocabulary=known, where=config.name)
    lacks = proof.missing(needed, offered, ranges=runtime_operators.kernel_ranges())
    return {"missing": [str(lack) for lack in lacks]}
