"""Which step makes which precision, with which options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import config
from edge.convert.precision import at_precision, goals, ort_options
from edge.job import Job
from tests.convert import fake_job


def job(tmp_path: Path, made_as: config.Precision, target: str = "android", **said: Any) -> Job:
    steps = fake_job.recorder(tmp_path)
    wanted = fake_job.target(target)
    wanted = config.check(config.Target, {**wanted.model_dump(), **said}, "test")
    made = fake_job.job(steps, wanted)
    return Job(**{**vars(made), "precision": made_as})


def recorder(made: Job) -> fake_job.Recorder:
    assert isinstance(made.steps, fake_job.Recorder)
    return made.steps


def test_the_sources_own_is_left_alone(tmp_path: Path) -> None:
    made = job(tmp_path, "source")
    assert at_precision(made) == made.canonical
    assert recorder(made).names == []


@pytest.mark.parametrize(
    ("precision", "step"),
    [("fp16", "fp16"), ("int8", "int8"), ("int8-dynamic", "int8_dynamic"),
     ("int8-weights", "weight_only"), ("int4-weights", "weight_only")],
)  # fmt: skip
def test_every_other_is_made_by_one_step(
    tmp_path: Path, precision: config.Precision, step: str
) -> None:
    made = job(tmp_path, precision)
    assert at_precision(made).path == Path("model.onnx")
    assert recorder(made).names == [step]


@pytest.mark.parametrize(("precision", "bits"), [("int8-weights", 8), ("int4-weights", 4)])
def test_weights_have_their_bits(tmp_path: Path, precision: config.Precision, bits: int) -> None:
    made = job(tmp_path, precision, weight_only={"block_size": 64})
    at_precision(made)
    found = recorder(made).arguments("weight_only")
    assert (found["bits"], found["block_size"], found["symmetric"]) == (bits, 64, True)


def test_int8_takes_the_targets_options_and_the_users_calibration(tmp_path: Path) -> None:
    made = job(tmp_path, "int8")
    at_precision(made)
    found = recorder(made).arguments("int8")
    assert found["cases"] == made.cases
    assert found["options"]["activations"] == "int8"
    assert found["options"]["symmetric_activations"] is True
    assert found["goals"] == [21.0, 20.0]


@pytest.mark.parametrize("target", ["android", "browser", "linux-x64"])
def test_the_options_are_those_that_the_steps_take(tmp_path: Path, target: str) -> None:
    from edge.convert import int8_dynamic, int8_static

    for precision, step, kind in (
        ("int8", "int8", int8_static.Options),
        ("int8-dynamic", "int8_dynamic", int8_dynamic.Options),
    ):
        made = job(tmp_path, precision, target)  # type: ignore[arg-type]
        at_precision(made)
        kind.of(recorder(made).arguments(step)["options"])


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({}, [21.0, 20.0]),
        ({"precision": "auto"}, [21.0, 20.0]),
        ({"precision": "auto", "choice": {"min_sqnr": 30}}, [31.0, 30.0]),
        ({"precision": "auto", "choice": {"max_drop": 0.1}}, [21.0, 10.0, 0.0]),
        ({"tolerances": {"int8": {"sqnr_db": 15.0}}}, [16.0, 15.0]),
    ],
)
def test_int8_gives_nodes_back_until_the_limit(
    tmp_path: Path, said: dict[str, Any], wanted: list[float]
) -> None:
    """With a margin where it can be had; a metric of the user's is no reason to lose more."""
    assert goals(job(tmp_path, "int8", **said)) == wanted


def test_fp16_weights_are_not_folded_back_in_the_ort_format(tmp_path: Path) -> None:
    assert ort_options(job(tmp_path, "fp16"))["level"] == "extended"
    assert ort_options(job(tmp_path, "source"))["level"] == "all"
    basic = job(tmp_path, "fp16", ort_format={"level": "basic"})
    assert ort_options(basic)["level"] == "basic"
