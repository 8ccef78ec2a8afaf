"""Steps: what goes into a key, and which steps a changed tool concerns."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from edge import errors
from edge.job import PENDING, Making, Steps, tool_versions
from edge.process import Environment
from edge.step import Facts, step
from edge.store import File, Store, as_file


@step(version=1, tools=("onnxslim",), isolated=False)
def slim(out: Path, *, model: Path, level: int) -> Facts:
    (out / "m").write_bytes(model.read_bytes() * level)
    return {"level": level}


@step(version=1, tools=("onnxruntime",), isolated=False)
def run(out: Path, *, model: Path) -> Facts:
    (out / "r").write_bytes(model.read_bytes())
    return {}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"abc")
    return path


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(Store(tmp_path / "store"), lambda _release: None)


def chain(steps: Steps, source: Path, level: int = 1) -> list[str]:
    """The names of the steps that were made."""
    made = len(steps.made)
    slimmed = steps.run(slim, {"model": as_file(source), "level": level})
    steps.run(run, {"model": slimmed.file("m")})
    return [result.step for result in steps.made[made:]]


def test_nothing_is_made_twice(steps: Steps, source: Path) -> None:
    assert chain(steps, source) == ["slim", "run"]
    assert chain(steps, source) == []
    assert len(steps.used) == 4


def test_a_new_tool_version_concerns_the_steps_that_use_it(
    steps: Steps, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(steps, source)

    def newer(tool: str) -> None:
        known = "edge.job.version"
        monkeypatch.setattr(known, lambda name: "99" if name == tool else version(name))

    newer("onnxslim")
    # What it makes is the same, so what depends on it is not made again.
    assert chain(steps, source) == ["slim"]
    newer("onnxruntime")
    assert chain(steps, source) == ["run"]


def test_a_changed_byte_or_parameter_is_made_again(steps: Steps, source: Path) -> None:
    chain(steps, source)
    assert chain(steps, source, level=2) == ["slim", "run"]
    source.write_bytes(b"abd")
    assert chain(steps, source) == ["slim", "run"]


def test_another_name_or_time_of_the_same_content_is_not(
    steps: Steps, source: Path, tmp_path: Path
) -> None:
    chain(steps, source)
    other = tmp_path / "other name"
    other.write_bytes(b"abc")
    assert chain(steps, other) == []


def test_the_pinned_release_goes_into_the_key(steps: Steps, source: Path) -> None:
    seen: list[str] = []

    def overlay(release: str) -> Path | None:
        seen.append(release)
        return None

    pinned = Steps(steps.store, overlay)
    pinned.run(run, {"model": as_file(source)}, ort="1.19.2")
    assert seen == ["1.19.2"]
    assert pinned.made[0].ingredients["tools"] == {"onnxruntime": "1.19.2"}


def test_a_dry_run_makes_nothing_and_what_depends_is_pending(steps: Steps, source: Path) -> None:
    dry = Steps(steps.store, lambda _release: pytest.fail("fetched"), dry=True)
    assert chain(dry, source) == []
    first, second = dry.used
    assert first.key == second.key == PENDING
    assert second.ingredients["inputs"]["model"]["sha256"] == PENDING


def test_a_damaged_result_is_made_again(
    steps: Steps, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain(steps, source)
    steps.made[0].files["m"].path.unlink()
    assert chain(steps, source) == ["slim"]
    assert "is made again" in capsys.readouterr().err


def test_a_file_that_changes_while_it_is_read_is_not_stored(steps: Steps, source: Path) -> None:
    @step(version=1, isolated=False)
    def slow(out: Path, *, model: Path) -> Facts:
        model.write_bytes(b"someone saves it again")
        (out / "m").write_bytes(model.read_bytes())
        return {}

    with pytest.raises(errors.StepFailed, match="changed while it was used"):
        steps.run(slow, {"model": as_file(source)})
    assert list(steps.store.root.glob("objects/*/*")) == []


def test_a_missing_package_is_a_missing_tool(steps: Steps, source: Path) -> None:
    @step(version=1, tools=("no-such-distribution",), isolated=False)
    def needs(out: Path, *, model: Path) -> Facts:
        return {}

    with pytest.raises(errors.ToolMissing, match="no-such-distribution") as caught:
        steps.run(needs, {"model": as_file(source)})
    assert caught.value.remedy == "pip install no-such-distribution"


def test_paths_are_inputs_and_the_rest_is_parameters(steps: Steps, source: Path) -> None:
    made: dict[str, Any] = dict(steps.run(slim, {"model": as_file(source), "level": 3}).ingredients)
    assert made["parameters"] == {"level": 3}
    assert list(made["inputs"]) == ["model"]
    assert made["tools"].keys() == {"onnxslim"}


# --------------------------------------------------------------------- results that are alike
@step(version=1, tools=("onnxslim",), isolated=False, aside=("where",))
def compiled(
    out: Path, *, config: Path, source: Path, flags: list[str], where: str, **more: Path
) -> Facts:
    (out / "library").write_bytes(config.read_bytes() + source.read_bytes())
    return {"where": where}


def given(
    folder: Path, config: bytes = b"c", source: bytes = b"s", **others: Any
) -> dict[str, Any]:
    paths = {"config": config, "source": source}
    for name, data in paths.items():
        (folder / name).write_bytes(data)
    files = {name: as_file(folder / name) for name in paths}
    # With what it refers to, as an index has it.
    files["source"] = File(
        files["source"].path, files["source"].sha256, 1, (("source", files["source"].sha256),)
    )
    return {**files, "flags": ("-O3",), "where": "here", **others}


def alike(steps: Steps, arguments: dict[str, Any]) -> list[bytes]:
    found = steps.alike(compiled, arguments, but="config")
    return sorted(result.file("library").path.read_bytes() for result in found)


def test_results_that_differ_in_one_input_are_alike(steps: Steps, tmp_path: Path) -> None:
    for config in (b"c", b"d", b"e"):
        steps.run(compiled, given(tmp_path, config))
    assert alike(steps, given(tmp_path, b"never made")) == [b"cs", b"ds", b"es"]
    assert alike(steps, given(tmp_path, b"c")) == [b"cs", b"ds", b"es"]


def test_a_difference_in_anything_else_is_none(
    steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.run(compiled, given(tmp_path))
    (tmp_path / "extra").write_bytes(b"x")
    assert alike(steps, given(tmp_path, source=b"t")) == []
    assert alike(steps, given(tmp_path, flags=("-Os",))) == []
    assert alike(steps, given(tmp_path, extra=as_file(tmp_path / "extra"))) == []
    assert alike(steps, given(tmp_path)) == [b"cs"]
    monkeypatch.setattr("edge.job.version", lambda _name: "99")
    assert alike(steps, given(tmp_path)) == []


def test_where_it_is_made_is_no_difference(steps: Steps, tmp_path: Path) -> None:
    first = steps.run(compiled, given(tmp_path))
    again = steps.run(compiled, given(tmp_path, where="there"))
    assert again.key == first.key
    assert again.facts == {"where": "here"}
    assert "where" not in first.ingredients["parameters"]
    assert alike(steps, given(tmp_path, b"d", where="there")) == [b"cs"]


def test_the_step_still_gets_what_is_aside(steps: Steps, tmp_path: Path) -> None:
    assert steps.run(compiled, given(tmp_path, where="there")).facts == {"where": "there"}


def test_a_runtime_is_built_only_where_that_was_asked_for() -> None:
    making = Making(planned=True, source=File(Path(PENDING), PENDING, 0))
    assert not making.reuse
    assert (making.dependencies, making.toolchain, making.where) == ({}, {}, {})


@step(version=1, isolated=False, aside=("options.trusted", "where"))
def careful(out: Path, *, options: dict[str, Any], where: str) -> Facts:
    del out
    return {"trusted": options["trusted"], "where": where}


def test_what_stands_aside_is_given_and_not_in_the_key(steps: Steps) -> None:
    first = steps.run(careful, {"options": {"trusted": True, "n": 1}, "where": "here"})
    assert first.facts == {"trusted": True, "where": "here"}
    again = steps.run(careful, {"options": {"trusted": False, "n": 1}, "where": "there"})
    assert again.key == first.key
    assert steps.run(careful, {"options": {"trusted": True, "n": 2}, "where": ""}).key != first.key


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        (("no-such-tool|numpy",), ["numpy"]),
        (("no-such-tool?", "numpy"), ["numpy"]),
        (("numpy|onnx",), ["numpy"]),
        (("no-such|nor-this?",), []),
    ],
)
def test_tools_may_have_other_names_or_be_left_out(
    tools: tuple[str, ...], found: list[str]
) -> None:
    assert list(tool_versions(tools, {})) == found


def test_a_missing_tool_names_the_extra_that_brings_it() -> None:
    with pytest.raises(errors.ToolMissing, match="the Python package no-such-tool") as caught:
        tool_versions(("no-such-tool|nor-this",), {}, "torch")
    assert caught.value.remedy == "pip install 'edgewright[torch]'"


def test_an_environments_versions_are_the_key(steps: Steps, tmp_path: Path) -> None:
    """All of them: what a converter imports is not known beforehand."""
    there = Environment(tmp_path / "python", tmp_path, {"numpy": "1.0", "x": "2"})
    dry = Steps(steps.store, steps.overlay, dry=True)
    found = dry.run(careful, {"options": {}, "where": ""}, environment=there)
    assert found.ingredients["tools"] == {"numpy": "1.0", "x": "2"}
