"""Which host keys are known: ``known_hosts`` files, read line by line.

paramiko's own reader gives up on a whole file for one ``@cert-authority`` or ``@revoked`` line
(paramiko #771) and does not match wildcards. This one follows sshd(8), "SSH_KNOWN_HOSTS FILE
FORMAT": hashed names, ``[host]:port``, wildcards and negation; revoked keys are refused;
certificate authorities are not supported and are ignored.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edge import errors

MAX_BYTES = 16 * 2**20
REVOKED = "@revoked"
AUTHORITY = "@cert-authority"


class Verdict(enum.Enum):
    """What the files say of a host and its key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Entry:
    """One line: ``key`` in SSH wire format, ``where`` as ``file:line``."""

    where: str
    marker: str
    patterns: str
    key_type: str
    key: bytes

    def covers(self, name: str) -> bool:
        """True when the line is about ``name`` (of :func:`lookup_name`)."""
        if self.patterns.startswith("|"):
            return _hash_matches(self.patterns, name)
        return _patterns_match(self.patterns, name)


@dataclass(frozen=True)
class KnownHosts:
    """All lines of some files; ``unread`` names those that could not be understood."""

    entries: tuple[Entry, ...]
    unread: tuple[str, ...] = ()

    def keys(self, name: str) -> tuple[Entry, ...]:
        """The plain keys known for ``name``."""
        return tuple(entry for entry in self.entries if not entry.marker and entry.covers(name))

    def authorities(self, name: str) -> tuple[Entry, ...]:
        """The ``@cert-authority`` lines about ``name``: they are not used."""
        return tuple(e for e in self.entries if e.marker == AUTHORITY and e.covers(name))

    def verdict(self, name: str, key: bytes) -> Verdict:
        """What is known of ``key`` (SSH wire format) for ``name``."""
        same = [entry for entry in self.entries if hmac.compare_digest(entry.key, key)]
        if any(entry.marker == REVOKED and entry.covers(name) for entry in same):
            return Verdict.REVOKED
        known = self.keys(name)
        if any(hmac.compare_digest(entry.key, key) for entry in known):
            return Verdict.KNOWN
        return Verdict.CHANGED if known else Verdict.UNKNOWN


def parse(text: str, file: str) -> KnownHosts:
    """The lines of one file. Never raises: what it cannot read is in ``unread``."""
    entries: list[Entry] = []
    unread: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _entry(line.split(), f"{file}:{number}")
        if entry:
            entries.append(entry)
        else:
            unread.append(f"{file}:{number}")
    return KnownHosts(tuple(entries), tuple(unread))


def load(files: Iterable[Path]) -> KnownHosts:
    """The lines of those ``files`` that exist.

    Raises :class:`errors.ConfigError` for one that cannot be read or is larger than
    ``MAX_BYTES``.
    """
    entries: list[Entry] = []
    unread: list[str] = []
    for file in files:
        if file.is_file():
            parsed = parse(read_bounded(file, MAX_BYTES), str(file))
            entries += parsed.entries
            unread += parsed.unread
    return KnownHosts(tuple(entries), tuple(unread))


def read_bounded(file: Path, limit: int) -> str:
    """The text of a file of at most ``limit`` bytes; :class:`errors.ConfigError` otherwise."""
    try:
        with file.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise errors.ConfigError(f"cannot read {file}: {error.strerror}") from error
    if len(data) > limit:
        raise errors.ConfigError(f"{file} has more than {limit} bytes")
    return data.decode("utf-8", "replace")


def lookup_name(host: str, port: int) -> str:
    """The name under which a host's keys are kept: ``host``, or ``[host]:port``."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def hashed(name: str, salt: bytes) -> str:
    """``name`` as ``HashKnownHosts`` writes it: ``|1|salt|HMAC-SHA1``."""
    digest = hmac.new(salt, name.encode("utf-8", "surrogateescape"), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def fingerprint(key: bytes) -> str:
    """``SHA256:...`` as ``ssh-keygen -l`` prints it, for a key in SSH wire format."""
    digest = base64.b64encode(hashlib.sha256(key).digest()).decode()
    return "SHA256:" + digest.rstrip("=")


def _entry(words: list[str], where: str) -> Entry | None:
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if marker not in {"", REVOKED, AUTHORITY} or len(words) < 3:
        return None
    patterns, key_type, encoded = words[:3]
    key = _decode(encoded)
    if key is None or _type_of(key) != key_type:
        return None
    return Entry(where, marker, patterns, key_type, key)


def _decode(encoded: str) -> bytes | None:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


def _type_of(key: bytes) -> str:
    """The type that a key in wire format names itself: uint32 length, then that many bytes."""
    length = int.from_bytes(key[:4], "big")
    return key[4 : 4 + length].decode("ascii", "replace") if 4 + length <= len(key) else ""


def _hash_matches(pattern: str, name: str) -> bool:
    parts = pattern.split("|")
    salt = _decode(parts[2]) if len(parts) == 4 and parts[1] == "1" else None
    return salt is not None and hmac.compare_digest(
        hashed(name, salt).encode(), pattern.encode("utf-8", "replace")
    )


def _patterns_match(patterns: str, name: str) -> bool:
    """One pattern says yes and none that begins with ``!`` covers the name."""
    found = False
    for pattern in patterns.lower().split(","):
        if _wildcard(pattern.removeprefix("!"), name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _wildcard(pattern: str, name: str) -> bool:
    """``*`` and ``?`` only: ``[`` is a plain letter in ``[host]:port``, so no fnmatch.

    Goes back to the last star only, so that a hostile line costs pattern times name at most.
    """
    at = here = 0
    star, resume = -1, 0
    while here < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", name[here]}:
            at, here = at + 1, here + 1
        elif star >= 0:
            resume += 1
            at, here = star + 1, resume
        else:
            return False
    return not pattern[at:].strip("*")
