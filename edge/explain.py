"""``edge explain``: what a build would do again, and why, without doing it.

The recipe runs dry; every step that is not stored is held against the same step in the manifest
of the bundle that was built last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge import bundle, config, errors, pipeline
from edge.context import Context
from edge.job import PENDING
from edge.manifest import digest
from edge.prepare import prepare
from edge.store import canonical_json

NEVER = "never built here"
TRACE = "trace"  # of a factory's code
SHOWN = 3  # names of files in a line
Manifest = Mapping[str, Any]  # or a step of one


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
    steps = tuple((step["step"], _why(step, old["steps"], waiting)) for step in waiting)
    if not steps and digest(old) == digest(new):
        return Report(target.name, model, "up to date")
    changed = tuple(_differences("", *_settings(old, new)))
    if not steps and not changed:
        others = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        changed = (f"its manifest has other {', '.join(others)}",)
    state = (
        f"{len(steps)} of {len(new['steps'])} steps would run again"
        if steps
        else "would be written again; no step would run"
    )
    return Report(target.name, model, state, changed, steps)


def _settings(old: Manifest, new: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the user said, as two manifests have it; what a dry run does not know is as it was."""
    before, after = _said(old), _said(new)
    if after["samples"]["count"] is None:  # not known before they are made
        after["samples"] = before["samples"]
    if any(each["step"] == TRACE and each["key"] == PENDING for each in new["steps"]):
        # Nor is a factory's framework before its code has run.
        after["model"] |= {"exporter": before["model"].get("exporter")}
    return before, after


def _said(manifest: Manifest) -> dict[str, Any]:
    names = (
        "state",
        "target",
        "model",
        "samples",
        "runtime",
        "provider",
        "placement",
        "cache",
        "precision",
        "tolerance",
    )
    limits = {k: v["limit"] for k, v in (manifest.get("budget") or {}).items()}
    return {**{name: manifest.get(name) for name in names}, "budget": limits}


def _why(step: Manifest, old: Sequence[Manifest], waiting: Sequence[Manifest] = ()) -> str:
    """Why a step would run, in a line; ``waiting`` are all that would."""
    candidates = [each for each in old if each["step"] == step["step"]]
    # A model and its metric have a trace each.
    factory = step["parameters"].get("factory")
    candidates = [e for e in candidates if e["parameters"].get("factory") == factory] or candidates
    if not candidates and any(each["step"] == TRACE for each in waiting):
        return "follows from code that runs again, if its framework is still the same"
    if not candidates:
        return "has not run for this bundle before"
    differences = min((_step_differences(step, each) for each in candidates), key=len)
    if not differences and _unknown(step["parameters"]):
        return "its parameters follow from steps that run again"
    gone = "something that it read" if step["step"] == TRACE else "its stored result"
    return "; ".join(differences) or f"{gone} is gone"


def _unknown(value: Any) -> bool:
    """Whether JSON holds what is not known in a dry run."""
    if isinstance(value, Mapping):
        return any(_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(_unknown(each) for each in value)
    return bool(value == PENDING)


def _step_differences(new: Manifest, old: Manifest) -> list[str]:
    found = []
    if new["version"] != old["version"]:
        found.append(f"the step itself changed (version {old['version']} -> {new['version']})")
    for name, value in new["inputs"].items():
        before = old["inputs"].get(name)
        if value.get("sha256") == PENDING:
            found.append(f"input {name!r} will be made again")
        elif why := _what_changed(before, value, new):
            found.append(f"input {name!r}: {why}")
    waiting = any(value.get("sha256") == PENDING for value in new["inputs"].values())
    if new["step"] == TRACE:
        found += _seen(old["parameters"].get("seen") or {}, new["parameters"].get("seen") or {})
    elif not waiting:
        found += _differences("parameter ", old["parameters"], new["parameters"])
    return found + list(_differences("tool ", old["tools"], new["tools"]))


def _seen(old: Manifest, new: Manifest) -> list[str]:
    """What a factory saw of the world and now is otherwise.

    All names that it asks for are known when it has run again: these are in both.
    """
    both = [(old.get(kind) or {}, new.get(kind) or {}) for kind in ("packages", "listed")]
    packages, listed = ({n: (a[n], b[n]) for n in a if n in b and a[n] != b[n]} for a, b in both)
    told = [f"package {name}: {was} -> {now or 'gone'}" for name, (was, now) in packages.items()]
    return told + [f"the folder {name} holds other files" for name in listed]


def _what_changed(old: Manifest | None, new: Manifest, step: Manifest) -> str:
    """Which of an input's files: its own content, or others that it refers to, by name."""
    if not old or old["sha256"] != new["sha256"]:
        module, colon, _ = str(step["parameters"].get("factory") or "").partition(":")
        return f"the module {module} changed" if colon else "its content changed"
    before, after = (dict(each.get("with") or ()) for each in (old, new))
    # Until a factory's code has run not all of its files are known.
    sought = {*before} & {*after} if step["step"] == TRACE else {*before, *after}
    names = sorted(n for n in sought if before.get(n) != after.get(n))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more} changed" if names else ""


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
