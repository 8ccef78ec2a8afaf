"""The keys to log in with, loaded here and with clear errors.

paramiko hides the cause of a key that it cannot use behind "Invalid key" or "No existing
session" (paramiko #1483), and a server ends the connection after a handful of wrong keys. So
keys are loaded before they are offered, in order, and only a few.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge import errors
from edge.devices.ssh_config import Hop

MAX_OFFERS = 5  # sshd's MaxAuthTries is 6 by default and counts every wrong key
MAX_BYTES = 2**20


@dataclass(frozen=True)
class Candidate:
    """A key that can be offered: ``label`` says which one it is."""

    label: str
    key: Any


class Protected(errors.DeviceUnreachable):
    """A key is protected by a passphrase and no agent holds it."""


@contextmanager
def candidates(hop: Hop) -> Iterator[list[Candidate]]:
    """The keys to offer to ``hop``, best first; the agent stays connected inside.

    Raises :class:`errors.ConfigError` when the key that the settings name cannot be used and
    :class:`errors.DeviceUnreachable` when it is protected by a passphrase.
    """
    from paramiko import Agent, SSHException

    try:
        agent = Agent()
    except SSHException:  # SSH_AUTH_SOCK leads to something that is no agent
        agent = None
    try:
        held = list(agent.get_keys()) if agent else []
        yield _named(hop.identity, held) if hop.identity else _usual(hop, held)
    finally:
        if agent:
            agent.close()


def _named(identity: Path, held: Sequence[Any]) -> list[Candidate]:
    """The one key that was asked for: from its file, or from the agent when it is protected."""
    try:
        return [Candidate(str(identity), load(identity))]
    except Protected:
        found = _in_agent(identity, held)
        if not found:
            raise
        return found


def _usual(hop: Hop, held: Sequence[Any]) -> list[Candidate]:
    """The agent's keys that the configuration names, its files, then the agent's other keys."""
    offers: list[Candidate] = []
    for identity in hop.identities:
        offers += _in_agent(identity, held) or _from_file(identity)
    if not hop.identities_only:
        offers += [_agent_candidate(key) for key in held]
    seen: dict[bytes, Candidate] = {}
    for offer in offers:
        seen.setdefault(offer.key.asbytes(), offer)
    return list(seen.values())[:MAX_OFFERS]


def _agent_candidate(key: Any) -> Candidate:
    return Candidate(f"agent key {getattr(key, 'comment', '') or key.get_name()}", key)


def _in_agent(identity: Path, held: Sequence[Any]) -> list[Candidate]:
    public = _public_blob(identity.with_name(identity.name + ".pub"))
    return [_agent_candidate(key) for key in held if key.asbytes() == public]


def _from_file(identity: Path) -> list[Candidate]:
    """A key of the configuration: one that is not there or not usable is passed over."""
    try:
        return [Candidate(str(identity), load(identity))]
    except (errors.ConfigError, Protected):
        return []


def load(path: Path) -> Any:
    """The private key of a file.

    Raises :class:`errors.ConfigError` for a file that is not there, cannot be read or holds no
    private key, and :class:`errors.DeviceUnreachable` for one with a passphrase.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from paramiko import PasswordRequiredException, PKey, SSHException
    from paramiko.pkey import UnknownKeyType

    _readable(path)
    try:
        return PKey.from_path(str(path))
    except (TypeError, PasswordRequiredException) as error:
        raise Protected(
            f"the key {path} is protected by a passphrase and no ssh-agent holds it",
            remedy=f"ssh-add {path}",
        ) from error
    except (ValueError, SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
        public = path.suffix == ".pub"
        raise errors.ConfigError(
            f"{path} is {'a public key' if public else 'no private key that can be used here'}",
            remedy=f"give the private key: {path.with_suffix('')}"
            if public
            else "a key is made with: ssh-keygen -t ed25519",
        ) from error


def _readable(path: Path) -> None:
    try:
        with path.open("rb") as stream:
            size = len(stream.read(MAX_BYTES + 1))
    except OSError as error:
        raise errors.ConfigError(
            f"cannot read the key {path}: {error.strerror}",
            remedy="check identity_file of the device",
        ) from error
    if size > MAX_BYTES:
        raise errors.ConfigError(f"{path} is too large for a key")


def _public_blob(path: Path) -> bytes | None:
    """The key of a ``.pub`` file in SSH wire format."""
    try:
        words = path.read_text(encoding="utf-8", errors="replace").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, IndexError, binascii.Error):
        return None
