"""OpenVINO, by its Python API: a backend of edge_runner.py (see there)."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

# The name of a device of OpenVINO, and none of its virtual ones: AUTO and HETERO choose themselves.
PROVIDERS = r"openvino:(CPU|GPU(\.[0-9]{1,2})?|NPU)"
# Properties that follow from --threads, --cache and --profile.
OWN = ("INFERENCE_NUM_THREADS", "CACHE_DIR", "PERF_COUNT")


def usual_provider(_request: Any) -> str:
    """Where no provider is asked for."""
    return "openvino:CPU"


def check(request: Any) -> None:
    """Refuse options that OpenVINO has not, or that are not the bundle's to set."""
    if request.session_options or request.cuda_graph:
        raise ValueError("OpenVINO has no options session.* and runner.cuda_graph")
    for name in OWN:
        if name in request.provider_options:
            raise ValueError(f"the property {name} is not the bundle's to set")


def open_runtime(request: Any) -> Runtime:
    """OpenVINO's core; it must have the device."""
    # Its import alone reports to its maker, unless this cannot be imported.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    core = openvino.Core()
    device = request.provider.partition(":")[2]
    has = core.available_devices
    if not any(name == device or name.startswith(device + ".") for name in has):
        raise RuntimeError(f"OpenVINO has no device {device} here, it has: {' '.join(has)}")
    return Runtime(openvino, core, request, device)


class Runtime:
    """OpenVINO's core and the device to be used."""

    def __init__(self, openvino: Any, core: Any, request: Any, device: str) -> None:
        self.openvino = openvino
        self.core = core
        self.request = request
        self.device = device
        self.facts = {
            "runtime": "openvino",
            "version": str(openvino.__version__).partition("-")[0],
            "provider": request.provider,
            "optimization": "disabled",  # of ONNX Runtime's levels
        }

    def load(self) -> Session:
        """The model, compiled for the device or loaded from the cache."""
        # Compiled from its path, a model is in the cache by path and time, not by content.
        model = self.core.read_model(str(self.request.artifact))
        compiled = self.core.compile_model(model, self.device, self.properties())
        ran = [str(name) for name in compiled.get_property("EXECUTION_DEVICES")]
        if not all(name == self.device or name.startswith(self.device + ".") for name in ran):
            raise RuntimeError(f"OpenVINO compiled for {' '.join(ran)}, not for {self.device}")
        cached = None
        if self.request.cache:
            cached = bool(compiled.get_property("LOADED_FROM_CACHE"))
        return Session(self.openvino, compiled, self.request, cached=cached)

    def properties(self) -> dict[str, str]:
        """The bundle's properties with those that follow from the arguments."""
        made = dict(self.request.provider_options)
        if self.device != "NPU":
            # The default is bf16 or fp16 where the device has it, which breaks recurrent models.
            made.setdefault("INFERENCE_PRECISION_HINT", "f32")
        if self.device == "CPU":
            made["INFERENCE_NUM_THREADS"] = str(self.request.threads)
        if self.request.cache:
            made["CACHE_DIR"] = str(self.request.cache)
        if self.request.profile:
            made["PERF_COUNT"] = "YES"
        return made


class Session:
    """A compiled model. ``job`` is the first: the profile is taken of it."""

    def __init__(self, openvino: Any, compiled: Any, request: Any, *, cached: bool | None) -> None:
        self.openvino = openvino
        self.compiled = compiled
        self.request = request
        self.cached = cached
        self.job: Job | None = None

    def bind(self, arrays: dict[str, Any], names: list[str]) -> Job:
        """A job of one sample."""
        made = Job(self.openvino, self.compiled, arrays, names)
        self.job = self.job or made
        return made

    def close(self) -> str | None:
        """The profile's file: nodes and their time in the form of ONNX Runtime's profile."""
        if not self.request.profile or not self.job:
            return None
        path = f"{self.request.profile}.json"
        text = json.dumps(self.events(self.job.request.profiling_info))
        Path(path).write_text(text, encoding="utf-8")
        return path

    def events(self, nodes: list[Any]) -> list[dict[str, Any]]:
        """One event a node of the last run that was executed, not fused into another."""
        ran = [node for node in nodes if str(node.status).endswith("EXECUTED")]
        return [
            {
                "cat": "Node",
                "name": f"{node.node_name}_kernel_time",
                "dur": round(node.real_time.total_seconds() * 1e6),
                "args": {
                    "op_name": node.node_type,
                    "provider": self.request.provider,
                    "node_index": str(index),
                    "kernel": node.exec_type,
                },
            }
            for index, node in enumerate(ran)
        ]


class Job:
    """One sample, bound once to a request of its own and run as often as wanted."""

    def __init__(
        self, openvino: Any, compiled: Any, arrays: dict[str, Any], names: list[str]
    ) -> None:
        self.inputs = arrays  # the tensors share their memory
        self.request = compiled.create_infer_request()
        for name, values in arrays.items():
            self.request.set_tensor(name, openvino.Tensor(values, shared_memory=True))
        # A tensor has several names where operators went: the golden one wins.
        self.names = [
            names[index] if index < len(names) and names[index] in port.get_names()
            else port.get_any_name()
            for index, port in enumerate(compiled.outputs)
        ]  # fmt: skip

    def run(self) -> int:
        """Nanoseconds of one run; nothing is copied."""
        request = self.request
        start = time.perf_counter_ns()
        request.infer(share_inputs=True, share_outputs=True)
        return time.perf_counter_ns() - start

    def outputs(self) -> list[tuple[str, str, Any]]:
        """Name, dtype and values of every output of the last run."""
        found = []
        for index, name in enumerate(self.names):
            tensor = self.request.get_output_tensor(index)
            kind = tensor.element_type.get_type_name()
            known = kind in KINDS
            found.append((name, KINDS.get(kind, kind), tensor.data if known else None))
        return found

    def settle(self) -> None:
        """Nothing: a request keeps its tensors."""


KINDS = {
    "f32": "float32",
    "f16": "float16",
    "f64": "float64",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "boolean": "bool",
}
