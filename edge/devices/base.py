"""What a device is: a machine that runs commands and takes files, and how it is described.

Paths on a device are relative to the home folder of its account, or absolute. Names of files
and words of commands never pass through a shell as text: they are words of a command, or
positional parameters of a fixed script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from edge import errors
from edge.process import Completed, describe_exit

OUTPUT_LIMIT = 64 * 2**20  # bytes that one stream of a command may print
CHUNK = 256 * 1024  # bytes: the size at which blocks are read, hashed and sent
SHORT = 60.0  # seconds for making or removing a folder
IDLE = 60.0  # seconds without one byte moved after which a transfer is given up


@dataclass(frozen=True)
class DeviceSettings:
    """A device as the user describes it.

    ``folder`` is where bundles live, relative to the home folder there, or absolute. ``host``
    may be an alias of the SSH configuration (default: ``name``); ``port``, ``user`` and
    ``identity_file`` win over that configuration. ``known_hosts`` is a file that is read beside
    the user's own. ``ssh_config`` None means what ``ssh`` itself reads. ``connect_timeout`` is
    in seconds, for each of connecting, key exchange and login.
    """

    name: str
    kind: Literal["local", "ssh"] = "local"
    folder: str = "edgewright"
    host: str = ""
    port: int | None = None
    user: str | None = None
    identity_file: Path | None = None
    known_hosts: Path | None = None
    ssh_config: Path | None = None
    connect_timeout: float = 10.0
    os: Literal["posix", "windows"] = "posix"
    python: str = ""


class Device(Protocol):
    """A connected machine. One thread uses it at a time.

    Every method raises :class:`errors.DeviceUnreachable` when the connection is not there or
    breaks; after that only ``close`` and ``connect`` make sense.
    """

    @property
    def settings(self) -> DeviceSettings:
        """How the device was described."""

    def connect(self) -> None:
        """Connect and log in; nothing when it is connected already.

        Raises :class:`errors.HostKeyRejected` when the host key is unknown, changed or revoked.
        """

    def close(self) -> None:
        """Disconnect; nothing when it is not connected."""

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        """Run ``argv`` in the home folder for at most ``timeout`` seconds.

        The return code is negative for a signal, 127 for a program that is not there. Raises
        :class:`errors.RunFailed` on the deadline (the process group is killed), on output
        beyond ``OUTPUT_LIMIT`` bytes a stream and, with ``check``, on a non-zero exit.
        """

    def stream(
        self,
        argv: Sequence[str],
        chunks: Iterable[bytes],
        *,
        timeout: float,
        idle: float = IDLE,
        check: bool = True,
    ) -> Completed:
        """Like :meth:`run` with ``chunks`` as standard input, never all of it in memory.

        The transfer ends with :class:`errors.DeviceUnreachable` when nothing moved for ``idle``
        seconds. An :class:`errors.EdgeError` of the iterator ends it and is raised here.
        """

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the device, whole or not at all; its executable bit goes with it.

        Parent folders are made. Raises :class:`errors.RunFailed` when it cannot be written.
        """

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        """Copy a file of at most ``limit`` bytes from the device, whole or not at all.

        Raises :class:`errors.RunFailed` when it is not there, too large or cannot be written.
        """

    def make_folder(self, path: str) -> None:
        """Make a folder with those above it; nothing when it is there.

        Raises :class:`errors.RunFailed` when it cannot be made.
        """

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it; nothing when it is not there.

        Raises :class:`errors.RunFailed` when something of it stays.
        """


def device_path(path: str) -> str:
    """``path`` as scripts on the device may use it: it never begins with ``-`` or ``~``.

    Raises :class:`errors.ConfigError` for an empty one or one with control characters.
    """
    trimmed = path.removeprefix("~/").rstrip("/") or path[:1]
    if not trimmed or any(ord(letter) < 32 or ord(letter) == 127 for letter in trimmed):
        raise errors.ConfigError(
            f"{path!r} is no folder of a device", remedy='for example folder = "edgewright"'
        )
    if trimmed.startswith("/") or re.match(r"[A-Za-z]:[/\\]", trimmed):
        return trimmed  # the latter is absolute on Windows, and nothing special elsewhere
    return f"./{trimmed.removeprefix('./')}"


def checked(done: Completed, device: str, *, check: bool) -> Completed:
    """``done`` itself; :class:`errors.RunFailed` when it failed and ``check`` is set."""
    if check and done.returncode != 0:
        raise errors.RunFailed(
            f"{done.argv[0]} on {device} ended with {describe_exit(done.returncode)}:\n"
            f"{done.tail() or '(it printed nothing)'}"
        )
    return done


def too_much(argv: Sequence[str], device: str, limit: int) -> errors.RunFailed:
    """The error for a command that printed more than ``limit`` bytes."""
    return errors.RunFailed(f"{argv[0]} on {device} printed more than {limit} bytes")


def too_late(argv: Sequence[str], device: str, timeout: float) -> errors.RunFailed:
    """The error for a command that outlived its deadline."""
    return errors.RunFailed(
        f"{argv[0]} on {device} did not end within {timeout:g} s and was stopped"
    )
