"""The arm64 bundle, run here: its own runner and library under qemu, on the golden samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import bench, bundle, parity, process, protocol
from edge.store import Store
from tests import models
from tests.command import edge
from tests.support import need

pytestmark = pytest.mark.qemu
TRIPLE = Path("/usr/aarch64-linux-gnu/lib")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """What the arm64 program sees as its root: the C library, and a /sys that says nothing.

    With the host's x86 /sys, the runtime's CPU detection dies under qemu 7.2; empty lists of
    processors make it carry on without.
    """
    need("qemu-aarch64-static")
    if not (TRIPLE / "libstdc++.so.6").exists():
        need("libstdc++.so.6 for arm64")
    folder = tmp_path / "prefix"
    cpus = folder / "sys" / "devices" / "system" / "cpu"
    cpus.mkdir(parents=True)
    (cpus / "possible").touch()
    (cpus / "present").touch()
    (folder / "lib").symlink_to(TRIPLE)
    return folder


def run_arm64(prefix: Path, folder: Path, output: Path) -> protocol.Run:
    output.mkdir()
    words = ["qemu-aarch64-static", "-cpu", "cortex-a72", "-L", str(prefix)]
    words += [str(folder / "runner" / "edge_runner"), "--bundle", str(folder)]
    words += ["--output", str(output), "--check-only"]
    return protocol.parse(process.run(words, timeout=300).stdout)


def test_a_small_model_is_right_on_arm64(tmp_path: Path, prefix: Path, store: Store) -> None:
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    done = edge(tmp_path, store, "build", "-t", "linux-arm64", "-m", "m.onnx")
    assert done.code == 0, done.err
    check(tmp_path / "dist" / "m" / "0" / "linux-arm64", prefix, tmp_path / "out")


@pytest.mark.models
def test_magika_is_right_on_arm64(tmp_path: Path, prefix: Path, store: Store) -> None:
    root = process.PACKAGE_PARENT
    (tmp_path / "edge.toml").write_text((root / "edge.toml").read_text())
    done = edge(tmp_path, store, "build", "-t", "linux-arm64")
    assert done.code == 0, done.err
    check(tmp_path / "dist" / "magika" / "3.3" / "linux-arm64", prefix, tmp_path / "out")


def check(folder: Path, prefix: Path, output: Path) -> None:
    bundle.verify(folder)
    run = run_arm64(prefix, folder, output)
    assert (run.env.arch, run.env.version) == ("aarch64", "1.32.0")
    produced = {(o.sample, o.index): (o, output / str(o.file)) for o in run.outputs}
    limits = parity.Tolerance(max_abs=1e-4, max_rel=1e-3)
    compared = bench.compare_folders(folder / "samples", produced, limits)
    assert compared.failures == ()
    assert compared.outputs
