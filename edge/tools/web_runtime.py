"""onnxruntime-web: which files of the npm package a page needs.

Pure data and functions: nothing is fetched here (pins stand in the targets' TOML). The package
carries 139 MB in all variants; a page needs two files of it. Facts are those of release 1.30.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from edge import errors

PACKAGE = "onnxruntime-web"
DIST = "package/dist"
RUNTIME_FOLDER = "runtime"


@dataclass(frozen=True)
class WebProvider:
    """One execution provider of onnxruntime-web.

    ``module`` and ``wasm`` are files of the package's ``dist`` folder: the module holds
    emscripten's glue (the ``bundle`` builds do), so that these two are all a page loads.
    ``execution_provider`` is ONNX Runtime's name of it, ``session_name`` the one that
    ``InferenceSession.create`` takes. ``formats`` are the model files that it can load.
    ``ready``: this release builds bundles with it; ``needs`` says what a browser must have.
    """

    name: str
    execution_provider: str
    session_name: str
    module: str
    wasm: str
    formats: tuple[str, ...]
    ready: bool
    needs: str

    @property
    def members(self) -> tuple[str, ...]:
        """The files' paths inside the npm package, the module first."""
        return (f"{DIST}/{self.module}", f"{DIST}/{self.wasm}")


# ort.wasm.bundle.min.mjs beside ort.wasm.min.mjs + ort-wasm-simd-threaded.mjs: 1,453 bytes
# (632 gzipped) and one request less. The default ort.min.mjs loads the 28 MB jsep build even for
# the wasm provider. ORT-format models fail under WebGPU (microsoft/onnxruntime#23072), and its
# Conv is wrong beyond 3 input channels (microsoft/onnxruntime#29651): not ready.
PROVIDERS = {
    provider.name: provider
    for provider in (
        WebProvider(
            name="wasm",
            execution_provider="CPUExecutionProvider",
            session_name="wasm",
            module="ort.wasm.bundle.min.mjs",
            wasm="ort-wasm-simd-threaded.wasm",
            formats=("ort", "onnx"),
            ready=True,
            needs="WebAssembly SIMD; cross-origin isolation for more than one thread",
        ),
        WebProvider(
            name="webgpu-jspi",
            execution_provider="WebGpuExecutionProvider",
            session_name="webgpu",
            module="ort.jspi.bundle.min.mjs",
            wasm="ort-wasm-simd-threaded.jspi.wasm",
            formats=("onnx",),
            ready=False,
            needs="WebGPU and WebAssembly JSPI (WebAssembly.Suspending)",
        ),
        WebProvider(
            name="webgpu-asyncify",
            execution_provider="WebGpuExecutionProvider",
            session_name="webgpu",
            module="ort.webgpu.bundle.min.mjs",
            wasm="ort-wasm-simd-threaded.asyncify.wasm",
            formats=("onnx",),
            ready=False,
            needs="WebGPU",
        ),
    )
}


def provider(name: str) -> WebProvider:
    """The row of ``name``; :class:`errors.ConfigError` for one that is not in the table.

    ``CPUExecutionProvider``, ONNX Runtime's own name of the wasm provider, is one too.
    """
    found = PROVIDERS.get("wasm" if name == "CPUExecutionProvider" else name)
    if found is None:
        raise errors.ConfigError(
            f"onnxruntime-web has no provider {name!r}",
            remedy=f"known: {', '.join(PROVIDERS)}",
        )
    return found


def bundle_path(member: str) -> str:
    """Where a member of the package lies in a bundle: ``runtime/ort.wasm.bundle.min.mjs``."""
    return f"{RUNTIME_FOLDER}/{PurePosixPath(member).name}"
