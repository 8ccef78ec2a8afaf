"""Reduced runtimes by the real command line: planned, refused, failed; nothing long is compiled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from edge import bundle
from edge.convert import prove_coverage
from edge.store import Store
from tests import models
from tests.command import Outcome, edge
from tests.support import need

pytestmark = pytest.mark.process
TARGET = "linux-x64-reduced"
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
    (folder / "edge.toml").write_text(PROJECT)
    models.save(models.mlp(), folder / "mlp.onnx")
    return folder


@pytest.fixture
def bare(tmp_path: Path) -> Mapping[str, str]:
    """An environment without programs of the host, and without SDKs."""
    (tmp_path / "empty").mkdir()
    names = ("ANDROID_HOME", "ANDROID_NDK_HOME", "VCPKG_INSTALLATION_ROOT")
    return {"PATH": str(tmp_path / "empty"), **dict.fromkeys(names, "")}


def folder(project: Path, target: str = TARGET) -> Path:
    return project / "dist" / "mlp" / "0" / target


def state(done: Outcome) -> str:
    """The state in the closing table's row."""
    row = next(line for line in done.err.splitlines() if line.startswith(f"│ {TARGET}"))
    return row.split("│")[3].strip()


# ---------------------------------------------------------------------------------- planned
@pytest.mark.models
def test_a_plan_is_never_shown_as_built(project: Path, store: Store) -> None:
    first = edge(project, store, "build", "-t", TARGET, "--plan", "--json")
    second = edge(project, store, "build", "-t", TARGET, "--plan", "--json")
    for done in (first, second):
        assert done.code == 0, done.err
        (row,) = done.json["bundles"]
        assert (row["state"], row["exit_code"], row["sizes"]["runtime"]) == ("planned", 0, None)
        assert state(done) == "planned"
        assert "nothing to do" not in done.err
    assert second.steps == []
    # Neither built, nor sources or dependencies fetched for it.
    for word in ("build_reduced", ".orig.tar"):
        assert not [step for step in first.steps if word in step]

    made = bundle.verify(folder(project))
    assert made["state"] == "planned"
    assert made["planned"] == ["the reduced runtime: run plan/plan.sh where its needs are met"]
    assert made["runtime"]["embedded"] is False
    assert "protoc 3.21.12 of the host" in made["runtime"]["needs"]
    plan = {file["path"] for file in made["files"] if file["role"] == "plan"}
    assert {"plan/plan.sh", "plan/plan.json", "plan/toolchain.cmake"} <= plan
    said = json.loads((folder(project) / "plan" / "plan.json").read_text())
    assert (said["state"], said["platform"]) == ("planned", "linux-x64")
    assert os.access(folder(project) / "plan" / "plan.sh", os.X_OK)
    config = (folder(project) / "plan" / "required_operators_and_types.config").read_bytes()
    assert config == (folder(project) / "required_operators_and_types.config").read_bytes()

    for command in ("deploy", "bench"):
        refused = edge(project, store, command, TARGET)
        assert refused.code == 2
        assert "is planned, not built: the reduced runtime" in refused.err


@pytest.mark.models
def test_a_plan_is_the_same_in_every_folder(project: Path, store: Store, tmp_path: Path) -> None:
    other = tmp_path / "another" / "place"
    other.mkdir(parents=True)
    for name in ("edge.toml", "mlp.onnx"):
        (other / name).write_bytes((project / name).read_bytes())
    for place in (project, other):
        assert edge(place, store, "build", "-t", TARGET, "--plan").code == 0
    texts = [(folder(place) / "manifest.json").read_bytes() for place in (project, other)]
    assert texts[0] == texts[1]
    assert str(tmp_path).encode() not in texts[0]


@pytest.mark.models
def test_the_prebuilt_runtime_stays_what_a_mobile_bundle_takes(project: Path, store: Store) -> None:
    """Its plan is an offer; a wished one makes the bundle planned."""
    assert edge(project, store, "build", "-t", "android").code == 0
    made = bundle.verify(folder(project, "android"))
    assert (made["state"], made["planned"]) == ("built", [])
    done = edge(project, store, "build", "-t", "android", "--runtime", "reduced", "--plan")
    assert done.code == 0, done.err
    assert bundle.verify(folder(project, "android"))["state"] == "planned"


# ---------------------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("words", "said", "remedy"),
    [
        ((TARGET, "--runtime", "prebuilt"), f"target {TARGET} has no prebuilt runtime",
         "leave --runtime out"),
        ((TARGET, "--runtime", "reducd"), "--runtime 'reducd' is not known",
         "did you mean 'reduced'?"),
        (("android", "--ort-source", "nowhere"), "--ort-source: nowhere is not there", ""),
    ],
)  # fmt: skip
def test_wrong_usage_is_said_before_any_work(
    project: Path, store: Store, words: tuple[str, ...], said: str, remedy: str
) -> None:
    done = edge(project, store, "build", "-t", *words, "--json")
    assert done.code == 2
    assert said in done.err
    assert remedy in done.json["error"]["remedy"]
    assert done.steps == []
    assert not (project / "dist").exists()


def test_a_host_without_an_sdk_is_told_all_that_it_lacks_before_any_work(
    project: Path, store: Store, bare: Mapping[str, str]
) -> None:
    words = ("build", "-t", "android", "--runtime", "reduced", "--json")
    done = edge(project, store, *words, env=bare)
    assert done.code == 3
    (row,) = done.json["bundles"]
    assert (row["state"], row["exit_code"]) == ("missing", 3)
    assert row["error"]["message"] == (
        "this host cannot build android: JDK 17 or newer (this is none), "
        "the Android NDK 28.0.13004108 (ANDROID_NDK_HOME: none), "
        "the Android SDK with platforms/android-34 (ANDROID_HOME: none) is missing"
    )
    assert row["error"]["message"] in done.err
    for remedy in ("sdkmanager", "ANDROID_HOME", "openjdk-17-jdk-headless"):
        assert remedy in row["error"]["remedy"]
    assert done.steps == []
    assert not (project / "dist").exists()


@pytest.mark.parametrize(
    ("target", "what"),
    [("ios", "macOS with Xcode 15 or newer"),
     ("linux-arm64-reduced", "aarch64-linux-gnu-g++ 9 or newer")],
)  # fmt: skip
def test_other_platforms_name_their_toolchain(
    project: Path, store: Store, bare: Mapping[str, str], target: str, what: str
) -> None:
    done = edge(project, store, "build", "-t", target, "--runtime", "reduced", env=bare)
    assert done.code == 3
    assert f"this host cannot build {target}: " in done.err
    assert what in done.err
    assert done.steps == []


def test_all_targets_are_those_that_take_minutes_and_not_hours(project: Path, store: Store) -> None:
    told = edge(project, store, "explain", "all", "--json").json
    named = {report["target"] for report in told}
    assert {"linux-x64", "linux-arm64", "android", "ios", "browser"} <= named
    assert not {name for name in named if name.endswith("-reduced")}
    (one,) = edge(project, store, "explain", TARGET, "--json").json
    assert (one["target"], one["state"]) == (TARGET, "never built here")


def test_doctor_says_what_a_reduced_build_lacks(
    project: Path, store: Store, bare: Mapping[str, str]
) -> None:
    done = edge(project, store, "doctor", "-t", TARGET, "--json", env=bare)
    assert done.code == 3
    (row,) = done.json
    assert row["target"] == TARGET
    assert "x86_64-linux-gnu-g++ 9 or newer (this is none)" in row["state"]
    assert "protoc 3.21.12 (this is none)" in row["state"]
    assert "apt install" in row["fix"]
    done = edge(project, store, "doctor", "-t", "android", "--json", env=bare)
    assert done.json == [{"target": "android", "state": "ready", "fix": ""}]  # the prebuilt one


# ----------------------------------------------------------------------------------- failed
BUILD_PY = """\
import os, shutil, sys
from pathlib import Path
if __name__ != "__main__":
    from real_build import parse_arguments  # of the real tree
elif "CANNED" not in os.environ:
    print("words", *sys.argv[1:])
    print("FAILED: a.o", "a.cc:1:1: error: no such type", sep="\\n")
    raise SystemExit(1)
else:
    out = Path("build") / sys.argv[sys.argv.index("--config") + 1]
    out.mkdir(parents=True)
    shutil.copyfile(os.environ["CANNED"], out / "libonnxruntime.so.1.21.0")
"""


@pytest.fixture
def sources(tmp_path: Path, ort_source: Path) -> Path:
    """Of the real tree what is read before a build; its parser is the real one, its build quick."""
    place = tmp_path / "sources"
    tools = (
        path.relative_to(ort_source).as_posix() for path in (ort_source / "tools").rglob("*.py")
    )
    for name in ("VERSION_NUMBER", *prove_coverage.FILES, *tools):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(ort_source / name)
    script = place / "tools" / "ci_build" / "build.py"
    script.rename(script.with_name("real_build.py"))
    script.write_text(BUILD_PY)
    return place


# Nothing is built of the dependencies, so none has to be unpacked.
FETCHED = f"[targets.{TARGET}.runtime.reduced]\ndependencies = 'fetched'\n"


@pytest.mark.models
def test_a_build_that_fails_and_one_that_was_not_reduced(
    project: Path, store: Store, sources: Path, download_store: Store
) -> None:
    for tool in ("x86_64-linux-gnu-g++", "cmake", "ninja"):
        need(tool)
    (project / "edge.toml").write_text(PROJECT + FETCHED)
    words = ("build", "-t", TARGET, "--ort-source", str(sources), "--json")
    failed = edge(project, store, *words)
    assert failed.code == 4, failed.err
    log = store.root / "ort" / f"build-{TARGET}.log"
    (row,) = failed.json["bundles"]
    assert row["error"]["remedy"] == f"the whole log is {log}"
    assert "ended with exit code 1:\nFAILED: a.o\na.cc:1:1: error" in row["error"]["message"]
    assert "--minimal_build " in log.read_text()
    assert "--include_ops_by_config required_operators_and_types.config" in log.read_text()
    assert f"{TARGET}/mlp: prove_coverage" in failed.steps
    assert list((store.root / "tmp").iterdir()) == []

    # The release's full library in the reduced one's place computes what it should, and refuses
    # nothing: a build that was not reduced at all.
    canned = full_library(download_store)
    whole = edge(project, store, *words, env={"CANNED": str(canned)})
    assert whole.code == 1, whole.err
    message = whole.json["bundles"][0]["error"]["message"]
    assert message.startswith("the built libonnxruntime.so.1.21.0 should refuse a model with")
    assert f"{TARGET}/mlp: build_reduced" in whole.steps
    assert f"{TARGET}/mlp: run_with_library" in whole.steps
    assert not (project / "dist").exists()


def full_library(store: Store) -> Path:
    from edge.tools.fetch import fetch
    from tests.convert.fake_job import target

    pin = target(TARGET).runtime.reduced.full
    assert pin is not None
    return fetch(store, pin).path
