"""Bringing variants to a device: what fails there costs one of them, and nothing stays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge import bundle, deploy, errors, field, variant_times
from edge.bench import BenchOptions
from edge.choice import Variant
from edge.stats import Verdict
from edge.variant_times import ON_DEVICE

NAMES = ("source", "fp16", "int8", "int8-weights")
SUMMARY = SimpleNamespace(median_ns=5.0, low_ns=4.0, high_ns=6.0)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A device on which fp16 fails its health run and int8 crashes while it is timed."""
    seen: dict[str, Any] = {"brought": [], "removed": []}

    def install(_device: Any, what: Any, _options: Any, **more: Any) -> Any:
        name = what.folder.name
        seen["brought"].append((name, more["activate"], more["name"]))
        if name == "fp16":
            raise errors.DeployFailed("the health run failed: the runner ended with signal 11")
        return None, SimpleNamespace(folder=f"edgewright/bundles/x/releases/{name}"), None

    def interleaved(_device: Any, releases: Any, _options: Any) -> Any:
        timing = SimpleNamespace(summary=SUMMARY, verdict=Verdict("valid", ()), peak_bytes=7)
        rest = {name: timing for name in releases if name != "int8"}
        return rest, {"int8": "the runner ended with signal 11"} if "int8" in releases else {}

    monkeypatch.setattr(bundle, "write", lambda folder, _files, _manifest: folder.mkdir())
    monkeypatch.setattr(field, "install", install)
    monkeypatch.setattr(variant_times, "interleaved", interleaved)
    monkeypatch.setattr(
        deploy, "remove", lambda _d, name, gone: seen["removed"].append((name, gone))
    )
    return seen


def made(name: str) -> Any:
    manifest = {"model": {"name": "m"}, "target": {"name": "t"}, "x": name}
    return SimpleNamespace(files=(), manifest=manifest)


def run(tmp_path: Path) -> Any:
    built = {name: made(name) for name in NAMES}
    return variant_times._run(None, built, BenchOptions(), tmp_path)  # type: ignore[arg-type]


def test_one_that_fails_or_crashes_there_leaves_the_others(
    tmp_path: Path, there: dict[str, Any]
) -> None:
    times = run(tmp_path)["times"]
    assert times["fp16"] == {"error": "the health run failed: the runner ended with signal 11"}
    assert times["int8"] == {"error": "the runner ended with signal 11"}
    figures = {"p50_ns": 5.0, "p50_low_ns": 4.0, "p50_high_ns": 6.0, "peak_bytes": 7}
    assert times["source"] == times["int8-weights"] == figures


def test_what_was_brought_is_removed(tmp_path: Path, there: dict[str, Any]) -> None:
    """Under a name of its own, so that a deploy meanwhile does not collect it; never switched."""
    run(tmp_path)
    assert {(active, name) for _, active, name in there["brought"]} == {(False, "m.t.variants")}
    assert there["removed"] == [("m.t.variants", ["source", "int8", "int8-weights"])]
    assert list(tmp_path.iterdir()) == []


def test_it_is_removed_too_when_the_device_goes_away(
    tmp_path: Path, there: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_arguments: Any) -> Any:
        raise errors.DeviceUnreachable("gone")

    monkeypatch.setattr(variant_times, "interleaved", away)
    with pytest.raises(errors.DeviceUnreachable):
        run(tmp_path)
    assert len(there["removed"]) == 1


def test_what_a_device_refused_is_a_variant_that_failed() -> None:
    variant = Variant("int8", "made", artifact_raw=1, sha256="a")
    found = variant_times._with_time(variant, {"error": "signal 11"}, "pi")
    assert (found.state, found.why) == ("failed", f"{ON_DEVICE}pi: signal 11")
    assert variant_times._with_time(variant, None, "pi") == variant
