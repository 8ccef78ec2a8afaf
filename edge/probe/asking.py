"""How a device is asked: pieces of shell in one command, and pure parsers of what they print."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edge import errors
from edge.devices.base import Device, device_path

TIMEOUT = 60.0  # seconds; python3 alone takes some on a small board
MAX_LINES = 20_000  # lines of one answer that are read: 256 cores make 7,000 of cpuinfo
MAX_LINE = 4096  # characters of one line that are read

Lines = Sequence[str]


@dataclass(frozen=True)
class Probe:
    """``script`` is fixed POSIX shell; what differs from call to call are its parameters.

    "$1" is the device's folder, "$2" the root of /proc, /sys and /etc/nv_tegra_release, "$4" the
    Python that runs bundles' Python runners. ``parse`` takes the lines that the script printed,
    empty ones left out. Probes with the same script share its answer.
    """

    name: str
    script: str
    parse: Callable[[Lines], Any]


def script(probes: Sequence[Probe]) -> str:
    """One script that runs ``probes`` one after the other; "$3" is the random word."""
    parts = [
        f'printf "\\n@@probe-%s {number}\\n" "$3"\n{{ {text}\n}} </dev/null 2>/dev/null'
        for number, text in enumerate(_scripts(probes))
    ]
    return "LC_ALL=C; export LC_ALL\n" + "\n".join(parts) + '\nprintf "\\n@@probe-%s end\\n" "$3"\n'


def read(text: str, probes: Sequence[Probe], word: str) -> dict[str, Any]:
    """The values in the answer ``text`` to :func:`script`, by the names of the probes.

    Raises :class:`errors.RunFailed` when the answer has no end.
    """
    answers: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(f"@@probe-{word} "):
            lines = answers.setdefault(line.partition(" ")[2], [])
        elif line.strip() and len(lines) < MAX_LINES:
            lines.append(line[:MAX_LINE].strip())
    if "end" not in answers:
        raise errors.RunFailed("the device did not answer all questions about itself")
    places = {one: str(number) for number, one in enumerate(_scripts(probes))}
    return {one.name: one.parse(answers.get(places[one.script], [])) for one in probes}


def ask(device: Device, probes: Sequence[Probe], root: str, python: str) -> dict[str, Any]:
    """What ``device`` answers to ``probes``, by name, in one command."""
    word = secrets.token_hex(8)
    folder = device_path(device.settings.folder)
    argv = ["sh", "-c", script(probes), "sh", folder, root, word, python]
    return read(device.run(argv, timeout=TIMEOUT, check=False).stdout, probes, word)


def _scripts(probes: Sequence[Probe]) -> list[str]:
    """The different scripts of ``probes``, in their order."""
    return list(dict.fromkeys(one.script for one in probes))


def first_line(lines: Lines) -> str:
    """The first line, or nothing."""
    return lines[0] if lines else ""


def printable(text: str, most: int) -> str:
    """At most ``most`` characters of what a device said, none of which moves a cursor."""
    return "".join(letter for letter in text if letter.isprintable())[:most]
