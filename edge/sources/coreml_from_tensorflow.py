"""The MIL program of a TensorFlow or Keras model, by coremltools' own frontend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.convert.onnx_to_mil.program import Port
from edge.sources.coreml_ports import Ports
from edge.sources.tensorflow_call import Call
from edge.sources.tensorflow_load import load

ROUTE = "TensorFlow"


def routes(
    given: tuple[Path, str, dict[str, Any]], ports: Ports, target: Any
) -> Mapping[str, Callable[[], Any]]:
    """The only route from a source, its factory and options to a MIL program."""
    call = load(*given)
    inputs = ports.ordered([each.name for each in call.inputs])
    return {ROUTE: lambda: _converted(call, inputs, target)}


def _converted(call: Call, inputs: Sequence[Port], target: Any) -> Any:
    """Of one function of fixed sizes: the form of a model that coremltools reads of all kinds.

    It reads no ``.keras`` file, no folder of ``model.export()`` ("Only a single concrete function
    is supported."), and of Keras 3 no Sequential ("no attribute 'output_names'").
    """
    import coremltools as ct
    import tensorflow as tf

    def run(*tensors: Any) -> list[Any]:
        both = zip(tensors, call.inputs, inputs, strict=True)
        restored = [_restored(tensor, each.dtype, port) for tensor, each, port in both]
        return [_held(tensor) for tensor in call.function(*restored)]

    specs = [tf.TensorSpec(port.shape, port.held, name=port.name) for port in inputs]
    concrete = tf.function(run, autograph=False).get_concrete_function(*specs)
    names = [tensor.op.name for tensor in concrete.outputs]
    return ct.convert(
        [concrete],
        source="tensorflow",
        outputs=[ct.TensorType(name=name) for name in names],
        convert_to="milinternal",
        minimum_deployment_target=target,
        compute_precision=ct.precision.FLOAT32,
    )


def _restored(tensor: Any, dtype: str, port: Port) -> Any:
    """A tensor in the model's own type and rank."""
    import tensorflow as tf

    plain = tf.reshape(tensor, ()) if port.scalar else tensor
    return plain if plain.dtype.name == dtype else tf.cast(plain, dtype)


def _held(tensor: Any) -> Any:
    """An output as Core ML gives it, as a tensor of its own."""
    import tensorflow as tf

    plain = tf.reshape(tensor, (1,)) if tensor.shape.rank == 0 else tensor
    wanted = tf.float32 if tensor.dtype.is_floating else tf.int32
    return tf.identity(plain if plain.dtype == wanted else tf.cast(plain, wanted))
