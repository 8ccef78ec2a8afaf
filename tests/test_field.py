"""Deploy, bench and report by the real command line, over a real sshd and on this machine."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge.choice_record import ChoiceRecord
from edge.store import Store
from tests import models
from tests.command import Outcome, edge
from tests.sshd import Sshd, start

PROJECT = """
[model]
name = "mlp"
source = "mlp.onnx"
dims = {batch = 2}
[bench]
iterations = 100
min_seconds = 0.1
repeats = 2
"""
MEASURED = (0, 5)  # 5: inconclusive, which a busy machine may well be


@dataclass(frozen=True)
class Lab:
    """A project with a built bundle and a device ``lab`` behind a real sshd."""

    project: Path
    store: Store
    sshd: Sshd

    def edge(self, *words: str) -> Outcome:
        return edge(self.project, self.store, *words)

    @property
    def bundle(self) -> Path:
        return self.project / "dist" / "mlp" / "0" / "linux-x64"

    @property
    def device(self) -> Path:
        return self.project.parent / "device"

    def release(self) -> Path:
        return (self.device / "bundles" / "mlp.linux-x64" / "current").resolve()


def write_devices(project: Path, running: Sshd, **changes: Any) -> None:
    known = running.settings()
    values: dict[str, Any] = {
        "kind": "ssh",
        "host": known.host,
        "port": known.port,
        "user": known.user,
        "identity_file": str(known.identity_file),
        "known_hosts": str(known.known_hosts),
        "ssh_config": str(known.ssh_config) if known.ssh_config else None,
        "folder": str(project.parent / "device"),
        **changes,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]
    (project / "devices.toml").write_text("[devices.lab]\n" + "\n".join(lines) + "\n")


@pytest.fixture
def lab(tmp_path: Path, store: Store) -> Iterator[Lab]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "edge.toml").write_text(PROJECT)
    models.save(models.mlp(), project / "mlp.onnx")
    with start(tmp_path / "sshd") as running:
        write_devices(project, running)
        made = Lab(project, store, running)
        done = made.edge("build", "-t", "linux-x64")
        assert done.code == 0, done.err
        yield made


@pytest.mark.ssh
def test_deploy_bench_and_report(lab: Lab) -> None:
    done = lab.edge("bench", "linux-x64", "-d", "lab", "--profile", "--json")
    assert done.code in MEASURED, done.err
    (record,) = done.json
    assert (record["device"], record["runner"]) == ("lab", "c")
    assert record["runtime"] == "onnxruntime 1.32.0"
    assert record["summary"]["median_ns"] > 0
    assert len(record["load_ns"]) == 2
    assert all(output["max_abs"] <= 1e-4 for output in record["outputs"])
    wrote = lab.edge("report", "-w", "r.csv", "-w", "r.md", "-w", "r.json", "--json")
    assert wrote.code == 0, wrote.err
    (comparison,) = wrote.json["comparisons"] if isinstance(wrote.json, dict) else wrote.json
    assert comparison["rows"][0]["device"] == "lab"
    (row,) = csv.DictReader((lab.project / "r.csv").read_text().splitlines())
    assert (row["target"], row["device"]) == ("linux-x64", "lab")
    assert float(row["p50_ns"]) == record["summary"]["median_ns"]
    assert "| linux-x64 |" in (lab.project / "r.md").read_text()


@pytest.mark.ssh
def test_a_changed_model_sends_only_the_changed_blobs(lab: Lab) -> None:
    first = lab.edge("deploy", "linux-x64", "-d", "lab", "--json").json["deployed"][0]
    assert first["sent_bytes"] == first["total_bytes"] > 30_000_000
    again = lab.edge("deploy", "linux-x64", "-d", "lab", "--json").json["deployed"][0]
    assert (again["sent_blobs"], again["sent_bytes"]) == (0, 0)
    models.save(models.mlp(scale=1.5), lab.project / "mlp.onnx")
    before = contents(lab.bundle)
    assert lab.edge("build", "-t", "linux-x64").code == 0
    now = contents(lab.bundle)
    changed = {digest: size for digest, size in now.items() if digest not in before}
    third = lab.edge("deploy", "linux-x64", "-d", "lab", "--json").json["deployed"][0]
    assert third["sent_blobs"] == len(changed)
    assert third["sent_bytes"] == sum(changed.values()) < 100_000
    assert third["previous"] is not None
    back = lab.edge("deploy", "linux-x64", "-d", "lab", "--rollback")
    assert back.code == 0, back.err
    assert lab.release().name == third["previous"]


@pytest.mark.ssh
def test_measuring_is_no_rollout(lab: Lab) -> None:
    assert lab.edge("deploy", "linux-x64", "-d", "lab").code == 0
    active = lab.release()
    models.save(models.mlp(scale=1.5), lab.project / "mlp.onnx")
    stale = lab.edge("bench", "linux-x64", "-d", "lab", "--quick")
    assert stale.code in MEASURED
    assert "is not what the project would build now" in stale.err
    assert lab.edge("build", "-t", "linux-x64").code == 0
    fresh = lab.edge("bench", "linux-x64", "-d", "lab", "--quick", "--profile", "--json")
    assert fresh.code in MEASURED
    assert "is not what" not in fresh.err
    assert list(fresh.json[0]["options"]["providers"]) == ["CPUExecutionProvider"]
    assert lab.release() == active


def contents(folder: Path) -> dict[str, int]:
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return {hashlib.sha256(data).hexdigest(): len(data) for data in files}


@pytest.mark.ssh
def test_a_device_that_computes_something_else_keeps_its_release(lab: Lab) -> None:
    assert lab.edge("deploy", "linux-x64", "-d", "lab").code == 0
    good = lab.release()
    forge_golden_output(lab.bundle)
    done = lab.edge("deploy", "linux-x64", "-d", "lab")
    assert done.code == 1, done.err
    assert "computes something else than the source" in done.err
    assert lab.release() == good


def forge_golden_output(bundle: Path) -> None:
    path = bundle / "samples" / "000.output.0.bin"
    path.write_bytes(b"\0" * (path.stat().st_size - 4) + b"\0\0\x80\x40")
    manifest = json.loads((bundle / "manifest.json").read_text())
    for entry in manifest["files"]:
        if entry["path"] == "samples/000.output.0.bin":
            entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.ssh
def test_another_cpu_is_refused_before_anything_is_sent(lab: Lab) -> None:
    assert lab.edge("build", "-t", "linux-arm64").code == 0
    done = lab.edge("deploy", "linux-arm64", "-d", "lab")
    assert done.code == 3
    assert "its CPU is x86_64, not aarch64" in done.err
    assert not (lab.device / "blobs").exists()


@pytest.mark.ssh
def test_a_device_without_a_gpu_is_refused_with_all_that_is_missing(lab: Lab) -> None:
    path = lab.bundle / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["runtime"]["requires"] |= {"gpu": "nvidia", "driver": "9999", "cpu_flags": "amx99"}
    manifest["runtime"]["requires"]["libraries"] = "libcublasLt.so.99 libcudnn.so.99"
    path.write_text(json.dumps(manifest))
    done = lab.edge("bench", "linux-x64", "-d", "lab")
    assert done.code == 3
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    for missing in ("lacks amx99", "NVIDIA", "does not find libcublasLt.so.99, libcudnn.so.99"):
        assert line.count(missing) == 1
    assert not (lab.device / "blobs").exists()


@pytest.mark.ssh
def test_an_unknown_host_key_is_refused_with_its_fingerprint(lab: Lab) -> None:
    empty = lab.project / "known_hosts"
    empty.write_text("")
    write_devices(lab.project, lab.sshd, known_hosts=str(empty))
    done = lab.edge("deploy", "linux-x64", "-d", "lab")
    assert done.code == 3
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert "SHA256:" in line
    assert not (lab.device / "blobs").exists()


@pytest.mark.ssh
def test_an_unreachable_host_is_one_line(lab: Lab) -> None:
    write_devices(lab.project, lab.sshd, port=1)
    done = lab.edge("bench", "linux-x64", "-d", "lab")
    assert done.code == 3
    assert len([line for line in done.err.splitlines() if line.startswith("error: ")]) == 1
    listed = lab.edge("devices", "--json")
    assert listed.code == 3
    assert {each["name"]: each["state"] for each in listed.json} == {
        "local": "ready",
        "lab": "unreachable",
    }


@pytest.mark.ssh
def test_no_bundle_and_no_device_are_usage_errors(lab: Lab) -> None:
    assert lab.edge("deploy", "android", "-d", "lab").code == 2
    assert lab.edge("deploy", "linux-x64", "-d", "lap").code == 2


@pytest.mark.process
def test_this_machine_is_a_device_with_three_runners(tmp_path: Path, store: Store) -> None:
    (tmp_path / "edge.toml").write_text(PROJECT)
    models.save(models.mlp(), tmp_path / "mlp.onnx")
    assert edge(tmp_path, store, "build", "-t", "linux-x64,browser,android").code == 0
    kinds = {}
    for target, runner in (("linux-x64", "c"), ("linux-x64", "python"), ("browser", "node")):
        done = edge(tmp_path, store, "bench", target, "--runner", runner, "--quick", "--json")
        assert done.code in MEASURED, done.err
        kinds[target, runner] = done.json[0]["runner"]
    assert kinds == {
        ("linux-x64", "c"): "c",
        ("linux-x64", "python"): "python",
        ("browser", "node"): "js",
    }
    shown = edge(tmp_path, store, "report", "--json")
    assert "not measured" in shown.err
    assert shown.code == 0
    app = edge(tmp_path, store, "deploy", "android")
    assert app.code == 2
    assert "is for an app: there is no runner to start" in app.err


def choosing(*more: str, device: str = "lab") -> tuple[str, ...]:
    """Words of a build that chooses between two precisions, timed on a device."""
    choice = "targets.linux-x64.choice"
    return (
        "build", "-t", "linux-x64", "-p", "auto",
        "--set", f'{choice}.device="{device}"',
        "--set", f'{choice}.candidates=["source", "fp16"]', *more,
    )  # fmt: skip


@pytest.mark.ssh
def test_precisions_are_timed_on_the_named_device(lab: Lab) -> None:
    done = lab.edge(*choosing("--set", "targets.linux-x64.choice.max_p50='1 s'"))
    assert done.code == 0, done.err
    found = ChoiceRecord.read(lab.bundle.with_name("linux-x64.choice.json"))
    assert found.device == "lab"
    assert all(each.p50_ns and each.peak_bytes for each in found.variants)
    assert not (lab.device / "bundles" / "mlp.linux-x64" / "current").exists()  # it is no rollout
    again = lab.edge(*choosing("--set", "targets.linux-x64.choice.max_p50='1 s'"))
    assert (again.code, again.steps) == (0, [])


@pytest.mark.ssh
def test_a_limit_that_the_device_does_not_keep_to_is_exit_1(lab: Lab) -> None:
    done = lab.edge(*choosing("--set", "targets.linux-x64.choice.max_p50='1 ns'"))
    assert done.code == 1
    assert re.search(r"the nearest is \S+: p50 .* > (0\.001 us|1 ns)", done.err)


@pytest.mark.ssh
def test_a_device_that_is_away_is_exit_3_and_one_that_is_none_is_2(lab: Lab) -> None:
    done = lab.edge(*choosing(device="lob"))
    assert done.code == 2
    assert "did you mean 'lab'?" in done.err
    write_devices(lab.project, lab.sshd, port=1)
    done = lab.edge(*choosing())
    assert done.code == 3
    assert "127.0.0.1:1 refused the connection" in done.err
