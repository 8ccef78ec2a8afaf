"""Which route a job for Core ML takes by the target's ``origin``, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from edge import config, errors
from edge.convert import coreml_package as coreml
from edge.job import Job, Steps
from edge.step import Step
from edge.store import Result
from tests.convert import fake_job
from tests.convert.coreml_setup import need_coremltools

PORTS = {"inputs": ["in"], "outputs": ["out"], "specification_version": 7}
TRIED = {"torch.export": "no rule", "torch.jit.trace": ""}
FIGURES = {"sqnr_db": 110.0, "bytes": 9, "why_not": "", "operations": 2}
DIRECT = {"refused": "", "route": "torch.jit.trace", "tried": TRIED, "wrong": [], **PORTS,
          "figures": FIGURES}  # fmt: skip
REFUSED = {"refused": "torch.export: no rule", "tried": {"torch.export": "no rule"}, "wrong": []}
CHOICE = {
    **PORTS, "kept": "framework", "why": "2 operations, the other 3", "disagreement": "",
    "canonical": {"operations": 3}, "framework": {"operations": 2},
}  # fmt: skip
HALF = {**PORTS, "fp32": [], "why": "", "sqnr_db": 70.0}


@dataclass(frozen=True)
class Framework:
    """A source's framework that only writes down what it was asked."""

    title: str = "PyTorch"

    def run(
        self, steps: Steps, step: Step, more: Mapping[str, Any] | None = None, *, title: str
    ) -> Result:
        return steps.run(step, more or {}, title=title)


def job(tmp_path: Path, origin: str, precision: config.Precision = "source", **facts: Any) -> Job:
    need_coremltools()
    wanted = fake_job.target("coreml")
    said = {**wanted.model_dump(), "coreml": {"origin": origin}}
    known = {
        "mil_package": PORTS, "coreml_fp16": HALF, "coreml_half": HALF,
        "coreml_canonical": {"refused": "", **PORTS}, "coreml_torch": DIRECT,
        "coreml_choice": CHOICE, "coreml_weights": {"weights": {"8": 1}, "given_back": []},
    }  # fmt: skip
    recorder = fake_job.recorder(tmp_path, (), **{**known, **facts})
    made = fake_job.job(recorder, config.check(config.Target, said, "test"))
    return replace(made, precision=precision, framework=Framework())


def names(made: Job) -> list[str]:
    """Steps that were run, each once, in their order."""
    assert isinstance(made.steps, fake_job.Recorder)
    return list(dict.fromkeys(made.steps.names))


BOTH = ["coreml_torch", "coreml_canonical", "coreml_choice"]


@pytest.mark.parametrize(
    ("origin", "precision", "steps"),
    [
        ("canonical", "source", ["mil_package"]),
        ("canonical", "fp16", ["coreml_fp16"]),
        ("framework", "source", ["coreml_torch"]),
        ("framework", "fp16", ["coreml_torch", "coreml_half"]),
        ("framework", "int8-weights", ["coreml_torch", "coreml_half", "coreml_weights"]),
        ("auto", "source", BOTH),
        ("auto", "fp16", [*BOTH, "coreml_half"]),
    ],
)
def test_the_origin_decides_what_is_converted(
    tmp_path: Path, origin: str, precision: config.Precision, steps: list[str]
) -> None:
    made = job(tmp_path, origin, precision)
    coreml.package(made)
    assert names(made) == steps


def test_the_default_is_the_canonical_model_alone() -> None:
    assert config.engines.CoreMl().origin == "canonical"


def test_a_framework_is_asked_for_the_targets_own(tmp_path: Path) -> None:
    made = job(tmp_path, "framework")
    coreml.base(made)
    assert isinstance(made.steps, fake_job.Recorder)
    told = made.steps.arguments("coreml_torch")
    assert told["like"] == made.canonical
    assert told["how"]["release"] == "9.0"
    assert told["how"]["minimum_deployment_target"] == "iOS16"
    assert told["how"]["tolerance"]["max_abs"] == 1e-4


@pytest.mark.parametrize(
    ("origin", "facts", "route", "why"),
    [
        ("auto", {}, "torch.jit.trace", "2 operations, the other 3"),
        ("auto", {"coreml_choice": {**CHOICE, "kept": "canonical"}}, coreml.ONNX, "2 operations"),
        ("auto", {"coreml_torch": REFUSED}, coreml.ONNX, "is refused: torch.export: no rule"),
        ("auto", {"coreml_canonical": {"refused": "If_0"}}, "torch.jit.trace", "ONNX is refused"),
        ("framework", {}, "torch.jit.trace", "the target says so"),
    ],
)
def test_the_manifest_says_which_route_was_taken_and_why(
    tmp_path: Path, origin: str, facts: dict[str, Any], route: str, why: str
) -> None:
    found = coreml.manifest_facts(job(tmp_path, origin, **facts))
    assert found["route"] == route
    assert why in found["why"]
    assert found["tried"]["torch.export"] == {"why_not": "no rule"}
    assert "disagreement" not in found
    if facts.get("coreml_canonical"):
        assert found["tried"][coreml.ONNX] == {"why_not": "If_0"}
        assert found["tried"]["torch.jit.trace"] == FIGURES
    elif origin == "framework":
        assert found["tried"]["torch.jit.trace"] == FIGURES
    elif origin == "auto" and "coreml_torch" not in facts:
        assert found["tried"][coreml.ONNX] == {"operations": 3}
        assert found["tried"]["torch.jit.trace"] == {"operations": 2}


def test_a_source_of_no_framework_has_one_route(tmp_path: Path) -> None:
    alone = replace(job(tmp_path, "auto"), framework=None)
    told = coreml.manifest_facts(alone)
    assert (told["route"], told["why"]) == (coreml.ONNX, coreml.NOT_READ)
    assert names(alone) == ["mil_package"]
    said = coreml.manifest_facts(job(tmp_path, "canonical"))
    assert (said["route"], said["why"], "tried" in said) == (coreml.ONNX, coreml.SAID, False)
    other = replace(job(tmp_path, "auto"), framework=Framework("scikit-learn"))
    assert coreml.manifest_facts(other)["route"] == coreml.ONNX
    with pytest.raises(errors.ConfigError, match="comes from no framework that coremltools reads"):
        coreml.package(replace(job(tmp_path, "framework"), framework=None))


def test_a_framework_that_is_asked_for_and_refused_is_no_other_route(tmp_path: Path) -> None:
    made = job(tmp_path, "framework", coreml_torch=REFUSED)
    with pytest.raises(errors.ModelRefused, match=r"torch\.export: no rule") as caught:
        coreml.package(made)
    assert "origin = 'auto' or 'canonical' in [targets.coreml.coreml]" in caught.value.remedy
    assert names(made) == ["coreml_torch"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"coreml_choice": {**CHOICE, "disagreement": "sample 1, 'y': max_abs"}},
         "against the canonical ONNX: sample 1, 'y': max_abs; kept: framework"),
        ({"coreml_torch": {**DIRECT, "wrong": ["torch.export"]}},
         "by torch.export: no rule; not taken"),
    ],
)  # fmt: skip
def test_a_disagreement_is_told_once_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], facts: dict[str, Any], said: str
) -> None:
    made = job(tmp_path, "auto", **facts)
    coreml.package(made)
    found = coreml.manifest_facts(made)
    assert capsys.readouterr().err.count(said) == 1
    if "coreml_choice" in facts:
        assert found["disagreement"] == "sample 1, 'y': max_abs"


def test_routes_that_agree_are_no_news(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coreml.package(job(tmp_path, "auto", "fp16"))
    assert capsys.readouterr().err == ""
