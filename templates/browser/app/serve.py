"""Serve this bundle to browsers on this machine: ``python app/serve.py [PORT]``.

``python -m http.server`` cannot send the two headers without which a page gets one thread and a
coarse clock. Binds the loopback address only; port 0 takes a free one. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BUNDLE = Path(__file__).resolve().parent.parent
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; "
    "style-src 'self'; connect-src 'self'; worker-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # may be kept, must be asked for again: a new build shows at once
}


class Handler(SimpleHTTPRequestHandler):
    """Files of the bundle with the headers above; ``/`` is the page."""

    protocol_version = "HTTP/1.1"
    extensions_map = {  # noqa: RUF012 - overrides the base class's own
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",  # what streaming compilation asks for
        ".jsonl": "application/x-ndjson",
    }

    def end_headers(self) -> None:
        """Every answer carries the headers, also a refusal."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def do_GET(self) -> None:
        """The page for ``/``, files for the rest."""
        if self.path.partition("?")[0] in ("/", "/index.html"):
            self.send_response(302)
            self.send_header("Location", "/app/" + "".join(self.path.partition("?")[1:]))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()


def make_server(port: int) -> ThreadingHTTPServer:
    """A server of the bundle on the loopback address, not started yet."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(BUNDLE)))


def main(port: int) -> None:
    """Serve until interrupted."""
    with make_server(port) as server:
        print(f"http://localhost:{server.server_port}/app/", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description="Serve this bundle to this machine.")
    words.add_argument("port", type=int, nargs="?", default=8000, help="default: 8000")
    chosen = words.parse_args().port
    try:
        main(chosen)
    except (OSError, OverflowError) as error:
        words.error(f"cannot listen on port {chosen}: {error}")
