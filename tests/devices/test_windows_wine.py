"""Quoting under Wine, whose cmd.exe, CommandLineToArgvW and C runtime are others' work than ours.

Wine is no Windows and has no PowerShell; it takes apart what PowerShell is given as ``Arguments``.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from edge import process
from edge.devices import powershell
from edge.tools import zig
from tests.devices.test_windows_quoting import DOCUMENTED, HOSTILE
from tests.test_runner_windows import Wine, wine

__all__ = ["wine"]

pytestmark = [pytest.mark.process, pytest.mark.wine]
BETWEEN = "<<>>\0"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that says its arguments, also under PowerShell's name."""
    folder = tmp_path_factory.mktemp("argv")
    source = Path(__file__).parent / "windows_argv.c"
    words = [*zig.find().argv, "cc", "-target", "x86_64-windows-gnu", "-municode", "-Os"]
    words += ["-o", str(folder / "argv.exe"), str(source), "-lshell32"]
    process.run(words, timeout=300)
    shutil.copy(folder / "argv.exe", folder / "powershell.exe")
    return folder


def _arguments(wine: Wine, programs: Path, line: str) -> tuple[list[str], list[str]]:
    """What the C runtime and CommandLineToArgvW make of the command line ``line``."""
    words = [str(wine.program), "argv.exe", "--start"]
    done = process.run(words, cwd=programs, env=wine.environment, stdin=line.encode(), timeout=120)
    one, _, two = done.stdout.partition(BETWEEN)
    return one.split("\0")[:-1], two.split("\0")[:-1]


def test_words_arrive_as_they_were(wine: Wine, programs: Path) -> None:
    dice = random.Random(1)
    letters = "ab \\\"'\t\n^%\u2019é"
    odd = ["".join(dice.choices(letters, k=dice.randint(0, 12))) for _ in range(500)]
    for words in (HOSTILE, odd):
        line = " ".join(powershell.argument(word) for word in ["argv.exe", *words])
        assert _arguments(wine, programs, line) == (words, words)


@pytest.mark.parametrize(("line", "words"), DOCUMENTED[:4])
def test_the_documented_table(wine: Wine, programs: Path, line: str, words: list[str]) -> None:
    assert _arguments(wine, programs, f"argv.exe {line}") == (words, words)


def test_cmd_hands_the_command_over_as_it_is(wine: Wine, programs: Path) -> None:
    text = powershell.command(powershell.framed(powershell.hashes("C:\\x"), "ab12"))
    line = f'"cmd.exe" /c "{text}"'  # what sshd makes of it
    assert _arguments(wine, programs, line)[0] == text.split(" ")[1:]
