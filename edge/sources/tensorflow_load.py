"""TensorFlow and Keras themselves, quiet and repeatable, and a user's model loaded with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge import errors
from edge.sources import tensorflow_trust as trust
from edge.sources.tensorflow_call import Call, of
from edge.sources.tensorflow_inputs import short

INSTALL = "pip install 'edgewright[tensorflow]'"
ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    # oneDNN rounds by what the processor can do; Eigen's kernels give the same everywhere.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "KERAS_BACKEND": "tensorflow",
}
KINDS = {".keras": "keras", ".h5": "h5", ".hdf5": "h5", ".pb": "saved_model"}
SEED = 0


def start() -> None:
    """Import TensorFlow without its noise, on the CPU, with one thread and fixed seeds.

    For a process of its own: it sets the process' environment. Raises
    :class:`errors.ToolMissing` where TensorFlow, Keras or tf2onnx is not installed.
    """
    os.environ.update(ENVIRONMENT)
    try:
        import h5py  # noqa: F401
        import keras
        import tensorflow as tf
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise errors.ToolMissing(
            f"a TensorFlow source needs {error.name or 'tensorflow'}, which is not installed",
            remedy=INSTALL,
        ) from error
    if keras.backend.backend() != "tensorflow":
        raise errors.UsageError(
            f"Keras was imported with the backend {keras.backend.backend()}",
            remedy="unset KERAS_BACKEND, or let no other library import Keras first",
        )
    tf.get_logger().setLevel("ERROR")
    with suppress(RuntimeError):  # set once; a later call finds TensorFlow running
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    # Names that Keras numbers, and the weights that a factory makes, are the same in every step.
    keras.backend.clear_session()
    keras.utils.set_random_seed(SEED)


def kind_of(source: Path, factory: str) -> str:
    """``factory``, ``keras``, ``h5`` or ``saved_model``.

    Raises :class:`errors.ModelRefused` for a TF Lite file, :class:`errors.UsageError` for others.
    """
    if factory:
        return "factory"
    with source.open("rb") as stream:
        head = stream.read(8)
    if source.suffix == ".tflite" or head[4:] == b"TFL3":
        raise errors.ModelRefused(
            f"{source.name} is a TF Lite file: its graph is already fused and quantized for one "
            "runtime, so nothing could be proven against the model that was trained",
            remedy="name the Keras model or the SavedModel that it was converted from",
        )
    kind = KINDS.get(source.suffix.lower())
    if kind == "saved_model" and source.name != "saved_model.pb":
        raise errors.UsageError(
            f"{source.name} is no SavedModel: its file is called saved_model.pb",
            remedy="name the folder that holds it; a frozen graph has to be saved again",
        )
    if kind is None:
        raise errors.UsageError(
            f"{source.name} is no TensorFlow model by its name",
            remedy="name a SavedModel folder, a .keras or .h5 file, or module:callable",
        )
    return kind


def load(source: Path, factory: str, options: Mapping[str, Any]) -> Call:
    """The user's model, loaded with care, as a :class:`Call` of TensorFlow itself.

    Raises :class:`errors.ModelRefused` for what is unsafe, damaged or unknown to Keras.
    """
    kind = kind_of(source, factory)
    start()
    loaders: dict[str, Callable[[], Any]] = {
        "factory": lambda: _made(source, factory),
        "keras": lambda: _keras(source, "keras", allow_code=bool(options["allow_pickle"])),
        "h5": lambda: _keras(source, "h5", allow_code=bool(options["allow_pickle"])),
        "saved_model": lambda: _saved_model(source),
    }
    return of(loaders[kind](), options, kind)


def _made(source: Path, factory: str) -> Any:
    from edge.sources.factory import make

    return make(source, factory)


def _keras(source: Path, kind: str, *, allow_code: bool) -> Any:
    import keras

    trust.refuse_large([source])
    check = trust.check_h5 if kind == "h5" else trust.check_keras
    check(source, allow_code=allow_code)
    try:
        return keras.models.load_model(source, compile=False, safe_mode=not allow_code)
    except (ValueError, TypeError, KeyError, AttributeError, OSError, ImportError) as error:
        raise errors.ModelRefused(
            f"Keras {keras.__version__} cannot load {source.name}: {short(error)}",
            remedy=f"load it with the Keras that saved it and save it again, or {trust.FACTORY}",
        ) from error


def _saved_model(source: Path) -> Any:
    import tensorflow as tf

    tags = trust.check_saved_model(source)
    try:
        return tf.saved_model.load(str(source.parent), tags=list(tags))
    except (ValueError, TypeError, KeyError, OSError, RuntimeError, tf.errors.OpError) as error:
        raise errors.ModelRefused(
            f"TensorFlow {tf.__version__} cannot load the SavedModel: {short(error)}",
            remedy="name the whole folder, with variables/ and assets/ beside saved_model.pb",
        ) from error
