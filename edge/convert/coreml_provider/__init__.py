"""What ONNX Runtime's CoreML execution provider takes of a model, predicted node by node.

Written after release 1.29.0, the one that ``targets/ios.toml`` pins; the rules cite its files and
docs/coreml-provider.md says how they were read. Nothing here was compared with a live provider:
``unverified``. What Core ML itself then refuses to compile is not predicted.
"""

from __future__ import annotations

from edge.convert.coreml_provider.judge import ROWS
from edge.convert.coreml_provider.options import (
    CACHE_KEY,
    RELEASE,
    Options,
    cache_key,
    checked,
    coreml_version,
    is_cache_key,
)
from edge.convert.coreml_provider.predict import Prediction, Verdict, predict

__all__ = [
    "CACHE_KEY",
    "RELEASE",
    "ROWS",
    "Options",
    "Prediction",
    "Verdict",
    "cache_key",
    "checked",
    "coreml_version",
    "is_cache_key",
    "predict",
]
