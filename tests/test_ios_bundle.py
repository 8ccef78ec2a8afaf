"""What Core ML gets of real models, in the bundles that ``test_real_models`` builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import bench_apple, bundle
from edge.registry import has_tool
from tests.built import Built
from tests.test_real_models import NAMES, built, folder

__all__ = ["built"]  # the fixture
pytestmark = pytest.mark.models
# Nodes of the file at level basic, those that the provider is predicted to take, its parts.
PREDICTED = {
    "magika": (74, 71, 2),
    "silero": (36, 35, 2),
    "ppocr-cls": (179, 179, 1),
    "ppocr-rec": (285, 285, 1),
}


def coreml(place: Path) -> dict[str, Any]:
    found = bundle.verify(place)["runtime"]["coreml"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_provider_has_a_file_of_its_own(built: Built, name: str) -> None:
    place = folder(built[0], name, "ios")
    found = coreml(place)["provider"]
    assert (found["nodes"], found["taken"], found["partitions"]) == PREDICTED[name]
    data = (place / found["path"]).read_bytes()
    assert data[4:8] == b"ORTM"
    assert found["cache_key"].encode() in data
    assert found["cache_key"].encode() not in (place / "model.ort").read_bytes()
    assert found["size"]["raw"] == len(data)


@pytest.mark.parametrize("name", NAMES)
def test_the_package_is_there_or_the_reason(built: Built, name: str) -> None:
    place = folder(built[0], name, "ios")
    found = coreml(place)["native"]
    if not has_tool("coreml"):
        assert found == {"left_out": "the Python package coremltools is not installed"}
        return
    assert found["sqnr_db"] >= 40
    package = place / found["path"]
    sizes = [path.stat().st_size for path in package.rglob("*") if path.is_file()]
    assert found["size"]["raw"] == sum(sizes)


@pytest.mark.parametrize("name", NAMES)
def test_the_ways_can_be_measured(built: Built, name: str) -> None:
    place = folder(built[0], name, "ios")
    manifest = bundle.verify(place)
    ways = {way.provider: way for way in bench_apple.ways(manifest)}
    text = (place / "app/EdgeBench/Sources/EdgeBench/EdgeModel.swift").read_text()
    assert all(f'"{provider}",' in text for provider in ways)
    assert ways["CPUExecutionProvider"].sizes.artifact.raw == (place / "model.ort").stat().st_size
    natives = [way for provider, way in ways.items() if provider.startswith("coreml:")]
    assert len(natives) == (4 if has_tool("coreml") else 0)
    assert all(way.tolerance.sqnr_db == 40 for way in natives)
