"""Recipes that a project brings: what they may leave out, and what this host cannot run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import bundle, errors, recipe
from edge.store import Store
from tests import models
from tests.command import Outcome, edge

# Weights in a file of their own, as OpenVINO's IR has them, on a device that is not here.
PARTS = """
from edge.bundle import Bundle
from edge.step import step

PRECISIONS = ("source", "fp16")

@step(version=1, isolated=False)
def parts(out, *, model):
    (out / "model.graph").write_text("graph")
    (out / "model.weights").write_bytes(model.read_bytes())
    return {}

def artifact(job):
    return job.step(parts, model=job.canonical).tree("model.graph")

def run(job, file):
    return None

def build(job):
    return Bundle(files=(), runtime={}, runtime_size=None, unverified=("the sums of a card",))
"""
TARGET = """
description = "a card"
recipe = "parts"
platform = "linux-x64"
provider = "tensorrt"

[runtime]
name = "tensorrt-rtx"
version = "1.7"
python = ["tensorrt-rtx==1.7"]

[placement]
least_time = 0.9
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "targets").mkdir()
    (tmp_path / "recipes" / "parts.py").write_text(PARTS)
    (tmp_path / "targets" / "card.toml").write_text(TARGET)
    models.save(models.mlp(), tmp_path / "m.onnx")
    return tmp_path


def build(project: Path, store: Store, *words: str) -> Outcome:
    given = ("-m", "m.onnx", "--name", "m", "--dim", "batch=2", "--json")
    return edge(project, store, "build", "-t", "card", *given, *words)


def manifest(project: Path) -> Any:
    return bundle.verify(project / "dist" / "m" / "0" / "card")


@pytest.mark.process
def test_what_this_host_cannot_run_is_unverified_and_said(project: Path, store: Store) -> None:
    done = build(project, store)
    assert done.code == 0, done.err
    made = manifest(project)
    assert made["unverified"] == ["model.graph did not run here", "the sums of a card"]
    assert "built, unverified" in done.err
    assert [(s["stage"], bool(s["outputs"])) for s in made["parity"]] == [
        ("canonical", True),
        ("model.graph", False),
    ]


@pytest.mark.process
def test_an_artifact_of_several_files_is_whole_in_the_bundle(project: Path, store: Store) -> None:
    assert build(project, store).code == 0
    made = manifest(project)
    parts = {f["path"]: f["size"] for f in made["files"] if f["role"] == "artifact"}
    assert parts.keys() == {"model.graph", "model.weights"}
    assert made["artifact"] == "model.graph"
    assert made["sizes"]["artifact"]["raw"] == sum(parts.values())
    again = build(project, store)
    assert again.json["bundles"][0]["state"] == "unchanged", again.err


@pytest.mark.process
def test_an_engine_that_is_not_onnxruntime_has_no_operator_closure(
    project: Path, store: Store
) -> None:
    assert build(project, store).code == 0
    made = manifest(project)
    assert made["closure"] == {}
    assert not [f for f in made["files"] if f["role"] == "closure"]
    assert made["runtime"]["python"] == ["tensorrt-rtx==1.7"]
    assert made["placement"] == {"least_nodes": 1.0, "least_time": 0.9}
    asked = edge(project, store, "closure", "card", "-m", "m.onnx", "--dim", "batch=2")
    assert asked.code == 2
    assert "takes no operator closure" in asked.err
    reduced = build(project, store, "--runtime", "reduced")
    assert reduced.code == 2
    assert "tensorrt-rtx cannot be built" in reduced.err


@pytest.mark.process
def test_a_precision_that_the_recipe_does_not_make_is_refused(project: Path, store: Store) -> None:
    done = build(project, store, "-p", "int8")
    assert done.code == errors.ModelRefused.exit_code
    assert "the recipe parts makes source, fp16" in done.err
    assert not (project / "dist" / "m" / "0" / "card").exists()


@pytest.mark.process
def test_auto_needs_artifacts_that_run_here(project: Path, store: Store) -> None:
    done = build(project, store, "-p", "auto")
    assert done.code == errors.ConfigError.exit_code
    assert "auto cannot choose, its artifacts do not run here" in done.err
    # Said before anything is converted.
    assert not [name for name in done.steps if name.startswith("card/m")], done.steps


@pytest.mark.process
def test_what_a_target_says_of_a_precision_comes_before_the_recipe(
    project: Path, store: Store
) -> None:
    """The recipe makes source and fp16 only; why the runtime gets int8 wrong says more."""
    more = '[[broken]]\nprecision = "int8"\nreleases = ">=1.0"\nwhy = "the card has no int8"\n'
    (project / "targets" / "card.toml").write_text(TARGET + more)
    done = build(project, store, "-p", "int8")
    assert done.code == errors.ModelRefused.exit_code
    assert "cannot run int8 models: the card has no int8" in done.err


def test_a_recipe_may_not_name_precisions_that_there_are_none_of(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text('PRECISIONS = ("fp15",)\ndef artifact(job): ...\ndef build(job): ...\n')
    with pytest.raises(errors.ConfigError, match="fp15"):
        recipe.load("odd", path)


def test_what_a_recipe_leaves_out_is_onnxruntimes(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("def artifact(job): ...\ndef build(job): ...\n")
    made = recipe.load("plain", path)
    assert (made.run, made.precisions) == (recipe.run_by_onnxruntime, ())
    assert made.why_not("int4-weights") == ""
