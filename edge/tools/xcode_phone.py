"""A phone behind a Mac as a device that ``edge.bench`` can measure on: it runs one app.

The app's record and outputs lie in its Documents folder, from where ``devicectl`` copies them to
the Mac; folders of the protocol's arguments mean nothing to it and are made of no one.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from edge import errors, protocol
from edge.devices.base import OUTPUT_LIMIT, Device, DeviceSettings
from edge.process import Completed
from edge.tools import xcode
from edge.tools.xcode import DEVICECTL, Phone
from edge.tools.xcode_build import Place

_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}")


class PhoneDevice:
    """What ``edge.bench`` uses of a device, on a phone."""

    def __init__(self, mac: Device, place: Place, phone: Phone, app: str) -> None:
        self._mac, self._place, self._phone, self._app = mac, place, phone, app

    @property
    def settings(self) -> DeviceSettings:
        """The Mac's, under the phone's name."""
        return replace(self._mac.settings, name=self._phone.name)

    def run(
        self, argv: Sequence[str], *, timeout: float, stdin: bytes = b"", check: bool = True
    ) -> Completed:
        """Start the app with the runner's arguments; its record is what it would have printed.

        ``argv[0]`` stands for the app. Raises :class:`errors.RunFailed` where the app could not
        be started or left no record. A record with its end is a run that went well: what
        ``devicectl`` itself ends with then (the console may break) says nothing of the app.
        """
        del stdin
        record = f"edge-{secrets.token_hex(8)}.jsonl"
        words = [*DEVICECTL, "device", "process", "launch", "--console", "--terminate-existing"]
        words += ["--device", self._phone.identifier, self._app, "--run", "--record", record]
        done = self._mac.run([*words, *arguments(argv[1:])], timeout=timeout, check=False)
        try:
            said = self._read(record)
        except errors.RunFailed:
            if done.returncode != 0:
                xcode.refuse(self._mac, done, doing=self._doing)
            raise
        code = 0 if last_event(said).get("event") == "end" else done.returncode
        if check and code != 0:
            xcode.refuse(self._mac, done, doing=self._doing)
        return Completed(done.argv, code, said, done.tail(), done.seconds)

    @property
    def _doing(self) -> str:
        return f"run the app on {self._phone.name}"

    def get(self, remote: str, local: Path, *, limit: int) -> None:
        """Fetch a file of the app's Documents by its name."""
        name = PurePosixPath(remote).name
        if not _NAME.fullmatch(name):  # a profile's is what the app says
            raise errors.RunFailed(f"{self._phone.name} names a file {name[:80]!r}")
        copied = [*DEVICECTL, "device", "copy", "from", "--device", self._phone.identifier]
        copied += ["--domain-type", "appDataContainer", "--domain-identifier", self._app]
        with xcode.own_folder(self._mac, self._place.scratch) as place:
            there = f"{place}/{name}"
            copied += ["--source", f"Documents/{name}", "--destination", there]
            xcode.run(self._mac, copied, timeout=xcode.ASK, doing=f"copy {name} from the phone")
            self._mac.get(there, local, limit=limit)

    def make_folder(self, path: str) -> None:
        """Nothing: the app has one folder, and it is there."""

    def remove_folder(self, path: str) -> None:
        """Nothing: outputs of the next run take the place of these."""

    def _read(self, record: str) -> str:
        with tempfile.TemporaryDirectory(prefix="edge-phone-") as folder:
            local = Path(folder) / record
            self.get(record, local, limit=OUTPUT_LIMIT)
            return local.read_text("utf-8", "replace")


def last_event(said: str) -> Mapping[str, Any]:
    """The last line of what a runner said, empty where that is no event. It is not trusted."""
    line = said.rstrip("\n").rpartition("\n")[2]
    try:
        event = json.loads(line) if len(line) <= protocol.MAX_LINE else None
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def arguments(words: Sequence[str]) -> list[str]:
    """The runner's arguments as the app takes them: a profile's prefix is a mere name there."""
    told = list(words)
    for at, word in enumerate(told[:-1]):
        if word == "--profile":
            told[at + 1] = PurePosixPath(told[at + 1]).name
    return told
