"""TOML in, checked values out; unknown keys are errors with the nearest known key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from edge import errors
from edge.config.devices import DevicesFile, DeviceSpec
from edge.config.fields import Strict
from edge.config.project import ProjectFile
from edge.config.target import Target
from edge.errors import did_you_mean

MAX_CONFIG_BYTES = 1_000_000
SCHEMAS: Mapping[str, type[Strict]] = {
    "project": ProjectFile,
    "target": Target,
    "devices": DevicesFile,
}

# A table of an engine, and how the providers begin that read it; where a platform's bundles hold an
# engine beside the provider's, they read its table too.
_READERS: Mapping[str, tuple[str, ...]] = {
    "openvino": ("openvino",),
    "cuda": ("cuda", "tensorrt"),
    "tensorrt": ("tensorrt",),
    "coreml": ("coreml",),
}
_BESIDE = {("coreml", "ios")}

Model = TypeVar("Model", bound=Strict)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; :class:`errors.ConfigError` says file and line."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise errors.ConfigError(f"{path} is larger than {MAX_CONFIG_BYTES} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise errors.ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ConfigError(f"{path} is not valid TOML: {error}") from error


def check(kind: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """``data`` as a value of ``kind``, or one :class:`errors.ConfigError` with every fault."""
    try:
        return kind.model_validate(dict(data))
    except ValidationError as error:
        faults = [_fault(kind, dict(fault)) for fault in error.errors()]
        raise errors.ConfigError(
            f"{where}: " + "; ".join(message for message, _ in faults),
            remedy="; ".join(dict.fromkeys(remedy for _, remedy in faults if remedy)),
        ) from error


def _fault(kind: type[Strict], fault: dict[str, Any]) -> tuple[str, str]:
    path = ".".join(str(part) for part in fault["loc"]) or "(top)"
    if fault["type"] == "extra_forbidden":
        known = _known_keys(kind, fault["loc"][:-1])
        return f"unknown key {path}", did_you_mean(str(fault["loc"][-1]), known)
    if fault["type"] == "missing":
        return f"{path} is missing", ""
    return f"{path}: {fault['msg'].removeprefix('Value error, ')}", ""


def _known_keys(kind: type[Strict], path: tuple[Any, ...]) -> list[str]:
    """The keys that the table at ``path`` may hold, found in the JSON Schema."""
    schema = kind.model_json_schema()
    here: Any = schema
    for part in path:
        here = _inner(_deref(here, schema), part, schema)
    return sorted(_deref(here, schema).get("properties", {}))


def _inner(here: dict[str, Any], part: Any, schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(part, int):
        inner = here.get("items", {})
    else:
        inner = here.get("properties", {}).get(part) or here.get("additionalProperties") or {}
        if not inner and "patternProperties" in here:
            inner = next(iter(here["patternProperties"].values()))
    return _deref(inner if isinstance(inner, dict) else {}, schema)


def _deref(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        found = schema["$defs"][node["$ref"].rpartition("/")[2]]
        return found if isinstance(found, dict) else {}
    for choice in node.get("anyOf", ()):
        if "$ref" in choice:
            return _deref(choice, schema)
    return node


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``, table by table; lists and plain values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def read_target(path: Path, override: Mapping[str, Any], project: str) -> Target:
    """The target of a TOML file, its name the file's, with the project's overrides on it."""
    given = read_toml(path)
    if "name" in given or "name" in override:
        raise errors.ConfigError(
            f"{path}: name is the file's name, {path.stem}, and cannot be said",
            remedy="remove the key name, or rename the file",
        )
    base = {"name": path.stem, **given}
    found = _target(base, str(path))
    if not override:
        return found
    return _target(merge(base, override), f"{project} [targets.{path.stem}] over {path}")


def _target(data: Mapping[str, Any], where: str) -> Target:
    """A target; a table of an engine that it does not have is no wish that may be overruled."""
    found = check(Target, data, where)
    provider = found.provider.lower()
    for table, readers in _READERS.items():
        read = provider.startswith(readers) or (table, found.platform) in _BESIDE
        if table in data and not read:
            raise errors.ConfigError(
                f"{where}: [{table}] is not read where the provider is {found.provider}",
                remedy="leave the table out, or say it of a target that has that engine",
            )
    return found


def read_project(path: Path) -> ProjectFile:
    """``edge.toml``."""
    return check(ProjectFile, read_toml(path), str(path))


def read_devices(path: Path) -> dict[str, DeviceSpec]:
    """``devices.toml``, plus ``local``: this machine is always a device."""
    found = check(DevicesFile, read_toml(path), str(path)).devices if path.exists() else {}
    return {"local": DeviceSpec(kind="local"), **found}


def slug(text: str) -> str:
    """``text`` as a name that :data:`Name` accepts."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return cleaned[:64] or "model"
