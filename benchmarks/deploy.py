"""What bringing a bundle to a device costs, against what a user would run instead.

Over a real sshd on loopback: Magika's linux-x64 bundle to an empty device, again with nothing
changed, and with only the model changed (all weights), against ``scp -r`` of the bundle's folder
and, where it is installed, ``rsync -a --checksum``. ``edge deploy`` is the whole process;
``field.install`` is the same in this process, connecting included: probe, send, check, health run
on the golden samples, switch; ``deploy.deploy`` is that without probe and with a health check that
does nothing. Neither scp nor rsync proves, syncs or switches anything. Everything takes turns in
one run; the ratios, pair by pair, are what counts. One round more is run first and not counted.
The account's shell reads no start-up file: a slow one is paid with every command, by all ways.

    python benchmarks/deploy.py [RUNS]
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from edge import bench, deploy, field, log, process
from edge.bundle import MANIFEST
from edge.devices import Device, open_device
from edge.sources.locate import locate
from tests.sshd import Sshd, start

ROOT = process.PACKAGE_PARENT
NAME = "magika.linux-x64"
PHASES = ("empty device", "nothing changed", "model changed")


@dataclass(frozen=True)
class Way:
    """A way to bring a bundle over: ``send`` returns bytes sent, ``arrived`` is the manifest."""

    name: str
    folder: Path
    arrived: Path
    send: Callable[[Path], int]


@dataclass(frozen=True)
class Took:
    """Wall seconds, and bytes of content sent (for rsync: all that it sent)."""

    seconds: float
    sent: int


Round = dict[tuple[str, str], Took]  # by phase and way


def make_bundles(project: Path) -> tuple[Path, Path]:
    """The bundle, and the one of the same model with other weights."""
    import onnx
    from onnx import TensorProto, numpy_helper

    path = project / "model.onnx"
    source = locate("pkg:magika/models/standard_v3_3/model.onnx", project).path
    text = (ROOT / "edge.toml").read_text()
    (project / "edge.toml").write_text(re.sub(r'source = ".*"', 'source = "model.onnx"', text))
    model = onnx.load(source)
    path.write_bytes(source.read_bytes())
    old = _build(project, "old")
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor) * 1.001
            tensor.CopyFrom(numpy_helper.from_array(values.astype("float32"), tensor.name))
    onnx.save(model, path)
    return old, _build(project, "new")


def _build(project: Path, output: str) -> Path:
    words = [sys.executable, str(ROOT / "build.py"), "--target", "linux-x64", "--output", output]
    process.run(words, cwd=project, env={**os.environ, "CI": "1"}, timeout=600)
    return project / output / "magika" / "3.3" / "linux-x64"


def edge_ways(project: Path, server: Sshd) -> list[Way]:
    """The product: its command, and the two functions below it."""

    def command(bundle: Path) -> int:
        output = str(bundle.parents[2])
        words = [sys.executable, "-m", "edge", "deploy", "linux-x64", "--device", "lab", "--json"]
        done = process.run([*words, "--output", output], cwd=project, timeout=300)
        return int(json.loads(done.stdout)["deployed"][0]["sent_bytes"])

    def install(bundle: Path) -> int:
        with connected("field.install") as device:
            what = field.read(bundle)
            return field.install(device, what, bench.BenchOptions())[0].sent_bytes

    def unproven(bundle: Path) -> int:
        with connected("deploy.deploy") as device:
            return deploy.deploy(device, bundle, NAME, lambda _device, _folder: None).sent_bytes

    def connected(name: str) -> contextlib.AbstractContextManager[Device]:
        return open_device(server.settings(folder=str(server.folder / name)))

    write_devices(project, server, server.folder / "command")
    inner = Path("bundles", NAME, "current", MANIFEST)
    return [
        way("edge deploy", server.folder / "command", inner, command),
        way("field.install", server.folder / "field.install", inner, install),
        way("deploy.deploy", server.folder / "deploy.deploy", inner, unproven),
    ]


def write_devices(project: Path, server: Sshd, folder: Path) -> None:
    """``devices.toml`` with the server as ``lab``."""
    known = server.settings(folder=str(folder))
    names = ("kind", "host", "user", "identity_file", "known_hosts", "ssh_config", "folder")
    lines = [f"{name} = {json.dumps(str(getattr(known, name)))}" for name in names]
    text = "\n".join(["[devices.lab]", *lines, f"port = {known.port}"])
    (project / "devices.toml").write_text(text + "\n")


def copy_ways(server: Sshd) -> list[Way]:
    """What a user has without the product."""
    known = server.settings()
    options = [
        "-F",
        "none",
        "-i",
        str(server.key),
        "-o",
        f"UserKnownHostsFile={server.known_hosts}",
    ]
    for option in (f"Port={server.port}", "IdentitiesOnly=yes", "BatchMode=yes"):
        options += ["-o", option]
    rsync = process.which("rsync")

    def scp(bundle: Path) -> int:
        target = f"{known.user}@{known.host}:{server.folder / 'scp'}"
        (server.folder / "scp").mkdir(exist_ok=True)
        process.run(["scp", "-q", "-r", *options, str(bundle), target], timeout=300)
        return sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())

    def copy(bundle: Path) -> int:
        target = f"{known.user}@{known.host}:{server.folder / 'rsync'}/"
        words = [str(rsync), "-a", "--checksum", "--stats", f"--rsync-path={rsync}"]
        words += ["-e", " ".join(["ssh", *options]), f"{bundle}/", target]
        said = process.run(words, timeout=300).stdout
        found = re.search(r"Total bytes sent: ([\d,]+)", said)
        return int(found[1].replace(",", "")) if found else -1

    ways = [way("scp -r", server.folder / "scp", Path("linux-x64", MANIFEST), scp)]
    if rsync:
        ways.append(way("rsync -a --checksum", server.folder / "rsync", Path(MANIFEST), copy))
    return ways


def way(name: str, folder: Path, manifest: Path, send: Callable[[Path], int]) -> Way:
    """A way that brings bundles into ``folder``, with the manifest at ``manifest`` in it."""
    return Way(name, folder, folder / manifest, send)


def one_round(ways: Sequence[Way], old: Path, new: Path) -> Round:
    """All phases; within a phase the ways follow each other."""
    for way in ways:
        shutil.rmtree(way.folder, ignore_errors=True)
    return {
        (phase, way.name): measure(way, bundle)
        for phase, bundle in zip(PHASES, (old, old, new), strict=True)
        for way in ways
    }


def measure(way: Way, bundle: Path) -> Took:
    """One delivery, which must have arrived."""
    with contextlib.redirect_stderr(io.StringIO()):
        started = time.perf_counter()
        sent = way.send(bundle)
        seconds = time.perf_counter() - started
    if way.arrived.read_bytes() != (bundle / MANIFEST).read_bytes():
        raise SystemExit(f"{way.name} did not bring the bundle over")
    return Took(seconds, sent)


def show(ways: Sequence[Way], rounds: Sequence[Round]) -> None:
    """A table a phase: medians, and ratios pair by pair (median, least to most)."""
    others = [way.name for way in ways if way.name.startswith(("scp", "rsync"))]
    for phase in PHASES:
        heads = "".join(f"  / {other:<22}" for other in others)
        print(f"\n{phase:<22}{'seconds':>8}{'sent':>11}{heads}")
        for way in ways:
            took = [each[phase, way.name] for each in rounds]
            sent = log.human_bytes(round(median(one.sent for one in took)))
            text = f"{way.name:<22}{median(one.seconds for one in took):8.2f}{sent:>11}"
            for other in others:
                ratios = [
                    one.seconds / each[phase, other].seconds
                    for one, each in zip(took, rounds, strict=True)
                ]
                spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                text += f"    {'' if other == way.name else spread:<22}"
            print(text.rstrip())


def main() -> None:
    """Build two bundles, start a server, take turns, print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as place:
        project = Path(place, "project")
        project.mkdir()
        old, new = make_bundles(project)
        with start(Path(place, "sshd"), options=[f"SetEnv HOME={place}"]) as server:
            ways = [*edge_ways(project, server), *copy_ways(server)]
            rounds = []
            for number in range(runs + 1):
                turn = number % len(ways)
                rounds.append(one_round([*ways[turn:], *ways[:turn]], old, new))
    print(f"{runs} rounds; ratios: median (least to most)")
    show(ways, rounds[1:])


if __name__ == "__main__":
    main()
