"""The arm64 bundle, run here: its own runner and library under qemu, on the golden samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import bench, bundle, parity, process, protocol
from edge.store import Store
from edge.tools import emulator
from tests import models
from tests.command import edge
from tests.support import need

pytestmark = pytest.mark.qemu
PLATFORM = "linux-arm64"


@pytest.fixture
def before(tmp_path: Path) -> list[str]:
    """What is put before an arm64 program here."""
    if not emulator.name(PLATFORM):
        need("qemu-aarch64-static")
        need("libstdc++.so.6 for arm64")
    return emulator.words(PLATFORM, tmp_path / "root")


def start_arm64(before: list[str], folder: Path, *more: str) -> str:
    """What the bundle's runner prints, which checks the golden samples alone."""
    words = [*before, str(folder / "runner" / "edge_runner"), "--bundle", str(folder), *more]
    return process.run([*words, "--check-only"], timeout=300).stdout


def run_arm64(before: list[str], folder: Path, output: Path) -> protocol.Run:
    output.mkdir()
    return protocol.parse(start_arm64(before, folder, "--output", str(output)))


def test_a_small_model_is_right_on_arm64(tmp_path: Path, before: list[str], store: Store) -> None:
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    done = edge(tmp_path, store, "build", "-t", "linux-arm64", "-m", "m.onnx")
    assert done.code == 0, done.err
    check(tmp_path / "dist" / "m" / "0" / "linux-arm64", before, tmp_path / "out")


@pytest.mark.models
def test_magika_is_right_on_arm64(tmp_path: Path, before: list[str], store: Store) -> None:
    root = process.PACKAGE_PARENT
    (tmp_path / "edge.toml").write_text((root / "edge.toml").read_text())
    done = edge(tmp_path, store, "build", "-t", "linux-arm64")
    assert done.code == 0, done.err
    check(tmp_path / "dist" / "magika" / "3.3" / "linux-arm64", before, tmp_path / "out")


def test_openvino_is_right_on_arm64(tmp_path: Path, before: list[str], store: Store) -> None:
    """With the wheel's own libraries: OpenVINO's kernels for ARM are others than those for x86."""
    models.save(models.conv_bn(), tmp_path / "m.onnx")
    done = edge(tmp_path, store, "build", "-t", "openvino-arm64", "-m", "m.onnx")
    assert done.code == 0, done.err
    folder = tmp_path / "dist" / "m" / "0" / "openvino-arm64"
    check(folder, before, tmp_path / "out", "2026.4.1")
    (tmp_path / "cache").mkdir()
    for cached in ("false", "true"):
        said = start_arm64(before, folder, "--cache", str(tmp_path / "cache"))
        assert f'"cached":{cached}' in said


def check(folder: Path, before: list[str], output: Path, release: str = "1.32.0") -> None:
    bundle.verify(folder)
    run = run_arm64(before, folder, output)
    assert (run.env.arch, run.env.version) == ("aarch64", release)
    produced = {(o.sample, o.index): (o, output / str(o.file)) for o in run.outputs}
    limits = parity.Tolerance(max_abs=1e-4, max_rel=1e-3)
    compared = bench.compare_folders(folder / "samples", produced, limits)
    assert compared.failures == ()
    assert compared.outputs
