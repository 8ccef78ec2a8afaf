"""Look at a built library as an ELF file: is it what its platform loads, and what does it need."""

from __future__ import annotations

from pathlib import Path

from edge import errors
from edge.step import Facts, step
from edge.tools import elf

# The ELF machine of each platform that is built as one shared library.
MACHINES = {"linux-x64": "x86_64", "linux-arm64": "aarch64", "linux-armhf": "arm"}


@step(version=1, tools=("pyelftools",), isolated=False)
def check_library(out: Path, *, library: Path, platform: str, glibc: str) -> Facts:
    """Refuse a library with an executable stack, foreign exports or pages that cannot be mapped.

    ``glibc``: what the target promises, or "". Facts: ``requires``, the versions of the C and
    C++ libraries that it needs. Raises :class:`errors.StepFailed` with all objections.
    """
    del out  # facts only
    try:
        found = elf.read(library, library.name)
    except errors.UsageError as error:  # what the build made is no mistake of the user
        raise errors.StepFailed(f"the built {error.message}") from error
    objections = elf.objections(found, machine=MACHINES[platform], glibc=glibc or None)
    if objections:
        raise errors.StepFailed(f"the built {library.name}: {'; '.join(objections)}")
    needs = {"glibc": elf.highest(found, "GLIBC"), "glibcxx": elf.highest(found, "GLIBCXX")}
    return {"requires": {name: version for name, version in needs.items() if version}}
