"""What a host has for a reduced build, by what its programs really print; and what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.tools import ort_toolchain
from edge.tools.ort_toolchain import Ask, Tool
from edge.tools.reduced_plan import PROVIDERS, Request

CMAKE = (
    "cmake version 3.31.10\n\nCMake suite maintained and supported by Kitware (kitware.com/cmake)."
)
GCC = """\
x86_64-linux-gnu-g++ (Debian 12.2.0-14+deb12u1) 12.2.0
Copyright (C) 2022 Free Software Foundation, Inc."""
STRIP = (
    "GNU strip (GNU Binutils for Debian) 2.40\nCopyright (C) 2023 Free Software Foundation, Inc."
)
JAVA = """\
openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)"""
JAVA_8 = """\
openjdk version "1.8.0_392"
OpenJDK Runtime Environment (build 1.8.0_392-b08)
OpenJDK 64-Bit Server VM (build 25.392-b08, mixed mode)"""
NDK = "Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\nPkg.BaseRevision = 27.2.12479018\n"
XCODE = "Xcode 16.2\nBuild version 16C5032a"
VCPKG = (
    "vcpkg package management program version 2025-03-13-7699e411ea11543de6abc0c7d5fd11cfe0039ae5"
)
# Only what a program was asked for here answers; all else is not there.
HOST: Mapping[str, str] = {
    "cmake --version": CMAKE,
    "ninja --version": "1.13.2.git.kitware.jobserver-pipe-1",
    "protoc --version": "libprotoc 3.21.12",
    "x86_64-linux-gnu-g++ --version": GCC,
    "x86_64-linux-gnu-strip --version": STRIP,
    "aarch64-linux-gnu-g++ --version": GCC.replace("x86_64", "aarch64"),
    "aarch64-linux-gnu-strip --version": STRIP,
    "arm-linux-gnueabihf-g++ --version": GCC.replace("x86_64-linux-gnu", "arm-linux-gnueabihf"),
    "arm-linux-gnueabihf-strip --version": STRIP,
    "java -version": JAVA,
    "printenv ANDROID_HOME": "/opt/sdk\n",
    "printenv ANDROID_NDK_HOME": "/opt/sdk/ndk/27",
    "printenv VCPKG_INSTALLATION_ROOT": "/opt/vcpkg",
    "/opt/vcpkg/vcpkg version": VCPKG,
    "ls /opt/sdk/platforms/android-34": "android.jar",
    "cat /opt/sdk/ndk/27/source.properties": NDK,
    "xcodebuild -version": XCODE,
    "node --version": "v20.20.2",
}  # fmt: skip


def host(**other: str | None) -> Ask:
    """A host as above, but for what is said: the answer by the first word of the question."""

    def ask(words: Sequence[str]) -> str | None:
        question = " ".join(words)
        for word, answer in other.items():
            if question.partition(" ")[0].endswith(word) or question.endswith(word):
                return answer
        return HOST.get(question)

    return ask


def survey(
    platform: str, ask: Ask, version: str = "1.21.0", *, pinned: bool = False
) -> dict[str, Tool]:
    found = ort_toolchain.survey(Request(version, platform, pinned=pinned), ask)
    assert len({tool.name for tool in found}) == len(found)
    return {tool.name: tool for tool in found}


# ------------------------------------------------------------------------------- all is there
@pytest.mark.parametrize(
    ("platform", "versions"),
    [
        ("linux-x64", {"ninja": "1.13.2", "protoc": "3.21.12", "compiler": GCC.splitlines()[0],
                       "binutils": "GNU strip (GNU Binutils for Debian) 2.40"}),
        ("android", {"ninja": "1.13.2", "jdk": "17.0.15", "ndk": "27.2.12479018",
                     "sdk": "present", "vcpkg": VCPKG}),
        ("ios", {"xcode": "16.2"}),
        ("browser", {"node": "20.20.2"}),
    ],
)  # fmt: skip
def test_a_host_with_everything(platform: str, versions: dict[str, str]) -> None:
    found = survey(platform, host(), pinned=platform.startswith("linux"))
    assert ort_toolchain.missing(tuple(found.values())) == {}
    assert ort_toolchain.versions(tuple(found.values())) == {"cmake": "3.31.10", **versions}


@pytest.mark.parametrize("platform", ["linux-arm64", "linux-armhf"])
def test_a_cross_compiler_is_the_platforms_own(platform: str) -> None:
    found = survey(platform, host())
    assert not ort_toolchain.missing(tuple(found.values()))
    assert found["compiler"].version.split("-")[0] in {"aarch64", "arm"}
    assert "protoc" not in found  # the build fetches its own


@pytest.mark.parametrize("platform", PROVIDERS)
def test_a_bare_host_lacks_everything_with_version_and_remedy(platform: str) -> None:
    found = survey(platform, lambda _words: None, pinned=platform.startswith("linux"))
    for tool in found.values():
        assert tool.version == ""
        assert "none" in tool.lack
        assert tool.remedy
        if tool.name not in {"sdk", "vcpkg"}:  # any will do
            assert any(letter.isdigit() for letter in tool.lack), tool.lack
    assert len(ort_toolchain.missing(tuple(found.values()))) == len(found)


# -------------------------------------------------------------------------------- each tool
@pytest.mark.parametrize(
    ("said", "version", "lack"),
    [
        ("cmake version 3.28.0", "3.28.0", ""),
        ("cmake version 3.29.0-rc2", "3.29.0", ""),
        ("cmake version 3.25.1", "3.25.1", "CMake 3.28 or newer (this is 3.25.1)"),
        ("cmake version 4.1.0", "4.1.0", "CMake 3.28 or newer, but no 4 (this is 4.1.0)"),
        ("Illegal instruction", "", "CMake 3.28 or newer (this is none)"),
        ("", "", "CMake 3.28 or newer (this is none)"),
        (None, "", "CMake 3.28 or newer (this is none)"),
    ],
)
def test_cmake(said: str | None, version: str, lack: str) -> None:
    tool = survey("linux-x64", host(cmake=said))["cmake"]
    assert (tool.version, tool.lack) == (version, lack)
    assert tool.remedy == "pip install 'cmake>=3.28,<4'"


def test_cmake_by_release() -> None:
    old, new = host(cmake="cmake version 3.26.4"), host(cmake="cmake version 4.1.0")
    assert not survey("linux-x64", old, "1.20.1")["cmake"].lack
    assert survey("linux-x64", old, "1.21.0")["cmake"].lack
    assert survey("linux-x64", new, "1.21.1")["cmake"].lack
    assert not survey("linux-x64", new, "1.22.0")["cmake"].lack


@pytest.mark.parametrize(
    ("said", "lack"),
    [
        ("1.11.1", ""),
        ("1.10", ""),
        ("1.8.2", "Ninja 1.10 or newer (this is 1.8.2)"),
        ("ninja: error", "Ninja 1.10 or newer (this is none)"),
    ],
)
def test_ninja(said: str, lack: str) -> None:
    assert survey("linux-x64", host(ninja=said))["ninja"].lack == lack


@pytest.mark.parametrize(
    ("said", "old"),
    [
        ("x86_64-linux-gnu-g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", False),
        ("g++ (GCC) 14.2.1 20250110 (Red Hat 14.2.1-7)", False),
        ("g++ (GCC) 8.5.0 20210514 (Red Hat 8.5.0-22)", True),
        ("arm-linux-gnueabihf-g++ (Linaro GCC 7.5-2019.12) 7.5.0", True),
        ("x86_64-linux-gnu-g++-12 (crosstool-NG 1.25.0) 12.1.0", False),
        ("no version here (9.1.0)", True),
    ],
)
def test_the_compilers_own_version_counts(said: str, old: bool) -> None:
    tool = survey("linux-x64", host(**{"g++ --version": said + "\nCopyright"}))["compiler"]
    assert tool.version == said
    assert tool.lack == (f"x86_64-linux-gnu-g++ 9 or newer (this is {said})" if old else "")
    assert tool.remedy == "apt install g++-x86-64-linux-gnu"


def test_later_releases_want_a_newer_compiler() -> None:
    ask = host(**{"g++ --version": "x86_64-linux-gnu-g++ (Debian 10.2.1-6) 10.2.1 20210110"})
    assert not survey("linux-x64", ask, "1.24.2")["compiler"].lack
    assert "11 or newer" in survey("linux-x64", ask, "1.25.0")["compiler"].lack


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("libprotoc 3.21.12", "3.21.12"),
        ("libprotoc 25.1", "25.1"),
        ("Missing input file.", ""),
        (None, ""),
    ],
)
def test_protoc_must_be_the_very_same(said: str | None, version: str) -> None:
    tool = survey("linux-x64", host(protoc=said), pinned=True)["protoc"]
    assert tool.version == version
    same = version == "3.21.12"
    assert tool.lack == ("" if same else f"protoc 3.21.12 (this is {version or 'none'})")


@pytest.mark.parametrize(
    ("said", "version", "old"),
    [
        (JAVA, "17.0.15", False),
        (JAVA_8, "1.8.0_392", True),
        ('openjdk version "21" 2023-09-19', "21", False),
        ('java version "11.0.20" 2023-07-18 LTS', "11.0.20", True),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", "", True),
    ],
)
def test_java(said: str, version: str, old: bool) -> None:
    tool = survey("android", host(java=said))["jdk"]
    assert tool.version == version
    assert tool.lack == (f"JDK 17 or newer (this is {version or 'none'})" if old else "")


@pytest.mark.parametrize(
    ("properties", "version", "lack"),
    [
        ("Pkg.Revision = 28.0.13004108\n", "28.0.13004108", ""),
        ("Pkg.Revision=27.0.12077973", "27.0.12077973", ""),
        ("Pkg.Revision = 25.1.8937393", "25.1.8937393",
         "the Android NDK 27.2.12479018 (ANDROID_NDK_HOME: 25.1.8937393)"),
        ("no properties", "", "the Android NDK 27.2.12479018 (ANDROID_NDK_HOME: /opt/sdk/ndk/27)"),
        (None, "", "the Android NDK 27.2.12479018 (ANDROID_NDK_HOME: /opt/sdk/ndk/27)"),
    ],
)  # fmt: skip
def test_ndk(properties: str | None, version: str, lack: str) -> None:
    tool = survey("android", host(**{"source.properties": properties}))["ndk"]
    assert (tool.version, tool.lack) == (version, lack)
    assert "27.2.12479018" in tool.remedy


def test_the_ndk_of_old_releases() -> None:
    tool = survey("android", lambda _words: None, "1.17.3")["ndk"]
    assert tool.lack == "the Android NDK 26 or newer (ANDROID_NDK_HOME: none)"
    assert tool.remedy.startswith("get the NDK 26 or newer with sdkmanager")


def test_an_sdk_that_is_not_where_the_variable_says() -> None:
    tool = survey("android", host(**{"android-34": None}))["sdk"]
    assert tool.lack == ("the Android SDK with platforms/android-34 (ANDROID_HOME: /opt/sdk)")
    assert "ANDROID_HOME" in tool.remedy


def test_vcpkg_is_for_one_release() -> None:
    assert survey("android", host(vcpkg=None))["vcpkg"].lack == (
        "vcpkg (VCPKG_INSTALLATION_ROOT: /opt/vcpkg)"
    )
    assert "vcpkg" not in survey("android", host(), "1.20.1")
    assert "vcpkg" not in survey("android", host(), "1.29.0")


@pytest.mark.parametrize(
    ("said", "version"),
    [(XCODE, "16.2"), ("Xcode 15.0.1\nBuild version 15A507", "15.0.1"), ("Xcode 14.3.1", "14.3.1"),
     ("xcode-select: error: tool 'xcodebuild' requires Xcode", ""), (None, "")],
)  # fmt: skip
def test_xcode(said: str | None, version: str) -> None:
    tool = survey("ios", host(xcodebuild=said))["xcode"]
    assert tool.version == version
    good = version[:2] in {"15", "16"}
    assert tool.lack == (
        "" if good else f"macOS with Xcode 15 or newer (this is {version or 'none'})"
    )
    assert "--on" in tool.remedy
    assert "--plan" in tool.remedy


def test_node() -> None:
    assert survey("browser", host(node="v18.19.0"))["node"].lack == (
        "Node.js 20 or newer (this is 18.19.0)"
    )


@given(st.text(max_size=60), st.sampled_from(sorted(PROVIDERS)))
def test_nonsense_is_a_lack_or_a_version_and_never_an_error(said: str, platform: str) -> None:
    for tool in ort_toolchain.survey(Request("1.21.0", platform), lambda _words: said):
        assert bool(tool.lack) or bool(tool.version)


# ------------------------------------------------------------------------------ this machine
@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "answer"),
    [("print('one')", "one"), ("import sys; sys.stderr.write('two')", "two"),
     ("import sys; print('three'); sys.stderr.write('noise')", "three"),
     ("print('four'); raise SystemExit(1)", None), ("", "")],
)  # fmt: skip
def test_this_machine_is_asked(program: str, answer: str | None) -> None:
    assert ort_toolchain.local([Path(sys.executable).name, "-c", program]) == answer


@pytest.mark.process
def test_no_program_and_no_end_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ort_toolchain.local(["no-such-program", "--version"]) is None
    monkeypatch.setattr(ort_toolchain, "TIMEOUT", 0.2)
    sleep = "import time; time.sleep(20)"
    assert ort_toolchain.local([Path(sys.executable).name, "-c", sleep]) is None
