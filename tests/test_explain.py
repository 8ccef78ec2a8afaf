"""Why a build would do something again, from two manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import bundle, explain
from edge.job import PENDING
from tests.convert import fake_job

ARGUMENTS = {"factory": "net:make", "outputs": None}


def manifest(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The part of a manifest that is compared."""
    plain = {
        "state": "built",
        "target": {"name": "linux-x64"},
        "model": {"name": "m", "exporter": "scikit-learn"},
        "samples": {"sha256": "0" * 64, "count": 2},
        "cache": True,
        "budget": {"total_bytes": {"limit": None, "value": 7}},
        "steps": list(steps),
    }
    return {**plain, **changes}


def step(name: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    """A step of a manifest."""
    empty: dict[str, Any] = {"version": 1, "parameters": {}, "inputs": {}, "tools": {}}
    return {"step": name, "key": key, **empty, **changes}


def trace(key: str, sha256: str, files: dict[str, str], **seen: Any) -> dict[str, Any]:
    """The trace of ``net:make``, whose module and other files have these contents."""
    source = {"sha256": sha256, "with": [list(each) for each in files.items()]}
    parameters = {**ARGUMENTS, "seen": {"packages": {}, "listed": {}, **seen}}
    return step("trace", key, inputs={"source": source}, parameters=parameters)


def told(monkeypatch: pytest.MonkeyPatch, old: Any, new: Any) -> explain.Report:
    """What is said of a bundle with the manifest ``old``."""
    monkeypatch.setattr(bundle, "verify", lambda _folder: old)
    return explain._report(fake_job.target("linux-x64"), "m", Path("dist"), new)


def test_every_setting_that_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, manifest(), manifest(cache=False))
    assert found.reasons == ("cache: True -> False",)
    assert found.state == "would be written again; no step would run"
    assert told(monkeypatch, manifest(), manifest()).state == "up to date"


def test_what_no_setting_says_has_its_name_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, manifest(), manifest(unverified=["x"], files=[]))
    assert found.reasons == ("its manifest has other files, unverified",)


def test_edited_code_of_a_factory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its framework, which is not known before it runs, is not said to have changed."""
    old = manifest(trace("k", "a", {"helper.py": "b"}), step("export_sklearn"))
    new = manifest(
        trace(PENDING, "c", {}),
        step("export_torch", PENDING),
        model={"name": "m", "exporter": "PyTorch"},
    )
    found = told(monkeypatch, old, new)
    assert found.reasons == ()
    assert found.steps == (
        ("trace", "input 'source': the module net changed"),
        ("export_torch", "follows from code that runs again, if its framework is still the same"),
    )


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (trace(PENDING, "a", {"helper.py": "c"}), "input 'source': helper.py changed"),
        (trace(PENDING, "a", {}, packages={"numpy": "2.4"}), "package numpy: 2.3 -> 2.4"),
        (trace(PENDING, "a", {}, packages={"numpy": ""}), "package numpy: 2.3 -> gone"),
        (trace(PENDING, "a", {}, listed={"data": "e"}), "the folder data holds other files"),
        (trace(PENDING, "a", {}), "something that it read is gone"),
        # Not known yet is not changed.
        (trace(PENDING, "a", {"helper.py": "b"}), "something that it read is gone"),
    ],
)
def test_what_a_factory_reads_is_named(new: dict[str, Any], why: str) -> None:
    seen = {"packages": {"numpy": "2.3", "scipy": "1"}, "listed": {"data": "d"}}
    old = trace("k", "a", {"helper.py": "b", "weights.pt": "w"}, **seen)
    assert explain._why(new, [old]) == why


def test_a_models_trace_is_not_held_against_its_metrics() -> None:
    model = trace("k", "a", {"helper.py": "b"})
    metric = trace("k", "m", {"helper.py": "b"})
    metric["parameters"] |= {"factory": "metric:top1"}
    new = trace(PENDING, "m", {"helper.py": "c"})
    new["parameters"] |= {"factory": "metric:top1"}
    assert explain._why(new, [model, metric]) == "input 'source': helper.py changed"


def test_parameters_that_follow_from_other_steps_are_no_lost_result() -> None:
    old = step("draw_samples", parameters={"ports": [{"name": "x"}]})
    new = step("draw_samples", PENDING, parameters={"ports": [{"name": PENDING}]})
    assert explain._why(new, [old]) == "its parameters follow from steps that run again"
    assert explain._why({**old, "key": PENDING}, [old]) == "its stored result is gone"
