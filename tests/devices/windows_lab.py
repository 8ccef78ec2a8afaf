"""A device for tests that answers as Windows' OpenSSH server would, as far as that is modelled.

A real sshd with its SFTP server on Linux. What it runs is a stand-in for ``powershell`` or
``taskkill`` (see :mod:`.fake_powershell`), and these find no program by name but Python, under the
name that it has on Windows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge.devices import DeviceSettings
from edge.devices.sftp import Files
from edge.devices.windows import Windows
from tests.devices import fake_powershell
from tests.sshd import Sshd, start

PROGRAM = Path(fake_powershell.__file__)
ANSWERS = Path(__file__).parent.parent / "probes" / "windows"


@contextmanager
def windows_sshd(
    folder: Path, *, no_sftp: bool = False, environment: Sequence[str] = ()
) -> Iterator[Sshd]:
    """A server whose commands are Windows'; ``environment`` is theirs, as ``KEY=value``."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("powershell", "taskkill"):
        _script(programs / name, f'exec "{sys.executable}" -I -S "{PROGRAM}" {name} "$@"')
    _script(programs / "python", f'exec "{sys.executable}" "$@"')
    own = [f"PATH={programs}:/usr/bin:/bin", f"EDGE_TEST_PROGRAMS={programs}"]
    line = " ".join(["SetEnv", *own, f"EDGE_TEST_ANSWERS={ANSWERS}", *environment])
    with start(folder / "sshd", no_sftp=no_sftp, options=[line]) as server:
        yield server


def settings(server: Sshd, folder: Path) -> DeviceSettings:
    """A device with Windows on ``server``."""
    return server.settings(name="pc", os="windows", folder=str(folder))


@contextmanager
def windows_device(server: Sshd, folder: Path) -> Iterator[Windows]:
    """The device, connected."""
    device = Windows(settings(server, folder))
    device.connect()
    try:
        yield device
    finally:
        device.close()


@pytest.fixture
def spooled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files for scripts and standard input that were written during a test."""
    found: list[Path] = []
    real = Files.write

    def write(self: Files, path: str, chunks: Iterable[bytes]) -> None:
        if "/.edge-" in path:
            found.append(Path(path))
        real(self, path, chunks)

    monkeypatch.setattr(Files, "write", write)
    return found


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
