"""A Core ML package on disk with the map of its ports, and what can be read of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.convert import coremltools_library
from edge.convert.coreml_run import read
from edge.convert.mil_package import PORTS, operations, save_package

Ports = Sequence[Mapping[str, Any]]


def save(packed: Any, inputs: Ports, outputs: Ports, package: Path) -> None:
    """Write a coremltools model as ``package``, with its ports as ``mil_package`` gives them."""
    told = {"inputs": list(inputs), "outputs": list(outputs)}
    packed.user_defined_metadata[PORTS] = json.dumps(told, sort_keys=True)
    save_package(packed, package)


def described(package: Path) -> dict[str, Any]:
    """Facts of a saved package, as ``mil_package`` gives them."""
    ct, opened = coremltools_library.module(), read(package)
    model = ct.models.MLModel(str(package), skip_model_load=True)
    return {
        "inputs": list(opened.inputs),
        "outputs": list(opened.outputs),
        "operations": operations(model),
        "specification_version": int(model.get_spec().specificationVersion),
        "bytes": sum(path.stat().st_size for path in package.rglob("*") if path.is_file()),
    }
