"""A bundle as a container: image, Kubernetes manifests, Triton's model repository, KServe.

Everything goes into one folder beside the bundle, which is a whole build context. Nothing is
built and nobody is asked: same bundle, same wish, same record, same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edge import bundle, errors, samples
from edge.containers import triton
from edge.containers.memory import Memory, load
from edge.containers.ports import ports
from edge.convert.render import render
from edge.field import Bundle
from edge.store import canonical_json, hash_file

RECORD = "container.json"
SUFFIX = ".container"
ARCHITECTURES = {"linux-x64": "amd64", "linux-arm64": "arm64"}
RUNNER = "runner/edge_bundle.py"
TAG = 12  # hexadecimal digits of the image's tag
NUMPY = "numpy==2.4.6"  # the one that onnxruntime and openvino were tried with
_REGISTRY = re.compile(
    r"[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5}(?=/|$))?(/[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*)*"
)
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.+!]+")
_STORAGE = re.compile(
    r"(s3|gs|https|hdfs|pvc|hf|oci|abfs)://[A-Za-z0-9][A-Za-z0-9._~:/@?&=%+-]{0,900}"
)
_SCRIPT = re.compile(r"runner/[^/]+[.](py|tsv)")
_PATH = re.compile(r"[A-Za-z0-9._/+-]+")
UNVERIFIED = {
    "image": "unverified: the image was not built here, nor run in a cluster",
    "triton": "unverified: the model repository was not loaded by Triton here",
    "kserve": "unverified: the InferenceService was not created in a cluster here",
}


@dataclass(frozen=True)
class Wish:
    """What is asked for beside the bundle.

    ``registry`` goes before the image's name (``registry.example.com/team``), ``threads`` are
    those of one run and the CPUs of a pod. ``storage_uri`` is where the cluster reads the model
    repository; without it no KServe manifest is written.
    """

    registry: str = ""
    replicas: int = 1
    threads: int = 1
    storage_uri: str = ""


@dataclass(frozen=True)
class Made:
    """What was written: the folder, the image's name, its parts.

    ``notes`` say what could not be written, and what nobody has tried.
    """

    folder: Path
    image: str
    memory: Memory
    parts: tuple[str, ...]
    notes: tuple[str, ...]


def refuse_misfit(what: Bundle) -> None:
    """Raise :class:`errors.UsageError` for a bundle that no container can hold."""
    platform = what.manifest["target"]["platform"]
    if platform not in ARCHITECTURES:
        raise errors.UsageError(
            f"the bundle {what.name} is for {platform}, which runs in no container",
            remedy=f"containers are made of {' and '.join(ARCHITECTURES)} bundles",
        )
    if RUNNER not in _paths(what):
        raise errors.UsageError(
            f"the bundle {what.name} has no runner in Python, which the server loads models with",
            remedy="build linux-x64, openvino-x64, cuda or the like with this release",
        )


def write(what: Bundle, folder: Path, wish: Wish, memory: Memory, templates: Path) -> Made:
    """The container of a bundle, whole or not at all; one that was made before is replaced.

    Raises :class:`errors.StoreDamaged` for a bundle that is not what its manifest says,
    :class:`errors.UsageError` for one that fits no container and a folder of somebody else.
    """
    refuse_misfit(what)
    bundle.verify(what.folder)
    _refuse_strangers(folder)
    memory.refuse_less_than(sum(entry["size"] for entry in what.manifest["files"]))
    values = variables(what, wish, memory)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".edge@{folder.name}@", dir=folder.parent))
        try:
            values |= _tagged(what, work, values, templates)
            parts, notes = _fill(what, work, values, templates)
            notes += [UNVERIFIED[part] for part in parts if part in UNVERIFIED]
            made = Made(folder, values["image"], memory, tuple(parts), tuple(notes))
            _write_record(work, what, made)
            _open_up(work)
            if folder.exists():
                shutil.rmtree(folder)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise errors.StepFailed(
            f"cannot write the container {folder}: {error.strerror}",
            remedy="choose another --to, or see to its space and permissions",
        ) from error
    return made


def _open_up(work: Path) -> None:
    """Readable by the image's user, whatever the umask here is: COPY keeps modes."""
    for path in (work, *work.rglob("*")):
        runs = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if runs else 0o644)


def _refuse_strangers(folder: Path) -> None:
    """What lies in ``folder`` is removed: it has to be ours."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    record: Any = {}
    with suppress(OSError, ValueError):
        record = json.loads((folder / RECORD).read_bytes())
    ours = isinstance(record, dict) and isinstance(record.get("files"), dict)
    if not ours or not (folder / "bundle" / bundle.MANIFEST).is_file():
        raise errors.UsageError(
            f"{folder} is there and no container of edge", remedy="choose another --to"
        )
    known = {*record["files"], RECORD}
    found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    if more := sorted(set(found) - known):
        raise errors.UsageError(
            f"{folder} has files that edge did not write, the first is {more[0]}",
            remedy="take them out, or choose another --to",
        )


def variables(what: Bundle, wish: Wish, memory: Memory) -> dict[str, Any]:
    """What the templates are filled with; the image is without its tag."""
    manifest = what.manifest
    model, version = str(manifest["model"]["name"]), str(manifest["model"]["version"])
    name = _dns_name(what.name)
    if wish.registry and not _REGISTRY.fullmatch(wish.registry):
        raise errors.UsageError(
            f"--registry {wish.registry} is no prefix of an image's name",
            remedy="say --registry registry.example.com/team, without scheme and tag",
        )
    if wish.storage_uri and not _STORAGE.fullmatch(wish.storage_uri):
        raise errors.UsageError(
            f"--storage-uri {wish.storage_uri} is none", remedy="s3://bucket/path"
        )
    gpu = manifest["runtime"]["requires"].get("gpu") == "nvidia"
    bears = load(what)
    artifact = PurePosixPath(manifest["artifact"])
    return {
        "name": name,
        "model": model,
        "version": version,
        "version_label": _label(version),
        "target": str(manifest["target"]["name"]),
        "image": "/".join(filter(None, (wish.registry, name))),
        "manifest_sha256": what.digest,
        "arch": ARCHITECTURES[manifest["target"]["platform"]],
        "provider": str(manifest["provider"]),
        "requirements": requirements(manifest),
        "source_packages": any(each.startswith("tensorrt") for each in requirements(manifest)),
        "gpu": gpu,
        "cache": bool(manifest.get("cache")),
        "c_runner": "runner/edge_runner" in _paths(what),
        "copies": _copies(what),
        "max_body": bears.body,
        "connections": bears.connections,
        "threads": wish.threads,
        "replicas": wish.replicas,
        "memory_mib": memory.mib,
        "memory_source": memory.source,
        # An engine is built on the first start where it is not in the bundle: 15 minutes, or 5.
        "startup_periods": 450 if gpu else 150,
        "storage_uri": wish.storage_uri,
        "kserve_format": "onnx" if artifact.suffix == ".onnx" else "triton",
    }


def _tagged(what: Bundle, work: Path, values: Mapping[str, Any], templates: Path) -> dict[str, str]:
    """Write what the image is made of into ``work``; its name with tag, and its Job's name.

    The tag is of all that is in the build context: bundle, server, Dockerfile, requirements.
    """
    _copy_bundle(what, work / "bundle")
    known = {f"{role}s": [each.to_json() for each in ports(what, role)] for role in samples.ROLES}
    (work / "ports.json").write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    # The Dockerfile names the image: without the tag, before there is one.
    render(templates / "image", work, {**values, "image": values["name"]})
    found = canonical_json(_hashes(work))
    tag = hashlib.sha256(found.encode()).hexdigest()[:TAG]
    end = f"-check-{tag}"
    # A Job cannot be changed: that of another image has another name.
    job = values["name"][: 63 - len(end)].rstrip("-") + end
    return {"image": f"{values['image']}:{tag}", "job": job}


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file by its name in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path)[0] for path in files}


def requirements(manifest: Mapping[str, Any]) -> list[str]:
    """The Python packages that the server needs: the manifest's own, or its runtime, and numpy."""
    runtime = manifest["runtime"]
    said = list(runtime.get("python") or [f"{runtime['name']}=={runtime['version']}"])
    for each in said:
        if not _REQUIREMENT.fullmatch(each):
            raise errors.UsageError(f"the bundle's requirement {each!r:.100} is no exact release")
    return said if any(each.startswith("numpy=") for each in said) else [*said, NUMPY]


def _paths(what: Bundle) -> set[str]:
    return {entry["path"] for entry in what.manifest["files"]}


def _dns_name(text: str) -> str:
    """A name that Kubernetes takes for all objects, short enough for ``-check`` behind it.

    Services and InferenceServices begin with a letter (RFC 1035 label); two bundles' names stay
    two, as long as they are not the same but for case and punctuation.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() else f"m-{name}"
    if len(name) > 56:
        name = f"{name[:47].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return name.strip("-")


def _label(text: str) -> str:
    """A label's value: 1.0+cu130 has a sign that none may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("._-")


def _copies(what: Bundle) -> list[tuple[str, list[str]]]:
    """Folder in the image, and the files of the bundle that the server reads there."""
    wanted = ["manifest.json"] + [
        entry["path"]
        for entry in what.manifest["files"]
        if entry["role"] in ("artifact", "samples") or _SCRIPT.fullmatch(entry["path"])
    ]
    folders: dict[str, list[str]] = {}
    for path in sorted(wanted):
        if not _PATH.fullmatch(path):
            raise errors.UsageError(
                f"the bundle's file {path!r} has a name that a Dockerfile would read otherwise"
            )
        parent = PurePosixPath("/bundle", path).parent
        folders.setdefault(f"{parent}/", []).append(f"bundle/{path}")
    return sorted(folders.items())


def _fill(
    what: Bundle, work: Path, values: Mapping[str, Any], templates: Path
) -> tuple[list[str], list[str]]:
    """The parts that were written, and what there is to say of those that could not be."""
    suffix = PurePosixPath(what.manifest["artifact"]).suffix
    parts = ["image", "k8s"]
    render(templates / "image", work, values)
    render(templates / "k8s", work / "k8s", values)
    if suffix not in triton.BACKENDS:
        return parts, [f"no Triton repository: it does not load {suffix} files"]
    repository = triton.repository(what, values["threads"])
    if repository.why_not:
        return parts, [repository.why_not]
    render(templates / "triton", work / "triton", {**values, **repository.variables()})
    repository.write(work / "triton" / values["model"])
    parts.append("triton")
    notes = [repository.warning] if repository.warning else []
    if values["storage_uri"]:
        render(templates / "kserve", work, values)
        parts.append("kserve")
    return parts, notes


def _copy_bundle(what: Bundle, folder: Path) -> None:
    for path in (bundle.MANIFEST, *sorted(_paths(what))):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(what.folder / path, target)
        runnable = any(
            entry.get("executable") and entry["path"] == path for entry in what.manifest["files"]
        )
        target.chmod(0o755 if runnable else 0o644)


def _write_record(work: Path, what: Bundle, made: Made) -> None:
    record = {
        "schema": 1,
        "bundle": what.name,
        "manifest_sha256": what.digest,
        "image": made.image,
        "memory": {"mib": made.memory.mib, "source": made.memory.source},
        "parts": list(made.parts),
        "notes": list(made.notes),
        "files": _hashes(work),
    }
    text = json.dumps(record, indent=2, sort_keys=True) + "\n"
    (work / RECORD).write_text(text, encoding="utf-8")
