"""Subcommands that say what there is: targets, this host, schemas of files. Nothing is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edge import errors, log
from edge.options import DEFAULT_CONFIG, ConfigOption, JsonOption, TargetOption, say_json

if TYPE_CHECKING:
    from edge.config import Target


def _targets(config: Path, names: list[str]) -> list[Target]:
    """The targets of these names, or all, as the project sees them; it needs no model."""
    from edge.config import ProjectFile, read_project
    from edge.registry import Registry

    registry = Registry(config.resolve().parent)
    project = read_project(config) if config.is_file() else ProjectFile()
    chosen = names or registry.target_names()
    return [registry.target(name, project, str(config)) for name in chosen]


def targets(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """List the targets that can be built."""
    found = _targets(config, [])
    if as_json:
        say_json([each.model_dump(mode="json") for each in found])
        return
    rows = [
        (t.name, t.recipe, f"{t.runtime.name} {t.runtime.version}", t.description) for t in found
    ]
    log.table("targets", ("target", "recipe", "runtime", "what"), rows)


def doctor(
    config: ConfigOption = DEFAULT_CONFIG,
    target: TargetOption = [],
    as_json: JsonOption = False,
) -> None:
    """Say what this host can build, and for the rest what is missing and how to get it."""
    from edge.registry import goes_without, lacks_extra, preflight
    from edge.runtime_making import RuntimeWish, in_all, toolchain_lacks
    from edge.store import Store, default_root

    found = _targets(config, [name for name in target if name != "all"])
    lacks = preflight(Store(default_root()), found, embed=False)
    lacks += toolchain_lacks(found, RuntimeWish())
    rows = []
    for each in found:
        missing = [lack for lack in lacks if lack.target == each.name]
        state = "missing: " + ", ".join(lack.what for lack in missing) if missing else "ready"
        if not missing and (less := goes_without(each)):
            state, missing = f"ready, without {less.what}", [less]
        rows.append((each.name, state, "; ".join(lack.remedy for lack in missing)))
    log.table("this host", ("target", "state", "fix"), rows)
    if as_json:
        say_json([{"target": t, "state": s, "fix": f} for t, s, f in rows])
    # As with build, those that all leaves out count where they are named.
    counted = {each.name for each in found if target or (in_all(each) and not lacks_extra(each))}
    lacking = any(lack.target in counted for lack in lacks)
    raise typer.Exit(errors.Unavailable.exit_code if lacking else 0)


def schema(
    kind: Annotated[str, typer.Argument(help="project, target, devices or manifest.")] = "",
) -> None:
    """Print the JSON Schema of a file; without a name, of all of them."""
    from edge.config import SCHEMAS
    from edge.manifest import SCHEMA

    found = {name: model.model_json_schema() for name, model in SCHEMAS.items()}
    found["manifest"] = SCHEMA
    if kind and kind not in found:
        raise errors.UsageError(
            f"no schema {kind!r}", remedy=errors.did_you_mean(kind, sorted(found))
        )
    say_json(found[kind] if kind else found)
