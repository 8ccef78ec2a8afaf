"""TensorRT and TensorRT for RTX, by their Python API: a backend of edge_runner.py (see there).

An engine runs on the GPU as a whole: there is nothing that it could fall back to.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

import edge_cuda

PROVIDERS = r"tensorrt(-rtx)?"
MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
RUNTIME_CACHE = "runtime.cache"
MAX_CACHE_BYTES = 1 << 30


def usual_provider(request: Any) -> str:
    """What the artifact is made for."""
    return "tensorrt-rtx" if request.artifact.suffix == ".rtx" else "tensorrt"


def check(request: Any) -> None:
    """Refuse another engine's provider, and options that engines have not."""
    if request.provider != usual_provider(request):
        raise ValueError(f"{request.artifact.name} does not run on {request.provider}")
    if request.provider_options or request.session_options:
        raise ValueError("an engine has no options provider.* and session.*")


def open_runtime(request: Any) -> Runtime:
    """The Python module of TensorRT."""
    return Runtime(importlib.import_module(MODULES[request.provider]), request)


class Runtime:
    """TensorRT, opened."""

    def __init__(self, trt: Any, request: Any) -> None:
        self.trt = trt
        self.request = request
        self.facts = {
            "runtime": request.provider,
            "version": str(trt.__version__),
            "provider": request.provider,
            "optimization": "disabled",  # of ONNX Runtime's levels
        }

    def load(self) -> Session:
        """The engine, deserialized for the first GPU, and a context to run it in."""
        logger = make_logger(self.trt)
        runtime = self.trt.Runtime(logger)
        data = self.request.artifact.read_bytes()
        self.check_validity(runtime, data)
        engine = runtime.deserialize_cuda_engine(data)
        if engine is None:
            raise RuntimeError(self.why_not(logger))
        return Session(self.trt, (logger, runtime, engine), self.request)

    def check_validity(self, runtime: Any, data: bytes) -> None:
        """Whether the engine's header fits this runtime and GPU, where it can be asked (RTX).

        Without a driver it is invalid for no reason; deserializing says which.
        """
        if not hasattr(runtime, "get_engine_validity"):
            return
        validity, diagnostics = runtime.get_engine_validity(data[: runtime.engine_header_size])
        if validity != self.trt.EngineValidity.INVALID:
            return
        known = self.trt.EngineInvalidityDiagnostics
        names = [name for name in dir(known) if name.isupper()]
        reasons = [name for name in names if int(diagnostics) & int(getattr(known, name).value)]
        if reasons:
            what = f"{self.request.artifact.name} is not for this machine: {', '.join(reasons)}"
            raise RuntimeError(f"{what}; build it again with TensorRT {self.trt.__version__}")

    def why_not(self, logger: Any) -> str:
        """Why an engine was not deserialized, as far as driver and runtime say."""
        try:
            gpu = edge_cuda.Driver().gpu(0).text
        except RuntimeError as error:
            gpu = str(error)
        return f"TensorRT cannot load {self.request.artifact.name} ({gpu}): {last(logger.said)}"


def last(said: list[str]) -> str:
    """The last errors, in one line."""
    return "; ".join(said[-3:]) or "it does not say why"


def make_logger(trt: Any) -> Any:
    """A logger that keeps what errors say; one process has one."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        """Errors, in order."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.said: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            """Called by TensorRT."""
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.said.append(" ".join(str(message).split())[:2000])

    return Logger()


class Session:
    """An engine with its context. ``parts``: what must live as long (logger, runtime, engine)."""

    def __init__(self, trt: Any, parts: tuple[Any, Any, Any], request: Any) -> None:
        self.trt = trt
        self.parts = parts
        self.engine = parts[2]
        self.said: list[str] = parts[0].said  # why something failed
        self.request = request
        self.driver = edge_cuda.Driver()
        self.gpu = self.driver.gpu(0)
        self.gpu.make_current()
        self.stream = self.gpu.stream()
        self.kept: Any = None  # the runtime cache of TensorRT for RTX
        self.cached: bool | None = None
        self.context = self.make_context()
        self.events: list[dict[str, Any]] = []
        if request.profile:
            self.profiler = make_profiler(trt, self.events, request.provider)
            self.context.profiler = self.profiler
        engine = self.engine
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        modes = {name: engine.get_tensor_mode(name) for name in names}
        self.inputs = [name for name in names if modes[name] == trt.TensorIOMode.INPUT]
        self.outputs = [name for name in names if modes[name] == trt.TensorIOMode.OUTPUT]

    def make_context(self) -> Any:
        """The execution context; with RTX it takes compiled kernels from the cache, and graphs."""
        if not hasattr(self.engine, "create_runtime_config"):
            made = self.engine.create_execution_context()
        else:
            config = self.engine.create_runtime_config()
            if self.captures:
                config.cuda_graph_strategy = self.trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
            if self.request.cache and self.request.engine_key:
                self.kept = config.create_runtime_cache()
                self.cached = self.read_cache()
                config.set_runtime_cache(self.kept)
            made = self.engine.create_execution_context(config)
        if made is None:
            raise RuntimeError("TensorRT made no execution context: is there enough GPU memory?")
        return made

    @property
    def captures(self) -> bool:
        """Whether runs are replayed as a CUDA graph; not while they are profiled."""
        return bool(self.request.cuda_graph and not self.request.profile)

    def cache_file(self) -> Path:
        """Where kernels compiled for this engine, GPU and release are kept."""
        folder = edge_cuda.cache_folder(self.request, self.gpu, self.trt.__version__)
        return folder / RUNTIME_CACHE

    def read_cache(self) -> bool:
        """Whether there was a cache that TensorRT took; it checks itself what it is for."""
        path = self.cache_file()
        if not path.is_file() or not 0 < path.stat().st_size <= MAX_CACHE_BYTES:
            return False
        return bool(self.kept.deserialize(path.read_bytes()))

    def bind(self, arrays: dict[str, Any], _names: list[str]) -> Job:
        """A job of one sample."""
        unknown = [name for name in arrays if name not in self.inputs]
        missing = [name for name in self.inputs if name not in arrays]
        if unknown or missing:
            has = " ".join(self.inputs)
            raise RuntimeError(f"the engine's inputs are {has}, not {' '.join(arrays)}")
        return Job(self, arrays)

    def close(self) -> str | None:
        """Keep the cache, whole or not at all; the profile's file."""
        if self.kept is not None and not self.cached:
            path = self.cache_file()
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            part.write_bytes(memoryview(self.kept.serialize()))
            part.replace(path)
        if not self.request.profile:
            return None
        file = f"{self.request.profile}.json"
        Path(file).write_text(json.dumps(self.events), encoding="utf-8")
        return file


def make_profiler(trt: Any, events: list[dict[str, Any]], provider: str) -> Any:
    """A profiler that adds layers to ``events`` in the form of ONNX Runtime's profile."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        """Layers of every run."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            """Called by TensorRT."""
            facts = {"provider": provider, "node_index": ""}
            name = f"{layer_name}_kernel_time"
            events.append({"cat": "Node", "name": name, "dur": round(ms * 1e3), "args": facts})

    return Profiler()


def make_allocator(trt: Any, driver: Any, said: list[str]) -> Any:
    """Memory for an output whose shape is known only when it has been computed."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        """The memory, which grows as needed, and the shape."""

        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.memory = edge_cuda.Memory(driver, 0)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, _name: str, _memory: int, size: int, _alignment: int) -> int:
            """Called by TensorRT with the bytes that it needs; 0 where there are none left."""
            try:
                if size > self.memory.nbytes:
                    self.memory = edge_cuda.Memory(driver, size)
            except RuntimeError as error:  # which TensorRT's own code must not see
                said.append(str(error))
                return 0
            return int(self.memory.address)

        def reallocate_output_async(
            self, name: str, memory: int, size: int, alignment: int, _stream: int
        ) -> int:
            """Called by TensorRT with the bytes that it needs."""
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, _name: str, shape: Any) -> None:
            """Called by TensorRT with the shape."""
            self.shape = tuple(shape)

    return Allocator()


class Job:
    """One sample: its values on the GPU, its shapes and addresses in the context."""

    def __init__(self, session: Session, arrays: dict[str, Any]) -> None:
        import numpy as np

        self.session = session
        self.graph: Any = None
        self.arrays = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
        self.memory: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.allocators: dict[str, Any] = {}
        for name, values in self.arrays.items():
            self.check_input(name, values)
            self.memory[name] = edge_cuda.Memory(session.driver, values.nbytes)
            self.memory[name].write(values)
        self.set_inputs()
        for name in session.outputs:
            self.make_output(name)
        self.set_outputs()

    def check_input(self, name: str, values: Any) -> None:
        """Refuse a dtype that the engine does not read: it would take the bytes as they are."""
        wanted = self.dtype(name)
        if wanted != values.dtype.name:
            given = values.dtype.name
            raise RuntimeError(f"the input {name} is {given}, the engine takes {wanted}")

    def dtype(self, name: str) -> str:
        """A tensor's dtype by numpy's name, else by TensorRT's."""
        import numpy as np

        kind = self.session.engine.get_tensor_dtype(name)
        try:
            return str(np.dtype(self.session.trt.nptype(kind)).name)
        except TypeError:
            return str(kind.name)

    def set_inputs(self) -> None:
        """Tell the context this sample's shapes and where the values are."""
        context, host = self.session.context, self.session.trt.TensorLocation.HOST
        for name, values in self.arrays.items():
            on_host = self.session.engine.get_tensor_location(name) == host  # a shape tensor
            address = values.ctypes.data if on_host else self.memory[name].address
            self.must(context.set_input_shape(name, tuple(values.shape)), f"the shape of {name}")
            self.must(context.set_tensor_address(name, address), f"the address of {name}")
        if unset := context.infer_shapes():
            raise RuntimeError(f"TensorRT misses {' '.join(unset)}")

    def make_output(self, name: str) -> None:
        """Memory for an output, of its shape where that follows from the inputs."""
        import numpy as np

        session = self.session
        if session.engine.get_tensor_location(name) == session.trt.TensorLocation.HOST:
            raise RuntimeError(f"the output {name} is a shape tensor, which is not read here")
        shape = tuple(session.context.get_tensor_shape(name))
        if min(shape, default=0) < 0:
            self.allocators[name] = make_allocator(session.trt, session.driver, session.said)
            return
        self.shapes[name] = shape
        count = int(np.prod(shape, dtype=np.int64))
        size = count * int(session.engine.get_tensor_dtype(name).itemsize)
        self.memory[name] = edge_cuda.Memory(session.driver, size)

    def set_outputs(self) -> None:
        """Tell the context where outputs go."""
        context = self.session.context
        for name in self.session.outputs:
            if name in self.allocators:
                done = context.set_output_allocator(name, self.allocators[name])
            else:
                done = context.set_tensor_address(name, self.memory[name].address)
            self.must(done, f"the place of {name}")

    def must(self, done: object, what: str) -> None:
        """RuntimeError with what TensorRT says of it, unless it was done."""
        if not done:
            raise RuntimeError(f"TensorRT refuses {what}: {last(self.session.said)}")

    def enqueue(self) -> None:
        """Put one run on the stream."""
        done = self.session.context.execute_async_v3(self.session.stream.number)
        self.must(done, "the run")

    def run(self) -> int:
        """Nanoseconds of one run, which ends when the GPU has ended.

        TensorRT's first run may do more than later ones and is no part of a graph; what it
        computed is computed again by the graph. TensorRT for RTX captures by itself.
        """
        stream, session = self.session.stream, self.session
        start = time.perf_counter_ns()
        if session.captures and session.request.provider == "tensorrt":
            if self.graph is None:
                self.enqueue()
                stream.wait()
                self.graph = stream.capture(self.enqueue)
            stream.launch(self.graph)
        else:
            self.enqueue()
        stream.wait()
        return time.perf_counter_ns() - start

    def outputs(self) -> list[tuple[str, str, Any]]:
        """Name, dtype and values of every output of the last run."""
        import numpy as np

        found: list[tuple[str, str, Any]] = []
        for name in self.session.outputs:
            dtype = self.dtype(name)
            if dtype != dtype.lower():  # TensorRT's name: numpy has no such type
                found.append((name, dtype, None))
                continue
            own = self.allocators.get(name)
            memory = own.memory if own else self.memory[name]
            values = np.empty(own.shape if own else self.shapes[name], dtype)
            found.append((name, dtype, memory.read(values)))
        return found

    def settle(self) -> None:
        """Set shapes and addresses again: the context has seen others since."""
        if self.graph is not None:
            self.session.stream.forget(self.graph)
            self.graph = None
        self.set_inputs()
        self.set_outputs()
