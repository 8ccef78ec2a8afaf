"""All that a recipe may know, and how it runs steps.

A recipe is two functions: ``artifact(job)`` converts the canonical model, ``build(job)`` says
what the bundle holds. Both only call ``job.step`` and hand results on; nothing reads a file, so
the very same code answers ``edge explain``: there a step that is not stored yields
:class:`Pending` results, and what depends on them is pending too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from edge import config, errors, log, process
from edge.bundle import BundleFile
from edge.step import Step
from edge.store import File, Result, Store, canonical_json, hash_file

PENDING = "?"
OPERATORS = "required_operators_and_types.config"
Overlay = Callable[[str], Path | None]


def tool_versions(
    tools: tuple[str, ...], pinned: Mapping[str, str], extra: str = ""
) -> dict[str, str]:
    """Versions of the distributions that a step uses; pinned ones win over installed ones.

    ``zlib`` is the library that Python was linked with. ``a|b`` is the first that is installed,
    ``a?`` is left out where it is not.

    Raises :class:`errors.ToolMissing` naming the distribution that is not installed, and
    ``extra``, the extra of this package that brings it.
    """
    found: dict[str, str] = {}
    for tool in tools:
        names = tool.removesuffix("?").split("|")
        known = [(name, has) for name in names if (has := pinned.get(name) or _installed(name))]
        if not known and not tool.endswith("?"):
            raise errors.ToolMissing(
                f"the Python package {names[0]} is not installed",
                remedy=f"pip install 'edgewright[{extra}]'" if extra else f"pip install {names[0]}",
            )
        found |= dict(known[:1])
    return found


def _installed(name: str) -> str:
    if name == "zlib":
        return zlib.ZLIB_RUNTIME_VERSION
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


@dataclass
class Steps:
    """Runs steps through the store and remembers what was run, found or missing.

    ``dry``: nothing is made; what is not stored comes back pending. ``overlay`` gives the folder
    of another onnxruntime release, where the installed one is not the wanted one.
    """

    store: Store
    overlay: Overlay
    dry: bool = False
    made: list[Result] = field(default_factory=list)
    used: list[Result] = field(default_factory=list)

    def run(
        self,
        step: Step,
        arguments: Mapping[str, Any],
        *,
        ort: str = "",
        title: str = "",
        environment: process.Environment | None = None,
    ) -> Result:
        """The step's result for these arguments: stored, made, or (dry) pending.

        :class:`File` arguments are inputs, all others parameters. ``ort`` is the onnxruntime
        release that the step must run under (default: the installed one); ``environment`` is
        another Python to run in, all of whose versions go into the key.
        """
        pinned = {"onnxruntime": ort} if ort else {}
        tools = environment.versions if environment else _tools(step, pinned)
        ingredients = _ingredients(step, arguments, tools)
        pending = PENDING in {value.get("sha256") for value in ingredients["inputs"].values()}
        result = None if pending else self._stored(ingredients)
        if result is None:
            doing = (title or step.name, environment)
            result = self._make(step, arguments, ingredients, doing)
        self.used.append(result)
        return result

    def _stored(self, ingredients: dict[str, Any]) -> Result | None:
        """The stored result; a damaged one is as good as none, and is made again."""
        try:
            return self.store.find(ingredients)
        except errors.StoreDamaged as error:
            log.warn(f"{error.message}; it is made again")
            return None

    def _make(
        self,
        step: Step,
        arguments: Mapping[str, Any],
        ingredients: dict[str, Any],
        doing: tuple[str, process.Environment | None],
    ) -> Result:
        if self.dry:
            return Result(step.name, PENDING, ingredients, Path(), PendingFiles(), PendingFacts())
        title, environment = doing
        wanted = "" if environment else ingredients["tools"].get("onnxruntime", "")
        overlay = self.overlay(wanted) if wanted else None
        plain = {k: v.path if isinstance(v, File) else v for k, v in arguments.items()}
        with log.step(title) as running:
            ran = []

            def make(out: Path) -> dict[str, Any] | None:
                ran.append(step)
                facts = _call(step, {"out": out, **plain}, overlay, environment)
                _unchanged(arguments)
                return facts

            result = self.store.make(ingredients, make)
            # Another thread or process may have made it while this one waited for the lock.
            running.quiet = not ran
            sizes = sum(file.size for file in result.files.values())
            running.note = log.human_bytes(sizes) if sizes else ""
        self.made.append(result)
        return result

    def alike(self, step: Step, arguments: Mapping[str, Any], *, but: str) -> list[Result]:
        """Stored results of a step that differ from these arguments in the input ``but`` alone.

        Under the installed onnxruntime, where the step uses it.
        """
        # As the store reads it: tuples are lists there.
        wanted = json.loads(canonical_json(_ingredients(step, arguments, _tools(step, {}))))
        return [
            result
            for result in self.store.made_by(step.name)
            if _without(result.ingredients, but) == _without(wanted, but)
        ]


def _without(ingredients: Mapping[str, Any], name: str) -> dict[str, Any]:
    inputs = {key: value for key, value in ingredients["inputs"].items() if key != name}
    return {**ingredients, "inputs": inputs}


def _unchanged(arguments: Mapping[str, Any]) -> None:
    """What a step read must still be what its key says, or the store would hold a lie."""
    for file in (value for value in arguments.values() if isinstance(value, File)):
        parts = [(file.path, file.sha256)] if file.path.is_file() else []
        parts += [(file.path.parent / name, sha256) for name, sha256 in file.companions]
        for path, sha256 in parts:
            if hash_file(path)[0] != sha256:
                raise errors.StepFailed(
                    f"{path} changed while it was used",
                    remedy="build again; a file of the store that stays wrong has to be removed",
                )


def _call(
    step: Step,
    arguments: dict[str, Any],
    overlay: Path | None,
    environment: process.Environment | None,
) -> dict[str, Any] | None:
    if not step.isolated:
        return step.function(**arguments)
    facts = process.run_python(
        step.address, arguments, timeout=step.timeout, overlay=overlay, environment=environment
    )
    return facts if isinstance(facts, dict) else None


def _tools(step: Step, pinned: Mapping[str, str]) -> Mapping[str, str]:
    return tool_versions(step.tools, pinned, step.extra)


def _ingredients(
    step: Step, arguments: Mapping[str, Any], tools: Mapping[str, str]
) -> dict[str, Any]:
    files = {name: value for name, value in arguments.items() if isinstance(value, File)}
    return {
        "step": step.name,
        "version": step.version,
        "parameters": {
            k: _kept(k, v, step.aside)
            for k, v in arguments.items()
            if k not in files and k not in step.aside
        },
        "inputs": {name: file.identity() for name, file in files.items()},
        "tools": dict(tools),
    }


def _kept(name: str, value: Any, aside: tuple[str, ...]) -> Any:
    """A parameter without those of its entries that are not in the key."""
    if not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if f"{name}.{key}" not in aside}


@dataclass(frozen=True)
class Making:
    """How the runtime is built for a target, where it is built and not taken as it comes.

    ``planned``: only say how. ``reuse``: take a stored one that can do more. ``source``,
    ``dependencies`` and ``toolchain`` are what a build takes (see ``build_reduced``), ``where``
    where it runs.
    """

    planned: bool
    source: File
    reuse: bool = False
    dependencies: Mapping[str, File] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)


class PendingFiles(dict[str, File]):
    """Files of a step that has not run: every name is there, every hash is unknown."""

    def __missing__(self, name: str) -> File:
        return File(Path(name), PENDING, 0)


class PendingFacts(dict[str, Any]):
    """Facts of a step that has not run: unknown."""

    def __missing__(self, name: str) -> Any:
        return None


class Framework(Protocol):
    """The source framework's own model, for recipes that convert it without ONNX between."""

    @property
    def title(self) -> str:
        """The framework's name."""

    def run(
        self, steps: Steps, step: Step, more: Mapping[str, Any] | None = None, *, title: str
    ) -> Result:
        """Run one of the framework's steps on the source, in its environment."""


@dataclass(frozen=True)
class Job:
    """One model for one target. ``artifact`` and ``closure`` are set for ``build(job)``.

    ``canonical`` is the model's canonical form, ``samples`` the golden samples, ``cases`` what
    activations are calibrated on (its index file), ``precision`` the one that is made, ``making``
    how the runtime is built (None: it is not), ``environment`` makes one of exact requirements,
    ``framework`` is the source's own (None: it is ONNX), ``closure`` the operator configuration
    of the project's models for this target, None where its runtime has none.
    """

    model: config.ModelSpec
    target: config.Target
    steps: Steps
    canonical: File
    samples: Result
    cases: File
    template: Callable[[str], File]
    fetch: Callable[[config.Pin], File]
    precision: config.Precision = "source"
    embed_runtime: bool = False
    making: Making | None = None
    environment: Callable[[Sequence[str]], process.Environment] | None = None
    framework: Framework | None = None
    artifact: File | None = None
    closure: Result | None = None

    def step(self, step: Step, **arguments: Any) -> Result:
        """Run a step through the store, under the target's onnxruntime release if it uses one."""
        wanted = self.target.runtime.onnxruntime if "onnxruntime" in step.tools else ""
        return self.steps.run(step, arguments, ort=wanted, title=self._title(step))

    def apart(self, step: Step, **arguments: Any) -> Result:
        """Run a step in an environment of its own, which holds the target's ``runtime.python``.

        For a runtime that cannot share one with this package's own onnxruntime.
        """
        if self.environment is None or not self.target.runtime.python:
            raise errors.ConfigError(
                f"target {self.target.name}: the recipe {self.target.recipe} needs runtime.python"
            )
        where = self.environment(self.target.runtime.python)
        return self.steps.run(step, arguments, title=self._title(step), environment=where)

    def by_framework(self, framework: Framework, step: Step, **arguments: Any) -> Result:
        """Run a step on the framework's own model."""
        return framework.run(self.steps, step, arguments, title=f"{self.model.name}: {step.name}")

    def _title(self, step: Step) -> str:
        at = "" if self.precision == "source" else f" {self.precision}"
        return f"{self.target.name}/{self.model.name}{at}: {step.name}"

    def tool(self, step: Step, **arguments: Any) -> Result:
        """Run a step that is the same for every target, under the installed onnxruntime.

        What it makes, quantized models above all, is made once and proven for each release.
        """
        return self.steps.run(step, arguments, title=f"{self.model.name}: {step.name}")

    @property
    def tolerance(self) -> config.Tolerance:
        """What the artifact's outputs are held to, which its precision decides."""
        return self.target.tolerance_of(self.precision)

    def built(self) -> File:
        """The artifact, in ``build(job)``."""
        if self.artifact is None:
            raise errors.StepFailed(f"recipe {self.target.recipe}: build() before artifact()")
        return self.artifact

    def with_artifact(self, artifact: File, closure: Result | None) -> Job:
        """The job for ``build``: everything known."""
        return replace(self, artifact=artifact, closure=closure)

    def runtime_files(self) -> tuple[BundleFile, ...]:
        """The pinned files of the runtime that the bundle carries."""
        pins = self.target.runtime.files
        return self._runtime(pins + (self.target.runtime.embeddable if self.embed_runtime else ()))

    def reduced_files(self) -> tuple[BundleFile, ...]:
        """The pinned files of the release that go with a runtime that is built."""
        return self._runtime(self.target.runtime.reduced.files)

    def _runtime(self, pins: tuple[config.RuntimeFile, ...]) -> tuple[BundleFile, ...]:
        return tuple(BundleFile.of(pin.path, self.fetch(pin), "runtime") for pin in pins)

    def variables(self) -> dict[str, Any]:
        """What every app template is filled with."""
        return {
            "model_name": self.model.name,
            "model_version": self.model.version,
            "artifact": self.built().path.name,
            "runtime_version": self.target.runtime.version,
            "tolerance": self.tolerance.model_dump(),
        }

    def app(self) -> config.App:
        """What the target says of its app; :class:`errors.ConfigError` when it says nothing."""
        if self.target.app is None:
            raise errors.ConfigError(
                f"target {self.target.name}: the recipe {self.target.recipe} needs [app]"
            )
        return self.target.app

    def app_variables(self) -> dict[str, Any]:
        """What the templates of mobile apps are filled with, beside the platform's own."""
        return {
            **self.variables(),
            "application_id": self.app().application_id,
            "embedded": self.embed_runtime or self.making is not None,
            "reduced": self.making is not None,
        }

    def operators(self) -> File:
        """The operator configuration over all models of the project, in ``build(job)``."""
        return self.operator_closure().file(OPERATORS)

    def operator_closure(self) -> Result:
        """The closure over all models of the project, as ``closure_config`` made it.

        Raises :class:`errors.StepFailed` for a runtime that takes none.
        """
        if self.closure is None:
            raise errors.StepFailed(f"recipe {self.target.recipe}: there is no operator closure")
        return self.closure

    def tree(self, folder: str, result: Result, role: str) -> tuple[BundleFile, ...]:
        """All files of a result, below ``folder`` of the bundle; scripts can be run."""
        return tuple(
            BundleFile.of(f"{folder}/{name}", file, role, executable=name.endswith(".sh"))
            for name, file in result.files.items()
        )
