"""ONNX Runtime with any of its execution providers: a backend of edge_runner.py (see there).

The provider that is asked for runs, or the run fails: ONNX Runtime itself would go on with the
CPU and a line in its log.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PROVIDERS = r"[A-Za-z0-9]{1,50}ExecutionProvider"
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"
DML = "DmlExecutionProvider"
# Options of providers that are this runner's own to set, by what decides them.
OWN = {
    "--cache": re.compile(r"trt_(engine|timing)_cache_.*|cache_dir"),
    "runner.cuda_graph": re.compile("enable_cuda_graph|trt_cuda_graph_enable"),
    "--threads": re.compile("num_of_threads"),
}
DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(int16)": "int16",
    "tensor(uint16)": "uint16",
    "tensor(int32)": "int32",
    "tensor(uint32)": "uint32",
    "tensor(int64)": "int64",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}


def usual_provider(_request: Any) -> str:
    """Where no provider is asked for."""
    return CPU


def check(request: Any) -> None:
    """Refuse options that are not the bundle's to set."""
    for name in request.provider_options:
        for decided, pattern in OWN.items():
            if pattern.fullmatch(name):
                raise ValueError(f"the provider's option {name} follows from {decided}")
    if request.cuda_graph and request.provider not in (CUDA, TENSORRT):
        raise ValueError(f"{request.provider} has no CUDA graph")


def open_runtime(request: Any) -> Runtime:
    """The onnxruntime module; it must have the provider, and the machine what that runs on."""
    # From 1.29 the runtime reports its use to its maker unless this is set before it is loaded.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    available = onnxruntime.get_available_providers()  # compiled in: it says nothing of a GPU
    if request.provider not in available:
        has = " ".join(available)
        raise RuntimeError(f"the runtime has no {request.provider}, it has: {has}")
    gpu = open_gpu(onnxruntime, request) if request.provider in (CUDA, TENSORRT) else None
    if request.provider == OPENVINO:
        check_openvino_device(onnxruntime, openvino_device(request))
    return Runtime(onnxruntime, request, gpu)


def open_gpu(ort: Any, request: Any) -> Any:
    """The GPU that the driver has under the provider's device_id.

    Not by ``get_ep_devices``: of the built-in providers it lists CPU, WebGPU and DirectML alone
    (``EpLibraryInternal::CreateInternalEps``), so it lacks CUDA on a machine with a GPU as well.
    """
    import edge_cuda

    found = edge_cuda.Driver().gpu(int(request.provider_options.get("device_id", "0")))
    if hasattr(ort, "preload_dlls"):  # from 1.21: CUDA and cuDNN of pip packages
        ort.preload_dlls()
    if request.provider == TENSORRT:
        with suppress(ImportError):  # pip's package loads its libnvinfer, which others then find
            import tensorrt  # noqa: F401
    return found


def openvino_device(request: Any) -> str:
    """The device that the OpenVINO provider is given: the CPU unless the bundle says otherwise."""
    return str(request.provider_options.get("device_type", "CPU"))


def check_openvino_device(ort: Any, device: str) -> None:
    """Refuse a device that is not there: the provider would take the CPU with a line in its log."""
    state = ort.capi._pybind_state  # noqa: SLF001 - where the provider's documentation says
    known = getattr(state, "get_available_openvino_device_ids", None)
    has = known() if known else ["CPU"]
    if not any(name == device or name.startswith(device + ".") for name in has):
        raise RuntimeError(f"OpenVINO has no device {device} here, it has: {' '.join(has)}")


class Runtime:
    """onnxruntime, opened."""

    def __init__(self, ort: Any, request: Any, gpu: Any) -> None:
        self.ort = ort
        self.request = request
        self.gpu = gpu
        # What is in the ORT format was optimized when it was made.
        done = request.artifact.suffix == ".ort"
        self.facts = {
            "runtime": "onnxruntime",
            "version": ort.__version__,
            "provider": request.provider,
            "optimization": "disabled" if done else request.optimization,
            **({"gpu": gpu.text} if gpu else {}),
        }

    def load(self) -> Session:
        """The session, on the provider asked for and no other."""
        request = self.request
        options, made = self.session_options(), self.provider_options()
        folder = made.get("trt_engine_cache_path")
        kept = engines(folder)
        providers: list[Any] = [(request.provider, made)]
        if request.provider == TENSORRT and request.least_nodes < 1:
            # What TensorRT does not take stays on the GPU, and on the same one.
            providers.append((CUDA, {"device_id": made.get("device_id", "0")}))
        try:
            # enable_fallback: or else a provider that fails is replaced by the CPU, with a word.
            session = self.ort.InferenceSession(
                str(request.artifact), options, providers=providers, enable_fallback=0
            )
        except Exception as error:
            raise RuntimeError(f"{error}{self.why_not()}") from error
        registered = session.get_providers()
        if not registered or registered[0] != request.provider:
            what = f"{request.provider} was not registered, only {registered}"
            raise RuntimeError(what + self.why_not())
        # One that does not fit is built again in its place.
        cached = bool(kept) and engines(folder) == kept if folder else None
        return Session(self.ort, session, self, cached=cached)

    def session_options(self) -> Any:
        """One thread between operators, no second optimization of what was optimized at build."""
        ort, request = self.ort, self.request
        made = ort.SessionOptions()
        made.intra_op_num_threads = request.threads
        made.inter_op_num_threads = 1
        made.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        if request.artifact.suffix == ".onnx":
            level = {"disabled": "DISABLE_ALL"}.get(request.optimization)
            level = level or "ENABLE_" + request.optimization.upper()
            made.graph_optimization_level = getattr(ort.GraphOptimizationLevel, "ORT_" + level)
        if request.profile:
            made.enable_profiling = True
            made.profile_file_prefix = request.profile
        if request.provider == DML:  # it supports neither memory patterns nor parallel execution
            made.enable_mem_pattern = False
        for name, value in request.session_options.items():
            made.add_session_config_entry(name, value)
        if request.provider != CPU and request.least_nodes >= 1:
            made.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return made

    def provider_options(self) -> dict[str, str]:
        """The bundle's options with this runner's own."""
        request = self.request
        made = dict(request.provider_options)
        if request.cuda_graph:
            # TensorRT's switches are parsed by this package, which throws at 1 (1.31.1).
            graph = {CUDA: ("enable_cuda_graph", "1"), TENSORRT: ("trt_cuda_graph_enable", "True")}
            made.update([graph[request.provider]])
        if request.provider == OPENVINO:
            made["device_type"] = openvino_device(request)
            made["num_of_threads"] = str(request.threads)
            if request.cache:
                made["cache_dir"] = str(request.cache)
        if request.provider == TENSORRT:
            made.update(self.tensorrt_cache())
        return made

    def tensorrt_cache(self) -> dict[str, str]:
        """Engine and timing cache in a folder of their own for this content, GPU and TensorRT.

        The provider's own file names are the same for models of equal structure with other
        weights or shapes, and give wrong results (onnxruntime #6455, #32254).
        """
        request = self.request
        if not request.cache or not request.engine_key:
            return {"trt_engine_cache_enable": "False", "trt_timing_cache_enable": "False"}
        import edge_cuda

        version = tensorrt_version(Path(self.ort.__file__).parent / "capi")
        folder = str(edge_cuda.cache_folder(request, self.gpu, version))
        return {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": folder,
            "trt_engine_cache_prefix": request.engine_key[:16],
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": folder,
        }

    def why_not(self) -> str:
        """What the loader says of the provider's own library, where it has one."""
        names = {CUDA: "cuda", TENSORRT: "tensorrt", OPENVINO: "openvino"}
        name = names.get(self.request.provider)
        folder = Path(self.ort.__file__).parent / "capi"
        for path in folder.glob(f"*onnxruntime_providers_{name}.*") if name else ():
            try:
                ctypes.CDLL(str(path))
            except OSError as error:
                return f"; loading the provider: {error}"
        return ""


def engines(folder: str | None) -> dict[str, int]:
    """TensorRT's engines in a folder: names, and when they were written in ns."""
    found = Path(folder).glob("*.engine") if folder else ()
    return {path.name: path.stat().st_mtime_ns for path in found}


def tensorrt_version(folder: Path) -> str:
    """The version of the TensorRT that the provider in ``folder`` was linked with, and will load.

    ``getInferLibVersion`` of NvInferRuntime.h; 10.13.3 is 101303, until 8 it was 8601 for 8.6.1.
    """
    for path in folder.glob("*onnxruntime_providers_tensorrt.*"):
        found = re.search(rb"libnvinfer\.so\.[0-9]+|nvinfer_[0-9]+\.dll", path.read_bytes())
        if found:
            number = int(ctypes.CDLL(found.group().decode()).getInferLibVersion())
            scale = (10_000, 100) if number >= 100_000 else (1000, 100)
            major, rest = divmod(number, scale[0])
            return f"{major}.{rest // scale[1]}.{rest % scale[1]}"
    raise RuntimeError("which TensorRT the provider loads cannot be told; run without --cache")


class Session:
    """A loaded model. ``graphs``: what is bound for a CUDA graph, by the shapes of the inputs."""

    def __init__(self, ort: Any, session: Any, runtime: Runtime, *, cached: bool | None) -> None:
        self.ort = ort
        self.session = session
        self.request = runtime.request
        self.cached = cached
        self.names = [output.name for output in session.get_outputs()]
        self.device = "cuda" if runtime.gpu else "cpu"
        self.index = int(self.request.provider_options.get("device_id", "0")) if runtime.gpu else 0
        self.graphs: dict[Any, Bound] = {}

    def bind(self, arrays: dict[str, Any], _names: list[str]) -> Job:
        """A job of one sample."""
        if not self.request.cuda_graph:
            return Job(self, arrays, Bound(self, arrays, None))
        # A captured graph reads and writes where it was captured: samples of the same shapes
        # share the memory. Under TensorRT a session holds one graph.
        shapes = tuple((name, values.shape) for name, values in arrays.items())
        if shapes not in self.graphs:
            if self.graphs and self.request.provider == TENSORRT:
                raise RuntimeError("one CUDA graph cannot run samples of several shapes")
            self.graphs[shapes] = Bound(self, arrays, len(self.graphs) + 1)
        return Job(self, arrays, self.graphs[shapes])

    def close(self) -> str | None:
        """The profile's file."""
        return str(self.session.end_profiling()) if self.request.profile else None


class Bound:
    """Inputs and outputs where the provider computes: nothing is copied in a run."""

    def __init__(self, session: Session, arrays: dict[str, Any], graph: int | None) -> None:
        self.session = session
        self.inputs = arrays  # values on the CPU point into them
        self.binding = session.session.io_binding()
        self.values = {name: self.value(values) for name, values in arrays.items()}
        for name, value in self.values.items():
            self.binding.bind_ortvalue_input(name, value)
        for name in session.names:
            self.binding.bind_output(name, session.device, session.index)
        self.options = session.ort.RunOptions() if graph else None
        if self.options:
            self.options.add_run_config_entry("gpu_graph_id", str(graph))

    def value(self, values: Any) -> Any:
        """A value on the device with these values."""
        session = self.session
        return session.ort.OrtValue.ortvalue_from_numpy(values, session.device, session.index)

    def keep_outputs(self) -> None:
        """Let later runs write into output values made now, of the first run's shapes.

        Not into the first run's own: until 1.19 at least, these are references into the binding
        and dangle as soon as it is bound anew (the process dies).
        """
        self.outputs = [value.numpy().copy() for value in self.binding.get_outputs()]
        self.kept = [self.value(values) for values in self.outputs]
        for index, value in enumerate(self.kept):
            self.binding.bind_ortvalue_output(self.session.names[index], value)


class Job:
    """One sample, bound once and run as often as wanted."""

    def __init__(self, session: Session, arrays: dict[str, Any], bound: Bound) -> None:
        self.session = session
        self.arrays = arrays
        self.bound = bound
        self.fill()

    def fill(self) -> None:
        """Put this sample's values where a graph shared with others reads them."""
        if self.bound.options and self.bound.inputs is not self.arrays:
            for name, values in self.arrays.items():
                self.bound.values[name].update_inplace(values)
        self.bound.inputs = self.arrays

    def run(self) -> int:
        """Nanoseconds of one run, which ends when the device has ended.

        Run waits for the provider's stream unless ``disable_synchronize_execution_providers`` is
        set (onnxruntime_run_options_config_keys.h). The first run captures a CUDA graph and
        replays it: outputs are always what the graph computed.
        """
        session, binding, options = self.session.session, self.bound.binding, self.bound.options
        start = time.perf_counter_ns()
        if options is None:
            session.run_with_iobinding(binding)
        else:
            session.run_with_iobinding(binding, options)
        return time.perf_counter_ns() - start

    def outputs(self) -> list[tuple[str, str, Any]]:
        """Name, dtype and values of every output of the last run."""
        found = []
        for index, value in enumerate(self.bound.binding.get_outputs()):
            kind = value.data_type()
            data = value.numpy() if kind in DTYPES else None
            found.append((self.session.names[index], DTYPES.get(kind, kind), data))
        return found

    def settle(self) -> None:
        """Put the values again where a graph reads them, else bind outputs that stay."""
        if self.bound.options:
            self.fill()
        else:
            self.bound.keep_outputs()
