"""What the Windows libraries of a bundle need of the device that is not in the bundle."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edge import errors
from edge.bundle import BundleFile
from edge.job import Job
from edge.step import Facts, step
from edge.tools import pe


def windows_needs(job: Job, files: Iterable[BundleFile]) -> dict[str, Any]:
    """Facts for the manifest, of all DLLs in ``files``; names in small letters, sorted.

    ``visual_cpp``: of Visual C++'s redistributable. ``windows``: of Windows itself, without API
    sets. ``on_use``: loaded with their first use alone. Raises :class:`errors.StepFailed` for a
    DLL of another CPU than the target requires.
    """
    libraries = [file for file in files if file.path.endswith(".dll")]
    own = {file.path.rpartition("/")[2].lower() for file in libraries}
    arch = job.target.requires.get("arch", "")
    read = [job.step(library_needs, library=file.source, arch=arch) for file in libraries]
    return {
        fact: sorted({name for each in read for name in each.facts[fact] or ()} - own)
        for fact in ("visual_cpp", "windows", "on_use")
    }


@step(version=1, isolated=False)
def library_needs(out: Path, *, library: Path, arch: str) -> Facts:  # noqa: ARG001 - facts alone
    """Facts ``visual_cpp``, ``windows`` and ``on_use`` of one DLL, as above; no files."""
    image = pe.read(library)
    if not image.library or (arch and image.machine != arch):
        kind = "DLL" if image.library else "program"
        raise errors.StepFailed(
            f"{library.name} is a {kind} for {image.machine}, not a DLL for {arch or 'Windows'}",
            remedy="pin the library of the target's CPU",
        )
    return {
        "visual_cpp": list(image.visual_cpp),
        "windows": list(image.system),
        "on_use": list(image.delayed),
    }
