"""Steps: what goes into a key, and which steps a changed tool concerns."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from edge import errors
from edge.job import PENDING, Steps
from edge.step import Facts, step
from edge.store import Store, as_file


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
