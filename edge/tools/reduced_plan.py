"""The exact plan for building a reduced ONNX Runtime: only the operators and types that are needed.

Nothing is built here. A plan is data: files, commands as lists of words, what they need. It is
the same for the same request on every machine (relative paths only, no times). Written into a
bundle it is ``planned``; ``edge.tools.ort_build`` carries it out. The flags are those of
onnxruntime's own build scripts by release, 1.17 to 1.32 (``edge.tools.ort_flags``).

What is never said, and why: ``--disable_contrib_ops`` (a fully optimized ``.ort`` file holds
``com.microsoft`` operators, XNNPACK needs them too) and ``--emsdk_version`` (the default of the
release's own ``build.py`` is the tested one).
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors
from edge.tools import ort_cmake, ort_source, ort_versions
from edge.tools.ort_source import DEPENDENCIES
from edge.tools.ort_versions import Release, row

CONFIG = "required_operators_and_types.config"
SETTINGS = "settings.json"
SOURCE = "onnxruntime"
BUILD = "build"
PYTHON = ".venv/bin/python"
# The sources come whole and without .git: syncing submodules would fail.
WHOLE = "--skip_submodule_sync"
OLDEST, NEWEST = (1, 17), (1, 32)
# Execution providers that can be compiled in; all of them need an extended minimal build.
PROVIDERS: Mapping[str, frozenset[str]] = {
    "android": frozenset({"nnapi", "xnnpack", "webgpu"}),
    "ios": frozenset({"coreml", "xnnpack"}),
    "browser": frozenset({"webgpu", "webnn"}),
    "linux-x64": frozenset({"xnnpack"}),
    "linux-arm64": frozenset({"xnnpack"}),
    "linux-armhf": frozenset({"xnnpack"}),
}


@dataclass(frozen=True)
class Request:
    """What reduced runtime is wanted.

    ``platform`` is that of a target. ``extended``: needed for execution providers and for files
    of the converter's style Runtime. ``types``: also drop the types that no operator uses.
    ``exceptions``: without them an error ends the process. ``strings``: keep string tensors
    (dropping them is possible from 1.25). For Linux: ``lto``; ``config``, CMake's build type;
    ``kernels``: ``fast`` ones as in the full library, or ``small`` ones; ``pinned``: sources and
    dependencies by content and not by what their servers give.
    ``abis``, ``min_sdk``, ``target_sdk`` for Android.
    """

    version: str
    platform: str
    extended: bool = True
    types: bool = True
    exceptions: bool = True
    strings: bool = True
    lto: bool = False
    config: str = "MinSizeRel"
    kernels: str = "fast"
    pinned: bool = False
    providers: tuple[str, ...] = ()
    abis: tuple[str, ...] = ("arm64-v8a",)
    min_sdk: int = 24
    target_sdk: int = 34
    ios_deployment_target: str = "15.1"


@dataclass(frozen=True)
class Plan:
    """Files by relative name, commands to be run in their folder, what must be there before.

    ``fetch`` brings the sources and Python packages, ``build`` is the one command that builds.
    ``product`` is the file or folder where the result appears.
    """

    version: str
    platform: str
    files: Mapping[str, str]
    fetch: tuple[tuple[str, ...], ...]
    build: tuple[str, ...]
    needs: tuple[str, ...]
    product: str

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """All commands, in their order."""
        return (*self.fetch, self.build)

    @property
    def digest(self) -> str:
        """SHA-256 over commands and files but the configuration: what else decides the result."""
        files = {name: text for name, text in self.files.items() if name != CONFIG}
        told = json.dumps([self.commands, self.product, files], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    def to_json(self) -> str:
        """The plan as JSON text, without the files' contents."""
        content = {
            "state": "planned",
            "runtime": "onnxruntime",
            "version": self.version,
            "platform": self.platform,
            "needs": list(self.needs),
            "files": sorted(self.files),
            "commands": [list(words) for words in self.commands],
            "product": self.product,
        }
        return json.dumps(content, indent=2) + "\n"

    def to_shell(self) -> str:
        """The plan as a POSIX shell script that stops at the first failure."""
        needs = "".join(f"#   {need}\n" for need in self.needs)
        return (
            "#!/bin/sh\n"
            f"# Planned, not built: a reduced ONNX Runtime {self.version} for {self.platform}.\n"
            f"# Needed:\n{needs}"
            f"# The result: {self.product}\n"
            'set -eu\ncd "$(dirname "$0")"\n' + "".join(f"{shlex.join(c)}\n" for c in self.commands)
        )


def write(plan: Plan, out: Path) -> None:
    """Write the plan's files, ``plan.json`` and ``plan.sh`` into ``out``."""
    write_files(plan, out)
    for name, text in (("plan.json", plan.to_json()), ("plan.sh", plan.to_shell())):
        (out / name).write_text(text, encoding="utf-8", newline="\n")
        (out / name).chmod(0o755 if name.endswith(".sh") else 0o644)


def write_files(plan: Plan, out: Path) -> None:
    """Write the files that the plan's commands read into ``out``."""
    for name, text in sorted(plan.files.items()):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text, encoding="utf-8", newline="\n")


def from_json(data: Mapping[str, Any]) -> Request:
    """The request of a JSON mapping, as steps carry it."""
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Request(**lists)


def make_plan(request: Request, closure: str) -> Plan:
    """The plan for ``request`` with the text of an operator configuration.

    Raises :class:`errors.ConfigError` for a release, platform or provider that no plan is known
    for, and for a configuration that keeps no operator at all.
    """
    release = release_of(request.version)
    _check(request, release, closure)
    recipe = {"android": _android, "ios": _ios, "browser": _browser}.get(request.platform, _linux)
    made = recipe(request, release, closure)
    files = {CONFIG: closure if closure.endswith("\n") else closure + "\n", **made.files}
    fetch, needs = _sources(request)
    common = (("Python", ort_versions.PYTHON_VERSION), ("CMake", ort_versions.CMAKE))
    least = tuple(f"{name} {row(table, release)} or newer" for name, table in common)
    needs = (*least, *needs, *made.needs)
    return Plan(request.version, request.platform, files, fetch, made.build, needs, made.product)


# ------------------------------------------------------------------------------ platforms
@dataclass(frozen=True)
class Recipe:
    """A platform's part of a plan."""

    build: tuple[str, ...]
    needs: tuple[str, ...]
    product: str
    files: Mapping[str, str]


def _android(request: Request, release: Release, closure: str) -> Recipe:
    base = ("--enable_lto", "--android", "--parallel", "--cmake_generator=Ninja", "--build_java",
            "--build_shared_lib", WHOLE)  # fmt: skip
    settings: dict[str, object] = {
        "build_abis": list(request.abis),
        "android_min_sdk_version": request.min_sdk,
        "android_target_sdk_version": request.target_sdk,
        # Before 1.20 the packager wants the test programs, tests or not (#21730).
        "build_params": [
            *base,
            *_reduction(request, release, closure),
            *(_untested() if release >= (1, 20) else _untested()[:1]),
            # Before 1.23 the JNI library, a CMake module, is linked for 4 KB pages (#24902).
            "--cmake_extra_defines=ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON",
        ],
    }
    vcpkg = "VCPKG_INSTALLATION_ROOT: vcpkg, which the packager of 1.21 builds with"
    needs = (
        f"JDK {ort_versions.JDK}",
        "Ninja",
        *((vcpkg,) if release == (1, 21) else ()),
        "ANDROID_HOME: the Android SDK",
        f"ANDROID_NDK_HOME: the Android NDK {row(ort_versions.NDK, release)}",
    )
    name = "onnxruntime-android"
    product = f"{BUILD}/aar_out/MinSizeRel/com/microsoft/onnxruntime/{name}/{request.version}"
    command = _packager("android/build_aar_package.py")
    return Recipe(command, needs, f"{product}/{name}-{request.version}.aar", _settings(settings))


def _ios(request: Request, release: Release, closure: str) -> Recipe:
    target = ["--ios", f"--apple_deploy_target={request.ios_deployment_target}"]
    simulator = ["arm64"] if release >= (1, 24) else ["arm64", "x86_64"]
    base = ("--parallel", "--use_xcode", "--build_apple_framework", WHOLE)
    settings: dict[str, object] = {
        "build_osx_archs": {"iphoneos": ["arm64"], "iphonesimulator": simulator},
        "build_params": {
            "base": [*base, *_reduction(request, release, closure), *_untested()],
            "iphoneos": target,
            "iphonesimulator": target,
        },
    }
    needs = (f"macOS with Xcode {ort_versions.XCODE} or newer",)
    product = f"{BUILD}/framework_out/onnxruntime.xcframework"
    command = _packager("apple/build_apple_framework.py")
    return Recipe(command, needs, product, _settings(settings))


def _settings(settings: Mapping[str, object]) -> dict[str, str]:
    return {SETTINGS: json.dumps(settings, indent=2) + "\n"}


def _browser(request: Request, release: Release, closure: str) -> Recipe:
    command = (
        *_build_py("Release"),
        WHOLE,
        "--build_wasm",
        "--enable_wasm_simd",
        "--enable_wasm_threads",
        *(("--enable_wasm_api_exception_catching",) if request.exceptions else ()),
        *("--target", "onnxruntime_webassembly"),
        *_reduction(request, release, closure),
        *_untested(),
    )
    emsdk = f"emsdk {row(ort_versions.EMSDK, release)}, which build.py itself installs"
    needs = (emsdk, f"Node.js {ort_versions.NODE} or newer")
    suffix = ".asyncify" if "webgpu" in request.providers and release >= (1, 24) else ""
    return Recipe(command, needs, f"{BUILD}/Release/ort-wasm-simd-threaded{suffix}.wasm", {})


def _linux(request: Request, release: Release, closure: str) -> Recipe:
    pinned = ort_source.dependencies(request.version) if request.pinned else {}
    triple, machine = ort_cmake.LINUX[request.platform]
    command = (
        *_build_py(request.config),
        *("--cmake_generator", "Ninja"),
        *("--target", "onnxruntime"),
        WHOLE,
        "--compile_no_warning_as_error",
        "--build_shared_lib",
        *(("--enable_lto",) if request.lto else ()),
        *_reduction(request, release, closure),
        # Relative to the build's folder, as CMake reads it.
        *_untested(f"CMAKE_TOOLCHAIN_FILE=../../{ort_cmake.TOOLCHAIN}"),
    )
    compiler = f"{triple}-g++ {row(ort_versions.GCC, release)} or newer, for {machine}"
    needs = ["Linux, not as root", "Ninja", compiler]
    needs += [f"protoc {pinned['protobuf'].version} of the host"] if pinned else []
    product = f"{BUILD}/{request.config}/libonnxruntime.so.{request.version}"
    files = ort_cmake.files(request.platform, SOURCE, pinned, fast=request.kernels == "fast")
    return Recipe(command, tuple(needs), product, files)


# ---------------------------------------------------------------------------------- flags
def _reduction(request: Request, release: Release, closure: str) -> tuple[str, ...]:
    """What makes the build small, by release and by what the configuration holds."""
    flags = ["--minimal_build=extended" if request.extended else "--minimal_build"]
    flags += [f"--use_{provider}" for provider in sorted(request.providers)]
    if request.types:
        flags.append("--enable_reduced_operator_type_support")
    if not needs_ml(closure):
        flags.append("--disable_ml_ops")
    if release >= (1, 25):
        flags.append("--disable_generation_ops")
    if not request.exceptions:
        flags.append("--disable_exceptions")
    return (*flags, "--disable_types", *unused_types(request, release, closure))


def needs_ml(closure: str) -> bool:
    """Whether an operator configuration holds operators of the domain ``ai.onnx.ml``."""
    return re.search(r"^ai\.onnx\.ml;", closure, re.MULTILINE) is not None


def unused_types(request: Request, release: Release, closure: str) -> tuple[str, ...]:
    """Types to leave out; without types in the configuration only what no operator takes."""
    found = {"sparsetensor": True}
    if request.types:
        found["optional"] = not re.search(r"\bOptional", closure)
        found["float8"] = "Float8" not in closure
        found["float4"] = release >= (1, 25) and "Float4" not in closure
    found["string"] = release >= (1, 25) and not request.strings and "std::string" not in closure
    return tuple(sorted(name for name, unused in found.items() if unused))


def _untested(*defines: str) -> tuple[str, ...]:
    words = ("--cmake_extra_defines", "onnxruntime_BUILD_UNIT_TESTS=OFF", *defines)
    return ("--skip_tests", *words) if defines else ("--skip_tests", "=".join(words[:2]))


def _packager(script: str) -> tuple[str, ...]:
    place = f"{SOURCE}/tools/ci_build/github/{script}"
    options = ("--config", "MinSizeRel", "--build_dir", BUILD, "--include_ops_by_config", CONFIG)
    return (PYTHON, place, *options, SETTINGS)


def _build_py(config: str) -> tuple[str, ...]:
    options = ("--build_dir", BUILD, "--config", config, "--parallel")
    return (
        PYTHON,
        f"{SOURCE}/tools/ci_build/build.py",
        *options,
        *("--include_ops_by_config", CONFIG),
    )


def _sources(request: Request) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Commands that bring sources and Python packages, and what must be brought by hand."""
    # Without flatbuffers the type reduction is off, and nothing says so.
    packages = (PYTHON, "-m", "pip", "install", "flatbuffers", "packaging", "numpy")
    python = (("python3", "-m", "venv", ".venv"), packages)
    if not request.pinned:
        return (ort_source.clone_words(request.version, SOURCE), *python), ("git",)
    rows = ort_source.dependencies(request.version)
    needs = [f"{SOURCE}/: the sources of the release, unpacked"]
    needs += [
        f"{DEPENDENCIES}/{name}/: {each.root} of {each.package} (SHA-256 {each.sha256})"
        for name, each in rows.items()
    ]
    return python, tuple(needs)


# --------------------------------------------------------------------------------- checks
def release_of(version: str) -> Release:
    """Major and minor of a version; :class:`errors.ConfigError` for unknown releases."""
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}", version, re.ASCII)
    release = (int(match[1]), int(match[2])) if match else (0, 0)
    if OLDEST <= release <= NEWEST:
        return release
    raise errors.ConfigError(
        f"no build plan is known for onnxruntime {version!r:.40}",
        remedy="take a release from {}.{} to {}.{}".format(*OLDEST, *NEWEST),
    )


def _check(request: Request, release: Release, closure: str) -> None:
    if request.platform not in PROVIDERS:
        raise errors.ConfigError(
            f"no build plan is known for the platform {request.platform!r:.40}",
            remedy=f"platforms: {', '.join(PROVIDERS)}",
        )
    for wrong, message, remedy in _objections(request, release):
        if wrong:
            raise errors.ConfigError(message, remedy=f"{remedy} (target, [runtime.reduced])")
    for line in closure.splitlines():
        if re.match(r"[^#!;]+;[0-9, ]+;.", line) or line.startswith("!no_ops_specified"):
            return
    raise errors.ConfigError(
        "the operator configuration lists no operator: the build would keep none",
        remedy=f"give the {CONFIG} of the artifact",
    )


def _objections(request: Request, release: Release) -> tuple[tuple[bool, str, str], ...]:
    """What can be wrong with a request for a known platform: whether, what, what to do."""
    platform, providers, pinned = request.platform, set(request.providers), request.pinned
    strange = ", ".join(sorted(providers - PROVIDERS[platform]))
    known = ", ".join(sorted(PROVIDERS[platform]))
    fetch = 'say dependencies = "fetched"'
    return (
        (platform == "ios" and release < (1, 18),
         "the Apple build script takes these settings from 1.18 on", "take a later release"),
        (bool(strange), f"{platform} has no provider {strange}", f"it has: {known}"),
        ("webgpu" in providers and release < (1, 20),
         f"onnxruntime {request.version} has no provider webgpu", "take 1.20.0 or later"),
        (bool(providers) and not request.extended,
         "execution providers need an extended minimal build", 'say minimal = "extended"'),
        (pinned and not ort_source.dependencies(request.version),
         f"no dependencies of onnxruntime {request.version} are pinned", fetch),
        (pinned and (platform not in ort_cmake.LINUX or bool(providers)),
         "only builds for Linux without execution providers take pinned dependencies", fetch),
    )  # fmt: skip
