"""A bundle's model: loaded by the bundle's own runner, and proven on the golden samples.

Python 3.10 or newer, numpy, and the runtime that the bundle is for.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from math import inf, log10, prod
from pathlib import Path
from typing import Any, NamedTuple

DATATYPES = {  # numpy's names, and those of the Open Inference Protocol
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip
MAX_TEXT_BYTES = 16 << 20  # of a manifest, an index, options
MAX_TENSOR_BYTES = 1 << 31
Arrays = dict[str, Any]


class Failure(Exception):
    """Why the bundle cannot be served: it is damaged, does not load, or computes something else."""


class Hung(Exception):
    """A run did not end in time."""


class Port(NamedTuple):
    """An input or output of the model: ``shape`` in elements, -1 for an open dimension."""

    name: str
    dtype: str
    shape: tuple[int, ...]


# ---- the bundle ---------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """A small file of the bundle."""
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise Failure(f"{path.name} is too large")
    return path.read_bytes().decode("utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a built bundle whose artifact, samples and runner are what it lists."""
    try:
        manifest = json.loads(read_text(folder / "manifest.json"))
        if manifest["state"] != "built":
            raise Failure(f"the bundle is {manifest['state']}, not built")
        for entry in manifest["files"]:
            script = entry["path"].startswith("runner/") and entry["path"].endswith((".py", ".tsv"))
            if script or entry["role"] in {"artifact", "samples"}:
                _check_file(folder / entry["path"], entry)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"the bundle in {folder} cannot be read: {error!r}") from error
    return dict(manifest)


def _check_file(path: Path, entry: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != entry["sha256"]:
        raise Failure(f"{entry['path']} is not the file that the manifest lists")


def read_samples(folder: Path) -> list[tuple[Arrays, Arrays]]:
    """Inputs and expected outputs of every golden sample, by name."""
    found: dict[int, tuple[Arrays, Arrays]] = {}
    # Not splitlines(): it also splits at characters that a tensor's name may hold.
    for line in read_text(folder / "samples.tsv").split("\n"):
        if line:
            sample, role, _, dtype, shape, file, name = line.split("\t")
            case = found.setdefault(int(sample), ({}, {}))
            case[role == "output"][name] = _read_tensor(folder / Path(file).name, dtype, shape)
    if not found:
        raise Failure("the bundle has no golden samples")
    return [found[sample] for sample in sorted(found)]


def _read_tensor(path: Path, dtype: str, shape: str) -> Any:
    import numpy as np

    extents = () if shape == "-" else tuple(map(int, shape.split("x")))
    if dtype not in DATATYPES or prod(extents) * np.dtype(dtype).itemsize > MAX_TENSOR_BYTES:
        raise Failure(f"{path.name} is a {dtype} of {shape}, which cannot be read")
    little = np.frombuffer(path.read_bytes(), np.dtype(dtype).newbyteorder("<"))
    return little.astype(dtype).reshape(extents)


# ---- the model ----------------------------------------------------------------------------------


class Settings(NamedTuple):
    """``threads`` of one run, how many runs at once, a folder to keep compiled models in."""

    threads: int
    concurrency: int
    cache: str


class Model:
    """The bundle's model, run by the backend of the bundle's own runner (runner/edge_*.py).

    All of it happens in threads of one pool: a GPU's context belongs to the thread that made it.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any], settings: Settings) -> None:
        ports = json.loads(read_text(Path(__file__).with_name("ports.json")))
        self.inputs, self.outputs = (
            [Port(each["name"], each["dtype"], tuple(each["shape"])) for each in ports[role]]
            for role in ("inputs", "outputs")
        )
        if manifest["artifact"].endswith((".plan", ".rtx")) and settings.concurrency > 1:
            raise Failure("an engine of TensorRT has one context: EDGE_CONCURRENCY must be 1")
        self.pool = ThreadPoolExecutor(settings.concurrency, "model")
        try:
            self.session = self.pool.submit(self._load, folder, manifest, settings).result()
        except Exception as error:
            # Runtimes raise classes of their own that share no base but Exception.
            raise Failure(f"{manifest['artifact']} does not load: {error}") from error

    def _load(self, folder: Path, manifest: dict[str, Any], settings: Settings) -> Any:
        sys.path.insert(0, str(folder / "runner"))
        bundle = importlib.import_module("edge_bundle")
        artifact = folder / manifest["artifact"]
        backend = importlib.import_module(bundle.BACKENDS[artifact.name])
        asked = argparse.Namespace(
            bundle=folder,
            threads=settings.threads,
            provider=manifest["provider"],
            optimization=manifest["runtime"].get("online_optimization", "disabled"),
            profile=None,
            cache=Path(settings.cache) if settings.cache else None,
        )
        # A captured graph has one set of buffers; requests have theirs.
        request = bundle.read_request(asked, artifact)._replace(cuda_graph=False)
        backend.check(request)
        runtime = backend.open_runtime(request)
        self.platform = str(runtime.facts["runtime"])
        return runtime.load()

    def run(self, feeds: Arrays, seconds: float | None = None) -> Arrays:
        """Outputs by name; safe to call from several threads. :class:`Hung` after ``seconds``."""
        running = self.pool.submit(self._run, feeds)
        if not wait([running], seconds).done:
            raise Hung
        return running.result()

    def _run(self, feeds: Arrays) -> Arrays:
        job = self.session.bind(feeds, [port.name for port in self.outputs])
        job.run()
        # Copied: the memory is the job's.
        return {name: values.copy() for name, _, values in job.outputs()}


# ---- the proof ----------------------------------------------------------------------------------


def prove(model: Any, folder: Path, tolerance: dict[str, Any]) -> int:
    """Run every golden sample; how many there were. :class:`Failure` names what differs."""
    cases = read_samples(folder / "samples")
    for number, (inputs, expected) in enumerate(cases):
        try:
            found = model.run(inputs)
        except Exception as error:
            raise Failure(f"sample {number} does not run: {error}") from error
        if set(found) != set(expected):
            raise Failure(f"the outputs are {sorted(found)}, not {sorted(expected)}")
        for name, value in expected.items():
            if why := deviation(value, found[name], tolerance):
                raise Failure(f"sample {number}, output {name}: {why}")
    return len(cases)


def deviation(expected: Any, actual: Any, tolerance: dict[str, Any]) -> str:
    """Why ``actual`` is not within the manifest's tolerance; empty when it is.

    The rule for floats: |a - e| <= max_abs + max_rel * max(|e|, floor), ``sqnr_db`` and
    ``argmax`` beside it; with no limit at all values must be equal. NaN and infinities must
    stand at the same places. Integers differ by at most max_abs where that is 1 or more.
    """
    import numpy as np

    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype} {list(actual.shape)}, not {expected.dtype} {list(expected.shape)}"
    if not expected.size:
        return ""
    if expected.dtype.kind != "f":
        return _integers(expected, actual, tolerance.get("max_abs"))
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(e)
    if (
        not np.array_equal(e[~finite], a[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return "NaN or infinities at other places"
    if not finite.any():
        return "no finite element to compare"
    return _floats(e, a, finite, tolerance)


def _integers(e: Any, a: Any, max_abs: float | None) -> str:
    import numpy as np

    allowed = int(max_abs) if max_abs and max_abs >= 1 and e.dtype.kind in "iu" else 0
    if np.array_equal(e, a):
        return ""
    # Python's numbers: a difference of two int64 may not be one.
    worst = max(abs(int(x) - int(y)) for x, y in zip(e.ravel(), a.ravel(), strict=True) if x != y)
    return "" if worst <= allowed else f"differs by up to {worst}, allowed is {allowed}"


def _floats(e: Any, a: Any, finite: Any, limits: dict[str, Any]) -> str:
    import numpy as np

    with np.errstate(over="ignore"):  # of two huge float64
        size, gap = np.abs(e[finite]), np.abs(a[finite] - e[finite])
    worst = float(gap.max())
    max_abs, max_rel = limits.get("max_abs"), limits.get("max_rel")
    sqnr, argmax = limits.get("sqnr_db"), limits.get("argmax")
    if max_abs is max_rel is sqnr is argmax is None and worst > 0:
        return f"differs by up to {worst:.2e} and no tolerance is given"
    if not (max_abs is max_rel is None):
        allowed = (max_abs or 0) + (max_rel or 0) * np.maximum(size, limits.get("floor") or 1e-3)
        if not (gap <= allowed).all():
            return f"differs by up to {worst:.2e}, more than max_abs {max_abs}, max_rel {max_rel}"
    if sqnr is not None and worst > 0:
        peak = float(size.max())
        # Scaled by the peaks: no square over- or underflows.
        ratio = np.square(size / peak).sum() / np.square(gap / worst).sum() if peak else 0.0
        found = 20 * (log10(peak) - log10(worst)) + 10 * log10(ratio) if ratio else -inf
        if found < sqnr:
            return f"SQNR {found:.1f} dB < {sqnr} dB"
    return _rows(e, a, argmax)


def _rows(e: Any, a: Any, least: float | None) -> str:
    import numpy as np

    if least is None or not e.ndim or e.shape[-1] < 2:
        return ""
    e, a = e.reshape(-1, e.shape[-1]), a.reshape(-1, a.shape[-1])
    chosen = e[np.arange(len(e)), a.argmax(axis=1)]
    share = float(((chosen == e.max(axis=1)) & ~np.isnan(a).any(axis=1)).mean())
    return "" if share >= least else f"argmax agrees in {share:.2%} < {least:.2%} of the rows"
