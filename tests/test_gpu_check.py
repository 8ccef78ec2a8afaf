"""scripts/gpu_check.sh: nothing without a GPU; with one every step, its code and its output kept.

GPU, Python and edge are stand-ins that write down how they were called.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge import process
from edge.process import Completed

pytestmark = pytest.mark.process
SCRIPT = process.PACKAGE_PARENT / "scripts" / "gpu_check.sh"
PROGRAMS = ("bash", "sh", "dirname", "mkdir", "uname", "tee", "cat", "chmod", "env", "sed")
# edge: ends with the code that a file of its command's name in $CODES holds.
EDGE = """#!/bin/sh
echo "edge $*" >>"$CALLS"
echo "{}"
name=$1-$3
[ "$1" = bench ] && name=$1-$2
[ "$1" = report ] && name=report
if [ -f "$CODES/$name" ]; then echo "error: of $name" >&2; exit "$(cat "$CODES/$name")"; fi
"""
# python3: has venv, makes an environment with edge and itself in it, takes pip's words. What a line
# of $CODES/python is in the words of fails.
PYTHON = """#!/bin/sh
echo "python3 $*" >>"$CALLS"
if [ -f "$CODES/python" ]; then
  while read -r word; do
    case "$*" in *"$word"*) echo "no $word" >&2; exit 1 ;; esac
  done <"$CODES/python"
fi
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp "$EDGE" "$3/bin/edge"; cp "$0" "$3/bin/python" ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """A machine whose only programs lie in ``bin``."""

    root: Path

    @property
    def report(self) -> Path:
        return self.root / "report"

    def ends(self, name: str, code: int) -> None:
        """Let one command of edge end with a code."""
        (self.root / "codes" / name).write_text(str(code))

    def lacks(self, *words: str) -> None:
        """Let calls of Python with these words fail."""
        (self.root / "codes" / "python").write_text("".join(f"{word}\n" for word in words))

    def has(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": str(self.root / "bin"),
            "CALLS": str(self.root / "calls"),
            "CODES": str(self.root / "codes"),
            "EDGE": str(self.root / "edge"),
            "HOME": str(self.root),
        }

    def check(self, *words: str) -> Completed:
        environment = self.environment
        words = ("--report", str(self.report), *words)
        return process.run(
            [str(SCRIPT), *words], timeout=60, cwd=self.root, env=environment, check=False
        )

    def calls(self, program: str) -> list[str]:
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.removeprefix(f"{program} ") for line in lines if line.startswith(program)]

    def codes(self) -> dict[str, str]:
        lines = (self.report / "codes.txt").read_text().splitlines()
        return dict(line.split("\t") for line in lines)


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    """A machine without a GPU."""
    for name in ("bin", "codes"):
        (tmp_path / name).mkdir()
    for name in (*PROGRAMS, "cp"):
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    (tmp_path / "edge").write_text(EDGE)
    (tmp_path / "edge").chmod(0o755)
    machine = Machine(tmp_path)
    machine.has("python3", PYTHON)
    return machine


@pytest.fixture
def machine(bare: Machine) -> Machine:
    """A machine with a GPU."""
    bare.has("nvidia-smi", "#!/bin/sh\necho 'NVIDIA L4, 8.9, 580.95.05, 23034 MiB'\n")
    return bare


# ---------------------------------------------------------------------------- nothing to do
@pytest.mark.parametrize(
    "smi", ["", "#!/bin/sh\necho 'No devices were found'\nexit 6\n", "#!/bin/sh\n"]
)
def test_without_a_gpu_nothing_is_installed(bare: Machine, smi: str) -> None:
    if smi:
        bare.has("nvidia-smi", smi)
    done = bare.check()
    assert done.returncode == 3
    assert "error: this machine has no NVIDIA GPU" in done.stderr
    assert "fix: " in done.stderr
    assert not bare.report.exists()
    assert bare.calls("python3") == []


def test_an_old_python_is_told_before_anything_is_installed(machine: Machine) -> None:
    machine.has("python3", "#!/bin/sh\nexit 1\n")
    done = machine.check()
    assert (done.returncode, machine.report.exists()) == (3, False)
    assert "python3-venv" in done.stderr


@pytest.mark.parametrize(
    "words", [["--projct", "x"], ["--targets"], ["--targets", ""], ["--project", "/nowhere"]]
)
def test_wrong_usage(machine: Machine, words: list[str]) -> None:
    assert machine.check(*words).returncode == 2
    assert machine.calls("edge") == []


# --------------------------------------------------------------------------------- a check
def test_every_target_is_built_and_measured(machine: Machine) -> None:
    done = machine.check()
    assert done.returncode == 0, done.stderr
    calls = machine.calls("edge")
    assert [call.split()[:3] for call in calls[:2]] == [
        ["build", "-t", "cuda"],
        ["bench", "cuda", "--device"],
    ]
    assert "--profile" in calls[1].split()
    assert machine.codes() == {
        "build-cuda": "0",
        "bench-cuda": "0",
        "build-tensorrt": "0",
        "bench-tensorrt": "0",
        "tensorrt-plan": "left out: no trtexec",
        "build-tensorrt-rtx": "0",
        "bench-tensorrt-rtx": "0",
        "report": "0",
    }
    assert "NVIDIA L4, 8.9" in (machine.report / "machine.txt").read_text()
    assert (machine.report / "bench-cuda.json").read_text() == "{}\n"
    assert all(str(machine.report / "results.db") in call for call in calls if "--profile" in call)


def test_a_plan_is_made_here_where_trtexec_is(machine: Machine) -> None:
    machine.has("trtexec", "#!/bin/sh\n")
    assert machine.check("--targets", "tensorrt-plan").returncode == 0
    assert machine.calls("edge")[0].startswith("build -t tensorrt-plan --on local ")


@pytest.mark.parametrize(
    ("codes", "whole"),
    [
        ({"bench-cuda": 5}, 5),
        ({"bench-cuda": 5, "bench-tensorrt": 3}, 3),
        ({"bench-cuda": 1, "bench-tensorrt": 3}, 3),
        ({"bench-cuda": 1, "bench-tensorrt": 5}, 1),
        ({"build-cuda": 4, "bench-tensorrt": 1}, 4),
        ({"report": 4}, 4),
        ({"bench-cuda": 130}, 130),
    ],
)
def test_the_whole_is_the_worst(machine: Machine, codes: dict[str, int], whole: int) -> None:
    for name, code in codes.items():
        machine.ends(name, code)
    assert machine.check("--targets", "cuda,tensorrt").returncode == whole
    found = machine.codes()
    assert all(found[name] == str(code) for name, code in codes.items())
    assert "report" in found


def test_what_cannot_be_built_is_not_measured(machine: Machine) -> None:
    machine.ends("build-cuda", 3)
    assert machine.check("--targets", "cuda,tensorrt").returncode == 3
    assert "bench-cuda" not in machine.codes()
    assert machine.codes()["bench-tensorrt"] == "0"
    assert "error: of build-cuda" in (machine.report / "build-cuda.log").read_text()


def test_a_second_run_installs_nothing(machine: Machine) -> None:
    machine.check("--targets", "cuda")
    machine.check("--targets", "cuda")
    assert len([call for call in machine.calls("python3") if "pip install" in call]) == 1


@pytest.mark.parametrize("word", ["-m venv", "[demo]"])
def test_what_cannot_be_installed_is_something_that_is_not_there(
    machine: Machine, word: str
) -> None:
    """Code 3, and no gate's 1; what was begun is no environment that the next run takes."""
    machine.lacks(word)
    done = machine.check()
    assert done.returncode == 3
    assert f"no {word}" in done.stderr
    assert "error: " in done.stderr
    assert machine.calls("edge") == []
    machine.lacks()
    assert machine.check("--targets", "cuda").returncode == 0


def test_without_tensorrt_rtx_the_others_go_on(machine: Machine) -> None:
    machine.lacks("[rtx]", "import tensorrt_rtx")
    machine.ends("build-tensorrt-rtx", 3)
    done = machine.check()
    assert done.returncode == 3
    assert "cannot install tensorrt-rtx" in done.stderr
    assert machine.codes()["bench-cuda"] == machine.codes()["bench-tensorrt"] == "0"
    machine.lacks()
    assert "cannot install" not in machine.check().stderr


def test_from_another_folder_with_a_cdpath(machine: Machine) -> None:
    """cd prints where it went when it went by CDPATH, and would end up in the names of folders."""
    (machine.root / "elsewhere").mkdir()
    done = process.run(
        [str(Path(os.path.relpath(SCRIPT, machine.root / "elsewhere"))), "--report", "a b"],
        timeout=60,
        cwd=machine.root / "elsewhere",
        env={**machine.environment, "CDPATH": str(machine.root / "elsewhere")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (machine.root / "elsewhere" / "a b" / "codes.txt").is_file()


def test_help_is_the_whole_header(machine: Machine) -> None:
    done = machine.check("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Builds, runs")
    assert "5 inconclusive." in done.stdout
    assert "set -e" not in done.stdout


def test_the_script_is_bash_that_parses() -> None:
    bash = shutil.which("bash")
    assert bash
    process.run([bash, "-n", str(SCRIPT)], timeout=10)
    assert os.access(SCRIPT, os.X_OK)
