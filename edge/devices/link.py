"""An authenticated SSH connection to a device, over any number of jump hosts.

Every hop's host key is checked before a key of ours is used. The socket is our own: paramiko
sets neither TCP_NODELAY (many small writes take 4 to 8 times as long without it) nor
TCP_USER_TIMEOUT (without it a dead network is not noticed in the middle of a transfer).
"""

from __future__ import annotations

import contextlib
import logging
import random
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edge import errors, log
from edge.devices import keys, known_hosts
from edge.devices.ssh_config import Hop

ATTEMPTS = 4  # for a server that drops connections past its MaxStartups
DEAD_AFTER = 30  # seconds after which unanswered data means a dead network
_QUIET = logging.NullHandler()  # without any handler paramiko's tracebacks reach the terminal
_RSA = ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")


class _Dropped(errors.DeviceUnreachable):
    """The server hung up before it identified itself: worth another try."""


@dataclass(frozen=True)
class Link:
    """The connection: ``transport`` to the device, ``tcp`` the one real socket below it all."""

    transport: Any
    tcp: socket.socket
    outer: tuple[Any, ...]

    def drop(self) -> None:
        """End everything at once, also when nobody answers any more.

        The socket goes first: closing a channel sends a message, which blocks on a dead network.
        """
        with contextlib.suppress(OSError):
            self.tcp.shutdown(socket.SHUT_RDWR)
        # The outermost next: an inner one would send its farewell through it and fail.
        _close(*self.outer, self.transport, self.tcp)


def _close(*things: Any) -> None:
    for thing in things:
        with contextlib.suppress(OSError, EOFError):
            thing.close()


def open_link(hops: Sequence[Hop], timeout: float) -> Link:
    """Connect and log in to the last of ``hops``; ``timeout`` in seconds for each stage.

    Raises :class:`errors.DeviceUnreachable` and :class:`errors.HostKeyRejected`.
    """
    logging.getLogger("paramiko").addHandler(_QUIET)
    opened: list[Any] = []
    sockets: list[socket.socket] = []

    def first() -> socket.socket:
        sockets.append(_tcp(hops[0].host, hops[0].port, timeout))
        return sockets[-1]

    try:
        for number, hop in enumerate(hops):
            connect = _through(opened[-1], hop, timeout) if number else first
            opened.append(_reach(connect, hop, timeout, jumps=hops[:number]))
            _log_in(opened[-1], hop)
    except BaseException:
        _close(*reversed(opened), *sockets)
        raise
    return Link(opened[-1], sockets[-1], tuple(opened[:-1]))


def _tcp(host: str, port: int, timeout: float) -> socket.socket:
    where = f"{host}:{port}"
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise errors.DeviceUnreachable(
            f"the host name {host} cannot be resolved: {getattr(error, 'strerror', error)}",
            remedy="check host of the device, and the network",
        ) from error
    failure: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            _tune(sock, timeout)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise _no_connection(where, timeout, failure)


def _no_connection(where: str, timeout: float, cause: OSError | None) -> errors.DeviceUnreachable:
    if isinstance(cause, ConnectionRefusedError):
        return errors.DeviceUnreachable(
            f"{where} refused the connection",
            remedy="check that sshd runs there, and the port of the device",
        )
    if isinstance(cause, TimeoutError):
        return errors.DeviceUnreachable(
            f"{where} did not answer within {timeout:g} s",
            remedy="check that the device is switched on and on the network; "
            "connect_timeout makes the wait longer",
        )
    return errors.DeviceUnreachable(
        f"cannot connect to {where}: {cause.strerror if cause else 'it has no address'}",
        remedy="check the network and host of the device",
    )


def _tune(sock: socket.socket, timeout: float) -> None:
    sock.settimeout(timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has them all; what is left then are our own deadlines.
    wanted = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
    wanted["TCP_USER_TIMEOUT"] = DEAD_AFTER * 1000
    for name, value in wanted.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Tunnel:
    """A channel through a jump host as the socket of a transport.

    The transport closes it from a thread of its own, where the error that a broken jump host
    gives would end as a traceback on the terminal.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.send = channel.send
        self.recv = channel.recv
        self.settimeout = channel.settimeout
        self.getpeername = channel.getpeername

    @property
    def _closed(self) -> bool:  # paramiko asks its sockets for it
        return bool(self._channel.closed)

    def close(self) -> None:
        """Close the channel; a jump host that is gone is no error."""
        _close(self._channel)


def _through(jump: Any, hop: Hop, timeout: float) -> Callable[[], Any]:
    """A way to ``hop`` through the jump host that ``jump`` is connected to."""
    from paramiko import ChannelException, SSHException

    def connect() -> Any:
        target, here = (hop.host, hop.port), ("127.0.0.1", 0)
        try:
            return _Tunnel(jump.open_channel("direct-tcpip", target, here, timeout=timeout))
        except ChannelException as error:
            raise errors.DeviceUnreachable(
                f"the jump host cannot reach {hop.host}:{hop.port}: {error.text}",
                remedy="check the device's address as the jump host sees it, and that its sshd "
                "allows forwarding (AllowTcpForwarding)",
            ) from error
        except (SSHException, EOFError, OSError) as error:
            raise errors.DeviceUnreachable(
                f"the connection to the jump host broke: {_words(error)}"
            ) from error

    return connect


def _reach(connect: Callable[[], Any], hop: Hop, timeout: float, *, jumps: Sequence[Hop]) -> Any:
    """A transport whose host key is checked; hung-up connections are tried again."""
    started = time.monotonic()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _handshake(connect(), hop, timeout, jumps)
        except _Dropped as error:
            if attempt == ATTEMPTS or time.monotonic() - started > timeout:
                raise errors.DeviceUnreachable(error.message, remedy=error.remedy) from error
        # Jitter: those who were dropped together must not come back together.
        time.sleep(random.uniform(0.1, 0.4) * 2**attempt)  # noqa: S311
    raise AssertionError


def _handshake(sock: Any, hop: Hop, timeout: float, jumps: Sequence[Hop]) -> Any:
    from paramiko import SSHException, Transport

    known = known_hosts.load(hop.known_hosts)
    name = hop.key_alias or known_hosts.lookup_name(hop.host, hop.port)
    transport = Transport(sock)
    transport.auth_timeout = timeout
    # start_client's own deadline comes first: only that one tells silence from hanging up.
    transport.banner_timeout = transport.handshake_timeout = timeout + 5
    _prefer(transport, known, name)
    try:
        transport.start_client(timeout=timeout)
        key = transport.get_remote_server_key()
        _check_host_key(key, known, name, _Place(hop, jumps))
    except (SSHException, EOFError, OSError) as error:
        _abandon(transport, sock)
        raise _no_handshake(error, hop, timeout, known.keys(name)) from error
    except errors.HostKeyRejected:
        _abandon(transport, sock)
        raise
    return transport


def _abandon(transport: Any, sock: Any) -> None:
    transport.packetizer.complete_handshake()  # ends a timer thread that exit would wait for
    _close(transport, sock)


def _prefer(transport: Any, known: known_hosts.KnownHosts, name: str) -> None:
    options = transport.get_security_options()
    # paramiko puts CTR with a separate MAC first: two passes over the data instead of one.
    options.ciphers = sorted(options.ciphers, key=lambda cipher: "gcm" not in cipher)
    # Only a key of a type that is known for the host can be verified (paramiko #350).
    types = {entry.key_type for entry in known.keys(name)}
    types |= set(_RSA) if "ssh-rsa" in types else set()
    options.key_types = [one for one in options.key_types if one in types] or options.key_types


def _no_handshake(
    error: Exception, hop: Hop, timeout: float, known: Sequence[known_hosts.Entry]
) -> errors.EdgeError:
    from paramiko.ssh_exception import IncompatiblePeer

    where = f"{hop.host}:{hop.port}"
    text = str(error)
    if isinstance(error, IncompatiblePeer) and "host key" in text and known:
        types = ", ".join(sorted({entry.key_type for entry in known}))
        return errors.HostKeyRejected(
            f"{where} offers no host key of the types known for it ({types})",
            remedy=f"when the device was installed anew, remove {known[0].where} and trust its "
            "new key",
        )
    if isinstance(error, IncompatiblePeer):
        return errors.DeviceUnreachable(
            f"{where} and this program share no algorithm: {text}",
            remedy="update the SSH server of the device",
        )
    if "Indecipherable" in text or "Invalid SSH banner" in text:
        return errors.DeviceUnreachable(
            f"{where} is no SSH server", remedy="check the port of the device"
        )
    if "No existing session" in text or isinstance(error, TimeoutError) or "timed out" in text:
        return errors.DeviceUnreachable(
            f"{where} accepted the connection but did not identify itself within {timeout:g} s",
            remedy="check that an SSH server listens there and that the device is not overloaded",
        )
    return _Dropped(
        f"{where} ended the connection before the login: {_words(error)}",
        remedy="check the log of its sshd (MaxStartups, DenyUsers, a firewall)",
    )


@dataclass(frozen=True)
class _Place:
    """Where a host key was seen, for the words of its rejection."""

    hop: Hop
    jumps: Sequence[Hop]

    @property
    def file(self) -> str:
        """The file to which a new key belongs."""
        first = next(iter(self.hop.known_hosts), None)
        return shlex.quote(str(first)) if first else "~/.ssh/known_hosts"

    def trust(self, key_type: str) -> str:
        """The command that makes the host known."""
        port = [] if self.hop.port == 22 else ["-p", str(self.hop.port)]
        if self.jumps:
            jumps = ",".join(f"{jump.user}@{jump.host}:{jump.port}" for jump in self.jumps)
            words = ["ssh", "-J", jumps, *port, f"{self.hop.user}@{self.hop.host}"]
            return f"log in once by hand: {shlex.join(words)}"
        scan = ["ssh-keyscan", *port, "-t", _short(key_type), self.hop.host]
        first = next(iter(self.hop.known_hosts), None)
        make = ""
        if first and not first.parent.is_dir():
            make = f"mkdir -p -m 700 {shlex.quote(str(first.parent))} && "
        return f"{make}{shlex.join(scan)} >> {self.file}"


def _short(key_type: str) -> str:
    if key_type.startswith("ecdsa"):
        return "ecdsa"
    return "rsa" if key_type in _RSA else key_type.removeprefix("ssh-")


def _check_host_key(key: Any, known: known_hosts.KnownHosts, name: str, place: _Place) -> None:
    for authority in known.authorities(name):
        log.warn(f"{authority.where}: @cert-authority is not supported and was ignored")
    blob = key.asbytes()
    verdict = known.verdict(name, blob)
    if verdict is known_hosts.Verdict.KNOWN:
        return
    kind = key.get_name()
    seen = f"{kind} {known_hosts.fingerprint(blob)}"
    note = f" (not understood: {', '.join(known.unread[:3])})" if known.unread else ""
    if verdict is known_hosts.Verdict.UNKNOWN:
        raise errors.HostKeyRejected(
            f"the host key of {name} is not known: {seen}{note}",
            remedy="compare the fingerprint with what the device itself says (ssh-keygen -lf "
            f"/etc/ssh/ssh_host_{_short(kind)}_key.pub), then: {place.trust(kind)}",
        )
    if verdict is known_hosts.Verdict.REVOKED:
        raise errors.HostKeyRejected(
            f"the host key of {name} is revoked: {seen}",
            remedy="do not use this device before it has a new host key",
        )
    before = known.keys(name)[0]
    raise errors.HostKeyRejected(
        f"the host key of {name} has changed: it shows {seen}, {before.where} has "
        f"{before.key_type} {known_hosts.fingerprint(before.key)}; another machine may be "
        "answering in its place",
        remedy="only when you know that the device was installed anew: "
        f"{shlex.join(['ssh-keygen', '-R', name, '-f', before.where.rpartition(':')[0]])}"
        f" && {place.trust(kind)}",
    )


def _log_in(transport: Any, hop: Hop) -> None:
    who = f"{hop.user}@{hop.host}:{hop.port}"
    with keys.candidates(hop) as offers:
        if not offers:
            raise errors.DeviceUnreachable(
                f"there is no key to log in to {who} with",
                remedy="name one with identity_file, add one to the ssh-agent (ssh-add), or make "
                "one: ssh-keygen -t ed25519",
            )
        reasons = [_offer(transport, hop.user, offer) for offer in offers]
    if not transport.is_authenticated():
        tried = "; ".join(reason for reason in reasons if reason)
        public = next((o.label for o in offers if not o.label.startswith("agent")), "KEY")
        port = [] if hop.port == 22 else ["-p", str(hop.port)]
        copy = ["ssh-copy-id", "-i", f"{public}.pub", *port, f"{hop.user}@{hop.host}"]
        raise errors.DeviceUnreachable(
            f"{who} refused the login ({tried})",
            remedy=f"let the key in: {shlex.join(copy)}",
        )
    transport.set_keepalive(15)


def _offer(transport: Any, user: str, offer: keys.Candidate) -> str:
    """Try one key; why it did not do, or nothing."""
    from paramiko import BadAuthenticationType, SSHException

    if transport.is_authenticated():
        return ""
    if not transport.is_active():
        return f"{offer.label}: not tried, the connection was ended"
    try:
        more = transport.auth_publickey(user, offer.key)
    except BadAuthenticationType as error:
        return f"it takes no keys, only {', '.join(error.allowed_types)}"
    except (SSHException, EOFError, OSError) as error:
        return f"{offer.label}: {_words(error)}"
    return f"{offer.label} is not enough: it also wants {', '.join(more)}" if more else ""


def _words(error: Exception) -> str:
    """An exception in one line; paramiko raises some without a text."""
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
