"""A stand-in for TensorRT: as the one for RTX, without what that has of its own."""

from __future__ import annotations

from tensorrt_rtx import *  # noqa: F403
from tensorrt_rtx import ICudaEngine, Runtime

__version__ = "10.13.3"
del ICudaEngine.create_runtime_config, Runtime.get_engine_validity
