"""What the CoreML execution provider will take of a model, as a file for the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edge import graph
from edge.convert.coreml_provider import RELEASE, checked, coreml_version, predict
from edge.step import Facts, step

FILE = "coreml.json"


@step(version=2, tools=("onnx",), timeout=600)
def coreml_partitions(out: Path, *, model: Path, options: dict[str, str], ios: str) -> Facts:
    """``coreml.json``: for each node the partition that takes it, or the reason why none does.

    ``model`` is what the session hands the provider, as ONNX: optimized at level 1 ("basic"), or
    as the ORT-format artifact is. ``options`` are the provider's own names and values, ``ios`` the
    device's release ("15.1"), which says what Core ML it has. Facts: nodes, taken, share,
    partitions, ``refused`` (counts by operator and reason), options, coreml, release and
    ``unverified`` True.
    Raises :class:`edge.errors.ModelRefused` for a file that is no usable model and
    :class:`edge.errors.ConfigError` for options that the provider does not have.
    """
    wanted = checked(options)
    version = coreml_version(ios)
    prediction = predict(graph.read(model), wanted, coreml=version)
    about: dict[str, Any] = {
        "release": RELEASE,
        "coreml": version,
        "options": wanted.provider_options(),
        "unverified": True,  # no live provider was asked
    }
    text = json.dumps({**about, **prediction.to_json()}, indent=1, sort_keys=True)
    (out / FILE).write_text(text + "\n", "utf-8")
    return {**about, **prediction.counts(), "refused": prediction.refused()}
