"""The C runner in a bundle: which files, which of them can be run, and of which target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge import errors, process
from edge.convert import compile_runner
from edge.convert.runner_files import runner_files
from edge.store import File
from tests.convert import fake_job


@pytest.mark.parametrize("name", ["linux-x64", "linux-arm64-reduced", "win-x64", "openvino-arm64"])
def test_the_binary_and_its_source_are_in_the_bundle(tmp_path: Path, name: str) -> None:
    steps, target = fake_job.recorder(tmp_path), fake_job.target(name)
    found = runner_files(fake_job.job(steps, target))
    assert target.runner is not None
    given = steps.arguments("compile_runner")
    assert given["triple"] == target.runner.triple
    assert given["backend"] == ("openvino" if "openvino" in name else "onnxruntime")
    assert given["header"].sha256 == target.runner.header.sha256
    assert given["source"].path == Path("runner/edge_runner.c")
    names = compile_runner.sources(given["triple"], given["backend"])
    binary = "edge_runner.exe" if name == "win-x64" else "edge_runner"
    told = [(file.path, file.role, file.executable) for file in found.files]
    assert told == [
        (f"runner/{binary}", "runner", True),
        *((f"runner/{each}", "runner", False) for each in names),
    ]
    assert found.files[0].source == found.binary
    # What the key is made of: all sources, the main one with the others beside it.
    beside = {name for name, _ in given["source"].companions}
    assert beside == set(names) - {"edge_runner.c"}


def test_sources_are_those_of_one_system_and_one_runtime() -> None:
    linux = compile_runner.sources("x86_64-linux-gnu.2.17", "onnxruntime")
    windows = compile_runner.sources("x86_64-windows-gnu", "openvino")
    assert {"edge_posix.c", "edge_onnxruntime.c"} < set(linux)
    assert {"edge_windows.c", "edge_openvino.c"} < set(windows)
    folder = process.PACKAGE_PARENT / "templates" / "runner"
    every = {path.name for path in folder.iterdir() if path.suffix in (".c", ".h")}
    assert set(linux) | set(windows) == every


def test_sources_that_lie_apart_are_refused(tmp_path: Path) -> None:
    made = fake_job.job(fake_job.recorder(tmp_path), fake_job.target("linux-x64"))

    def template(name: str) -> File:
        own = name == "runner/edge_lines.c"
        return File(Path("user" if own else "product") / name, f"sha256 of {name}", 1)

    with pytest.raises(errors.ConfigError, match=r"edge_lines\.c does not lie beside"):
        runner_files(replace(made, template=template))


def test_a_runtime_without_a_c_runner_is_said(tmp_path: Path) -> None:
    runner = fake_job.target("linux-x64").runner
    target = fake_job.target("tensorrt-rtx", runner=runner)
    with pytest.raises(errors.ConfigError, match="no C runner for tensorrt-rtx"):
        runner_files(fake_job.job(fake_job.recorder(tmp_path), target))


def test_a_target_without_a_runner_is_said_with_its_recipe(tmp_path: Path) -> None:
    target = fake_job.target("linux-x64", runner=None)
    with pytest.raises(errors.ConfigError) as caught:
        runner_files(fake_job.job(fake_job.recorder(tmp_path), target))
    assert caught.value.message == "target linux-x64: the recipe linux needs [runner]"
