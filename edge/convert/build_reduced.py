"""Build a runtime with only the operators that the project needs, as its plan says."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from edge import errors, process
from edge.devices import open_device
from edge.step import Facts, step
from edge.tools import ort_build, ort_cmake, reduced_plan, remote_build

UNSTRIPPED = "unstripped"
STRIP_TIMEOUT = 300.0


@step(version=1, isolated=False, aside=("where",))
def build_reduced(
    out: Path,
    *,
    config: Path,
    source: Path,
    request: dict[str, Any],
    toolchain: dict[str, str],  # noqa: ARG001 - part of the key
    where: dict[str, Any],
    **dependencies: Path,
) -> Facts:
    """The library, archive, framework or ``.wasm`` of ``reduced_plan.Request(**request)``.

    ``config`` is the operator configuration, ``source`` the sources (``ort_source.find``),
    ``dependencies`` the archives that the release's table pins, ``toolchain`` the versions of
    what it is built with and the plan's digest, only to be told apart by. ``where["log"]`` is a
    file for what the build prints, ``where["device"]`` (``remote_build.to_json``) the device that
    it runs on, without it this machine. A Linux library is stripped, where it is built, and lies
    as it was linked in ``unstripped/``.

    The configuration lies beside it. Facts: ``product``, the file's name in ``out``. Raises
    :class:`errors.StepFailed` with the last lines of the build.
    """
    text = config.read_text(encoding="utf-8")
    plan = reduced_plan.make_plan(reduced_plan.from_json(request), text)
    sources = ort_build.Sources(source, dependencies)
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        product = _build(plan, sources, Path(folder), where)
        name = _collect(product, plan.platform, out)
    shutil.copyfile(config, out / reduced_plan.CONFIG)
    return {"product": name}


def _build(
    plan: reduced_plan.Plan, sources: ort_build.Sources, work: Path, where: dict[str, Any]
) -> Path:
    """Build here or there; a Linux library has the stripped one beside it."""
    log = Path(where["log"])
    if "device" in where:
        with open_device(remote_build.from_json(where["device"])) as device:
            return remote_build.build_on(device, plan, sources, work, log)
    product = ort_build.build(plan, sources, work, log)
    if plan.platform in ort_cmake.LINUX:
        process.run(remote_build.strip_words(plan.platform, str(product)), timeout=STRIP_TIMEOUT)
    return product


def _collect(product: Path, platform: str, out: Path) -> str:
    """Bring the product into ``out``, a folder as a tar archive; the file's name there."""
    if platform in ort_cmake.LINUX:
        _collect_stripped(product, out)
        return product.name
    if product.is_dir():
        name = f"{product.name}.tar"
        _pack(product, out / name)
        return name
    shutil.copyfile(product, out / product.name)
    if product.suffix == ".wasm":
        # The glue that belongs to it: the names of its imports are this build's own.
        glue = product.with_suffix(".mjs")
        shutil.copyfile(glue, out / glue.name)
    return product.name


def _pack(folder: Path, archive: Path) -> None:
    """A tar of ``folder`` with one spelling: sorted, no times, no owners, no umask.

    Links stay links; one that leads to this machine's folders is refused.
    """
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in (folder, *sorted(folder.rglob("*"))):
            tar.inodes = {}  # type: ignore[attr-defined] # a file with two names is two files
            info = tar.gettarinfo(path, path.relative_to(folder.parent).as_posix())
            if info.linkname.startswith("/"):
                raise errors.StepFailed(f"{path.name} of {folder.name} is a link out of it")
            info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            if info.isreg():
                with path.open("rb") as stream:
                    tar.addfile(info, stream)
            else:
                tar.addfile(info)


def _collect_stripped(library: Path, out: Path) -> None:
    """The stripped library into ``out``; as it was linked it goes to ``unstripped/``."""
    small = remote_build.stripped(library)
    if small.stat().st_size > library.stat().st_size:
        raise errors.StepFailed(f"strip made {library.name} larger")
    (out / UNSTRIPPED).mkdir()
    shutil.copyfile(library, out / UNSTRIPPED / library.name)
    shutil.copyfile(small, out / library.name)
