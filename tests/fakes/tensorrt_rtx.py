"""A stand-in for TensorRT for RTX: an engine is a JSON file, and doubles its inputs.

It reads and writes device memory of the fake driver (cuda.c) when a stream is waited for.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import sys
from typing import Any, ClassVar

import numpy as np

__version__ = "1.7.1.116"
DRIVER = ctypes.CDLL("libcuda.so.1")
DRIVER.fake_enqueue.argtypes = [ctypes.c_uint64, ctypes.c_int]
DRIVER.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
DRIVER.fake_write.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
WORK: list[Any] = []
PERFORM = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: WORK[number]())
DRIVER.fake_perform(PERFORM)


class DataType(enum.Enum):
    FLOAT = "float32"
    HALF = "float16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    BF16 = ""

    @property
    def itemsize(self) -> int:
        return np.dtype(self.value).itemsize if self.value else 2


class TensorIOMode(enum.Enum):
    INPUT = 1
    OUTPUT = 2


class TensorLocation(enum.Enum):
    DEVICE = 0
    HOST = 1


class EngineValidity(enum.Enum):
    VALID = 0
    SUBOPTIMAL = 1
    INVALID = 2


class EngineInvalidityDiagnostics(enum.Enum):
    VERSION_MISMATCH = 1
    UNSUPPORTED_CC = 2
    OLD_CUDA_DRIVER = 4


class CudaGraphStrategy(enum.Enum):
    DISABLED = 0
    WHOLE_GRAPH_CAPTURE = 1


def nptype(kind: DataType) -> Any:
    if not kind.value:
        raise TypeError("no equivalent")
    return np.dtype(kind.value).type


class ILogger:
    INTERNAL_ERROR = 0
    ERROR = 1

    def log(self, severity: Any, message: str) -> None:
        raise NotImplementedError


class IProfiler:
    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise NotImplementedError


class IOutputAllocator:
    pass


class Runtime:
    engine_header_size = 64

    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def get_engine_validity(self, header: bytes) -> tuple[EngineValidity, int]:
        assert len(header) <= self.engine_header_size
        odd = int(os.environ.get("FAKE_DIAGNOSTICS", "0"))
        return (EngineValidity.INVALID if odd else EngineValidity.VALID), odd

    def deserialize_cuda_engine(self, data: bytes) -> ICudaEngine | None:
        if not data.startswith(b"{"):
            self.logger.log(ILogger.ERROR, "the magic tag\ndoes not match")
            return None
        return ICudaEngine(json.loads(data))


class IRuntimeCache:
    def deserialize(self, data: bytes) -> bool:
        return data == b"kernels"

    def serialize(self) -> bytes:
        return b"kernels"


class IRuntimeConfig:
    cuda_graph_strategy = CudaGraphStrategy.DISABLED

    def create_runtime_cache(self) -> IRuntimeCache:
        return IRuntimeCache()

    def set_runtime_cache(self, cache: IRuntimeCache) -> bool:
        assert isinstance(cache, IRuntimeCache)
        return True


class ICudaEngine:
    """``said``: name -> [mode, DataType, shape]; an output doubles the input of its index."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        self._names = list(said)
        self.num_io_tensors = len(said)

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[self._said[name][0]]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._said[name][1]]

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.DEVICE

    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig()

    def create_execution_context(self, config: Any = None) -> IExecutionContext:
        strategy = config.cuda_graph_strategy.name if config else "none"
        sys.stdout.write(f"fake: context, graphs {strategy}\n")  # which is not the runner's
        return IExecutionContext(self)


class IExecutionContext:
    profiler: Any = None
    _used: ClassVar[int] = 0

    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, Any] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        wanted = self.engine._said[name][2]
        self._shapes[name] = shape
        same = len(wanted) == len(shape)
        return same and all(w in (-1, s) for w, s in zip(wanted, shape, strict=True))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._places[name] = memory
        return True

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        self._places[name] = output_allocator
        return True

    def infer_shapes(self) -> list[str]:
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        mode, _, said = self.engine._said[name]
        if mode == "INPUT":
            return self._shapes[name]
        return (-1,) if said == ["?"] else self._shapes[self._source(name)]

    def _source(self, output: str) -> str:
        names = self.engine._names
        kinds = {mode: [n for n in names if self.engine._said[n][0] == mode]
                 for mode in ("INPUT", "OUTPUT")}  # fmt: skip
        return str(kinds["INPUT"][kinds["OUTPUT"].index(output)])

    def execute_async_v3(self, stream_handle: int) -> bool:
        outputs = [n for n in self.engine._names if self.engine._said[n][0] == "OUTPUT"]
        for name in outputs:
            if not isinstance(self._places[name], int) and not self._allocate(name):
                return False
        jobs = [self._job(name, self._source(name)) for name in outputs]
        WORK.append(lambda: [job() for job in jobs])
        if self.profiler:
            self.profiler.report_layer_time("double", 0.25)
        return bool(DRIVER.fake_enqueue(stream_handle, len(WORK) - 1) == 0)

    def _allocate(self, output: str) -> int:
        """More than needed, as is asked where a shape is not known yet."""
        most = 4 * 4 * int(np.prod(self._shapes[self._source(output)]))
        try:
            return int(self._places[output].reallocate_output_async(output, 0, most, 256, 0))
        except Exception:  # noqa: BLE001 - which the real one lets end the process
            os.abort()

    def _job(self, output: str, source: str) -> Any:
        """The work with the addresses and shapes that hold now, as a captured graph keeps them."""
        shape, place, address = self._shapes[source], self._places[output], self._places[source]
        dtype = nptype(self.engine.get_tensor_dtype(source))

        def perform() -> None:
            sys.stdout.write(f"fake: run {shape}\n")
            values = np.empty(shape, dtype)
            assert DRIVER.cuMemcpyDtoH_v2(values.ctypes.data, address, values.nbytes) == 0
            values = values + values
            to = place
            if not isinstance(to, int):
                to = place.memory.address
                place.notify_shape(output, values.shape)
            assert DRIVER.fake_write(to, values.ctypes.data, values.nbytes) == 0

        return perform
