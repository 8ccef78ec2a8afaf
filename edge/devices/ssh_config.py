"""The user's SSH configuration, resolved to the hops that lead to a device.

``ssh -G`` answers with Include and Match resolved. Without an ``ssh`` program paramiko's reader
is used; it ignores Include and misreads Match (paramiko #1044, #1992), so these are refused
there.
"""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge import errors, process
from edge.devices.base import DeviceSettings
from edge.devices.known_hosts import read_bounded

MAX_BYTES = 2**20
MAX_HOPS = 8
_HOST = re.compile(r"[0-9A-Za-z_.:%\[\]][0-9A-Za-z_.:%\[\]-]{0,254}")
_DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")

Options = Mapping[str, list[str]]


@dataclass(frozen=True)
class Hop:
    """One machine on the way: the device itself or a jump host.

    ``identity`` is the one key file that the device's settings ask for; ``identities`` are the
    configuration's, which need not exist. ``key_alias`` replaces host and port in known_hosts.
    """

    host: str
    port: int
    user: str
    identity: Path | None
    identities: tuple[Path, ...]
    identities_only: bool
    known_hosts: tuple[Path, ...]
    key_alias: str = ""


@dataclass(frozen=True)
class _Wanted:
    """A machine as it is named: by the device's settings or in a ProxyJump."""

    host: str
    port: int | None = None
    user: str | None = None


def route(settings: DeviceSettings) -> tuple[Hop, ...]:
    """The hops from here to the device; the last one is the device.

    Raises :class:`errors.ConfigError` for a configuration that cannot be followed.
    """
    wanted = _Wanted(settings.host or settings.name, settings.port, settings.user)
    return _hops(wanted, settings, identity=settings.identity_file, seen=())


def _hops(
    wanted: _Wanted, settings: DeviceSettings, *, identity: Path | None, seen: tuple[_Wanted, ...]
) -> tuple[Hop, ...]:
    if wanted in seen or len(seen) >= MAX_HOPS:
        raise errors.ConfigError(
            f"the way to {settings.name} goes through {wanted.host} twice or over more than "
            f"{MAX_HOPS} hosts",
            remedy="check ProxyJump in the SSH configuration",
        )
    options = _options(wanted, settings)
    jumps = _jumps(options)
    here = _hop(wanted, options, settings, identity)
    if not jumps:
        return (here,)
    # Only the first jump host's own ProxyJump counts, as with ssh -J: the list overrides others.
    way = _hops(jumps[0], settings, identity=None, seen=(*seen, wanted))
    between = tuple(_hop(jump, _options(jump, settings), settings, None) for jump in jumps[1:])
    return (*way, *between, here)


def _hop(wanted: _Wanted, options: Options, settings: DeviceSettings, identity: Path | None) -> Hop:
    host = _first(options, "hostname", wanted.host)
    port = wanted.port or _port(_first(options, "port", "22"))
    user = wanted.user or _first(options, "user", getpass.getuser())
    values = {"d": str(Path.home()), "h": host, "p": str(port), "r": user, "%": "%"}
    values["u"] = getpass.getuser()
    known = [] if settings.known_hosts is None else [settings.known_hosts.expanduser()]
    for key in ("userknownhostsfile", "globalknownhostsfile"):
        known += [_path(word, values) for word in _files(options.get(key, []))]
    names = [name for name in options.get("identityfile", []) if name.lower() != "none"]
    return Hop(
        host=_safe(host),
        port=port,
        user=user,
        identity=identity.expanduser() if identity else None,
        identities=tuple(_path(name, values) for name in names),
        identities_only=_first(options, "identitiesonly", "no") == "yes",
        known_hosts=tuple(known),
        key_alias=_first(options, "hostkeyalias", "").lower().replace("none", ""),
    )


def _first(options: Options, key: str, default: str) -> str:
    return next(iter(options.get(key, [])), default)


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < port < 65536:
        raise errors.ConfigError(f"{text!r} is no port", remedy="a port is 1 to 65535")
    return port


def _safe(host: str) -> str:
    """A host name that cannot be taken for an option of ``ssh`` or for anything else."""
    if not _HOST.fullmatch(host):
        raise errors.ConfigError(f"{host!r} is no host name", remedy="give a name or an IP address")
    return host.strip("[]")


def _path(name: str, values: Mapping[str, str]) -> Path:
    """``name`` with ``~`` and the tokens of ssh_config(5) replaced."""
    text = re.sub(r"%(.)", lambda found: values.get(found[1], found[0]), name)
    return Path(text).expanduser()


def _files(lines: list[str]) -> list[str]:
    """The files of ``UserKnownHostsFile``; ``ssh -G`` prints them without quotes."""
    found: list[str] = []
    for line in lines:
        found += [line] if Path(line).expanduser().exists() else line.split()
    return [name for name in found if name.lower() != "none"]


def _jumps(options: Options) -> list[_Wanted]:
    if _first(options, "proxycommand", "none").lower() != "none":
        raise errors.ConfigError(
            "ProxyCommand of the SSH configuration is not supported",
            remedy="use ProxyJump for this host",
        )
    text = _first(options, "proxyjump", "none")
    return [] if text.lower() == "none" else [_jump(part) for part in text.split(",")]


def _jump(text: str) -> _Wanted:
    """``[user@]host[:port]``, also as an ``ssh://`` URI and with an IPv6 address in brackets."""
    user, _, address = text.strip().removeprefix("ssh://").rpartition("@")
    found = re.fullmatch(r"(\[[^\]]+\]|[^:]+)(?::([0-9]{1,5}))?", address)
    if not found:
        raise errors.ConfigError(f"ProxyJump {text!r} is no [user@]host[:port]")
    return _Wanted(_safe(found[1]), _port(found[2]) if found[2] else None, user or None)


def _options(wanted: _Wanted, settings: DeviceSettings) -> Options:
    """What the SSH configuration says for one host, keys in lower case."""
    _safe(wanted.host)
    file = _config_file(settings)
    ssh = process.which("ssh")
    if ssh is None:
        return _read_without_ssh(wanted.host, file or Path("~/.ssh/config").expanduser())
    argv = [str(ssh), "-G"]
    argv += ["-F", str(file)] if file else []
    argv += ["-p", str(wanted.port)] if wanted.port else []
    argv += ["-l", wanted.user] if wanted.user else []
    done = process.run([*argv, "--", wanted.host], timeout=15, check=False)
    if done.returncode != 0:
        said = " / ".join(done.tail(2).splitlines())
        raise errors.ConfigError(
            f"ssh cannot read its configuration for {wanted.host}: {said}",
            remedy=shlex.join(["ssh", *argv[1:], wanted.host]) + " shows the same",
        )
    options: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        options.setdefault(key.lower(), []).append(value)
    return options


def _config_file(settings: DeviceSettings) -> Path | None:
    """The file to read; None for what ``ssh`` reads by itself."""
    if settings.ssh_config is None:
        return None
    file = settings.ssh_config.expanduser()
    if file.is_file():
        return file
    if file == Path("~/.ssh/config").expanduser():
        return None
    raise errors.ConfigError(
        f"the SSH configuration {file} of device {settings.name} does not exist",
        remedy="give the path of a file, or leave ssh_config out",
    )


def _read_without_ssh(host: str, file: Path) -> Options:
    """The same from paramiko's reader, for a machine that has no ``ssh`` program."""
    from paramiko import SSHConfig

    text = read_bounded(file, MAX_BYTES) if file.is_file() else ""
    if re.search(r"^\s*(include|match)\b", text, re.IGNORECASE | re.MULTILINE):
        raise errors.ConfigError(
            f"{file} has Include or Match, which only ssh itself resolves",
            remedy="install the OpenSSH client (ssh), or name a plain file with ssh_config",
        )
    found = SSHConfig.from_text(text).lookup(host)
    options = {key: value if isinstance(value, list) else [value] for key, value in found.items()}
    options.setdefault("identityfile", list(_DEFAULT_IDENTITIES))
    if "userknownhostsfile" in options:
        options["userknownhostsfile"] = options["userknownhostsfile"][0].split()
    options.setdefault("userknownhostsfile", list(_DEFAULT_KNOWN_HOSTS))
    return options
