"""The programs of :mod:`tests.tools.fake_toolchain`: what each does instead of compiling.

Every program is this file under another name: ``fake_programs.py PROGRAM WORDS...``, with nothing
but the standard library. It writes down how it was called, refuses what the real one would refuse
(a toolchain file, a wrapper's jar, an emsdk that is not there) and makes what the next stage looks
for. Where a name or a flag is decided by the source tree, it is read there.

``FAKE_CALLS``: the file of calls. ``FAKE_ELF``: a folder of libraries by triple and page size.
``FAKE_FAULT``: what goes wrong: a program's name (it fails), ``no-aar`` (Gradle publishes
nothing), ``4k`` (libraries for small pages, whatever the linker is told).
"""

from __future__ import annotations

import itertools
import json
import os
import plistlib
import re
import shlex
import shutil
import subprocess  # noqa: TID251 - a program of its own, and no part of edge
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

EMSDK_VERSION = "4.0.3"
NDK_REVISION = "27.2.12479018"
SMALL, LARGE = 4096, 16384
ANSWERS = {
    ("adb", "version"): "Android Debug Bridge version 1.0.41",
    ("clang", "--version"): "Android (fake) clang version 18.0.3",
    ("cmake", "--version"): "cmake version 3.31.6",
    ("ctest", "--version"): "ctest version 3.31.6",
    ("emcc", "--version"): f"emcc (Emscripten gcc/clang-like replacement) {EMSDK_VERSION} (fake)",
    ("java", "-version"): 'openjdk version "17.0.12" 2024-07-16',
    ("ninja", "--version"): "1.12.1",
    ("vcpkg", "version"): "vcpkg package management program version 2025-03-13-fake",
    ("xcodebuild", "-version"): "Xcode 16.2\nBuild version 16C5032a",
    ("xcrun", "--show-sdk-path"): "/Applications/Xcode.app/SDKs/fake.sdk",
    ("xcrun", "--show-sdk-version"): "18.2",
}
TRIPLES = {
    "armeabi-v7a": "armv7-none-linux-androideabi",
    "arm64-v8a": "aarch64-none-linux-android",
    "x86": "i686-none-linux-android",
    "x86_64": "x86_64-none-linux-android",
}
CACHE = "CMakeCache.txt"
TOOLCHAIN, CHAINED = "CMAKE_TOOLCHAIN_FILE", "VCPKG_CHAINLOAD_TOOLCHAIN_FILE"
BUILD_PROGRAMS = {"Ninja": "ninja", "Xcode": "xcodebuild"}


def main() -> None:
    """Act as the program of the first word."""
    program, words = Path(sys.argv[1]), sys.argv[2:]
    name = program.name
    call = {"name": name, "words": words, "cwd": str(Path.cwd()), "env": dict(os.environ)}
    with Path(os.environ["FAKE_CALLS"]).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(call) + "\n")
    if os.environ.get("FAKE_FAULT") == name:
        fail(f"{name}: error: no such instruction: fmopa")
    for (asked, word), text in ANSWERS.items():
        if name.removesuffix("++") == asked and word in words:
            (sys.stderr if name == "java" else sys.stdout).write(text + "\n")
            return
    acts = {"cmake": cmake, "java": java, "git": git, "emsdk": emsdk, "em++": em, "emcc": em,
            "clang++": clang, "xcrun": xcrun, "xcodebuild": xcodebuild}  # fmt: skip
    acts.get(name, plain)(program, words)


def fail(text: str, code: int = 1) -> NoReturn:
    """End as programs do that have something against what they were told."""
    sys.stderr.write(text + "\n")
    raise SystemExit(code)


def plain(program: Path, words: Sequence[str]) -> None:
    """Make the file that the words name as output, of all inputs that are there."""
    if output := _output(words):
        platform = f"for {_after(words, '-arch')} {_after(words, '-isysroot')}\n"
        text = f"made by {program.name}\n" + (platform if "-arch" in words else "")
        if program.name == "lipo":
            inputs = [Path(word) for word in words if Path(word).is_file()]
            text += "".join(path.read_text(encoding="utf-8") for path in inputs)
        _write(output, text)


def _output(words: Sequence[str]) -> Path | None:
    name = _after(words, "-o") or _after(words, "-output")
    return Path(name) if name else None


def _after(words: Sequence[str], option: str) -> str:
    """The word behind ``option``, or nothing."""
    return next((b for a, b in itertools.pairwise(words) if a == option), "")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _started(words: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Run a stage of a build; a failed one is told as Ninja tells it."""
    line = [str(word) for word in words]
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    if done.returncode:
        sys.stdout.write(f"FAILED: {_output(line) or line[0]}\n{shlex.join(line)}\n{done.stderr}")
        fail("ninja: build stopped: subcommand failed.")


def git(_program: Path, words: Sequence[str]) -> None:
    """No network, and no repository where there is none."""
    if words[0] == "clone":
        fail("fatal: unable to access the repository: Could not resolve host", 128)
    here = Path.cwd()
    if words[0] == "submodule" and not any((p / ".git").exists() for p in (here, *here.parents)):
        fail("fatal: not a git repository (or any of the parent directories): .git", 128)


# ---------------------------------------------------------------------------------- CMake
def cmake(_program: Path, words: Sequence[str]) -> None:
    """Configure in the current folder, or build the folder behind ``--build``."""
    if words[0] != "--build":
        _configure(Path(words[0]), words)
        return
    settings = cache(Path(words[1]))
    if settings.get("CMAKE_SYSTEM_NAME") == "iOS":
        _build_ios(Path(words[1]), settings)
    elif "ANDROID_ABI" in settings:
        _build_android(Path(words[1]), settings)
    elif settings.get(TOOLCHAIN, "").endswith("/Emscripten.cmake"):
        _build_wasm(Path(words[1]), settings, _after(words, "--target"))
    else:
        fail("no toolchain file says for what this builds")


def cache(build: Path) -> dict[str, str]:
    """What ``build`` was configured with, by name."""
    if not (build / CACHE).is_file():
        fail(f"Error: {build} is not a CMake build directory (missing {CACHE})")
    lines = (build / CACHE).read_text(encoding="utf-8").splitlines()
    found = (line.partition("=") for line in lines)
    return {name.partition(":")[0]: value for name, _, value in found}


def _configure(source: Path, words: Sequence[str]) -> None:
    build = Path.cwd()
    given = (word[2:].partition("=") for word in words if word.startswith("-D"))
    settings = {name.partition(":")[0]: value for name, _, value in given}
    generator = _after(words, "-G") or "Unix Makefiles"
    if not (source / "CMakeLists.txt").is_file():
        fail(f"CMake Error: {source} does not appear to contain CMakeLists.txt.")
    for name in (TOOLCHAIN, CHAINED):
        if name in settings and not any((p / settings[name]).is_file() for p in (build, source)):
            fail(f'CMake Error: Could not find toolchain file: "{settings[name]}"')
    if shutil.which(BUILD_PROGRAMS.get(generator, "make")) is None:
        fail(f'CMake Error: unable to find a build program corresponding to "{generator}".')
    reduced = settings.get("onnxruntime_REDUCED_OPS_BUILD") == "ON"
    if reduced and not (build / "op_reduction.generated").is_dir():
        fail("CMake Error: Cannot find source file: op_reduction.generated")
    settings |= {"CMAKE_HOME_DIRECTORY": str(source), "CMAKE_GENERATOR": generator}
    lines = [f"{name}:UNINITIALIZED={value}\n" for name, value in settings.items()]
    _write(build / CACHE, "".join(lines))
    if "PLATFORM_NAME" in settings:
        _apple_files(source, build, settings)


def _headers(source: Path, folder: Path) -> None:
    header = source.parent / "include/onnxruntime/core/session/onnxruntime_c_api.h"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(header, folder)


# -------------------------------------------------------------------------------- Android
def _build_android(build: Path, settings: Mapping[str, str]) -> None:
    source = Path(settings["CMAKE_HOME_DIRECTORY"])
    ndk = Path(settings.get(CHAINED) or settings[TOOLCHAIN]).parents[2]
    clang_ = ndk / "toolchains/llvm/prebuilt/linux-x86_64/bin/clang++"
    target = TRIPLES[settings["ANDROID_ABI"]] + settings["ANDROID_PLATFORM"].partition("-")[2]
    wanted = {"libonnxruntime.so": ("SHARED", "onnxruntime_BUILD_SHARED_LIB"),
              "libonnxruntime4j_jni.so": ("MODULE", "onnxruntime_BUILD_JAVA")}  # fmt: skip
    if settings["onnxruntime_BUILD_JAVA"] == "ON":
        java_root = source.parent / "java"
        tasks = ["--console=plain", "--no-daemon", "clean", "jar", "-x", "test"]
        _started([java_root / "gradlew", *tasks], java_root)
    for name, (kind, switch) in wanted.items():
        if settings[switch] == "ON":
            flags = _link_flags(source, settings, kind)
            _started([clang_, f"--target={target}", "-shared", *flags, "-o", build / name])
    _headers(source, build / "android" / "headers")


def _link_flags(source: Path, settings: Mapping[str, str], kind: str) -> list[str]:
    """What the tree and the NDK's ``flags.cmake`` (r27) tell the linker of pages."""
    text = (source / "adjust_global_compile_flags.cmake").read_text(encoding="utf-8")
    own = rf"set\(CMAKE_{kind}_LINKER_FLAGS .*(-Wl,-z,max-page-size=\d+)"
    wide = settings["ANDROID_ABI"] in {"arm64-v8a", "x86_64"}
    flexible = settings.get("ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES") == "ON"
    return re.findall(own, text) + [f"-Wl,-z,max-page-size={LARGE}"] * (wide and flexible)


def clang(program: Path, words: Sequence[str]) -> None:
    """The NDK's: a small library for the target, with the pages that the linker is told of."""
    target = next((w.partition("=")[2] for w in words if w.startswith("--target=")), "")
    if not target or "-shared" not in words:
        plain(program, words)
        return
    pages = [word.rpartition("=")[2] for word in words if word.startswith("-Wl,-z,max-page")]
    page = int(pages[-1]) if pages and os.environ.get("FAKE_FAULT") != "4k" else SMALL
    shutil.copyfile(Path(os.environ["FAKE_ELF"], f"{target.rstrip('0123456789')}-{page}.so"),
                    _after(words, "-o"))  # fmt: skip


def java(_program: Path, words: Sequence[str]) -> None:
    """Gradle's wrapper is all that is run: its jar has to be there."""
    main_class = "org.gradle.wrapper.GradleWrapperMain"
    if main_class not in words or not Path(_after(words, "-classpath")).is_file():
        fail(f"Error: Could not find or load main class {main_class}")
    rest = words[words.index(main_class) + 1 :]
    properties = dict(word[2:].split("=", 1) for word in rest if word.startswith("-D"))
    files = [Path(word[3:]) for word in rest if word[:3] in {"-b=", "-c="}]
    for file in files:
        if not file.is_file():
            fail(f"The specified file '{file}' does not exist.")
    tasks = [word for word in rest if not word.startswith("-") and word != "test"]
    if "jar" in tasks:
        _write(Path("build/libs/onnxruntime.jar"), "PK")
    if files:
        _package(tasks, properties, *(file.read_text(encoding="utf-8") for file in files))


def _package(tasks: Sequence[str], given: Mapping[str, str], build: str, settings: str) -> None:
    """``build-android.gradle``: clean, make the archive, publish it into a Maven folder."""
    folder = Path(given["buildDir"])
    name = _said(settings, r"rootProject\.name = '(.+)'")
    archive = folder / "outputs" / "aar" / f"{name}-release.aar"
    if "clean" in tasks:
        shutil.rmtree(folder, ignore_errors=True)
    if "build" in tasks:
        platform = "android-" + _said(build, r"compileSdkVersion (\d+)")
        if not (Path(os.environ["ANDROID_HOME"]) / "platforms" / platform).is_dir():
            fail(f"> Failed to find target with hash string '{platform}'")
        _archive(archive, given)
    if "publish" in tasks and os.environ.get("FAKE_FAULT") != "no-aar":
        version = Path("..", "VERSION_NUMBER").read_text(encoding="utf-8").strip()
        version += given.get("releaseVersionSuffix", "")
        group = _said(build, r'project\.group = "(.+)"').replace(".", "/")
        place = Path(given["publishDir"], group, f"{name}-android", version)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(archive, place / f"{name}-android-{version}.aar")


def _archive(archive: Path, given: Mapping[str, str]) -> None:
    native, headers = Path(given["jniLibsDir"]), Path(given["headersDir"])
    manifest = f'<uses-sdk minSdkVersion="{given["minSdkVer"]}"/>'
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("AndroidManifest.xml", manifest)
        out.writestr("classes.jar", "PK")
        for path in sorted(native.glob("*/*.so")):
            out.write(path, f"jni/{path.parent.name}/{path.name}")
        for path in sorted(headers.glob("*.h")):
            out.write(path, f"headers/{path.name}")


def _said(text: str, pattern: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else fail(f"nothing says {pattern}")


# --------------------------------------------------------------------------------- browser
def emsdk(program: Path, words: Sequence[str]) -> None:
    """Install or activate a version that this emsdk knows, in the folder that it lies in."""
    root, (action, version) = program.parent, words
    tags = json.loads((root / "emscripten-releases-tags.json").read_text(encoding="utf-8"))
    home = root / "upstream" / "emscripten"
    if version not in tags["releases"]:
        fail(f"error: tool or SDK not found: '{version}'")
    if action == "install":
        _write(home / "emscripten-version.txt", f'"{version}"\n')
        _write(home / "cmake/Modules/Platform/Emscripten.cmake", "# fake\n")
        for name in ("emcc", "em++", "emar"):
            shutil.copy(program, home / name)
    elif not home.is_dir():
        fail(f"error: tool is not installed and therefore cannot be activated: '{version}'")
    else:
        _write(root / ".emscripten", f"EMSCRIPTEN_ROOT = {str(home)!r}\n")


def _build_wasm(build: Path, settings: Mapping[str, str], target: str) -> None:
    if target != "onnxruntime_webassembly":
        fail(f"ninja: error: unknown target '{target}'")
    # cmake/onnxruntime_webassembly.cmake
    parts = {"onnxruntime_ENABLE_WEBASSEMBLY_SIMD": "-simd",
             "onnxruntime_ENABLE_WEBASSEMBLY_THREADS": "-threaded",
             "onnxruntime_USE_JSEP": ".jsep"}  # fmt: skip
    name = "ort-wasm" + "".join(part for switch, part in parts.items() if settings[switch] == "ON")
    compiler = Path(settings[TOOLCHAIN]).parents[3] / "em++"
    _started([compiler, "-o", build / f"{name}.mjs"])


def em(program: Path, words: Sequence[str]) -> None:
    """A module and its WebAssembly, once an emsdk is activated."""
    if not (program.parents[2] / ".emscripten").is_file():
        fail("emcc: error: no configuration file: run 'emsdk activate'")
    output = _output(words)
    plain(program, words)
    if output and output.suffix == ".mjs":
        output.with_suffix(".wasm").write_bytes(b"\0asm\1\0\0\0")


# ------------------------------------------------------------------------------------- iOS
def _apple_files(source: Path, build: Path, settings: Mapping[str, str]) -> None:
    """What cmake/onnxruntime.cmake configures for a framework."""
    version = (source.parent / "VERSION_NUMBER").read_text(encoding="utf-8").strip()
    known = {**settings, "ORT_VERSION": version, "MACOSX_FRAMEWORK_NAME": "onnxruntime"}
    info = source.parent / "tools/ci_build/github/apple/framework_info.json.template"
    made = {"Info.plist": source / "Info.plist.in", "framework_info.json": info}
    for name, template in made.items():
        text = template.read_text(encoding="utf-8")
        text = re.sub(r"[$@]\{?(\w+)[}@]", lambda found: known.get(found[1], ""), text)
        _write(build / name, text)


def _build_ios(build: Path, settings: Mapping[str, str]) -> None:
    sdk, arch = settings["CMAKE_OSX_SYSROOT"], settings["CMAKE_OSX_ARCHITECTURES"]
    products = build / f"{settings['CMAKE_BUILD_TYPE']}-{sdk}"
    for place in (products, products / "static_framework"):
        framework = place / "onnxruntime.framework"
        words = ["xcrun", "clang", "-arch", arch, "-isysroot", sdk]
        _started([*words, "-o", framework / "onnxruntime"])
        _headers(Path(settings["CMAKE_HOME_DIRECTORY"]), framework / "Headers")


def xcrun(program: Path, words: Sequence[str]) -> None:
    """Run the program beside this one."""
    beside = program.parent / words[0]
    if not beside.is_file():
        fail(f'xcrun: error: unable to find utility "{words[0]}"', 72)
    os.execv(beside, [str(beside), *words[1:]])


def xcodebuild(_program: Path, words: Sequence[str]) -> None:
    """Put frameworks into one xcframework, a slice each."""
    output = _output(words)
    if "-create-xcframework" not in words or output is None:
        return
    options = itertools.pairwise(words)
    frameworks = [Path(path) for option, path in options if option == "-framework"]
    libraries = [_slice(framework, output) for framework in frameworks]
    output.mkdir(parents=True, exist_ok=True)
    (output / "Info.plist").write_bytes(plistlib.dumps({"AvailableLibraries": libraries}))


def _slice(framework: Path, output: Path) -> dict[str, object]:
    binary = (framework / framework.stem).read_text(encoding="utf-8")
    built = re.findall(r"^for (\S+) (\S+)$", binary, re.MULTILINE)
    archs, sdks = sorted({arch for arch, _ in built}), {sdk for _, sdk in built}
    if len(sdks) != 1:
        fail(f"error: unable to determine the platform of {framework}")
    simulator = sdks == {"iphonesimulator"}
    name = f"ios-{'_'.join(archs)}" + ("-simulator" if simulator else "")
    shutil.copytree(framework, output / name / framework.name)
    entry: dict[str, object] = {
        "LibraryIdentifier": name,
        "LibraryPath": framework.name,
        "SupportedArchitectures": archs,
        "SupportedPlatform": "ios",
    }
    return {**entry, "SupportedPlatformVariant": "simulator"} if simulator else entry


if __name__ == "__main__":
    main()
