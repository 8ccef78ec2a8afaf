"""``edge closure``: what a target's runtime must hold, and whether a reduced build will.

The closure is that of the artifacts which ship. With ONNX Runtime's sources every node is held
against what a base and an extended minimal build register; nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edge import config, errors, log, pipeline
from edge.closure import Closure, coverage, from_json, text
from edge.context import Context
from edge.convert import prove_coverage, reduced_runtime
from edge.convert.operator_closure import CLOSURE
from edge.prepare import prepare
from edge.tools import ort_source, reduced_plan

MARK = {True: "yes", False: "no"}
SHOWN = 3


@dataclass(frozen=True)
class Report:
    """The closure of one target; ``covers`` is empty without sources."""

    target: str
    closure: Closure
    covers: tuple[coverage.Cover, ...]
    strangers: tuple[coverage.Stranger, ...]
    minimal: str

    @property
    def lacking(self) -> list[coverage.Cover]:
        """What the build of the target's kind has no kernel for."""
        return [each for each in self.covers if not getattr(each, self.minimal)]

    @property
    def by_place(self) -> dict[tuple[str, int, str], coverage.Cover]:
        """What is known of each entry of the closure, by its ``place``."""
        return {(each.domain, each.opset, each.operator): each for each in self.covers}

    def to_json(self) -> dict[str, Any]:
        """The report for a machine."""
        found = self.by_place
        return {
            "target": self.target,
            "minimal": self.minimal,
            "strangers": [str(each) for each in self.strangers],
            "operators": [
                {
                    "domain": entry.domain,
                    "operator": entry.operator,
                    "opset": entry.opset,
                    "types": entry.types.data() if entry.types else None,
                    "node": entry.node,
                    **_told(found.get(entry.place)),
                }
                for entry in self.closure.entries
            ],
        }


def _told(cover: coverage.Cover | None) -> Mapping[str, Any]:
    if cover is None:
        return {}
    return {"base": cover.base, "extended": cover.extended, "reason": cover.reason}


def report(context: Context, target: config.Target) -> Report:
    """The closure over the project's models for ``target``, and its coverage with sources.

    Sources are ``--ort-source``, or those that the target pins. Raises
    :class:`errors.UsageError` for a target whose runtime is none of ONNX Runtime's builds.
    """
    if not target.runtime.onnxruntime:
        raise errors.UsageError(
            f"target {target.name}: {target.runtime.name} takes no operator closure",
            remedy="edge targets lists those of ONNX Runtime",
        )
    request_ = context.request
    prepared = [
        prepare(context.steps(), spec, request_.base, request_.trust()) for spec in request_.models
    ]
    recipe = context.registry.recipe(target.recipe)
    # What is listed depends on the precision; to list it nothing is measured.
    job = pipeline.close(replace(context, measure=False), target, prepared, recipe).jobs[0]
    closure = from_json(job.operator_closure().file(CLOSURE).path.read_text(encoding="utf-8"))
    minimal = target.runtime.reduced.minimal
    given = context.request.runtime.source
    pin = target.runtime.reduced.source
    if given is None and pin is None:
        return Report(target.name, closure, (), (), minimal)
    source = ort_source.find(context.store, target.runtime.version, pin, given)
    tables = prove_coverage.load(source.path)
    configuration = job.operators().path.read_text(encoding="utf-8")
    offered = text.as_built(configuration, where=job.operators().path.name)
    request = reduced_plan.from_json(reduced_runtime.request_of(job))
    options = prove_coverage.options_of(request, configuration)
    return Report(
        target.name,
        closure,
        coverage.cover(closure, offered, tables, options),
        coverage.strangers(offered, tables.registrations),
        minimal,
    )


def show(found: Report) -> None:
    """The table for a person."""
    covers = found.by_place
    rows = []
    for entry in found.closure.entries:
        cover = covers.get(entry.place)
        kinds = (MARK[cover.base], MARK[cover.extended], cover.reason) if cover else ("", "", "")
        rows.append((entry.domain, str(entry.opset), entry.operator, entry.node, *kinds))
    columns = ("domain", "opset", "operator", "node", "base", "extended", "why not")
    log.table(f"operators of {found.target}", columns, rows)


def refusal(found: Report) -> errors.ClosureIncomplete | None:
    """What a reduced build would lack, as the error that says it; None when it lacks nothing."""
    lacks = [str(each) for each in found.lacking] + [str(each) for each in found.strangers]
    if not lacks:
        return None
    more = f"; and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
    remedy = "no reduced build has it: change the model, or take a target with the full runtime"
    if not found.strangers and all(each.extended for each in found.lacking):
        remedy = 'say minimal = "extended" in [runtime.reduced] of the target'
    return errors.ClosureIncomplete(
        f"{found.target}: a reduced build ({found.minimal} minimal) would not do: "
        f"{'; '.join(lacks[:SHOWN])}{more}",
        remedy=remedy,
    )
