"""The machine itself as a device: the same commands and files, no network."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from edge import errors, process
from edge.devices.base import (
    IDLE,
    OUTPUT_LIMIT,
    DeviceSettings,
    checked,
    too_much,
)
from edge.process import Completed

# Parameters: a file, then the command that reads it.
_FROM_FILE = 'f=$1; shift; exec "$@" <"$f"'


class Local:
    """The machine that edge runs on."""

    def __init__(self, settings: DeviceSettings) -> None:
        self._settings = settings

    @property
    def settings(self) -> DeviceSettings:
        """How the device was described."""
        return self._settings

    def connect(self) -> None:
        """Nothing: it is here."""

    def close(self) -> None:
        """Nothing: it stays here."""

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        """See :meth:`edge.devices.base.Device.run`."""
        try:
            done = process.run(argv, timeout=timeout, cwd=Path.home(), stdin=stdin, check=False)
        except errors.ToolMissing as error:
            # What a shell says of it; the other devices have one in between.
            done = Completed(tuple(argv), 127, "", error.message, 0.0)
        if max(len(done.stdout), len(done.stderr)) > OUTPUT_LIMIT:
            raise too_much(argv, self._settings.name, OUTPUT_LIMIT)
        return checked(done, self._settings.name, check=check)

    def stream(
        self,
        argv: Sequence[str],
        chunks: Iterable[bytes],
        *,
        timeout: float,
        idle: float = IDLE,  # noqa: ARG002 - a file of this machine does not stall
        check: bool = True,
    ) -> Completed:
        """See :meth:`edge.devices.base.Device.stream`; the stream is kept in a file."""
        with tempfile.NamedTemporaryFile(prefix="edge-stream-") as spool:
            for chunk in chunks:
                spool.write(chunk)
            spool.flush()
            words = ["sh", "-c", _FROM_FILE, "sh", spool.name, *argv]
            done = self.run(words, timeout=timeout, check=False)
        return checked(replace(done, argv=tuple(argv)), self._settings.name, check=check)

    def put(self, local: Path, remote: str) -> None:
        """See :meth:`edge.devices.base.Device.put`."""
        target = Path.home() / remote
        mode = 0o755 if os.access(local, os.X_OK) else 0o644
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(local, target, mode)
        except OSError as error:
            raise errors.RunFailed(f"cannot copy {local} to {target}: {error.strerror}") from error

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        """See :meth:`edge.devices.base.Device.get`."""
        source = Path.home() / remote
        try:
            if not source.is_file():
                raise errors.RunFailed(f"{remote} is no file of {self._settings.name}")
            if source.stat().st_size > limit:
                raise errors.RunFailed(
                    f"{remote} on {self._settings.name} has more than {limit} bytes"
                )
            _copy(source, local, 0o644)
        except OSError as error:
            raise errors.RunFailed(f"cannot copy {source} to {local}: {error.strerror}") from error

    def make_folder(self, path: str) -> None:
        """See :meth:`edge.devices.base.Device.make_folder`."""
        folder = Path.home() / path
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.RunFailed(f"cannot make {folder}: {error.strerror}") from error

    def remove_folder(self, path: str) -> None:
        """See :meth:`edge.devices.base.Device.remove_folder`."""
        folder = Path.home() / path
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise errors.RunFailed(f"cannot remove {folder}: {error.strerror}") from error


def _copy(source: Path, target: Path, mode: int) -> None:
    """Copy whole or not at all."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, part)
        part.chmod(mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
