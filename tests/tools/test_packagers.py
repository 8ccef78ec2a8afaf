"""Reduced builds for Android, browsers and iOS by the real scripts of 1.21.0, up to the compilers.

The tree, its ``build.py``, its packagers and its Gradle wrapper are the real ones, and so is what
they generate; CMake and all that is behind it is :mod:`tests.tools.fake_toolchain`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge import bundle, errors, process
from edge.convert.prebuilt_runtime import android_libraries
from edge.store import Store
from edge.tools import ort_build, ort_release, ort_toolchain, prebuilt
from edge.tools.reduced_plan import SETTINGS, Plan, Request, make_plan
from tests import models
from tests.command import Outcome, edge
from tests.support import NO_PACKAGE, need
from tests.tools import fake_toolchain
from tests.tools.fake_programs import LARGE, SMALL, cache
from tests.tools.fake_toolchain import EMSDK, WRAPPER, Machine

pytestmark = pytest.mark.process
VERSION = "1.21.0"
CLOSURE = "ai.onnx;7,13;Add,Gemm\ncom.microsoft;1;FusedConv\n"
# What extended builds keep for layout transformation, beside the closure.
LAYOUT = ("DequantizeLinear", "Gather", "Identity", "QuantizeLinear", "Squeeze", "Transpose",
          "Unsqueeze")  # fmt: skip
CONTRIB_LAYOUT = ("DequantizeLinear", "NhwcMaxPool", "QLinearConv", "QuantizeLinear")
KEPT = {
    "cpu_execution_provider.cc": {"Add", "Gemm", *LAYOUT},
    "cpu_contrib_kernels.cc": {"FusedConv", *CONTRIB_LAYOUT},
    "cpu_training_kernels.cc": set[str](),
}
# Defined in every reduced build of these tests.
REDUCED = {
    "onnxruntime_MINIMAL_BUILD": "ON",
    "onnxruntime_EXTENDED_MINIMAL_BUILD": "ON",
    "onnxruntime_REDUCED_OPS_BUILD": "ON",
    "onnxruntime_DISABLE_ML_OPS": "ON",
    "onnxruntime_DISABLE_RTTI": "ON",
    "onnxruntime_DISABLE_SPARSE_TENSORS": "ON",
    "onnxruntime_DISABLE_OPTIONAL_TYPE": "ON",
    "onnxruntime_DISABLE_FLOAT8_TYPES": "ON",
    "onnxruntime_DISABLE_CONTRIB_OPS": "OFF",
    "onnxruntime_DISABLE_EXCEPTIONS": "OFF",
    "onnxruntime_BUILD_UNIT_TESTS": "OFF",
}


# ------------------------------------------------------------------------------ the builds
@pytest.fixture(scope="module")
def tree(ort_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_toolchain.clone(ort_source, tmp_path_factory.mktemp("tree") / "onnxruntime")


@dataclass(frozen=True)
class Built:
    """A build and what it left."""

    machine: Machine
    plan: Plan
    work: Path
    product: Path


def built(plan: Plan, tree: Path, folder: Path, **env: str) -> Built:
    machine = fake_toolchain.host(folder / "host", plan.platform)
    work = folder / "work"
    work.mkdir()
    with machine.here(**env):
        product = ort_build.build(plan, ort_build.Sources(tree, {}), work, folder / "log")
    return Built(machine, plan, work, product)


def kept(build: Path) -> dict[str, set[str]]:
    """The operators whose registrations are left, by generated file."""
    pattern = r"BuildKernelCreateInfo<\s*(?:class )?ONNX_OPERATOR_\w+\(([^)]*)\)>"
    found = {}
    for path in (build / "op_reduction.generated").rglob("*.cc"):
        text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
        names = [words.split(",")[-1].strip() for words in re.findall(pattern, text)]
        found[path.name] = set(names)
    return found


def holds(wanted: dict[str, str], settings: dict[str, str]) -> None:
    assert {name: settings.get(name) for name in wanted} == wanted


# -------------------------------------------------------------------------------- Android
ABIS = {"arm64-v8a": "arm64-android", "armeabi-v7a": "arm-neon-android"}  # with vcpkg's triplets
ANDROID = make_plan(Request(VERSION, "android", abis=tuple(ABIS)), CLOSURE)
ONE = make_plan(Request(VERSION, "android", abis=("x86_64",)), CLOSURE)


@pytest.fixture(scope="module")
def android(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both ABIs, with flags of the user's own that have no say."""
    return built(ANDROID, tree, tmp_path_factory.mktemp("android"), CFLAGS="-O0", CPATH="/usr")


def test_android_configures_each_abi(android: Built) -> None:
    sdk = android.machine.folder / "sdk"
    ndk = sdk / "ndk" / fake_toolchain.NDK_REVISION
    vcpkg = android.machine.folder / "vcpkg"
    runs = android.machine.configured()
    assert [run.settings["ANDROID_ABI"] for run in runs] == list(ABIS)
    for run, (abi, triplet) in zip(runs, ABIS.items(), strict=True):
        wanted = {
            "ANDROID_PLATFORM": "android-24",
            "ANDROID_MIN_SDK": "24",
            "ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES": "ON",
            "CMAKE_BUILD_TYPE": "MinSizeRel",
            "CMAKE_TOOLCHAIN_FILE": str(vcpkg / "scripts/buildsystems/vcpkg.cmake"),
            "VCPKG_CHAINLOAD_TOOLCHAIN_FILE": str(ndk / "build/cmake/android.toolchain.cmake"),
            "VCPKG_TARGET_TRIPLET": triplet,
            "onnxruntime_ENABLE_LTO": "ON",
            "onnxruntime_BUILD_JAVA": "ON",
            "onnxruntime_BUILD_SHARED_LIB": "ON",
        }
        holds({**REDUCED, **wanted}, run.settings)
        assert run.cwd == android.work / "build" / "intermediates" / abi / "MinSizeRel"
        assert run.words[-3:-1] == ["-G", "Ninja"]
        holds({"ANDROID_HOME": str(sdk), "ANDROID_NDK_HOME": str(ndk)}, dict(run.env))
        options = run.settings["VCPKG_INSTALL_OPTIONS"].split(";")
        overlay = next(text for text in options if text.startswith("--overlay-triplets="))
        assert Path(overlay.partition("=")[2], f"{triplet}.cmake").is_file()


def test_android_keeps_the_closures_kernels(android: Built) -> None:
    for abi in ABIS:
        assert kept(android.work / "build" / "intermediates" / abi / "MinSizeRel") == KEPT


def test_android_is_compiled_by_the_ndk_for_both_page_sizes(android: Built) -> None:
    links = android.machine.calls("clang++")
    arm64 = [call for call in links if call.words[0] == "--target=aarch64-none-linux-android24"]
    large = f"-Wl,-z,max-page-size={LARGE}"
    # The tree's own flag is for its shared library alone, not for the JNI one (#24902).
    assert [(Path(call.words[-1]).name, call.words.count(large)) for call in arm64] == [
        ("libonnxruntime.so", 2),
        ("libonnxruntime4j_jni.so", 1),
    ]
    assert len(links) == 2 * len(ABIS)


def test_android_is_packed_by_gradle(android: Built) -> None:
    calls = android.machine.calls("java")
    gradle = [call for call in calls if "-b=build-android.gradle" in call.words]
    assert [call.words[-1] for call in gradle] == ["clean", "build", "publish"]
    for call in gradle:
        holds({"minSdkVer": "24", "targetSdkVer": "34", "releaseVersionSuffix": ""}, call.settings)
        assert call.cwd == android.work / "onnxruntime" / "java"
        assert call.env["ANDROID_HOME"] == android.machine.env["ANDROID_HOME"]


def test_android_leaves_the_archive_where_the_plan_says(android: Built) -> None:
    assert android.product == android.work / ANDROID.product
    libraries = prebuilt.read_aar(android.product).libraries
    assert [(each.abi, each.name, each.alignment) for each in libraries] == [
        ("arm64-v8a", "libonnxruntime.so", LARGE),
        ("arm64-v8a", "libonnxruntime4j_jni.so", LARGE),
        ("armeabi-v7a", "libonnxruntime.so", LARGE),
        ("armeabi-v7a", "libonnxruntime4j_jni.so", SMALL),
    ]
    # 32-bit devices have small pages.
    given = {"aar": android.product, "abis": list(ABIS), "built": True}
    facts = android_libraries.function(android.work, **given)
    assert facts is not None
    assert [each["loads_on_16k_pages"] for each in facts["libraries"]] == [True, True, True, False]


def test_a_build_hears_nothing_of_the_users_flags_and_asks_no_network(android: Built) -> None:
    for call in android.machine.calls():
        assert not {"CFLAGS", "CPATH"} & set(call.env)
        assert call.env["PATH"].split(os.pathsep)[0] == str(android.machine.python.parent)
    assert android.machine.calls("git") == []


def test_what_plans_define_is_an_option_of_the_tree(tree: Path) -> None:
    words = json.loads(ANDROID.files[SETTINGS])["build_params"]
    (own,) = [word.split("=")[1] for word in words if "=onnxruntime_" in word]
    assert f"option({own} " in (tree / "cmake" / "CMakeLists.txt").read_text()


def test_root_has_leave_to_run_the_packager(tree: Path, tmp_path: Path) -> None:
    assert built(ONE, tree, tmp_path, FAKE_EUID="0").product.is_file()


# -------------------------------------------------------------------------------- browser
BROWSER = make_plan(Request(VERSION, "browser"), CLOSURE)


@pytest.fixture(scope="module")
def browser(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(BROWSER, tree, tmp_path_factory.mktemp("browser"))


def test_browser_installs_the_releases_emsdk(browser: Built) -> None:
    calls = browser.machine.calls("emsdk")
    assert [call.words for call in calls] == [["install", "4.0.3"], ["activate", "4.0.3"]]
    assert "emsdk 4.0.3, which build.py itself installs" in BROWSER.needs
    assert {call.cwd for call in calls} == {browser.work / "onnxruntime" / EMSDK}


def test_browser_configures_a_reduced_build(browser: Built) -> None:
    (run,) = browser.machine.configured()
    emscripten = browser.work / "onnxruntime" / EMSDK / "upstream" / "emscripten"
    toolchain = emscripten / "cmake/Modules/Platform/Emscripten.cmake"
    wanted = {
        "CMAKE_TOOLCHAIN_FILE": str(toolchain),
        "CMAKE_BUILD_TYPE": "Release",
        "onnxruntime_ENABLE_WEBASSEMBLY_SIMD": "ON",
        "onnxruntime_ENABLE_WEBASSEMBLY_THREADS": "ON",
        "onnxruntime_ENABLE_WEBASSEMBLY_API_EXCEPTION_CATCHING": "ON",
        "onnxruntime_ENABLE_WEBASSEMBLY_EXCEPTION_CATCHING": "OFF",
    }
    holds({**REDUCED, **wanted}, run.settings)
    assert kept(run.cwd) == KEPT
    assert browser.machine.calls("git") == []


def test_browser_leaves_the_module_that_the_trees_cmake_names(browser: Built, tree: Path) -> None:
    assert browser.product == browser.work / BROWSER.product
    assert browser.product.read_bytes().startswith(b"\0asm")
    assert browser.product.with_suffix(".mjs").name == _named_by_cmake(browser, tree)


def _named_by_cmake(browser: Built, tree: Path) -> str:
    """What the real CMake makes of the tree's own lines, with what the build was given."""
    text = (tree / "cmake" / "onnxruntime_webassembly.cmake").read_text()
    start = text.index("set(target_name_list ort)")
    end = text.index("set_target_properties(onnxruntime_webassembly PROPERTIES OUTPUT_NAME", start)
    suffix = re.match(r'.*OUTPUT_NAME \$\{target_name\} SUFFIX "(.+)"\)', text[end:])
    given = cache(browser.product.parent)
    lines = [f"set({name} {given[name]})\n" for name in given if name.startswith("onnxruntime_")]
    script = browser.work / "name.cmake"
    script.write_text("".join(lines) + text[start:end] + 'message("${target_name}")\n')
    done = process.run([need("cmake"), "-P", script], timeout=60)
    assert suffix
    return done.stderr.strip() + suffix[1]


# ------------------------------------------------------------------------------------ iOS
def test_ios_is_configured_for_each_sdk_and_architecture(tree: Path, tmp_path: Path) -> None:
    plan = make_plan(Request(VERSION, "ios"), CLOSURE)
    made = built(plan, tree, tmp_path)
    runs = made.machine.configured()
    targets = [(run.settings["CMAKE_OSX_SYSROOT"], run.settings["CMAKE_OSX_ARCHITECTURES"])
               for run in runs]  # fmt: skip
    phone, simulator = "iphoneos", "iphonesimulator"
    assert targets == [(phone, "arm64"), (simulator, "arm64"), (simulator, "x86_64")]
    for run in runs:
        wanted = {
            "CMAKE_SYSTEM_NAME": "iOS",
            "CMAKE_OSX_DEPLOYMENT_TARGET": "15.1",
            "CMAKE_BUILD_TYPE": "MinSizeRel",
            "onnxruntime_BUILD_APPLE_FRAMEWORK": "ON",
        }
        holds({**REDUCED, **wanted}, run.settings)
        assert run.words[-3:-1] == ["-G", "Xcode"]
        assert kept(run.cwd) == KEPT
    assert made.product == made.work / plan.product
    slices = prebuilt.read_xcframework(made.product).slices
    names = ["ios-arm64", "ios-arm64_x86_64-simulator"]
    assert [(each.identifier, each.version) for each in slices] == [(n, VERSION) for n in names]


# ------------------------------------------------------------------------------- the bundle
@dataclass(frozen=True)
class Project:
    """A project of one model, on a machine for one platform, with sources of its own."""

    machine: Machine
    folder: Path
    store: Store
    tree: Path

    def build(self, platform: str, **env: str) -> Outcome:
        words = ["build", "-t", platform, "--runtime", "reduced", "--ort-source", str(self.tree)]
        with self.machine.here():
            return edge(self.folder, self.store, *words, env=env)


# The release's own module, which the target pins for another release.
TEXT = "export {};\n"
MODULE = {
    "browser": f"""[[targets.browser.runtime.reduced.files]]
path = "runtime/ort.wasm.min.mjs"
package = "file:module.mjs"
sha256 = "{hashlib.sha256(TEXT.encode()).hexdigest()}"
"""
}


@pytest.fixture
def project(
    request: pytest.FixtureRequest, tree: Path, download_store: Store, tmp_path: Path
) -> Project:
    platform: str = request.param
    converter = ort_release.overlay(download_store, VERSION)
    root, folder = tmp_path / "store", tmp_path / "project"
    (root / "ort").mkdir(parents=True)
    (root / "blobs").symlink_to(download_store.root / "blobs")
    if converter is not None:
        (root / "ort" / converter.name).symlink_to(converter)
    folder.mkdir()
    models.save(models.mlp(), folder / "mlp.onnx")
    (folder / "edge.toml").write_text(
        '[model]\nname = "mlp"\nsource = "mlp.onnx"\ndims = {batch = 2}\n'
        f'[targets.{platform}.runtime]\nversion = "{VERSION}"\n{MODULE.get(platform, "")}'
        + NO_PACKAGE
    )
    (folder / "module.mjs").write_text(TEXT)
    return Project(fake_toolchain.host(tmp_path / "host", platform), folder, Store(root), tree)


RUNTIMES = {
    "android": [f"onnxruntime-android-{VERSION}.aar"],
    "browser": ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs"],
    "ios": ["onnxruntime.xcframework.zip"],
}


@pytest.mark.parametrize(
    ("project", "platform"), [(each, each) for each in RUNTIMES], indirect=["project"]
)
def test_a_bundle_with_a_runtime_that_was_built(project: Project, platform: str) -> None:
    done = project.build(platform)
    assert done.code == 0, done.err
    folder = project.folder / "dist" / "mlp" / "0" / platform
    made: dict[str, Any] = bundle.verify(folder)
    assert made["state"] == "built"
    assert sorted(path.name for path in (folder / "runtime").iterdir()) == RUNTIMES[platform]
    assert made["runtime"]["coverage"]["kernels"] == 1
    assert made["runtime"]["reused"] is False
    if platform == "android":
        libraries = made["runtime"]["libraries"]
        assert [each["alignment"] for each in libraries] == [LARGE] * 3 + [SMALL] + [LARGE] * 2
    if platform != "browser":
        assert "built for this model's operators" in (folder / "app" / "README.md").read_text()


@pytest.mark.parametrize("project", ["browser"], indirect=True)
def test_a_module_of_another_release_is_refused(project: Project) -> None:
    text = (project.folder / "edge.toml").read_text()
    (project.folder / "edge.toml").write_text(text.partition("[[")[0])
    done = project.build("browser")
    assert done.code == errors.ConfigError.exit_code
    assert "the files of [runtime.reduced] are not those of 1.21.0" in done.err


@pytest.mark.parametrize("project", ["android"], indirect=True)
def test_libraries_for_small_pages_are_refused(project: Project) -> None:
    done = project.build("android", FAKE_FAULT="4k")
    assert done.code == errors.StepFailed.exit_code
    assert "not aligned to pages of 16 KB" in done.err
    assert f"arm64-v8a/libonnxruntime4j_jni.so ({SMALL})" in done.err
    assert "armeabi-v7a" not in done.err


# --------------------------------------------------------------------------------- faults
@pytest.mark.parametrize("project", ["android"], indirect=True)
def test_an_ndk_that_is_too_old_is_told_before_anything_runs(project: Project) -> None:
    properties = Path(project.machine.env["ANDROID_NDK_HOME"], "source.properties")
    properties.write_text("Pkg.Desc = Android NDK\nPkg.Revision = 26.1.10909125\n")
    with project.machine.here():
        tools = ort_toolchain.survey(Request(VERSION, "android"), ort_toolchain.local)
    (lack,) = ort_toolchain.missing(tools)
    assert "27.2.12479018" in lack
    assert "26.1.10909125" in lack
    done = project.build("android")
    assert done.code == errors.Unavailable.exit_code
    assert lack in done.err
    assert done.steps == []
    assert project.machine.configured() == []


def fails(plan: Plan, tree: Path, folder: Path, **env: str) -> str:
    with pytest.raises(errors.StepFailed) as caught:
        built(plan, tree, folder, **env)
    assert caught.value.remedy == f"the whole log is {folder / 'log'}"
    return caught.value.message


def test_a_compiler_that_fails_is_shown(tree: Path, tmp_path: Path) -> None:
    said = fails(ONE, tree, tmp_path, FAKE_FAULT="clang++").splitlines()
    assert said[0] == f"the build of ONNX Runtime {VERSION} for android ended with exit code 1:"
    assert said[1].startswith("FAILED: ")
    assert said[1].endswith("/libonnxruntime.so")
    assert shlex.split(said[2])[1] == "--target=x86_64-none-linux-android24"
    assert said[3] == "clang++: error: no such instruction: fmopa"


def test_a_packager_that_leaves_no_archive_is_told(tree: Path, tmp_path: Path) -> None:
    said = fails(ONE, tree, tmp_path, FAKE_FAULT="no-aar")
    assert f"for android ended well but left no onnxruntime-android-{VERSION}.aar" in said


@pytest.mark.parametrize(
    ("plan", "lacking", "said"),
    [(ONE, WRAPPER, "Could not find or load main class org.gradle.wrapper.GradleWrapperMain"),
     (BROWSER, f"{EMSDK}/emsdk", "No such file or directory")],
    ids=["android", "browser"],
)  # fmt: skip
def test_what_debians_archive_lacks_is_shown(
    plan: Plan, lacking: str, said: str, tree: Path, tmp_path: Path
) -> None:
    less = fake_toolchain.clone(tree, tmp_path / "tree")
    (less / lacking).unlink()
    assert said in fails(plan, less, tmp_path)
