"""Models of Keras and functions of TensorFlow, with random weights, in the type that Keras computes in when they are
built.

TensorFlow is imported where a model is built: this module is read where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.tensorflow_zoo import ZOO

from .framework_model import Arrays, FrameworkModel, floats, whole


def _mobile_net() -> Any:
    from tensorflow import keras

    return keras.applications.MobileNetV3Small(
        weights=None, input_shape=(96, 96, 3), alpha=0.75, include_top=False, pooling="avg"
    )


def _transformer(value: Any, **options: Any) -> Any:
    """Two blocks on embedded tokens [batch, length, width]. options: of attention."""
    from tensorflow import keras

    layers, (_, length, width) = keras.layers, value.shape
    value = layers.Add()([value, layers.Embedding(length, width)(keras.ops.arange(length))[None]])
    for _ in range(2):
        value = layers.LayerNormalization()(value + layers.MultiHeadAttention(2, width // 2)(value, value, **options))
        hidden = layers.Dense(2 * width, activation="gelu")(value)
        value = layers.LayerNormalization()(layers.Add()([value, layers.Dense(width)(hidden)]))
    return value


def _bert() -> Any:
    """An encoder whose padding is masked."""
    from tensorflow import keras

    layers = keras.layers
    words, mask = keras.Input((48,), dtype="int32"), keras.Input((48,), dtype="int32")
    seen = layers.Reshape((1, 48))(keras.ops.not_equal(mask, 0))
    value = _transformer(layers.Embedding(200, 128)(words), attention_mask=seen)
    return keras.Model([words, mask], [value, layers.Dense(128, activation="tanh")(value[:, 0])])


def _gpt() -> Any:
    from tensorflow import keras

    words = keras.Input((40,), dtype="int32")
    value = _transformer(keras.layers.Embedding(100, 128)(words), use_causal_mask=True)
    return keras.Model(words, keras.layers.Dense(100)(value))


def _words_and_mask(rng: np.random.Generator, batch: int) -> Arrays:
    mask = np.arange(48) < rng.integers(8, 48, (batch, 1))
    return [*whole(200, 48)(rng, batch), mask.astype(np.int32)]


def _detector() -> Any:
    """A trunk, heads of boxes and scores, and the suppression of boxes that overlap, which TensorFlow has in f32."""
    import tensorflow as tf
    from tensorflow import keras

    layers = keras.layers

    class Boxes(layers.Layer):  # type: ignore[misc]
        def call(self, places: Any, scores: Any) -> Any:
            places, scores = tf.cast(places, tf.float32), tf.cast(scores, tf.float32)
            centres, reach = tf.sigmoid(places[..., :2]), tf.exp(0.5 * places[..., 2:]) * 0.2
            boxes = tf.concat([centres - reach, centres + reach], -1)[:, :, None]
            return tf.image.combined_non_max_suppression(boxes, scores, 10, 10, 0.5, 0.3)

        def compute_output_spec(self, places: Any, scores: Any) -> Any:
            kinds = zip(((10, 4), (10,), (10,), ()), ("float32", "float32", "float32", "int32"), strict=True)
            return [keras.KerasTensor((None, *shape), dtype) for shape, dtype in kinds]

    x = keras.Input((64, 64, 3))
    value = x
    for width in (32, 64, 64):
        value = layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")(value)
    places = layers.Reshape((-1, 4))(layers.Conv2D(8, 3, padding="same")(value))
    scores = layers.Reshape((-1, 3))(layers.Conv2D(6, 3, padding="same", activation="sigmoid")(value))
    return keras.Model(x, Boxes()(places, scores))


def _volume() -> Any:
    from tensorflow import keras

    layers = keras.layers
    x = keras.Input((16, 16, 16, 2))
    value = layers.Conv3D(16, 3, activation="relu")(x)
    value = layers.Conv3D(32, 3, strides=2, padding="same", activation="relu")(value)
    return keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling3D()(value)))


def _loop() -> Any:
    """A recurrence of as many steps as an input says, with a branch."""
    import tensorflow as tf
    from tensorflow import keras

    class Loop(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            rng, dtype = np.random.default_rng(4), keras.config.floatx()
            self.weight = tf.Variable(rng.standard_normal((64, 64)).astype(np.float16) / 8, dtype=dtype)

        @tf.function  # type: ignore[untyped-decorator]
        def __call__(self, x: Any, steps: Any) -> Any:
            x = tf.cast(x, self.weight.dtype)

            def step(number: Any, value: Any) -> Any:
                moved = tf.tanh(value @ self.weight)
                even = tf.equal(number % 2, 0)
                return number + 1, tf.cond(even, lambda: moved + x, lambda: moved * 0.5)

            return tf.while_loop(lambda number, _: number < steps, step, (tf.constant(0), x))[1]

    return Loop()


def _state_and_steps(rng: np.random.Generator, batch: int) -> Arrays:
    return [*floats(64)(rng, batch), np.array(batch + 3, np.int32)]


def _of_zoo(name: str, make: Callable[[np.random.Generator, int], Arrays]) -> FrameworkModel:
    return FrameworkModel(ZOO[name].build, make)


KERAS_MODELS: Mapping[str, FrameworkModel] = MappingProxyType(
    {
        "keras MobileNetV3": FrameworkModel(_mobile_net, floats(96, 96, 3)),
        "keras BERT": FrameworkModel(_bert, _words_and_mask),
        "keras GPT": FrameworkModel(_gpt, whole(100, 40)),
        "keras LSTM": _of_zoo("lstm", floats(128, 64)),
        "keras GRU": _of_zoo("gru", floats(128, 64)),
        "keras Conv3D": FrameworkModel(_volume, floats(16, 16, 16, 2)),
        "keras U-Net": _of_zoo("u-net", floats(64, 64, 3)),
        "keras detector": FrameworkModel(_detector, floats(64, 64, 3)),
        "tf while_loop": FrameworkModel(_loop, _state_and_steps),
    }
)
"""What `build` of an entry gives: a Keras model, or a tf.Module that is called with its inputs."""
