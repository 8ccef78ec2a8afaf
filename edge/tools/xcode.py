"""Xcode's programs on a Mac, over a device's connection: what is asked of them and what they say.

Planned: written from the documented output of Xcode 15 and 16 (``xcrun devicectl help``, its JSON
of version 2) and run against stand-ins, not on a Mac.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from edge import errors
from edge.devices.base import Device
from edge.process import Completed

BUILD = 1800.0  # seconds for a build that fetches the runtime's archive as well
ASK = 120.0
MAX_JSON = 4 * 2**20
DEVICECTL = ("xcrun", "devicectl")
NOT_THERE = 127
PLATFORMS = ("iOS", "iPadOS")
_IDENTIFIER = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
# What Xcode's programs say, and what helps; the first that is found counts.
REMEDIES = (
    ("requires Xcode", "install Xcode there, then: sudo xcode-select -s /Applications/Xcode.app"),
    ("Xcode license agreement", "on the Mac: sudo xcodebuild -license accept"),
    ("install the platform", "on the Mac: xcodebuild -downloadPlatform iOS"),
    ("Unknown option '--console'", "install Xcode 16 or later there: --console is new in it"),
    ("No space left on device", "free some space on the Mac"),
    ("requires a development team", "name the team that signs the app"),
    ("errSecInternalComponent",
     "over SSH the keychain is locked: run edge on the Mac itself, after security unlock-keychain"),
    ("No Accounts", "sign in to your Apple account in Xcode's settings, on the Mac"),
    ("No signing certificate",
     "sign in to Xcode on the Mac (settings, Accounts) and make an Apple Development certificate"),
    ("No profiles for", "open the bundle's EdgeBenchApp.xcodeproj in Xcode once, with the team"),
    ("provisioning profile",
     "register the phone with the team: run EdgeBenchApp.xcodeproj on it in Xcode once"),
    ("not, or could not be, unlocked", "unlock the phone and keep it unlocked"),
    ("Locked", "unlock the phone and keep it unlocked"),
    ("not been explicitly trusted",
     "trust the developer on the phone: Settings, General, VPN & Device Management"),
    ("Developer Mode", "turn Developer Mode on: Settings, Privacy & Security, on the phone"),
    ("no library for this platform was found",
     "the runtime's archive has nothing for macOS: measure on a phone"),
)  # fmt: skip


@dataclass(frozen=True)
class Phone:
    """An iPhone or iPad that a Mac knows, as ``devicectl`` describes it."""

    identifier: str
    udid: str
    name: str
    model: str
    release: str
    paired: bool
    reachable: bool
    developer_mode: bool

    def facts(self) -> dict[str, Any]:
        """For records."""
        return {
            "os": "ios",
            "os_release": f"iOS {self.release}",
            "arch": "arm64",
            "cpu_model": self.model,
        }


# ------------------------------------------------------------------------------ running
def run(mac: Device, words: Sequence[str], *, timeout: float, doing: str) -> Completed:
    """Run one of Xcode's programs; :class:`errors.RunFailed` says what it said and what helps.

    Raises :class:`errors.ToolMissing` where the Mac does not have it.
    """
    done = mac.run(words, timeout=timeout, check=False)
    if done.returncode != 0:
        refuse(mac, done, doing=doing)
    return done


def refuse(mac: Device, done: Completed, *, doing: str) -> NoReturn:
    """Raise what :func:`run` says of a program that failed."""
    name = mac.settings.name
    if done.returncode == NOT_THERE:
        raise errors.ToolMissing(
            f"{name} has no {done.argv[0]}", remedy="install Xcode there and start it once"
        )
    said = f"{done.stdout}\n{done.stderr}"
    remedy = next((remedy for mark, remedy in REMEDIES if mark in said), "")
    raise errors.RunFailed(f"{name} cannot {doing}: {reason(said)}", remedy=remedy)


def reason(said: str) -> str:
    """The first line of a program's output with an error, else one that is known, else its last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    marked = [line for line in lines if "error:" in line.lower()]
    known = [line for line in lines if any(mark in line for mark, _ in REMEDIES)]
    text = (marked or known or lines[-1:] or ["it said nothing"])[0]
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:400]


@contextlib.contextmanager
def own_folder(mac: Device, scratch: str) -> Iterator[str]:
    """A folder of the Mac for one use: what lies in it is of this use, and goes with it."""
    place = f"{scratch}/{secrets.token_hex(8)}"
    mac.make_folder(place)
    try:
        yield place
    finally:
        # A Mac that is gone has said so already; this must not hide why.
        with contextlib.suppress(errors.EdgeError):
            mac.remove_folder(place)


def asked(
    mac: Device, words: Sequence[str], scratch: str, *, doing: str, timeout: float = ASK
) -> Mapping[str, Any]:
    """The ``result`` of a ``devicectl`` command: it writes JSON into a file and nowhere else."""
    with tempfile.TemporaryDirectory(prefix="edge-xcode-") as folder:
        local = Path(folder) / "devicectl.json"
        with own_folder(mac, scratch) as place:
            told_there = f"{place}/devicectl.json"
            said = (*DEVICECTL, *words, "--json-output", told_there)
            run(mac, said, timeout=timeout, doing=doing)
            mac.get(told_there, local, limit=MAX_JSON)
        try:
            told = json.loads(local.read_bytes())
        except (ValueError, RecursionError) as error:
            raise errors.RunFailed(f"devicectl on {mac.settings.name} wrote no JSON") from error
    found = told.get("result") if isinstance(told, dict) else None
    if not isinstance(found, dict):
        raise errors.RunFailed(f"devicectl on {mac.settings.name} gave no result to {words[0]}")
    return found


# ------------------------------------------------------------------------------- phones
def phones(mac: Device, scratch: str) -> tuple[Phone, ...]:
    """The iPhones and iPads that the Mac knows."""
    told = asked(mac, ("list", "devices"), scratch, doing="list its phones").get("devices")
    entries = [entry for entry in told if isinstance(entry, dict)] if isinstance(told, list) else []
    return tuple(phone for entry in entries if (phone := _phone(entry)) is not None)


def _phone(entry: Mapping[str, Any]) -> Phone | None:
    """None for watches, televisions and what has no identifier."""

    def text(part: str, name: str) -> str:
        table = entry.get(part)
        found = table.get(name) if isinstance(table, dict) else None
        clean = unicodedata.normalize("NFKC", found) if isinstance(found, str) else ""
        return "".join(c if c.isprintable() else "\ufffd" for c in clean)[:200]

    identifier = entry.get("identifier")
    if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
        return None  # it becomes a word of commands
    if text("hardwareProperties", "platform") not in PLATFORMS:
        return None
    return Phone(
        identifier=identifier,
        udid=text("hardwareProperties", "udid"),
        name=text("deviceProperties", "name"),
        model=text("hardwareProperties", "marketingName"),
        release=text("deviceProperties", "osVersionNumber"),
        paired=text("connectionProperties", "pairingState") == "paired",
        reachable=text("connectionProperties", "tunnelState") != "unavailable",
        developer_mode=text("deviceProperties", "developerModeStatus") == "enabled",
    )


def choose(found: Sequence[Phone], wanted: str, mac: str) -> Phone:
    """The phone of that name, identifier or UDID; without one the only one that can be used.

    Raises :class:`errors.Unavailable` naming what is there.
    """
    named = [p for p in found if _is_called(p, wanted)] if wanted else found
    usable = [p for p in named if p.paired and p.reachable and p.developer_mode]
    if len(usable) == 1:
        return usable[0]
    if wanted and usable:
        raise errors.Unavailable(
            f"{mac} has {len(usable)} phones called {wanted}",
            remedy=f"name one by its UDID: {', '.join(p.udid for p in usable)}",
        )
    if wanted and named:
        raise errors.Unavailable(f"{mac}: the phone {wanted} {_trouble(named[0])}",
                                 remedy=_help(named[0]))  # fmt: skip
    there = ", ".join(f"{p.name} ({_trouble(p)})" for p in found) or "none"
    what = f"no phone {wanted}" if wanted else "not exactly one phone that can be used"
    raise errors.Unavailable(
        f"{mac} has {what}; it knows: {there}", remedy="connect one by cable, or name one of them"
    )


def _is_called(phone: Phone, wanted: str) -> bool:
    return wanted in (phone.identifier, phone.udid) or _plain(phone.name) == _plain(wanted)


def _plain(name: str) -> str:
    """As a keyboard writes it: iOS itself puts a typographic apostrophe into "Jo's iPhone"."""
    return unicodedata.normalize("NFKC", name).replace("\u2019", "'")


def _trouble(phone: Phone) -> str:
    if not phone.paired:
        return "is not paired"
    if not phone.reachable:
        return "cannot be reached"
    return "can be used" if phone.developer_mode else "has Developer Mode turned off"


def _help(phone: Phone) -> str:
    if not phone.paired:
        return "connect it by cable, unlock it and trust the Mac"
    if not phone.reachable:
        return "connect it by cable and unlock it"
    return "turn Developer Mode on: Settings, Privacy & Security, on the phone"
