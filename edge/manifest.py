"""``manifest.json``: what a bundle is, what it needs, how it was made and proven.

Its JSON Schema is printed by ``edge schema manifest``. No absolute path, time or host name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge import errors
from edge.bundle import SCHEMA_VERSION, Bundle, BundleFile, artifact_name, manifest_bytes
from edge.convert.accuracy import Accuracy
from edge.job import PENDING, Job
from edge.prepare import Prepared
from edge.store import File, Result, canonical_json, key_of

SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
Sizes = dict[str, dict[str, int] | None]
SIZE = {
    "type": ["object", "null"],
    "description": "null where the runtime is not in the bundle",
    "required": ["raw", "compressed"],
    "properties": {
        "raw": {"type": "integer", "description": "bytes"},
        "compressed": {"type": "integer", "description": "bytes under gzip -9"},
    },
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "edgewright bundle manifest",
    "type": "object",
    "required": [
        "schema", "state", "target", "model", "samples", "runtime", "artifact", "closure",
        "steps", "parity", "tolerance", "budget", "sizes", "files",
    ],
    "properties": {
        "schema": {"const": SCHEMA_VERSION},
        "state": {"enum": ["built", "planned"]},
        "planned": {"type": "array", "items": {"type": "string"}},
        "unverified": {
            "type": "array",
            "items": {"type": "string"},
            "description": "what could not be run here: the health run on the device proves it",
        },
        "placement": {
            "type": "object",
            "description": "the least share of nodes and of time that the provider must run",
        },
        "cache": {"type": "boolean", "description": "the runner keeps what it compiles"},
        "target": {"type": "object", "required": ["name", "platform", "recipe"]},
        "model": {
            "type": "object",
            "required": ["name", "version", "source", "sha256"],
            "properties": {"sha256": SHA256},
        },
        "samples": {"type": "object", "required": ["sha256", "count"]},
        "runtime": {"type": "object", "required": ["name", "version", "embedded"]},
        "artifact": {"type": "string"},
        "closure": {"type": "object"},
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["step", "version", "key", "parameters", "inputs", "tools"],
            },
        },
        "precision": {"type": "object", "required": ["asked", "made"]},
        "accuracy": {
            "type": ["object", "null"],
            "description": "by the user's metric: the source framework's, the artifact's",
        },
        "parity": {"type": "array"},
        "tolerance": {"type": "object"},
        "budget": {"type": "object"},
        "sizes": {
            "type": "object",
            "required": ["artifact", "runtime", "total"],
            "additionalProperties": SIZE,
        },
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "role", "sha256", "size"],
                "properties": {
                    "path": {"type": "string"},
                    "sha256": SHA256,
                    "size": {"type": "integer", "minimum": 0},
                    "executable": {"type": "boolean"},
                },
            },
        },
    },
}  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """What the pipeline knows when a bundle is complete."""

    job: Job
    prepared: Prepared
    made: Bundle
    files: Sequence[BundleFile]
    sizes: Sizes
    parity: list[dict[str, Any]]
    closure: Result | None
    accuracy: Accuracy


def digest(manifest: dict[str, Any]) -> str:
    """The bundle's identity: SHA-256 (hex) of its manifest's bytes."""
    return hashlib.sha256(manifest_bytes(manifest)).hexdigest()


def manifest_of(parts: Parts) -> dict[str, Any]:
    """The manifest; raises :class:`errors.BudgetExceeded` when a size is over its limit."""
    target, model = parts.job.target, parts.job.model
    # A dry run that does not know what would be chosen.
    unknown = (
        PENDING if target.precision == "auto" and parts.job.canonical.sha256 == PENDING else ""
    )
    return {
        "schema": SCHEMA_VERSION,
        "state": "planned" if parts.made.planned else "built",
        "planned": list(parts.made.planned),
        "unverified": _unverified(parts),
        "target": {
            "name": target.name,
            "platform": target.platform,
            "recipe": target.recipe,
            "dims": target.dims,
        },
        "model": {
            "name": model.name,
            "version": model.version,
            "source": _source(model.source),
            "exporter": parts.prepared.exporter or None,
            "sha256": model_sha256(parts.prepared.source),
        },
        "samples": _samples(parts.job.samples),
        "runtime": _runtime(parts),
        "provider": target.provider,
        "placement": target.placement.model_dump(),
        "cache": parts.made.cache,
        "precision": {"asked": target.precision, "made": unknown or parts.job.precision},
        "accuracy": parts.accuracy.to_json(),
        "artifact": artifact_name(parts.job.built()),
        "closure": dict(parts.closure.facts) if parts.closure else {},
        "steps": [_step(result) for result in _once(parts.job.steps.used)],
        "parity": parts.parity,
        "tolerance": unknown or parts.job.tolerance.model_dump(),
        "budget": _budget(parts),
        "sizes": parts.sizes,
        "files": [file.entry() for file in sorted(parts.files, key=lambda file: file.path)],
    }


def _source(source: str) -> str:
    """The source as the user said it, without the folders of this machine."""
    return source if source.startswith("pkg:") else source.replace("\\", "/").rpartition("/")[2]


def _identity(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def model_sha256(source: File) -> str:
    """A model's identity: SHA-256 of its file, or of all its files together."""
    return _identity(source.identity()) if source.companions else source.sha256


def samples_sha256(samples: Result) -> str:
    """The identity of golden samples: SHA-256 over names and contents of their files."""
    return _identity({name: file.sha256 for name, file in samples.files.items()})


def _samples(result: Result) -> dict[str, Any]:
    return {"sha256": samples_sha256(result), "count": result.facts["samples"]}


def _unverified(parts: Parts) -> list[str]:
    """What was not run on this host, said once each: stages first, then what the recipe says."""
    stages = [f"{each['stage']} did not run here" for each in parts.parity if not each["runtime"]]
    # A dry run knows of no runtime at all.
    pending = any(value is None for each in parts.parity for value in (each["outputs"],))
    return list(dict.fromkeys(([] if pending else stages) + list(parts.made.unverified)))


def _runtime(parts: Parts) -> dict[str, Any]:
    target = parts.job.target
    return {
        "name": target.runtime.name,
        "version": target.runtime.version,
        "coordinates": target.runtime.coordinates,
        "requires": target.requires,
        "python": list(target.runtime.python),
        "embedded": any(file.role == "runtime" for file in parts.files),
        **parts.made.runtime,
    }


def _budget(parts: Parts) -> dict[str, dict[str, int | None]]:
    limits = parts.job.target.budget.model_dump()
    places = {
        "artifact_bytes": ("artifact", "raw"),
        "runtime_bytes": ("runtime", "raw"),
        "total_bytes": ("total", "raw"),
        "total_compressed_bytes": ("total", "compressed"),
    }
    values = {
        name: size[kind] if (size := parts.sizes[part]) else None
        for name, (part, kind) in places.items()
    }
    for name, value in values.items():
        limit = limits[name]
        if limit is not None and value is None:
            raise errors.BudgetExceeded(
                f"{parts.job.target.name}/{parts.job.model.name}: {name} is limited to {limit}, "
                "but the size of the runtime on a device is not known from this bundle",
                remedy="limit artifact_bytes, or build with --embed-runtime where that says it",
            )
        if limit is not None and value is not None and value > limit:
            raise errors.BudgetExceeded(
                f"{parts.job.target.name}/{parts.job.model.name}: {name} is {value}, "
                f"the budget is {limit}",
                remedy="make it smaller (precision, reduced runtime) or raise [budget]",
            )
    return {name: {"limit": limits[name], "value": values[name]} for name in values}


def _once(results: Sequence[Result]) -> list[Result]:
    # Not by key: steps that have not run yet (edge explain) all have the same unknown one.
    return list({key_of(result.ingredients): result for result in results}.values())


def _step(result: Result) -> dict[str, Any]:
    return {
        "step": result.step,
        "key": result.key,
        **{name: result.ingredients[name] for name in ("version", "parameters", "inputs", "tools")},
    }
