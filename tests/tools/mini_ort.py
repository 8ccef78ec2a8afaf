"""A miniature of ONNX Runtime's sources: a ``build.py`` that is quick and does what a test says.

``tree`` packs it, ``plan`` is a plan that carries it out, on this machine or on a device.
"""

from __future__ import annotations

import io
import secrets
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edge.tools import ort_build
from edge.tools.ort_source import clone_words
from edge.tools.reduced_plan import CONFIG, PYTHON, SOURCE, Plan

VERSION = "1.21.0"
BUILD_PY = '''\
"""Does what mode.txt says: a word, and a number of seconds, lines or the like."""
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

mode, _, number = Path("mode.txt").read_text().strip().partition(" ")
print("words", *sys.argv[1:], flush=True)
out = Path(sys.argv[sys.argv.index("--build_dir") + 1]) / "out"
out.mkdir(parents=True)
content = Path("required_operators_and_types.config").read_bytes()
content += (Path(__file__).parent / "deep" / ("n" * 90) / ("m" * 90)).read_bytes()
names = ("CFLAGS", "PYTHONDONTWRITEBYTECODE", "SOURCE_DATE_EPOCH", "LC_ALL")
content += repr([os.environ.get(name) for name in names]).encode()


def file(name, data=b""):
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_bytes(hashlib.sha256(content).digest() + data)


if mode == "lines":
    for n in range(int(number)):
        print(f"line {n} \\u00e9\\u00e8\\u20ac", flush=n % 100 == 0)
    print("no end", end="", flush=True)
if mode == "ticks":
    for n in range(int(number)):
        print("tick", n, flush=True)
        time.sleep(0.2)
if mode == "sleep":
    print("begun", flush=True)
    subprocess.run(["sleep", number])
if mode == "fail":
    print("FAILED: a.o", "first error", "x" * 500, sep="\\n")
    raise SystemExit(int(number))
if mode == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "folder":
    file("product/a/tool", b"tool")
    (out / "product/a/tool").chmod(0o775)
    file("product/a/data")
    (out / "product/current").symlink_to("a")
    (out / "product/empty").mkdir()
    os.link(out / "product/a/data", out / "product/a/second")
elif mode == "elf":
    shutil.copyfile(number, out / "product")
elif mode in ("wasm", "alone"):
    file("product.wasm")
    if mode == "wasm":
        file("product.mjs", b"glue")
elif mode != "nothing":
    file("product")
'''


def tree(archive: Path, version: str = VERSION) -> Path:
    """The sources as an archive, as ``ort_source.find`` gives them."""
    top = f"onnxruntime-{version}"
    scripts = f"{top}/tools/ci_build"
    files = {
        f"{top}/VERSION_NUMBER": f"{version}\n",
        f"{scripts}/build.py": BUILD_PY,
        f"{scripts}/deep/{'n' * 90}/{'m' * 90}": "a long name\n",
    }
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive


def sources(folder: Path) -> ort_build.Sources:
    """The sources, packed into ``folder``."""
    return ort_build.Sources(tree(folder / "sources.tar.gz"), {})


def plan(mode: str, product: str = "product", platform: str = "android") -> Plan:
    """A plan whose build does what ``mode`` says; the clone must never be run."""
    script = f"{SOURCE}/tools/ci_build/build.py"
    return Plan(
        version=VERSION,
        platform=platform,
        files={CONFIG: "ai.onnx;13;Add\n", "mode.txt": f"{mode}\n"},
        fetch=(
            clone_words(VERSION, SOURCE),
            ("python3", "-m", "venv", "--without-pip", ".venv"),
        ),
        build=(PYTHON, script, "--build_dir", "build", "--config", "it's; $(exit 9)"),
        needs=(),
        product=f"build/out/{product}",
    )


# ------------------------------------------------------------------------------ processes
def nap() -> str:
    """Seconds for a ``sleep`` that no other process has among its words."""
    return f"300.{secrets.randbelow(10**12):012}"


def processes(word: str) -> list[int]:
    """The processes with ``word`` among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in file.read_bytes():
                found.append(int(file.parent.name))
    return found


def becomes(wanted: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether ``wanted`` becomes true in that time."""
    until = time.monotonic() + seconds
    while not wanted() and time.monotonic() < until:
        time.sleep(0.05)
    return wanted()
