"""Command lines of reduced builds against the real argument parsers and packagers of 1.21.0."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edge import errors, process
from edge.tools import ort_flags, ort_parser
from edge.tools.ort_flags import NEEDS, OPTIONS, Option
from edge.tools.reduced_plan import Plan, Request, make_plan
from tests.tools import fake_toolchain

pytestmark = pytest.mark.process
RELEASE = (1, 21)
CLOSURE = "ai.onnx;7,13;Add,Gemm\ncom.microsoft;1;FusedConv\n"
HOSTS = ("linux", "macos")


# --------------------------------------------------------------- the table and the parser
def row(name: str, host: str) -> Option | None:
    """The row of an option of 1.21 on ``host``."""
    found = [row for row in OPTIONS[name] if row.covers(RELEASE) and host in row.hosts]
    return found[0] if found else None


def spelled(name: str, host: str) -> Iterator[list[str]]:
    """The option with each of its legal values, as one word and as two."""
    found = row(name, host)
    takes, choices = (found.takes, found.choices) if found else ("none", ())
    if takes not in {"one", "many"}:
        yield [name]
    for value in ("7",) if choices == ort_flags.INT else choices or ("text",):
        if takes != "none":
            yield [name, value]
            yield [f"{name}={value}"]
    if takes in {"any", "many"}:
        yield [name, *(choices or ("one", "two"))]


def completed(words: list[str]) -> list[str]:
    """A whole command line: what the options need is said too."""
    legal = {"--apple_deploy_target": "=15.1", "--macos": "=MacOSX"}
    words = ["--build_dir=build", *words]
    for _ in NEEDS:
        said = {word.partition("=")[0] for word in words}
        lacking = [others[0] for name, others in NEEDS if name in said and not said & set(others)]
        words += [f"{name}{legal.get(name, '')}" for name in lacking[:1]]
    return words


def test_the_fixture_is_the_release_that_the_table_was_read_in(ort_source: Path) -> None:
    assert (ort_source / "VERSION_NUMBER").read_text().strip() == "1.21.0"


@pytest.mark.parametrize("host", HOSTS)
def test_every_option_of_the_table_is_taken(ort_source: Path, host: str) -> None:
    names = [name for name in OPTIONS if row(name, host)]
    lines = [completed(words) for name in names for words in spelled(name, host)]
    for line in lines:
        ort_flags.check(line, RELEASE, host)
    answers = ort_parser.ask_tree(ort_source, lines, host)
    assert [(line, said) for line, said in zip(lines, answers, strict=True) if said] == []
    assert len(names) > 70


@pytest.mark.parametrize("host", HOSTS)
def test_what_the_table_refuses_is_refused(ort_source: Path, host: str) -> None:
    lines = [completed([name]) for name in OPTIONS if not row(name, host)]
    assert len(lines) > 8
    for name in OPTIONS:
        found = row(name, host)
        if found and found.takes == "none":
            lines.append(completed([f"{name}=value"]))
            lines.append(["surplus", *completed([name])])
        if found and found.takes in {"one", "many"}:
            lines.append(completed([name]))
        # Of these the parser takes any text, and means nothing by it.
        if found and found.choices and name != "--minimal_build":
            lines.append(completed([f"{name}=value"]))
    lines += [completed(["--disable_types", kind]) for kind in ("float4", "string")]
    lines.append([])
    for line in lines:
        with pytest.raises(errors.ConfigError):
            ort_flags.check(line, RELEASE, host)
    answers = ort_parser.ask_tree(ort_source, lines, host)
    assert [line for line, said in zip(lines, answers, strict=True) if not said] == []


def test_the_parsers_own_message(ort_source: Path) -> None:
    line = ["--build_dir", "b", "--disable_generation_ops"]
    said = "build.py of the source tree refuses: unrecognized arguments: --disable_generation_ops"
    with pytest.raises(errors.ConfigError, match=said):
        ort_parser.check_with_tree(ort_source, line, "linux")


@pytest.mark.parametrize(
    ("words", "said"),
    [("--use_qnn=other", "Incorrect build configuration"), ("--help", "it ends with code 0"),
     ("--android_abi arm64", "argument --android_abi: invalid choice: 'arm64'"),
     ("@missing", "No such file or directory: 'missing'")],
)  # fmt: skip
def test_every_end_of_the_parser_is_a_refusal(ort_source: Path, words: str, said: str) -> None:
    with pytest.raises(errors.ConfigError, match="of the source tree refuses") as caught:
        ort_parser.check_with_tree(ort_source, ["--build_dir", "b", *words.split()], "linux")
    assert said in caught.value.message


def test_the_tree_stays_as_it_is(ort_source: Path) -> None:
    before = sorted((ort_source / "tools").rglob("*"))
    ort_parser.check_with_tree(ort_source, ["--build_dir", "b"], "linux")
    assert sorted((ort_source / "tools").rglob("*")) == before


@pytest.mark.parametrize("host", ["linux", "windows"])
def test_no_tree_or_no_host(tmp_path: Path, host: str) -> None:
    with pytest.raises(errors.ConfigError, match="no source tree of ONNX Runtime"):
        ort_parser.check_with_tree(tmp_path, ["--build_dir", "b"], host)
    plan = make_plan(Request("1.21.0", "android"), CLOSURE)
    with pytest.raises(errors.ConfigError, match="no source tree of ONNX Runtime"):
        ort_parser.rehearse(tmp_path, plan.commands[-1], plan.files, host)


# ---------------------------------------------------------------------------------- plans
def plans(platform: str, *providers: str) -> list[Plan]:
    request = Request("1.21.0", platform)
    several = [
        request,
        replace(request, extended=False),
        replace(request, types=False, exceptions=False),
        replace(request, abis=("armeabi-v7a", "x86_64"), min_sdk=26, ios_deployment_target="16.0"),
        *(replace(request, providers=(name,)) for name in providers),
        replace(request, providers=providers),
    ]
    return [make_plan(each, CLOSURE) for each in several]


@pytest.mark.parametrize(
    ("platform", "providers"),
    [("linux-x64", ("xnnpack",)), ("linux-arm64", ("xnnpack",)), ("browser", ("webgpu", "webnn"))],
)
@pytest.mark.parametrize("host", HOSTS)
def test_plans_pass_the_parser(
    ort_source: Path, platform: str, providers: tuple[str, ...], host: str
) -> None:
    lines = [ort_flags.split(plan.commands[-1])[1] for plan in plans(platform, *providers)]
    for line in lines:
        ort_flags.check(line, RELEASE, host)
    ort_parser.check_all_with_tree(ort_source, lines, host)


@pytest.mark.parametrize(
    ("platform", "host", "providers"),
    [("android", "linux", ("nnapi", "webgpu", "xnnpack")), ("android", "macos", ("xnnpack",)),
     ("ios", "macos", ("coreml", "xnnpack"))],
)  # fmt: skip
def test_plans_pass_their_packager(
    ort_source: Path, platform: str, host: str, providers: tuple[str, ...]
) -> None:
    for plan in plans(platform, *providers):
        found = ort_parser.rehearse(ort_source, plan.commands[-1], plan.files, host)
        lines = [line[2:] for line in found if line[:1] == ("python",)]
        assert lines
        for line in lines:
            ort_flags.check(line, RELEASE, host)
        # Gradle publishes into a Maven folder tree; the xcframework is named outright.
        output = Path(plan.product).parents[5] if platform == "android" else plan.product
        words = [word.removeprefix("-DpublishDir=") for word in found[-1]]
        assert str(output) in words


REDUCED = (
    "--skip_submodule_sync --minimal_build=extended --enable_reduced_operator_type_support"
    " --disable_ml_ops --disable_types float8 optional sparsetensor --skip_tests"
    " --cmake_extra_defines=onnxruntime_BUILD_UNIT_TESTS=OFF"
)
CONFIG = "--include_ops_by_config=required_operators_and_types.config"
GRADLE = (
    "onnxruntime/java/gradlew --no-daemon -b=build-android.gradle -c=settings-android.gradle"
    " -DjniLibsDir=build/intermediates/jnilibs/MinSizeRel"
    " -DbuildDir=build/intermediates/aar/MinSizeRel"
    " -DheadersDir=build/intermediates/arm64-v8a/MinSizeRel/android/headers"
    " -DpublishDir=build/aar_out/MinSizeRel -DminSdkVer=24 -DtargetSdkVer=34"
    " -DENABLE_TRAINING_APIS=0 -DreleaseVersionSuffix="
)


def abi(name: str) -> str:
    return (
        "python onnxruntime/tools/ci_build/build.py --enable_lto --android --parallel"
        f" --cmake_generator=Ninja --build_java --build_shared_lib {REDUCED}"
        " --cmake_extra_defines=ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES=ON --android_api=24"
        " --config=MinSizeRel --use_vcpkg --use_vcpkg_ms_internal_asset_cache"
        f" --android_abi={name} --build_dir=build/intermediates/{name} {CONFIG}"
    )


STAGES = [f"{GRADLE} {stage}" for stage in ("clean", "build", "publish")]
ANDROID = [abi("arm64-v8a"), abi("x86_64"), *STAGES]


def arch(sysroot: str, name: str) -> str:
    return (
        "python onnxruntime/tools/ci_build/build.py --parallel --use_xcode"
        f" --build_apple_framework {REDUCED} --ios --apple_deploy_target=15.1"
        f" --config=MinSizeRel {CONFIG} --apple_sysroot={sysroot}"
        f" --osx_arch={name} --build_dir=build/intermediates/{sysroot}_{name}"
    )


def library(sysroot: str, name: str) -> str:
    folder = f"build/intermediates/{sysroot}_{name}/MinSizeRel/MinSizeRel-{sysroot}"
    return f"{folder}/static_framework/onnxruntime.framework/onnxruntime"


def lipo(sysroot: str, *names: str) -> str:
    libraries = " ".join(library(sysroot, name) for name in names)
    return f"lipo -create {libraries} -output {framework(sysroot)}/onnxruntime"


def framework(sysroot: str) -> str:
    return f"build/intermediates/frameworks/{sysroot}/onnxruntime.framework"


PHONE, SIMULATOR = "iphoneos", "iphonesimulator"
XCFRAMEWORK = "build/framework_out/onnxruntime.xcframework"
PACK = f"xcrun xcodebuild -create-xcframework -output {XCFRAMEWORK}"
IOS = [
    arch(PHONE, "arm64"),
    lipo(PHONE, "arm64"),
    arch(SIMULATOR, "arm64"),
    arch(SIMULATOR, "x86_64"),
    lipo(SIMULATOR, "arm64", "x86_64"),
    f"{PACK} -framework {framework(PHONE)} -framework {framework(SIMULATOR)}",
]


@pytest.mark.parametrize(
    ("request_", "host", "expected"),
    [
        (Request("1.21.0", "android", abis=("arm64-v8a", "x86_64")), "linux", ANDROID),
        (Request("1.21.0", "ios"), "macos", IOS),
    ],
    ids=["android", "ios"],
)
def test_recorded_commands(
    ort_source: Path, request_: Request, host: str, expected: list[str]
) -> None:
    plan = make_plan(request_, CLOSURE)
    found = ort_parser.rehearse(ort_source, plan.commands[-1], plan.files, host)
    assert [shlex.join(line) for line in found] == expected


# --------------------------------------------------------- what a packager has against it
SETTINGS = '{"build_abis": ["arm64-v8a"], "build_params": ["--android", "--build_java"]}'
PLACE = "src/tools/ci_build/github/android/build_aar_package.py"


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ("--config=Fast s.json", SETTINGS, "argument --config: invalid choice: 'Fast'"),
        ("--fast s.json", SETTINGS, "unrecognized arguments: --fast"),
        ("", SETTINGS, "the following arguments are required: build_settings_file"),
        ("other.json", SETTINGS, "FileNotFoundError"),
        ("s.json", "{}", "ValueError: build_params is required"),
        ("s.json", "{", "JSONDecodeError"),
        ("s.json", SETTINGS.replace("java", "jawa"), "unrecognized arguments: --build_jawa"),
        ("s.json", SETTINGS.replace("64-v8a", "v7"), "argument --android_abi: invalid choice"),
        ("s.json", SETTINGS.replace('"arm64-v8a"', ""), "calls no build.py"),
    ],
)  # fmt: skip
def test_what_a_rehearsal_finds(ort_source: Path, words: str, settings: str, said: str) -> None:
    command = ["python3", PLACE, "--build_dir", "b", *words.split()]
    with pytest.raises(errors.ConfigError, match="of the source tree") as caught:
        ort_parser.rehearse(ort_source, command, {"s.json": settings}, "linux")
    assert said in caught.value.message


@pytest.mark.parametrize("name", ["../s.json", "/s.json", "a/../../s.json", ""])
def test_files_stay_in_their_folder(ort_source: Path, name: str) -> None:
    command = ["python3", PLACE, "s.json"]
    with pytest.raises(errors.ConfigError, match="is no name of a file of a plan"):
        ort_parser.rehearse(ort_source, command, {name: SETTINGS}, "linux")


# --------------------------------------------------------------- trees of other releases
BUILD_ARGS = """\
import argparse, sys
from util import is_macOS
def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build_dir", required=True)
    parser.add_argument("--system", choices=[__import__("platform").system()])
    if is_macOS():
        parser.add_argument("--ios", action="store_true")
    return parser.parse_args()
"""


def tree(folder: Path, packager: str = "") -> Path:
    """A tree as from 1.22 on: the parser in a file of its own."""
    texts = {
        "tools/ci_build/build_args.py": BUILD_ARGS,
        "tools/ci_build/build.py": "raise AssertionError('must not be run')\n",
        "tools/python/util/__init__.py": "import sys\n"
        "def is_macOS():\n    return sys.platform.startswith('darwin')\n",
        ort_flags.SCRIPTS["build_aar_package.py"]: packager,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("host", "system"), [("linux", "Linux"), ("macos", "Darwin")])
def test_the_parser_of_later_releases_on_each_host(tmp_path: Path, host: str, system: str) -> None:
    lines = [["--build_dir", "b", "--ios"], ["--build_dir", "b", "--system", system]]
    first, second = ort_parser.ask_tree(tree(tmp_path), lines, host)
    assert first == ("unrecognized arguments: --ios" if host == "linux" else "")
    assert second == ""


CALL_BUILD = "subprocess.run([sys.executable, pathlib.Path(root, 'tools/ci_build/build.py'), {}])"
IMPORTS = """\
import os, pathlib, shutil, socket, subprocess, sys
root = pathlib.Path(__file__).resolve().parents[4]
"""


def test_a_packager_that_asks_its_tools(tmp_path: Path) -> None:
    lines = [
        "assert subprocess.check_output(['git', 'rev-parse', 'HEAD']) == ''",
        "assert subprocess.call(['ninja', '--version']) == 0",
        "subprocess.check_call([shutil.which('gradle'), 'help'])",
        CALL_BUILD.format("'--build_dir=' + os.path.abspath('b')"),
        "sys.exit()",
    ]
    source = tree(tmp_path / "source", IMPORTS + "\n".join(lines))
    found = ort_parser.rehearse(source, ["python3", PLACE, "s.json"], {}, "linux")
    assert found == (
        ("git", "rev-parse", "HEAD"),
        ("ninja", "--version"),
        ("/usr/bin/gradle", "help"),
        ("python", "src/tools/ci_build/build.py", "--build_dir=b"),
    )


@pytest.mark.parametrize(
    "line",
    ["os.system('touch {}')", "subprocess.Popen(['touch', '{}'])", "os.popen('touch {}')",
     "os.execv('/bin/touch', ['touch', '{}'])", "socket.create_connection(('127.0.0.1', 9))"],
)  # fmt: skip
def test_a_rehearsal_starts_nothing(tmp_path: Path, line: str) -> None:
    marker = tmp_path / "marker"
    source = tree(tmp_path / "source", IMPORTS + line.format(marker))
    with pytest.raises(errors.ConfigError, match="a rehearsal starts nothing"):
        ort_parser.rehearse(source, ["python3", PLACE, "s.json"], {}, "linux")
    assert not marker.exists()


def test_test_programs_exist_only_where_they_are_built(tmp_path: Path) -> None:
    # As packagers before 1.20 did it (onnxruntime #21730).
    copy = "shutil.copyfile('b/Release/onnx_test_runner', 'copied')"
    for words, fails in (("", False), ("'--x=onnxruntime_BUILD_UNIT_TESTS=OFF', ", True)):
        call = CALL_BUILD.format(f"'--android', {words}'--build_dir=b', '--config=Release'")
        source = tree(tmp_path / str(fails), f"{IMPORTS}{call}\n{copy}\n")
        with pytest.raises(errors.ConfigError) as caught:
            ort_parser.rehearse(source, ["python3", PLACE, "s.json"], {}, "linux")
        assert ("FileNotFoundError" in caught.value.message) is fails


# ---------------------------------------------------------------------- the fake toolchain
def test_fake_xcode(tmp_path: Path) -> None:
    env = fake_toolchain.make(tmp_path / "x", "ios")
    version = process.run(["/bin/sh", "-c", "xcodebuild -version"], timeout=30, env=env)
    assert version.stdout.startswith("Xcode 16.2\n")
    words = ["xcrun", "lipo", "-create", "a", "-output", "fat"]
    process.run(["/bin/sh", "-c", shlex.join(words)], timeout=30, env=env, cwd=tmp_path)
    assert (tmp_path / "fat").read_text() == "made by lipo\n"
    process.run(["/bin/sh", "-c", PACK], timeout=30, env=env, cwd=tmp_path)
    assert (tmp_path / XCFRAMEWORK / "Info.plist").is_file()
    recorded = fake_toolchain.calls(tmp_path / "x")
    assert recorded[:3] == [["xcodebuild", "-version"], words, words[1:]]


def test_fake_ndk_and_emsdk(tmp_path: Path) -> None:
    env = fake_toolchain.make(tmp_path / "a", "android")
    revision = (Path(env["ANDROID_NDK_HOME"]) / "source.properties").read_text()
    assert f"Pkg.Revision = {fake_toolchain.NDK_REVISION}\n" in revision
    adb = Path(env["ANDROID_HOME"]) / "platform-tools" / "adb"
    assert "Android Debug Bridge" in process.run([adb, "version"], timeout=30, env=env).stdout
    env = fake_toolchain.make(tmp_path / "e", "emsdk")
    emcc = Path(env["EMSDK"]) / "upstream" / "emscripten" / "emcc"
    said = process.run([emcc, "--version"], timeout=30, env=env).stdout
    assert fake_toolchain.EMSDK_VERSION in said
