"""``edge explain``: what a build would do again, and why, without doing it.

The recipe runs dry; every step that is not stored is held against the same step in the manifest
of the bundle that was built last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edge import bundle, config, errors, pipeline
from edge.context import Context
from edge.job import PENDING
from edge.manifest import digest
from edge.prepare import prepare
from edge.store import canonical_json

NEVER = "never built here"
SHOWN = 3  # names of files in a line


@dataclass(frozen=True)
class Report:
    """What would happen to one bundle."""

    target: str
    model: str
    state: str
    reasons: tuple[str, ...] = ()
    steps: tuple[tuple[str, str], ...] = field(default_factory=tuple)

    def lines(self) -> list[str]:
        """The report for a person."""
        head = f"{self.target}/{self.model}: {self.state}"
        return [head, *(f"  {why}" for why in self.reasons),
                *(f"  {step}: {why}" for step, why in self.steps)]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The report for a machine."""
        return {
            "target": self.target,
            "model": self.model,
            "state": self.state,
            "reasons": list(self.reasons),
            "steps": [{"step": step, "why": why} for step, why in self.steps],
        }


def explain(context: Context) -> list[Report]:
    """One report for each model and target of a dry context."""
    request = context.request
    trust = request.trust()
    prepared = [prepare(context.steps(), spec, request.base, trust) for spec in request.models]
    reports = []
    for target in request.targets:
        made = pipeline.bundles(context, target, prepared)
        for each in filter(lambda one: request.wants(one.spec), prepared):
            folder = request.folder(each.spec, target)
            reports.append(_report(target, each.spec.name, folder, made[each.spec.name].manifest))
    return reports


def _report(target: config.Target, model: str, folder: Any, new: dict[str, Any]) -> Report:
    try:
        old = bundle.verify(folder)
    except errors.StoreDamaged as error:
        why = (f"{error.message}",)
        return Report(target.name, model, "damaged; it would be written again", why)
    except errors.UsageError:
        return Report(target.name, model, NEVER, (f"there is no bundle in {folder}",))
    # As JSON has it: the old manifest's tuples came back as lists.
    new = json.loads(canonical_json(new))
    waiting = [step for step in new["steps"] if step["key"] == PENDING]
    steps = tuple((step["step"], _why(step, old["steps"])) for step in waiting)
    before, after = _settings(old), _settings(new)
    if after["samples"]["count"] is None:  # not known before they are made
        after["samples"] = before["samples"]
    changed = tuple(_differences("", before, after))
    if not steps and digest(old) == digest(new):
        return Report(target.name, model, "up to date")
    state = (
        f"{len(steps)} of {len(new['steps'])} steps would run again"
        if steps
        else "would be written again; no step would run"
    )
    return Report(target.name, model, state, changed, steps)


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    names = (
        "target",
        "model",
        "samples",
        "runtime",
        "provider",
        "precision",
        "tolerance",
        "budget",
    )
    chosen = {name: manifest.get(name) for name in names}
    chosen["budget"] = {k: v["limit"] for k, v in (manifest.get("budget") or {}).items()}
    return chosen


def _why(step: Mapping[str, Any], old: list[dict[str, Any]]) -> str:
    candidates = [each for each in old if each["step"] == step["step"]]
    if not candidates:
        return "has not run for this bundle before"
    differences = min((_step_differences(step, each) for each in candidates), key=len)
    return "; ".join(differences) or "its stored result is gone"


def _step_differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    found = []
    if new["version"] != old["version"]:
        found.append(f"the step itself changed (version {old['version']} -> {new['version']})")
    for name, value in new["inputs"].items():
        before = old["inputs"].get(name)
        if value.get("sha256") == PENDING:
            found.append(f"input {name!r} will be made again")
        elif before != value:
            found.append(f"input {name!r}: {_what_changed(before, value)}")
    waiting = any(value.get("sha256") == PENDING for value in new["inputs"].values())
    # What a trace has in its key of packages and names is known when it has run again.
    if not waiting and new["step"] != "trace":
        found += _differences("parameter ", old["parameters"], new["parameters"])
    return found + list(_differences("tool ", old["tools"], new["tools"]))


def _what_changed(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    """Which of an input's files: its own content, or others that it refers to, by name."""
    if not old or old["sha256"] != new["sha256"]:
        return "its content changed"
    before, after = (dict(each.get("with") or ()) for each in (old, new))
    names = sorted(n for n in {*before, *after} if before.get(n) != after.get(n))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more} changed"


def _differences(prefix: str, old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for name in sorted({*old, *new}):
            inner = f"{path}.{name}" if path else str(name)
            found += _differences(prefix, old.get(name), new.get(name), inner)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        found = []
        for number, pair in enumerate(zip(old, new, strict=True)):
            found += _differences(prefix, *pair, f"{path}[{number}]")
        return found
    if old == new or PENDING in (old, new):
        return []
    if isinstance(old, list) and isinstance(new, list):
        added, gone = ([x for x in a if x not in b] for a, b in ((new, old), (old, new)))
        return [f"{prefix}{path}: {_short(added)} added, {_short(gone)} gone"]
    return [f"{prefix}{path}: {_short(old)} -> {_short(new)}"]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
