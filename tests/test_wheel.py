"""The wheel: what is in it, and that it works in a fresh environment, far from any checkout.

Built and installed once a session, shared by the workers, removed by the last of them.
"""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

from edge import __version__, bundle, process
from edge.store import Store
from tests import models
from tests.test_registry import SHIPPED

pytestmark = [pytest.mark.wheel, pytest.mark.process]
ROOT = process.PACKAGE_PARENT
FOLDERS = ("recipes", "targets", "templates")  # outside the package in a checkout, inside it here
CHECKOUT = ("edge", *FOLDERS, "tests", "benchmarks", "build.py", "edge.toml", "pyproject.toml",
            "README.md", "LICENSE")  # fmt: skip
DIST_INFO = f"edgewright-{__version__}.dist-info"
OUTER = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}  # what would lead back to this environment


@dataclass(frozen=True)
class Installed:
    """A copy of the checkout, the wheel built from it, and the environment that has it."""

    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    @property
    def wheel(self) -> zipfile.ZipFile:
        (path,) = (self.folder / "wheels").iterdir()
        return zipfile.ZipFile(path)

    def run(self, cwd: Path, tool: str, *words: str, **extra: str) -> process.Completed:
        """``tool`` of the fresh environment, in the folder ``cwd``."""
        env = {name: value for name, value in os.environ.items() if name not in OUTER}
        command = [str(self.bin / tool), *words]
        return process.run(command, cwd=cwd, env={**env, **extra}, timeout=120, check=False)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Installed]:
    base = tmp_path_factory.getbasetemp()
    made = Installed((base if worker_id == "master" else base.parent) / "wheel")
    user = made.folder / f"used-by-{worker_id}"
    with alone(made.folder):
        if not (made.folder / "ready").exists():
            shutil.rmtree(made.folder, ignore_errors=True)
            make(made)
            (made.folder / "ready").touch()
        user.touch()
    yield made
    with alone(made.folder):
        user.unlink()
        if not list(made.folder.glob("used-by-*")):
            shutil.rmtree(made.folder)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(made: Installed) -> None:
    """Copy, build, install: the checkout stays as it is."""
    copy_checkout(made.source)
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = made.folder / "wheels"
    build = [*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(made.source)]
    process.run([sys.executable, *build], timeout=300)
    process.run([sys.executable, "-m", "venv", made.folder / "venv"], timeout=120)
    # Compiling everything to bytecode would take longer than all the rest.
    install = [*pip, "install", "--no-compile", "-c", str(ROOT / "constraints.txt")]
    process.run([str(made.bin / "python"), *install, *map(str, wheels.iterdir())], timeout=600)


def copy_checkout(source: Path) -> None:
    source.mkdir(parents=True)
    for name in CHECKOUT:
        if (ROOT / name).is_dir():
            # Bytecode comes and goes while other tests run; a used checkout has some all the same.
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.pyc*"))
            (source / name / "__pycache__").mkdir(exist_ok=True)
            (source / name / "__pycache__" / "used.cpython-311.pyc").touch()
        else:
            shutil.copy(ROOT / name, source / name)


# ----------------------------------------------------------------------------- what is in it
def test_the_checkout_gives_one_wheel_and_needs_no_sdist(installed: Installed) -> None:
    (path,) = (installed.folder / "wheels").iterdir()
    assert path.name == f"edgewright-{__version__}-py3-none-any.whl"
    assert not list(installed.source.rglob("*.tar.gz"))


def test_it_holds_the_package_with_its_three_folders_and_nothing_else(
    installed: Installed,
) -> None:
    names = set(installed.wheel.namelist())
    assert {name.partition("/")[0] for name in names} == {"edge", DIST_INFO}
    assert {name for name in names if name.startswith("edge/")} == expected(installed.source)
    assert "edge/templates/android/.gitignore" in names


def expected(source: Path) -> set[str]:
    """Every file of the package and of the folders that move into it."""
    files = [path for name in ("edge", *FOLDERS) for path in (source / name).rglob("*")]
    paths = [path.relative_to(source) for path in files if path.is_file() and path.suffix != ".pyc"]
    return {str(path if path.parts[0] == "edge" else "edge" / path) for path in paths}


def test_its_metadata(installed: Installed) -> None:
    said = Parser().parsestr(installed.wheel.read(f"{DIST_INFO}/METADATA").decode())
    assert (said["Name"], said["Version"]) == ("edgewright", __version__)
    assert sorted(said.get_all("Provides-Extra", [])) == [
        "coreml", "demo", "openvino", "reduced", "rtx", "sklearn", "tensorflow", "test", "torch",
    ]  # fmt: skip
    assert any(
        need.startswith("magika") and "extra == 'demo'" in need
        for need in said.get_all("Requires-Dist", [])
    )
    points = configparser.ConfigParser()
    points.read_string(installed.wheel.read(f"{DIST_INFO}/entry_points.txt").decode())
    assert dict(points["console_scripts"]) == {"edge": "edge.cli:main"}


# ----------------------------------------------------------------------------- far from a checkout
def test_the_command_says_its_version(installed: Installed, tmp_path: Path) -> None:
    done = installed.run(tmp_path, "edge", "--version")
    assert (done.returncode, done.stdout) == (0, f"edgewright {__version__}\n")


def test_it_knows_the_targets(installed: Installed, tmp_path: Path) -> None:
    done = installed.run(tmp_path, "edge", "targets", "--json")
    assert done.returncode == 0, done.stderr
    names = [target["name"] for target in json.loads(done.stdout)]
    assert names == list(SHIPPED)


def test_it_builds(installed: Installed, tmp_path: Path, store: Store) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    words = ("build", "-t", "android", "-m", "m.onnx", "--dim", "batch=1", "-o", "out")
    done = installed.run(tmp_path, "edge", *words, EDGE_STORE=str(store.root))
    assert done.returncode == 0, done.stderr
    manifest = bundle.verify(tmp_path / "out" / "m" / "0" / "android")
    assert manifest["state"] == "built"
    assert "app/.gitignore" in {entry["path"] for entry in manifest["files"]}


@pytest.mark.parametrize("name", [*FOLDERS, "tests"])
def test_nothing_else_can_be_imported(installed: Installed, tmp_path: Path, name: str) -> None:
    done = installed.run(tmp_path, "python", "-c", f"import {name}")
    assert done.returncode == 1
    assert f"No module named '{name}'" in done.stderr


def test_the_package_is_the_installed_one(installed: Installed, tmp_path: Path) -> None:
    done = installed.run(tmp_path, "python", "-c", "import edge; print(edge.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed.folder / "venv"), done.stderr
