"""What a recipe for Core ML makes of a job: which steps, of what, and what it says of it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge import bundle, config, errors
from edge.assemble import artifact_files
from edge.convert import coreml_package as coreml
from edge.convert.mil_package import PACKAGE
from edge.job import Job
from edge.registry import Registry
from edge.store import File, Result, hash_file
from tests.convert import fake_job
from tests.convert.coreml_setup import need_coremltools

FACTS: dict[str, dict[str, Any]] = {
    "mil_package": {"inputs": ["in"], "outputs": ["out"], "specification_version": 7},
    "coreml_fp16": {
        "inputs": ["in"], "outputs": ["out"], "specification_version": 7, "fp32": ["pow"],
        "why": "pow overflows in half precision",
    },
    "coreml_weights": {"weights": {"8": 3}, "given_back": ["grouped"]},
}  # fmt: skip


def job(tmp_path: Path, precision: config.Precision = "fp16", **coreml_said: Any) -> Job:
    need_coremltools()
    wanted = fake_job.target("coreml")
    asked = coreml_said.pop("asked", precision)
    said = {**wanted.model_dump(), "precision": asked, "coreml": coreml_said}
    recorder = fake_job.recorder(tmp_path, (), **FACTS)
    made = fake_job.job(recorder, config.check(config.Target, said, "test"))
    return replace(made, precision=precision)


def recorder(made: Job) -> fake_job.Recorder:
    assert isinstance(made.steps, fake_job.Recorder)
    return made.steps


@pytest.mark.parametrize(
    ("precision", "said", "steps"),
    [
        ("source", {}, ["mil_package"]),
        ("fp16", {}, ["coreml_fp16"]),
        ("int8-weights", {}, ["coreml_fp16", "coreml_weights"]),
        ("int4-weights", {"palettize": 4}, ["coreml_fp16", "coreml_weights"]),
    ],
)
def test_weights_are_compressed_in_a_package_of_half_precision(
    tmp_path: Path, precision: config.Precision, said: dict[str, Any], steps: list[str]
) -> None:
    made = job(tmp_path, precision, **said)
    assert coreml.package(made).path == Path(PACKAGE, "Manifest.json")
    assert recorder(made).names == steps
    first = recorder(made).arguments(steps[0])
    assert first["model"] == made.canonical
    told = first.get("options", first)
    assert told["minimum_deployment_target"] == "iOS16"
    if precision == "source":
        assert told["compute_precision"] == "fp32"
    else:
        assert first["goal"] == 40.0


@pytest.mark.parametrize(
    ("precision", "said", "bits", "palettize", "goal"),
    [
        ("int8-weights", {}, 8, False, 30.0),
        ("int8-weights", {"palettize": 8}, 8, True, 30.0),
        ("int8-weights", {"palettize": 6}, 6, True, 30.0),
        ("int8-weights", {"palettize": 4, "asked": "auto"}, 8, False, 30.0),
        ("int4-weights", {"palettize": 4}, 4, True, 12.0),
        ("int4-weights", {"minimum_deployment_target": "iOS18"}, 4, False, 12.0),
        ("int4-weights", {"minimum_deployment_target": "iOS18", "palettize": 6, "asked": "auto"},
         4, False, 12.0),
    ],
)  # fmt: skip
def test_a_table_is_for_the_precision_of_as_many_bits(
    tmp_path: Path, precision: config.Precision, said: dict[str, Any], bits: int, palettize: bool,
    goal: float,
) -> None:  # fmt: skip
    made = job(tmp_path, precision, **said)
    coreml.package(made)
    found = recorder(made).arguments("coreml_weights")
    assert found["scheme"] == {
        "bits": bits, "palettize": palettize, "symmetric": True, "block_size": 32,
    }  # fmt: skip
    assert found["goal"] == goal


@pytest.mark.parametrize(
    ("precision", "said", "least"),
    [
        ("int4-weights", {}, "iOS18"),
        (
            "int4-weights",
            {"minimum_deployment_target": "iOS17", "palettize": 8, "asked": "auto"},
            "iOS18",
        ),
        ("int8-weights", {"minimum_deployment_target": "iOS15"}, "iOS16"),
        ("int4-weights", {"minimum_deployment_target": "iOS15", "palettize": 4}, "iOS16"),
    ],
)
def test_what_the_oldest_system_does_not_load_is_refused(
    tmp_path: Path, precision: config.Precision, said: dict[str, Any], least: str
) -> None:
    made = job(tmp_path, precision, **said)
    with pytest.raises(errors.ModelRefused, match=f"{precision} needs {least}") as caught:
        coreml.package(made)
    assert f"minimum_deployment_target = '{least}'" in caught.value.remedy
    assert "in [targets.coreml.coreml] of edge.toml" in caught.value.remedy
    assert ("palettize = 4" in caught.value.remedy) == (least == "iOS18")
    assert recorder(made).names == []


@pytest.mark.parametrize(
    ("precision", "table", "fits", "other"),
    [
        ("int8-weights", 4, "palettize = 8 or 6", "int4-weights"),
        ("int4-weights", 6, "palettize = 4", "int8-weights"),
        ("int4-weights", 8, "palettize = 4", "int8-weights"),
    ],
)
def test_a_table_that_contradicts_the_precision_is_refused(
    tmp_path: Path, precision: config.Precision, table: int, fits: str, other: str
) -> None:
    made = job(tmp_path, precision, palettize=table)
    with pytest.raises(errors.ConfigError, match=f"palettize = {table} is for {other}") as caught:
        coreml.package(made)
    assert f"write {fits} in" in caught.value.remedy
    assert f"ask for {other}" in caught.value.remedy
    assert recorder(made).names == []


@pytest.mark.parametrize(
    ("precision", "asked", "warned"),
    [("fp16", "fp16", True), ("source", "source", True), ("fp16", "auto", False),
     ("int8-weights", "int8-weights", False)],
)  # fmt: skip
def test_a_table_without_effect_is_told(
    tmp_path: Path, precision: config.Precision, asked: str, warned: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    coreml.package(job(tmp_path, precision, palettize=6, asked=asked))
    said = "coreml/m: palettize = 6 is for int8-weights, and has no effect"
    assert (said in capsys.readouterr().err) == warned


def test_the_extra_brings_the_release_of_the_target() -> None:
    text = Path(coreml.__file__).parents[2].joinpath("pyproject.toml").read_text()
    extra = tomllib.loads(text)["project"]["optional-dependencies"]["coreml"]
    assert extra == [f"coremltools=={fake_job.target('coreml').runtime.version}"]


def test_another_release_than_the_installed_one_is_refused(tmp_path: Path) -> None:
    made = job(tmp_path)
    other = made.target.runtime.model_copy(update={"version": "8.3"})
    wanted = replace(made, target=made.target.model_copy(update={"runtime": other}))
    with pytest.raises(errors.ToolMissing, match=r"for coremltools 8\.3, and .* is installed"):
        coreml.package(wanted)


def test_the_manifest_says_what_keeps_single_precision_and_which_systems(tmp_path: Path) -> None:
    facts = coreml.manifest_facts(job(tmp_path, "int8-weights", minimum_deployment_target="iOS17"))
    assert facts["fp32_operations"] == ["pow"]
    assert facts["why_fp32"] == "pow overflows in half precision"
    assert facts["requires"] == {"os": "ios", "arch": "arm64", "version": "17.0"}
    assert facts["systems"] == {"iOS": "17.0", "macOS": "14.0"}
    assert facts["io"] == {"inputs": ["in"], "outputs": ["out"]}
    assert (facts["compression"], facts["weights"]) == ("linear", {"8": 3})
    assert facts["given_back"] == ["grouped"]
    plain = coreml.manifest_facts(job(tmp_path, "source"))
    assert plain["compute_precision"] == "fp32"
    assert "fp32_operations" not in plain


def stored(folder: Path) -> Result:
    """A step's result with a package and a file beside it."""
    files = {}
    for name in ("Data/a.mlmodel", "Data/weights/w.bin", "Manifest.json"):
        path = folder / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        files[f"{PACKAGE}/{name}"] = File(path, *hash_file(path))
    return Result("s", "k", {}, folder, {**files, "other.txt": File(folder, "o", 1)}, {})


def test_a_package_is_one_file_with_companions_and_a_folder_of_a_bundle(tmp_path: Path) -> None:
    file = coreml.package_file(stored(tmp_path))
    assert [name for name, _ in file.companions] == ["Data/a.mlmodel", "Data/weights/w.bin"]
    assert bundle.artifact_name(file) == PACKAGE
    found = {each.path: each.source.path.read_text() for each in artifact_files(file)}
    assert found == {
        f"{PACKAGE}/{name}": name
        for name in ("Data/a.mlmodel", "Data/weights/w.bin", "Manifest.json")
    }
    assert {each.role for each in artifact_files(file)} == {"artifact"}


def test_other_artifacts_lie_at_the_top_of_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("b")
    file = File(tmp_path / "model.xml", "x", 1, (("model.bin", "b"),))
    assert bundle.artifact_name(file) == "model.xml"
    assert [each.path for each in artifact_files(file)] == ["model.xml", "model.bin"]


def test_activations_of_8_bits_are_refused_with_the_reason() -> None:
    target = fake_job.target("coreml")
    assert "on a Mac alone" in target.why_broken("int8")
    assert target.why_broken("int8-dynamic")
    recipe = Registry(Path("/nonexistent")).recipe("coreml")
    assert all(recipe.why_not(each) for each in ("int8", "int8-dynamic"))
    assert not [each for each in recipe.precisions if target.why_broken(each)]
