"""The key of a compiled engine: the content of everything that it is made of.

ONNX Runtime names cached engines by graph and file names, and two models of one name then share
one engine: wrong results (onnxruntime #32254, #6455). This key leaves no name in. What compiles
on a device adds the GPU's compute capability and TensorRT's version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from edge.store import canonical_json


def engine_key(
    model_sha256: str,
    profiles: Sequence[Mapping[str, Any]],
    precision: str,
    options: Mapping[str, str],
    runtime: str,
) -> str:
    """SHA-256 (hex) over the model's bytes, profiles, precision, options and the runtime.

    ``runtime`` is name and release: another ONNX Runtime cuts the graph into other parts for
    TensorRT, under the names of the same graph.
    """
    made_of = {
        "model": model_sha256,
        "profiles": [dict(each) for each in profiles],
        "precision": precision,
        "options": dict(options),
        "runtime": runtime,
    }
    return hashlib.sha256(canonical_json(made_of).encode()).hexdigest()
