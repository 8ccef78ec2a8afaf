"""Holds a plan's command line against the table of flags, and against the sources' own parsers."""

from __future__ import annotations

import json
from pathlib import Path

from edge import errors
from edge.tools import ort_flags, ort_parser
from edge.tools.reduced_plan import SETTINGS, Plan, release_of

# Whose parser reads the command; the others run on Linux.
HOSTS = {"ios": "macos"}
# What the scripts start that source archives leave out: a binary, and a submodule.
PARTS = {
    "android": "java/gradle/wrapper/gradle-wrapper.jar",
    "browser": "cmake/external/emsdk/emsdk",
}


def against_table(plan: Plan) -> None:
    """Refuse flags, values and settings that the release does not have.

    Raises :class:`errors.ConfigError` with all objections.
    """
    script, words = ort_flags.split(plan.build)
    release = release_of(plan.version)
    ort_flags.check(words, release, host_of(plan), script)
    if SETTINGS in plan.files:
        ort_flags.check_settings(json.loads(plan.files[SETTINGS]), release, script)


def against_tree(plan: Plan, tree: Path) -> None:
    """Let the source ``tree`` itself read the plan's command and, for packagers, its settings.

    Nothing is built or started. Raises :class:`errors.ConfigError` in the tree's own words, and
    for a tree that lacks what its own scripts start.
    """
    part = PARTS.get(plan.platform)
    if part and not (tree / part).is_file():
        raise errors.ConfigError(
            f"the sources lack {part}, which a build for {plan.platform} needs",
            remedy=f"give a git checkout of v{plan.version} with its submodules: --ort-source",
        )
    script, words = ort_flags.split(plan.build)
    if script == "build.py":
        ort_parser.check_with_tree(tree, words, host_of(plan))
    else:
        ort_parser.rehearse(tree, plan.build, plan.files, host_of(plan))


def host_of(plan: Plan) -> str:
    """The kind of machine that the plan is carried out on: ``linux`` or ``macos``."""
    return HOSTS.get(plan.platform, "linux")
