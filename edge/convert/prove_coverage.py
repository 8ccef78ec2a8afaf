"""Prove from the sources, before anything is compiled, that a reduced build will be right.

1. Every flag of the plan is one that the sources' own parsers take.
2. The build registers a kernel for every node of the closure, with its types.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge import errors
from edge.closure import coverage, from_json, reduction, registrations, text
from edge.step import Facts, step
from edge.tools import ort_source, plan_check, reduced_plan

SHOWN = 3
FILES = (*(name for name, _ in registrations.TABLES), registrations.LAYOUT)
SCRIPTS = ("tools", "VERSION_NUMBER", *plan_check.PARTS.values())


@step(version=1, isolated=False)
def prove_coverage(
    out: Path, *, closure: Path, config: Path, source: Path, request: dict[str, Any]
) -> Facts:
    """Hold ``closure`` (a ``closure.json``) against what a build of ``request`` would register.

    ``config`` is the operator configuration, ``source`` the sources (``ort_source.find``).
    Facts: ``kernels`` (needed), ``base`` and ``extended`` (how many of them either kind of
    minimal build has), ``registrations``. Raises :class:`errors.ClosureIncomplete` with the
    first nodes that lack a kernel, and :class:`errors.ConfigError` for flags that the sources do
    not take and for entries of the configuration that they know nothing of.
    """
    del out  # facts only
    wanted = reduced_plan.from_json(request)
    configuration = config.read_text(encoding="utf-8")
    with _tree(source, (*FILES, *SCRIPTS)) as tree:
        plan_check.against_tree(reduced_plan.make_plan(wanted, configuration), tree)
        tables = registrations.load(tree)
    offered = text.as_built(configuration, where=config.name)
    if strange := coverage.strangers(offered, tables.registrations):
        shown = "; ".join(map(str, strange[:SHOWN]))
        raise errors.ConfigError(
            f"ONNX Runtime {wanted.version} knows nothing of {shown}",
            remedy="its build would say nothing and leave it out; mend the configuration",
        )
    needed = from_json(closure.read_text(encoding="utf-8"))
    covers = coverage.prove(needed, offered, tables, options_of(wanted, configuration))
    return {
        "kernels": len(covers),
        "base": sum(each.base for each in covers),
        "extended": sum(each.extended for each in covers),
        "registrations": len(tables.registrations),
    }


def load(source: Path) -> registrations.Tables:
    """The registration tables of sources: a folder, or an archive of which only these are read."""
    with _tree(source, FILES) as tree:
        return registrations.load(tree)


@contextlib.contextmanager
def _tree(source: Path, names: tuple[str, ...]) -> Iterator[Path]:
    if source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="edge-sources-") as scratch:
        ort_source.unpack(source, Path(scratch), only=names)
        yield Path(scratch)


def options_of(request: reduced_plan.Request, configuration: str) -> reduction.Options:
    """What decides about kernels, of a request and its configuration."""
    release = reduced_plan.release_of(request.version)
    return reduction.Options(
        minimal="extended" if request.extended else "base",
        types=request.types,
        disabled_types=reduced_plan.unused_types(request, release, configuration),
        ml_ops=reduced_plan.needs_ml(configuration),
        generation_ops=release < (1, 25),
        fp16_vectors=request.platform in ("linux-arm64", "android"),
        nchwc=request.platform == "linux-x64",
    )
