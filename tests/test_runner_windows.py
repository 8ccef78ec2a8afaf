"""The C runner for Windows under Wine: with stand-ins, and with the real onnxruntime.dll.

Wine is no Windows: that the program loads, finds its files and computes the right values there
says that it calls Windows as documented, not that it was run on it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess  # noqa: TID251 - a process that is ended with the tests
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge import bench, bundle, parity, placement, process, protocol
from edge.config import read_target
from edge.convert.compile_runner import compile_runner
from edge.store import Store
from edge.tools import zig
from edge.tools.fetch import fetch
from tests import built, models
from tests.support import need

pytestmark = [pytest.mark.process, pytest.mark.wine]
ROOT = process.PACKAGE_PARENT
TRIPLE = "x86_64-windows-gnu"
SHORT = (
    "--iterations", "5", "--min-ns", "0",
    "--warmup", "1", "--warmup-ns", "0", "--warmup-limit-ns", "0",
)  # fmt: skip
LINE = "0\tinput\t0\tfloat32\t1x8\t000.input.0.bin\tx\n"
ODD = "bündle 𝄞 'q'"
Event = dict[str, Any]


@dataclass(frozen=True)
class Wine:
    """Programs for Windows, run with a Windows of their own in ``prefix``."""

    program: Path
    prefix: Path

    @property
    def environment(self) -> dict[str, str]:
        """Without a display, and without the browser and .NET that Wine would offer to fetch."""
        here = {key: value for key, value in os.environ.items() if key != "DISPLAY"}
        own = {"WINEPREFIX": str(self.prefix), "WINEDEBUG": "-all"}
        return here | own | {"WINEDLLOVERRIDES": "mscoree,mshtml="}

    def run(self, *words: str | Path) -> process.Completed:
        return process.run([self.program, *words], timeout=120, env=self.environment, check=False)

    def events(self, exe: Path, *words: str | Path) -> tuple[list[Event], process.Completed]:
        done = self.run(exe, *words)
        assert done.stdout.endswith("}\n"), done
        assert done.stdout.isascii()
        assert "\r" not in done.stdout
        return [json.loads(line) for line in done.stdout.splitlines()], done

    def bad(self, exe: Path, *words: str | Path) -> tuple[str, str]:
        """Stage and message of a run that fails."""
        events, done = self.events(exe, *words)
        assert done.returncode == 1
        return events[-1]["stage"], events[-1]["message"]


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wine]:
    """A fresh Windows. One program stays in it: else each run would start and end its services."""
    made = Wine(need("wine"), tmp_path_factory.mktemp("wine") / "prefix")
    keeper = subprocess.Popen(
        [made.program, "cmd"],
        env=made.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield made
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(timeout=60)


@pytest.fixture(scope="module")
def exe(tmp_path_factory: pytest.TempPathFactory, ort_header: Path) -> Path:
    """The runner for Windows."""
    out = tmp_path_factory.mktemp("windows-runner")
    source = ROOT / "templates" / "runner" / "edge_runner.c"
    compile_runner.function(out, source=source, header=ort_header, triple=TRIPLE)
    return out / "edge_runner.exe"


@pytest.fixture(scope="module")
def fake_dll(tmp_path_factory: pytest.TempPathFactory, ort_header: Path) -> Path:
    """A stand-in for onnxruntime.dll."""
    place = tmp_path_factory.mktemp("fake-dll")
    shutil.copy(ort_header, place / "onnxruntime_c_api.h")
    shutil.copy(ROOT / "tests" / "fakes" / "onnxruntime_dll.c", place)
    words = [*zig.find().argv, "cc", "-target", TRIPLE, "-shared", "-I.", "-Oz", "-s"]
    process.run([*words, "onnxruntime_dll.c", "-o", "onnxruntime.dll"], timeout=600, cwd=place)
    return place / "onnxruntime.dll"


@pytest.fixture
def small(tmp_path: Path, fake_dll: Path) -> Path:
    """A bundle that holds what the runner reads before it asks the stand-in."""
    folder = tmp_path / ODD
    for name in ("samples", "runtime", "runner"):
        (folder / name).mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"")
    (folder / "samples" / "samples.tsv").write_text(LINE)
    (folder / "samples" / "000.input.0.bin").write_bytes(bytes(32))
    shutil.copy(fake_dll, folder / "runtime")
    return folder


# ------------------------------------------------------------------------------ with stand-ins
def test_the_version_is_one_line(wine: Wine, exe: Path) -> None:
    events, done = wine.events(exe, "--version")
    assert events == [{"event": "version", "protocol": 1, "runner": "c"}]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bogus"], "unknown option --bogus"),
        (["*"], "unknown option *"),  # MinGW's start-up code would put file names for it
        (["--è𝄞"], "unknown option --è𝄞"),
        (["--threads", "0"], "--threads: 0 is no number from 1 to 1024"),
        (["--max-ns", "-1"], "-1 is no number from 0 to 1000000000000000000"),
        (["--bundle", ".", "--cache", "nowhere"], "--cache nowhere is no folder"),
        ([], "--bundle is missing"),
    ],
)
def test_wrong_arguments(wine: Wine, exe: Path, words: list[str], message: str) -> None:
    stage, found = wine.bad(exe, *words)
    assert (stage, message in found) == ("arguments", True), found


def test_a_folder_of_any_name_is_read(wine: Wine, exe: Path, small: Path) -> None:
    events, _ = wine.events(exe, "--bundle", small)
    assert events[0]["event"] == "env"
    assert (events[0]["os"], events[0]["version"]) == ("windows", "1.12.0")
    assert events[-1]["stage"] == "load"
    assert "session model.onnx" in events[-1]["message"]


def test_directml_is_asked_for_as_its_documentation_wants(
    wine: Wine, exe: Path, small: Path
) -> None:
    options = "provider.device_id\t1\nsession.session.dynamic_block_base\t4\n"
    (small / "runner" / "options.tsv").write_text(options)
    stage, message = wine.bad(exe, "--bundle", small, "--provider", "DmlExecutionProvider")
    assert stage == "load"
    assert message.split("; ")[:-1] == [
        "mode sequential", "session.dynamic_block_base 4", "session.disable_cpu_ep_fallback 1",
        "no memory pattern ", "append DML", "device_id 1", "session model.onnx",
    ]  # fmt: skip


def test_fewer_nodes_than_all_do_not_forbid_the_cpu(wine: Wine, exe: Path, small: Path) -> None:
    (small / "runner" / "options.tsv").write_text("runner.least_nodes\t0.9\n")
    _, message = wine.bad(exe, "--bundle", small, "--provider", "DmlExecutionProvider")
    assert "append DML" in message
    assert "disable_cpu_ep_fallback" not in message


def test_a_provider_that_is_not_there(wine: Wine, exe: Path, small: Path) -> None:
    found = wine.bad(exe, "--bundle", small, "--provider", "CUDAExecutionProvider")
    assert found[0] == "runtime"
    assert "no CUDAExecutionProvider, it has: DmlExecutionProvider CPU" in found[1]


# Path and content of a file, stage and words of the error.
BROKEN = {
    "two artifacts": ("model.ort", b"", "bundle", "model.onnx and model.ort, not one artifact"),
    "a way out": (
        "samples/samples.tsv", LINE.replace("000.input.0.bin", "..\\model.onnx").encode(),
        "bundle", ":1: a bad file name",
    ),
    "a drive": (
        "samples/samples.tsv", LINE.replace("000.input.0.bin", "C:x").encode(),
        "bundle", ":1: a bad file name",
    ),
    "no samples": ("samples/samples.tsv", b"", "bundle", "lists no samples"),
    "huge": ("samples/samples.tsv", bytes(9 << 20), "bundle", "no file of a sane size"),
    "option": ("runner/options.tsv", b"runner.speed\t9\n", "bundle", "unknown option runner.speed"),
    "no DLL": ("runtime/onnxruntime.dll", b"none", "runtime", "cannot open the runtime"),
    "two DLLs": ("runtime/onnxruntime.dll.2", b"", "runtime", "more than one onnxruntime.dll*"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_bundles(wine: Wine, exe: Path, small: Path, case: str) -> None:
    path, content, stage, message = BROKEN[case]
    (small / path).write_bytes(content)
    found = wine.bad(exe, "--bundle", small)
    assert (found[0], message in found[1]) == (stage, True), found


# ------------------------------------------------------------- with the real onnxruntime.dll
def build(factory: pytest.TempPathFactory) -> built.Built:
    """A project of a small model with its bundle, built by the command line."""

    def prepare(root: Path) -> None:
        models.save(models.conv_bn(), root / "m.onnx")
        (root / "edge.toml").write_text('[model]\nname = "m"\nsource = "m.onnx"\n')

    return built.once(factory, "windows", prepare, "-t", "win-x64")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That bundle."""
    root, _, outcome = build(tmp_path_factory)
    assert outcome.code == 0, outcome.err
    return root / "dist" / "m" / "0" / "win-x64"


def test_the_bundle_is_right_under_wine(wine: Wine, real: Path, tmp_path: Path) -> None:
    folder, output = tmp_path / ODD, tmp_path / "out é"
    shutil.copytree(real, folder)
    output.mkdir()
    bundle.verify(folder)
    words = ("--bundle", folder, "--output", output, "--threads", "2", *SHORT)
    done = wine.run(folder / "runner" / "edge_runner.exe", *words)
    run = protocol.parse(done.stdout)
    assert done.returncode == 0
    assert (run.env.os, run.env.arch, run.env.version) == ("windows", "x86_64", "1.32.0")
    assert len(run.samples_ns) == run.end.runs == 5
    assert 0 < sum(run.samples_ns) <= run.end.wall_ns
    assert min(run.memory.peak_bytes, run.memory.load_peak_bytes) > 20_000_000
    assert run.end.involuntary_switches == -1
    produced = {(o.sample, o.index): (o, output / str(o.file)) for o in run.outputs}
    limits = parity.Tolerance(max_abs=1e-4, max_rel=1e-3)
    compared = bench.compare_folders(folder / "samples", produced, limits)
    assert compared.failures == ()
    assert len(compared.outputs) == 3


def test_a_profile_says_which_provider_ran_the_nodes(
    wine: Wine, real: Path, tmp_path: Path
) -> None:
    words = ("--bundle", real, "--check-only", "--profile", tmp_path / "prófile")
    events, _ = wine.events(real / "runner" / "edge_runner.exe", *words)
    (event,) = [event for event in events if event["event"] == "profile"]
    (profile,) = tmp_path.glob("prófile*.json")
    assert event["file"].replace("\\", "/").endswith(profile.name)
    assert set(placement.read(profile.read_bytes())) == {"CPUExecutionProvider"}


def test_a_damaged_sample_is_said(wine: Wine, real: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(real, folder)
    sample = folder / "samples" / "000.input.0.bin"
    size = sample.stat().st_size
    sample.write_bytes(bytes(size - 1))
    stage, message = wine.bad(folder / "runner" / "edge_runner.exe", "--bundle", folder)
    assert stage == "bundle"
    assert f"holds {size - 1} bytes, its line says {size}" in message


def test_without_a_gpu_directml_does_not_fall_back(
    wine: Wine, real: Path, tmp_path: Path, download_store: Store
) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(real, folder)
    target = read_target(ROOT / "targets" / "win-x64-directml.toml", {}, "")
    for pin in target.runtime.files:
        shutil.copyfile(fetch(download_store, pin).path, folder / pin.path)
    exe = folder / "runner" / "edge_runner.exe"
    events, _ = wine.events(exe, "--bundle", folder, "--check-only")
    assert events[0]["version"] == target.runtime.version
    assert events[-1]["event"] == "end"  # on the CPU, when that is what is asked for
    stage, message = wine.bad(exe, "--bundle", folder, "--provider", target.provider)
    assert stage == "load"
    assert "dml_provider_factory" in message
