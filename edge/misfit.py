"""What a bundle requires of a device against what the device says of itself.

What a device does not say is no lack, but for the two things that a bundle for a GPU cannot do
without: a GPU that the driver lists, and the packages that its Python runner imports.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge import errors
from edge.probe import DeviceFacts, software
from edge.tools.environment import exact

# What a device calls its CPU (uname -m; PROCESSOR_ARCHITECTURE on Windows), by the name that
# manifests use.
ARCHITECTURES = {
    "x86_64": ("x86_64", "amd64"),
    "aarch64": ("aarch64", "arm64", "armv8l"),
}
SYSTEMS = ("linux", "windows", "darwin")  # what a manifest may require of a device with a shell
OTHER_TARGET = "deploy another target: edge targets"

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class Lack:
    """One thing that a device does not have, as what follows its name, and the remedy."""

    what: str
    remedy: str


def called(manifest: Manifest) -> str:
    """What devices call the bundle of a manifest."""
    return f"{manifest['model']['name']}.{manifest['target']['name']}"


def refuse(lacks: Sequence[Lack], manifest: Manifest, device: str) -> None:
    """Raise :class:`errors.Unavailable` with all of ``lacks``; nothing where there are none."""
    if lacks:
        raise errors.Unavailable(
            f"the device {device} cannot run the bundle {called(manifest)}: "
            + "; ".join(lack.what for lack in lacks),
            remedy="; ".join(dict.fromkeys(lack.remedy for lack in lacks)),
        )


def hardware(manifest: Manifest, facts: DeviceFacts) -> list[Lack]:
    """What of system, CPU, GPU and driver a device lacks: what no package can bring."""
    requires = _requires(manifest)
    return [*_system(requires, facts), *_gpu(requires, facts)]


def _requires(manifest: Manifest) -> dict[str, str]:
    """What a manifest requires of a device; a bundle is untrusted input."""
    requires = manifest["runtime"].get("requires")
    return {str(k): str(v) for k, v in requires.items()} if isinstance(requires, Mapping) else {}


def _system(requires: Mapping[str, str], facts: DeviceFacts) -> Iterable[Lack]:
    system, arch = requires.get("os", ""), requires.get("arch", "")
    if system in SYSTEMS and facts.os and system not in facts.os.lower():
        yield Lack(f"it runs {facts.os}, not {system}", OTHER_TARGET)
    if arch and facts.arch and facts.arch.lower() not in ARCHITECTURES.get(arch, (arch,)):
        yield Lack(f"its CPU is {facts.arch}, not {arch}", OTHER_TARGET)
    flags = requires.get("cpu_flags", "").split() if facts.cpu_flags else []
    for flag in flags:
        if flag not in facts.cpu_flags:
            yield Lack(f"its CPU lacks {flag}", OTHER_TARGET)
    libc, _, version = facts.libc.partition(" ")
    needed = requires.get("glibc")
    if needed and libc and (libc != "glibc" or _version(version) < _version(needed)):
        yield Lack(
            f"it has {facts.libc}, not glibc {needed}",
            "update the device, or pin an older runtime in the target",
        )


def _gpu(requires: Mapping[str, str], facts: DeviceFacts) -> Iterable[Lack]:
    driver, least = requires.get("driver", ""), requires.get("compute_capability", "")
    some = requires.get("compute_capabilities", "").split()
    if not (requires.get("gpu") == "nvidia" or driver or least or some):
        return
    if not facts.gpus:
        yield _no_gpu(
            facts.gpu_trouble, driver, f"{least} or newer" if least else " or ".join(some)
        )
        return
    installed = next((gpu.driver for gpu in facts.gpus if gpu.driver), "")
    if driver and installed and _version(installed) < _version(driver):
        yield Lack(
            f"its NVIDIA driver {installed} is older than {driver}",
            f"install NVIDIA's driver {driver} or newer",
        )
    known = [gpu for gpu in facts.gpus if gpu.compute_capability]
    names = ", ".join(dict.fromkeys(f"{g.name} ({g.compute_capability})" for g in known))
    if least and known and all(_capability(gpu) < _version(least) for gpu in known):
        yield Lack(f"no GPU of it has compute capability {least}: {names}", OTHER_TARGET)
    if some and known and not {gpu.compute_capability for gpu in known} & set(some):
        yield Lack(
            f"its engine is for compute capability {' or '.join(some)}, the GPU is {names}",
            "build it for that GPU: by tensorrt.compute_capabilities of the target, a native plan "
            "--on a machine that has the GPU (a plan made by hand cannot be changed)",
        )


def _no_gpu(trouble: str, driver: str, capability: str) -> Lack:
    why = f"nvidia-smi says: {trouble}" if trouble else "there is no nvidia-smi"
    least = f" {driver} or newer" if driver else ""
    gpu = f"a GPU of compute capability {capability}" if capability else "an NVIDIA GPU"
    mend = f"install NVIDIA's driver{least}"
    if "version mismatch" in trouble:
        mend = "restart the device, whose driver was updated"
    return Lack(f"it has no NVIDIA GPU ({why})", f"{mend}, and use {gpu}; or {OTHER_TARGET}")


def _capability(gpu: Any) -> tuple[int, ...]:
    return _version(gpu.compute_capability)


def libraries(manifest: Manifest, facts: DeviceFacts, *, by_python: bool) -> list[Lack]:
    """Shared libraries that neither the loader finds nor, for a Python runner, pip's packages.

    Those whose names no probe looks for are the health run's to find.
    """
    needed = _requires(manifest).get("libraries", "").split()
    if facts.libraries is None:
        return []
    there = {*facts.libraries, *(facts.python_libraries if by_python else ())}
    missing = [name for name in needed if software.is_known(name) and name not in there]
    if not missing:
        return []
    remedy = "install what they belong to, or put their folder on LD_LIBRARY_PATH there"
    return [Lack(f"its loader does not find {', '.join(missing)}", remedy)]


def packages(manifest: Manifest, facts: DeviceFacts, python: str) -> list[Lack]:
    """What the Python runner imports and ``python``, the device's, does not have.

    Raises :class:`errors.UsageError` for a manifest whose requirements are none.
    """
    python_needs = manifest["runtime"].get("python") or ()
    wanted = {each: _exact(each, manifest) for each in map(str, python_needs)}
    if not wanted:
        return []
    if facts.packages is None:
        version = f"Python {facts.python}, which is too old" if facts.python else "no Python 3"
        remedy = 'name one: python = "..." of the device in devices.toml'
        return [Lack(f"it has {version} ({python})", remedy)]
    found = facts.packages
    # The device may have packages of its own beside those that are looked for.
    sought = {each: (n, v) for each, (n, v) in wanted.items() if n in software.PACKAGES}
    if "numpy" not in found and "numpy" not in dict(sought.values()):
        sought["numpy"] = ("numpy", "")  # any release: the runner holds its samples with it
    missing = [each for each, (name, v) in sought.items() if not _same(v, found.get(name, ""))]
    lacks = [_missing(missing, sought, facts, python)] if missing else []
    return lacks + [lack for name, _ in sought.values() for lack in _beside(name, found, python)]


def _exact(requirement: str, manifest: Manifest) -> tuple[str, str]:
    found = exact(requirement)
    if found is None:
        raise errors.UsageError(
            f"the bundle {called(manifest)} requires {requirement[:200]!r} of Python, which is no "
            "exact requirement",
            remedy="build the bundle again",
        )
    return found


def _missing(
    missing: Sequence[str],
    sought: Mapping[str, tuple[str, str]],
    facts: DeviceFacts,
    python: str,
) -> Lack:
    there = facts.packages or {}
    words = []
    for each in missing:
        name, version = sought[each]
        instead = f" (it has {there[name]})" if name in there else ""
        words.append(f"{name} {version}{instead}".strip())
    install = shlex.join([python, "-m", "pip", "install", *missing])
    return Lack(
        f"its Python ({python}) lacks {', '.join(words)}",
        f"on the device: {install}; or name another Python in devices.toml",
    )


def _beside(name: str, found: Mapping[str, str], python: str) -> Iterable[Lack]:
    """Two builds of onnxruntime in one Python: both are ``import onnxruntime``."""
    builds = [each for each in found if re.fullmatch("onnxruntime(-.*)?", each)]
    others = [each for each in builds if each != name]
    if name in builds and others:
        yield Lack(
            f"its Python ({python}) has {', '.join(others)} beside {name}: they overwrite each "
            "other",
            "give the runner an environment of its own: python = ... in devices.toml",
        )


def _same(wanted: str, found: str) -> bool:
    """Whether ``==wanted`` takes the version ``found`` (PEP 440): trailing zeros are nothing.

    A local version (``+cu13``) is held against one that is asked for only.
    """
    if "+" not in wanted:
        found = found.partition("+")[0]
    return bool(found) and _plain(wanted) == _plain(found)


def _plain(version: str) -> str:
    release, plus, local = version.lower().partition("+")
    return re.sub(r"(?:\.0+)+$", "", release) + plus + local


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isascii() and part.isdigit())
