"""The options of ONNX Runtime's build scripts by release, and the check of command lines.

Nothing is run here. :func:`check` holds a command line of ``build.py`` or of one of the two
packagers (Android, Apple) against :data:`OPTIONS`, :func:`check_settings` the packagers' JSON.
The table knows what reduced builds say, and what came and went around it; an option that it
does not know is refused, a shortened one too, though argparse would take it.

How a row is known. Without a comment: read in the parsers of 1.21.0 (a test compares each row
with it), of the main branch of late 2023 (1.17), of mid 2025 (between 1.22 and 1.23) and of 2026
(between 1.28 and 1.32). ``#N``: the pull request that made the change, and its month against the
month of the release's branch; ``at the latest``: the change may be in the release before.

From 1.22 on (#24337) a host's parser has only the options of that host.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeGuard

from edge import errors

Release = tuple[int, int]
Texts = tuple[str, ...]
OLDEST, NEWEST = (1, 17), (1, 32)
SPLIT = (1, 22)  # one parser a host from here on
LINUX, MACOS, WINDOWS = HOSTS = ("linux", "macos", "windows")
MANY = 1000
# Least and most values behind an option, by what it takes.
COUNTS: Mapping[str, tuple[int, int]] = MappingProxyType({
    "none": (0, 0), "one": (1, 1), "optional": (0, 1), "any": (0, MANY), "many": (1, MANY)
})  # fmt: skip
SCRIPTS: Mapping[str, str] = MappingProxyType({
    "build.py": "tools/ci_build/build.py",
    "build_aar_package.py": "tools/ci_build/github/android/build_aar_package.py",
    "build_apple_framework.py": "tools/ci_build/github/apple/build_apple_framework.py",
})  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One period of an option: releases, number of values, what they may be, hosts.

    ``takes`` is a key of :data:`COUNTS`. ``choices``: empty for free text, ``("int",)`` for a
    whole number. ``last`` None: up to the newest release known.
    """

    first: Release = OLDEST
    last: Release | None = None
    takes: str = "none"
    choices: Texts = ()
    hosts: Texts = HOSTS

    def covers(self, release: Release) -> bool:
        """Whether ``release`` lies in this period."""
        return self.first <= release <= (self.last or NEWEST)


Rows = tuple[Option, ...]


def _rows(takes: str = "none", choices: Texts = (), **period: Any) -> Rows:
    return (Option(takes=takes, choices=choices, **period),)


def _of_host(host: str, takes: str = "none", choices: Texts = (), first: Release = OLDEST) -> Rows:
    """Rows of an option that every host's parser had, until they were parted."""
    early = (Option(first, (1, 21), takes, choices),) if first < SPLIT else ()
    return (*early, Option(max(first, SPLIT), None, takes, choices, (host,)))


CONFIGS = ("Debug", "MinSizeRel", "Release", "RelWithDebInfo")
ABIS = ("armeabi-v7a", "arm64-v8a", "x86", "x86_64")
ARCHS = ("arm64", "arm64e", "x86_64")
GENERATORS = ("MinGW Makefiles", "Ninja", "NMake Makefiles", "Unix Makefiles",
              "Visual Studio 17 2022", "Xcode")  # fmt: skip
KINDS = ("static_lib", "shared_lib")
TYPES = ("float8", "optional", "sparsetensor")
INT = ("int",)
PLAIN = """
    --update --build --clean --test --skip_tests --compile_no_warning_as_error --build_shared_lib
    --build_apple_framework --enable_lto --use_cache --skip_submodule_sync --skip_onnx_tests
    --android --android_cpp_shared --android_run_emulator --build_java --build_objc --build_nodejs
    --build_wheel --enable_pybind --build_wasm --build_wasm_static_lib --enable_wasm_simd
    --enable_wasm_threads --disable_wasm_exception_catching --enable_wasm_api_exception_catching
    --enable_wasm_exception_throwing_override --enable_wasm_profiling --enable_wasm_debug_info
    --wasm_run_tests_in_browser --use_extensions --use_mimalloc --use_full_protobuf
    --enable_reduced_operator_type_support --disable_contrib_ops --disable_ml_ops --disable_rtti
    --disable_exceptions --use_nnapi --use_coreml --use_webnn --use_jsep --use_xnnpack
"""
TEXT = """
    --build_dir --cmake_path --ctest_path --path_to_protoc_exe --android_sdk_path
    --android_ndk_path --emsdk_version --wasm_malloc --include_ops_by_config
    --extensions_overridden_path --qnn_home
"""  # --wasm_malloc: deprecated for --emscripten_settings MALLOC=
OPTIONS: Mapping[str, Rows] = MappingProxyType({
    **dict.fromkeys(PLAIN.split(), _rows()),
    **dict.fromkeys(TEXT.split(), _rows("one")),
    "--config": _rows("many", CONFIGS),
    "--parallel": _rows("optional", INT),
    "--target": _rows("one"),
    "--targets": _rows("many", first=(1, 24)),  # #25718, August 2025
    "--cmake_extra_defines": _rows("many"),
    "--cmake_generator": _rows("one", GENERATORS),
    "--cmake_deps_mirror_dir": _rows("one", first=(1, 24)),  # #26042, autumn 2025
    "--skip_pip_install": _rows(first=(1, 24)),  # #25982, October 2025
    "--use_vcpkg": _rows(first=(1, 21)),  # at the latest
    "--use_vcpkg_ms_internal_asset_cache": _rows(first=(1, 21)),  # #23723, February 2025
    # Dependencies of the host: gone with #24337.
    "--use_preinstalled_eigen": _rows(last=(1, 21)),
    "--eigen_path": _rows("one", last=(1, 21)),
    # Size
    "--minimal_build": _rows("any", ("extended", "custom_ops")),
    "--disable_types": (
        Option(last=(1, 23), takes="many", choices=TYPES),
        # #25767: the type is in 1.24.1's library and not in 1.23.2's.
        Option((1, 24), (1, 24), "many", (*TYPES, "float4")),
        Option((1, 25), None, "many", (*TYPES, "float4", "string")),  # #27348, February 2026
    ),
    "--disable_generation_ops": _rows(first=(1, 25)),  # #27369, February 2026
    "--android_abi": _rows("one", ABIS),
    "--android_api": _rows("one", INT),
    "--nnapi_min_api": _rows("one", INT),
    # Apple
    "--ios": _of_host(MACOS),
    "--macos": _of_host(MACOS, "one", ("MacOSX", "Catalyst"), (1, 18)),  # #19534, February 2024
    "--visionos": _of_host(MACOS, first=(1, 19)),  # #20365, April 2024, at the latest
    "--tvos": _of_host(MACOS, first=(1, 22)),  # #24000, March 2025
    "--ios_sysroot": _rows("one", last=(1, 17)),
    "--apple_sysroot": _of_host(MACOS, "one", first=(1, 18)),  # #18550, issue #19526
    "--osx_arch": _of_host(MACOS, "one", ARCHS),
    "--apple_deploy_target": _of_host(MACOS, "one"),
    "--use_xcode": _of_host(MACOS),
    # Browser
    "--emscripten_settings": _rows("many"),
    "--enable_wasm_memory64": _rows(first=(1, 21), last=(1, 22)),  # at the latest, #25181
    "--enable_wasm_relaxed_simd": _rows(first=(1, 22)),  # #22794, after 1.21
    "--enable_wasm_jspi": _rows(first=(1, 24)),  # #26095, September 2025
    "--allow_running_as_root": (Option(last=(1, 21), hosts=(LINUX, MACOS)),
                                Option(SPLIT, hosts=(LINUX,))),
    **{name: _of_host(WINDOWS) for name in ("--x86", "--arm", "--arm64", "--arm64ec")},
    "--no_kleidiai": _rows(first=(1, 22)),
    "--no_sve": _rows(first=(1, 24)),  # in no parser before: at the latest
    "--enable_arm_neon_nchwc": _rows(first=(1, 24)),  # #25580, autumn 2025
    # Execution providers
    "--use_webgpu": (
        Option((1, 20), (1, 24)),  # #22318; the provider is in 1.20.1's library, not in 1.19.2's
        Option((1, 25), None, "optional", KINDS),  # #25705, winter 2025/26, at the latest
    ),
    "--use_qnn": (Option(last=(1, 20)), Option((1, 21), None, "optional", KINDS)),  # at the latest
})  # fmt: skip
AAR: Mapping[str, Rows] = MappingProxyType({
    **dict.fromkeys(("--android_sdk_path", "--android_ndk_path", "--build_dir",
                     "--include_ops_by_config"), _rows("one")),
    "--qnn_path": _rows("one", first=(1, 21)),  # #22296, October 2024, at the latest
    "--config": _rows("one", CONFIGS),
})  # fmt: skip
MAC: Mapping[str, Any] = {"first": (1, 18), "hosts": (MACOS,)}  # build_ios_framework.py before
APPLE: Mapping[str, Rows] = MappingProxyType({
    **dict.fromkeys(("--build_dir", "--include_ops_by_config", "--path_to_protoc_exe"),
                    _rows("one", **MAC)),
    "--config": _rows("one", CONFIGS, **MAC),
    "--build_dynamic_framework": _rows(**MAC),
})  # fmt: skip
TABLES = {"build.py": OPTIONS, "build_aar_package.py": AAR, "build_apple_framework.py": APPLE}

# What an option does not go without: one of these.
FRAMEWORKS = ("--ios", "--macos", "--visionos", "--tvos")
NEEDS = (
    ("--disable_exceptions", ("--minimal_build",)),
    ("--build_apple_framework", FRAMEWORKS),
    ("--macos", ("--build_apple_framework",)),
    ("--ios", ("--use_xcode", "--cmake_generator")),
    ("--ios", ("--apple_deploy_target",)),
    ("--nnapi_min_api", ("--use_nnapi",)),
    ("--use_webnn", ("--build_wasm",)),
)
# CMake ends with FATAL_ERROR for these in a base minimal build.
COMPILING = {f"--use_{name}" for name in ("nnapi", "coreml", "xnnpack", "webnn", "jsep", "webgpu")}


def split(command: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The name of the build script in ``command``, and the words behind it.

    Raises :class:`errors.ConfigError` when no word is a build script.
    """
    for place, word in enumerate(command):
        name = word.rpartition("/")[2]
        if name in SCRIPTS:
            return name, tuple(command[place + 1 :])
    raise errors.ConfigError("the command runs none of ONNX Runtime's build scripts")


def check(words: Sequence[str], release: Release, host: str, script: str = "build.py") -> None:
    """Hold the ``words`` behind ``script`` against what ``release`` takes on ``host``.

    Raises :class:`errors.ConfigError` with all objections.
    """
    said = list(_objections(words, release, host, script))
    if script == "build.py" and not _values(words, "--build_dir"):
        said.append("--build_dir is required")
    _refuse(said, release, script)


def _refuse(said: Sequence[str], release: Release, script: str) -> None:
    if said:
        raise errors.ConfigError(
            f"{script} of onnxruntime {_text(release)}: {'; '.join(dict.fromkeys(said))}",
            remedy="change the request for the reduced runtime, or its release",
        )


def _objections(words: Sequence[str], release: Release, host: str, script: str) -> Iterator[str]:
    if not (OLDEST <= release <= NEWEST and host in HOSTS and script in TABLES):
        yield f"no options are known on {host!r:.40}, only of {_text(OLDEST)} to {_text(NEWEST)}"
        return
    rest: list[str] = []
    for option, values in _groups(words):
        found, surplus = _one_option(option, values, (release, host, script))
        rest += surplus
        yield from found
    wanted = 0 if script == "build.py" else 1
    if len(rest) < wanted:
        yield "the settings file is missing"
    yield from (f"{word!r:.60} belongs to no option" for word in rest[wanted:])
    yield from _rules(words)


def _groups(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option (with its ``=value``) and the plain words behind it; "" before the first."""
    option, values = "", list[str]()
    for word in words:
        if word.startswith(("-", "@")) and not re.fullmatch(r"-\d+", word):
            yield option, values
            option, values = word, []
        else:
            values.append(word)
    yield option, values


def _one_option(
    word: str, values: list[str], where: tuple[Release, str, str]
) -> tuple[list[str], list[str]]:
    """Objections to one option with its values, and the words that are not its own."""
    name, attached, text = word.partition("=")
    if not word:
        return [], values
    row = _row(name, *where)
    if isinstance(row, str):
        return [row], []
    least, most = COUNTS[row.takes]
    if attached:
        own, surplus = [text], values
        said = [f"{name} takes no value ({text!r:.60})"] if most == 0 else []
    else:
        own, surplus = values[:most], values[most:]
        said = [f"{name} lacks its value"] if len(own) < least else []
    if not said:
        found = (_choice(name, value, row, TABLES[where[2]][name]) for value in own)
        said = [text for text in found if text]
    return said, surplus


def _row(name: str, release: Release, host: str, script: str) -> Option | str:
    """The row that holds, or why there is none."""
    rows = TABLES[script].get(name, ())
    if not rows:
        near = difflib.get_close_matches(name, TABLES[script], 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{name!r:.60} is no option that is known{hint}"
    now = next((row for row in rows if row.covers(release)), None)
    if now is None:
        first, last = _text(rows[0].first), _text(rows[-1].last or NEWEST)
        period = f"from {first} on" if release < rows[0].first else f"up to {last}"
        return f"{name} exists {period}, this is {_text(release)}"
    if host in now.hosts:
        return now
    return f"{name} exists on {' and '.join(now.hosts)} only, this is {host}"


def _choice(name: str, value: str, row: Option, rows: Rows) -> str:
    """What is wrong with ``value``; empty for nothing."""
    if row.choices == INT:
        whole = re.fullmatch(r"-?\d{1,9}", value, re.ASCII)
        return "" if whole else f"{name} takes a whole number, not {value!r:.60}"
    if not row.choices or value in row.choices:
        return ""
    since = [f" (from {_text(each.first)} on)" for each in rows if value in each.choices]
    return f"{name} takes {', '.join(row.choices)}, not {value!r:.60}{''.join(since[:1])}"


def _rules(words: Sequence[str]) -> Iterator[str]:
    """What options ask of each other."""
    said = {word.partition("=")[0] for word in words}
    for name, others in NEEDS:
        if name in said and not said & set(others):
            yield f"{name} needs {' or '.join(others)}"
    several = [name for name in FRAMEWORKS if name in said]
    if len(several) > 1:
        yield f"{' and '.join(several)} exclude each other"
    base = "--minimal_build" in said and "extended" not in _values(words, "--minimal_build")
    for name in sorted(COMPILING & said if base else ()):
        yield f"{name} needs an extended minimal build"


def _values(words: Sequence[str], name: str) -> list[str]:
    """All values of the option ``name`` in ``words``."""
    found = list[str]()
    for word, values in _groups(words):
        option, attached, text = word.partition("=")
        if option == name:
            found += [text] if attached else values
    return found


def _text(release: Release) -> str:
    return "{}.{}".format(*release)


# ----------------------------------------------------------------------------- settings
SYSROOTS: Mapping[str, Release] = MappingProxyType({
    "iphoneos": (1, 18), "iphonesimulator": (1, 18), "macosx": (1, 18), "macabi": (1, 18),
    "xros": (1, 19), "xrsimulator": (1, 19), "appletvos": (1, 22), "appletvsimulator": (1, 22),
})  # fmt: skip
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "build_aar_package.py": ("build_abis", "android_min_sdk_version", "android_target_sdk_version",
                             "build_params"),
    "build_apple_framework.py": ("build_osx_archs", "build_params"),
})  # fmt: skip
NEEDED = ("--android", "--build_java")
NO_TESTS = "onnxruntime_BUILD_UNIT_TESTS=OFF"


def check_settings(settings: Mapping[str, object], release: Release, script: str) -> None:
    """Hold the JSON settings of the packager ``script`` against what ``release`` takes.

    Raises :class:`errors.ConfigError` with all objections.
    """
    if script not in KEYS:
        raise errors.ConfigError(f"{script!r:.60} takes no settings", remedy=f"{', '.join(KEYS)}")
    said = [f"no key {key!r:.60}" for key in settings if key not in KEYS[script]]
    if "build_params" not in settings:
        said.append("build_params is required")
    elif script == "build_aar_package.py":
        said += _android(settings, release)
    else:
        said += _apple(settings, release)
    _refuse(said, release, script)


def _android(settings: Mapping[str, object], release: Release) -> Iterator[str]:
    abis = settings.get("build_abis", list(ABIS))
    strange = [abi for abi in abis if abi not in ABIS] if abis and _texts(abis) else [abis]
    yield from (f"no ABI {abi!r:.40}" for abi in strange)
    least = settings.get("android_min_sdk_version", 24)
    target = settings.get("android_target_sdk_version", 34)
    if type(least) is not int or type(target) is not int:  # neither is True
        yield "android_min_sdk_version and android_target_sdk_version are whole numbers"
    elif least > target:
        yield f"android_min_sdk_version {least} is above android_target_sdk_version {target}"
    words = settings["build_params"]
    if not _texts(words):
        yield "build_params is a list of words"
        return
    yield from _objections(words, release, LINUX, "build.py")
    yield from (f"build_params lacks {word}" for word in NEEDED if word not in words)
    # From 1.20 on (#21730, August 2024) it looks whether the test programs are there.
    if release < (1, 20) and NO_TESTS in _values(words, "--cmake_extra_defines"):
        yield f"{NO_TESTS}: this packager copies onnxruntime_perf_test and onnx_test_runner"


def _apple(settings: Mapping[str, object], release: Release) -> Iterator[str]:
    archs = settings.get("build_osx_archs", {"iphoneos": [ARCHS[0]]})
    params = settings["build_params"]
    if not (archs and _lists(archs) and _lists(params)):
        yield "build_osx_archs and build_params are lists of words by SDK"
        return
    for sysroot, each in archs.items():
        if release < SYSROOTS.get(sysroot, (9, 9)):
            yield f"build_osx_archs: no SDK {sysroot!r:.40} in {_text(release)}"
        yield from (f"no architecture {arch!r:.40}" for arch in each if arch not in ARCHS)
        missing = [key for key in ("base", sysroot) if key not in params]
        yield from (f"build_params lacks {key!r:.40}" for key in missing)
        if not missing:
            words = [*params["base"], *params[sysroot]]
            yield from _objections(words, release, MACOS, "build.py")


def _texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _lists(value: object) -> TypeGuard[dict[str, list[str]]]:
    return isinstance(value, dict) and all(_texts(words) for words in value.values())
