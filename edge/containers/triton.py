"""Triton's model repository of a bundle: ``NAME/config.pbtxt``, ``NAME/1/``, a warm-up.

Sources: docs/user_guide/model_repository.md and model_configuration.md of
triton-inference-server/server; the READMEs of onnxruntime_backend and openvino_backend.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edge import samples
from edge.containers.ports import Port, ports
from edge.field import Bundle

BACKENDS = {".onnx": "onnxruntime", ".xml": "openvino", ".plan": "tensorrt"}
OPTIONS = "runner/options.tsv"
TYPES = {
    "bool": "TYPE_BOOL", "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64",
    **{f"{sign}int{bits}": f"TYPE_{sign.upper()}INT{bits}"
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_BATCH = re.compile(r"(.*[_.-])?batch([_.-]?size)?|n|b|bs", re.IGNORECASE)
UNPINNED = (
    "Triton's {} takes no INFERENCE_PRECISION_HINT: where the CPU has bf16 it computes in bf16, "
    "not as the bundle was proven, and Triton compares nothing; the image pins the precision"
)
BATCH = 4  # Triton's own default for models that batch (default-max-batch-size)


@dataclass(frozen=True)
class Repository:
    """What goes into the repository. ``batches``: Triton may put requests together."""

    what: Bundle
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    threads: int

    @property
    def batches(self) -> bool:
        """One open first dimension, called a batch, of all inputs and outputs, and no profiles.

        A first dimension may be time as well: then requests put together are one sequence.
        """
        symbols = {port.symbol for port in (*self.inputs, *self.outputs)}
        limited = self.what.manifest["provider"] == "TensorrtExecutionProvider"
        called = [symbol for symbol in symbols if _BATCH.fullmatch(symbol)]
        return len(symbols) == len(called) == 1 and not limited

    @property
    def opaque(self) -> bool:
        """An engine, which cannot be read here, with open dimensions."""
        return self.backend == "tensorrt" and any(-1 in port.shape for port in self.inputs)

    @property
    def backend(self) -> str:
        """The Triton backend that loads the artifact."""
        return BACKENDS[PurePosixPath(self.what.manifest["artifact"]).suffix]

    @property
    def why_not(self) -> str:
        """Why Triton cannot serve it (openvino_backend's README, known issues); empty: it can."""
        scalars = [port.name for port in self.inputs if not port.shape]
        if self.backend == "openvino" and scalars:
            return f"no Triton repository: its OpenVINO backend takes no scalar ({scalars[0]})"
        return ""

    @property
    def warning(self) -> str:
        """What Triton computes otherwise than the bundle's own runner; empty: nothing known.

        Both ways to OpenVINO leave its own choice of precision, which moves recurrent models by
        up to 0.3 (snakers4/silero-vad#779).
        """
        by_onnxruntime = self.what.manifest["provider"] == "OpenVINOExecutionProvider"
        if self.backend != "openvino" and not by_onnxruntime:
            return ""
        return UNPINNED.format("OpenVINO accelerator" if by_onnxruntime else "OpenVINO backend")

    def variables(self) -> dict[str, Any]:
        """What the template ``config.pbtxt`` is filled with, beside the container's own."""
        manifest = self.what.manifest
        options = read_options(self.what.folder)
        cpu = manifest["runtime"]["requires"].get("gpu") != "nvidia"
        return {
            "name": manifest["model"]["name"],
            "warning": self.warning,
            "backend": self.backend,
            "kind": "KIND_CPU" if cpu else "KIND_GPU",
            "max_batch_size": BATCH if self.batches else 0,
            "inputs": [self._entry(port) for port in self.inputs],
            # Of an engine with open dimensions only Triton itself can tell the outputs' shapes.
            "outputs": [] if self.opaque else [self._entry(port) for port in self.outputs],
            "accelerator": _accelerator(manifest["provider"], options),
            "optimized": manifest["runtime"].get("online_optimization", "disabled") == "disabled",
            "parameters": _parameters(self.backend, options, self.threads) if cpu else {},
            "warmup": [self._warmup(tensor) for tensor in self._golden()],
        }

    def _entry(self, port: Port) -> dict[str, Any]:
        shape = port.shape[1:] if self.batches else port.shape
        return {
            # UTF-8 itself: not all readers of pbtxt put JSON's pairs of surrogates together.
            "literal": json.dumps(port.name, ensure_ascii=False),
            "type": TYPES[port.dtype],
            "dims": [str(size) for size in shape] or ["1"],
            "scalar": not shape,
        }

    def _golden(self) -> list[samples.Tensor]:
        found = samples.read_index(self.what.folder / "samples")
        return [each for each in found if each.role == "input" and each.sample == found[0].sample]

    def _warmup(self, tensor: samples.Tensor) -> dict[str, Any]:
        entry = self._entry(Port(tensor.name, tensor.dtype, tensor.shape))
        return {**entry, "file": tensor.file}

    def write(self, folder: Path) -> None:
        """The model's files into ``folder/1``, golden inputs into ``folder/warmup``."""
        artifact = PurePosixPath(self.what.manifest["artifact"])
        files = [e["path"] for e in self.what.manifest["files"] if e["role"] == "artifact"]
        version = folder / "1"
        if artifact.suffix == ".onnx" and len(files) > 1:
            version /= "model.onnx"  # a model of several files is a folder of that name
        version.mkdir(parents=True)
        for path in files:
            own = path == self.what.manifest["artifact"]
            name = f"model{artifact.suffix}" if own else PurePosixPath(path).name
            shutil.copyfile(self.what.folder / path, version / name)
        (folder / "warmup").mkdir()
        for tensor in self._golden():
            data = (self.what.folder / "samples" / tensor.file).read_bytes()
            # One element of a batch: Triton makes the batch itself.
            size = len(data) // tensor.shape[0] if self.batches else len(data)
            (folder / "warmup" / tensor.file).write_bytes(data[:size])


def repository(what: Bundle, threads: int) -> Repository:
    """The repository of a bundle, its ports as the golden samples and the model say."""
    return Repository(what, ports(what, "input"), ports(what, "output"), threads)


def read_options(folder: Path) -> dict[str, str]:
    """``runner/options.tsv`` of a bundle; empty where it has none."""
    path = folder / OPTIONS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pairs = (line.partition("\t") for line in lines)
    return {key: value for key, _, value in pairs}


def _accelerator(provider: str, options: Mapping[str, str]) -> dict[str, Any] | None:
    """How Triton's ONNX Runtime backend names the provider; CPU and CUDA come with the kind."""
    given = {key[9:]: value for key, value in options.items() if key.startswith("provider.")}
    gpu, cpu = "gpu_execution_accelerator", "cpu_execution_accelerator"
    if provider == "TensorrtExecutionProvider":
        if given.pop("trt_fp16_enable", "") in ("1", "True", "true"):
            given["precision_mode"] = "FP16"
        if size := given.pop("trt_max_workspace_size", ""):
            given["max_workspace_size_bytes"] = size
        return {"where": gpu, "name": "tensorrt", "parameters": given}
    if provider == "CUDAExecutionProvider" and given:
        return {"where": gpu, "name": "cuda", "parameters": given}
    if provider == "OpenVINOExecutionProvider":
        return {"where": cpu, "name": "openvino", "parameters": {}}
    return None


def _parameters(backend: str, options: Mapping[str, str], threads: int) -> dict[str, str]:
    if backend == "onnxruntime":
        return {"intra_op_thread_count": str(threads), "inter_op_thread_count": "1"}
    if backend != "openvino":
        return {}
    # The precision cannot be said here: the backend knows only HINT_BF16 = YES.
    known = ("PERFORMANCE_HINT", "NUM_STREAMS")
    said = {key: options[f"provider.{key}"] for key in known if f"provider.{key}" in options}
    return {"INFERENCE_NUM_THREADS": str(threads), **said}
