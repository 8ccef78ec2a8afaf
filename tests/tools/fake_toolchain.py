"""Believable stand-ins for toolchains that a test host lacks: Android NDK and SDK, Xcode, emsdk.

``make`` lays one out and returns the environment that leads to it; ``host`` makes a whole machine
that builds, with an interpreter and the usual tools of its own, ``clone`` sources for it. The
programs compile nothing (see :mod:`tests.tools.fake_programs`); each writes down how it was
called (``calls``).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import site
import sys
import venv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests import elf_files
from tests.tools import fake_programs
from tests.tools.fake_programs import EMSDK_VERSION, NDK_REVISION

__all__ = ["EMSDK_VERSION", "NDK_REVISION", "Call", "Machine", "calls", "clone", "host", "make"]
Kind = Literal["android", "ios", "emsdk"]
# Machine (e_machine) and bits of each ABI.
MACHINES = {"armeabi-v7a": (40, 32), "arm64-v8a": (183, 64), "x86": (3, 32), "x86_64": (62, 64)}
HOST_TOOLS = ("cmake", "ctest", "ninja", "git")
# What a clone has and Debian's archive has not.
WRAPPER = "java/gradle/wrapper/gradle-wrapper.jar"
EMSDK = "cmake/external/emsdk"
# No build script reads it, and it is most of the tree.
UNREAD = ("test", "testdata", "cuda", "rocm", "js", "csharp", "winml", "docs")
# What the machine's interpreter takes itself for: another user, and for the tree's scripts a Mac.
CUSTOM = """\
import os, sys
os.geteuid = lambda: int(os.environ.get("FAKE_EUID", "1000"))
if os.environ.get("FAKE_HOST") == "macos" and "/tools/ci_build/" in "".join(sys.orig_argv[1:2]):
    import platform, shutil, subprocess, urllib.request
    sys.platform = "darwin"
    # Where it is installed the tree's scripts import torch, which would look for a Mac's libraries.
    sys.modules["torch"] = None
    platform.system = lambda: "Darwin"
"""


@dataclass(frozen=True)
class Call:
    """One call of a program: its words behind the name, where, and with which environment."""

    name: str
    words: list[str]
    cwd: Path
    env: Mapping[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """What the words define (``-DNAME=VALUE``)."""
        return dict(word[2:].split("=", 1) for word in self.words if word.startswith("-D"))


# ---------------------------------------------------------------------------- toolchains
def make(folder: Path, kind: Kind) -> dict[str, str]:
    """Lay out ``kind`` in the empty ``folder``; the whole environment for a process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calls.jsonl").touch()
    programs, env = {"android": _android, "ios": _ios, "emsdk": _emsdk}[kind](folder)
    _lay(programs)
    places = dict.fromkeys(str(path.parent) for path in programs)
    search = os.pathsep.join([*places, os.environ.get("PATH", os.defpath)])
    return {**os.environ, **env, "PATH": search, "FAKE_CALLS": str(folder / "calls.jsonl")}


def calls(folder: Path) -> list[list[str]]:
    """Every call of a program of ``folder``: its name and its words."""
    return [[call.name, *call.words] for call in _started(folder)]


def _started(folder: Path) -> list[Call]:
    text = (folder / "calls.jsonl").read_text(encoding="utf-8")
    said = [json.loads(line) for line in text.splitlines()]
    return [Call(one["name"], one["words"], Path(one["cwd"]), one["env"]) for one in said]


# ------------------------------------------------------------------- the machine that builds
@dataclass(frozen=True)
class Machine:
    """Where a fake host lies, its interpreter and its environment.

    Beside the interpreter, where edge looks first, lie CMake, Ninja and git. Its user is not
    root; ``FAKE_EUID`` says otherwise.
    """

    folder: Path
    python: Path
    env: Mapping[str, str]

    @contextmanager
    def here(self, **more: str) -> Iterator[None]:
        """This process runs there, with more in its environment."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.env, **more}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "executable", str(self.python))
            patch.setattr(os, "geteuid", lambda: int(more.get("FAKE_EUID", "1000")))
            yield

    def calls(self, *names: str) -> list[Call]:
        """The calls of programs by name, of all without one."""
        return [call for call in _started(self.folder) if not names or call.name in names]

    def configured(self) -> list[Call]:
        """Every run of CMake that configures."""
        words = ("--build", "--version")
        return [call for call in self.calls("cmake") if call.words[0] not in words]


def host(folder: Path, platform: str) -> Machine:
    """A machine that builds for ``platform``; for iOS the tree's scripts take it for a Mac."""
    kinds: dict[str, Kind] = {"android": "android", "ios": "ios", "browser": "emsdk"}
    env = make(folder, kinds[platform]) | ({"FAKE_HOST": "macos"} if platform == "ios" else {})
    venv.create(folder / "python", symlinks=True, with_pip=False)
    python = folder / "python" / "bin" / "python"
    (packages,) = (folder / "python" / "lib").glob("python*/site-packages")
    (packages / "fake_host.py").write_text(CUSTOM, encoding="utf-8")
    lines = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()]
    (packages / "fake_host.pth").write_text("\n".join([*lines, "import fake_host\n"]))
    _lay([python.parent / name for name in HOST_TOOLS])
    return Machine(folder, python, env)


def clone(source: Path, folder: Path) -> Path:
    """The source tree ``source`` in the new ``folder``, with what only a clone has."""
    ignore = shutil.ignore_patterns(*UNREAD)
    shutil.copytree(source, folder, copy_function=_linked, ignore=ignore)
    _file(folder / WRAPPER, "PK")
    tags = {"releases": {EMSDK_VERSION: "0" * 40}}
    _file(folder / EMSDK / "emscripten-releases-tags.json", json.dumps(tags))
    _lay([folder / EMSDK / "emsdk"])
    return folder


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


# ---------------------------------------------------------------------------- each of them
def _lay(programs: Iterable[Path]) -> None:
    start = shlex.join(["exec", sys.executable, "-I", "-S", fake_programs.__file__])
    for path in programs:
        _file(path, f'#!/bin/sh\n{start} "$0" "$@"\n')
        path.chmod(0o755)


def _android(folder: Path) -> tuple[list[Path], dict[str, str]]:
    sdk = folder / "sdk"
    ndk = sdk / "ndk" / NDK_REVISION
    revision = f"Pkg.Desc = Android NDK\nPkg.Revision = {NDK_REVISION}\n"
    _file(ndk / "source.properties", revision)
    _file(ndk / "build" / "cmake" / "android.toolchain.cmake", "# fake\n")
    _file(sdk / "platforms" / "android-34" / "android.jar")
    _file(sdk / "build-tools" / "34.0.0" / "source.properties", "Pkg.Revision=34.0.0\n")
    _file(folder / "vcpkg" / "scripts" / "buildsystems" / "vcpkg.cmake", "# fake\n")
    _libraries(folder / "elf")
    tools = ndk / "toolchains" / "llvm" / "prebuilt" / "linux-x86_64" / "bin"
    programs = [tools / name for name in ("clang", "clang++", "llvm-ar", "llvm-strip")]
    programs += [sdk / "platform-tools" / "adb", folder / "jdk" / "bin" / "java"]
    programs += [sdk / "cmdline-tools" / "latest" / "bin" / "sdkmanager"]
    programs += [folder / "vcpkg" / "vcpkg"]
    places = {
        "ANDROID_HOME": sdk,
        "ANDROID_NDK_HOME": ndk,
        "JAVA_HOME": folder / "jdk",
        "VCPKG_INSTALLATION_ROOT": folder / "vcpkg",
        "FAKE_ELF": folder / "elf",
    }
    return programs, {name: str(path) for name, path in places.items()}


def _libraries(folder: Path) -> None:
    """What the NDK's clang links, for every ABI and both page sizes."""
    folder.mkdir()
    for abi, triple in fake_programs.TRIPLES.items():
        machine, bits = MACHINES[abi]
        for page in (fake_programs.SMALL, fake_programs.LARGE):
            spec = elf_files.Spec(machine, bits, soname="libonnxruntime.so", page=page)
            (folder / f"{triple}-{page}.so").write_bytes(elf_files.library(spec))


def _ios(folder: Path) -> tuple[list[Path], dict[str, str]]:
    tools = folder / "bin"
    programs = [tools / name for name in ("xcodebuild", "xcrun", "lipo", "libtool", "clang")]
    return programs, {"DEVELOPER_DIR": str(folder)}


def _emsdk(folder: Path) -> tuple[list[Path], dict[str, str]]:
    root = folder / "upstream" / "emscripten"
    _file(folder / ".emscripten", f"EMSCRIPTEN_ROOT = {str(root)!r}\n")
    _file(root / "emscripten-version.txt", f'"{EMSDK_VERSION}"\n')
    _file(root / "cmake" / "Modules" / "Platform" / "Emscripten.cmake", "# fake\n")
    programs = [root / name for name in ("emcc", "em++", "emar")] + [folder / "emsdk"]
    return programs, {"EMSDK": str(folder), "EM_CONFIG": str(folder / ".emscripten")}


def _file(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # it may be linked: another tree's stays as it is
    path.write_text(text, encoding="utf-8")
