"""TOML files: what is wrong is said with file, key path and the nearest known key."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import config, errors

PROJECT = {"model": {"source": "m.onnx"}}


def project(data: dict[str, Any]) -> config.ProjectFile:
    return config.check(config.ProjectFile, data, "edge.toml")


def test_an_unknown_key_names_file_path_and_neighbour() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        project({"model": {"source": "m.onnx", "verison": "1"}})
    assert caught.value.message == "edge.toml: unknown key model.verison"
    assert caught.value.remedy == "did you mean 'version'?"
    assert caught.value.exit_code == 2


def test_an_unknown_key_below_a_free_name_is_found_too() -> None:
    data = {"model": {"source": "m.onnx", "inputs": {"x": {"shap": [1]}}}}
    with pytest.raises(errors.ConfigError, match=r"unknown key model\.inputs\.x\.shap") as caught:
        project(data)
    assert caught.value.remedy == "did you mean 'shape'?"


def test_every_fault_is_said_at_once() -> None:
    with pytest.raises(errors.ConfigError, match=r"bench\.threads.*unknown key defalts"):
        project({**PROJECT, "bench": {"threads": 0}, "defalts": {}})


def test_model_and_models_are_one_or_the_other() -> None:
    with pytest.raises(errors.ConfigError, match="not both"):
        project({**PROJECT, "models": {"a": {"source": "a.onnx"}}})


def test_a_models_table_is_named_by_its_key() -> None:
    found = project({"models": {"a": {"source": "1"}, "b": {"source": "2"}}}).all_models()
    assert [spec.name for spec in found] == ["a", "b"]


def test_a_range_must_be_ordered() -> None:
    with pytest.raises(errors.ConfigError, match="low <= high"):
        config.check(config.InputSpec, {"range": [1, 0]}, "x")


@pytest.mark.parametrize("name", ["../up", "a/b", "", "-x", "a" * 65])
def test_names_that_would_be_paths_are_refused(name: str) -> None:
    with pytest.raises(errors.ConfigError):
        project({"model": {"source": "m.onnx", "name": name}})


def test_a_pin_without_a_hash_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="sha256 is missing"):
        config.check(config.Pin, {"package": "npm:x@1"}, "pin")


def test_broken_toml_says_the_line(tmp_path: Path) -> None:
    path = tmp_path / "edge.toml"
    path.write_text("[model\n")
    with pytest.raises(errors.ConfigError, match=r"edge\.toml is not valid TOML.*line 1"):
        config.read_project(path)


def test_overrides_are_laid_on_table_by_table() -> None:
    base = {"a": {"x": 1, "y": 2}, "b": [1, 2]}
    merged = config.merge(base, {"a": {"y": 3}, "b": [9]})
    assert merged == {"a": {"x": 1, "y": 3}, "b": [9]}


def test_a_wrong_override_names_the_project(tmp_path: Path) -> None:
    path = Path(__file__).parent.parent / "targets" / "ios.toml"
    with pytest.raises(errors.ConfigError, match=r"edge\.toml \[targets\.ios\] over .*max_ab"):
        config.read_target(path, {"tolerance": {"max_ab": 1}}, "edge.toml")


TARGETS = Path(__file__).parent.parent / "targets"


@pytest.mark.parametrize(
    ("target", "table"),
    [
        ("linux-x64", "tensorrt"),
        ("linux-x64", "cuda"),
        ("android", "openvino"),
        ("browser", "coreml"),
        ("win-x64-directml", "cuda"),
        ("cuda", "tensorrt"),
        ("openvino-x64", "coreml"),
        ("tensorrt", "openvino"),
        ("coreml", "tensorrt"),
    ],
)
def test_a_table_of_an_engine_that_a_target_does_not_have_is_refused(
    target: str, table: str
) -> None:
    path = TARGETS / f"{target}.toml"
    with pytest.raises(errors.ConfigError, match=rf"\[{table}\] is not read") as caught:
        config.read_target(path, {table: {}}, "edge.toml")
    assert f"[targets.{target}]" in caught.value.message


@pytest.mark.parametrize(
    ("target", "table"),
    [
        ("tensorrt", "cuda"),
        ("tensorrt-rtx", "cuda"),
        ("tensorrt-plan", "tensorrt"),
        ("openvino-ort-x64", "openvino"),
        ("ios", "coreml"),
        ("coreml", "coreml"),
    ],
)
def test_a_table_of_an_engine_that_it_has_is_read(target: str, table: str) -> None:
    assert config.read_target(TARGETS / f"{target}.toml", {table: {}}, "edge.toml").name == target


def test_this_machine_is_always_a_device(tmp_path: Path) -> None:
    assert config.read_devices(tmp_path / "devices.toml")["local"].kind == "local"


def test_an_ssh_device_needs_a_host(tmp_path: Path) -> None:
    path = tmp_path / "devices.toml"
    path.write_text('[devices.pi]\nkind = "ssh"\n')
    with pytest.raises(errors.ConfigError, match="needs host"):
        config.read_devices(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('phone = "Jo"', "phone needs team"),
        ('team = "ab12cd34ef"', "team"),
        ('team = "A;B"', "team"),
    ],
)
def test_a_phone_needs_the_team_that_signs_its_app(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "devices.toml"
    path.write_text(f'[devices.mac]\nkind = "local"\n{line}\n')
    with pytest.raises(errors.ConfigError, match=said):
        config.read_devices(path)


@given(st.text())
def test_a_slug_is_always_a_name(text: str) -> None:
    spec = config.check(config.ModelSpec, {"source": "x", "name": config.slug(text)}, "x")
    assert spec.name


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_config_error_or_a_project(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("toml") / "edge.toml"
    path.write_bytes(data)
    with contextlib.suppress(errors.ConfigError):
        config.read_project(path)


def test_schemas_are_those_of_the_models() -> None:
    schema = config.SCHEMAS["target"].model_json_schema()
    assert schema["additionalProperties"] is False
    assert "tolerance" in schema["properties"]


@pytest.mark.parametrize(
    "data",
    [
        {"bench": {"min_seconds": float("inf")}},
        {"model": {"source": "m", "inputs": {"x": {"constant": float("nan")}}}},
        {"model": {"source": "m", "dims": {"n": True}}},
        {"model": {"source": "m", "dims": {"n": 2.0}}},
    ],
)
def test_numbers_that_are_none_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        project(data)


def test_a_targets_name_is_its_files(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('name = "ios"\n')
    with pytest.raises(errors.ConfigError, match="name is the file's name, own"):
        config.read_target(path, {}, "edge.toml")
