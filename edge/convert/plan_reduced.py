"""The exact plan for building a runtime with only the operators that the project needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.step import Facts, step
from edge.tools import reduced_plan


@step(version=1, isolated=False)
def plan_reduced(out: Path, *, config: Path, request: dict[str, Any]) -> Facts:
    """``plan.sh``, ``plan.json`` and their inputs for ``reduced_plan.Request(**request)``.

    ``config`` is the operator configuration. Facts: ``needs``, what the build host must have.
    """
    lists: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in request.items()
    }
    plan = reduced_plan.make_plan(reduced_plan.Request(**lists), config.read_text(encoding="utf-8"))
    reduced_plan.write(plan, out)
    return {"needs": list(plan.needs)}
