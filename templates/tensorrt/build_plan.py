#!/usr/bin/env python3
"""Make a TensorRT plan from an ONNX model, on the machine with the GPU that it is for.

    python3 build_plan.py request.json

``request.json`` says what and how; paths in it start at its folder. By ``trtexec`` its command is
run as it is. By ``python`` the package ``tensorrt`` (10 or newer) builds. One file, Python 3.8 or
newer. Errors are lines with ``[E]``, as trtexec prints them, and a non-zero exit.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn


def fail(message: str) -> NoReturn:
    """End with an error."""
    print(f"[E] {message}", flush=True)
    sys.exit(1)


def main() -> None:
    """Read the request, build by what it says."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "request.json").resolve()
    request = json.loads(path.read_text(encoding="utf-8"))
    os.chdir(path.parent)
    Path(request["timing_cache"]).parent.mkdir(parents=True, exist_ok=True)
    if request["builder"] == "trtexec":
        words = request["command"]
        try:
            os.execvp(words[0], words)  # noqa: S606 - words of our own, no shell
        except OSError as error:
            fail(f"cannot start {words[0]}: {error.strerror}")
    build(request)


def build(request: dict[str, Any]) -> None:
    """Build with the Python package, strongly typed, without TF32."""
    try:
        import tensorrt as trt
    except ImportError as error:
        fail(f"the Python package tensorrt cannot be imported: {error}")
    print(f"TensorRT version: {trt.__version__}", flush=True)
    logger = trt.Logger(trt.Logger.INFO)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(Path(request["model"]).read_bytes()):
        for place in range(parser.num_errors):
            print(f"[E] {parser.get_error(place).desc()}", flush=True)
        fail("the parser refuses the model")
    config = configured(trt, builder, request)
    cache = timing_cache(config, Path(request["timing_cache"]))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        fail("the builder gives no plan; its reasons are above")
    replace(Path(request["engine"]), bytes(plan))
    if cache is not None:
        replace(Path(request["timing_cache"]), bytes(config.get_timing_cache().serialize()))


def configured(trt: Any, builder: Any, request: dict[str, Any]) -> Any:
    """The builder's configuration with profile and options."""
    config, options = builder.create_builder_config(), request["options"]
    config.clear_flag(trt.BuilderFlag.TF32)
    if request["profiles"]:
        profile = builder.create_optimization_profile()
        for each in request["profiles"]:
            profile.set_shape(each["name"], each["least"], each["usual"], each["most"])
        if config.add_optimization_profile(profile) < 0:
            fail("TensorRT does not take the optimization profile")
    if "builder_optimization_level" in options:
        config.builder_optimization_level = options["builder_optimization_level"]
    if "max_workspace_size" in options:
        limit = options["max_workspace_size"]
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, limit)
    if options.get("sparsity_enable"):
        config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)
    if options.get("engine_hw_compatible"):
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    return config


def timing_cache(config: Any, path: Path) -> Any:
    """The timing cache in ``path``, or a new one; None where TensorRT does not take it."""
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    # One of another GPU or release is not taken.
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        print("[W] the timing cache is not taken", flush=True)
        return None
    return cache


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; other builds may write the same one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


if __name__ == "__main__":
    main()
