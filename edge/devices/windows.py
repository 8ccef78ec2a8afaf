r"""A machine with Windows over its OpenSSH server: files over SFTP, commands through PowerShell.

Paths of this device are absolute with slashes, ``C:/Users/ann/edgewright``: its SFTP server takes
no backslashes (Win32-OpenSSH #107), and Windows itself takes both. Only what PowerShell and
``CreateProcess`` are given is spelled with backslashes.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edge import errors
from edge.devices import frames, powershell
from edge.devices.base import IDLE, DeviceSettings, checked
from edge.devices.sftp import Files
from edge.devices.ssh import Ssh, file_chunks, pieces, within
from edge.process import Completed

# Exit codes of programs that Windows ended (ntstatus.h), in words.
STATUS = {
    0xC0000005: "an access violation",
    0xC000001D: "an instruction that this CPU does not have",
    0xC0000135: "a DLL that it needs is not there",
    0xC0000139: "a DLL that it needs lacks a function: another version is found first",
    0xC000007B: "it or a DLL of it is for another CPU",
    0xC0000142: "a DLL of it could not start",
    0xC0000409: "it gave up (abort)",
    0xC00000FD: "a stack overflow",
}
_DRIVE = re.compile(r"/?([A-Za-z]:)(/.*)?")


class Windows(Ssh):
    """A machine with Windows 10, Server 2016 or later, reached over SSH."""

    def __init__(self, settings: DeviceSettings) -> None:
        super().__init__(settings)
        self._sftp: Files | None = None
        self._home = ""

    @property
    def files(self) -> Files:
        """Its files; the SFTP session is opened when it is first needed."""
        if self._sftp is None:
            self._sftp = Files(self._open_sftp(), self.settings.name, self._given_up)
        return self._sftp

    def close(self) -> None:
        """See :meth:`edge.devices.base.Device.close`."""
        self._sftp, self._home = None, ""
        super().close()

    def path(self, path: str) -> str:
        """``path`` as an absolute one with slashes; a relative one starts in the home folder.

        Raises :class:`errors.ConfigError` for what is no path of Windows.
        """
        text = path.replace("\\", "/").removeprefix("~/").removeprefix("./").rstrip("/")
        drive = _DRIVE.fullmatch(text)
        rest = (drive[2] or "") if drive else text
        if not text or re.search(r'[\x00-\x1f\x7f<>:"|?*]', rest):
            raise errors.ConfigError(
                f"{path!r} is no path of a device with Windows",
                remedy='for example folder = "edgewright" or folder = "D:/edgewright"',
            )
        if drive:
            return drive[1] + (rest or "/")
        return text if text.startswith("/") else f"{self.home()}/{text}"

    def root(self, path: str) -> str:
        r"""The drive of ``path`` as .NET takes it, ``C:\``; the path itself when it has none."""
        whole = self.path(path)
        drive = _DRIVE.fullmatch(whole)
        return f"{drive[1]}\\" if drive else whole

    def home(self) -> str:
        """The account's home folder, in which its SFTP sessions start."""
        if not self._home:
            found = self.files.home().rstrip("/")
            self._home = found[1:] if _DRIVE.fullmatch(found) and found[0] == "/" else found
        return self._home

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        """See :meth:`edge.devices.base.Device.run`; ``python`` finds ``python.exe``."""
        if stdin:
            return self.stream(argv, pieces(stdin), timeout=timeout, idle=timeout, check=check)
        return self._start(argv, timeout, check=check)

    def stream(
        self,
        argv: Sequence[str],
        chunks: Iterable[bytes],
        *,
        timeout: float,
        idle: float = IDLE,  # noqa: ARG002 - the SFTP session has its own
        check: bool = True,
    ) -> Completed:
        """See :meth:`edge.devices.base.Device.stream`.

        The stream goes into a file first: with PowerShell as the account's shell the outer one
        would take the channel's input for itself.
        """
        with self.spooled(chunks) as file:
            return self._start(argv, timeout, check=check, stdin=native(file))

    def script(self, name: str, body: str, *, timeout: float, check: bool = True) -> Completed:
        """Run ``body`` of :mod:`edge.devices.powershell`; errors call it ``name``."""
        return self._body([name], body, timeout, check=check)

    @contextmanager
    def spooled(self, chunks: Iterable[bytes]) -> Iterator[str]:
        """The path of a file on the device with ``chunks``, for as long as it is needed."""
        file = f"{self.home()}/.edge-{secrets.token_hex(8)}"
        try:
            self.files.write(file, chunks)
            yield file
        finally:
            with contextlib.suppress(errors.EdgeError):
                self.files.remove(file)

    def put(self, local: Path, remote: str) -> None:
        """See :meth:`edge.devices.base.Device.put`; there is no executable bit."""
        target = self.path(remote)
        part = f"{target}.{secrets.token_hex(4)}.part"
        found = self.files.entry(target)
        if found and found.folder:
            raise errors.RunFailed(f"cannot write {remote} on {self.settings.name}: it is a folder")
        self.files.make_all(target.rpartition("/")[0])
        try:
            self.files.write(part, file_chunks(local))
            self.files.replace(part, target)
        except errors.RunFailed:
            with contextlib.suppress(errors.EdgeError):
                self.files.remove(part)
            raise

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        """See :meth:`edge.devices.base.Device.get`."""
        part = local.with_name(f"{local.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as stream:

                def sink(block: bytes) -> None:
                    try:
                        stream.write(block)
                    except OSError as error:  # ours: in the session it would be the device's
                        raise _unwritable(local, error) from error

                there = self.files.fetch(self.path(remote), sink, limit=limit)
            if not there:
                raise errors.RunFailed(f"{remote} is no file of {self.settings.name}")
            part.replace(local)
        except OSError as error:
            raise _unwritable(local, error) from error
        finally:
            part.unlink(missing_ok=True)

    def make_folder(self, path: str) -> None:
        """See :meth:`edge.devices.base.Device.make_folder`."""
        self.files.make_all(self.path(path))

    def remove_folder(self, path: str) -> None:
        """See :meth:`edge.devices.base.Device.remove_folder`."""
        self.files.remove_all(self.path(path))

    def _start(
        self, argv: Sequence[str], timeout: float, *, check: bool, stdin: str = ""
    ) -> Completed:
        program = argv[0]
        if re.search(r"[/\\]", program):
            # A relative one would start at the folder of PowerShell, whichever that is.
            program = native(self.path(program))
        body = powershell.start([program, *argv[1:]], native(self.home()), timeout, stdin)
        return self._body(argv, body, timeout, check=check)

    def _body(self, argv: Sequence[str], body: str, timeout: float, *, check: bool) -> Completed:
        with contextlib.ExitStack() as stack:

            def command(nonce: str) -> str:
                script = powershell.framed(body, nonce)
                text = powershell.command(script)
                if len(text) <= powershell.COMMAND_LIMIT:
                    return text
                file = stack.enter_context(self.spooled([script.encode()]))
                return powershell.command(powershell.from_file(native(file)))

            limits = (timeout, timeout)
            done = self._run(argv, (), limits, check=False, command=command)
        if done.returncode in STATUS:
            why = f"(0x{done.returncode:X}: {STATUS[done.returncode]})"
            done = replace(done, stderr=f"{done.stderr.rstrip()}\n{why}\n".lstrip())
        return checked(done, self.settings.name, check=check)

    def _open_sftp(self) -> object:
        from paramiko import SFTPClient, SSHException

        transport, limit = self._transport(), 2 * self.settings.connect_timeout
        try:
            client: object = within(limit, lambda: SFTPClient.from_transport(transport))
        except TimeoutError as error:
            raise self._given_up(f"no answer within {limit:g} s") from error
        except (SSHException, EOFError, OSError) as error:
            raise errors.DeviceUnreachable(
                f"{self.settings.name} has no SFTP server: {str(error) or type(error).__name__}",
                remedy="its sshd_config needs: Subsystem sftp sftp-server.exe",
            ) from error
        return client

    def _given_up(self, why: str) -> errors.DeviceUnreachable:
        """The error for a connection that broke or is silent, which is dropped."""
        self.close()
        return self._broken(why)

    def _killer(self, frame: frames.Frame) -> str:
        return powershell.killer(frame.process or 0)

    def _words(self, stderr: bytes) -> str:
        return powershell.plain(super()._words(stderr))

    def _returncode(self, code: int) -> int:
        return code  # Windows has no signals


def _unwritable(local: Path, error: OSError) -> errors.RunFailed:
    return errors.RunFailed(f"cannot write {local}: {error.strerror}")


def native(path: str) -> str:
    r"""An absolute path as Windows spells it: ``C:\Users\ann`` for ``C:/Users/ann``.

    Other absolute paths than those of a drive or of a share (``//server/share``) stay as they are.
    """
    if _DRIVE.fullmatch(path) or path.startswith("//"):
        return path.removeprefix("/" if _DRIVE.fullmatch(path) else "").replace("/", "\\")
    return path
