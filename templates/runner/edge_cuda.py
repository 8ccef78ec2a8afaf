"""The NVIDIA driver, as far as runners need it, by ctypes: it is there wherever a GPU can be used.

The driver's own API and not libcudart: there is no library to be found among pip's packages, and
what is made here (memory, streams, graphs) is the same to a runtime that uses libcudart, since
both work in the GPU's primary context. Signatures: cuda.h of CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
HANDLE, POINTER = ctypes.c_void_p, ctypes.c_uint64
SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [ctypes.c_uint],
    "cuDriverGetVersion": [ctypes.POINTER(ctypes.c_int)],
    "cuDeviceGetCount": [ctypes.POINTER(ctypes.c_int)],
    "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
    "cuDeviceGetName": [ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
    "cuDeviceGetAttribute": [ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(HANDLE), ctypes.c_int],
    "cuCtxSetCurrent": [HANDLE],
    "cuMemAlloc_v2": [ctypes.POINTER(POINTER), ctypes.c_size_t],
    "cuMemFree_v2": [POINTER],
    "cuMemcpyHtoD_v2": [POINTER, HANDLE, ctypes.c_size_t],
    "cuMemcpyDtoH_v2": [HANDLE, POINTER, ctypes.c_size_t],
    "cuStreamCreate": [ctypes.POINTER(HANDLE), ctypes.c_uint],
    "cuStreamSynchronize": [HANDLE],
    "cuStreamBeginCapture_v2": [HANDLE, ctypes.c_int],
    "cuStreamEndCapture": [HANDLE, ctypes.POINTER(HANDLE)],
    "cuGraphInstantiateWithFlags": [ctypes.POINTER(HANDLE), HANDLE, ctypes.c_uint64],
    "cuGraphLaunch": [HANDLE, HANDLE],
    "cuGraphDestroy": [HANDLE],
    "cuGraphExecDestroy": [HANDLE],
}


class Driver:
    """The driver's library; RuntimeError where there is none, or no GPU that it can use."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise RuntimeError(f"there is no NVIDIA driver: {error}") from error
        for name, arguments in SIGNATURES.items():
            getattr(self.library, name).argtypes = arguments
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; RuntimeError with its own words when it fails."""
        status = getattr(self.library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            said = text.value.decode("utf-8", "replace") if text.value else "unknown"
            raise RuntimeError(f"the NVIDIA driver: {name}: error {status}, {said}")

    def integer(self, name: str, *arguments: Any) -> int:
        """The number that a function writes to its first argument."""
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found), *arguments)
        return found.value

    def handle(self, name: str, *arguments: Any) -> Any:
        """The handle that a function writes to its first argument."""
        found = HANDLE()
        self.call(name, ctypes.byref(found), *arguments)
        return found

    def gpu(self, index: int) -> Gpu:
        """A GPU by its number."""
        count = self.integer("cuDeviceGetCount")
        if index >= count:
            raise RuntimeError(f"there is no GPU {index}: the NVIDIA driver has {count}")
        return Gpu(self, self.integer("cuDeviceGet", index))


class Gpu:
    """A GPU: ``text`` names it, ``capability`` is its compute capability without the point."""

    def __init__(self, driver: Driver, device: int) -> None:
        self.driver = driver
        self.device = device
        name = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", name, 256, device)
        major, minor = (
            driver.integer("cuDeviceGetAttribute", what, device) for what in COMPUTE_CAPABILITY
        )
        version = driver.integer("cuDriverGetVersion")  # of CUDA: 1000 * major + 10 * minor
        self.capability = f"{major}{minor}"
        called = name.value.decode("utf-8", "replace")
        cuda = f"{version // 1000}.{version % 1000 // 10}"
        self.text = f"{called}, compute capability {major}.{minor}, driver for CUDA {cuda}"

    def make_current(self) -> None:
        """Take the GPU's primary context, which runtimes work in, for this thread."""
        context = self.driver.handle("cuDevicePrimaryCtxRetain", self.device)
        self.driver.call("cuCtxSetCurrent", context)

    def stream(self) -> Stream:
        """A new stream of the current context."""
        return Stream(self.driver)


class Memory:
    """Bytes on the GPU, freed with the object."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.driver = driver
        self.nbytes = nbytes
        found = POINTER()
        driver.call("cuMemAlloc_v2", ctypes.byref(found), max(nbytes, 1))
        self.address = found.value or 0

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self.driver.library.cuMemFree_v2(self.address)

    def write(self, values: Any) -> None:
        """Copy a C-ordered array to the GPU; it is there when this ends.

        A copy from pageable memory may return while the last of it is on its way, and streams
        that are not blocking do not wait for it ("API synchronization behavior" of the driver).
        """
        if values.nbytes:
            self.driver.call("cuMemcpyHtoD_v2", self.address, values.ctypes.data, values.nbytes)
            self.driver.call("cuStreamSynchronize", None)

    def read(self, values: Any) -> Any:
        """Fill a C-ordered array from the GPU; it is returned."""
        if values.nbytes:
            self.driver.call("cuMemcpyDtoH_v2", values.ctypes.data, self.address, values.nbytes)
        return values


class Stream:
    """A stream, and graphs captured on it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.handle = driver.handle("cuStreamCreate", NON_BLOCKING)

    @property
    def number(self) -> int:
        """The handle as runtimes take it."""
        return int(self.handle.value or 0)

    def wait(self) -> None:
        """Wait for all that was put on it."""
        self.driver.call("cuStreamSynchronize", self.handle)

    def capture(self, work: Any) -> Any:
        """What ``work`` puts on the stream, as a graph that can be launched."""
        graph = HANDLE()
        self.driver.call("cuStreamBeginCapture_v2", self.handle, THREAD_LOCAL)
        try:
            work()
        except Exception:  # a stream that stays in capture can do nothing else
            self.driver.library.cuStreamEndCapture(self.handle, ctypes.byref(graph))
            raise
        self.driver.call("cuStreamEndCapture", self.handle, ctypes.byref(graph))
        launched = self.driver.handle("cuGraphInstantiateWithFlags", graph, 0)
        self.driver.call("cuGraphDestroy", graph)
        return launched

    def launch(self, graph: Any) -> None:
        """Put a captured graph on the stream."""
        self.driver.call("cuGraphLaunch", graph, self.handle)

    def forget(self, graph: Any) -> None:
        """Free a captured graph."""
        self.driver.call("cuGraphExecDestroy", graph)


def cache_folder(request: Any, gpu: Gpu, version: str) -> Path:
    """Where what was compiled from this content for this GPU and TensorRT is kept; it is made."""
    folder = Path(request.cache) / f"{request.engine_key}-sm{gpu.capability}-trt{version}"
    folder.mkdir(exist_ok=True)
    return folder
