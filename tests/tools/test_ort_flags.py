"""Command lines and settings of reduced builds against the table of options by release."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, process
from edge.tools import ort_flags
from edge.tools.ort_flags import NEWEST, OLDEST, OPTIONS, Release
from edge.tools.reduced_plan import SETTINGS, Plan, Request, make_plan

CLOSURE = "ai.onnx;7,13;Add,Gemm\ncom.microsoft;1;FusedConv\n"
HOST = {"ios": "macos"}
# By platform the first minor release that can carry the plan out.
FIRST = {"linux-x64": 17, "linux-arm64": 17, "android": 20, "ios": 18, "browser": 17}
PROVIDERS = {
    "android": ("nnapi", "xnnpack"),
    "ios": ("coreml", "xnnpack"),
    "browser": ("webnn",),
}
BASE = ("--build_dir", "build")


def requests(version: str, platform: str) -> Iterator[Request]:
    """Several requests: minimal builds, types, exceptions, providers, ABIs."""
    request = Request(version, platform)
    yield request
    yield replace(request, extended=False, exceptions=False)
    yield replace(request, types=False, strings=False)
    yield replace(request, abis=("arm64-v8a", "x86_64"), min_sdk=26)
    for provider in PROVIDERS.get(platform, ("xnnpack",)):
        yield replace(request, providers=(provider,))
    if platform in {"android", "browser"} and release_of(version) >= (1, 20):
        yield replace(request, providers=("webgpu",))


def release_of(version: str) -> Release:
    major, minor, _ = version.split(".")
    return int(major), int(minor)


def check_plan(plan: Plan) -> None:
    """Everything that a plan says to the build scripts."""
    release = release_of(plan.version)
    script, words = ort_flags.split(plan.commands[-1])
    ort_flags.check(words, release, HOST.get(plan.platform, "linux"), script)
    if SETTINGS in plan.files:
        ort_flags.check_settings(json.loads(plan.files[SETTINGS]), release, script)


def objections(words: list[str], release: Release, host: str = "linux", **more: str) -> str:
    with pytest.raises(errors.ConfigError) as caught:
        ort_flags.check([*BASE, *words], release, host, **more)
    return caught.value.message


# ---------------------------------------------------------------------------------- plans
@pytest.mark.parametrize(
    ("platform", "minor"),
    [(name, minor) for name, first in FIRST.items() for minor in range(first, NEWEST[1] + 1)],
)
def test_plans_of_every_release_pass(platform: str, minor: int) -> None:
    for request in requests(f"1.{minor}.0", platform):
        check_plan(make_plan(request, CLOSURE))


@pytest.mark.parametrize("name", ["android", "ios", "browser"])
def test_plans_for_the_shipped_targets_pass(name: str) -> None:
    path = process.PACKAGE_PARENT / "targets" / f"{name}.toml"
    target = tomllib.loads(path.read_text())
    for request in requests(target["runtime"]["version"], target["platform"]):
        check_plan(make_plan(request, CLOSURE))


@pytest.mark.parametrize("minor", [17, 18, 19])
def test_older_packagers_need_the_test_programs(minor: int) -> None:
    plan = make_plan(Request(f"1.{minor}.0", "android"), CLOSURE)
    settings = json.loads(plan.files[SETTINGS])
    settings["build_params"].append("--cmake_extra_defines=onnxruntime_BUILD_UNIT_TESTS=OFF")
    with pytest.raises(errors.ConfigError, match="copies onnxruntime_perf_test"):
        ort_flags.check_settings(settings, (1, minor), "build_aar_package.py")


# ------------------------------------------------------------------------------ the table
def test_rows_of_an_option_follow_each_other() -> None:
    for table in ort_flags.TABLES.values():
        for name, rows in table.items():
            assert re.fullmatch(r"--[a-z0-9_]+", name)
            for row in rows:
                assert OLDEST <= row.first <= (row.last or NEWEST) <= NEWEST
                assert row.takes in ort_flags.COUNTS
                assert row.hosts
                assert not row.choices or row.takes != "none"
            for before, after in pairwise(rows):
                assert before.last == (after.first[0], after.first[1] - 1)


def test_every_need_is_an_option() -> None:
    for name, others in ort_flags.NEEDS:
        assert {name, *others} <= set(OPTIONS)
    assert set(OPTIONS) >= ort_flags.COMPILING


# ------------------------------------------------------------------------- command lines
@pytest.mark.parametrize(
    ("words", "minor", "said"),
    [
        ("--enable_ltoo", 21, "is no option that is known (did you mean --enable_lto?)"),
        ("--enable_lt", 21, "did you mean --enable_lto?"),
        ("--rm-rf", 21, "'--rm-rf' is no option that is known"),
        ("-DFOO=ON", 21, "'-DFOO' is no option that is known"),
        ("@words.txt", 21, "'@words.txt' is no option that is known"),
        ("--", 21, "'--' is no option that is known"),
        ("--disable_generation_ops", 21, "_ops exists from 1.25 on, this is 1.21"),
        ("--use_preinstalled_eigen", 22, "_eigen exists up to 1.21, this is 1.22"),
        ("--eigen_path=e", 32, "--eigen_path exists up to 1.21, this is 1.32"),
        ("--enable_wasm_memory64", 23, "_memory64 exists up to 1.22, this is 1.23"),
        ("--ios_sysroot iphoneos", 18, "--ios_sysroot exists up to 1.17, this is 1.18"),
        ("--apple_sysroot iphoneos", 17, "_sysroot exists from 1.18 on, this is 1.17"),
        ("--cmake_deps_mirror_dir m", 23, "_dir exists from 1.24 on, this is 1.23"),
        ("--use_webgpu", 19, "--use_webgpu exists from 1.20 on, this is 1.19"),
        ("--use_webgpu static_lib", 24, "'static_lib' belongs to no option"),
        ("--use_webgpu=static_lib", 24, "--use_webgpu takes no value ('static_lib')"),
        ("--enable_lto=ON", 21, "--enable_lto takes no value ('ON')"),
        ("--enable_lto ON", 21, "'ON' belongs to no option"),
        ("--target", 21, "--target lacks its value"),
        ("--target a b", 21, "'b' belongs to no option"),
        ("--disable_types", 21, "--disable_types lacks its value"),
        ("--disable_types float4", 23, "not 'float4' (from 1.24 on)"),
        ("--disable_types string", 24, "sparsetensor, float4, not 'string' (from 1.25 on)"),
        ("--disable_types=float8 optional", 21, "'optional' belongs to no option"),
        ("--disable_types float9", 32, "not 'float9'"),
        ("--minimal_build basic", 29, "--minimal_build takes extended, custom_ops, not 'basic'"),
        ("--android_api new", 21, "--android_api takes a whole number, not 'new'"),
        ("--parallel all", 21, "--parallel takes a whole number, not 'all'"),
        ("--config Fast", 21, "Release, RelWithDebInfo, not 'Fast'"),
        ("--disable_exceptions", 21, "--disable_exceptions needs --minimal_build"),
        ("--use_webnn", 21, "--use_webnn needs --build_wasm"),
        ("--minimal_build --use_xnnpack", 21, "--use_xnnpack needs an extended minimal build"),
        ("--minimal_build=custom_ops --use_nnapi", 21, "--use_nnapi needs an extended"),
    ],
)  # fmt: skip
def test_objections(words: str, minor: int, said: str) -> None:
    assert said in objections(words.split(), (1, minor))


def test_a_word_before_every_option() -> None:
    with pytest.raises(errors.ConfigError, match="'ON' belongs to no option"):
        ort_flags.check(["ON", *BASE], (1, 21), "linux")


@pytest.mark.parametrize(
    ("words", "release"),
    [
        (["--minimal_build", "extended", "custom_ops", "--use_xnnpack"], (1, 17)),
        (["--minimal_build=extended", "--use_webgpu"], (1, 20)),
        (["--use_webgpu", "shared_lib"], (1, 25)),
        (["--disable_types", "string", "float4", "float8"], (1, 25)),
        (["--disable_types", "float4"], (1, 24)),
        (["--parallel", "--parallel", "4", "--parallel=-1", "--parallel", "-1"], (1, 21)),
        (["--cmake_extra_defines", "A=-O2 -g", "B=1", "--cmake_extra_defines=C=2"], (1, 32)),
        (["--wasm_malloc", "dlmalloc"], (1, 32)),
        (["--enable_wasm_memory64"], (1, 22)),
    ],
)  # fmt: skip
def test_what_is_taken(words: list[str], release: Release) -> None:
    ort_flags.check([*BASE, *words], release, "linux")


def test_all_objections_come_at_once() -> None:
    said = objections(["--enable_ltoo", "--disable_types", "float9", "--eigen_path"], (1, 29))
    assert said.startswith("build.py of onnxruntime 1.29: ")
    assert [text in said for text in ("--enable_ltoo", "'float9'", "--eigen_path")] == [True] * 3
    assert "\n" not in said


@pytest.mark.parametrize(
    ("word", "host", "only"),
    [("--ios", "linux", "macos"), ("--use_xcode", "linux", "macos"),
     ("--arm64", "linux", "windows"), ("--arm64", "macos", "windows"),
     ("--allow_running_as_root", "macos", "linux")],
)  # fmt: skip
def test_hosts_part_in_1_22(word: str, host: str, only: str) -> None:
    assert f"{word} exists on {only} only, this is {host}" in objections([word], (1, 22), host)
    words = [word, "--use_xcode", "--apple_deploy_target=15.1"] if word == "--ios" else [word]
    ort_flags.check([*BASE, *words], (1, 21), host)
    if only != "windows":
        ort_flags.check([*BASE, *words], (1, 22), only)


def test_root_is_nothing_that_windows_asks_about() -> None:
    assert "exists on linux and macos only" in objections(
        ["--allow_running_as_root"], (1, 21), "windows"
    )


def test_frameworks_exclude_each_other() -> None:
    words = ["--ios", "--visionos", "--use_xcode", "--apple_deploy_target=2.0"]
    assert "--ios and --visionos exclude each other" in objections(words, (1, 24), "macos")


def test_the_build_folder_is_required() -> None:
    with pytest.raises(errors.ConfigError, match="--build_dir is required"):
        ort_flags.check(["--enable_lto"], (1, 21), "linux")


@pytest.mark.parametrize(
    ("release", "host", "script"),
    [((1, 16), "linux", "build.py"), ((1, 33), "linux", "build.py"), ((1, 21), "beos", "build.py"),
     ((1, 21), "linux", "setup.py")],
)  # fmt: skip
def test_what_no_table_is_for(release: Release, host: str, script: str) -> None:
    assert "no options are known" in objections([], release, host, script=script)


@given(st.lists(st.text(max_size=12) | st.sampled_from(sorted(OPTIONS)), max_size=8))
def test_whatever_is_said_the_answer_is_an_objection_or_none(words: list[str]) -> None:
    taken = False
    with contextlib.suppress(errors.ConfigError):
        ort_flags.check(words, (1, 24), "macos")
        taken = True
    assert not taken or "--build_dir" in {word.partition("=")[0] for word in words}


@given(st.from_regex(r"--[a-z_]{1,20}(=.{0,9})?", fullmatch=True))
def test_an_unknown_option_is_never_taken(word: str) -> None:
    if word.partition("=")[0] not in OPTIONS:
        assert "is no option that is known" in objections([word], (1, 30))


# -------------------------------------------------------------------------------- packagers
def test_split_finds_the_script() -> None:
    command = (".venv/bin/python", "src/tools/ci_build/build.py", "--build_dir", "b")
    assert ort_flags.split(command) == ("build.py", ("--build_dir", "b"))
    with pytest.raises(errors.ConfigError, match="none of ONNX Runtime's build scripts"):
        ort_flags.split(("make", "all"))


@pytest.mark.parametrize(
    ("words", "script", "host", "said"),
    [
        ([], "build_aar_package.py", "linux", "the settings file is missing"),
        (["a.json", "b.json"], "build_aar_package.py", "linux", "'b.json' belongs to no option"),
        (["--config", "Release", "Debug", "a.json"], "build_aar_package.py", "linux",
         "'a.json' belongs to no option"),
        (["--enable_lto", "a.json"], "build_aar_package.py", "linux",
         "'--enable_lto' is no option"),
        (["a.json"], "build_apple_framework.py", "linux", "exists on macos only"),
        (["--build_dynamic_framework", "yes", "a.json"], "build_apple_framework.py", "macos",
         "'a.json' belongs to no option"),
    ],
)  # fmt: skip
def test_objections_to_packagers(words: list[str], script: str, host: str, said: str) -> None:
    assert said in objections(words, (1, 29), host, script=script)


def test_the_apple_packager_came_in_1_18() -> None:
    words = ["s.json"]
    said = objections(words, (1, 17), "macos", script="build_apple_framework.py")
    assert "--build_dir exists from 1.18 on, this is 1.17" in said
    ort_flags.check([*BASE, *words], (1, 18), "macos", "build_apple_framework.py")


ANDROID = {"build_abis": ["arm64-v8a"], "build_params": ["--android", "--build_java"]}
IOS = {
    "build_osx_archs": {"iphoneos": ["arm64"]},
    "build_params": {
        "base": ["--use_xcode", "--build_apple_framework"],
        "iphoneos": ["--ios", "--apple_deploy_target=15.1"],
    },
}


def settings_objections(settings: dict[str, Any], script: str, release: Release = (1, 29)) -> str:
    with pytest.raises(errors.ConfigError) as caught:
        ort_flags.check_settings(settings, release, script)
    return caught.value.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"build_abi": []}, "no key 'build_abi'"),
        ({"build_abis": ["arm64"]}, "no ABI 'arm64'"),
        ({"build_abis": []}, "no ABI []"),
        ({"build_abis": "arm64-v8a"}, "no ABI 'arm64-v8a'"),
        ({"android_min_sdk_version": 35}, "android_min_sdk_version 35 is above"),
        ({"android_min_sdk_version": "24"}, "are whole numbers"),
        ({"android_min_sdk_version": True}, "are whole numbers"),
        ({"build_params": "--android"}, "build_params is a list of words"),
        ({"build_params": ["--android", 3]}, "build_params is a list of words"),
        ({"build_params": ["--build_java"]}, "build_params lacks --android"),
        ({"build_params": ["--android"]}, "build_params lacks --build_java"),
        ({"build_params": ["--android", "--use_coremll"]}, "did you mean --use_coreml?"),
        ({"build_params": ["--android", "--ios"]}, "--ios exists on macos only"),
    ],
)  # fmt: skip
def test_android_settings(change: dict[str, Any], said: str) -> None:
    ort_flags.check_settings(ANDROID, (1, 29), "build_aar_package.py")
    assert said in settings_objections({**ANDROID, **change}, "build_aar_package.py")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"build_abis": []}, "no key 'build_abis'"),
        ({"build_osx_archs": {"iphoneos": ["armv7"]}}, "no architecture 'armv7'"),
        ({"build_osx_archs": {"watchos": ["arm64"]}}, "no SDK 'watchos' in 1.29"),
        ({"build_osx_archs": {"macosx": ["arm64"]}}, "build_params lacks 'macosx'"),
        ({"build_osx_archs": {}}, "are lists of words by SDK"),
        ({"build_osx_archs": {"iphoneos": "arm64"}}, "are lists of words by SDK"),
        ({"build_params": {"iphoneos": []}}, "build_params lacks 'base'"),
        ({"build_params": {"base": ["--build_apple_framework"], "iphoneos": []}},
         "--build_apple_framework needs --ios or --macos"),
        ({"build_params": {"base": ["--use_xcode"], "iphoneos": ["--ios"]}},
         "--ios needs --apple_deploy_target"),
        ({"build_params": {"base": ["--ios"], "iphoneos": ["--apple_deploy_target=15.1"]}},
         "--ios needs --use_xcode or --cmake_generator"),
    ],
)  # fmt: skip
def test_apple_settings(change: dict[str, Any], said: str) -> None:
    ort_flags.check_settings(IOS, (1, 29), "build_apple_framework.py")
    assert said in settings_objections({**IOS, **change}, "build_apple_framework.py")


def test_an_sdk_of_a_later_release() -> None:
    change = {**IOS, "build_osx_archs": {"xros": ["arm64"]}}
    assert "no SDK 'xros' in 1.18" in settings_objections(
        change, "build_apple_framework.py", (1, 18)
    )


@pytest.mark.parametrize("script", ["build_aar_package.py", "build_apple_framework.py"])
def test_settings_without_parameters(script: str) -> None:
    assert "build_params is required" in settings_objections({}, script)


def test_build_py_takes_no_settings() -> None:
    with pytest.raises(errors.ConfigError, match="takes no settings"):
        ort_flags.check_settings({}, (1, 29), "build.py")


def test_one_objection_is_said_once() -> None:
    params = {"base": ["--foo"], "iphoneos": [], "iphonesimulator": []}
    archs = {"iphoneos": ["arm64"], "iphonesimulator": ["arm64"]}
    said = settings_objections(
        {"build_osx_archs": archs, "build_params": params}, "build_apple_framework.py"
    )
    assert said.count("--foo") == 1
