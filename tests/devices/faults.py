"""Bad networks for tests: a forwarder on loopback that goes wrong on demand."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["none", "silence", "reset"]


@dataclass
class Forwarder:
    """Forwards to ``target`` and applies ``fault`` once ``after`` bytes went there.

    ``drop_first`` connections are closed at once, as sshd does past its MaxStartups.
    """

    target: int
    fault: Fault = "none"
    after: int = 0
    drop_first: int = 0
    seen: int = 0
    port: int = 0
    _sockets: list[socket.socket] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        """Accept until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.seen += 1
                if self.seen <= self.drop_first:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.target))
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    self._start(source, sink, counts=source is client)

    def _start(self, source: socket.socket, sink: socket.socket, *, counts: bool) -> None:
        arguments = (source, sink, counts)
        threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        moved = 0
        with suppress(OSError):
            while data := source.recv(65536):
                moved += len(data)
                if counts and self.fault != "none" and moved > self.after:
                    self._go_wrong(source)
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _go_wrong(self, client: socket.socket) -> None:
        if self.fault == "reset":
            # Lingering for 0 s makes close() send RST.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    def close(self) -> None:
        """Close all connections."""
        for one in self._sockets:
            one.close()


@contextmanager
def forwarder(
    target: int, *, fault: Fault = "none", after: int = 0, drop_first: int = 0
) -> Iterator[Forwarder]:
    """A running forwarder; ``port`` is where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        running = Forwarder(target, fault, after, drop_first, port=port)
        thread = threading.Thread(target=running.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield running
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            thread.join(5)
            running.close()


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A server that says ``data`` to everybody and then waits; its port."""
    clients: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                clients.append(client)
                client.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for client in clients:
                client.close()
