"""TensorFlow and Keras models for tests; the digits one is really trained."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FACTORY = '''
"""The factory of a user's project: the architecture in code, the weights beside it."""
from pathlib import Path

import keras


def digits():
    return keras.models.load_model(Path(__file__).parent / "digits.keras", compile=False)
'''


def need_tensorflow() -> None:
    """Skip, by name, without TensorFlow and what converts from it; fail under CI."""
    wanted = ("tensorflow", "keras", "tf2onnx", "h5py", "sklearn")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}: pip install -e '.[tensorflow,sklearn]'"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def started() -> Iterator[None]:
    """TensorFlow as the steps start it; the environment of the tests is put back."""
    need_tensorflow()
    before = dict(os.environ)
    with quiet():
        from edge.sources.tensorflow_load import start

        start()
    yield
    os.environ.clear()
    os.environ.update(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Making models is no test: what libraries warn of there does not count."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def options(**said: Any) -> dict[str, Any]:
    """Options as the build gives them."""
    plain: dict[str, Any] = {
        "opset": 22, "inputs": [], "dims": {}, "outputs": [], "signature": "",
        "allow_pickle": False,
    }  # fmt: skip
    return {**plain, **said}


def images() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """scikit-learn's digits: images [1797, 8, 8, 1] float32 in [0, 1], labels [1797] int."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32).reshape(-1, 8, 8, 1), labels


def train_digits(folder: Path) -> Path:
    """A CNN trained on the first 1,500 digits, saved in every way; the folder itself."""
    import keras
    from keras import layers

    with quiet():
        keras.utils.set_random_seed(7)
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1), name="image"),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.BatchNormalization(momentum=0.8),
                layers.MaxPooling2D(),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Dropout(0.2),
                layers.Flatten(),
                layers.Dense(10, activation="softmax", name="digit"),
            ]
        )
        pixels, labels = images()
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(pixels[:1500], labels[:1500], batch_size=32, epochs=5, verbose=0)
        model.save(folder / "digits.keras")
        model.save(folder / "digits.h5")
        model.export(folder / "exported", verbose=False)
    (folder / "digits_factory.py").write_text(FACTORY)
    return folder


def saved(model: Any, path: Path) -> Path:
    """A Keras model as ``.keras`` or ``.h5``, by the path's suffix."""
    with quiet():
        model.save(path)
    return path


def two_in_two_out() -> Any:
    """Inputs ``sequence`` [?, ?, 3] and ``context`` [?, 4]; outputs by the layers sum, context."""
    import keras
    from keras import layers

    sequence = keras.Input((None, 3), name="sequence")
    context = keras.Input((4,), name="context")
    projected = layers.Dense(6, name="projected")(context)
    read = layers.Bidirectional(layers.LSTM(3))(layers.GRU(5, return_sequences=True)(sequence))
    return keras.Model([sequence, context], [layers.Add(name="sum")([read, projected]), projected])


def lambda_model() -> Any:
    """A model with a Lambda layer: Python code in its file."""
    import keras

    return keras.Sequential([keras.Input((3,), name="x"), keras.layers.Lambda(lambda x: x * 2)])


def module(method: Callable[..., Any], *specs: Any) -> Any:
    """A tf.Module whose only tf.function, ``serve``, runs ``method(tensors...)``."""
    import tensorflow as tf

    class Module(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=list(specs))  # type: ignore[untyped-decorator]
        def serve(self, *tensors: Any) -> Any:
            return method(*tensors)

    return Module()


def save_module(made: Any, folder: Path, **signatures: Any) -> Path:
    """The ``saved_model.pb`` of a SavedModel of a module."""
    import tensorflow as tf

    with quiet():
        tf.saved_model.save(made, str(folder), signatures=signatures or made.serve)
    return folder / "saved_model.pb"


def two_signatures(folder: Path) -> Path:
    """A SavedModel with the signatures ``double`` (x -> y) and ``score`` (x -> high, low)."""
    import tensorflow as tf

    class Module(tf.Module):  # type: ignore[misc]
        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")]
        )
        def double(self, x: Any) -> Any:
            return {"y": x * 2}

        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")]
        )
        def score(self, x: Any) -> Any:
            return {"low": tf.reduce_min(x, 1), "high": tf.argmax(x, 1)}

    made = Module()
    return save_module(made, folder, double=made.double, score=made.score)
