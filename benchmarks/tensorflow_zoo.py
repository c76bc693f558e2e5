"""Keras models of all kinds with random weights, which are compared with TensorFlow, and of which some are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

Arrays = Any
"""An array, or arrays by name."""


@dataclass(frozen=True, slots=True)
class ZooModel:
    """build: makes a Keras model. inputs: of a generator and a batch. is_saved: whether Keras can write it to a file.
    limit: the largest difference from TensorFlow, relative to the largest value of an output."""

    what: str
    build: Callable[[], Any]
    inputs: Callable[[np.random.Generator, int], Arrays]
    is_saved: bool = True
    limit: float = 2e-4


def _floats(*shape: int) -> Callable[[np.random.Generator, int], Arrays]:
    return lambda rng, batch: rng.standard_normal((batch, *shape)).astype(np.float32)


def _whole(most: int, *shape: int) -> Callable[[np.random.Generator, int], Arrays]:
    return lambda rng, batch: rng.integers(0, most, (batch, *shape)).astype(np.int32)


def _application(name: str, size: int) -> ZooModel:
    def build() -> Any:
        from tensorflow import keras

        return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))

    return ZooModel(f"1x{size}x{size}x3", build, _floats(size, size, 3))


def _layers(shape: tuple[int | None, ...], make: Callable[[Any], list[Any]], dtype: str = "float32") -> Any:
    from tensorflow import keras

    first = value = keras.Input(shape, dtype=dtype)
    for layer in make(keras.layers):
        value = layer(value)
    return keras.Model(first, value)


def _sequence(what: str, shape: tuple[int, ...], make: Callable[[Any], list[Any]]) -> ZooModel:
    return ZooModel(what, partial(_layers, shape, make), _floats(*shape))


def _transformer(is_causal: bool, length: int, width: int, heads: int, blocks: int, words: int) -> Any:
    from tensorflow import keras

    layers = keras.layers
    tokens = keras.Input((length,), dtype="int32")
    value = layers.Embedding(words, width)(tokens)
    value = layers.Add()([value, layers.Embedding(length, width)(keras.ops.arange(length))[None]])
    for _ in range(blocks):
        normed = layers.LayerNormalization()(value)
        attended = layers.MultiHeadAttention(heads, width // heads)(normed, normed, use_causal_mask=is_causal)
        value = layers.Add()([value, attended])
        hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(value))
        value = layers.Add()([value, layers.Dense(width)(hidden)])
    return keras.Model(tokens, layers.Dense(words if is_causal else 8)(layers.LayerNormalization()(value)))


def _u_net() -> Any:
    from tensorflow import keras

    layers = keras.layers
    x = keras.Input((64, 64, 3))
    skips, value = [], x
    for width in (16, 32, 64):
        value = layers.Conv2D(width, 3, padding="same", activation="relu")(value)
        skips.append(value)
        value = layers.MaxPooling2D()(value)
    for width, skip in zip((64, 32, 16), reversed(skips), strict=True):
        value = layers.Concatenate()([layers.Conv2DTranspose(width, 2, strides=2)(value), skip])
        value = layers.Conv2D(width, 3, padding="same", activation="relu")(value)
    return keras.Model(x, layers.Conv2D(2, 1)(value))


def _heads() -> Any:
    """What a single-shot detector has behind its trunk, without suppression."""
    from tensorflow import keras

    layers = keras.layers
    x = keras.Input((64, 64, 3))
    value, places, scores = x, [], []
    for width in (16, 32, 64):
        value = layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")(value)
        places.append(layers.Reshape((-1, 4))(layers.Conv2D(12, 3, padding="same")(value)))
        scores.append(layers.Reshape((-1, 5))(layers.Conv2D(15, 3, padding="same", activation="sigmoid")(value)))
    return keras.Model(x, [layers.Concatenate(axis=1)(places), layers.Concatenate(axis=1)(scores)])


def _preprocessing() -> Any:
    return _layers(
        (32, 32, 3),
        lambda made: [
            made.Rescaling(1 / 127.5, offset=-1),
            made.Normalization(mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0]),
            made.CenterCrop(24, 24),
            made.Resizing(16, 16),
            made.Conv2D(4, 3),
        ],
    )


ZOO: Mapping[str, ZooModel] = MappingProxyType(
    {
        **{
            name: _application(name, size)
            for name, size in {
                "ResNet50": 224,
                "ResNet50V2": 224,
                "MobileNetV2": 224,
                "MobileNetV3Small": 224,
                "EfficientNetB0": 224,
                "EfficientNetV2B0": 224,
                "DenseNet121": 224,
                "InceptionV3": 224,
                "Xception": 224,
                "NASNetMobile": 224,
                "VGG16": 224,
                "ConvNeXtTiny": 224,
            }.items()
        },
        "bert": ZooModel(
            "128 tokens, 6 blocks of 256", partial(_transformer, False, 128, 256, 4, 6, 1000), _whole(1000, 128)
        ),
        "gpt": ZooModel("64 tokens, 4 blocks of 128", partial(_transformer, True, 64, 128, 4, 4, 500), _whole(500, 64)),
        "lstm": _sequence("128 steps of 64, width 128", (128, 64), lambda made: [made.LSTM(128)]),
        "gru": _sequence("128 steps of 64, width 128", (128, 64), lambda made: [made.GRU(128)]),
        "bidirectional": _sequence(
            "64 steps of 32, width 64",
            (64, 32),
            lambda made: [made.Bidirectional(made.LSTM(64, return_sequences=True)), made.Dense(4)],
        ),
        "simple rnn": _sequence("32 steps", (32, 16), lambda made: [made.SimpleRNN(24, return_sequences=True)]),
        "conv lstm": _sequence("4 images", (4, 16, 16, 3), lambda made: [made.ConvLSTM2D(8, 3)]),
        "conv1d": _sequence(
            "256 steps",
            (256, 16),
            lambda made: [made.Conv1D(32, 5, padding="causal", activation="relu"), made.GlobalMaxPooling1D()],
        ),
        "conv3d": _sequence(
            "16x16x16",
            (16, 16, 16, 2),
            lambda made: [made.Conv3D(8, 3), made.MaxPooling3D(), made.Conv3D(8, 3), made.Flatten()],
        ),
        "separable": _sequence(
            "48x48",
            (48, 48, 3),
            lambda made: [made.SeparableConv2D(16, 3), made.BatchNormalization(), made.DepthwiseConv2D(3, strides=2)],
        ),
        "upsampling": _sequence(
            "16x16",
            (16, 16, 8),
            lambda made: [made.UpSampling2D(2, interpolation="bilinear"), made.Conv2DTranspose(4, 3, strides=2)],
        ),
        "perceptron": _sequence(
            "256", (256,), lambda made: [made.Dense(512, activation="swish"), made.Dropout(0.5), made.Dense(10)]
        ),
        "norms": _sequence(
            "8x8", (8, 8, 16), lambda made: [made.GroupNormalization(4), made.LayerNormalization(), made.PReLU()]
        ),
        "u-net": ZooModel("64x64", _u_net, _floats(64, 64, 3)),
        "detector heads": ZooModel("64x64", _heads, _floats(64, 64, 3)),
        "preprocessing": ZooModel("32x32", _preprocessing, _floats(32, 32, 3)),
    }
)

MEASURED = ("ResNet50", "MobileNetV2", "EfficientNetB0", "ConvNeXtTiny", "bert", "lstm")
"""What is measured where nothing else is asked for."""
