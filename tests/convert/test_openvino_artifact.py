"""Which steps a job for OpenVINO runs, with what, and what its manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from edge import config, errors
from edge.convert import openvino_artifact as artifact
from edge.job import Job, Steps
from edge.step import Step
from edge.store import Result
from tests.convert import fake_job


@dataclass
class Framework:
    """The source framework's model, as a job hands it over."""

    title: str = "PyTorch"
    refused: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def run(
        self, steps: Steps, step: Step, more: Mapping[str, Any] | None = None, *, title: str
    ) -> Result:
        self.calls.append((step.name, dict(more or {})))
        return fake_job.result(step.name, {"refused": self.refused, "converter": "TorchScript"})


class Refusing(fake_job.Recorder):
    """Steps of which one, the canonical IR, is refused."""

    def run(self, step: Step, arguments: Mapping[str, Any], **more: Any) -> Result:
        if step.name == "openvino_ir":
            raise errors.ModelRefused("openvino cannot read the model: the If")
        return super().run(step, arguments, **more)


def job(
    tmp_path: Path,
    precision: config.Precision = "source",
    framework: Framework | None = None,
    steps: type[fake_job.Recorder] = fake_job.Recorder,
    **openvino: Any,
) -> Job:
    recorder = fake_job.recorder(tmp_path, openvino_choice={"kept": "framework", "why": "smaller"})
    recorder.__class__ = steps
    wanted = fake_job.target("openvino-x64")
    said = {**wanted.model_dump(), "openvino": openvino}
    made = fake_job.job(recorder, config.check(config.Target, said, "test"))
    return replace(made, precision=precision, framework=framework)


def recorder(made: Job) -> fake_job.Recorder:
    assert isinstance(made.steps, fake_job.Recorder)
    return made.steps


@pytest.mark.parametrize(
    ("said", "found"),
    [({}, {"PERFORMANCE_HINT": "LATENCY"}),
     ({"hint": "THROUGHPUT", "streams": 4}, {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": "4"}),
     ({"hint": "none", "streams": 1}, {"NUM_STREAMS": "1"})],
)  # fmt: skip
def test_the_targets_options_are_properties_of_openvino(
    tmp_path: Path, said: dict[str, Any], found: dict[str, str]
) -> None:
    made = artifact.properties(job(tmp_path, **said))
    assert made == {"INFERENCE_PRECISION_HINT": "f32", **found}


@pytest.mark.parametrize("precision", config.PRECISIONS)
@pytest.mark.parametrize("hint", ["LATENCY", "THROUGHPUT", "none"])
def test_the_inference_precision_is_always_said(
    tmp_path: Path, precision: config.Precision, hint: str
) -> None:
    """bf16 and fp16 are defaults of CPUs that have them (snakers4/silero-vad#779)."""
    made = artifact.properties(job(tmp_path, precision, hint=hint))
    assert made["INFERENCE_PRECISION_HINT"] == "f32"
    asked = artifact.properties(job(tmp_path, precision, inference_precision="bf16"))
    assert asked["INFERENCE_PRECISION_HINT"] == "bf16"


def test_compressed_weights_leave_activations_as_they_are(tmp_path: Path) -> None:
    for precision in config.PRECISIONS:
        made = artifact.properties(job(tmp_path, precision))
        found = made.get("DYNAMIC_QUANTIZATION_GROUP_SIZE")
        assert found == ("0" if precision.endswith("-weights") else None)


@pytest.mark.parametrize(
    ("precision", "steps"),
    [("source", ["openvino_ir"]), ("fp16", ["openvino_ir", "openvino_fp16"]),
     ("int8", ["openvino_ir", "openvino_int8"]),
     ("int8-weights", ["openvino_ir", "openvino_weights"]),
     ("int4-weights", ["openvino_ir", "openvino_weights"])],
)  # fmt: skip
def test_every_precision_is_made_of_the_full_ir(
    tmp_path: Path, precision: config.Precision, steps: list[str]
) -> None:
    made = job(tmp_path, precision)
    assert artifact.ir(made).path == Path("model.xml")
    assert recorder(made).names == steps
    assert all(call["release"] == "2026.4.1" for _, call in recorder(made).calls)


def test_int8_takes_the_users_calibration_and_the_targets_goals(tmp_path: Path) -> None:
    made = job(tmp_path, "int8", preset="performance", subset_size=7)
    artifact.ir(made)
    found = recorder(made).arguments("openvino_int8")
    assert found["cases"] == made.cases
    assert (found["preset"], found["subset_size"]) == ("performance", 7)
    assert found["goals"] == [21.0, 20.0]


@pytest.mark.parametrize(
    ("precision", "bits", "goal"), [("int8-weights", 8, 31.0), ("int4-weights", 4, 13.0)]
)
def test_weights_have_their_bits_and_their_goal(
    tmp_path: Path, precision: config.Precision, bits: int, goal: float
) -> None:
    made = job(tmp_path, precision)
    artifact.ir(made)
    found = recorder(made).arguments("openvino_weights")
    assert found["scheme"] == {"bits": bits, "block_size": 32, "symmetric": True}
    assert found["goal"] == goal


def test_both_ways_are_tried_and_what_is_kept_is_said(tmp_path: Path) -> None:
    own = Framework()
    made = job(tmp_path, framework=own)
    artifact.ir(made)
    assert own.calls == [("openvino_torch", {"like": made.canonical, "release": "2026.4.1"})]
    assert recorder(made).names == ["openvino_ir", "openvino_choice"]
    facts = artifact.manifest_facts(made)
    assert (facts["ir_of"], facts["why"]) == ("framework", "smaller")
    assert facts["properties"]["INFERENCE_PRECISION_HINT"] == "f32"


@pytest.mark.parametrize("own", [None, Framework("scikit-learn"), Framework("ONNX")])
def test_without_a_framework_that_openvino_reads_it_is_the_canonical_one(
    tmp_path: Path, own: Framework | None
) -> None:
    made = job(tmp_path, framework=own)
    artifact.ir(made)
    assert recorder(made).names == ["openvino_ir"]
    assert artifact.manifest_facts(made)["ir_of"] == "canonical"


def test_a_refused_framework_is_no_failure_and_said(tmp_path: Path) -> None:
    made = job(tmp_path, framework=Framework(refused="No conversion rule for aten::foo"))
    artifact.ir(made)
    assert recorder(made).names == ["openvino_ir"]
    assert artifact.manifest_facts(made)["why"].endswith("No conversion rule for aten::foo")


def test_a_refused_canonical_model_leaves_the_frameworks_own(tmp_path: Path) -> None:
    made = job(tmp_path, framework=Framework(), steps=Refusing)
    artifact.ir(made)
    assert artifact.manifest_facts(made)["ir_of"] == "framework"


@pytest.mark.parametrize("own", [None, Framework(refused="neither")])
def test_where_both_are_refused_openvinos_reason_is_told(
    tmp_path: Path, own: Framework | None
) -> None:
    with pytest.raises(errors.ModelRefused, match="the If"):
        artifact.ir(job(tmp_path, framework=own, steps=Refusing))


def test_one_way_alone_can_be_asked_for(tmp_path: Path) -> None:
    own = Framework()
    made = job(tmp_path, framework=own, origin="canonical")
    artifact.ir(made)
    assert (own.calls, recorder(made).names) == ([], ["openvino_ir"])
    made = job(tmp_path, framework=own, origin="framework")
    artifact.ir(made)
    assert ([name for name, _ in own.calls], recorder(made).names) == (["openvino_torch"], [])


def test_a_framework_that_is_not_there_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="comes from no framework"):
        artifact.ir(job(tmp_path, origin="framework"))
    own = Framework(refused="No conversion rule for aten::foo")
    with pytest.raises(errors.ModelRefused, match="aten::foo"):
        artifact.ir(job(tmp_path, framework=own, origin="framework"))
