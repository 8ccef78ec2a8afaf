"""Builds by the real command line: what is made, what is made again, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge import bundle, process
from edge.store import Store
from tests import models
from tests.command import edge, start
from tests.support import NO_PACKAGE

pytestmark = pytest.mark.process

PROJECT = """
[model]
name = "mlp"
source = "mlp.onnx"
dims = {batch = 2}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "edge.toml").write_text(PROJECT + NO_PACKAGE)
    models.save(models.mlp(), folder / "mlp.onnx")
    return folder


def manifest(project: Path, target: str, output: str = "dist") -> dict[str, Any]:
    return bundle.verify(project / output / "mlp" / "0" / target)


def test_a_bundle_is_complete_and_proven(project: Path, store: Store) -> None:
    done = edge(project, store, "build", "-t", "android", "--json")
    assert done.code == 0, done.err
    made = manifest(project, "android")
    assert made["state"] == "built"
    assert {"artifact", "closure", "samples", "app", "plan"} <= {f["role"] for f in made["files"]}
    assert made["runtime"]["requires"] == {
        "os": "android",
        "api": "24",
        "abis": "arm64-v8a armeabi-v7a x86_64",
    }
    assert [stage["stage"] for stage in made["parity"]] == ["canonical", "model.ort"]
    assert [stage["runtime"] for stage in made["parity"]] == ["1.29.0", "1.29.0"]
    (row,) = done.json["bundles"]
    assert row["sizes"] == made["sizes"]
    assert (
        made["sizes"]["artifact"]["raw"]
        == (project / "dist/mlp/0/android/model.ort").stat().st_size
    )


def test_a_second_build_does_no_work_and_says_so(project: Path, store: Store) -> None:
    first = edge(project, store, "build", "-t", "ios,android")
    assert first.code == 0, first.err
    before = {p: p.stat().st_mtime_ns for p in (project / "dist").rglob("*")}
    second = edge(project, store, "build", "-t", "ios,android", "--json")
    assert second.code == 0
    assert second.steps == []
    assert [row["state"] for row in second.json["bundles"]] == ["unchanged", "unchanged"]
    assert "nothing to do" in second.err
    assert {p: p.stat().st_mtime_ns for p in (project / "dist").rglob("*")} == before


def test_two_folders_and_two_stores_give_the_same_bytes(
    project: Path, store: Store, tmp_path: Path
) -> None:
    other = tmp_path / "another" / "place"
    other.mkdir(parents=True)
    for name in ("edge.toml", "mlp.onnx"):
        (other / name).write_bytes((project / name).read_bytes())
    second = Store(store.root / "second")
    assert edge(project, store, "build", "-t", "android").code == 0
    (second.root / "ort").symlink_to(store.root / "ort")
    assert edge(other, second, "build", "-t", "android").code == 0
    files = [
        (folder / "dist/mlp/0/android/manifest.json").read_bytes() for folder in (project, other)
    ]
    assert files[0] == files[1]
    assert str(tmp_path).encode() not in files[0]


def change_one_weight(path: Path) -> None:
    data = bytearray(path.read_bytes())
    # The first weight's last byte: its exponent's sign and more, in the initializer "w".
    weight = models.mlp().graph.initializer[0].raw_data
    at = bytes(data).index(weight)
    data[at] ^= 1
    path.write_bytes(bytes(data))


def test_one_byte_of_the_weights_rebuilds_and_is_explained(project: Path, store: Store) -> None:
    assert edge(project, store, "build", "-t", "android").code == 0
    change_one_weight(project / "mlp.onnx")
    told = edge(project, store, "explain", "android", "--json").json[0]
    why = {step["step"]: step["why"] for step in told["steps"]}
    assert why["import_onnx"].startswith("input 'model': its content changed")
    assert why["ort_format"].startswith("input 'model' will be made again")
    again = edge(project, store, "build", "-t", "android")
    assert "mlp: import" in again.steps
    assert "android/mlp: ort_format" in again.steps
    assert edge(project, store, "explain", "android", "--json").json[0]["state"] == "up to date"


def test_external_data_is_part_of_the_key(project: Path, store: Store) -> None:
    models.save(models.mlp(), project / "mlp.onnx", external="weights.bin")
    assert edge(project, store, "build", "-t", "android").code == 0
    data = bytearray((project / "weights.bin").read_bytes())
    data[0] ^= 1
    (project / "weights.bin").write_bytes(bytes(data))
    told = edge(project, store, "explain", "android", "--json").json[0]
    why = {step["step"]: step["why"] for step in told["steps"]}
    assert why["import_onnx"] == "input 'model': weights.bin changed"
    assert "mlp: import" in edge(project, store, "build", "-t", "android").steps


def test_a_tolerance_rebuilds_the_verdict_alone(project: Path, store: Store) -> None:
    assert edge(project, store, "build", "-t", "android").code == 0
    (project / "edge.toml").write_text(PROJECT + "[targets.android.tolerance]\nmax_abs = 0.5\n")
    told = edge(project, store, "explain", "-t", "android")
    assert "tolerance.max_abs: 0.0001 -> 0.5" in told.err
    again = edge(project, store, "build", "-t", "android")
    # The verdict, and the app that asserts within it.
    assert set(again.steps) == {"android/mlp: measure_parity", "android/mlp: render_app"}


def test_outside_the_tolerance_is_exit_1_and_names_the_stage(project: Path, store: Store) -> None:
    """Fusing Magika's layers rounds otherwise: by 2e-9, which no tolerance of zero allows."""
    text = (process.PACKAGE_PARENT / "edge.toml").read_text()
    limits = "[targets.android.tolerance]\nmax_abs = 0\nmax_rel = 0\n"
    (project / "edge.toml").write_text(text + limits)
    done = edge(project, store, "build", "-t", "android", "--json")
    assert done.code == 1, done.err
    says = "the first stage that diverges is model.ort: sample 0, output 'target_label': max_abs"
    assert says in done.err
    assert not (project / "dist").exists()
    assert done.json["bundles"][0]["exit_code"] == 1


def test_a_budget_is_a_gate(project: Path, store: Store) -> None:
    (project / "edge.toml").write_text(PROJECT + "[targets.android.budget]\nartifact_bytes = 10\n")
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 1
    assert "artifact_bytes is" in done.err
    assert not (project / "dist").exists()


def test_the_closure_is_the_union_over_all_models(project: Path, store: Store) -> None:
    models.save(models.switched(), project / "switched.onnx")
    (project / "edge.toml").write_text(
        '[models.mlp]\nsource = "mlp.onnx"\ndims = {batch = 2}\n'
        '[models.switched]\nsource = "switched.onnx"\ndims = {n = 3}\n'
        "[models.switched.inputs.mode]\nconstant = 1\n"
    )
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 0, done.err
    configs = {
        (project / f"dist/{name}/0/android/required_operators_and_types.config").read_text()
        for name in ("mlp", "switched")
    }
    (text,) = configs
    assert "FusedGemm" in text
    assert "Add" in text


def test_every_bad_model_is_named(project: Path, store: Store) -> None:
    (project / "text.onnx").write_text("hello")
    models.save(models.stamped(opset=27), project / "new.onnx")
    (project / "edge.toml").write_text(
        '[models.first]\nsource = "text.onnx"\n[models.second]\nsource = "gone.onnx"\n'
        '[models.good]\nsource = "mlp.onnx"\ndims = {batch = 2}\n'
    )
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 2
    said = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert [line.split(":")[1].strip() for line in said] == ["model first", "model second"]


def test_one_of_several_models_keeps_the_closure_of_all(project: Path, store: Store) -> None:
    models.save(models.switched(), project / "switched.onnx")
    (project / "edge.toml").write_text(
        '[models.mlp]\nsource = "mlp.onnx"\ndims = {batch = 2}\n'
        '[models.switched]\nsource = "switched.onnx"\ndims = {n = 3}\n'
        "[models.switched.inputs.mode]\nconstant = 1\n"
    )
    done = edge(project, store, "build", "-t", "android", "--name", "mlp", "--json")
    assert [row["model"] for row in done.json["bundles"]] == ["mlp"]
    text = (project / "dist/mlp/0/android/required_operators_and_types.config").read_text()
    assert "Add" in text
    assert not (project / "dist/switched").exists()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda p: (p / "mlp.onnx").write_text("I am a text file\n"), "not an ONNX model"),
    "empty": (lambda p: (p / "mlp.onnx").write_bytes(b""), "not an ONNX model"),
    "truncated": (
        lambda p: (p / "mlp.onnx").write_bytes((p / "mlp.onnx").read_bytes()[:-30]),
        "not an ONNX model, or a truncated one",
    ),
    "external": (
        lambda p: models.with_external_location(
            models.mlp(), p / "mlp.onnx", "../../etc/passwd"
        ),
        "outside the model's folder",
    ),
    "missing external": (
        lambda p: models.with_external_location(models.mlp(), p / "mlp.onnx", "gone.bin"),
        "gone.bin is not beside mlp.onnx",
    ),
    "2 GB": (
        lambda p: models.with_large_external_data(p / "mlp.onnx"),
        "2 GB is what ONNX and ORT format files can hold",
    ),
    "opset": (
        lambda p: (p / "mlp.onnx").write_bytes(models.stamped(opset=99).SerializeToString()),
        "opset 99",
    ),
    "no file": (lambda p: (p / "mlp.onnx").unlink(), "is not there"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_model_is_one_clear_line_and_exit_2(project: Path, store: Store, case: str) -> None:
    spoil, says = BAD[case]
    spoil(project)
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 2, done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert says in line
    assert "Traceback" not in done.err
    assert not (project / "dist").exists()
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["build", "-t", "andriod"], "did you mean 'android'?"),
        (["build", "--tarhget", "x"], "No such option"),
        (["build"], "no target is named"),
        (["build", "-t", "android", "--dim", "batch"], "NAME=N"),
        (["build", "-t", "android", "-c", "none.toml"], "no project file"),
        (["schema", "targt"], "did you mean 'target'?"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_usage_is_exit_2(project: Path, store: Store, words: list[str], says: str) -> None:
    done = edge(project, store, *words)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_one_bad_target_does_not_stop_the_others(project: Path, store: Store) -> None:
    (project / "edge.toml").write_text(
        PROJECT + NO_PACKAGE + "[targets.ios.budget]\nartifact_bytes = 10\n"
    )
    done = edge(project, store, "build", "-t", "ios,android", "--json")
    assert done.code == 1
    states = {row["target"]: row["state"] for row in done.json["bundles"]}
    assert states == {"ios": "failed", "android": "built"}


def test_two_builds_at_once_share_the_store(project: Path, store: Store) -> None:
    started = [
        start(project, store, "build", "-t", "android", "-o", name) for name in ("one", "two")
    ]
    for child in started:
        child.communicate(timeout=200)
    assert [child.returncode for child in started] == [0, 0]
    assert manifest(project, "android", "one") == manifest(project, "android", "two")
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("after", [0.7, 1.4, 2.5])
def test_a_build_killed_at_any_moment_leaves_a_store_that_works(
    project: Path, store: Store, after: float
) -> None:
    with start(project, store, "build", "-t", "android") as child:
        time.sleep(after)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.stderr is not None
        child.stderr.read()
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 0, done.err
    assert manifest(project, "android")["state"] == "built"
    assert [p.name for p in (project / "dist/mlp/0").iterdir()] == ["android"]


def test_ctrl_c_is_exit_130_and_ends_the_children(project: Path, store: Store) -> None:
    with start(project, store, "build", "-t", "android") as child:
        time.sleep(1.2)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
    assert child.returncode == 130
    assert b"Traceback" not in err
    assert list((store.root / "tmp").iterdir()) == []


def test_a_model_needs_no_project(tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    words = ["build", "-t", "android", "-m", "m.onnx", "--dim", "batch=1", "-o", "out"]
    done = edge(tmp_path, store, *words)
    assert done.code == 0, done.err
    assert bundle.verify(tmp_path / "out" / "m" / "0" / "android")["model"]["source"] == "m.onnx"


def test_build_py_is_the_build_command(project: Path, store: Store) -> None:
    environment = {**os.environ, "EDGE_STORE": str(store.root), "CI": "1"}
    script = process.PACKAGE_PARENT / "build.py"
    done = process.run(
        [sys.executable, str(script), "--target", "android", "--json"],
        cwd=project, env=environment, timeout=120,
    )  # fmt: skip
    assert json.loads(done.stdout)["exit_code"] == 0


def test_what_is_missing_is_said_first_and_the_rest_is_built(
    project: Path, store: Store, tmp_path: Path
) -> None:
    """A host without zig: an empty package of that name's place, as on a bare machine."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, p=None: None if n == 'ziglang' else find(n, p)\n"
    )
    environment = {"PYTHONPATH": str(hidden)}
    done = edge(project, store, "build", "-t", "linux-x64,android", "--json", env=environment)
    assert done.code == 3
    assert done.err.startswith("error: this host cannot build linux-x64: ziglang is missing\n")
    assert "pip install ziglang" in done.err
    states = {row["target"]: row["state"] for row in done.json["bundles"]}
    assert states == {"linux-x64": "missing", "android": "built"}


def test_a_limit_on_what_is_not_known_is_no_pass(project: Path, store: Store) -> None:
    done = edge(project, store, "build", "-t", "ios", "--set", "targets.ios.budget.total_bytes=1")
    assert done.code == 1
    assert "total_bytes is limited to 1, but the size of the runtime" in done.err


def test_nan_in_the_golden_outputs_is_said(project: Path, store: Store) -> None:
    models.save(models.logarithm(), project / "mlp.onnx")
    (project / "edge.toml").write_text('[model]\nname = "mlp"\nsource = "mlp.onnx"\n')
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 0, done.err
    assert "warning: model mlp: the source itself gives NaN or infinity" in done.err


def test_a_model_that_is_never_the_same_twice_is_refused(project: Path, store: Store) -> None:
    models.save(models.noise(), project / "mlp.onnx")
    (project / "edge.toml").write_text('[model]\nname = "mlp"\nsource = "mlp.onnx"\n')
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 2
    assert "gives other outputs each time it is run" in done.err


def test_a_model_without_inputs_is_built(project: Path, store: Store) -> None:
    models.save(models.constant(), project / "mlp.onnx")
    (project / "edge.toml").write_text('[model]\nname = "mlp"\nsource = "mlp.onnx"\n')
    done = edge(project, store, "build", "-t", "linux-x64")
    assert done.code == 0, done.err


def test_new_weights_take_the_projects_inputs(project: Path, store: Store) -> None:
    models.save(models.mlp(scale=2), project / "new.onnx")
    done = edge(project, store, "build", "-t", "android", "-m", "new.onnx")
    assert done.code == 0, done.err
    assert manifest(project, "android")["model"]["source"] == "new.onnx"


def test_explain_says_the_changed_parameter_and_nothing_else(project: Path, store: Store) -> None:
    assert edge(project, store, "build", "-t", "android").code == 0
    told = edge(project, store, "explain", "android", "--dim", "batch=3", "--json").json[0]
    why = {step["step"]: step["why"] for step in told["steps"]}
    assert why["draw_samples"] == "parameter inputs[0].shape[0]: 2 -> 3"
    assert not [reason for reason in told["reasons"] if "samples" in reason]
    limit = "targets.android.tolerance.max_abs=0.5"
    told = edge(project, store, "explain", "android", "--set", limit, "--json").json[0]
    why = {step["step"]: step["why"] for step in told["steps"]}
    assert why["measure_parity"] == "parameter tolerance.max_abs: 0.0001 -> 0.5"


def test_explain_sees_a_damaged_bundle(project: Path, store: Store) -> None:
    assert edge(project, store, "build", "-t", "android").code == 0
    (project / "dist/mlp/0/android/model.ort").write_bytes(b"x")
    told = edge(project, store, "explain", "android", "--json").json[0]
    assert told["state"] == "damaged; it would be written again"


def test_pack_writes_one_archive_with_a_top_folder(project: Path, store: Store) -> None:
    assert edge(project, store, "build", "-t", "android", "--pack").code == 0
    archive = project / "dist/mlp/0/mlp-0-android.tar.gz"
    with tarfile.open(archive) as tar:
        assert {name.split("/")[0] for name in tar.getnames()} == {"mlp-0-android"}
    limit = "targets.android.tolerance.max_abs=0.5"
    assert edge(project, store, "build", "-t", "android", "--set", limit).code == 0
    assert not archive.exists()  # it would hold the bundle before


def test_sigterm_ends_like_ctrl_c(project: Path, store: Store) -> None:
    with start(project, store, "build", "-t", "android") as child:
        time.sleep(1.2)
        child.terminate()
        _, err = child.communicate(timeout=20)
    assert child.returncode == 143
    assert b"Traceback" not in err
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"\x14\0\0\0ORTM" + b"\0" * 64, "an ORT-format file"),
    ],
)
def test_other_formats_are_named(project: Path, store: Store, content: bytes, says: str) -> None:
    (project / "mlp.onnx").write_bytes(content)
    done = edge(project, store, "build", "-t", "android")
    assert done.code == 2
    assert says in done.err


def test_wrong_usage_is_a_document_too(project: Path, store: Store) -> None:
    done = edge(project, store, "build", "--json", "--bogus")
    assert done.code == 2
    assert "--bogus" in done.json["error"]["message"]
