"""Listings of an SFTP server that means harm: bounded, and of names that are names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from paramiko import Message
from paramiko.sftp import CMD_HANDLE, CMD_NAME, CMD_OPENDIR, CMD_READDIR

from edge import errors
from edge.devices import sftp

FOLDER = 0o40755


class Client:
    """What :class:`edge.devices.sftp.Files` asks of paramiko's client; ``answer`` is a listing."""

    closed = False

    def __init__(self, answer: Callable[[], Message | None]) -> None:
        self._answer = answer
        self.removed: list[str] = []

    def get_channel(self) -> Client:
        return self

    def settimeout(self, seconds: float) -> None:
        assert seconds

    def _request(self, kind: int, *what: bytes) -> tuple[int, Message]:
        if kind == CMD_OPENDIR:
            handle = Message()
            handle.add_string(b"1")
            return CMD_HANDLE, Message(handle.asbytes())
        if kind != CMD_READDIR:
            return 0, Message()
        if answer := self._answer():
            return CMD_NAME, answer
        raise EOFError

    def remove(self, path: str) -> None:
        self.removed.append(path)


def listing(*names: str, count: int | None = None, mode: int = FOLDER) -> Message:
    made = Message()
    made.add_int(len(names) if count is None else count)
    for name in names:
        made.add_string(name)
        made.add_string(b"")
        made.add_int(4)  # permissions are all that follows
        made.add_int(mode)
    return Message(made.asbytes())


def files(answer: Callable[[], Message | None]) -> sftp.Files:
    client: Any = Client(answer)
    return sftp.Files(client, "pc", lambda why: errors.DeviceUnreachable(why, remedy=""))


def test_a_listing_has_an_end() -> None:
    parts = iter(range(10**9))
    with pytest.raises(errors.RunFailed, match="more than 200000 entries"):
        files(lambda: listing(*(f"{next(parts)}" for _ in range(1000)))).entries("/x")


def test_a_packet_that_claims_more_than_it_holds() -> None:
    with pytest.raises(errors.RunFailed, match="more than 200000 entries"):
        files(lambda: listing(count=2**32 - 1)).entries("/x")
    with pytest.raises(errors.RunFailed, match="'' is no name"):
        files(lambda: listing("a", count=1000)).entries("/x")


@pytest.mark.parametrize("name", ["../x", "a/b", "..\\x", "", "a\0b"])
def test_names_that_lead_elsewhere(name: str) -> None:
    once = iter([listing(name, mode=0o100644)])
    there = files(lambda: next(once, None))
    with pytest.raises(errors.RunFailed, match="is no name"):
        there.remove_all("/x")


def test_a_listing_without_dots() -> None:
    once = iter([listing(".", "..", "a"), listing("b")])
    assert files(lambda: next(once, None)).entries("/x") == {
        "a": sftp.Entry(0, folder=True),
        "b": sftp.Entry(0, folder=True),
    }


def test_folders_without_a_bottom() -> None:
    answers = iter([answer for _ in range(10**4) for answer in (listing("a"), None)])
    there = files(lambda: next(answers))
    with pytest.raises(errors.RunFailed, match="it is too deep"):
        there.remove_all("/x")
