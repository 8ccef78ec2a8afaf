"""What Core ML gets of real models, in the bundles that ``test_real_models`` builds.

Those are without native packages, which ``pytest -m slow`` makes here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import bench_apple, bundle
from edge.convert import ios_coreml
from tests.built import Built, once
from tests.convert.coreml_setup import need_coremltools
from tests.test_real_models import NAMES, built, folder, project_text

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
def test_the_ways_can_be_measured(built: Built, name: str) -> None:
    place = folder(built[0], name, "ios")
    assert coreml(place)["native"] == {"left_out": "the target says so"}
    found = ways(place)
    assert set(found) == {"CPUExecutionProvider", *ios_coreml.BY_PROVIDER}
    assert found["CPUExecutionProvider"].sizes.artifact.raw == (place / "model.ort").stat().st_size


def ways(place: Path) -> dict[str, bench_apple.Way]:
    """The bundle's ways by their providers, which the app lists as well."""
    found = {way.provider: way for way in bench_apple.ways(bundle.verify(place))}
    text = (place / "app/EdgeBench/Sources/EdgeBench/EdgeModel.swift").read_text()
    assert all(f'"{provider}",' in text for provider in found)
    return found


# ------------------------------------------------------------------------- the native package
@pytest.fixture(scope="module")
def native(silero: Path, rapidocr: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    need_coremltools()

    def prepare(root: Path) -> None:
        (root / "edge.toml").write_text(project_text(silero, rapidocr))

    return once(tmp_path_factory, "real-models-native", prepare, "-t", "ios")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_package_can_be_measured(native: Built, name: str) -> None:
    place = folder(native[0], name, "ios")
    found = coreml(place)["native"]
    assert found["sqnr_db"] >= 40
    sizes = [p.stat().st_size for p in (place / found["path"]).rglob("*") if p.is_file()]
    assert found["size"]["raw"] == sum(sizes)
    by_itself = [way for provider, way in ways(place).items() if provider.startswith("coreml:")]
    assert len(by_itself) == 4
    assert all(way.tolerance.sqnr_db == 40 for way in by_itself)
