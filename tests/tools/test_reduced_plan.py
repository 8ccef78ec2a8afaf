"""The plan for a reduced runtime: flags by release, settings, the same bytes every time."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.tools.reduced_plan import CONFIG, PROVIDERS, SETTINGS, Plan, Request, make_plan, write

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
    ("platform", "machine"), [("linux-x64", "x86_64"), ("linux-arm64", "aarch64")]
)
def test_linux_command(platform: str, machine: str) -> None:
    plan = make_plan(Request("1.32.0", platform), CLOSURE)
    assert "--build_shared_lib" in build(plan)
    assert f"Linux on {machine}, not as root" in plan.needs
    assert plan.product == "build/MinSizeRel/libonnxruntime.so.1.32.0"


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
def test_paths_are_relative(platform: str) -> None:
    plan = make_plan(Request("1.30.0", platform), CLOSURE)
    words = [word for command in plan.commands for word in command]
    assert not [word for word in words if word.startswith("/") or ".." in word]


@pytest.mark.parametrize("platform", PROVIDERS)
def test_written_files(tmp_path: Path, platform: str) -> None:
    plan = make_plan(Request("1.30.0", platform), CLOSURE.rstrip("\n"))
    write(plan, tmp_path / "a")
    write(make_plan(Request("1.30.0", platform), CLOSURE.rstrip("\n")), tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
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
    assert said["state"] == plan.state == "planned"
    assert said["files"] == [CONFIG, SETTINGS]
    lines = script.partition('cd "$(dirname "$0")"\n')[2].splitlines()
    assert [shlex.split(line) for line in lines] == said["commands"]
    assert "Planned, never built" in script


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


def test_ios_before_its_script_changed() -> None:
    with pytest.raises(errors.ConfigError, match=r"from 1\.18 on"):
        make_plan(Request("1.17.0", "ios"), CLOSURE)


def test_provider_of_another_platform() -> None:
    with pytest.raises(errors.ConfigError, match="android has no provider coreml"):
        make_plan(replace(ANDROID, providers=("coreml",)), CLOSURE)


def test_provider_needs_an_extended_build() -> None:
    with pytest.raises(errors.ConfigError, match="extended"):
        make_plan(replace(ANDROID, providers=("nnapi",), extended=False), CLOSURE)


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
