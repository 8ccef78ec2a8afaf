"""The user's project: ``edge.toml`` and ``devices.toml``, and what the command line adds."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from edge import config, errors, log
from edge.registry import Registry, lacks_extra
from edge.runtime_making import in_all
from edge.sources.locate import is_code, user_path


@dataclass(frozen=True)
class Said:
    """What the command line said about the model; empty where it said nothing."""

    model: str = ""
    name: str = ""
    version: str = ""
    samples: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    precision: str = ""


@dataclass(frozen=True)
class Project:
    """A project as it will be built. ``where`` names its file in messages.

    ``models`` are all of them; with ``only`` the bundles of one are meant. ``precision`` is what
    every target gets, whatever it says itself (empty: that).
    """

    base: Path
    where: str
    file: config.ProjectFile
    models: tuple[config.ModelSpec, ...]
    registry: Registry
    only: str = ""
    precision: str = ""

    def targets(self, names: Sequence[str]) -> tuple[config.Target, ...]:
        """The targets of these names; ``all``: ``[defaults] targets``, else all that are known.

        Those that always build their runtime, which takes long, are not in ``all``, nor plans
        that a GPU host has to make, nor those whose extra is not installed: these are named. Raises
        :class:`errors.UsageError` for unknown names, and when nothing is named.
        """
        chosen = [part for name in names for part in name.split(",") if part]
        chosen = chosen or list(self.file.defaults.targets)
        if not chosen:
            known = ", ".join(self.registry.target_names())
            raise errors.UsageError(
                "no target is named", remedy=f"--target all, or --target NAME; known: {known}"
            )
        self.registry.check_overrides(self.file, self.where)
        if "all" in chosen:
            chosen = list(self.file.defaults.targets) or self._prebuilt()
        found: dict[str, config.Target] = {}
        for word in dict.fromkeys(chosen):
            target = self.registry.target(word, self.file, self.where)
            if target.name in found:
                raise errors.UsageError(
                    f"two of the targets are called {target.name}; their bundles would be one",
                    remedy="rename one of the files, or build them one after the other",
                )
            found[target.name] = self._asked(target)
        return tuple(found.values())

    def _asked(self, target: config.Target) -> config.Target:
        if not self.precision:
            return target
        known = (*config.PRECISIONS, "auto")
        if self.precision not in known:
            raise errors.UsageError(
                f"--precision {self.precision} is none",
                remedy=errors.did_you_mean(self.precision, known),
            )
        return target.model_copy(update={"precision": self.precision})

    def _prebuilt(self) -> list[str]:
        names = self.registry.target_names()
        known = {name: self.registry.target(name, self.file, self.where) for name in names}
        ready = [name for name, target in known.items() if in_all(target)]
        lacking = {name: how for name in ready if (how := lacks_extra(known[name]))}
        for how in dict.fromkeys(lacking.values()):
            without = ", ".join(name for name, each in lacking.items() if each == how)
            log.say(f"  left out of all: {without} ({how})")
        return [name for name in ready if name not in lacking]

    def output(self, said: str) -> Path:
        """The folder for bundles: as said, else the project's, relative to its file."""
        return Path(said) if said else self.base / self.file.defaults.output

    def results(self, said: str) -> Path:
        """The database of records."""
        return Path(said) if said else self.base / ".edge" / "results.db"

    def bundles(self, target: str, output: str) -> list[Path]:
        """The folder of the bundle of every model that is meant, for one target."""
        known = self.registry.target(target, self.file, self.where)
        return [
            self.output(output) / spec.name / spec.version / known.name
            for spec in self.models
            if self.only in ("", spec.name)
        ]

    def device(self, name: str) -> config.DeviceSpec:
        """A device of ``devices.toml``; ``local`` is this machine."""
        known = self.devices()
        if name not in known:
            raise errors.UsageError(
                f"unknown device {name!r} (looked in {self.base / 'devices.toml'})",
                remedy=errors.did_you_mean(name, sorted(known)),
            )
        return known[name]

    def devices(self) -> dict[str, config.DeviceSpec]:
        """All devices by name."""
        return devices_of(self.base / "edge.toml")


def devices_of(path: Path) -> dict[str, config.DeviceSpec]:
    """The devices beside the project file ``path``, which need not be there."""
    return config.read_devices(path.resolve().parent / "devices.toml")


def load(path: Path, said: Said) -> Project:
    """The project of ``path``; with ``said.model`` no file is needed.

    Raises :class:`errors.ConfigError` naming what is wrong and :class:`errors.UsageError` when
    there is neither a project nor a model.
    """
    base = path.resolve().parent
    if not path.is_file() and not (said.model and path == Path("edge.toml")):
        raise errors.UsageError(
            f"there is no project file {path}",
            remedy="write an edge.toml with [model] source = ..., or say --model FILE.onnx",
        )
    data = config.read_toml(path) if path.is_file() else {}
    if said.model:
        data = _with_source(data, said)
    where = f"{path} with --set" if said.settings else str(path)
    for setting in said.settings:
        data = config.merge(data, parse_setting(setting))
    file = config.check(config.ProjectFile, data, where)
    models = _models(file, said, str(path))
    only = said.name if len(models) > 1 else ""
    return Project(base, str(path), file, models, Registry(base), only, said.precision)


def _with_source(data: Mapping[str, Any], said: Said) -> dict[str, Any]:
    """The project's tables with ``--model`` as the only model.

    What ``[model]`` says of inputs, dimensions and name stays: new weights are the usual case.
    """
    # A relative --model is relative to where the command runs, not to the project file.
    source = said.model
    code = is_code(source) and not Path(source).exists()
    if not source.startswith("pkg:") and not code:
        source = str(user_path(source).absolute())
    before = data.get("model", {})
    known = before if isinstance(before, dict) else {}
    plain = source.rpartition(":")[2] if code else PurePath(said.model).stem
    name = said.name or known.get("name") or config.slug(plain)
    kept = {key: value for key, value in data.items() if key != "models"}
    return {**kept, "model": {**known, "source": source, "name": name}}


def _models(file: config.ProjectFile, said: Said, where: str) -> tuple[config.ModelSpec, ...]:
    models = file.all_models()
    if not models:
        raise errors.ConfigError(
            f"{where} names no model", remedy="add [model] with source = ..., or say --model"
        )
    names = [spec.name for spec in models]
    if said.name and said.name not in names:
        raise errors.UsageError(
            f"{where} has no model {said.name!r}", remedy=errors.did_you_mean(said.name, names)
        )
    # What the command line says of the model is meant for the one that is named.
    return tuple(_with(spec, said) if said.name in ("", spec.name) else spec for spec in models)


def parse_setting(text: str) -> dict[str, Any]:
    """``model.inputs.x.shape=[1, 3]``: a dotted TOML key and a TOML value (or a plain word).

    Raises :class:`errors.UsageError` for anything else.
    """
    key, equals, value = text.partition("=")
    wrong = errors.UsageError(
        f"--set {text} is not of the form KEY=VALUE",
        remedy="a dotted key and a TOML value: --set 'model.inputs.x.shape=[1, 3, 224, 224]'",
    )
    if not equals or not key.strip() or "\n" in text:
        raise wrong
    for spelled in (value, json.dumps(value.strip())):
        try:
            return tomllib.loads(f"{key} = {spelled}")
        except tomllib.TOMLDecodeError:
            continue
    raise wrong


def _with(spec: config.ModelSpec, said: Said) -> config.ModelSpec:
    changes: dict[str, Any] = {"dims": {**spec.dims, **said.dims}}
    if said.version:
        changes["version"] = said.version
    if said.samples:
        changes["samples"] = str(user_path(said.samples).absolute())
    return config.check(config.ModelSpec, {**spec.model_dump(), **changes}, "command line")


def parse_dims(words: Sequence[str]) -> dict[str, int]:
    """``NAME=N`` words as a mapping; :class:`errors.UsageError` for anything else."""
    dims = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals or not name or not value.isascii() or not value.isdigit():
            raise errors.UsageError(f"--dim {word} is not of the form NAME=N")
        dims[name] = int(value)
    return dims
