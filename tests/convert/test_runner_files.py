"""The C runner in a bundle: which files, which of them can be run, and of which target."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import errors
from edge.convert.runner_files import runner_files
from tests.convert import fake_job


@pytest.mark.parametrize("name", ["linux-x64", "linux-arm64-reduced"])
def test_the_binary_and_its_source_are_in_the_bundle(tmp_path: Path, name: str) -> None:
    steps, target = fake_job.recorder(tmp_path), fake_job.target(name)
    found = runner_files(fake_job.job(steps, target))
    assert target.runner is not None
    given = steps.arguments("compile_runner")
    assert given["triple"] == target.runner.triple
    assert given["header"].sha256 == target.runner.header.sha256
    assert given["source"].path == Path("runner/edge_runner.c")
    told = [(file.path, file.role, file.executable) for file in found.files]
    assert told == [
        ("runner/edge_runner", "runner", True),
        ("runner/edge_runner.c", "runner", False),
    ]
    assert found.files[0].source == found.binary
    assert found.files[1].source == given["source"]


def test_a_target_without_a_runner_is_said_with_its_recipe(tmp_path: Path) -> None:
    target = fake_job.target("linux-x64", runner=None)
    with pytest.raises(errors.ConfigError) as caught:
        runner_files(fake_job.job(fake_job.recorder(tmp_path), target))
    assert caught.value.message == "target linux-x64: the recipe linux needs [runner]"
