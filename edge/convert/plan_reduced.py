"""The exact plan for building a runtime with only the operators that the project needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.step import Facts, step
from edge.tools import plan_check, reduced_plan


@step(version=5, isolated=False)
def plan_reduced(out: Path, *, config: Path, request: dict[str, Any]) -> Facts:
    """``plan.sh``, ``plan.json`` and their inputs for ``reduced_plan.Request(**request)``.

    ``config`` is the operator configuration. Facts: ``needs``, what the build host must have;
    ``digest``, SHA-256 over the plan without that configuration.
    """
    text = config.read_text(encoding="utf-8")
    plan = reduced_plan.make_plan(reduced_plan.from_json(request), text)
    plan_check.against_table(plan)
    reduced_plan.write(plan, out)
    return {"needs": list(plan.needs), "digest": plan.digest}
