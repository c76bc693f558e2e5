"""Recurrent layers as they are traced on a GPU, against what Keras computes without cuDNN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet
import hidet.tensorflow
from hidet.testing.numerics import Sample, check_output

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

TIME, BATCH, WIDTH, UNITS = 11, 3, 5, 4
LAYERS = {
    "lstm": lambda **options: tf.keras.layers.LSTM(UNITS, use_cudnn=False, **options),
    "gru": lambda **options: tf.keras.layers.GRU(UNITS, use_cudnn=False, **options),
    "rnn_tanh": lambda **options: tf.keras.layers.SimpleRNN(UNITS, **options),
    "rnn_relu": lambda **options: tf.keras.layers.SimpleRNN(UNITS, activation="relu", **options),
}
# Keras has update, reset, new; cuDNN has reset first.
ORDER = {"gru": [1, 0, 2]}


class Stack:
    """Layers of Keras, in one direction or both, and what cuDNN has for them in one vector; they compute in dtype."""

    def __init__(self, mode: str, layers: int, directions: int, dtype: str = "float32") -> None:
        self.rng = np.random.default_rng(0)
        self.mode, self.directions = mode, directions
        self.layers = [
            [
                LAYERS[mode](return_sequences=True, return_state=True, go_backwards=direction == 1, dtype=dtype)
                for direction in range(directions)
            ]
            for _ in range(layers)
        ]

    @property
    def states(self) -> int:
        return 2 if self.mode == "lstm" else 1

    def __call__(self, x: Any, states: list[Any], mask: Any) -> tuple[Any, list[Any]]:
        """Outputs of x[batch, time, width], and the last states [layers * directions, batch, units]."""
        last: list[list[Any]] = []
        for layer in self.layers:
            made = []
            for direction, one in enumerate(layer):
                first = [state[len(last)] for state in states]
                outputs, *after = one(x, mask=mask, initial_state=first if len(first) > 1 else first[0])
                made.append(tf.reverse(outputs, [1]) if direction else outputs)
                last.append(after)
            x = tf.concat(made, 2)
        return x.numpy(), [np.stack(parts) for parts in zip(*last, strict=True)]

    def take_weights(self, other: Stack) -> None:
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            for one, source in zip(mine, theirs, strict=True):
                one.set_weights(source.get_weights())

    def vary_biases(self) -> None:
        for one in (one for layer in self.layers for one in layer):
            kernel, recurrent, bias = one.get_weights()
            one.set_weights([kernel, recurrent, self.rng.standard_normal(bias.shape).astype(np.float32)])

    def params(self) -> Any:
        matrices, biases = [], []
        for one in (one for layer in self.layers for one in layer):
            kernel, recurrent, bias = one.get_weights()
            count = kernel.shape[1] // UNITS
            order = ORDER.get(self.mode, list(range(count)))
            for matrix in (kernel, recurrent):
                gates = np.split(matrix.T, count)
                matrices += [gates[gate].reshape(-1) for gate in order]
            share = self.rng.standard_normal(bias.shape).astype(np.float32)
            for part in bias if bias.ndim == 2 else (share, bias - share):
                biases += [np.split(part, count)[gate] for gate in order]
        return np.concatenate([*matrices, *biases])


def compiled_layer(params: Any, lengths: Any, **attrs: Any) -> Any:
    def function(x: Any, hidden: Any, memory: Any) -> Any:
        made = tf.raw_ops.CudnnRNNV3(
            input=x, input_h=hidden, input_c=memory, params=params, sequence_lengths=lengths, is_training=False, **attrs
        )
        return made.output, made.output_h, made.output_c

    first = tf.TensorSpec((None, None, WIDTH))
    states = tf.TensorSpec((None, None, UNITS))
    return tf.function(function), [first, states, states]


@pytest.mark.parametrize("is_time_major", [True, False])
@pytest.mark.parametrize(("layers", "direction"), [(1, "unidirectional"), (2, "bidirectional"), (3, "unidirectional")])
@pytest.mark.parametrize("mode", list(LAYERS))
def test_a_layer_of_cudnn_computes_what_keras_does(mode: str, layers: int, direction: str, is_time_major: bool) -> None:
    directions = 2 if direction == "bidirectional" else 1
    lengths = np.array([TIME, 4, 1], np.int32)
    mask = np.arange(TIME) < lengths[:, None]
    stack, wide = Stack(mode, layers, directions), Stack(mode, layers, directions, "float64")

    def draw(seed: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed)
        x, states = (BATCH, TIME, WIDTH), (2, layers * directions, BATCH, UNITS)
        return rng.standard_normal(x).astype(np.float32), rng.standard_normal(states).astype(np.float32)

    def run(one: Stack, x: Any, states: Any) -> list[Any]:
        outputs, last = one(x, [*states[: one.states]], mask)
        return [outputs * mask[..., None], *last]

    for one in (stack, wide):
        run(one, *draw(0))  # makes the weights
    stack.vary_biases()
    wide.take_weights(stack)

    function, specs = compiled_layer(
        stack.params(), lengths, rnn_mode=mode, direction=direction, time_major=is_time_major
    )
    specs[1:] = [
        tf.TensorSpec((layers * directions, None, UNITS) if is_time_major else (None, layers * directions, UNITS))
    ] * 2
    assert not hidet.tensorflow.check(function, specs)
    compiled = hidet.compile(function, specs, options={"strict": True})

    def turned(value: Any) -> Any:
        return np.ascontiguousarray(np.swapaxes(value, 0, 1))

    columns: list[list[Sample]] = [[] for _ in range(1 + stack.states)]
    for seed in range(3):
        x, states = draw(seed)
        eager, reference = run(stack, x, states), run(wide, x.astype(np.float64), states.astype(np.float64))
        output, *after = compiled(*([turned(x), *states] if is_time_major else [x, *map(turned, states)]))
        last = after[: stack.states]
        ours = [turned(output), *last] if is_time_major else [output, *map(turned, last)]
        for column, *row in zip(columns, ours, eager, reference, strict=True):
            column.append(Sample(*row))
    for name, samples in zip(("outputs", "hidden", "memory"), columns, strict=False):
        # Keras adds one bias where cuDNN adds two, each of them rounded.
        verdict = check_output(name, samples, allowance=6e-8)
        assert verdict.correct, str(verdict)


@pytest.mark.parametrize("operator", ["CudnnRNN", "CudnnRNNV2"])
def test_older_operators_are_known_as_well(operator: str) -> None:
    stack = Stack("gru", 1, 1)
    x = np.random.default_rng(0).standard_normal((BATCH, TIME, WIDTH)).astype(np.float32)
    zeros = np.zeros((1, BATCH, UNITS), np.float32)
    expected, _ = stack(x, [zeros], None)
    attrs = {"input_h": zeros, "input_c": 0.0, "params": stack.params(), "rnn_mode": "gru", "is_training": False}
    function = tf.function(lambda x: getattr(tf.raw_ops, operator)(input=tf.transpose(x, (1, 0, 2)), **attrs).output)
    compiled = hidet.compile(function, tf.TensorSpec((BATCH, TIME, WIDTH)), options={"strict": True})
    np.testing.assert_allclose(np.swapaxes(compiled(x), 0, 1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"num_proj": 2}, "with a projection"),
        ({"input_mode": "skip_input"}, "input mode 'skip_input'"),
        ({"dropout": 0.5, "is_training": True}, "dropout between layers"),
    ],
)
def test_what_a_layer_of_cudnn_cannot_have_is_refused_by_name(attrs: Any, reason: str) -> None:
    """TensorFlow has no kernel for these operators on a CPU, so that nothing may run there."""
    zeros = np.zeros((1, BATCH, UNITS), np.float32)
    params = np.zeros(4 * UNITS * (WIDTH + UNITS + 2), np.float32)
    options = {"is_training": False, "sequence_lengths": np.full(BATCH, TIME, np.int32), **attrs}
    function = tf.function(
        lambda x: tf.raw_ops.CudnnRNNV3(input=x, input_h=zeros, input_c=zeros, params=params, **options).output
    )
    with pytest.raises(hidet.errors.UnsupportedOp, match=f"CudnnRNNV3 .*{reason}") as caught:
        hidet.compile(function, tf.TensorSpec((TIME, BATCH, WIDTH)))
    assert "use_cudnn=False" in str(caught.value)


def test_weights_of_another_size_are_refused() -> None:
    zeros = np.zeros((1, BATCH, UNITS), np.float32)
    function, specs = compiled_layer(np.zeros(100, np.float32), np.full(BATCH, TIME, np.int32))
    specs[1:] = [tf.TensorSpec(zeros.shape)] * 2
    with pytest.raises(hidet.errors.ImportFailed, match="expected 176 numbers"):
        hidet.compile(function, specs)
