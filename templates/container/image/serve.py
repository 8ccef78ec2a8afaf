#!/usr/bin/env python3
"""Serve a bundle over HTTP, ready only when its golden samples have come out right here.

``serve`` (the default) speaks the Open Inference Protocol v2 with its binary tensor extension,
and has SageMaker's routes /ping and /invocations; ``check`` runs the golden samples and ends: its
exit code is the proof. Settings are the environment variables of :class:`Environment`. Log lines
on standard error are JSON. Python 3.10 or newer, numpy and the bundle's runtime, nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from http_server import Handler, Server, log
from inference_protocol import Refused, parse, render
from served_model import DATATYPES, Failure, Hung, Model, Port, Settings, prove, read_manifest

HUNG = "a run did not end in time; the server has to be started again"
VALUE_BYTES = 32  # of a body for each value in its JSON: what the pod's memory is made for


class Environment(NamedTuple):
    """Settings: ``EDGE_BUNDLE``, ``EDGE_CACHE``, ``EDGE_PORT`` and so on, whole numbers."""

    bundle: Path
    cache: str  # a folder to keep compiled models in; empty: none is kept
    port: int = 8080
    threads: int = 1  # of one run
    concurrency: int = 1  # runs at once
    connections: int = 64  # open at once; more are turned away
    wait_seconds: int = 10  # that a request waits for its run
    run_seconds: int = 300  # that a run may take; one that hangs ends the server's life
    lag_seconds: int = 5  # served on after SIGTERM, until load balancers have noticed
    drain_seconds: int = 20  # that requests under way may still take
    max_body: int = 1 << 20  # bytes of a request

    @classmethod
    def read(cls) -> Environment:
        """What the process was started with."""
        known = cls._field_defaults
        numbers = {name: _number(f"EDGE_{name.upper()}", known[name]) for name in known}
        bundle = Path(os.environ.get("EDGE_BUNDLE", "/bundle"))
        return cls(bundle, os.environ.get("EDGE_CACHE", ""), **numbers)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise Failure(f"{name}={text} is no whole number")
    return int(text)


# ---- the service --------------------------------------------------------------------------------


class Service:
    """One model, what is known of it, and the requests under way."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.manifest = read_manifest(environment.bundle)
        self.name = str(self.manifest["model"]["name"])
        self.version = str(self.manifest["model"]["version"])
        self.model: Model | None = None  # only when it is proven
        self.why = "the golden samples have not been run yet"
        self.draining = False
        self.hung = False  # a run did not end in time: its thread cannot be ended
        self.slots = threading.BoundedSemaphore(environment.concurrency)
        self.idle = threading.Condition()
        self.active = 0

    def prove(self) -> bool:
        """Load the model and run the golden samples with it; it serves only after that."""
        environment, start = self.environment, time.monotonic()
        try:
            settings = Settings(environment.threads, environment.concurrency, environment.cache)
            model = Model(environment.bundle, self.manifest, settings)
            samples = prove(model, environment.bundle, self.manifest["tolerance"])
        except (Failure, OSError, ValueError, KeyError) as error:
            self.why = f"not proven: {error}"
            log("failed", why=str(error))
            return False
        log("proven", samples=samples, seconds=round(time.monotonic() - start, 3))
        self.model = model
        return True

    def ready(self) -> Model:
        """The model; 503 while it is not proven, or no longer serves."""
        self.live()
        if self.model is None:
            raise Refused(503, self.why)
        return self.model

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Counts a request."""
        with self.idle:
            self.active += 1
        try:
            yield
        finally:
            with self.idle:
                self.active -= 1
                self.idle.notify_all()

    def drain(self) -> bool:
        """Wait for requests under way; True when none is left."""
        with self.idle:
            seconds = self.environment.drain_seconds
            return self.idle.wait_for(lambda: self.active == 0, seconds)

    # The answers, each as (body, length of the JSON in it where binary data follow).

    def live(self) -> Any:
        """The process answers, and no run hangs: a probe that fails has it started again."""
        if self.hung:
            raise Refused(503, HUNG)
        return {"live": True}

    def health(self) -> Any:
        """The model is proven and new requests are welcome."""
        self.ready()
        if self.draining:
            raise Refused(503, "the server is going down")
        return {"live": True, "ready": True}

    def model_ready(self) -> Any:
        """The same of the one model."""
        self.health()
        return {"name": self.name, "ready": True}

    def server(self) -> Any:
        """Metadata of the server."""
        return {"name": "edgewright", "version": "1", "extensions": ["binary_tensor_data"]}

    def metadata(self) -> Any:
        """Metadata of the model."""
        model = self.ready()

        def said(ports: list[Port]) -> list[dict[str, Any]]:
            return [
                {"name": p.name, "datatype": DATATYPES[p.dtype], "shape": list(p.shape)}
                for p in ports
            ]

        return {
            "name": self.name,
            "versions": [self.version],
            "platform": model.platform,
            "inputs": said(model.inputs),
            "outputs": said(model.outputs),
        }

    def infer(self, body: bytearray, json_length: int) -> tuple[bytes, int | None]:
        """Parse, run, render: all in a slot, so that memory is bounded by their number."""
        model = self.ready()
        if not self.slots.acquire(timeout=self.environment.wait_seconds):
            raise Refused(503, "all runs are busy")
        try:
            self.live()
            most = self.environment.max_body // VALUE_BYTES
            asked = parse(body, json_length, (model.inputs, model.outputs), most)
            body.clear()  # its tensors are copies
            try:
                found = model.run(asked.feeds, self.environment.run_seconds)
            except Hung as error:
                self.hung = True
                log("hung", seconds=self.environment.run_seconds)
                raise Refused(503, HUNG) from error
            except Exception as error:
                log("error", why=str(error))
                raise Refused(500, "the model failed on this input; the log says why") from error
            return render(asked, (self.name, self.version), found)
        finally:
            self.slots.release()

    def route(self, path: str) -> tuple[str, Callable[..., Any]]:
        """Method and function of a path."""
        parts = tuple(unquote(part) for part in path.split("/")[1:])
        plain = {
            ("v2",): self.server,
            ("v2", "health", "live"): self.live,
            ("v2", "health", "ready"): self.health,
            ("ping",): self.health,
        }
        if parts in plain:
            return "GET", plain[parts]
        if parts[:2] == ("v2", "models") and parts[2:3] == (self.name,):
            rest = parts[5:] if parts[3:5] == ("versions", self.version) else parts[3:]
            known = {(): ("GET", self.metadata), ("ready",): ("GET", self.model_ready)}
            if rest in known:
                return known[rest]
        elif parts == ("invocations",):
            rest = ("infer",)
        else:
            raise Refused(404, "there is no such route or model")
        if rest != ("infer",):
            raise Refused(404, "there is no such route or version")
        return "POST", self.infer


def serve(service: Service) -> int:
    """Until SIGTERM or SIGINT: then serve on for the lag, finish what is under way, end."""
    environment, stop = service.environment, threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    bound = type("BoundHandler", (Handler,), {"service": service})
    server = Server(environment.port, environment.connections, bound)
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    log("listening", port=server.server_address[1], model=service.name, version=service.version)
    threading.Thread(target=service.prove, daemon=True).start()
    stop.wait()
    service.draining = True
    log("draining")
    time.sleep(environment.lag_seconds)
    server.shutdown()
    server.socket.close()
    whole = service.drain()
    log("end", whole=whole)
    if not whole or service.hung:
        os._exit(1)  # a run that does not end would be waited for
    return 0


def main(words: list[str]) -> int:
    """0 after a clean end or a proof, 1 after a failed proof, 2 for wrong usage."""
    try:
        if words not in ([], ["serve"], ["check"]):
            raise Failure(f"unknown arguments {words}: serve or check")
        service = Service(Environment.read())
    except Failure as failure:
        log("failed", why=str(failure))
        return 2
    if words == ["check"]:
        return 0 if service.prove() else 1
    return serve(service)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
