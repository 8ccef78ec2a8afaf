"""The example in ``examples/digits``: trained, built at every precision, chosen by budget."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from edge import process
from edge.choice_record import ChoiceRecord
from edge.config import PRECISIONS
from tests.built import Built, once
from tests.command import edge
from tests.sources import torch_models

pytestmark = pytest.mark.process
EXAMPLE = process.PACKAGE_PARENT / "examples" / "digits"
TARGETS = ("linux-x64", "android", "ios", "browser")
# Of phones and the browser a part: what differs there is the format, not the steps before it. A
# native package for iOS costs more than all of them.
QUICK = (
    "--set", "targets.ios.coreml.native=false",
    "--set", "bench.min_seconds=0.05", "--set", "bench.iterations=30", "--set", "bench.repeats=2",
    *(word for name in TARGETS[1:]
      for word in ("--set", f'targets.{name}.choice.candidates=["source", "fp16", "int8"]')),
)  # fmt: skip


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example, trained and built at every precision."""
    torch_models.library()

    def prepare(root: Path) -> None:
        ignored = shutil.ignore_patterns("dist", ".edge", "*.npz")
        shutil.copytree(EXAMPLE, root, ignore=ignored, dirs_exist_ok=True)
        process.run([sys.executable, "train.py"], cwd=root, timeout=300)

    return once(tmp_path_factory, "digits", prepare, "-p", "auto", *QUICK)


def record(root: Path, target: str) -> ChoiceRecord:
    return ChoiceRecord.read(root / "dist" / "digits" / "1" / f"{target}.choice.json")


def manifest(root: Path, target: str) -> Any:
    return json.loads((root / "dist" / "digits" / "1" / target / "manifest.json").read_text())


def test_every_target_is_built(built: Built) -> None:
    _, _, done = built
    assert done.code == 0, done.err
    assert {row["target"]: row["state"] for row in done.json["bundles"]} == dict.fromkeys(
        TARGETS, "built"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_the_smallest_within_tolerance_is_chosen(built: Built, target: str) -> None:
    found = record(built[0], target)
    made = {each.precision: each for each in found.variants if each.state == "made"}
    assert {"source", "fp16", "int8"} <= set(made)
    assert found.chosen == min(made, key=lambda name: made[name].artifact_raw or 0)
    assert set(found.reasons) == {each.precision for each in found.variants} - {found.chosen}
    what = manifest(built[0], target)
    assert what["precision"] == {"asked": "auto", "made": found.chosen}
    assert what["sizes"]["artifact"]["raw"] == made[str(found.chosen)].artifact_raw


def test_all_precisions_are_tried_where_nothing_is_said(
    built: Built,
) -> None:
    found = record(built[0], "linux-x64")
    assert tuple(each.precision for each in found.variants) == PRECISIONS
    assert all(each.state == "made" for each in found.variants), found.reasons


@pytest.mark.parametrize("target", TARGETS)
def test_accuracies_are_held_against_the_frameworks_own(built: Built, target: str) -> None:
    found = record(built[0], target)
    assert found.source_accuracy is not None
    assert found.source_accuracy > 0.95
    for each in found.variants:
        assert each.accuracy == pytest.approx(found.source_accuracy, abs=0.01), each
        assert each.drop == pytest.approx(found.source_accuracy - (each.accuracy or 0.0))
    # Nothing is lost by the export alone.
    source = next(each for each in found.variants if each.precision == "source")
    assert source.accuracy == found.source_accuracy


def test_each_precision_saves_what_it_should(built: Built) -> None:
    """Halves and quarters of the weights, beside a graph that stays."""
    made = {
        each.precision: each.artifact_raw or 0 for each in record(built[0], "linux-x64").variants
    }
    assert made["fp16"] < 0.6 * made["source"]
    assert made["int8"] < 0.4 * made["source"]
    for target in ("android", "ios", "browser"):
        made = {
            each.precision: each.artifact_raw or 0 for each in record(built[0], target).variants
        }
        assert made["fp16"] < 0.7 * made["source"], target


def test_times_are_taken_where_a_runner_runs_here(built: Built) -> None:
    for target, device in (("linux-x64", "local"), ("browser", "local"), ("android", None)):
        found = record(built[0], target)
        assert found.device == device
        timed = [each.p50_ns for each in found.variants if each.state == "made"]
        assert all((figure is not None) == (device is not None) for figure in timed), target
    assert any("was not measured" in text for text in record(built[0], "android").warnings)


def test_nothing_is_made_or_timed_twice(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "build", "-p", "auto", "--json", *QUICK, timeout=300)
    assert done.code == 0, done.err
    assert done.steps == []
    assert {row["state"] for row in done.json["bundles"]} == {"unchanged"}


def test_the_report_has_every_variant(built: Built) -> None:
    root, store, _ = built
    done = edge(root, store, "report", "--write", "report.html", "--write", "report.md")
    assert done.code == 0, done.err
    table = (root / "report.md").read_text()
    for name in ("source framework", *PRECISIONS):
        assert name in table
    page = (root / "report.html").read_text()
    assert "<svg" in page
    assert "browser" in page


def test_no_variant_within_the_limits_is_exit_1_with_the_nearest_miss(
    built: Built, tmp_path: Path
) -> None:
    root, store, _ = built
    words = ("--set", 'targets.android.choice.max_size="20 kB"', "-o", str(tmp_path))
    done = edge(root, store, "build", "-t", "android", "-p", "auto", *QUICK, *words)
    assert done.code == 1
    assert "the nearest is int8: size" in done.err
    found = ChoiceRecord.read(tmp_path / "digits" / "1" / "android.choice.json")
    assert found.chosen is None
    assert "> 20 kB" in found.reasons["source"]


def test_a_drop_is_limited_by_the_users_metric(built: Built, tmp_path: Path) -> None:
    root, store, _ = built
    limit = record(root, "linux-x64")
    worst = max(each.drop or 0.0 for each in limit.variants)
    words = ("--set", f"targets.linux-x64.choice.max_drop={max(worst, 0.0)}", "-o", str(tmp_path))
    done = edge(root, store, "build", "-t", "linux-x64", "-p", "auto", *QUICK, *words)
    assert done.code == 0, done.err


def test_one_precision_is_built_and_leaves_no_choice_behind(built: Built, tmp_path: Path) -> None:
    root, store, _ = built
    (tmp_path / "digits" / "1").mkdir(parents=True)
    old = tmp_path / "digits" / "1" / "android.choice.json"
    old.write_text("{}")
    done = edge(root, store, "build", "-t", "android", "-p", "fp16", "-o", str(tmp_path))
    assert done.code == 0, done.err
    what = json.loads((tmp_path / "digits" / "1" / "android" / "manifest.json").read_text())
    assert what["precision"] == {"asked": "fp16", "made": "fp16"}
    assert [stage["stage"] for stage in what["parity"]][1:] == ["fp16", "model.ort"]
    assert what["tolerance"]["sqnr_db"] == 40.0
    assert not old.exists()


def test_explain_says_what_changed_calibration_data_makes_again(
    built: Built,
) -> None:
    root, store, _ = built
    path = root / "calibration.npz"
    before = path.read_bytes()
    import numpy as np

    try:
        rows = np.random.default_rng(0).random((20, 1, 1, 8, 8), np.float32)
        np.savez(path, image=rows)
        done = edge(root, store, "explain", "android", "-p", "int8", "--json")
    finally:
        path.write_bytes(before)
    assert done.code == 0, done.err
    steps = {each["step"]: each["why"] for each in done.json[0]["steps"]}
    assert {"calibration", "int8"} <= set(steps)
