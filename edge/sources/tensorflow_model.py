"""Source: a TensorFlow or Keras model (SavedModel, .keras, .h5, or a factory).

Three steps, in processes of their own: :data:`export_tensorflow` converts through tf2onnx,
:data:`tensorflow_golden` gives the outputs of TensorFlow itself. The model is looked through
before it is loaded (``tensorflow_trust``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.sources.framework import TRUST, Runner, accuracy_step, golden_step
from edge.sources.tensorflow_export import convert, name_output_dims, output_names
from edge.sources.tensorflow_inputs import short
from edge.sources.tensorflow_load import load
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# One module, several distributions: the whole one, the CPU build, Apple's, the nightly.
TOOLS = (
    "tensorflow|tensorflow-cpu|tensorflow-macos|tf-nightly",
    "keras",
    "tf2onnx",
    "h5py",
    "numpy",
)


def runner(source: Path, factory: str, options: dict[str, Any]) -> Runner:
    """TensorFlow itself on the user's model: ``training=False``, eager, one thread, on the CPU.

    Raises :class:`errors.RunFailed` from the returned function where TensorFlow refuses inputs.
    """
    call = load(source, factory, options)
    import tensorflow as tf

    def run(case: Mapping[str, Array]) -> list[Array]:
        try:
            tensors = [tf.constant(case[each.name], each.dtype) for each in call.inputs]
            return [value.numpy() for value in call.function(*tensors)]
        except (ValueError, TypeError, KeyError, tf.errors.OpError) as error:
            raise errors.RunFailed(
                f"TensorFlow does not run the model on its samples: {short(error)}"
            ) from error

    return run


@step(
    version=1,
    tools=(*TOOLS, "onnx", "onnxruntime"),
    timeout=1800,
    extra="tensorflow",
    aside=TRUST,
)
def export_tensorflow(out: Path, *, source: Path, factory: str, options: dict[str, Any]) -> Facts:
    """``model.onnx`` in one file, the same bytes in every process, loaded once as a check.

    Facts: as of an ONNX file (``inputs``, ``outputs``, ``opset``, ...), and ``exporter``,
    ``source_kind`` (saved_model, keras, h5, factory) and ``signature``. Raises
    :class:`errors.ModelRefused` and :class:`errors.UsageError`.
    """
    call = load(source, factory, options)
    import keras
    import onnx
    import tensorflow as tf
    import tf2onnx

    model = convert(call, output_names(call, options["outputs"]), options["opset"])
    onnx.save_model(model, out / "model.onnx")
    name_output_dims(out / "model.onnx", options["dims"])
    versions = f"tensorflow {tf.__version__}, keras {keras.__version__}"
    return {
        **graph.facts(onnx.load(out / "model.onnx")),
        "exporter": f"tf2onnx {tf2onnx.__version__} ({versions})",
        "source_kind": call.kind,
        "signature": call.signature,
    }


tensorflow_golden = golden_step("tensorflow_golden", runner, TOOLS, "tensorflow")
tensorflow_accuracy = accuracy_step("tensorflow_accuracy", runner, TOOLS, "tensorflow")
