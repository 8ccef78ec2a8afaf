"""The exact plan for building a reduced ONNX Runtime: only the operators and types that are needed.

Nothing is built here. A plan is data: files, commands as lists of words, what they need. It is
the same for the same request on every machine (relative paths only, no times), and it is marked
``planned``. The flags are those of onnxruntime's own build scripts by release, 1.17 to 1.32.

What is never said, and why: ``--disable_contrib_ops`` (a fully optimized ``.ort`` file holds
``com.microsoft`` operators, XNNPACK needs them too) and ``--emsdk_version`` (the default of the
release's own ``build.py`` is the tested one).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge import errors

CONFIG = "required_operators_and_types.config"
SETTINGS = "settings.json"
REPOSITORY = "https://github.com/microsoft/onnxruntime.git"
SOURCE = "onnxruntime"
BUILD = "build"
PYTHON = ".venv/bin/python"
OLDEST, NEWEST = (1, 17), (1, 32)
# Execution providers that can be compiled in; all of them need an extended minimal build.
PROVIDERS: Mapping[str, frozenset[str]] = {
    "android": frozenset({"nnapi", "xnnpack", "webgpu"}),
    "ios": frozenset({"coreml", "xnnpack"}),
    "browser": frozenset({"webgpu", "webnn"}),
    "linux-x64": frozenset({"xnnpack"}),
    "linux-arm64": frozenset({"xnnpack"}),
}
# The first release of each row. Versions between the rows' tested releases follow the row before.
EMSDK = (((1, 17), "3.1.51"), ((1, 18), "3.1.57"), ((1, 19), "3.1.59"), ((1, 21), "4.0.3"),
         ((1, 22), "4.0.4"), ((1, 23), "4.0.8"), ((1, 24), "4.0.23"))  # fmt: skip
NDK = (((1, 17), "26 or newer"), ((1, 20), "27.0.12077973"), ((1, 21), "27.2.12479018"),
       ((1, 24), "28.0.13004108"))  # fmt: skip
CMAKE = (((1, 17), "3.26"), ((1, 21), "3.28"))
PYTHON_VERSION = (((1, 17), "3.8"), ((1, 20), "3.10"), ((1, 24), "3.11"))


@dataclass(frozen=True)
class Request:
    """What reduced runtime is wanted.

    ``platform`` is that of a target. ``extended``: needed for execution providers and for files
    of the converter's style Runtime. ``types``: also drop the types that no operator uses.
    ``exceptions``: without them an error ends the process. ``strings``: keep string tensors
    (dropping them is possible from 1.25). ``abis``, ``min_sdk``, ``target_sdk`` for Android.
    """

    version: str
    platform: str
    extended: bool = True
    types: bool = True
    exceptions: bool = True
    strings: bool = True
    providers: tuple[str, ...] = ()
    abis: tuple[str, ...] = ("arm64-v8a",)
    min_sdk: int = 24
    target_sdk: int = 34
    ios_deployment_target: str = "15.1"


@dataclass(frozen=True)
class Plan:
    """Files by relative name, commands to be run in their folder, what must be there before.

    ``product`` is where the result appears. ``state`` is always ``planned``.
    """

    version: str
    platform: str
    files: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...]
    product: str
    state: str = "planned"

    def to_json(self) -> str:
        """The plan as JSON text, without the files' contents."""
        content = {
            "state": self.state,
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
            f"# Planned, never built: a reduced ONNX Runtime {self.version} for {self.platform}.\n"
            f"# Needed:\n{needs}"
            f"# The result: {self.product}\n"
            'set -eu\ncd "$(dirname "$0")"\n' + "".join(f"{shlex.join(c)}\n" for c in self.commands)
        )


def write(plan: Plan, out: Path) -> None:
    """Write the plan's files, ``plan.json`` and ``plan.sh`` into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    made = {**plan.files, "plan.json": plan.to_json(), "plan.sh": plan.to_shell()}
    for name, text in sorted(made.items()):
        (out / name).write_text(text, encoding="utf-8", newline="\n")
        (out / name).chmod(0o755 if name.endswith(".sh") else 0o644)


def make_plan(request: Request, closure: str) -> Plan:
    """The plan for ``request`` with the text of an operator configuration.

    Raises :class:`errors.ConfigError` for a release, platform or provider that no plan is known
    for, and for a configuration that keeps no operator at all.
    """
    release = _release(request)
    _check(request, release, closure)
    recipe = {"android": _android, "ios": _ios, "browser": _browser}.get(request.platform, _linux)
    settings, command, needs, product = recipe(request, release, closure)
    files = {CONFIG: closure if closure.endswith("\n") else closure + "\n"}
    if settings:
        files[SETTINGS] = json.dumps(settings, indent=2) + "\n"
    return Plan(
        request.version,
        request.platform,
        files,
        (*_fetch(request.version), command),
        (*_common_needs(release), *needs),
        product,
    )


# ------------------------------------------------------------------------------ platforms
Release = tuple[int, int]
Recipe = tuple[dict[str, object], tuple[str, ...], tuple[str, ...], str]


def _android(request: Request, release: Release, closure: str) -> Recipe:
    base = ("--enable_lto", "--android", "--parallel", "--cmake_generator=Ninja", "--build_java",
            "--build_shared_lib")  # fmt: skip
    settings: dict[str, object] = {
        "build_abis": list(request.abis),
        "android_min_sdk_version": request.min_sdk,
        "android_target_sdk_version": request.target_sdk,
        "build_params": [*base, *_reduction(request, release, closure), *_untested()],
    }
    needs = (
        "JDK 17",
        "Ninja",
        "ANDROID_HOME: the Android SDK",
        f"ANDROID_NDK_HOME: the Android NDK {_row(NDK, release)}",
    )
    name = "onnxruntime-android"
    product = f"{BUILD}/aar_out/MinSizeRel/com/microsoft/onnxruntime/{name}/{request.version}"
    command = _packager("android/build_aar_package.py")
    return settings, command, needs, f"{product}/{name}-{request.version}.aar"


def _ios(request: Request, release: Release, closure: str) -> Recipe:
    target = ["--ios", f"--apple_deploy_target={request.ios_deployment_target}"]
    simulator = ["arm64"] if release >= (1, 24) else ["arm64", "x86_64"]
    base = ("--parallel", "--use_xcode", "--build_apple_framework")
    settings: dict[str, object] = {
        "build_osx_archs": {"iphoneos": ["arm64"], "iphonesimulator": simulator},
        "build_params": {
            "base": [*base, *_reduction(request, release, closure), *_untested()],
            "iphoneos": target,
            "iphonesimulator": target,
        },
    }
    needs = ("macOS with Xcode 15 or newer",)
    product = f"{BUILD}/framework_out/onnxruntime.xcframework"
    return settings, _packager("apple/build_apple_framework.py"), needs, product


def _browser(request: Request, release: Release, closure: str) -> Recipe:
    command = (
        *_build_py("Release"),
        "--build_wasm",
        "--enable_wasm_simd",
        "--enable_wasm_threads",
        "--enable_wasm_api_exception_catching",
        *("--target", "onnxruntime_webassembly"),
        *_reduction(request, release, closure),
        *_untested(),
    )
    needs = (f"emsdk {_row(EMSDK, release)}, which build.py itself installs", "Node.js 20 or newer")
    suffix = ".asyncify" if "webgpu" in request.providers else ""
    return {}, command, needs, f"{BUILD}/Release/ort-wasm-simd-threaded{suffix}.wasm"


def _linux(request: Request, release: Release, closure: str) -> Recipe:
    machine = "aarch64" if request.platform == "linux-arm64" else "x86_64"
    command = (
        *_build_py("MinSizeRel"),
        "--build_shared_lib",
        "--enable_lto",
        *_reduction(request, release, closure),
        *_untested(),
    )
    compiler = (
        "with C++20 (GCC 11 or newer)" if release >= (1, 25) else "with C++17 (GCC 9 or newer)"
    )
    # build.py has no cross build for Linux (onnxruntime #20460): it runs where its result runs.
    needs = (f"Linux on {machine}, not as root", f"a compiler {compiler}")
    return {}, command, needs, f"{BUILD}/MinSizeRel/libonnxruntime.so.{request.version}"


# ---------------------------------------------------------------------------------- flags
def _reduction(request: Request, release: Release, closure: str) -> tuple[str, ...]:
    """What makes the build small, by release and by what the configuration holds."""
    flags = ["--minimal_build=extended" if request.extended else "--minimal_build"]
    flags += [f"--use_{provider}" for provider in sorted(request.providers)]
    if request.types:
        flags.append("--enable_reduced_operator_type_support")
    if not re.search(r"^ai\.onnx\.ml;", closure, re.MULTILINE):
        flags.append("--disable_ml_ops")
    if release >= (1, 25):
        flags.append("--disable_generation_ops")
    if not request.exceptions:
        flags.append("--disable_exceptions")
    return (*flags, "--disable_types", *_unused_types(request, release, closure))


def _unused_types(request: Request, release: Release, closure: str) -> tuple[str, ...]:
    """Types to leave out; without types in the configuration only what no operator takes."""
    found = {"sparsetensor": True}
    if request.types:
        found["optional"] = not re.search(r"\bOptional", closure)
        found["float8"] = "Float8" not in closure
        found["float4"] = release >= (1, 25) and "Float4" not in closure
    found["string"] = release >= (1, 25) and not request.strings and "std::string" not in closure
    return tuple(sorted(name for name, unused in found.items() if unused))


def _untested() -> tuple[str, ...]:
    return ("--skip_tests", "--cmake_extra_defines=onnxruntime_BUILD_UNIT_TESTS=OFF")


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


def _fetch(version: str) -> tuple[tuple[str, ...], ...]:
    clone = ("git", "clone", "--depth", "1", "--branch", f"v{version}", "--recurse-submodules",
             "--shallow-submodules", REPOSITORY, SOURCE)  # fmt: skip
    return (
        clone,
        ("python3", "-m", "venv", ".venv"),
        # Without flatbuffers the type reduction is off, and nothing says so.
        (PYTHON, "-m", "pip", "install", "flatbuffers", "packaging"),
    )


def _common_needs(release: Release) -> tuple[str, ...]:
    return (
        "git",
        f"Python {_row(PYTHON_VERSION, release)} or newer",
        f"CMake {_row(CMAKE, release)} or newer",
    )


# --------------------------------------------------------------------------------- checks
def _release(request: Request) -> Release:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.\d{1,3}", request.version, re.ASCII)
    release = (int(match[1]), int(match[2])) if match else (0, 0)
    if OLDEST <= release <= NEWEST:
        return release
    raise errors.ConfigError(
        f"no build plan is known for onnxruntime {request.version!r:.40}",
        remedy="take a release from {}.{} to {}.{}".format(*OLDEST, *NEWEST),
    )


def _check(request: Request, release: Release, closure: str) -> None:
    if request.platform not in PROVIDERS:
        raise errors.ConfigError(
            f"no build plan is known for the platform {request.platform!r:.40}",
            remedy=f"platforms: {', '.join(PROVIDERS)}",
        )
    if request.platform == "ios" and release < (1, 18):
        raise errors.ConfigError("the Apple build script takes these settings from 1.18 on")
    strange = sorted(set(request.providers) - PROVIDERS[request.platform])
    if strange:
        raise errors.ConfigError(f"{request.platform} has no provider {', '.join(strange)}")
    if request.providers and not request.extended:
        raise errors.ConfigError("execution providers need an extended minimal build")
    for line in closure.splitlines():
        if re.match(r"[^#!;]+;[0-9, ]+;.", line) or line.startswith("!no_ops_specified"):
            return
    raise errors.ConfigError(
        "the operator configuration lists no operator: the build would keep none",
        remedy=f"give the {CONFIG} of the artifact",
    )


def _row(table: tuple[tuple[Release, str], ...], release: Release) -> str:
    """The value of the last row that is not newer than ``release``."""
    return next(value for first, value in reversed(table) if first <= release)
