"""HTTP for one model: bounded connections, bodies and waits; every refusal in the same form.

A load balancer in front may read a request otherwise than Python's http.server does. So whatever
leaves a doubt where a request ends also ends its connection.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import Any, Protocol

from inference_protocol import JSON_LENGTH, Refused

IDLE_SECONDS = 30  # a connection that says nothing, a client that does not read
HEAD_SECONDS = 10  # the rest of a request's head after its first byte
BODY_SECONDS = 60  # a body that comes in drops
CROWDED_SECONDS = 2  # the same as IDLE_SECONDS where there is no place left
LINGER_BYTES = 8 << 20  # of an unread body taken so that the refusal before it is seen
SPARE = 4  # connections beyond the limit that may ask for health: probes must not fail of a crowd


def log(event: str, **fields: object) -> None:
    """One line on standard error."""
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stderr.flush()


class Application(Protocol):
    """What answers: see ``serve.Service``."""

    environment: Any
    draining: bool

    def under_way(self) -> AbstractContextManager[None]:
        """Counts a request."""

    def route(self, path: str) -> tuple[str, Callable[..., Any]]:
        """Method and function of a path."""


class Stream(io.RawIOBase):
    """What a client sends, until ``until`` (seconds of the monotonic clock)."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.until = connection, inf

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes; TimeoutError when none came in time."""
        left = min(self.until - time.monotonic(), IDLE_SECONDS)
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)
        return self.connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "edgewright", ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True  # or else the body waits 40 ms for the headers' acknowledgement
    service: Application
    server: Server
    unread = False  # a body that was announced

    def setup(self) -> None:
        """Reads have a deadline for the whole of a head or a body, not for each packet alone."""
        super().setup()
        self.rfile.close()
        self.stream = Stream(self.connection)
        self.rfile = self.reader = io.BufferedReader(self.stream, 1 << 16)
        self.crowded = self.request in self.server.crowd

    def handle_one_request(self) -> None:
        """A request is under way from its first byte on."""
        try:
            self._within(CROWDED_SECONDS if self.crowded else IDLE_SECONDS)
            if not self.reader.peek(1):
                self.close_connection = True
                return
            with self.service.under_way():
                self._within(HEAD_SECONDS)
                super().handle_one_request()
        except OSError:  # it went away, or said nothing
            self.close_connection = True

    def do_GET(self) -> None:
        """Health, metadata and inference."""
        lengths = self.headers.get_all("Content-Length") or []
        self.unread = "Transfer-Encoding" in self.headers or lengths not in ([], ["0"])
        # Behind a line that is no header Python reads no more of them: nor where the body ends.
        doubt = bool(self.headers.defects)
        self.close_connection |= self.crowded or doubt or (self.unread and self.command != "POST")
        try:
            if doubt:
                raise Refused(400, "a line of the head is no header")
            self._answer()
        except Refused as refused:
            self._refuse(refused)
        except OSError:  # the client went away, or was too slow
            self.close_connection = True
        except Exception as error:  # noqa: BLE001 - one bad request never ends the server
            log("error", why=repr(error))
            self._refuse(Refused(500, "internal error; the log says why"))

    do_POST = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815

    def handle_expect_100(self) -> bool:
        """Let a body come only when it would be read."""
        try:
            self._length()
        except Refused as refused:
            self._refuse(refused)
            return False
        return super().handle_expect_100()

    def _within(self, seconds: float) -> None:
        self.stream.until = time.monotonic() + seconds

    def _answer(self) -> None:
        method, answer = self.service.route(self.path.partition("?")[0])
        if self.command != method:
            raise Refused(405, f"{method} is what this route takes")
        if method == "POST" and self.crowded:
            raise Refused(503, "too many connections")
        if method == "POST":
            self._send(200, *answer(*self._body()))
        else:
            self._send(200, json.dumps(answer()).encode())

    def _length(self) -> int:
        lengths = self.headers.get_all("Content-Length") or []
        if "Transfer-Encoding" in self.headers or len(lengths) != 1:
            raise Refused(411, "the body needs one Content-Length")
        text = lengths[0].strip()
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise Refused(400, "Content-Length is no number")
        most = self.service.environment.max_body
        if int(text) > most:
            raise Refused(413, f"the body has {text} bytes; {most} is the most for this model")
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(415, "bodies are not compressed")
        return int(text)

    def _body(self) -> tuple[bytearray, int]:
        """The body, and how much of it is JSON."""
        length, count = self._length(), 0
        body = bytearray(length)
        self._within(BODY_SECONDS)
        with memoryview(body) as left, suppress(TimeoutError):
            while count < length and (size := self.rfile.readinto1(left[count:])):
                count += size
        if count < length:
            raise Refused(408, "the body did not come whole")
        self.unread = False
        text = self.headers.get(JSON_LENGTH, str(length))
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= length):
            raise Refused(400, f"{JSON_LENGTH} is no length within the body")
        return body, int(text)

    def _refuse(self, refused: Refused) -> None:
        self.close_connection = True
        with suppress(OSError):
            self._send(refused.status, json.dumps({"error": refused.message}).encode())
            self._linger()

    def _linger(self) -> None:
        """Closing on unread bytes resets the connection, and the client loses the answer."""
        self._within(1)
        left = LINGER_BYTES if self.unread else 0
        while left > 0 and (part := self.rfile.read1(1 << 16)):
            left -= len(part)

    def send_error(self, code: int, message: str | None = None, _: str | None = None) -> None:
        """What http.server itself refuses, in the same form."""
        self._refuse(Refused(code, message or "bad request"))

    def _send(self, status: int, body: bytes, json_length: int | None = None) -> None:
        self.connection.settimeout(IDLE_SECONDS)  # for all of it
        self.send_response(status)
        binary = json_length is not None
        self.send_header(
            "Content-Type", "application/octet-stream" if binary else "application/json"
        )
        self.send_header("Content-Length", str(len(body)))
        if binary:
            self.send_header(JSON_LENGTH, str(json_length))
        if self.close_connection or self.service.draining:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def log_message(self, *_: object) -> None:
        """No access log."""


class Server(ThreadingHTTPServer):
    """A thread for each connection, up to a limit; IPv4 and IPv6."""

    daemon_threads = True
    request_queue_size = 128
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, port: int, connections: int, handler: type[Handler]) -> None:
        self.places = threading.BoundedSemaphore(connections)
        self.crowd: set[Any] = set()  # connections beyond the limit
        super().__init__(("", port), handler)

    def server_bind(self) -> None:
        """Also IPv4 where the system lets one socket do both."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Turn a connection away when there is no place for it."""
        if not self.places.acquire(blocking=False):
            if len(self.crowd) >= SPARE:
                self._turn_away(request)
                return
            self.crowd.add(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, *_: object) -> None:
        """A connection that failed ends; the log stays JSON."""
        log("error", why=repr(sys.exc_info()[1]))

    def _leave(self, request: Any) -> None:
        if request in self.crowd:
            self.crowd.discard(request)
        else:
            self.places.release()

    def _turn_away(self, request: Any) -> None:
        with suppress(OSError):
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                b'Content-Length: 33\r\nConnection: close\r\n\r\n{"error": "too many connections"}'
            )
        self.shutdown_request(request)
