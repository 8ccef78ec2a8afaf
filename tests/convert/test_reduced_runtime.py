"""The reduced runtime for a recipe: what is run in which order, taken, proven and said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edge import errors
from edge.config import Reduced as Wishes
from edge.convert import reduced_runtime
from edge.convert.reduced_runtime import PLANNED, Reduced, prove, reduced, request_of
from edge.job import PENDING, Job, Making, PendingFacts
from edge.store import File, Result
from edge.tools import emulator
from edge.tools.reduced_plan import Request, from_json
from tests.convert import fake_job
from tests.convert.fake_job import Recorder, recorder, result

SOURCE = File(Path("sources"), "s", 1)
GSL = File(Path("gsl"), "g", 1)
BUILT: dict[str, Any] = {"build_reduced": {"product": "libonnxruntime.so.1.21.0"}}
MAKING = Making(
    planned=False,
    source=SOURCE,
    dependencies={"gsl": GSL},
    toolchain={"compiler": "12"},
    where={"log": "here"},
)


def of(steps: Recorder, making: Making | None, target: str = "linux-x64-reduced") -> Job:
    return fake_job.job(steps, fake_job.target(target), making)


# ------------------------------------------------------------------------------ the request
def test_the_targets_wishes_become_a_request(tmp_path: Path) -> None:
    wishes = Wishes(minimal="base", dependencies="pinned", types=False, providers=("a", "b"))
    target = fake_job.target("linux-x64-reduced")
    runtime = target.runtime.model_copy(update={"reduced": wishes, "version": "1.21.0"})
    changed = target.model_copy(update={"runtime": runtime})
    request = request_of(fake_job.job(recorder(tmp_path), changed))
    assert json.loads(json.dumps(request)) == request
    expected = Request(
        "1.21.0", "linux-x64", extended=False, pinned=True, types=False, providers=("a", "b"),
        config=wishes.config, kernels=wishes.kernels,
    )  # fmt: skip
    assert from_json(request) == expected


def test_a_platform_adds_what_only_it_has(tmp_path: Path) -> None:
    request = from_json(
        request_of(of(recorder(tmp_path), None, "android"), abis=("x86",), min_sdk=26)
    )
    assert (request.platform, request.abis, request.min_sdk) == ("android", ("x86",), 26)


# ------------------------------------------------------------------------------- what is run
@pytest.mark.parametrize("target", ["android", "ios", "browser", "linux-x64-reduced"])
def test_a_prebuilt_runtime_makes_the_plan_an_offer(tmp_path: Path, target: str) -> None:
    """The bundle is whole as it is: nothing in it is planned."""
    steps = recorder(tmp_path)
    made = reduced(of(steps, None, target))
    assert (made.built, made.wanted, made.planned, made.facts) == (None, False, (), {})
    assert steps.names == ["plan_reduced"]


def test_a_plan_says_what_is_to_be_done_and_needs_no_sources(tmp_path: Path) -> None:
    steps = recorder(tmp_path, plan_reduced={"needs": ["Ninja"]})
    made = reduced(of(steps, Making(planned=True, source=File(Path(PENDING), PENDING, 0))))
    assert made.planned == (PLANNED,)
    assert made.facts == {"needs": ["Ninja"]}
    assert steps.names == ["plan_reduced"]
    with pytest.raises(errors.StepFailed, match="planned and not built"):
        _ = made.product
    with pytest.raises(errors.StepFailed, match="planned and not built"):
        made.file("a")


def test_what_is_built_is_proven_to_be_covered_before(tmp_path: Path) -> None:
    plan = {"needs": [], "digest": "7"}
    steps = recorder(tmp_path, plan_reduced=plan, prove_coverage={"kernels": 3}, **BUILT)
    made = reduced(of(steps, MAKING))
    assert steps.names == ["plan_reduced", "prove_coverage", "build_reduced"]
    assert made.planned == ()
    assert made.product.path == Path("libonnxruntime.so.1.21.0")
    assert made.facts == {"coverage": {"kernels": 3}, "reused": False}
    given = steps.arguments("build_reduced")
    request = steps.arguments("plan_reduced")["request"]
    config = given.pop("config")
    assert config.path.name == "required_operators_and_types.config"
    assert given == {
        "source": SOURCE,
        "request": request,
        "toolchain": {"compiler": "12", "plan": "7"},
        "gsl": GSL,
        "where": {"log": "here"},
    }
    covered = steps.arguments("prove_coverage")
    assert (covered["source"], covered["request"]) == (SOURCE, request)
    assert covered["closure"].path.name == "closure.json"


def test_nothing_is_built_that_is_not_covered(tmp_path: Path) -> None:
    class Refusing(Recorder):
        def run(self, step: Any, arguments: Any, **options: Any) -> Result:
            found = super().run(step, arguments, **options)
            if step.name == "prove_coverage":
                raise errors.ClosureIncomplete("no kernel for the node n1")
            return found

    steps = Refusing(recorder(tmp_path).store, lambda _release: None)
    with pytest.raises(errors.ClosureIncomplete):
        reduced(of(steps, MAKING))
    assert "build_reduced" not in steps.names


# --------------------------------------------------------------------------------- supersets
def stored(name: str, size: int) -> Result:
    return result("build_reduced", {"product": name}, **{name: size})


class Within(Recorder):
    """``lacking``: by the configuration's candidate, what it lacks; the order of the questions."""

    lacking: dict[str, Any]

    def run(self, step: Any, arguments: Any, **options: Any) -> Result:
        found = super().run(step, arguments, **options)
        if step.name == "closure_within":
            asked = len([name for name in self.names if name == step.name])
            return result(step.name, self.lacking.get(str(asked), PendingFacts()))
        return found


def reusing(folder: Path, *candidates: Result, **lacking: Any) -> tuple[Within, Reduced]:
    made = recorder(folder)
    steps = Within(made.store, made.overlay, facts=BUILT, stored=candidates)
    steps.lacking = {key.removeprefix("question_"): {"missing": v} for key, v in lacking.items()}
    making = Making(planned=False, source=SOURCE, reuse=True)
    return steps, reduced(of(steps, making))


def test_the_smallest_stored_runtime_that_holds_all_is_taken(tmp_path: Path) -> None:
    large, small, least = stored("large", 30), stored("small", 20), stored("least", 10)
    steps, made = reusing(
        tmp_path, large, small, least, question_1=["an operator"], question_2=[], question_3=[]
    )
    assert made.built is small
    assert made.facts["reused"] is True
    assert made.planned == ()
    assert "build_reduced" not in steps.names
    assert small in steps.used  # in the manifest


def test_where_none_holds_all_one_is_built(tmp_path: Path) -> None:
    steps, made = reusing(tmp_path, stored("a", 1), question_1=["an operator"])
    assert steps.names[-1] == "build_reduced"
    assert made.facts["reused"] is False
    steps, made = reusing(tmp_path)
    assert steps.names[-1] == "build_reduced"


def test_what_a_dry_run_does_not_know_is_not_taken_for_yes(tmp_path: Path) -> None:
    steps, made = reusing(tmp_path, stored("a", 1))  # no facts, as of a step that has not run
    assert steps.names[-1] == "build_reduced"
    assert made.facts["reused"] is False


def test_without_being_asked_nothing_stored_is_looked_at(tmp_path: Path) -> None:
    steps = recorder(tmp_path, (stored("a", 1),), **BUILT)
    assert reduced(of(steps, MAKING)).facts["reused"] is False
    assert "closure_within" not in steps.names


# ------------------------------------------------------------------------------------ proofs
PROVEN: dict[str, dict[str, Any]] = {
    "run_with_library": {"runtime": "1.21.0", "by": "native"},
    "measure_parity": {"reasons": [], "outputs": [{"max_abs": 0.0}]},
    "outsider": {"operator": "Tan"},
    "refuses": {"operator": "Tan", "said": "no kernel for Tan"},
}
RUNNER = File(Path("edge_runner"), "r", 1)


def proven(folder: Path, target: str = "linux-x64-reduced", **facts: Any) -> tuple[Recorder, Any]:
    steps = recorder(folder, **{**BUILT, **PROVEN, **facts})
    job = of(steps, MAKING, target)
    made = Reduced(result("plan_reduced", {}), result("build_reduced", BUILT["build_reduced"]), {})
    return steps, prove(job, made, RUNNER)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "name", lambda _platform: "native")


@pytest.mark.usefixtures("native")
def test_a_library_is_proven_by_what_it_computes_and_what_it_refuses(tmp_path: Path) -> None:
    steps, facts = proven(tmp_path)
    assert facts == {"by": "native", "outputs": [{"max_abs": 0.0}], "refused": "Tan"}
    assert steps.names == ["run_with_library", "measure_parity", "outsider", "refuses"]
    ran, refused = steps.arguments("run_with_library"), steps.arguments("refuses")
    for given in (ran, refused):
        assert given["library"].path.name == "libonnxruntime.so.1.21.0"
        assert (given["runner"], given["platform"]) == (RUNNER, "linux-x64")
    assert ran["model"].path.name == "model.ort"
    assert (refused["model"].path.name, refused["operator"]) == ("outsider.ort", "Tan")
    tolerance = steps.arguments("measure_parity")["tolerance"]
    assert (tolerance["max_abs"], tolerance["max_rel"]) == (1e-4, 1e-3)


@pytest.mark.usefixtures("native")
def test_wrong_outputs_fail_the_gate_and_are_named(tmp_path: Path) -> None:
    reasons = ["sample 0, output 'y': max_abs 1 is over 0.0001", "another"]
    with pytest.raises(errors.ParityFailed, match="sample 0, output 'y'") as caught:
        proven(tmp_path, measure_parity={"reasons": reasons})
    assert caught.value.message.startswith("linux-x64-reduced/m: the built libonnxruntime.so")
    assert caught.value.exit_code == 1


@pytest.mark.usefixtures("native")
def test_a_library_of_another_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.StepFailed, match=r"says that it is 1\.20\.0, the target pins 1\.21"):
        proven(tmp_path, run_with_library={"runtime": "1.20.0"})


@pytest.mark.usefixtures("native")
def test_a_dry_run_knows_nothing_and_goes_through(tmp_path: Path) -> None:
    pending: dict[str, Any] = dict.fromkeys(PROVEN, PendingFacts())
    _, facts = proven(tmp_path, **pending)
    assert facts == {"by": "native", "outputs": None, "refused": None}


def test_where_nothing_runs_it_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "name", lambda _platform: "")
    steps, facts = proven(tmp_path, "linux-arm64-reduced")
    assert facts["by"] == "unverified"
    assert "no linux-arm64 on this host: apt install qemu-user-static" in facts["why"]
    assert steps.names == []


@pytest.mark.usefixtures("native")
def test_other_platforms_are_proven_on_their_devices(tmp_path: Path) -> None:
    steps, facts = proven(tmp_path, "android")
    assert (steps.names, facts) == ([], {})


# --------------------------------------------------------------------- what the manifest says
def test_a_built_library_requires_what_it_needs(tmp_path: Path) -> None:
    needs = {"requires": {"glibc": "2.29", "glibcxx": "3.4.26"}}
    steps = recorder(tmp_path, **BUILT, check_library=needs)
    job = of(steps, MAKING)
    assert reduced_runtime.requires(job, reduced(job)) == {
        "os": "linux", "arch": "x86_64", "glibc": "2.29", "glibcxx": "3.4.26",
    }  # fmt: skip
    assert steps.arguments("check_library")["platform"] == "linux-x64"


def test_sizes_are_held_against_the_full_library_that_is_pinned(tmp_path: Path) -> None:
    steps = recorder(tmp_path, **BUILT, runtime_sizes={"ratio": {"gzip": 3.0}})
    job = of(steps, MAKING)
    made = reduced(job)
    assert reduced_runtime.sizes(job, made) == {"ratio": {"gzip": 3.0}}
    given = steps.arguments("runtime_sizes")
    pin = job.target.runtime.reduced.full
    assert pin is not None
    assert given["full"].sha256 == pin.sha256
    assert str(given["library"].path) == "unstripped/libonnxruntime.so.1.21.0"
    assert str(given["stripped"].path) == "libonnxruntime.so.1.21.0"

    armhf = of(steps, MAKING, "linux-armhf-reduced")
    steps.calls.clear()
    reduced_runtime.sizes(armhf, made)
    assert "full" not in steps.arguments("runtime_sizes")


def test_what_is_planned_has_no_sizes(tmp_path: Path) -> None:
    job = of(recorder(tmp_path), None)
    assert reduced_runtime.sizes(job, reduced(job)) == {}
