"""``edge bench ios`` over a real sshd on a stand-in for a Mac, and the table of both sides.

What Apple's programs say follows recorded output (``tests/fakes/apple.py``); no Mac was at hand.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge import errors, field, field_apple
from edge.config import DeviceSpec
from edge.store import Store
from tests import models
from tests.built import Built, once
from tests.command import Outcome, edge
from tests.sshd import start
from tests.test_field import write_devices
from tests.test_ios_xcode import FAKE, PROGRAMS, phone

pytestmark = pytest.mark.ssh
PROJECT = """
[model]
name = "mlp"
source = "mlp.onnx"
dims = {batch = 2}
[bench]
iterations = 100
min_seconds = 0
repeats = 1
"""
# Answers as a Mac does; the rest of the machine stays what it is.
UNAME = """#!/bin/sh
case $1 in -s) echo Darwin ;; -m) echo arm64 ;; *) exec /bin/uname "$@" ;; esac
"""
TEAM = "AB12CD34EF"


@dataclass(frozen=True)
class Lab:
    """A project with an ios bundle, a Mac ``lab`` behind a real sshd, and what stands in for it."""

    project: Path
    store: Store
    fake: Path

    def edge(self, *words: str, results: str = "r.db") -> Outcome:
        return edge(self.project, self.store, *words, "--results", results)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.fake / "calls").read_text().splitlines()]


def prepare(root: Path) -> None:
    (root / "edge.toml").write_text(PROJECT)
    models.save(models.mlp(), root / "mlp.onnx")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return once(tmp_path_factory, "mlp-ios", prepare, "-t", "ios", "-t", "linux-x64")


def programs(folder: Path, fake: Path) -> str:
    """An option for sshd: commands find Apple's programs first."""
    folder.mkdir()
    script = folder / "apple.py"
    # Said with each call: sshd takes one SetEnv, and that is the PATH.
    head = f"#!{sys.executable}\nimport os\nos.environ['APPLE_FAKE'] = {str(fake)!r}\n"
    script.write_text(head + FAKE.read_text().replace("from __future__ import annotations\n", ""))
    (folder / "uname").write_text(UNAME)
    for path in (script, folder / "uname"):
        path.chmod(0o755)
    for name in PROGRAMS:
        (folder / name).symlink_to(script)
    return f"SetEnv PATH={folder}:{os.environ['PATH']}"


@pytest.fixture
def lab(built: Built, tmp_path: Path) -> Iterator[Lab]:
    root, store, outcome = built
    assert outcome.code == 0, outcome.err
    project, fake = tmp_path / "project", tmp_path / "fake"
    for folder in (project, fake):
        folder.mkdir()
    prepare(project)
    (project / "dist").symlink_to(root / "dist")
    (fake / "devices.json").write_text(json.dumps({"result": {"devices": [phone("Jo")]}}))
    with start(tmp_path / "sshd", options=[programs(tmp_path / "programs", fake)]) as running:
        write_devices(project, running)
        yield Lab(project, store, fake)


def ways(said: Any) -> dict[str, dict[str, Any]]:
    return {record["options"]["provider"]: record for record in said}


def test_every_way_is_measured_and_compared(lab: Lab) -> None:
    done = lab.edge("bench", "ios", "-d", "lab", "--json")
    assert done.code == 0, done.err
    records = ways(done.json)
    native = records["coreml:CPU_AND_NE"]
    assert {"CPUExecutionProvider", "CoreMLExecutionProvider:CPUOnly", "coreml:ALL"} <= set(records)
    assert "XnnpackExecutionProvider" not in records  # this runtime is without it, which is said
    assert "this runtime was built without XnnpackExecutionProvider" in done.err
    assert {record["runner"] for record in records.values()} == {"swift"}
    assert native["options"]["cold_load_ns"] == 90_000_000
    assert native["options"]["cached"] == [True]
    assert records["coreml:ALL"]["options"]["cold_load_ns"] == 90_000_000
    made_at = {name: record["options"]["precision"] for name, record in records.items()}
    assert (made_at["coreml:ALL"], made_at["CPUExecutionProvider"]) == ("fp16", "source")
    assert native["sizes"]["runtime"] == {"raw": 0, "compressed": 0}
    assert native["sizes"]["artifact"] != records["CPUExecutionProvider"]["sizes"]["artifact"]
    providers = records["CoreMLExecutionProvider"]["options"]["providers"]
    assert providers["CoreMLExecutionProvider"]["nodes"] == 1
    wrote = lab.edge("report", "-w", "r.json", "-w", "r.md", "-w", "r.html", "-w", "r.csv")
    assert wrote.code == 0, wrote.err
    answer = (
        "Core ML runs faster here: coreml:ALL is 2.00 times as fast as CPUExecutionProvider "
        "(and so are coreml:CPU_AND_GPU, coreml:CPU_AND_NE, coreml:CPU_ONLY); its outputs have "
        "60.0 dB (inf)"
    )
    assert answer in wrote.err
    (sides,) = json.loads((lab.project / "r.json").read_text())["sides"]
    assert sides["answer"] == answer
    assert "built without" in sides["lost"]["XnnpackExecutionProvider"]
    assert {way["provider"] for way in sides["ways"]} == set(records)
    assert answer in (lab.project / "r.html").read_text()
    assert r"coreml:CPU\_AND\_NE" in (lab.project / "r.md").read_text()
    assert "coreml:CPU_AND_NE" in (lab.project / "r.csv").read_text()


def test_one_way_alone_on_a_phone(lab: Lab) -> None:
    path = lab.project / "devices.toml"
    (lab.fake / "state.json").write_text('{"thermal_state": 1, "low_power": false}')
    path.write_text(path.read_text() + f'team = "{TEAM}"\nphone = "Jo"\n')
    done = lab.edge("bench", "ios", "-d", "lab", "--provider", "coreml:ALL", "--json")
    assert done.code == 0, done.err
    (record,) = done.json
    assert (record["device"], record["facts"]["cpu_model"]) == ("lab", "iPhone 15 Pro")
    assert any(f"DEVELOPMENT_TEAM={TEAM}" in call for call in lab.calls())
    assert record["after"] == {"thermal_state": 1, "low_power": 0}


def test_measuring_activates_nothing(lab: Lab) -> None:
    assert lab.edge("bench", "ios", "-d", "lab", "--provider", "coreml:ALL").code == 0
    place = lab.project.parent / "device" / "bundles" / "mlp.ios"
    assert [path.name for path in place.iterdir()] == ["releases"]


def test_a_way_that_was_asked_for_and_is_not_there_is_a_failure(lab: Lab) -> None:
    words = ["--provider", "XnnpackExecutionProvider", "--provider", "CPUExecutionProvider"]
    done = lab.edge("bench", "ios", "-d", "lab", *words, "--json")
    assert done.code == 4
    assert [record["options"]["provider"] for record in done.json] == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ios", "--provider", "coreml:GPU"], 2, "cannot be run by coreml:GPU"),
        (["ios", "--runner", "c"], 2, "has no runner c; it has: swift"),
        (["linux-x64", "--provider", "coreml:ALL"], 2, "is run by CPUExecutionProvider alone"),
    ],
)
def test_what_the_bundle_cannot_do(lab: Lab, words: list[str], code: int, said: str) -> None:
    done = lab.edge("bench", *words, "-d", "lab")
    assert (done.code, said in done.err) == (code, True), done.err


def test_an_app_is_not_built_elsewhere(lab: Lab) -> None:
    done = lab.edge("bench", "ios", "-d", "local")
    assert done.code == 3
    assert "the device local runs Linux: an app for iOS is built on a Mac" in done.err
    assert "name a Mac of devices.toml with --device" in done.err


def test_a_runtime_for_phones_is_not_for_the_mac() -> None:
    manifest = {
        "model": {"name": "mlp"}, "target": {"name": "ios"},
        "runtime": {"slices": [{"identifier": "ios-arm64"}]},
    }  # fmt: skip
    what = field.Bundle(Path("b"), manifest, "ab" * 32)
    with pytest.raises(errors.Unavailable, match=r"mlp\.ios is for phones and simulators"):
        field_apple._needs_a_runtime_for_it(what, DeviceSpec(kind="local"))
    field_apple._needs_a_runtime_for_it(what, DeviceSpec(kind="local", team=TEAM))
