"""Cells of recurrent layers that are one operator, against TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")

TIME, BATCH, WIDTH, UNITS = 12, 3, 5, 4


def numbers(*shapes: tuple[int, ...]) -> Any:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def weights(*shape: int) -> Any:
    return tf.constant(np.random.default_rng(sum(shape)).standard_normal(shape), tf.float32)


OF_LSTM = {
    "w": (WIDTH + UNITS, 4 * UNITS),
    "wci": (UNITS,),
    "wcf": (UNITS,),
    "wco": (UNITS,),
    "b": (4 * UNITS,),
}
STATES = (BATCH, UNITS)


@pytest.mark.parametrize("options", [{}, {"use_peephole": True, "cell_clip": 0.5, "forget_bias": 0.3}])
def test_a_cell_of_an_lstm_gives_its_gates_as_well(options: Any, check) -> None:
    held = {name: weights(*shape) for name, shape in OF_LSTM.items()}

    def function(x: Any, memory: Any, hidden: Any) -> Any:
        return tuple(tf.raw_ops.LSTMBlockCell(x=x, cs_prev=memory, h_prev=hidden, **held, **options))

    compiled = check(function, numbers((BATCH, WIDTH), STATES, STATES), in_float64=False)
    assert compiled.report().nodes.eager == 0


@pytest.mark.parametrize("time", [3, TIME])
@pytest.mark.parametrize("options", [{}, {"use_peephole": True, "cell_clip": 0.5}])
@pytest.mark.parametrize("version", ["BlockLSTM", "BlockLSTMV2"])
def test_a_cell_for_all_steps_is_a_loop(version: str, options: Any, time: int, check) -> None:
    held = {name: weights(*shape) for name, shape in OF_LSTM.items()}

    def function(x: Any, memory: Any, hidden: Any) -> Any:
        steps = tf.shape(x, tf.int64)[0]
        operator = getattr(tf.raw_ops, version)
        return tuple(operator(seq_len_max=steps, x=x, cs_prev=memory, h_prev=hidden, **held, **options))

    compiled = check(function, numbers((time, BATCH, WIDTH), STATES, STATES), in_float64=False)
    assert compiled.report().nodes.eager == 0


def test_some_of_the_steps_alone_run_in_tensorflow() -> None:
    held = {name: weights(*shape) for name, shape in OF_LSTM.items()}
    zeros = tf.zeros(STATES)
    function = tf.function(
        lambda x: (
            tf.raw_ops.BlockLSTMV2(seq_len_max=tf.constant(2, tf.int64), x=x, cs_prev=zeros, h_prev=zeros, **held).h
        )
    )
    with pytest.raises(hidet.errors.UnsupportedOp, match="BlockLSTMV2 of 2 of 12 steps"):
        hidet.compile(function, tf.TensorSpec((TIME, BATCH, WIDTH)), options={"strict": True})


def test_a_cell_of_a_gru_gives_its_gates_as_well(check) -> None:
    held = {
        "w_ru": weights(WIDTH + UNITS, 2 * UNITS),
        "w_c": weights(WIDTH + UNITS, UNITS),
        "b_ru": weights(2 * UNITS),
        "b_c": weights(UNITS),
    }

    def function(x: Any, hidden: Any) -> Any:
        return tuple(tf.raw_ops.GRUBlockCell(x=x, h_prev=hidden, **held))

    compiled = check(function, numbers((BATCH, WIDTH), STATES), in_float64=False)
    assert compiled.report().nodes.eager == 0
