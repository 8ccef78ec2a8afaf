"""The project and what the command line adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import errors, registry
from edge.project import Said, load, parse_dims, parse_setting


def write(folder: Path, text: str) -> Path:
    path = folder / "edge.toml"
    path.write_text(text)
    return path


TWO = '[models.a]\nsource = "a.onnx"\n[models.b]\nsource = "b.onnx"\ndims = {batch = 1}\n'


def test_a_model_needs_no_project_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = load(Path("edge.toml"), Said(model="sub/my model.onnx"))
    (spec,) = project.models
    assert spec.name == "my-model"
    assert spec.source == str(tmp_path / "sub" / "my model.onnx")


def test_neither_project_nor_model_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="no project file") as caught:
        load(tmp_path / "edge.toml", Said())
    assert "--model FILE.onnx" in caught.value.remedy


def test_a_project_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="names no model"):
        load(write(tmp_path, ""), Said())


def test_a_name_picks_one_of_several(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    assert load(path, Said()).only == ""
    chosen = load(path, Said(name="b"))
    # All models stay: the operator configuration is a union over them.
    assert [spec.name for spec in chosen.models] == ["a", "b"]
    assert chosen.only == "b"
    assert [folder.parts[-3] for folder in chosen.bundles("ios", "")] == ["b"]
    with pytest.raises(errors.UsageError, match="no model 'c'"):
        load(path, Said(name="c"))


def test_the_command_lines_dims_win(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    first, second = load(path, Said(name="b", dims={"batch": 4, "seq": 8})).models
    assert dict(second.dims) == {"batch": 4, "seq": 8}
    assert dict(first.dims) == {}


def test_all_targets_or_the_projects_defaults(tmp_path: Path) -> None:
    plain = load(write(tmp_path, '[model]\nsource = "m.onnx"\n'), Said())
    assert [target.name for target in plain.targets(["all"])] == [
        "android", "browser", "coreml", "cuda", "ios", "linux-arm64", "linux-x64", "openvino-arm64",
        "openvino-ort-x64", "openvino-x64", "tensorrt", "tensorrt-rtx", "win-x64",
        "win-x64-directml",
    ]  # fmt: skip
    assert [target.name for target in plain.targets(["ios,android", "ios"])] == ["ios", "android"]
    with pytest.raises(errors.UsageError, match="no target is named"):
        plain.targets([])
    text = '[model]\nsource = "m.onnx"\n[defaults]\ntargets = ["ios"]\n'
    chosen = load(write(tmp_path, text), Said())
    assert [target.name for target in chosen.targets([])] == ["ios"]
    assert [target.name for target in chosen.targets(["all"])] == ["ios"]


def test_all_leaves_out_what_an_extra_brings_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "has_tool", lambda name: name in ("zig", "npm"))
    plain = load(write(tmp_path, '[model]\nsource = "m.onnx"\n'), Said())
    assert [target.name for target in plain.targets(["all"])] == [
        "android", "browser", "cuda", "ios", "linux-arm64", "linux-x64", "tensorrt", "win-x64",
        "win-x64-directml",
    ]  # fmt: skip
    said = " ".join(capsys.readouterr().err.split())
    assert "openvino-arm64, openvino-ort-x64, openvino-x64 (pip install" in said
    assert "tensorrt-rtx (pip install 'edgewright[rtx]')" in said


def test_overrides_reach_the_target(tmp_path: Path) -> None:
    text = '[model]\nsource = "m.onnx"\n[targets.ios.tolerance]\nmax_abs = 0.5\n'
    (target,) = load(write(tmp_path, text), Said()).targets(["ios"])
    assert target.tolerance.max_abs == 0.5
    assert target.tolerance.max_rel == 1e-3


def test_an_unknown_device_gets_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "devices.toml").write_text('[devices.pi4]\nkind = "ssh"\nhost = "h"\n')
    project = load(write(tmp_path, '[model]\nsource = "m.onnx"\n'), Said())
    assert project.device("pi4").host == "h"
    with pytest.raises(errors.UsageError, match="unknown device 'pi'") as caught:
        project.device("pi")
    assert caught.value.remedy == "did you mean 'pi4'?"


def test_dims_of_the_command_line() -> None:
    assert parse_dims(["batch=1", "a=b=2"]) == {"batch": 1, "a=b": 2}
    for wrong in ("batch", "=1", "batch=", "batch=x", "batch=-1", "batch=1.5"):
        with pytest.raises(errors.UsageError, match="NAME=N"):
            parse_dims([wrong])


def test_everything_can_be_said_on_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    settings = (
        "models.a.inputs.x.shape=[1, 3]",
        'models.a.version="2.0"',
        "targets.ios.tolerance.max_abs=0.5",
        "bench.repeats = 7",
    )
    project = load(path, Said(name="a", settings=settings))
    spec, _ = project.models
    assert spec.inputs["x"].shape == (1, 3)
    assert project.targets(["ios"])[0].tolerance.max_abs == 0.5
    assert project.file.bench.repeats == 7


def test_a_setting_needs_no_project_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = Said(model="m.onnx", settings=("model.inputs.'a.b'.constant=3",))
    (spec,) = load(Path("edge.toml"), said).models
    assert spec.inputs["a.b"].constant == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a=plain word", {"a": "plain word"}),
        ("a = x = y", {"a": "x = y"}),
        ("a=", {"a": ""}),
    ],
)
def test_settings(text: str, value: object) -> None:
    assert parse_setting(text) == value


@pytest.mark.parametrize("text", ["a", "=1", " =1", "a..b=1", "a=1\nb=2", "a b=1"])
def test_what_is_no_setting(text: str) -> None:
    with pytest.raises(errors.UsageError, match="KEY=VALUE"):
        parse_setting(text)


def test_a_wrong_setting_is_said_like_a_wrong_key(tmp_path: Path) -> None:
    with pytest.raises(
        errors.ConfigError, match=r"with --set: unknown key bench\.repeat"
    ) as caught:
        load(write(tmp_path, TWO), Said(settings=("bench.repeat=1",)))
    assert caught.value.remedy == "did you mean 'repeats'?"


def test_two_targets_of_one_name_are_refused(tmp_path: Path) -> None:
    from edge.registry import product_root

    (tmp_path / "own").mkdir()
    own = tmp_path / "own" / "ios.toml"
    own.write_text((product_root() / "targets" / "ios.toml").read_text())
    project = load(write(tmp_path, TWO), Said())
    with pytest.raises(errors.UsageError, match="two of the targets are called ios"):
        project.targets(["ios", str(own)])


def test_a_named_project_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"no project file .*typo\.toml"):
        load(tmp_path / "typo.toml", Said(model="m.onnx"))


def test_new_weights_keep_what_the_project_says(tmp_path: Path) -> None:
    path = write(tmp_path, '[model]\nsource = "a.onnx"\nname = "prod"\ndims = {batch = 2}\n')
    (spec,) = load(path, Said(model="b:c.onnx")).models
    assert (spec.name, dict(spec.dims)) == ("prod", {"batch": 2})
    assert spec.source.endswith("/b:c.onnx")
