"""Source: an ONNX file, with external data beside it.

Two steps, both in a process of their own: :data:`external_files` says which other files the
model's content names (confined to the model's folder), so that they go into every key;
:data:`import_onnx` checks the model and writes it as one file where the format can hold it.
A factory may return an ``onnx.ModelProto`` too: it has the steps of a framework's source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.convert import run_model
from edge.sources import user_code
from edge.sources.framework import Runner, accuracy_step, golden_step
from edge.step import Facts, step

if TYPE_CHECKING:
    import onnx

MAX_EXTERNAL_FILES = 10_000


@step(version=1, tools=("onnx",), timeout=300)
def external_files(out: Path, *, model: Path) -> Facts:
    """Facts: ``files``, the sorted relative locations of the model's external data."""
    from onnx.external_data_helper import uses_external_data

    del out  # facts only
    loaded = graph.read(model)
    locations = set()
    for tensor in graph.all_tensors(loaded):
        if uses_external_data(tensor):
            entries = {entry.key: entry.value for entry in tensor.external_data}
            locations.add(graph.confined(entries.get("location", ""), tensor.name))
    if len(locations) > MAX_EXTERNAL_FILES:
        raise errors.ModelRefused(f"the model names {len(locations)} external files")
    return {"files": sorted(locations)}


@step(version=2, tools=("onnx",), timeout=900)
def import_onnx(out: Path, *, model: Path) -> Facts:
    """The checked model as ``model.onnx``, external data in it.

    Facts: ``inputs`` and ``outputs`` (name, dtype, shape), ``opset``, ``domains``,
    ``ir_version``, ``nodes``. Raises :class:`errors.ModelRefused` for everything that
    ``onnx.checker`` refuses, and for NaN in weights.
    """
    import onnx

    loaded = graph.read(model)
    _refuse_unknown_versions(loaded)
    try:
        onnx.load_external_data_for_model(loaded, str(model.parent))
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        raise errors.ModelRefused(
            f"the model's external data cannot be read: {graph.first_line(error)}",
            remedy="keep the external data files beside the model, complete and unchanged",
        ) from error
    _refuse_nan(loaded)
    graph.save(loaded, out / "model.onnx")
    try:
        # By path: a model above 2 GB cannot be serialized for the checker.
        onnx.checker.check_model(str(out / "model.onnx"), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise errors.ModelRefused(
            f"onnx.checker refuses the model: {graph.first_line(error)}",
            remedy="repair the export; `python -m onnx.checker` shows the whole message",
        ) from error
    return graph.facts(loaded)


def _refuse_nan(model: onnx.ModelProto) -> None:
    """A weight that is NaN was lost in training; infinities are masks in many models."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    for tensor in graph.all_tensors(model):
        if tensor.data_type not in floats:
            continue
        values = numpy_helper.to_array(tensor)
        if lost := int(np.count_nonzero(np.isnan(values))):
            raise errors.ModelRefused(
                f"the weight {tensor.name!r} holds NaN ({lost} of {values.size} values)",
                remedy="train or export the model again: what it computes is NaN too",
            )


def _refuse_unknown_versions(model: onnx.ModelProto) -> None:
    """A model from the future cannot be checked; the checker's own words would not say so."""
    import onnx

    limits = {"IR version": (model.ir_version, int(onnx.IR_VERSION))}
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            limits["opset"] = (int(entry.version), onnx.defs.onnx_opset_version())
    for what, (has, known) in limits.items():
        if has > known:
            raise errors.ModelRefused(
                f"the model has {what} {has}; the installed onnx {onnx.__version__} "
                f"knows up to {known}",
                remedy="pip install --upgrade onnx, or export for an older version",
            )


@step(version=1, tools=("onnx",), timeout=1800)
def export_onnx(out: Path, *, source: Path, factory: str, options: dict[str, Any]) -> Facts:
    """``model.onnx``: the ``onnx.ModelProto`` that a factory returns, as it is."""
    del options
    graph.save(user_code.make(source, factory), out / "model.onnx")
    return {"exporter": "onnx"}


def runner(source: Path, factory: str, options: dict[str, Any]) -> Runner:
    """Runs the model of a factory with onnxruntime, nothing optimized."""
    del options
    with tempfile.TemporaryDirectory(prefix="edge-model-") as folder:
        path = Path(folder, "model.onnx")
        graph.save(user_code.make(source, factory), path)
        session = run_model.open_session(path, level="disabled")

    def run(case: Mapping[str, Any]) -> list[Any]:
        return list(run_model.run_session(session, dict(case)).values())

    return run


TOOLS = ("onnx", "onnxruntime", "numpy")
onnx_factory_golden = golden_step("onnx_factory_golden", runner, TOOLS)
onnx_factory_accuracy = accuracy_step("onnx_factory_accuracy", runner, TOOLS)
