"""The server of a container, as a process: the proof before it is ready, requests, the end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess  # noqa: TID251 - processes that a test stops
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import containers, field, process
from edge.bundle import MANIFEST, read_manifest
from edge.containers.memory import Memory
from edge.store import Store
from tests import built, models
from tests.command import Outcome, edge
from tests.containers import handmade

pytestmark = pytest.mark.process
INFER = "/v2/models/mlp/infer"
Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class Server:
    """A server on a port of this machine; ``events`` are the lines of its log so far."""

    child: subprocess.Popen[bytes]
    port: int
    events: list[dict[str, Any]]

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.request(method, path, body or None, given)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def json(self, method: str, path: str, value: Any = None) -> tuple[int, Any]:
        """The same with JSON on both sides."""
        body = b"" if value is None else json.dumps(value).encode()
        status, headers, answer = self.ask(method, path, body)
        assert headers["Content-Type"] == "application/json"
        return status, json.loads(answer)

    def ready(self) -> int:
        """The status of readiness."""
        return self.ask("GET", "/v2/health/ready")[0]

    def wait_for(self, event: str) -> dict[str, Any]:
        """The first log line of that event."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for each in list(self.events):
                if each["event"] == event:
                    return each
            time.sleep(0.02)
        raise AssertionError(f"no {event} in {self.events}")


def environment(bundle: Path, **settings: str) -> dict[str, str]:
    """The environment of the image, as far as the server reads it."""
    mine = {"EDGE_BUNDLE": str(bundle), "EDGE_PORT": "0", "EDGE_LAG_SECONDS": "0",
            "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    return {**os.environ, **mine, **settings}


@contextmanager
def running(folder: Path, **settings: str) -> Iterator[Server]:
    """``serve.py`` of a container's folder."""
    child = subprocess.Popen(
        [sys.executable, str(folder / "serve.py"), "serve"],
        env=environment(folder / "bundle", **settings),
        stderr=subprocess.PIPE,
    )
    events: list[dict[str, Any]] = []
    reader = threading.Thread(target=_read, args=(child, events), daemon=True)
    reader.start()
    try:
        port = Server(child, 0, events).wait_for("listening")["port"]
        yield Server(child, int(port), events)
    finally:
        child.kill()
        child.wait()
        reader.join()
        assert child.stderr
        child.stderr.close()


def _read(child: subprocess.Popen[bytes], events: list[dict[str, Any]]) -> None:
    assert child.stderr
    for line in child.stderr:  # each is there as soon as it is read
        events.append(json.loads(line))  # noqa: PERF401


def check(folder: Path, **settings: str) -> process.Completed:
    """``serve.py check``: the job."""
    words = [sys.executable, str(folder / "serve.py"), "check"]
    return process.run(
        words, env=environment(folder / "bundle", **settings), timeout=60, check=False
    )


def container(folder: Path) -> Path:
    """The container of a hand-made bundle in ``folder``."""
    what, memory = field.read(folder), Memory(256, "")
    place, templates = folder.with_name("container"), handmade.TEMPLATES / "container"
    return containers.write(what, place, containers.Wish(), memory, templates).folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A proven server of the small model."""
    folder = container(handmade.bundle(tmp_path_factory.mktemp("served") / "bundle"))
    with running(folder, EDGE_MAX_BODY="20000", EDGE_CONCURRENCY="2") as server:
        server.wait_for("proven")
        yield server


def tensor(x: Any, **changes: Any) -> dict[str, Any]:
    """The input ``x`` of the model as JSON."""
    plain = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


X = handmade.mlp_cases()[0][0]["x"]


# ---- the protocol -------------------------------------------------------------------------------


def test_health_and_metadata(served: Server) -> None:
    assert served.json("GET", "/v2/health/live") == (200, {"live": True})
    assert served.json("GET", "/v2/health/ready") == (200, {"live": True, "ready": True})
    assert served.json("GET", "/v2/models/mlp/ready") == (200, {"name": "mlp", "ready": True})
    assert served.ask("GET", "/ping")[0] == 200
    status, said = served.json("GET", "/v2")
    assert (status, said["extensions"]) == (200, ["binary_tensor_data"])
    for path in ("/v2/models/mlp", "/v2/models/mlp/versions/1.2"):
        status, said = served.json("GET", path)
        assert said == {
            "name": "mlp",
            "versions": ["1.2"],
            "platform": "onnxruntime",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        }


@pytest.mark.parametrize("path", [INFER, "/v2/models/mlp/versions/1.2/infer", "/invocations"])
def test_golden_inputs_give_golden_outputs(served: Server, path: str) -> None:
    for inputs, outputs in handmade.mlp_cases():
        status, said = served.json("POST", path, {"id": "7", "inputs": [tensor(inputs["x"])]})
        assert (status, said["id"], said["model_name"]) == (200, "7", "mlp")
        (y,) = said["outputs"]
        assert (y["name"], y["datatype"], y["shape"]) == ("y", "FP32", [2, 3])
        found = np.array(y["data"], np.float32).reshape(2, 3)
        np.testing.assert_allclose(found, outputs["y"], rtol=1e-4, atol=1e-4)


def test_nested_data_and_another_batch(served: Server) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    status, said = served.json("POST", INFER, {"inputs": [tensor(x, data=x.tolist())]})
    assert (status, said["outputs"][0]["shape"]) == (200, [5, 3])
    np.testing.assert_allclose(said["outputs"][0]["data"], handmade.mlp(x).ravel(), rtol=1e-5)


def test_binary_tensors_both_ways(served: Server) -> None:
    entry = tensor(X, data=None, parameters={"binary_data_size": X.nbytes})
    asked = {"inputs": [entry], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    text = json.dumps(asked).encode()
    length = {"Inference_Header_Content_Length": str(len(text))}
    status, headers, body = served.ask("POST", INFER, text + X.tobytes(), **length)
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    said, data = (
        json.loads(body[: (n := int(headers["Inference-Header-Content-Length"]))]),
        body[n:],
    )
    assert said["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}}
    ]
    found = np.frombuffer(data, np.float32).reshape(2, 3)
    np.testing.assert_allclose(found, handmade.mlp(X), rtol=1e-5)


def test_one_connection_takes_many_requests(served: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    for _ in range(3):
        connection.request("POST", INFER, json.dumps({"inputs": [tensor(X)]}))
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        assert connection.sock is not None
    connection.close()


def test_an_answer_is_not_held_back(served: Server) -> None:
    """Headers and body are two packets: Nagle's algorithm made of every answer 40 ms."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    taken = []
    for _ in range(25):
        start = time.perf_counter()
        connection.request("POST", INFER, json.dumps({"inputs": [tensor(X)]}))
        connection.getresponse().read()
        taken.append(time.perf_counter() - start)
    connection.close()
    assert min(taken[1:]) < 0.03


def test_requests_at_once_are_not_mixed_up(served: Server) -> None:
    generator = np.random.default_rng(5)
    inputs = [generator.standard_normal((3, 4)).astype(np.float32) for _ in range(60)]

    def ask(x: Any) -> Any:
        status, said = served.json("POST", INFER, {"inputs": [tensor(x)]})
        assert status == 200
        return said["outputs"][0]["data"]

    with ThreadPoolExecutor(12) as pool:
        for x, found in zip(inputs, pool.map(ask, inputs), strict=True):
            np.testing.assert_allclose(found, handmade.mlp(x).ravel(), rtol=1e-4, atol=1e-5)


# ---- what is refused ----------------------------------------------------------------------------

ZEROS = np.zeros((2, 4), np.float32)
HEAD = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ['
HOSTILE: dict[str, Any] = {
    "no JSON": b"{",
    "no UTF-8": b"\xff\xfe{}",
    "nested too deep": b"[" * 19_000,
    "a list": b"[]",
    "no inputs": b"{}",
    "inputs that are none": b'{"inputs": 3}',
    "an input that is none": b'{"inputs": [null]}',
    "NaN": HEAD + b"NaN, 0, 0, 0]}]}",
    "a huge number": HEAD + b"1e999, 0, 0, 0]}]}",
    "a long integer": HEAD + b"9" * 9000 + b", 0, 0, 0]}]}",
    "an unknown input": {"inputs": [tensor(ZEROS, name="z")]},
    "a missing input": {"inputs": []},
    "an input twice": {"inputs": [tensor(ZEROS), tensor(ZEROS)]},
    "another dtype": {"inputs": [tensor(ZEROS, datatype="FP64")]},
    "no dtype": {"inputs": [tensor(ZEROS, datatype=None)]},
    "another rank": {"inputs": [tensor(ZEROS, shape=[8])]},
    "another size": {"inputs": [tensor(ZEROS, shape=[4, 2])]},
    "a negative size": {"inputs": [tensor(ZEROS, shape=[-2, 4])]},
    "no size": {"inputs": [tensor(ZEROS, shape=[0, 4], data=[])]},
    "a size that is no integer": {"inputs": [tensor(ZEROS, shape=[2.0, 4])]},
    "a size that is true": {"inputs": [tensor(ZEROS[:1], shape=[True, 4])]},
    "a size beyond all memory": {"inputs": [tensor(ZEROS, shape=[2**40, 4])]},
    "a size that does not fit": {"inputs": [tensor(ZEROS, shape=[3, 4])]},
    "too few elements": {"inputs": [tensor(ZEROS, data=[1.0])]},
    "no data": {"inputs": [tensor(ZEROS, data=None)]},
    "elements that are text": {"inputs": [tensor(ZEROS, data=["1"] * 8)]},
    "elements that are true": {"inputs": [tensor(ZEROS, data=[True] * 8)]},
    "elements that are null": {"inputs": [tensor(ZEROS, data=[None] * 8)]},
    "elements beyond FP32": {"inputs": [tensor(ZEROS, data=[1e39] * 8)]},
    "ragged nesting": {"inputs": [tensor(ZEROS, data=[[0] * 4, [0] * 3])]},
    "rows of other sizes": {"inputs": [tensor(ZEROS, data=[[0] * 3, [0] * 5])]},
    "a name twice": HEAD[:-1] + b'[0, 0, 0, 0], "shape": [1, 4]}]}',
    "UTF-16": json.dumps({"inputs": [tensor(ZEROS)]}).encode("utf-16"),
    "mixed nesting": {"inputs": [tensor(ZEROS, data=[[0] * 4, 0])]},
    "nesting beyond the shape": {"inputs": [tensor(ZEROS, data=[[[0]] * 4] * 2)]},
    "an unknown output": {"inputs": [tensor(ZEROS)], "outputs": [{"name": "z"}]},
    "an output twice": {"inputs": [tensor(ZEROS)], "outputs": [{"name": "y"}, {"name": "y"}]},
    "an id that is no text": {"id": 3, "inputs": [tensor(ZEROS)]},
    "parameters that are none": {"parameters": [], "inputs": [tensor(ZEROS)]},
    "binary data that are not there": {
        "inputs": [tensor(ZEROS, data=None, parameters={"binary_data_size": 32})]
    },
    "a binary size that is wrong": {
        "inputs": [tensor(ZEROS, data=None, parameters={"binary_data_size": 2**62})]
    },
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bodies_are_refused(served: Server, case: str) -> None:
    body = HOSTILE[case]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, headers, answer = served.ask("POST", INFER, data)
    assert (status, headers["Content-Type"]) == (400, "application/json")
    said = json.loads(answer)
    assert list(said) == ["error"]
    assert 0 < len(said["error"]) < 400
    assert "Traceback" not in said["error"]
    assert served.ready() == 200
    assert not [each for each in served.events if each["event"] == "error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/mlp/versions/2", 404),
        ("GET", "/v2/models/mlp/../mlp", 404),
        ("GET", "/v2/models/%2e%2e/ready", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("GET", INFER, 405),
        ("GET", "/invocations", 405),
        ("POST", "/v2", 405),
        ("DELETE", "/v2/models/mlp", 405),
    ],
)
def test_other_routes_and_methods(served: Server, method: str, path: str, status: int) -> None:
    found, said = served.json(method, path, {"x": 1} if method == "POST" else None)
    assert (found, list(said)) == (status, ["error"])


def raw(port: int, data: bytes) -> bytes:
    """What comes back for these bytes until the server closes or waits for more."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except TimeoutError:
            pass
        return answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("", 411),
        ("Transfer-Encoding: chunked\r\n", 411),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 411),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", 411),
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: 0x10\r\n", 400),
        ("Content-Length: 20001\r\n", 413),
        ("Content-Length: 99999999999999999999999\r\n", 400),
        ("Content-Length: 20001\r\nExpect: 100-continue\r\n", 413),
        ("Content-Length: 5\r\nContent-Encoding: gzip\r\n", 415),
        ("Content-Length: 5\r\nInference-Header-Content-Length: 6\r\n\r\n{    ", 400),
    ],
)  # fmt: skip
def test_bodies_are_bounded_before_they_are_read(served: Server, headers: str, status: int) -> None:
    end = "" if "\r\n\r\n" in headers else "\r\n"
    answer = raw(served.port, f"POST {INFER} HTTP/1.1\r\nHost: x\r\n{headers}{end}".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert list(json.loads(answer.partition(b"\r\n\r\n")[2])) == ["error"]
    assert b"Connection: close" in answer


def test_a_refusal_of_a_large_body_reaches_the_client(served: Server) -> None:
    status, _, answer = served.ask("POST", INFER, b"x" * 3_000_000)
    assert status == 413
    assert b"20000 is the most" in answer


ALIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 0\r\nContent-Length: 50\r\n",
        b"Content-Length: 50\r\n",
        b"no header\r\nContent-Length: 50\r\n",
        b"X : y\r\nContent-Length: 50\r\n",
    ],
)
def test_no_request_is_smuggled_behind_another(served: Server, headers: bytes) -> None:
    """What a proxy takes for a body is never taken for the next request."""
    answer = raw(served.port, ALIVE + headers + b"\r\n" + ALIVE + b"\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer


def test_a_target_that_is_no_address(served: Server) -> None:
    answer = raw(served.port, b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")


def test_garbage_gets_an_error_in_the_same_form(served: Server) -> None:
    answer = raw(served.port, b"\x16\x03\x01\x02\x00 \r\n\r\n")
    assert b"400" in answer.split(b"\r\n")[0] or b'"error"' in answer
    assert served.ready() == 200


# ---- the proof ----------------------------------------------------------------------------------


def spoil(folder: Path) -> None:
    """Another golden output, in a bundle that is whole otherwise."""
    path = folder / "samples" / "001.output.0.bin"
    values = np.frombuffer(path.read_bytes(), np.float32).copy()
    values[2] += 0.01
    path.write_bytes(values.tobytes())
    handmade.seal(folder, {})


def test_a_bundle_that_computes_something_else_never_gets_ready(tmp_path: Path) -> None:
    folder = handmade.bundle(tmp_path / "bundle")
    spoil(folder)
    with running(container(folder)) as server:
        why = server.wait_for("failed")["why"]
        assert why.startswith("sample 1, output y: differs by up to 1.00e-02, more than max_abs")
        assert server.json("GET", "/v2/health/live")[0] == 200
        for path in ("/v2/health/ready", "/ping", "/v2/models/mlp", "/v2/models/mlp/ready"):
            assert server.json("GET", path) == (503, {"error": f"not proven: {why}"})
        assert server.json("POST", INFER, {"inputs": [tensor(X)]})[0] == 503
        time.sleep(0.3)
        assert server.ready() == 503


def test_the_job_proves_by_its_exit_code(tmp_path: Path) -> None:
    good = check(container(handmade.bundle(tmp_path / "good" / "bundle")))
    assert good.returncode == 0
    assert json.loads(good.stderr)["samples"] == 2
    folder = handmade.bundle(tmp_path / "bad" / "bundle")
    spoil(folder)
    bad = check(container(folder))
    assert bad.returncode == 1
    assert "sample 1, output y: differs" in json.loads(bad.stderr)["why"]


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    folder = container(handmade.bundle(tmp_path / "bundle"))
    models.save(models.mlp(scale=1.01), folder / "bundle" / "model.onnx")
    done = check(folder)
    assert done.returncode == 2
    assert json.loads(done.stderr)["why"] == "model.onnx is not the file that the manifest lists"


def test_a_provider_that_is_not_there_is_no_proof(tmp_path: Path) -> None:
    provider = {"provider": "CUDAExecutionProvider"}
    folder = container(handmade.bundle(tmp_path / "bundle", **provider))
    done = check(folder)
    assert done.returncode == 1
    assert "the runtime has no CUDAExecutionProvider" in json.loads(done.stderr)["why"]


def test_an_openvino_bundle_is_served_too(tmp_path: Path) -> None:
    import openvino

    folder, cache = tmp_path / "bundle", tmp_path / "cache"
    cache.mkdir()
    folder.mkdir()
    models.save(models.mlp(), tmp_path / "m.onnx")
    openvino.save_model(openvino.Core().read_model(tmp_path / "m.onnx"), folder / "model.xml",
                        compress_to_fp16=False)  # fmt: skip
    place = container(handmade.bundle(folder, artifact="model.xml", provider="openvino:CPU"))
    with running(place, EDGE_CACHE=str(cache), EDGE_CONCURRENCY="3") as server:
        server.wait_for("proven")
        assert server.json("GET", "/v2/models/mlp")[1]["platform"] == "openvino"
        inputs = [np.full((2, 4), float(n), np.float32) for n in range(12)]
        with ThreadPoolExecutor(6) as pool:
            found = list(
                pool.map(lambda x: server.json("POST", INFER, {"inputs": [tensor(x)]}), inputs)
            )
        for x, (status, said) in zip(inputs, found, strict=True):
            assert status == 200
            np.testing.assert_allclose(
                said["outputs"][0]["data"], handmade.mlp(x).ravel(), rtol=1e-4
            )
    assert list(cache.iterdir())


# ---- connections and the end --------------------------------------------------------------------


def test_connections_beyond_the_limit_are_turned_away(tmp_path: Path) -> None:
    """But probes are answered: else a crowd would have the pod killed."""
    folder = container(handmade.bundle(tmp_path / "bundle"))
    with running(folder, EDGE_CONNECTIONS="2") as server:
        server.wait_for("proven")
        opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        time.sleep(0.3)
        too_many = {"error": "too many connections"}
        for path in ("/v2/health/live", "/v2/health/ready"):
            status, headers, _ = server.ask("GET", path)
            assert (status, headers["Connection"]) == (200, "close")
        assert server.json("POST", INFER, {"inputs": [tensor(X)]}) == (503, too_many)
        opened += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        time.sleep(0.3)
        answer = raw(server.port, b"")
        assert answer.startswith(b"HTTP/1.1 503 ")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert json.loads(body) == too_many
        assert f"Content-Length: {len(body)}".encode() in head
        for each in opened:
            each.close()
        until = time.monotonic() + 10
        while server_status(server) != 200 and time.monotonic() < until:
            time.sleep(0.1)
        status, _ = server.json("POST", INFER, {"inputs": [tensor(X)]})
        assert status == 200, "a place was not given back"


def test_a_head_that_comes_in_drops_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drop is in time, all of them are not: a connection is no place to sit in."""
    image = handmade.image_module(monkeypatch, "http_server")
    monkeypatch.setattr(image, "HEAD_SECONDS", 0.5)
    under_way = []

    class Application:
        draining = False

        @contextmanager
        def under_way(self) -> Iterator[None]:
            under_way.append(True)
            yield

    handler = type("Bound", (image.Handler,), {"service": Application()})
    server = image.Server(0, 1, handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as slow:
            slow.settimeout(0.1)
            answer = None
            while answer is None and time.monotonic() < start + 5:
                with suppress(OSError):
                    slow.sendall(b"G")
                with suppress(TimeoutError):
                    answer = slow.recv(100)
        assert answer == b""
        assert time.monotonic() < start + 3
        assert under_way, "a request is under way from its first byte on"
    finally:
        server.shutdown()
        server.server_close()


def test_a_run_that_hangs_ends_the_servers_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread cannot be ended: probes fail, so that the pod is started again."""
    image = handmade.image_module(monkeypatch, "serve")
    served = handmade.image_module(monkeypatch, "served_model")
    monkeypatch.setattr(image, "log", lambda *_, **__: None)
    folder = container(handmade.bundle(tmp_path / "bundle")) / "bundle"
    service = image.Service(image.Environment(folder, "", run_seconds=0.05))
    end = threading.Event()
    model = served.Model.__new__(served.Model)
    model.inputs = [served.Port("x", "float32", (2, 4))]
    model.outputs = [served.Port("y", "float32", (2, 3))]
    model.pool, model._run = ThreadPoolExecutor(1), lambda _feeds: end.wait(30)
    service.model = model
    body = json.dumps({"inputs": [tensor(X)]}).encode()
    try:
        assert service.health() == {"live": True, "ready": True}
        for _ in range(2):  # nor does the next one wait for it
            start = time.monotonic()
            with pytest.raises(image.Refused) as caught:
                service.infer(bytearray(body), len(body))
            assert caught.value.status == 503
            assert time.monotonic() - start < 5
        for probe in (service.live, service.health):
            with pytest.raises(image.Refused, match="did not end in time"):
                probe()
    finally:
        end.set()
        model.pool.shutdown()


def server_status(server: Server) -> int:
    """Readiness, 0 while connections are cut."""
    try:
        return server.ready()
    except (OSError, http.client.HTTPException):
        return 0


def test_sigterm_finishes_what_is_under_way(tmp_path: Path) -> None:
    folder = container(handmade.bundle(tmp_path / "bundle"))
    with running(folder, EDGE_LAG_SECONDS="1") as server:
        server.wait_for("proven")
        body = json.dumps({"inputs": [tensor(X)]}).encode()
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow:
            slow.sendall(head + body[:10])
            time.sleep(0.2)
            server.child.send_signal(signal.SIGTERM)
            server.wait_for("draining")
            assert server.json("GET", "/v2/health/ready") == (
                503,
                {"error": "the server is going down"},
            )
            assert server.json("GET", "/v2/health/live")[0] == 200
            assert server.json("POST", INFER, {"inputs": [tensor(X)]})[0] == 200, "still welcome"
            time.sleep(1.3)  # the lag is over: nobody is let in any more
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))
            slow.sendall(body[10:])
            answer = slow.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"Connection: close" in answer
        assert server.child.wait(timeout=10) == 0
        assert server.wait_for("end") == {"event": "end", "whole": True}


def test_sigterm_waits_for_a_request_whose_head_is_under_way(tmp_path: Path) -> None:
    folder = container(handmade.bundle(tmp_path / "bundle"))
    with running(folder) as server:
        server.wait_for("proven")
        body = json.dumps({"inputs": [tensor(X)]}).encode()
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow:
            slow.sendall(head[:20])
            time.sleep(0.2)
            server.child.send_signal(signal.SIGTERM)
            server.wait_for("draining")
            time.sleep(0.5)
            slow.sendall(head[20:] + body)
            assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert server.child.wait(timeout=10) == 0


def test_wrong_usage_ends_at_once(tmp_path: Path) -> None:
    folder = container(handmade.bundle(tmp_path / "bundle"))
    words = [sys.executable, str(folder / "serve.py"), "bash"]
    done = process.run(words, env=environment(folder / "bundle"), timeout=30, check=False)
    assert (done.returncode, json.loads(done.stderr)["event"]) == (2, "failed")
    done = check(folder, EDGE_THREADS="many")
    assert done.returncode == 2
    assert json.loads(done.stderr)["why"] == "EDGE_THREADS=many is no whole number"


# ---- a bundle that edge has built ---------------------------------------------------------------


def project(root: Path) -> None:
    """A project of the small model."""
    models.save(models.mlp(), root / "mlp.onnx")
    text = '[model]\nname = "mlp"\nversion = "1.2"\nsource = "mlp.onnx"\ndims = {batch = 2}\n'
    (root / "edge.toml").write_text(text)


def build(factory: pytest.TempPathFactory) -> built.Built:
    """Its bundle for linux-x64; what uses it only copies the folder."""
    return built.once(factory, "container", project, "-t", "linux-x64")


def test_a_built_bundle_becomes_a_container_that_serves(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root, store, done = build(tmp_path_factory)
    assert done.code == 0, done.err
    refused = command(root, store)
    assert refused.code == 2
    assert "edge bench linux-x64 -d local --runner python" in refused.err
    unknown = command(root, store, "-d", "loca")
    assert unknown.code == 2
    assert "unknown device 'loca'" in unknown.err
    assert "did you mean 'local'" in unknown.err
    measured = edge(root, store, "bench", "linux-x64", "--quick", "--runner", "python", "--json")
    assert measured.code in (0, 5), measured.err  # 5: inconclusive, on a busy machine
    (record,) = measured.json
    made = command(root, store, "--registry", "registry.example.com/team")
    assert made.code == 0, made.err
    (said,) = made.json
    folder = Path(said["folder"])
    assert folder.name == "linux-x64.container"
    assert said["memory_source"].startswith("measured peak ")
    assert record["id"] in said["memory_source"]
    assert said["memory_mib"] * 2**20 > record["peak_bytes"]
    with running(folder) as server:
        assert server.wait_for("proven")["samples"] == 3
        x = np.ones((2, 4), np.float32)
        status, answer = server.json("POST", INFER, {"inputs": [tensor(x)]})
        assert status == 200
        np.testing.assert_allclose(answer["outputs"][0]["data"], handmade.mlp(x).ravel(), rtol=1e-4)
        peak = [line for line in Path(f"/proc/{server.child.pid}/status").read_text().splitlines()
                if line.startswith("VmHWM")]  # fmt: skip
        assert int(peak[0].split()[1]) * 1024 < said["memory_mib"] * 2**20, (
            "the limit would kill it"
        )
    assert read_manifest(folder / "bundle") == json.loads(
        (folder / "bundle" / MANIFEST).read_text()
    )


def command(root: Path, store: Store, *words: str) -> Outcome:
    """``edge container`` of the project."""
    return edge(root, store, "container", "linux-x64", "--json", *words)
