"""Proofs of a built runtime, with the release's full library in its place and real runners."""

from __future__ import annotations

import platform as host
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edge import errors, parity, process, samples
from edge.closure import ort_format as reader
from edge.config import ProjectFile
from edge.convert import ort_format
from edge.convert.compile_runner import compile_runner
from edge.convert.measure_parity import measure_parity
from edge.convert.prove_runtime import CANDIDATES, OUTSIDER, outsider, refuses, run_with_library
from edge.registry import Registry
from edge.store import Store
from edge.tools.fetch import fetch
from tests import models

pytestmark = pytest.mark.process
PLATFORM = "linux-x64"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, download_store: Store) -> Path:
    """The full library that the target linux-x64 pins, under its own name."""
    if (host.system(), host.machine()) != ("Linux", "x86_64"):
        pytest.skip("the pinned library is for Linux on x86-64")
    (pin,) = Registry(Path("/nonexistent")).target(PLATFORM, ProjectFile(), "tests").runtime.files
    path = tmp_path_factory.mktemp("library") / pin.path.rpartition("/")[2]
    path.symlink_to(fetch(download_store, pin).path)
    return path


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory, ort_header: Path) -> Path:
    """The C runner for this machine."""
    out = tmp_path_factory.mktemp("runner")
    source = process.PACKAGE_PARENT / "templates" / "runner" / "edge_runner.c"
    triple = "x86_64-linux-gnu.2.17"
    compile_runner.function(out, source=source, header=ort_header, triple=triple)
    return out / "edge_runner"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small MLP in ORT format."""
    folder = tmp_path_factory.mktemp("model")
    models.save(models.mlp(), folder / "mlp.onnx")
    convert(folder / "mlp.onnx", folder)
    return folder / "model.ort"


def convert(path: Path, out: Path, level: str = "all") -> None:
    options = {"style": "Fixed", "target_platform": "arm", "level": level}
    ort_format.ort_format.function(out, model=path, **options)


@pytest.fixture
def golden(tmp_path: Path, model: Path) -> Path:
    """The index of two samples with onnxruntime's own outputs."""
    session = onnxruntime.InferenceSession(str(model.with_name("mlp.onnx")))
    cases = [{"x": np.full((size, 4), 0.5, np.float32)} for size in (1, 3)]
    outputs: list[Any] = [session.run(["y"], case) for case in cases]
    pairs = [(case, {"y": y}) for case, (y,) in zip(cases, outputs, strict=True)]
    samples.write(tmp_path / "golden", pairs)
    return tmp_path / "golden" / samples.INDEX


def script(folder: Path, text: str) -> Path:
    """A runner that is a script."""
    (folder / "runner").write_text(f"#!/bin/sh\n{text}\n")
    return folder / "runner"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The step's folder; nothing may be left beside it."""
    folder = tmp_path / "store" / "out"
    folder.mkdir(parents=True)
    return folder


# --------------------------------------------------------------------------- the golden outputs
@pytest.fixture
def parts(library: Path, runner: Path, model: Path, golden: Path) -> dict[str, Path]:
    """What the step takes."""
    return {"library": library, "runner": runner, "model": model, "golden": golden}


def ran(out: Path, parts: dict[str, Path], **others: Path) -> dict[str, Any]:
    try:
        facts = run_with_library.function(out, **{**parts, **others}, platform=PLATFORM)
    finally:
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert facts is not None
    return facts


def held(out: Path, golden: Path) -> dict[str, Any]:
    limits = asdict(parity.Tolerance(max_abs=1e-4, max_rel=1e-3))
    index = out / samples.INDEX
    facts = measure_parity.function(out, actual=index, golden=golden, tolerance=limits)
    assert facts is not None
    return facts


def test_a_library_computes_the_golden_outputs(out: Path, parts: dict[str, Path]) -> None:
    facts = ran(out, parts)
    assert facts == {"runtime": onnxruntime.__version__, "by": "native"}
    good = held(out, parts["golden"])
    assert good["reasons"] == []
    assert [(each["sample"], each["name"]) for each in good["outputs"]] == [(0, "y"), (1, "y")]
    # Golden outputs that it does not compute:
    wrong = parts["golden"].parent / "001.output.0.bin"
    wrong.write_bytes(np.full(9, 7.5, np.float32).tobytes())
    reasons = held(out, parts["golden"])["reasons"]
    assert reasons
    assert all(reason.startswith("sample 1, output 'y': ") for reason in reasons)


def test_the_same_run_leaves_the_same_bytes(out: Path, parts: dict[str, Path]) -> None:
    ran(out, parts)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    shutil.rmtree(out)
    out.mkdir()
    ran(out, parts)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first


def test_what_is_no_library_is_told_in_the_loaders_words(
    out: Path, parts: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "libonnxruntime.so.1").write_bytes(b"no library")
    with pytest.raises(errors.RunFailed, match=r"the runner failed.*(invalid|short|header)"):
        ran(out, parts, library=tmp_path / "libonnxruntime.so.1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kill -SEGV $$", r"the runner ended with signal 11 \(SIGSEGV\): it said nothing"),
        ("echo one >&2; echo two >&2; exit 3", "the runner ended with exit code 3: one\ntwo"),
        ("echo '{\"event\": \"env\"}'; kill -ABRT $$", r"ended with signal 6 \(SIGABRT\)"),
        ('echo \'{"event": "error", "stage": "load", "message": "no kernel"}\'; exit 1',
         r"\(load\): no kernel"),
        ("echo chatter", "the runner's output is wrong: no event: chatter"),
    ],
)  # fmt: skip
def test_a_runner_that_fails(out: Path, parts: dict[str, Path], text: str, said: str) -> None:
    with pytest.raises(errors.RunFailed, match=said):
        ran(out, parts, runner=script(parts["golden"].parent, text))
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "the runner left no file of the output 'y'"),
        (7, "the runner said that all went well, and ended with exit code 7"),
    ],
)
def test_a_runner_that_says_it_ran(
    out: Path, parts: dict[str, Path], tmp_path: Path, code: int, said: str
) -> None:
    log = tmp_path / "log"
    ran(out, parts, runner=script(tmp_path, f'{parts["runner"]} "$@" | tee {log}'))
    with pytest.raises(errors.RunFailed, match=said):
        ran(out, parts, runner=script(tmp_path, f"cat {log}; exit {code}"))


# ------------------------------------------------------------------------ what it must refuse
def config(folder: Path, *names: str) -> Path:
    path = folder / "required_operators_and_types.config"
    path.write_text(f"ai.onnx;18;{','.join(names)}\n" if names else "# none\n")
    return path


def test_an_outsider_is_an_operator_that_the_configuration_lacks(out: Path, tmp_path: Path) -> None:
    facts = outsider.function(out, config=config(tmp_path, *CANDIDATES[:3], "Relu"))
    assert facts == {"operator": CANDIDATES[3]}
    (node,) = reader.read(out / OUTSIDER).nodes
    assert (node.domain, node.operator) == ("ai.onnx", CANDIDATES[3])
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("operator", CANDIDATES)
def test_every_candidate_stays_itself_and_has_a_kernel(
    out: Path, tmp_path: Path, operator: str
) -> None:
    others = [name for name in CANDIDATES if name != operator]
    assert outsider.function(out, config=config(tmp_path, *others)) == {"operator": operator}
    assert [node.operator for node in reader.read(out / OUTSIDER).nodes] == [operator]
    session = onnxruntime.InferenceSession(str(out / OUTSIDER))
    session.run(None, {"x": np.full((3, 3), 0.5, np.float32)})


@pytest.mark.parametrize("text", ["", "!no_ops_specified_means_all_ops_are_required\n"])
def test_a_configuration_that_lacks_nothing(out: Path, tmp_path: Path, text: str) -> None:
    whole = config(tmp_path, *CANDIDATES)
    whole.write_text(text or whole.read_text())
    with pytest.raises(errors.StepFailed, match="no operator is known that required_op") as caught:
        outsider.function(out, config=whole)
    assert "--runtime prebuilt" in caught.value.remedy


def refused(out: Path, library: Path, runner: Path, model: Path, operator: str) -> dict[str, Any]:
    given = {"library": library, "runner": runner, "model": model, "operator": operator}
    try:
        facts = refuses.function(out, **given, platform=PLATFORM)
    finally:
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert facts is not None
    return facts


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    (tmp_path / "made").mkdir()
    outsider.function(tmp_path / "made", config=config(tmp_path, "Erf", "Elu", "Softsign", "Celu"))
    return tmp_path / "made" / OUTSIDER


def test_the_full_library_refuses_nothing(
    out: Path, library: Path, runner: Path, stranger: Path
) -> None:
    with pytest.raises(errors.ClosureIncomplete, match="said: nothing, and ran it") as caught:
        refused(out, library, runner, stranger, "Tan")
    assert caught.value.exit_code == 1
    assert "should refuse a model with Tan" in caught.value.message


def test_a_model_that_no_library_has_kernels_for_is_refused_by_name(
    out: Path, library: Path, runner: Path, stranger: Path
) -> None:
    """The full library in a reduced one's place: it has no operator of that name either."""
    data = stranger.read_bytes()
    assert data.count(b"\3\0\0\0Tan\0") == 1
    stranger.write_bytes(data.replace(b"\3\0\0\0Tan\0", b"\3\0\0\0Tau\0"))
    facts = refused(out, library, runner, stranger, "Tau")
    assert facts["operator"] == "Tau"
    assert "Tau" in facts["said"]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Could not find an implementation for Tan(7) node with name ''", True),
        ("Failed to find kernel for Tan", True),
        ("Could not find an implementation for Tanh(7)", False),
        ("the file is damaged", False),
    ],
)
def test_a_refusal_must_name_the_operator(
    out: Path, library: Path, stranger: Path, tmp_path: Path, text: str, good: bool
) -> None:
    event = f'{{"event": "error", "stage": "load", "message": "{text}"}}'
    (tmp_path / "event").write_text(event + "\n")
    runner = script(tmp_path, f"cat {tmp_path / 'event'}; exit 1")
    if good:
        assert text in refused(out, library, runner, stranger, "Tan")["said"]
        return
    with pytest.raises(errors.ClosureIncomplete, match="name that operator; it said: "):
        refused(out, library, runner, stranger, "Tan")


def test_a_crash_without_a_name_is_no_refusal(
    out: Path, library: Path, stranger: Path, tmp_path: Path
) -> None:
    with pytest.raises(errors.ClosureIncomplete, match=r"it said: .*SIGSEGV"):
        refused(out, library, script(tmp_path, "kill -SEGV $$"), stranger, "Tan")
    # Without exceptions the runtime says why on standard error and ends the process.
    runner = script(tmp_path, "echo 'no kernel for Tan(7)' >&2; kill -ABRT $$")
    assert "SIGABRT" in refused(out, library, runner, stranger, "Tan")["said"]
