"""What each wish of ``[runtime.reduced]`` saves or costs: one build of the library for each.

Minutes to half an hour each (ccache shortens what they share). The project's linux-x64-reduced
bundles are built into a folder of their own for every row; what is built already is not built
again. Bytes of the shipped library, raw and under gzip -9, and the seconds that the build took.

    python benchmarks/reduced_flags.py PROJECT_FOLDER [ROW...]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

from edge import errors, process

TARGET = "linux-x64-reduced"
ROWS = {
    "shipped": [],
    "size": ['config="MinSizeRel"'],
    "smallest": ['config="MinSizeRel"', 'kernels="small"'],
    "all-types": ["types=false"],
    "extended": ['minimal="extended"'],
    "no-exceptions": ["exceptions=false"],
}
TIMEOUT = 3 * 3600


def build(project: Path, wishes: list[str], output: Path) -> dict[str, Any]:
    """The size report of the library that the project's bundles carry with these wishes."""
    words = [sys.executable, str(process.PACKAGE_PARENT / "build.py"), "-t", TARGET, "--json"]
    words += ["-o", str(output)]
    for wish in wishes:
        words += ["--set", f"targets.{TARGET}.runtime.reduced.{wish}"]
    done = process.run(words, cwd=project, timeout=TIMEOUT)
    folders = [each["folder"] for each in json.loads(done.stdout)["bundles"]]
    manifest = json.loads((Path(folders[0]) / "manifest.json").read_text(encoding="utf-8"))
    found = manifest["runtime"]["sizes"]
    assert isinstance(found, dict)
    return found


def main() -> None:
    """Build every row that is named, or all, and print a line for each."""
    project = Path(sys.argv[1])
    print(f"{'':16}{'bytes':>12}{'gzip -9':>12}{'of full':>10}{'seconds':>10}")
    for name in sys.argv[2:] or ROWS:
        if name not in ROWS:
            raise errors.UsageError(f"no row {name}; rows: {', '.join(ROWS)}")
        started = monotonic()
        with tempfile.TemporaryDirectory() as output:
            sizes = build(project, ROWS[name], Path(output))
        took = monotonic() - started
        own, whole = sizes["reduced"], sizes["full"]["stripped"]
        share = f"{own['stripped'] / whole:.1%}"
        print(f"{name:16}{own['stripped']:12,}{own['gzip']:12,}{share:>10}{took:10.0f}", flush=True)


if __name__ == "__main__":
    main()
