"""Small networks with seeded weights: one of each kind that the Core ML route must take."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

functional = nn.functional

Made = tuple[nn.Module, tuple[Any, ...]]


def flat(found: Any) -> tuple[Any, ...]:
    """Outputs of a module as a tuple."""
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def _ready(network: nn.Module, *inputs: Any) -> Made:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return network.eval(), inputs


def _noise(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def cnn() -> Made:
    """Conv, BatchNorm, pools (one with ceil_mode), GELU."""
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.GELU(), nn.AvgPool2d(2, ceil_mode=True), nn.Flatten(),
        nn.Linear(16 * 6 * 6, 10),
    )  # fmt: skip
    return _ready(network, _noise(2, 1, 28, 28))


class Inverted(nn.Module):
    """MobileNet's block: expand, depthwise, squeeze-and-excite, project."""

    def __init__(self, size: int, wide: int) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(size, wide, 1), nn.BatchNorm2d(wide), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, groups=wide), nn.Hardswish())
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, wide, 1), nn.Hardsigmoid()
        )
        self.project = nn.Conv2d(wide, size, 1)

    def forward(self, x: Any) -> Any:
        """The block, around it the input."""
        inner = self.depthwise(self.expand(x))
        return x + self.project(inner * self.excite(inner))


def mobilenet() -> Made:
    """Two blocks of MobileNet."""
    stem = nn.Conv2d(3, 8, 3, 2, 1)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return _ready(
        nn.Sequential(stem, nn.SiLU(), Inverted(8, 16), Inverted(8, 24), *head),
        _noise(1, 3, 32, 32),
    )


def encoder() -> Made:
    """Two layers of a Transformer encoder."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return _ready(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), _noise(2, 9, 16))


class Decoder(nn.Module):
    """Embedding and causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.norm = nn.Embedding(50, 16), nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, tokens: Any) -> Any:
        """[batch, time] -> [batch, time, 16]."""
        x = self.embed(tokens)
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.norm(x + y.transpose(1, 2).flatten(2))


def decoder() -> Made:
    """Integers in."""
    tokens = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(2))
    return _ready(Decoder(), tokens)


class Recurrent(nn.Module):
    """A recurrent layer and a Linear one, states in and out."""

    def __init__(self, kind: Any, *, both: bool) -> None:
        super().__init__()
        self.layer = kind(6, 8, 2, batch_first=True, bidirectional=both)
        self.head = nn.Linear(16 if both else 8, 3)

    def forward(self, x: Any, *states: Any) -> Any:
        """The head over all steps, then the last states."""
        given = states if len(states) > 1 else states[0]
        y, last = self.layer(x, given)
        return (self.head(y), *flat(last))


def recurrent(kind: Any, states: int, *, both: bool) -> Callable[[], Made]:
    """Two layers of ``kind``."""
    count = 4 if both else 2
    return lambda: _ready(
        Recurrent(kind, both=both), _noise(2, 5, 6), *[_noise(count, 2, 8)] * states
    )


class Resizing(nn.Module):
    """Transposed convolution and the ways to interpolate."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1)
        self.slope = nn.PReLU(4)

    def forward(self, x: Any) -> Any:
        """The same image in five sizes."""
        x = self.slope(self.up(x))
        return (
            functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
            functional.interpolate(x, size=(15, 21), mode="bilinear", align_corners=True),
            functional.interpolate(x, scale_factor=1.5, mode="nearest"),
            functional.interpolate(x, scale_factor=2, mode="bicubic"),
            functional.pad(functional.pixel_shuffle(x, 2), (1, 2, 0, 1), mode="reflect"),
        )


def resizing() -> Made:
    """Five outputs."""
    return _ready(Resizing(), _noise(1, 3, 6, 5))


NETWORKS: dict[str, Callable[[], Made]] = {
    "cnn": cnn,
    "mobilenet": mobilenet,
    "encoder": encoder,
    "decoder": decoder,
    "lstm": recurrent(nn.LSTM, 2, both=False),
    "bilstm": recurrent(nn.LSTM, 2, both=True),
    "gru": recurrent(nn.GRU, 1, both=False),
    "bigru": recurrent(nn.GRU, 1, both=True),
    "resizing": resizing,
}


def keras_cnn() -> tuple[Any, Any, Any]:
    """A Keras CNN as ONNX (tf2onnx), what Keras computes, and for which input."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import tensorflow as tf
    import tf2onnx
    from keras import layers

    keras.utils.set_random_seed(0)
    entry = layers.Input((28, 28, 1))
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(entry)
    x = layers.DepthwiseConv2D(3, padding="same")(layers.BatchNormalization()(x))
    x = layers.MaxPooling2D(2, padding="same")(layers.ReLU(6.0)(x))
    x = layers.AveragePooling2D(2, padding="same")(x)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    x = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    network = keras.Model(entry, x)
    signature = [tf.TensorSpec((1, 28, 28, 1), tf.float32, name="image")]
    function = tf.function(network, input_signature=signature)
    model, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=17)
    image = np.random.default_rng(0).random((1, 28, 28, 1)).astype(np.float32)
    return model, function(tf.constant(image)).numpy(), image
