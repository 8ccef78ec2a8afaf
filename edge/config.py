"""Target, project and device files: TOML in, frozen and checked values out.

Unknown keys are errors that name the file, the key path and the nearest known key. The JSON
Schemas that ``edge schema`` prints come from the same models, so nothing is kept twice.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge import errors

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Dim = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
BundlePath = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$")
]
Level = Literal["disabled", "basic", "extended", "all"]
MAX_CONFIG_BYTES = 1_000_000


class Strict(BaseModel):
    """Frozen; a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


# ------------------------------------------------------------------------------- targets
class Pin(Strict):
    """A file that is fetched once into the store, always against a SHA-256.

    ``package`` is ``pypi:WHEEL-FILE-NAME``, ``npm:NAME@VERSION``, ``debian:POOL-PATH``,
    ``https://...`` or ``file:PATH``; ``member`` is the file's path inside that archive.
    """

    package: Annotated[str, Field(pattern=r"^(pypi|npm|debian|https|file):\S+$")]
    package_sha256: Sha256 | None = None
    member: str | None = None
    sha256: Sha256


class RuntimeFile(Pin):
    """A pinned file of the runtime and its place in the bundle."""

    path: BundlePath


class Reduced(Strict):
    """How ONNX Runtime is built with only the operators and types that the project needs.

    ``minimal``: ORT-format models only; ``extended`` adds what execution providers and saved
    optimizations need. ``types``: drop unused types of operators too. Without ``exceptions`` an
    error ends the process. ``strings``: keep string tensors. ``config`` is CMake's build type.
    ``kernels`` (Linux): ``fast`` compiles kernels as the full library does, whatever ``config``
    is, with AVX-512, which a minimal build leaves out.
    ``source``: an archive of the sources by its content; None: the release's git tag.
    ``dependencies``: ``pinned`` ones of ``edge/tools/ort_dependencies.toml``, or what ONNX
    Runtime's own build fetches. ``files``: of the release, that go with what is built;
    ``full``: the full library that sizes are compared with.
    """

    minimal: Literal["base", "extended"] = "extended"
    types: bool = True
    exceptions: bool = True
    strings: bool = True
    lto: bool = False
    config: Literal["MinSizeRel", "Release"] = "MinSizeRel"
    kernels: Literal["fast", "small"] = "fast"
    providers: tuple[Name, ...] = ()
    source: Pin | None = None
    dependencies: Literal["pinned", "fetched"] = "fetched"
    files: tuple[RuntimeFile, ...] = ()
    full: Pin | None = None


class Runtime(Strict):
    """The runtime that the target's devices load, by name and exact version.

    ``files`` are in every bundle, ``embeddable`` with ``--embed-runtime``; ``archive_sha256`` is
    the SHA-256 of the official archive that an app's build fetches itself. ``reduced`` says how
    it is built where it is built here, which a runtime without ``prebuilt`` form always is.
    """

    name: Literal["onnxruntime", "onnxruntime-android", "onnxruntime-swift", "onnxruntime-web"]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    coordinates: str = ""
    archive_sha256: Sha256 | None = None
    files: tuple[RuntimeFile, ...] = ()
    embeddable: tuple[RuntimeFile, ...] = ()
    prebuilt: bool = True
    reduced: Reduced = Reduced()


class Optimization(Strict):
    """How far the graph is optimized offline.

    ``basic`` is neutral, ``extended`` fuses for any CPU, ``all`` may bake in this CPU's layout.
    """

    level: Level = "extended"


class OrtFormat(Strict):
    """Options of onnxruntime's ORT-format converter."""

    style: Literal["Fixed", "Runtime"] = "Fixed"
    target_platform: Literal["arm", "amd64"] = "arm"
    level: Literal["basic", "extended", "all"] = "all"


class Tolerance(Strict):
    """How far an artifact's outputs may be from the golden ones (see ``edge.parity``)."""

    max_abs: Annotated[float, Field(ge=0)] | None = 1e-4
    max_rel: Annotated[float, Field(ge=0)] | None = 1e-3
    floor: Annotated[float, Field(gt=0)] = 1e-3
    sqnr_db: float | None = None
    argmax: Annotated[float, Field(ge=0, le=1)] | None = None


class Budget(Strict):
    """Upper limits in bytes; None is no limit."""

    artifact_bytes: Annotated[int, Field(gt=0)] | None = None
    runtime_bytes: Annotated[int, Field(gt=0)] | None = None
    total_bytes: Annotated[int, Field(gt=0)] | None = None
    total_compressed_bytes: Annotated[int, Field(gt=0)] | None = None


class Runner(Strict):
    """The C runner of the target: the triple it is built for, and the pinned C API header."""

    triple: str
    header: Pin


class App(Strict):
    """What the app template needs to know."""

    template: Name
    application_id: Annotated[str, Field(pattern=r"^[A-Za-z]\w*(\.[A-Za-z]\w*)+$")] = (
        "dev.edgewright.bench"
    )
    abis: Annotated[
        tuple[Literal["arm64-v8a", "armeabi-v7a", "x86", "x86_64"], ...], Field(min_length=1)
    ] = ("arm64-v8a",)
    min_sdk: Annotated[int, Field(ge=21, le=99)] = 24
    ios_deployment_target: str = "15.1"


class Target(Strict):
    """One target: a platform and what is wanted there. Data, never code."""

    name: Name
    description: str
    recipe: Name
    platform: Literal["linux-x64", "linux-arm64", "linux-armhf", "android", "ios", "browser"]
    dims: Literal["bound", "symbolic"] = "bound"
    tools: tuple[str, ...] = ()
    requires: dict[str, str] = {}
    runtime: Runtime
    optimization: Optimization = Optimization()
    ort_format: OrtFormat = OrtFormat()
    provider: Literal["CPUExecutionProvider"] = "CPUExecutionProvider"
    runner: Runner | None = None
    app: App | None = None
    tolerance: Tolerance = Tolerance()
    budget: Budget = Budget()


# ------------------------------------------------------------------------------- project
class InputSpec(Strict):
    """What the user says of one input: dtype by numpy's name, bound shape, values' range."""

    dtype: str | None = None
    shape: tuple[Dim, ...] | None = None
    range: tuple[float, float] | None = None
    constant: bool | int | float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> InputSpec:
        if self.range and not self.range[0] <= self.range[1]:
            raise ValueError("range must be [low, high] with low <= high")
        return self


class ModelSpec(Strict):
    """One model of the project."""

    source: str
    name: Name = "model"
    version: Name = "0"
    inputs: dict[str, InputSpec] = {}
    dims: dict[str, Dim] = {}
    samples: str | None = None
    sample_count: Annotated[int, Field(ge=1, le=100)] = 3
    seed: Annotated[int, Field(ge=0)] = 0


class Defaults(Strict):
    """What the command line takes when nothing is said."""

    output: str = "dist"
    targets: tuple[Name, ...] = ()


class BenchSpec(Strict):
    """How long a measurement runs; counts are minima, times in seconds."""

    warmup: Annotated[int, Field(ge=0)] = 3
    iterations: Annotated[int, Field(ge=1)] = 100
    min_seconds: Annotated[float, Field(ge=0)] = 5.0
    max_seconds: Annotated[float, Field(gt=0)] = 60.0
    threads: Annotated[int, Field(ge=1)] = 1
    repeats: Annotated[int, Field(ge=1, le=20)] = 3


class ProjectFile(Strict):
    """``edge.toml``. ``[model]`` is the only model, or ``[models.NAME]`` one of several."""

    model: ModelSpec | None = None
    models: dict[Name, ModelSpec] = {}
    defaults: Defaults = Defaults()
    targets: dict[Name, dict[str, Any]] = {}
    bench: BenchSpec = BenchSpec()

    @model_validator(mode="after")
    def _one_way(self) -> ProjectFile:
        if self.model and self.models:
            raise ValueError("say [model] or [models.NAME], not both")
        return self

    def all_models(self) -> tuple[ModelSpec, ...]:
        """Every model of the project; a table's name is the model's name."""
        named = (spec.model_copy(update={"name": name}) for name, spec in self.models.items())
        return (self.model,) if self.model else tuple(named)


# ------------------------------------------------------------------------------- devices
class DeviceSpec(Strict):
    """One device of ``devices.toml``.

    ``folder`` is where bundles live there, relative to the login's home (default: edgewright).
    """

    kind: Literal["local", "ssh"]
    folder: str = ""
    host: str = ""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    ssh_config: str | None = None
    connect_timeout: Annotated[float, Field(gt=0)] = 10.0

    @model_validator(mode="after")
    def _host(self) -> DeviceSpec:
        if self.kind == "ssh" and not self.host:
            raise ValueError("an ssh device needs host")
        return self


class DevicesFile(Strict):
    """``devices.toml``."""

    devices: dict[Name, DeviceSpec] = {}


SCHEMAS: Mapping[str, type[Strict]] = {
    "project": ProjectFile,
    "target": Target,
    "devices": DevicesFile,
}

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


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """``did you mean 'x'?``, or the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + ", ".join(known) if known else ""


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
    check(Target, base, str(path))
    if not override:
        return check(Target, base, str(path))
    return check(Target, merge(base, override), f"{project} [targets.{path.stem}] over {path}")


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
