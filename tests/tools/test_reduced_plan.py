"""The plan for a reduced runtime: flags by release, settings, the same bytes every time."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.tools import ort_source
from edge.tools.reduced_plan import (
    CONFIG,
    PROVIDERS,
    SETTINGS,
    Plan,
    Request,
    from_json,
    make_plan,
    write,
)

CLOSURE = """\
# Generated from model.ort
!globally_allowed_types;float
ai.onnx;7,13;Add,Gemm
com.microsoft;1;FusedConv
"""
ANDROID = Request("1.29.0", "android")


def settings(plan: Plan) -> Any:
    return json.loads(plan.files[SETTINGS])


def build(plan: Plan) -> tuple[str, ...]:
    return plan.commands[-1]


def flags(plan: Plan) -> list[str]:
    """The build's flags, wherever this platform keeps them."""
    if SETTINGS not in plan.files:
        return list(build(plan))
    params = settings(plan)["build_params"]
    return list(params["base"] if isinstance(params, dict) else params)


# ------------------------------------------------------------------------------ platforms
def test_android_settings_and_command() -> None:
    plan = make_plan(replace(ANDROID, abis=("arm64-v8a", "x86_64"), min_sdk=26), CLOSURE)
    assert settings(plan) == {
        "build_abis": ["arm64-v8a", "x86_64"],
        "android_min_sdk_version": 26,
        "android_target_sdk_version": 34,
        "build_params": [
            "--enable_lto",
            "--android",
            "--parallel",
            "--cmake_generator=Ninja",
            "--build_java",
            "--build_shared_lib",
            "--skip_submodule_sync",
            "--minimal_build=extended",
            "--enable_reduced_operator_type_support",
            "--disable_ml_ops",
            "--disable_generation_ops",
            "--disable_types",
            "float4",
            "float8",
            "optional",
            "sparsetensor",
            "--skip_tests",
            "--cmake_extra_defines=onnxruntime_BUILD_UNIT_TESTS=OFF",
            "--cmake_extra_defines=ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON",
        ],
    }
    assert shlex.join(build(plan)) == (
        ".venv/bin/python onnxruntime/tools/ci_build/github/android/build_aar_package.py "
        "--config MinSizeRel --build_dir build --include_ops_by_config "
        "required_operators_and_types.config settings.json"
    )
    assert plan.product.endswith("/onnxruntime-android/1.29.0/onnxruntime-android-1.29.0.aar")
    assert "ANDROID_NDK_HOME: the Android NDK 28.0.13004108" in plan.needs


def test_ios_settings_and_command() -> None:
    plan = make_plan(Request("1.29.0", "ios", ios_deployment_target="16.0"), CLOSURE)
    found = settings(plan)
    target = ["--ios", "--apple_deploy_target=16.0"]
    assert found["build_osx_archs"] == {"iphoneos": ["arm64"], "iphonesimulator": ["arm64"]}
    assert found["build_params"]["iphoneos"] == found["build_params"]["iphonesimulator"] == target
    base = found["build_params"]["base"]
    assert base[:3] == ["--parallel", "--use_xcode", "--build_apple_framework"]
    assert "--minimal_build=extended" in base
    assert build(plan)[1].endswith("apple/build_apple_framework.py")
    assert build(plan)[-1] == SETTINGS
    assert any("macOS" in need for need in plan.needs)


def test_older_ios_builds_intel_simulators_too() -> None:
    plan = make_plan(Request("1.23.0", "ios"), CLOSURE)
    assert settings(plan)["build_osx_archs"]["iphonesimulator"] == ["arm64", "x86_64"]


def test_browser_command() -> None:
    plan = make_plan(Request("1.30.0", "browser"), CLOSURE)
    words = build(plan)
    for flag in ("--build_wasm", "--enable_wasm_simd", "--enable_wasm_threads",
                 "--enable_wasm_api_exception_catching", "--skip_tests"):  # fmt: skip
        assert flag in words
    assert words[words.index("--target") + 1] == "onnxruntime_webassembly"
    assert words[words.index("--config") + 1] == "Release"
    assert SETTINGS not in plan.files
    assert plan.product == "build/Release/ort-wasm-simd-threaded.wasm"


@pytest.mark.parametrize(
    ("version", "emsdk"),
    [("1.17.3", "3.1.51"), ("1.18.0", "3.1.57"), ("1.20.1", "3.1.59"), ("1.21.0", "4.0.3"),
     ("1.23.2", "4.0.8"), ("1.30.0", "4.0.23")],
)  # fmt: skip
def test_emsdk_by_release(version: str, emsdk: str) -> None:
    plan = make_plan(Request(version, "browser"), CLOSURE)
    assert f"emsdk {emsdk}, which build.py itself installs" in plan.needs
    assert not [word for word in build(plan) if "emsdk" in word]


@pytest.mark.parametrize(
    ("platform", "compiler"),
    [
        ("linux-x64", "x86_64-linux-gnu-g++ 11 or newer, for x86_64"),
        ("linux-arm64", "aarch64-linux-gnu-g++ 11 or newer, for aarch64"),
        ("linux-armhf", "arm-linux-gnueabihf-g++ 11 or newer, for armv7l"),
    ],
)
def test_linux_command(platform: str, compiler: str) -> None:
    plan = make_plan(Request("1.32.0", platform), CLOSURE)
    words = build(plan)
    for flag in ("--build_shared_lib", "--skip_submodule_sync", "--compile_no_warning_as_error"):
        assert flag in words
    assert words[words.index("--cmake_generator") + 1] == "Ninja"
    assert words[words.index("--target") + 1] == "onnxruntime"
    assert "--enable_lto" not in words
    assert plan.needs[2:] == ("git", "Linux, not as root", "Ninja", compiler)
    assert plan.product == "build/MinSizeRel/libonnxruntime.so.1.32.0"
    assert sorted(plan.files) == ["compile_options.cmake", CONFIG, "toolchain.cmake"]


@pytest.mark.parametrize("platform", ["linux-x64", "linux-arm64", "linux-armhf"])
def test_the_toolchain_file_is_found_from_the_folder_that_cmake_runs_in(platform: str) -> None:
    plan = make_plan(Request("1.21.0", platform, config="Release"), CLOSURE)
    words = build(plan)
    place = Path(words[words.index("--build_dir") + 1]) / words[words.index("--config") + 1]
    assert words[-3:-1] == ("--cmake_extra_defines", "onnxruntime_BUILD_UNIT_TESTS=OFF")
    name, _, path = words[-1].partition("=")
    assert name == "CMAKE_TOOLCHAIN_FILE"
    assert os.path.normpath(place / path) in plan.files
    assert plan.product == "build/Release/libonnxruntime.so.1.21.0"


def test_a_linux_build_as_it_is_wished() -> None:
    request = Request("1.21.0", "linux-x64", lto=True, config="Release", kernels="small")
    plan = make_plan(request, CLOSURE)
    assert "--enable_lto" in build(plan)
    assert build(plan)[build(plan).index("--config") + 1] == "Release"
    fast = make_plan(replace(request, kernels="fast"), CLOSURE)
    differ = {name for name in plan.files if plan.files[name] != fast.files[name]}
    assert differ == {"compile_options.cmake"}


def test_pinned_sources_are_needed_and_not_fetched() -> None:
    plan = make_plan(Request("1.21.0", "linux-x64", pinned=True), CLOSURE)
    assert [words[:2] for words in plan.fetch] == [
        ("python3", "-m"),
        (".venv/bin/python", "-m"),
    ]
    needs = "\n".join(plan.needs)
    assert "onnxruntime/: the sources of the release, unpacked" in plan.needs
    assert "protoc 3.21.12 of the host" in plan.needs
    for name, row in ort_source.dependencies("1.21.0").items():
        assert f"dependencies/{name}/: {row.root} of {row.package}" in needs
        assert row.sha256 in needs


# ---------------------------------------------------------------------------------- flags
@pytest.mark.parametrize("platform", PROVIDERS)
@pytest.mark.parametrize("version", ["1.18.0", "1.24.2", "1.25.0", "1.32.0"])
def test_flags_that_only_newer_releases_know(platform: str, version: str) -> None:
    new = version >= "1.25"
    found = flags(make_plan(Request(version, platform, strings=False), CLOSURE))
    assert ("--disable_generation_ops" in found) is new
    assert ("float4" in found) is new
    assert ("string" in found) is new
    assert "float8" in found
    assert "--disable_contrib_ops" not in found


def test_machine_learning_operators_stay_when_they_are_needed() -> None:
    closure = CLOSURE + "ai.onnx.ml;3;TreeEnsembleClassifier\n"
    assert "--disable_ml_ops" not in flags(make_plan(ANDROID, closure))


def test_types_that_the_configuration_names_stay() -> None:
    closure = CLOSURE + (
        'ai.onnx;19;Cast{"inputs": {"0": ["Float8E4M3FN", "std::string"]}},OptionalHasElement\n'
    )
    found = flags(make_plan(replace(ANDROID, strings=False), closure))
    start = found.index("--disable_types")
    assert found[start + 1 : start + 3] == ["float4", "sparsetensor"]


def test_without_type_reduction_types_are_kept() -> None:
    found = flags(make_plan(replace(ANDROID, types=False), CLOSURE))
    assert "--enable_reduced_operator_type_support" not in found
    start = found.index("--disable_types")
    assert found[start + 1 : start + 3] == ["sparsetensor", "--skip_tests"]


def test_base_minimal_build_without_exceptions() -> None:
    found = flags(make_plan(replace(ANDROID, extended=False, exceptions=False), CLOSURE))
    assert "--minimal_build" in found
    assert "--minimal_build=extended" not in found
    assert "--disable_exceptions" in found


def test_providers() -> None:
    found = flags(make_plan(replace(ANDROID, providers=("xnnpack", "nnapi")), CLOSURE))
    assert [flag for flag in found if flag.startswith("--use_")] == ["--use_nnapi", "--use_xnnpack"]


# ------------------------------------------------------------------------------- the plan
def test_source_is_the_release_tag() -> None:
    clone = make_plan(ANDROID, CLOSURE).commands[0]
    assert clone[clone.index("--branch") + 1] == "v1.29.0"
    assert clone[:2] == ("git", "clone")
    assert "--recurse-submodules" in clone


def test_flatbuffers_is_installed_before_the_build() -> None:
    plan = make_plan(ANDROID, CLOSURE)
    assert any("flatbuffers" in words for words in plan.commands[:-1])


@pytest.mark.parametrize("platform", PROVIDERS)
def test_paths_are_relative_and_stay_in_the_folder(platform: str) -> None:
    plan = make_plan(Request("1.30.0", platform), CLOSURE)
    words = [word for command in plan.commands for word in command]
    up = [word for word in words if ".." in word]
    # From build/CONFIG, where CMake runs, to the plan's own folder.
    linux = platform.startswith("linux")
    assert up == (["CMAKE_TOOLCHAIN_FILE=../../toolchain.cmake"] if linux else [])
    places = [*words, *plan.files, plan.product]
    assert not [word for word in places if word.startswith("/") or "=/" in word]


@pytest.mark.parametrize("platform", PROVIDERS)
def test_all_commands_are_those_that_fetch_and_the_one_that_builds(platform: str) -> None:
    plan = make_plan(Request("1.30.0", platform), CLOSURE)
    assert plan.commands == (*plan.fetch, plan.build)
    assert plan.fetch[0] == ort_source.clone_words("1.30.0", "onnxruntime")
    assert plan.build[0] == plan.fetch[2][0] == ".venv/bin/python"


@pytest.mark.parametrize("platform", PROVIDERS)
def test_written_files(tmp_path: Path, platform: str) -> None:
    plan = make_plan(Request("1.30.0", platform), CLOSURE.rstrip("\n"))
    write(plan, tmp_path / "a")
    write(make_plan(Request("1.30.0", platform), CLOSURE.rstrip("\n")), tmp_path / "b")
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    names = sorted(path.relative_to(tmp_path / "a").as_posix() for path in files)
    assert names == sorted({CONFIG, "plan.json", "plan.sh", *plan.files})
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / CONFIG).read_text() == CLOSURE
    assert (tmp_path / "a" / "plan.sh").stat().st_mode & 0o777 == 0o755


def test_json_says_planned_and_the_same_commands_as_the_script(tmp_path: Path) -> None:
    plan = make_plan(ANDROID, CLOSURE)
    write(plan, tmp_path)
    said = json.loads((tmp_path / "plan.json").read_text())
    script = (tmp_path / "plan.sh").read_text()
    assert said["state"] == "planned"
    assert said["files"] == [CONFIG, SETTINGS]
    lines = script.partition('cd "$(dirname "$0")"\n')[2].splitlines()
    assert [shlex.split(line) for line in lines] == said["commands"]
    assert "Planned, not built: a reduced ONNX Runtime 1.29.0 for android." in script


# --------------------------------------------------------------------------------- checks
@pytest.mark.parametrize("version", ["1.16.3", "1.33.0", "main", "1.29", "1.29.0; rm -rf /", ""])
def test_unknown_release(version: str) -> None:
    with pytest.raises(
        errors.ConfigError, match="no build plan is known for onnxruntime"
    ) as caught:
        make_plan(Request(version, "android"), CLOSURE)
    assert "1.17 to 1.32" in caught.value.remedy


def test_unknown_platform() -> None:
    with pytest.raises(errors.ConfigError, match="platform 'tvos'"):
        make_plan(Request("1.29.0", "tvos"), CLOSURE)


LINUX = Request("1.21.0", "linux-x64", pinned=True)


@pytest.mark.parametrize(
    ("request_", "message", "remedy"),
    [
        (Request("1.17.0", "ios"), "from 1.18 on", "take a later release"),
        (replace(ANDROID, providers=("coreml",)), "android has no provider coreml",
         "it has: nnapi, webgpu, xnnpack"),
        (replace(ANDROID, providers=("nnapi",), extended=False),
         "execution providers need an extended minimal build", 'say minimal = "extended"'),
        (Request("1.19.2", "browser", providers=("webgpu",)),
         "onnxruntime 1.19.2 has no provider webgpu", "take 1.20.0 or later"),
        (replace(LINUX, version="1.20.1"), "no dependencies of onnxruntime 1.20.1 are pinned",
         'say dependencies = "fetched"'),
        (replace(LINUX, platform="android"), "only builds for Linux", "fetched"),
        (replace(LINUX, providers=("xnnpack",)), "without execution providers", "fetched"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_with_what_to_do(
    request_: Request, message: str, remedy: str
) -> None:
    with pytest.raises(errors.ConfigError, match=re.escape(message)) as caught:
        make_plan(request_, CLOSURE)
    assert remedy in caught.value.remedy
    assert "[runtime.reduced]" in caught.value.remedy


def test_webgpu_from_its_first_release_on() -> None:
    assert "--use_webgpu" in flags(
        make_plan(Request("1.20.0", "browser", providers=("webgpu",)), CLOSURE)
    )


@pytest.mark.parametrize(("version", "told"), [("1.19.2", False), ("1.20.0", True)])
def test_test_programs_that_old_packagers_want(version: str, told: bool) -> None:
    found = flags(make_plan(replace(ANDROID, version=version), CLOSURE))
    assert "--skip_tests" in found
    assert ("--cmake_extra_defines=onnxruntime_BUILD_UNIT_TESTS=OFF" in found) is told


@pytest.mark.parametrize("platform", PROVIDERS)
def test_sources_without_git_are_taken_as_they_are(platform: str) -> None:
    assert "--skip_submodule_sync" in flags(make_plan(Request("1.21.0", platform), CLOSURE))


@pytest.mark.parametrize("version", ["1.19.2", "1.22.0", "1.29.0"])
def test_android_libraries_load_on_16_kb_pages(version: str) -> None:
    found = flags(make_plan(replace(ANDROID, version=version), CLOSURE))
    assert "--cmake_extra_defines=ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON" in found


def test_a_request_comes_back_from_json() -> None:
    request = replace(ANDROID, abis=("x86", "x86_64"), providers=("nnapi",))
    assert from_json(json.loads(json.dumps(asdict(request)))) == request


@pytest.mark.parametrize("closure", ["", "# nothing\n", "!globally_allowed_types;float\n", "Add\n"])
def test_configuration_that_would_keep_nothing(closure: str) -> None:
    with pytest.raises(errors.ConfigError, match="lists no operator"):
        make_plan(ANDROID, closure)


def test_configuration_that_asks_for_all_operators() -> None:
    assert make_plan(ANDROID, "!no_ops_specified_means_all_ops_are_required\n").commands


@given(st.text(max_size=60))
def test_no_text_of_a_configuration_reaches_a_command(text: str) -> None:
    plan = make_plan(ANDROID, f"{CLOSURE}# {text}")
    assert plan.commands == make_plan(ANDROID, CLOSURE).commands
