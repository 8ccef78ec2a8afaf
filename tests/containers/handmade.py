"""Bundles made by hand, for containers: a model, its samples, the Python runner, a manifest."""

from __future__ import annotations

import hashlib
import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import samples
from edge.bundle import MANIFEST, manifest_bytes
from edge.process import PACKAGE_PARENT
from tests import models

TEMPLATES = PACKAGE_PARENT / "templates"
Array = np.ndarray[Any, Any]
ROLES = {"samples": "samples", "runner": "runner"}


def mlp_cases(batch: int = 2, count: int = 2) -> list[tuple[dict[str, Array], dict[str, Array]]]:
    """Seeded inputs of ``models.mlp`` and its outputs, by numpy."""
    generator = np.random.default_rng(1)
    inputs = [generator.standard_normal((batch, 4)).astype(np.float32) for _ in range(count)]
    return [({"x": x}, {"y": mlp(x)}) for x in inputs]


def mlp(x: Array) -> Array:
    """What ``models.mlp`` computes."""
    generator = np.random.default_rng(7)
    weights = generator.standard_normal((4, 3)).astype(np.float32)
    bias = generator.standard_normal(3).astype(np.float32)
    found: Array = np.maximum(x @ weights + bias, 0).astype(np.float32)
    return found


def bundle(folder: Path, *, artifact: str = "model.onnx", **changes: Any) -> Path:
    """A bundle of ``models.mlp`` for linux-x64; ``changes`` are tables of its manifest.

    An ``artifact`` that is no ``model.onnx`` is written by the caller before (or is some bytes).
    """
    folder.mkdir(parents=True, exist_ok=True)
    if artifact == "model.onnx":
        models.save(models.mlp(), folder / artifact)
    elif not (folder / artifact).exists():
        (folder / artifact).write_bytes(b"an engine")
    samples.write(folder / "samples", mlp_cases())
    (folder / "runner").mkdir(exist_ok=True)
    for path in sorted((TEMPLATES / "runner").glob("*.py")):
        shutil.copyfile(path, folder / "runner" / path.name)
    seal(folder, {"artifact": artifact, **changes})
    return folder


def image_module(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A module of the server, in this process, without compiled files in the template."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(TEMPLATES / "container" / "image"))
    return importlib.import_module(name)


def seal(folder: Path, changes: dict[str, Any]) -> None:
    """Write the manifest of what lies in ``folder``, with ``changes`` of its tables."""
    manifest: dict[str, Any] = {
        "schema": 1,
        "state": "built",
        "planned": [],
        "target": {
            "name": "linux-x64",
            "platform": "linux-x64",
            "recipe": "linux",
            "dims": "bound",
        },
        "model": {"name": "mlp", "version": "1.2", "source": "mlp.onnx", "sha256": "0" * 64},
        "samples": {"sha256": "0" * 64, "count": 2},
        "runtime": {"name": "onnxruntime", "version": "1.32.0", "requires": {}, "embedded": False},
        "provider": "CPUExecutionProvider",
        "tolerance": {"max_abs": 1e-4, "max_rel": 1e-3, "floor": 1e-3},
        "artifact": "model.onnx",
    }
    for key, value in changes.items():
        merged = isinstance(value, dict) and key != "tolerance"
        manifest[key] = {**manifest.get(key, {}), **value} if merged else value
    manifest["files"] = [_entry(folder, path) for path in sorted(folder.rglob("*"))]
    manifest["files"] = [entry for entry in manifest["files"] if entry]
    (folder / MANIFEST).write_bytes(manifest_bytes(manifest))


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    name = path.relative_to(folder).as_posix()
    if path.is_dir() or name == MANIFEST:
        return {}
    data = path.read_bytes()
    role = ROLES.get(name.split("/")[0], "artifact")
    return {
        "path": name,
        "role": role,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
