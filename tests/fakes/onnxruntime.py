"""A stand-in for onnxruntime-gpu: a model doubles its inputs, and what it is asked for is told.

FAKE_ORT: "cpu" registers the CPU although CUDA was asked for, "nodes" runs some nodes there,
"stale" finds that a kept engine does not fit.
FAKE_ORT_TOLD: a file that gets a JSON line a call.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__version__ = "1.31.1"
__file__ = os.environ.get("FAKE_ORT_FILE", __file__)  # what the providers' libraries lie beside
MODE = os.environ.get("FAKE_ORT", "")
ExecutionMode = SimpleNamespace(ORT_SEQUENTIAL=0)
GraphOptimizationLevel = SimpleNamespace(ORT_DISABLE_ALL=0, ORT_ENABLE_ALL=99)
CUDA, TENSORRT, CPU = (f"{name}ExecutionProvider" for name in ("CUDA", "Tensorrt", "CPU"))


def _tell(**facts: Any) -> None:
    with open(os.environ["FAKE_ORT_TOLD"], "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(facts) + "\n")


def get_available_providers() -> list[str]:
    return [TENSORRT, CUDA, CPU]


def preload_dlls() -> None:
    _tell(call="preload")


class SessionOptions:
    enable_profiling = False
    profile_file_prefix = ""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value


class RunOptions:
    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value


class OrtValue:
    def __init__(self, values: Any, place: str) -> None:
        self._values, self._place = np.array(values), place

    @staticmethod
    def ortvalue_from_numpy(values: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        return OrtValue(values, f"{device_type}:{device_id}")

    def update_inplace(self, values: Any) -> None:
        self._values[...] = values

    def numpy(self) -> Any:
        return self._values

    def data_type(self) -> str:
        return "tensor(float)"


class IOBinding:
    def __init__(self) -> None:
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | str] = {}

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        self._outputs[name] = value

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0) -> None:
        self._outputs[name] = f"{device_type}:{device_id}"

    def get_outputs(self) -> list[OrtValue]:
        return list(self._outputs.values())  # type: ignore[arg-type]


def _parse_switches(options: dict[str, str]) -> None:
    """TensorRT's are parsed by the real package, too, which throws at 1 (1.31.1)."""
    for name, value in options.items():
        if name.endswith("_enable") and value not in ("True", "true", "False", "false"):
            raise RuntimeError(f"The value for the key '{name}' should be 'True' or 'False'.")


class InferenceSession:
    """As the real one: without the provider it goes on with the CPU, unless that is forbidden."""

    def __init__(self, path: str, options: Any, providers: Any, enable_fallback: int = 1) -> None:
        self._profile = f"{options.profile_file_prefix}_fake.json"
        self._registered = [CPU] if MODE == "cpu" else [p[0] for p in providers]
        _tell(
            call="session", entries=options._entries, providers=providers, fallback=enable_fallback
        )
        for name, options_of in providers:
            _parse_switches(options_of if name == TENSORRT else {})
            if name == TENSORRT and "trt_engine_cache_path" in options_of:
                engine = Path(options_of["trt_engine_cache_path"], "graph_0_sm86.engine")
                if MODE == "stale" or not engine.exists():
                    engine.write_bytes(b"engine")
        if MODE == "cpu" and "session.disable_cpu_ep_fallback" in options._entries:
            raise RuntimeError("fallback to CPU EP has been explicitly disabled by the user")
        self._graphs: dict[str, dict[str, Any]] = {}

    def get_providers(self) -> list[str]:
        return self._registered

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y")]

    def io_binding(self) -> IOBinding:
        return IOBinding()

    def run_with_iobinding(self, binding: IOBinding, options: RunOptions | None = None) -> None:
        graph = (options._entries if options else {}).get("gpu_graph_id", "")
        inputs = [value._place for value in binding._inputs.values()]
        outputs = [getattr(value, "_place", value) for value in binding._outputs.values()]
        (value,) = binding._inputs.values()
        kept = self._graphs.setdefault(graph, {"input": value}) if graph else {"input": value}
        first = float(kept["input"]._values.flat[0])
        _tell(call="run", graph=graph, places=inputs + outputs, first=first)
        made = kept["input"]._values + kept["input"]._values
        for name, place in binding._outputs.items():
            if isinstance(place, OrtValue):
                place._values[...] = made
            else:
                binding._outputs[name] = OrtValue(made, place)

    def end_profiling(self) -> str:
        provider = self._registered[0]
        ran = [provider, provider, CPU] if MODE == "nodes" else [provider, provider]
        events = [
            {"cat": "Node", "dur": 30 if name == CPU else 70, "name": f"{index}_kernel_time",
             "args": {"provider": name, "node_index": str(index)}}
            for index, name in enumerate(ran)
        ]  # fmt: skip
        with open(self._profile, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(events, file)
        return self._profile
