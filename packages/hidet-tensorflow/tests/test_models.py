"""Keras models in small form, with random weights, against Keras in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")
keras = tf.keras
L = keras.layers

Inputs = Callable[[np.random.Generator, int], Any]


def floats(*shape: int) -> Inputs:
    return lambda rng, batch: rng.standard_normal((batch, *shape)).astype(np.float32)


def whole(most: int, *shape: int, dtype: str = "int32") -> Inputs:
    return lambda rng, batch: rng.integers(0, most, (batch, *shape)).astype(dtype)


def layered(shape: tuple[int | None, ...], *layers: Callable[[], Any], dtype: str | None = None) -> Callable[[], Any]:
    """Makes a model of layers one behind the other."""

    def make() -> Any:
        first = value = keras.Input(shape, dtype=dtype)
        for layer in layers:
            value = layer()(value)
        return keras.Model(first, value)

    return make


def attention() -> Any:
    x = keras.Input((None, 16))
    made = L.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    return keras.Model(x, L.LayerNormalization()(L.Add()([x, made])))


def u_net() -> Any:
    x = keras.Input((None, None, 3))
    a = L.Conv2D(8, 3, padding="same", activation="relu")(x)
    b = L.Conv2D(16, 3, padding="same", activation="relu")(L.MaxPooling2D()(a))
    c = L.Conv2D(16, 3, padding="same", activation="relu")(L.MaxPooling2D()(b))
    up = L.Concatenate()([b, L.Conv2DTranspose(16, 2, strides=2)(c)])
    up = L.BatchNormalization()(L.Conv2D(16, 3, padding="same")(up))
    up = L.Concatenate()([a, L.UpSampling2D()(up)])
    return keras.Model(x, L.Conv2D(2, 1)(up))


def vision_transformer() -> Any:
    x = keras.Input((16, 16, 3))
    value = L.Reshape((16, 32))(L.Conv2D(32, 4, strides=4)(x))
    for _ in range(2):
        normed = L.LayerNormalization()(value)
        value = L.Add()([value, L.MultiHeadAttention(4, 8)(normed, normed)])
        hidden = L.Dense(64, activation="gelu")(L.LayerNormalization()(value))
        value = L.Add()([value, L.Dense(32)(hidden)])
    return keras.Model(x, L.Dense(5)(L.GlobalAveragePooling1D()(value)))


class Positions(L.Layer):
    """Adds what is learned of each position."""

    def build(self, shape: Any) -> None:
        self.table = self.add_weight(shape=(64, shape[-1]), initializer="random_normal")

    def call(self, x: Any) -> Any:
        return x + self.table[: tf.shape(x)[1]]


def transformer(blocks: int, value: Any, **options: Any) -> Any:
    for _ in range(blocks):
        normed = L.LayerNormalization()(value)
        value = L.Add()([value, L.MultiHeadAttention(4, 8)(normed, normed, **options)])
        hidden = L.Dense(64, activation="gelu")(L.LayerNormalization()(value))
        value = L.Add()([value, L.Dense(32)(hidden)])
    return value


def bert() -> Any:
    words, mask = keras.Input((None,), dtype="int32", name="words"), keras.Input((None,), dtype="bool", name="mask")
    value = Positions()(L.Embedding(50, 32)(words))
    value = transformer(2, value, attention_mask=L.Reshape((1, -1))(mask))
    pooled = L.Dense(8, activation="tanh")(value[:, 0])
    return keras.Model({"words": words, "mask": mask}, {"pooled": pooled, "states": value})


def gpt() -> Any:
    words = keras.Input((None,), dtype="int32")
    value = transformer(2, Positions()(L.Embedding(50, 32)(words)), use_causal_mask=True)
    return keras.Model(words, L.Dense(50)(L.LayerNormalization()(value)))


def words_and_mask(rng: np.random.Generator, batch: int) -> Any:
    length = 5 * batch + 2
    mask = np.arange(length) < rng.integers(1, length, (batch, 1))
    return {"words": whole(50, length)(rng, batch), "mask": mask}


LAYERS: dict[str, tuple[Callable[[], Any], Inputs]] = {
    "dense": (layered((8,), lambda: L.Dense(4, activation="tanh")), floats(8)),
    "LSTM": (layered((12, 8), lambda: L.LSTM(5)), floats(12, 8)),
    "LSTM of open length": (layered((None, 8), lambda: L.LSTM(5, return_sequences=True)), floats(30, 8)),
    "GRU": (layered((12, 8), lambda: L.GRU(5, return_sequences=True)), floats(12, 8)),
    "simple RNN": (layered((12, 8), lambda: L.SimpleRNN(5)), floats(12, 8)),
    "bidirectional": (layered((12, 8), lambda: L.Bidirectional(L.LSTM(5, return_sequences=True))), floats(12, 8)),
    "convolutional LSTM": (layered((3, 6, 6, 2), lambda: L.ConvLSTM2D(4, 3)), floats(3, 6, 6, 2)),
    "causal Conv1D": (layered((12, 8), lambda: L.Conv1D(4, 3, padding="causal", dilation_rate=2)), floats(12, 8)),
    "Conv3D": (layered((8, 8, 8, 2), lambda: L.Conv3D(4, 3), lambda: L.GlobalMaxPooling3D()), floats(8, 8, 8, 2)),
    "BERT": (bert, words_and_mask),
    "GPT": (gpt, whole(50, 11)),
    "attention": (attention, floats(9, 16)),
    "U-Net": (u_net, floats(16, 24, 3)),
    "vision transformer": (vision_transformer, floats(16, 16, 3)),
    "norms": (
        layered(
            (8, 8, 6),
            lambda: L.GroupNormalization(3),
            lambda: L.UnitNormalization(),
            lambda: L.BatchNormalization(),
            lambda: L.LayerNormalization(axis=[1, 2]),
            lambda: L.SpatialDropout2D(0.5),
        ),
        floats(8, 8, 6),
    ),
    "activations": (
        layered((8,), lambda: L.PReLU(), lambda: L.LeakyReLU(), lambda: L.ELU(), lambda: L.Softmax()),
        floats(8),
    ),
    "images": (
        layered(
            (16, 16, 3),
            lambda: L.ZeroPadding2D(1),
            lambda: L.SeparableConv2D(4, 3),
            lambda: L.DepthwiseConv2D(3, strides=2, padding="same"),
            lambda: L.UpSampling2D(2),
            lambda: L.Cropping2D(1),
            lambda: L.AveragePooling2D(2, padding="same"),
            lambda: L.Permute((3, 1, 2)),
            lambda: L.Flatten(),
        ),
        floats(16, 16, 3),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_what_keras_does(name, check_model) -> None:
    make, inputs = LAYERS[name]
    compiled = check_model(make, inputs)
    assert compiled.report().nodes.fallback == 0


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_narrow_types_are_computed_as_keras_does(policy) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        x = keras.Input((16, 16, 3))
        value = L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, padding="same")(x)))
        value = L.LayerNormalization()(L.MaxPooling2D()(L.DepthwiseConv2D(3)(value)))
        model = keras.Model(x, L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(value)))
    finally:
        keras.config.set_dtype_policy("float32")
    (given,) = [floats(16, 16, 3)(np.random.default_rng(0), 2)]
    made, eager = hidet.compile(model)(given), model(given)
    assert made.dtype == eager.dtype.as_numpy_dtype
    # Probabilities: a few units of the last place of the narrower type.
    limit = 2e-3 if policy == "mixed_float16" else 2e-2
    np.testing.assert_allclose(made.astype(np.float32), tf.cast(eager, tf.float32), rtol=0, atol=limit)


def test_words_are_looked_up_in_a_vocabulary() -> None:
    x = keras.Input((2,), dtype="string")
    numbers = L.StringLookup(vocabulary=["yes", "no", "später"])(x)
    compiled = hidet.compile(keras.Model(x, [numbers, L.Embedding(5, 3)(numbers)]))
    words = np.array([["no", "?"], ["später", "yes"]], dtype=object)
    for given in (words, tf.constant(words)):
        found, rows = compiled(given)
        assert np.asarray(found).tolist() == [[2, 0], [3, 1]] and rows.shape == (2, 2, 3)


def detector() -> Any:
    class Boxes(L.Layer):
        def call(self, places: Any, scores: Any) -> Any:
            centres, reach = tf.sigmoid(places[..., :2]), tf.exp(places[..., 2:]) * 0.2
            boxes = tf.concat([centres - reach, centres + reach], -1)[:, :, None]
            return tf.image.combined_non_max_suppression(boxes, scores, 10, 20, 0.5, 0.3)

        def compute_output_spec(self, places: Any, scores: Any) -> Any:
            return [keras.KerasTensor((None, *shape)) for shape in ((20, 4), (20,), (20,), ())]

    x = keras.Input((32, 32, 3))
    value = L.Conv2D(16, 3, strides=2, padding="same", activation="relu")(x)
    value = L.Conv2D(16, 3, strides=4, padding="same", activation="relu")(value)
    places = L.Reshape((-1, 4))(L.Conv2D(8, 3, padding="same")(value))
    scores = L.Reshape((-1, 3))(L.Conv2D(6, 3, padding="same", activation="sigmoid")(value))
    return keras.Model(x, Boxes()(places, scores))


def test_a_detector_suppresses_its_boxes() -> None:
    model = detector()
    compiled = hidet.compile(model)
    given = floats(32, 32, 3)(np.random.default_rng(0), 2)
    *made, count = compiled(given)
    *eager, expected = model(given)
    assert count.tolist() == expected.numpy().tolist() and count.max() > 1
    for ours, theirs in zip(made, eager, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert compiled.report().nodes.fallback == 0


def test_norms_attention_and_activations_are_found_in_what_keras_writes() -> None:
    rules = [use.rule for use in hidet.compile(gpt()).report().uses]
    assert "cpu.attention" in rules and "cpu.normalize" in rules and "cpu.softmax" not in rules


def test_a_row_that_a_mask_hides_counts_all_keys_alike() -> None:
    x, mask = keras.Input((6, 8)), keras.Input((6, 6), dtype="bool")
    model = keras.Model([x, mask], L.MultiHeadAttention(2, 4)(x, x, attention_mask=mask))
    rng = np.random.default_rng(0)
    given = [floats(6, 8)(rng, 2), rng.random((2, 6, 6)) > 0.5]
    given[1][0, 3] = False
    np.testing.assert_allclose(hidet.compile(model)(given), model(given), rtol=0, atol=1e-6)


PREPROCESSING: dict[str, tuple[Callable[[], Any], Inputs]] = {
    "normalised images": (
        layered(
            (16, 16, 3),
            lambda: L.Rescaling(1 / 127.5, offset=-1),
            lambda: L.Normalization(mean=[1.0, 2, 3], variance=[1.0, 2, 3]),
            lambda: L.CenterCrop(12, 12),
        ),
        floats(16, 16, 3),
    ),
    "categories": (
        layered((3,), lambda: L.CategoryEncoding(10, output_mode="multi_hot"), dtype="int32"),
        whole(10, 3),
    ),
    "known integers": (
        layered((3,), lambda: L.IntegerLookup(vocabulary=[3, 5, 7]), dtype="int64"),
        whole(9, 3, dtype="int64"),
    ),
    "buckets": (layered((3,), lambda: L.Discretization([0.0, 1.0, 2.0])), floats(3)),
    "masked words": (
        layered((7,), lambda: L.Embedding(20, 8, mask_zero=True), lambda: L.LSTM(4), dtype="int32"),
        whole(5, 7),
    ),
}


@pytest.mark.parametrize("name", PREPROCESSING)
def test_preprocessing_is_part_of_the_compiled_model(name, check_model) -> None:
    make, inputs = PREPROCESSING[name]
    check_model(make, inputs)


APPLICATIONS = {
    "ConvNeXtTiny": 32,
    "DenseNet121": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionV3": 75,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "NASNetMobile": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "VGG16": 32,
    "Xception": 71,
}
SMOKE = ("MobileNetV2",)


@pytest.mark.parametrize(
    "name", [name if name in SMOKE else pytest.param(name, marks=pytest.mark.models) for name in APPLICATIONS]
)
def test_keras_applications_are_right_and_scheduled(name, check_model) -> None:
    size = APPLICATIONS[name]

    def make() -> Any:
        return getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)

    compiled = check_model(make, floats(size, size, 3))
    assert compiled.report().nodes.fallback == 0
