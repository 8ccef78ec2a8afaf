"""From the command line to a record over a device that answers as Windows would.

One bundle is Linux', so that its runner runs natively, and says that it is Windows'.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import built, test_container_server, test_runner_windows
from tests.devices.windows_lab import windows_sshd
from tests.test_field import MEASURED, Lab, write_devices
from tests.test_runner_windows import Wine, wine

__all__ = ["wine"]

pytestmark = pytest.mark.ssh
BENCH = """
[bench]
iterations = 100
min_seconds = 0.1
repeats = 2
"""


@contextmanager
def _lab(tmp_path: Path, made: built.Built, *environment: str) -> Iterator[Lab]:
    """A copy of a project that other tests have built, too."""
    root, store, done = made
    assert done.code == 0, done.err
    project = tmp_path / "project"
    shutil.copytree(root, project)
    (project / "results.db").unlink(missing_ok=True)
    with (project / "edge.toml").open("a") as file:
        file.write(BENCH)
    with windows_sshd(tmp_path / "windows", environment=environment) as running:
        write_devices(project, running, os="windows")
        yield Lab(project, store, running)


@pytest.mark.wine
def test_the_real_bundle_for_windows(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, wine: Wine
) -> None:
    """Its runner and its onnxruntime.dll run under Wine, everything else is on the way."""
    own = {key: text for key, text in wine.environment.items() if key.startswith("WINE")}
    environment = [f"{key}={text}" for key, text in own.items()]
    environment.append(f"EDGE_TEST_WINE={wine.program}")
    made = test_runner_windows.build(tmp_path_factory)
    with _lab(tmp_path, made, *environment) as lab:
        done = lab.edge("bench", "win-x64", "-d", "lab", "--quick", "--json")
        assert done.code in MEASURED, done.err
        (record,) = done.json
        assert (record["target"], record["runner"]) == ("win-x64", "c")
        assert all(output["max_abs"] <= 1e-4 for output in record["outputs"])


@pytest.fixture
def lab(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with _lab(tmp_path, test_container_server.build(tmp_path_factory)) as made:
        yield made


def test_devices_bench_and_deploy(lab: Lab) -> None:
    listed = lab.edge("devices")
    assert "Windows 11 Pro 23H2 (build 22631.3447), amd64, 12 cores" in " ".join(listed.err.split())

    refused = lab.edge("bench", "linux-x64", "-d", "lab")
    assert (refused.code, "it runs Windows, not linux" in refused.err) == (3, True)
    manifest = lab.project / "dist" / "mlp" / "1.2" / "linux-x64" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"os": "linux"', '"os": "windows"'))
    measured = lab.edge("bench", "linux-x64", "-d", "lab", "--runner", "c", "--quick", "--json")
    assert measured.code in MEASURED, measured.err
    (record,) = measured.json
    assert (record["device"], record["runner"]) == ("lab", "c")
    assert (record["facts"]["os"], record["facts"]["kernel"]) == ("Windows", "10.0.22631.0")
    assert record["before"]["governors"] == ["balanced"]
    assert record["before"]["frequencies_khz"] == [1_800_000]
    assert record["summary"]["median_ns"] > 0
    assert all(output["max_abs"] <= 1e-4 for output in record["outputs"])

    (done,) = lab.edge("deploy", "linux-x64", "-d", "lab", "--json").json["deployed"]
    assert (done["sent_blobs"], done["previous"]) == (0, None)
    pointer = lab.device / "bundles" / "mlp.linux-x64" / "current"
    assert pointer.read_text() == f"releases/{Path(done['release_dir']).name}\n"
    assert not list(lab.device.rglob("*.check-*"))
