"""``precision = "auto"``: what is remembered, what is not, and what ends a build.

By the command line with models of a few weights; times are taken where a test is about them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edge import config, errors, variants
from edge.choice_record import ChoiceRecord
from edge.registry import Registry
from edge.store import Store
from tests import models
from tests.command import Outcome, edge
from tests.convert import fake_job

pytestmark = pytest.mark.process
AUTO = """
[model]
source = "m.onnx"
name = "m"
dims = {{ batch = 2 }}
{more}

[targets.{target}]
precision = "auto"
choice.candidates = ["source", "fp16"]

[bench]
min_seconds = 0.05
iterations = 30
repeats = 2
"""


def project(folder: Path, target: str = "android", more: str = "") -> None:
    models.save(models.mlp(), folder / "m.onnx")
    (folder / "edge.toml").write_text(AUTO.format(target=target, more=more))


def record(folder: Path, target: str = "android", model: str = "m") -> ChoiceRecord:
    return ChoiceRecord.read(folder / "dist" / model / "0" / f"{target}.choice.json")


def told(done: Outcome) -> Any:
    (row,) = done.json
    return row["state"], row["reasons"], row["steps"]


def test_a_repaired_metric_is_tried_again(tmp_path: Path, store: Store) -> None:
    """Only that a model cannot be converted is remembered."""
    project(tmp_path, more='accuracy = "metric:score"')
    body = "def score(run):\n    return run({{'x': np.ones((2, 4), np.float32)}})['y'].{}\n"
    head = "import numpy as np\n\n"
    (tmp_path / "metric.py").write_text(head + body.format("nothing()"))
    done = edge(tmp_path, store, "build", "-t", "android")
    assert done.code == 2, done.err
    assert "the metric metric:score failed at metric.py:4" in done.err
    (tmp_path / "metric.py").write_text(head + body.format("mean()"))
    assert edge(tmp_path, store, "build", "-t", "android").code == 0


def test_what_cannot_be_converted_is_remembered(tmp_path: Path, store: Store) -> None:
    project(tmp_path)
    words = ("--set", 'targets.android.choice.candidates=["source", "int8"]')
    spoiled = ("--set", "targets.android.int8.operators=['Conv']")  # the model has none
    first = edge(tmp_path, store, "build", "-t", "android", *words, *spoiled)
    assert first.code == 0, first.err
    why = {each.precision: each.why for each in record(tmp_path).variants}["int8"]
    assert why.startswith("could not be made: the model has no weights")
    again = edge(tmp_path, store, "build", "-t", "android", *words, *spoiled)
    assert (again.code, again.steps) == (0, [])
    assert edge(tmp_path, store, "build", "-t", "android", *words).code == 0
    assert {each.precision: each.state for each in record(tmp_path).variants}["int8"] == "made"


def test_explain_says_what_a_build_would_choose(tmp_path: Path, store: Store) -> None:
    project(tmp_path)
    assert edge(tmp_path, store, "build", "-t", "android").code == 0
    assert record(tmp_path).chosen == "fp16" or record(tmp_path).chosen == "source"
    state, reasons, steps = told(edge(tmp_path, store, "explain", "android", "--json"))
    assert (state, reasons, steps) == ("up to date", [], [])
    # Another choice by other limits, of variants that are all there.
    chosen = record(tmp_path).chosen
    limit = f'targets.android.choice.candidates=["{"source" if chosen == "fp16" else "fp16"}"]'
    state, reasons, steps = told(
        edge(tmp_path, store, "explain", "android", "--json", "--set", limit)
    )
    assert steps == []
    assert any("precision.made" in reason for reason in reasons), reasons


def test_a_limit_after_the_fact_is_seen_by_explain(tmp_path: Path, store: Store) -> None:
    """The last record's figures are those of other limits: only its times are taken over."""
    project(tmp_path)
    strict = ("--set", "targets.android.tolerances.fp16.sqnr_db=200")
    assert edge(tmp_path, store, "build", "-t", "android", *strict).code == 0
    assert record(tmp_path).chosen == "source"
    loose = ("--set", "targets.android.choice.prefer='size'")
    before = edge(tmp_path, store, "build", "-t", "android", *loose)
    assert before.code == 0
    if record(tmp_path).chosen == "fp16":
        state, *_ = told(edge(tmp_path, store, "explain", "android", "--json", *strict))
        assert state != "up to date"


@pytest.mark.parametrize(
    ("name", "precision", "broken", "other"),
    [
        ("coreml", "int8", None, False),  # in no release
        ("coreml", "int8-dynamic", None, False),
        ("android", "int8", "<2", True),
        ("coreml", "int8", "<99", False),  # nor does the recipe make it
    ],
)
def test_another_release_is_a_way_out_where_there_may_be_one(
    name: str, precision: config.Precision, broken: str | None, other: bool
) -> None:
    changes: dict[str, Any] = {"precision": precision}
    if broken:
        changes["broken"] = (config.Broken(precision=precision, releases=broken, why="wrong"),)
    wanted = fake_job.target(name, **changes)
    recipe = Registry(Path("/nonexistent")).recipe(wanted.recipe)
    prepared = SimpleNamespace(spec=SimpleNamespace(name="m"))
    with pytest.raises(errors.ModelRefused) as caught:
        variants.check(cast("Any", None), wanted, cast("Any", prepared), recipe)
    assert caught.value.remedy.startswith("choose another precision")
    assert ("pin a release that can" in caught.value.remedy) == other


def test_several_models_choose_each_for_itself(tmp_path: Path, store: Store) -> None:
    text = AUTO.format(target="android", more="").replace("[model]", "[models.a]", 1)
    text = text.replace('name = "m"\n', "")
    text += '\n[models.b]\nsource = "m.onnx"\ndims = { batch = 1 }\n'
    models.save(models.mlp(), tmp_path / "m.onnx")
    (tmp_path / "edge.toml").write_text(text)
    done = edge(tmp_path, store, "build", "-t", "android", "--name", "a", "--json")
    assert done.code == 0, done.err
    assert {row["model"] for row in done.json["bundles"]} == {"a"}
    assert record(tmp_path, model="a").chosen
    assert record(tmp_path, model="b").chosen  # its artifact is in the closure
    state, *_ = told(edge(tmp_path, store, "explain", "android", "--name", "a", "--json"))
    assert state == "up to date"


def test_a_metric_is_needed_where_its_drop_is_limited(tmp_path: Path, store: Store) -> None:
    project(tmp_path)
    words = ("--set", "targets.android.choice.max_drop=0.1")
    done = edge(tmp_path, store, "build", "-t", "android", *words)
    assert done.code == 2
    assert "max_drop limits the accuracy of m, which has no metric" in done.err
    assert not any("fp16" in step for step in done.steps)


def test_a_host_that_lacks_something_is_no_losing_variant(tmp_path: Path, store: Store) -> None:
    project(tmp_path, "linux-x64")
    pin = "targets.linux-x64.runtime.files"
    bad = '[{path="runtime/l.so", package="file:/nonexistent.whl", sha256="' + "0" * 64 + '"}]'
    done = edge(tmp_path, store, "build", "-t", "linux-x64", "--set", f"{pin}={bad}")
    assert done.code in (2, 3), done.err
    assert "none of the" not in done.err


def test_nothing_is_left_behind_where_variants_were_timed(tmp_path: Path, store: Store) -> None:
    project(tmp_path, "linux-x64")
    done = edge(tmp_path, store, "build", "-t", "linux-x64")
    assert done.code == 0, done.err
    assert record(tmp_path, "linux-x64").device == "local"
    left = list((store.root / "device" / "bundles").glob("*/releases/*"))
    assert left == []
    assert list((store.root / "tmp").iterdir()) == []


def test_deploy_knows_what_the_command_line_asked_for(tmp_path: Path, store: Store) -> None:
    project(tmp_path, "linux-x64")
    assert edge(tmp_path, store, "build", "-t", "linux-x64", "-p", "fp16").code == 0
    done = edge(tmp_path, store, "deploy", "linux-x64")
    assert done.code == 0, done.err
    assert "is not what the project would build" not in done.err


def test_the_operators_of_a_choice_are_listed_without_measuring(
    tmp_path: Path, store: Store
) -> None:
    project(tmp_path, "linux-x64")
    done = edge(tmp_path, store, "closure", "linux-x64", "--json")
    assert done.code == 0, done.err
    assert not any("p50" in step or "bring" in step for step in done.steps)


def test_the_result_says_what_was_made(tmp_path: Path, store: Store) -> None:
    project(tmp_path)
    done = edge(tmp_path, store, "build", "-t", "android", "-p", "fp16", "--json")
    assert [row["precision"] for row in done.json["bundles"]] == ["fp16"]


def test_a_calibration_that_an_int8_variant_needs_is_an_error_of_the_whole(
    tmp_path: Path, store: Store
) -> None:
    project(tmp_path, more='calibration = "data.npz"')
    np.savez(tmp_path / "data.npz", x=np.zeros((0, 2, 4), np.float32))
    done = edge(tmp_path, store, "build", "-t", "android", "--json")
    assert done.code == 2
    assert "holds no sample" in json.dumps(done.json)
