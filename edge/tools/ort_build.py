"""Carries out a plan: ONNX Runtime's own build, from sources in a folder to its product.

The plan's command is run as it stands. What is added says where and how fast, never what: this
interpreter in place of the plan's, ccache where it is installed, leave for root in containers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edge import errors, process
from edge.tools import ort_source
from edge.tools.reduced_plan import SETTINGS, SOURCE, Plan, write_files

TIMEOUT = 6 * 3600.0
ROOT = "--allow_running_as_root"
SHOWN_LINES = 24  # from the first failed command on
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # onnxruntime asks compilers for it in any case
# Flags of the user's own have no say in what is made.
STRAY = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ASMFLAGS", "CPATH", "C_INCLUDE_PATH",
         "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH", "LD_RUN_PATH", "COMPILER_PATH",
         "GCC_EXEC_PREFIX", "CMAKE_PREFIX_PATH", "CMAKE_INCLUDE_PATH", "CMAKE_LIBRARY_PATH",
         "CMAKE_TOOLCHAIN_FILE", "CMAKE_GENERATOR", "CMAKE_BUILD_TYPE", "Build_BuildNumber",
         "Build_SourceVersion")  # fmt: skip
# What compilers and archivers take for the time of day: the first that a zip file can say.
EPOCH = "315532800"


@dataclass(frozen=True)
class Sources:
    """The sources (as ``ort_source.find`` gives them) and, by name, the pinned dependencies."""

    tree: Path
    dependencies: Mapping[str, Path]

    def place(self, version: str, work: Path) -> None:
        """Bring all of it into ``work``, where the plan's commands look for it."""
        ort_source.check_version(self.tree, version)
        ort_source.place(self.tree, work / SOURCE)
        rows = ort_source.dependencies(version)
        for name, archive in self.dependencies.items():
            folder = work / ort_source.DEPENDENCIES / name
            ort_source.place_dependency(archive, rows[name], folder)


def build(plan: Plan, sources: Sources, work: Path, output: Path) -> Path:
    """Build in the empty folder ``work``; the product. What the build prints goes to ``output``.

    Raises :class:`errors.StepFailed` with the build's last lines, also when it ended well but
    left no product, or did not end.
    """
    sources.place(plan.version, work)
    allowed = for_root(plan) if hasattr(os, "geteuid") and os.geteuid() == 0 else plan
    write_files(allowed, work)
    words = [sys.executable, *allowed.build[1:]]
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = process.run_logged(words, output, timeout=TIMEOUT, cwd=work, env=environment(work))
    except errors.RunFailed as error:
        raise failed(plan, f"failed: {error.message}", "", output) from error
    product = work / plan.product
    # Beside a .wasm lies the glue that belongs to it.
    made = [product, product.with_suffix(".mjs")] if product.suffix == ".wasm" else [product]
    missing = [path.name for path in made if not path.exists()]
    if done.returncode != 0 or missing:
        raise failed(plan, ended(done.returncode, ", ".join(missing)), done.stdout, output)
    return product


def for_root(plan: Plan) -> Plan:
    """The plan with leave to run as root, as containers do, for ``build.py`` or its packager."""
    if SETTINGS not in plan.files:
        return replace(plan, build=(*plan.build, ROOT))
    settings = json.loads(plan.files[SETTINGS])
    params = settings["build_params"]
    (params if isinstance(params, list) else params["base"]).append(ROOT)
    return replace(plan, files={**plan.files, SETTINGS: json.dumps(settings, indent=2) + "\n"})


def ended(returncode: int, missing: str) -> str:
    """How a build ended that failed, or ended well without the file ``missing``."""
    if returncode == 0:
        return f"ended well but left no {missing}"
    return f"ended with {process.describe_exit(returncode)}"


def failed(plan: Plan, what: str, printed: str, output: Path) -> errors.StepFailed:
    """The error for a build that ``ended`` so."""
    return errors.StepFailed(
        f"the build of ONNX Runtime {plan.version} for {plan.platform} {what}"
        + (f":\n{failure(printed)}" if printed else ""),
        remedy=f"the whole log is {output}",
    )


def environment(work: Path) -> dict[str, str]:
    """The environment without the user's flags, with tools beside this interpreter first."""
    found = {name: value for name, value in os.environ.items() if name not in STRAY}
    beside = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([beside, found.get("PATH", os.defpath)])
    found |= {"PYTHONDONTWRITEBYTECODE": "1", "SOURCE_DATE_EPOCH": EPOCH, "LC_ALL": "C.UTF-8"}
    if shutil.which("ccache", path=found["PATH"]):
        # A build that was stopped half-way goes on from where it was.
        found |= {f"CMAKE_{name}_COMPILER_LAUNCHER": "ccache" for name in ("C", "CXX")}
        found |= {"CCACHE_BASEDIR": str(work), "CCACHE_NOHASHDIR": "1"}
    return found


def failure(printed: str) -> str:
    """The lines that say what went wrong: from the first failed command on, else the last ones."""
    lines = [line for line in COLOUR.sub("", printed).splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith("FAILED:")), None)
    chosen = lines[-process.TAIL_LINES :] if first is None else lines[first : first + SHOWN_LINES]
    return "\n".join(line[:400] for line in chosen)
