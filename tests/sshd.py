"""A real OpenSSH server for tests: own port, own host key, own user key, own known_hosts.

A ``conftest.py`` imports the ``sshd`` fixture, one server a worker; :func:`start` makes a server
with other options. Works as root and as an ordinary user: the account is always the one that runs
the tests.
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from edge import process
from edge.devices import DeviceSettings
from tests.support import need

# Nothing of the account that runs the tests: neither its keys nor the hosts that it knows.
EMPTY_CONFIG = "IdentityFile none\nUserKnownHostsFile none\nGlobalKnownHostsFile none\n"


@dataclass(frozen=True)
class Sshd:
    """A running server; ``folder`` holds its files, ``key`` is let in."""

    folder: Path
    port: int
    pid: int

    @property
    def key(self) -> Path:
        """The private key of the one user."""
        return self.folder / "user_key"

    @property
    def host_key(self) -> Path:
        """The server's private key."""
        return self.folder / "host_key"

    @property
    def known_hosts(self) -> Path:
        """A known_hosts file with this server's key."""
        return self.folder / "known_hosts"

    def settings(self, name: str = "lab", **changes: Any) -> DeviceSettings:
        """A device on this server; nothing of the user's own configuration is read."""
        device = DeviceSettings(
            name=name,
            kind="ssh",
            host="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            identity_file=self.key,
            known_hosts=self.known_hosts,
            ssh_config=self.folder / "ssh_config",
            folder=str(self.folder / "device"),
        )
        return replace(device, **changes)

    def sessions(self) -> list[int]:
        """The processes of sshd that serve connections, not the commands that they run."""
        return [pid for pid in _descendants(self.pid) if _name(pid).startswith("sshd")]

    def cut(self) -> None:
        """End all connections as a power failure of the server would."""
        for pid in self.sessions():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def log(self) -> str:
        """What the server wrote."""
        return (self.folder / "log").read_text(errors="replace")


@contextmanager
def start(folder: Path, *, no_sftp: bool = False, options: Sequence[str] = ()) -> Iterator[Sshd]:
    """A server in ``folder``; ``options`` are more lines of sshd_config, which win."""
    sshd = need("sshd")
    folder.mkdir(parents=True, exist_ok=True)
    _make_keys(folder)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # privilege separation wants it
    lines = [*options, *([] if no_sftp else ["Subsystem sftp internal-sftp"])]
    server = next(found for _ in range(5) if (found := _try_start(sshd, folder, lines)))
    try:
        yield server
    finally:
        _stop(server)


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One server for all tests of a worker."""
    with start(tmp_path_factory.mktemp("sshd")) as server:
        yield server


def make_key(path: Path, passphrase: str = "") -> Path:
    """A fresh ed25519 key pair."""
    if not path.exists():
        words: list[str | Path] = [
            need("ssh-keygen"),
            "-q",
            "-t",
            "ed25519",
            "-N",
            passphrase,
            "-f",
            path,
        ]
        process.run(words, timeout=30)
    return path


def public(key: Path) -> str:
    """Type and base64 of a key's public half."""
    return " ".join(key.with_name(key.name + ".pub").read_text().split()[:2])


def busybox_path(folder: Path) -> str:
    """An option for :func:`start`: commands find nothing but busybox, as on small devices."""
    busybox = need("busybox")
    folder.mkdir(parents=True, exist_ok=True)
    for name in process.run([busybox, "--list"], timeout=30).stdout.split():
        (folder / name).symlink_to(busybox)
    return f"SetEnv PATH={folder}"


def bare_path(folder: Path, *, without: Sequence[str] = ()) -> str:
    """An option for :func:`start`: commands find only the few programs that deploying needs.

    None of them hashes, unpacks, makes sessions or replaces a link by a rename; ``without``
    names more that fail.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("sh", "cat", "chmod", "cp", "date", "df", "ls", "ln", "mkdir", "rm", "sleep",
                 "sync", "tr", "true", "wc"):  # fmt: skip
        if name not in without:
            (folder / name).symlink_to(need(name))
    for name in ("mv", *without):
        real = need(name)
        (folder / name).write_text(
            f'#!{need("sh")}\ncase $1 in -f) exec {real} "$@" ;; -*) exit 1 ;; esac\n'
            + ("exit 1\n" if name in without else f'exec {real} "$@"\n')
        )
        (folder / name).chmod(0o755)
    return f"SetEnv PATH={folder}"


def _make_keys(folder: Path) -> None:
    user, _ = make_key(folder / "user_key"), make_key(folder / "host_key")
    (folder / "authorized_keys").write_text(public(user) + "\n")
    (folder / "ssh_config").write_text(EMPTY_CONFIG)


def _try_start(sshd: Path, folder: Path, lines: Sequence[str]) -> Sshd | None:
    """Start on a port that is free right now; None when somebody else took it meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    config = folder / "sshd_config"
    config.write_text(_config(folder, port, lines))
    for name in ("pid", "log"):
        (folder / name).unlink(missing_ok=True)
    process.run([sshd, "-f", config, "-E", folder / "log"], timeout=30)
    pid = _wait_for_pid(folder)
    if pid is None:
        return None
    host = public(folder / "host_key")
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host}\n")
    return Sshd(folder, port, pid)


def _config(folder: Path, port: int, lines: Sequence[str]) -> str:
    own = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder / 'host_key'}",
        f"PidFile {folder / 'pid'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin yes",
        "MaxStartups 100",
        "PrintMotd no",
    ]
    return "\n".join([*lines, *own]) + "\n"  # sshd takes the first value that it sees


def _wait_for_pid(folder: Path) -> int | None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with suppress(FileNotFoundError):
            if text := (folder / "pid").read_text().strip():
                return int(text)
            if "Cannot bind" in (folder / "log").read_text():
                return None
        time.sleep(0.02)
    pytest.fail(f"sshd did not start: {(folder / 'log').read_text()}")


def _stop(server: Sshd) -> None:
    server.cut()
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    until = time.monotonic() + 10
    while _state(server.pid) not in {"", "Z"} and time.monotonic() < until:
        time.sleep(0.02)


def _descendants(pid: int) -> list[int]:
    """All processes below ``pid``, from /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int(_stat(folder)[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _stat(folder: Path) -> list[str]:
    """The fields after the name, which may hold spaces: state, parent, group ..."""
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _state(pid: int) -> str:
    """``Z`` for a process that has ended and waits for its parent, nothing for one that is gone."""
    with suppress(OSError, IndexError):
        return _stat(Path("/proc") / str(pid))[0]
    return ""


def _name(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "comm").read_text().strip()
    return ""
