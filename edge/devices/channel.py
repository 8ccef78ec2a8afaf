"""One command on one SSH channel: both outputs read at once while the input is written.

A channel stops when 2 MiB of either output are unread, the other one included (paramiko #1778,
#448), and a write blocks when the other side does not read. So each direction has a thread, and
the caller's thread only keeps the time.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edge import errors
from edge.devices.base import CHUNK, OUTPUT_LIMIT
from edge.devices.frames import Frame

GRACE = 1.0  # seconds for the rest of the outputs when a process left behind holds them open


class End(enum.Enum):
    """How a conversation ended."""

    ENDED = "ended"
    LATE = "the deadline passed"
    IDLE = "nothing moved for too long"
    FAILED = "our own side failed"


class Conversation:
    """Drives one command; ``failure`` is set when our own side cannot go on."""

    def __init__(
        self, channel: Any, frame: Frame, chunks: Iterable[bytes], sink: Callable[[bytes], None]
    ) -> None:
        self.frame = frame
        self.stderr = bytearray()
        self.failure: errors.EdgeError | OSError | None = None
        self._channel = channel
        self._chunks: Iterator[bytes] = iter(chunks)
        self._sink = sink
        self._moved = time.monotonic()
        self._changed = threading.Condition()
        self._open = 2  # outputs that have not ended
        self._readers = [
            self._thread(self._read, channel.recv, self._take_output),
            self._thread(self._read, channel.recv_stderr, self._take_error),
        ]
        self._writer = self._thread(self._write)

    @staticmethod
    def _thread(target: Callable[..., None], *arguments: Any) -> threading.Thread:
        return threading.Thread(target=target, args=arguments, daemon=True)

    def drive(self, timeout: float, idle: float) -> End:
        """Until the command has ended, ``timeout`` seconds have passed or nothing moves."""
        deadline = time.monotonic() + timeout
        for thread in (*self._readers, self._writer):
            thread.start()
        with self._changed:
            while True:
                end = self._end(deadline, idle)
                if end:
                    return end
                wait = min(deadline, self._moved + idle, time.monotonic() + GRACE)
                self._changed.wait(max(wait - time.monotonic(), 0.0))

    def finish(self) -> None:
        """After the channel was closed: wait for the threads, hand over what was held back."""
        for thread in (*self._readers, self._writer):
            thread.join(5.0)
        left = self.frame.rest()
        if left and self.failure is None:
            self._sink(left)

    def _end(self, deadline: float, idle: float) -> End | None:
        now = time.monotonic()
        if self.failure is not None:
            return End.FAILED
        if self._open == 0:
            return End.ENDED
        if self.frame.code is not None and now - self._moved > GRACE:
            return End.ENDED
        if now >= deadline:
            return End.LATE
        return End.IDLE if now - self._moved >= idle else None

    def _progress(self) -> None:
        with self._changed:
            self._moved = time.monotonic()
            self._changed.notify()

    def _fail(self, failure: errors.EdgeError | OSError) -> None:
        with self._changed:
            self.failure = self.failure or failure
            self._changed.notify()

    def _read(self, receive: Callable[[int], bytes], take: Callable[[bytes], None]) -> None:
        while data := self._receive(receive):
            try:
                take(data)
            except (errors.EdgeError, OSError) as failure:
                self._fail(failure)
                return
            self._progress()
        with self._changed:
            self._open -= 1
            self._changed.notify()

    @staticmethod
    def _receive(receive: Callable[[int], bytes]) -> bytes:
        """The next bytes; a connection that broke is the end, too (reading also answers)."""
        from paramiko import SSHException

        try:
            return receive(CHUNK)
        except (SSHException, EOFError, OSError):
            return b""

    def _take_output(self, data: bytes) -> None:
        payload = self.frame.feed(data)
        if payload:
            self._sink(payload)

    def _take_error(self, data: bytes) -> None:
        self.stderr += data
        if len(self.stderr) > OUTPUT_LIMIT:
            raise errors.RunFailed(f"a command printed more than {OUTPUT_LIMIT} bytes of errors")

    def _write(self) -> None:
        from paramiko import SSHException

        try:
            self._write_all()
        except (SSHException, EOFError, OSError):
            return  # the other side has ended; its own words, or their absence, say why

    def _write_all(self) -> None:
        while (chunk := self._next()) is not None:
            while chunk:
                sent = self._channel.send(chunk)
                self._progress()
                chunk = chunk[sent:]
        if self.failure is None:
            self._channel.shutdown_write()

    def _next(self) -> bytes | None:
        try:
            return next(self._chunks, None)
        except (errors.EdgeError, OSError) as failure:
            self._fail(failure)
            return None
