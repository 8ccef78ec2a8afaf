"""Fixtures that the whole suite shares.

Unit tests start no process: ``subprocess.Popen`` raises unless the test carries a marker that
says what it starts. Downloads (pinned runtimes, packages with real models) are kept in one
cache, ``$EDGE_TEST_CACHE`` or ``~/.cache/edgewright-tests``, between runs and workers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from edge import process
from edge.config import Pin, read_target
from edge.store import Store
from tests import models

# Machines under load miss hypothesis' 200 ms a case; slowness is not what is tested.
settings.register_profile("edge", deadline=None)
settings.load_profile("edge")
STARTS_PROCESSES = {"process", "models", "ssh", "qemu", "node", "wheel", "wine", "slow"}
CACHE = Path(os.environ.get("EDGE_TEST_CACHE") or Path.home() / ".cache" / "edgewright-tests")

# Files that take longest, first: a worker has a whole file, and a long one that comes last has
# the others wait. pytest-xdist would go by the number of tests.
LONGEST = (
    "test_build", "test_digits", "test_variants", "test_frameworks", "test_real_models",
    "test_field", "test_openvino", "test_packagers", "test_reduced", "test_closures", "test_coreml",
    "test_gpu_targets", "test_field_apple", "test_qemu", "test_openvino_direct",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files; the tests of one stay as they are."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


def _forbidden(*_words: object, **_options: object) -> NoReturn:
    raise AssertionError("a unit test started a process; mark it (pytest.mark.process)")


@pytest.fixture(autouse=True)
def no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unmarked tests cannot start processes."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if not marks & STARTS_PROCESSES:
        monkeypatch.setattr("subprocess.Popen", _forbidden)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test writes to the user's store or reads the user's settings."""
    monkeypatch.setenv("EDGE_STORE", str(tmp_path / "unused-store"))
    monkeypatch.delenv("EDGE_DEBIAN_MIRROR", raising=False)


@pytest.fixture(autouse=True)
def forget_user_code(tmp_path: Path) -> Iterator[None]:
    """Modules that a test wrote end with it: another test may write one of the same name."""
    before = set(sys.modules)
    yield
    here = f"{tmp_path}{os.sep}"
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(here):
            del sys.modules[name]
    for cache in [path for path in sys.path_importer_cache if f"{path}{os.sep}".startswith(here)]:
        del sys.path_importer_cache[cache]
    sys.path[:] = [path for path in sys.path if not f"{path}{os.sep}".startswith(here)]


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An empty store that shares pinned downloads with all other tests."""
    root = tmp_path_factory.mktemp("store")
    share_downloads(root)
    yield Store(root)
    shutil.rmtree(root, ignore_errors=True)


def share_downloads(root: Path) -> None:
    """Make the downloads of the store ``root`` those of the cache."""
    for name in ("blobs", "ort"):
        (CACHE / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(CACHE / name)


def _once(name: str) -> Iterator[tuple[Path, bool]]:
    folder = CACHE / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name.replace('/', '-')}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder, folder.is_dir()


def _download_package(requirement: str, pattern: str) -> Path:
    """Files of a wheel that match, unpacked once into the cache; nothing is installed."""
    for folder, there in _once(f"packages/{requirement}"):
        if there:
            return folder
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            words += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", work]
            process.run([*words, requirement], timeout=600)
            (wheel,) = Path(work).glob("*.whl")
            unpacked = Path(work) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.endswith(pattern):
                        archive.extract(name, unpacked)
            unpacked.rename(folder)
        return folder
    raise AssertionError("unreachable")


@pytest.fixture(scope="session")
def silero() -> Path:
    """The folder of silero-vad's real models."""
    return _download_package("silero-vad==6.2.3", ".onnx") / "silero_vad" / "data"


@pytest.fixture(scope="session")
def rapidocr() -> Path:
    """The folder of PP-OCR's real models."""
    return _download_package("rapidocr==3.10.0", ".onnx") / "rapidocr" / "models"


@pytest.fixture(scope="session")
def download_store() -> Store:
    """A store that only holds the shared downloads."""
    return Store(CACHE)


@pytest.fixture(scope="session")
def ort_header(download_store: Store) -> Path:
    """onnxruntime_c_api.h, as the linux targets pin it."""
    from edge.tools.fetch import fetch

    return fetch(download_store, _pin("linux-x64", "header")).path


@pytest.fixture(scope="session")
def ort_archive(download_store: Store) -> Path:
    """The pinned sources of ONNX Runtime 1.21.0, as an archive."""
    from edge.tools.fetch import fetch

    reduced = read_target(process.PACKAGE_PARENT / "targets" / "linux-x64-reduced.toml", {}, "")
    assert reduced.runtime.reduced.source is not None
    return fetch(download_store, reduced.runtime.reduced.source).path


@pytest.fixture(scope="session")
def ort_source(ort_archive: Path) -> Path:
    """The source tree of ONNX Runtime 1.21.0, unpacked."""
    from edge.tools.ort_source import unpack

    for folder, there in _once("onnxruntime-1.21.0"):
        if not there:
            work = folder.with_name(f".{folder.name}.unpack")
            shutil.rmtree(work, ignore_errors=True)
            unpack(ort_archive, work)
            work.rename(folder)
        return folder
    raise AssertionError("unreachable")


@pytest.fixture(scope="session")
def onnxruntime_web(download_store: Store) -> Path:
    """The folder ``package`` of the pinned onnxruntime-web, unpacked."""
    import tarfile

    from edge.tools.fetch import fetch

    pin = _pin("browser", "runtime")
    assert pin.package_sha256 is not None
    whole = Pin(package=pin.package, sha256=pin.package_sha256)
    archive = fetch(download_store, whole).path
    for folder, there in _once("onnxruntime-web-1.30.0"):
        if not there:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
        return folder / "package"
    raise AssertionError("unreachable")


def _pin(target: str, what: str) -> Pin:
    from edge.config import ProjectFile
    from edge.registry import Registry

    found = Registry(Path("/nonexistent")).target(target, ProjectFile(), "tests")
    if what == "header":
        assert found.runner is not None
        return found.runner.header
    return found.runtime.files[0]


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    """A small float32 model with a symbolic batch: x[batch, 4] -> y[batch, 3]."""
    path = tmp_path / "mlp.onnx"
    models.save(models.mlp(), path)
    return path
