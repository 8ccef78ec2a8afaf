"""Write the name under which the CoreML provider keeps what it compiles of a model into it."""

from __future__ import annotations

from pathlib import Path

from edge import graph
from edge.convert.coreml_provider.options import CACHE_KEY, cache_key
from edge.step import Facts, step
from edge.store import hash_file


@step(version=1, tools=("onnx",), timeout=600)
def coreml_cache_key(out: Path, *, model: Path) -> Facts:
    """``model.onnx`` whose metadata has the key; the conversion to ORT format keeps it.

    Without it the provider's folder is named by the model's path, and an app's update loads what
    was compiled of the model before. Facts: ``key``. A key that is there already is replaced.
    """
    key = cache_key(hash_file(model)[0])
    loaded = graph.read(model)
    kept = [entry for entry in loaded.metadata_props if entry.key != CACHE_KEY]
    del loaded.metadata_props[:]
    loaded.metadata_props.extend(kept)
    loaded.metadata_props.add(key=CACHE_KEY, value=key)
    graph.save(loaded, out / "model.onnx")
    return {"key": key}
