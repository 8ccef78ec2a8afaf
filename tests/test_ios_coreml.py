"""What an ios bundle holds for Core ML: both parts, either, or why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge import config, errors
from edge.bundle import path_fault
from edge.convert import coreml_package, ios_coreml
from edge.convert.coreml_cache_key import coreml_cache_key
from edge.convert.coreml_provider import CACHE_KEY, Options, is_cache_key
from edge.job import Job, Making
from edge.registry import Registry
from edge.store import File
from tests import models
from tests.convert.fake_job import AnyFiles, Recorder, job, target
from tests.convert.test_coreml_origin import Framework

PREDICTION: dict[str, Any] = {
    "nodes": 5, "taken": 4, "share": 0.8, "partitions": 1, "refused": {"LSTM": {"none": 1}},
    "coreml": 5, "release": "1.29.0", "unverified": True, "options": {},
}  # fmt: skip
PACKAGE: dict[str, Any] = {"fp32": ["softmax"], "why": "overflow", "sqnr_db": 51.2}
FACTS: dict[str, dict[str, Any]] = {
    "coreml_cache_key": {"key": "ab" * 32},
    "coreml_partitions": PREDICTION,
    "coreml_fp16": PACKAGE,
    "coreml_weights": {"weights": {"8": 3}, "given_back": [], "sqnr_db": 33.0},
    "compressed_size": {"raw": 10, "compressed": 4},
}
FILES = ("model.mlpackage/Manifest.json", "model.mlpackage/Data/com.apple.CoreML/model.mlmodel")
MAKING = Making(planned=True, source=File(Path("s"), "s", 1))


class Apple(Recorder):
    """Steps that answer; the package has two files, or is refused."""

    trouble: errors.EdgeError | None = None

    def run(self, step: Any, arguments: Any, **more: Any) -> Any:
        made = super().run(step, arguments, **more)
        if step.name not in {"coreml_fp16", "coreml_half", "coreml_weights"}:
            return made
        if self.trouble is not None:
            raise self.trouble
        return replace(made, files=AnyFiles({n: File(Path(n), n, 10) for n in FILES}))


@pytest.fixture
def steps(tmp_path: Path) -> Apple:
    from edge.store import Store

    return Apple(Store(tmp_path), lambda release: None, facts=FACTS)


def made(steps: Apple, **changes: Any) -> Job:
    making = changes.pop("making", None)
    return job(steps, target("ios", **changes), making)


def test_both_parts_with_their_facts(steps: Apple) -> None:
    side = ios_coreml.side(made(steps))
    paths = [file.path for file in side.files]
    assert paths == ["coreml/model.basic.ort", "plan/coreml.json", *(f"coreml/{n}" for n in FILES)]
    assert all(not path_fault(path) for path in paths)
    assert {file.role for file in side.files} == {"app", "plan"}  # no part of the artifact's size
    provider, native = side.facts["provider"], side.facts["native"]
    told = {name: provider[name] for name in ios_coreml.PREDICTED}
    assert told == {name: PREDICTION[name] for name in ios_coreml.PREDICTED}
    assert provider["size"] == {"raw": 10, "compressed": 4}
    assert native["size"] == {"raw": 20, "compressed": 8}
    assert (native["sqnr_db"], native["unverified"]) == (51.2, True)
    assert native["tolerance"]["sqnr_db"] == 40.0
    assert native["systems"] == {"iOS": "15.0", "macOS": "12.0"}
    assert (native["precision"], native["route"]) == ("fp16", "ONNX to MIL")
    assert side.facts["ways"][0] == "CPUExecutionProvider"
    assert "coreml:CPU_AND_NE" in side.facts["ways"]


def test_the_provider_gets_what_its_operators_are(steps: Apple) -> None:
    """Fusions of the CPU would break its part into many; the key is in before the conversion."""
    ios_coreml.side(made(steps))
    assert steps.arguments("optimize")["level"] == "basic"
    converted = steps.arguments("ort_format")
    assert (converted["level"], converted["style"]) == ("basic", "Fixed")
    assert steps.names.index("coreml_cache_key") < steps.names.index("ort_format")
    assert steps.arguments("coreml_partitions")["ios"] == "15.1"


def test_options_are_those_of_the_target(steps: Apple) -> None:
    wanted = made(steps)
    told = ios_coreml.options(wanted)
    assert told == Options(require_static_input_shapes=True).provider_options()
    assert "ModelCacheDirectory" not in told  # a device's own
    old = wanted.app().model_copy(update={"ios_deployment_target": "14.0"})
    assert ios_coreml.options(made(steps, app=old))["ModelFormat"] == "NeuralNetwork"
    units = wanted.target.coreml.model_copy(update={"compute_units": "CPUAndGPU"})
    assert ios_coreml.options(made(steps, coreml=units))["MLComputeUnits"] == "CPUAndGPU"


def test_the_app_is_told_where_all_lies(steps: Apple) -> None:
    variables = ios_coreml.side(made(steps)).variables
    assert variables["artifact"] == "coreml/model.basic.ort"
    assert variables["package"] == "coreml/model.mlpackage"
    assert variables["key"] == "ab" * 32
    assert variables["package_key"] == FILES[0]


@pytest.mark.parametrize(
    "trouble",
    [
        errors.ToolMissing(
            "coremltools is not installed", remedy="pip install 'edgewright[coreml]'"
        ),
        errors.ModelRefused("node If_0: If has no constant condition"),
    ],
)
def test_a_build_goes_on_without_the_package(
    steps: Apple, trouble: errors.EdgeError, capsys: pytest.CaptureFixture[str]
) -> None:
    steps.trouble = trouble
    side = ios_coreml.side(made(steps))
    assert side.facts["native"] == {"left_out": trouble.message}
    assert not [way for way in side.facts["ways"] if way.startswith("coreml:")]
    assert side.variables["package"] == ""
    err = capsys.readouterr().err
    assert trouble.message in err
    assert trouble.remedy in err
    assert side.unverified == (ios_coreml.UNVERIFIED_PROVIDER,)


def test_another_failure_is_a_failure(steps: Apple) -> None:
    steps.trouble = errors.StepFailed("a defect")
    with pytest.raises(errors.StepFailed):
        ios_coreml.side(made(steps))


def test_a_reduced_runtime_has_no_operators_of_another_file(steps: Apple) -> None:
    side = ios_coreml.side(made(steps, making=MAKING))
    assert "ort_format" not in steps.names
    assert "model.ort alone" in side.facts["provider"]["left_out"]
    assert side.variables["artifact"] == ""
    assert side.facts["ways"][:2] == ["CPUExecutionProvider", "coreml:CPU_ONLY"]


def test_nothing_at_all(steps: Apple) -> None:
    steps.trouble = errors.ToolMissing("no coremltools")
    side = ios_coreml.side(made(steps, making=MAKING))
    assert (side.files, side.variables, side.unverified) == ((), {}, ())
    assert side.facts["ways"] == ["CPUExecutionProvider"]


def test_what_did_not_run_here_is_unverified_in_the_bundle(steps: Apple) -> None:
    bundle = Registry(Path("/nonexistent")).recipe("ios").build(made(steps))
    assert bundle.unverified == (ios_coreml.UNVERIFIED_PROVIDER, ios_coreml.UNVERIFIED_NATIVE)
    assert not bundle.planned


# ----------------------------------------------------------------------------- the native package
def weighted(steps: Apple, least: str = "iOS16", **said: Any) -> dict[str, Any]:
    """The native package's facts in a bundle of ``int8-weights``."""
    wanted = target("ios").model_dump()
    options = {"minimum_deployment_target": least, **said}
    whole = config.check(
        config.Target, {**wanted, "precision": "int8-weights", "coreml": options}, "test"
    )
    asked = replace(job(steps, whole), precision="int8-weights")
    found = dict(ios_coreml.native(asked).facts)
    assert found["systems"]["iOS"] == ("15.0" if least == "iOS15" else "16.0")
    return found


def test_compressed_weights_are_in_the_native_package_too(steps: Apple) -> None:
    found = weighted(steps)
    assert (found["precision"], found["compute_precision"]) == ("int8-weights", "fp16")
    assert (found["compression"], found["weights"]) == ("linear", {"8": 3})
    assert (found["sqnr_db"], found["tolerance"]["sqnr_db"]) == (33.0, 30.0)
    assert found["fp32_operations"] == ["softmax"]
    steps.calls.clear()
    assert weighted(steps, palettize=6)["compression"] == "palettized"


@pytest.mark.parametrize(
    ("least", "sqnr_db", "said"),
    [
        ("iOS15", 33.0, "; write minimum_deployment_target = 'iOS16' in [targets.ios.coreml]"),
        ("iOS16", 12.5, "int8-weights has 12.5 dB of SQNR"),
    ],
)  # fmt: skip
def test_half_precision_is_told_where_weights_cannot_be_compressed(
    steps: Apple, least: str, sqnr_db: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps.facts = {**FACTS, "coreml_weights": {**FACTS["coreml_weights"], "sqnr_db": sqnr_db}}
    found = weighted(steps, least)
    assert (found["precision"], found["tolerance"]["sqnr_db"]) == ("fp16", 40.0)
    assert (found["sqnr_db"], "compression" in found) == (51.2, False)
    err = capsys.readouterr().err
    assert "the Core ML package is in fp16: " in err
    assert said in err


def test_a_model_that_is_refused_is_so_once(
    steps: Apple, capsys: pytest.CaptureFixture[str]
) -> None:
    steps.trouble = errors.ModelRefused("node If_0: If has no constant condition")
    asked = replace(made(steps, precision="int8-weights"), precision="int8-weights")
    assert ios_coreml.native(asked).left_out == steps.trouble.message
    assert capsys.readouterr().err.count("If_0") == 1


def test_outputs_that_do_not_differ_are_spelt_as_elsewhere(steps: Apple) -> None:
    steps.facts = {**FACTS, "coreml_fp16": {**PACKAGE, "sqnr_db": 300.0}}
    assert ios_coreml.native(made(steps)).facts["sqnr_db"] == "inf"
    steps.facts = {**FACTS, "coreml_fp16": {**PACKAGE, "sqnr_db": None}}
    assert ios_coreml.native(made(steps)).facts["sqnr_db"] is None


@pytest.mark.parametrize("origin", ["framework", "auto"])
def test_the_frameworks_own_model_is_asked_for_the_installed_coremltools(
    steps: Apple, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's release is ONNX Runtime's."""
    monkeypatch.setattr(coreml_package, "installed", lambda: "9.0")
    figures = {"sqnr_db": 110.0, "bytes": 9, "why_not": "", "operations": 2}
    steps.facts = {
        **FACTS,
        "coreml_torch": {"refused": "", "route": "torch.export", "tried": {"torch.export": ""},
                         "wrong": [], "figures": figures},
        "coreml_canonical": {"refused": ""},
        "coreml_half": PACKAGE,
        "coreml_choice": {"kept": "framework", "why": "2 operations, the other 3",
                          "disagreement": "", "canonical": {"operations": 3},
                          "framework": figures},
    }  # fmt: skip
    options = target("ios").coreml.model_copy(update={"origin": origin})
    wanted = replace(made(steps, coreml=options), framework=Framework())
    found = ios_coreml.native(wanted).facts
    (how,) = {str(given["how"]) for name, given in steps.calls if name == "coreml_torch"}
    assert "'release': '9.0'" in how
    assert (found["route"], found["tried"]["torch.export"]) == ("torch.export", figures)
    assert found["why"]


# ------------------------------------------------------------------------------ the cache key
def keyed(tmp_path: Path, name: str, model: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    out = tmp_path / name
    out.mkdir()
    onnx.save(model, out / "in.onnx")
    facts = coreml_cache_key.function(out, model=out / "in.onnx")
    assert facts is not None
    return onnx.load(out / "model.onnx"), facts["key"]


def entries(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in model.metadata_props]


def test_the_key_is_of_the_model(tmp_path: Path) -> None:
    first, key = keyed(tmp_path, "1", models.mlp())
    assert is_cache_key(key)
    assert entries(first) == [(CACHE_KEY, key)]
    assert keyed(tmp_path, "2", models.mlp())[1] == key
    assert keyed(tmp_path, "3", models.mlp(scale=2.0))[1] != key
    first.metadata_props.pop()
    assert first == models.mlp()


def test_other_metadata_stays_and_an_old_key_goes(tmp_path: Path) -> None:
    model = models.mlp()
    for name, value in (("author", "me"), (CACHE_KEY, "old")):
        model.metadata_props.add(key=name, value=value)
    made_of, key = keyed(tmp_path, "1", model)
    assert entries(made_of) == [("author", "me"), (CACHE_KEY, key)]


@pytest.mark.process
def test_the_conversion_to_ort_format_keeps_the_key(tmp_path: Path) -> None:
    from edge.convert.ort_format import ort_format

    _, key = keyed(tmp_path, "1", models.mlp())
    out = tmp_path / "ort"
    out.mkdir()
    options = {"style": "Fixed", "target_platform": "arm", "level": "basic"}
    ort_format.function(out, model=tmp_path / "1" / "model.onnx", **options)
    data = (out / "model.ort").read_bytes()
    assert CACHE_KEY.encode() in data
    assert key.encode() in data
