"""Recurrent layers that converters make one operator of: LSTM (Hochreiter and Schmidhuber, 1997).

What the input contributes to all gates is one product for all steps; the rest is a loop over these.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler, run_steps
from hidet.graph import Value
from hidet.tensorflow.mapping.recurrent import lstm_step
from hidet.tensorflow.tflite.emitter import LiteEmitter
from hidet.tensorflow.tflite.mapping.codes import on_numbers
from hidet.tensorflow.tflite.schema import ACTIVATIONS

_GATES = 4


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "UNIDIRECTIONAL_SEQUENCE_LSTM": _with_tanh(_forward),
        "BIDIRECTIONAL_SEQUENCE_LSTM": _with_tanh(_both_ways),
    }


def _with_tanh(handler: Handler) -> Handler:
    """The activation is that of cells, not of the result."""
    converting = on_numbers(handler)

    def wrapped(e: LiteEmitter, *operands: Value | None, activation: int, **options: Any) -> Any:
        if ACTIVATIONS[activation] != "TANH":
            raise UnsupportedOp(f"{e.operator} with the activation {ACTIVATIONS[activation]}: expected TANH")
        return converting(e, *operands, **options)

    return wrapped


def _forward(
    e: LiteEmitter,
    x: Value,
    *operands: Value | None,
    cell_clip: float,
    proj_clip: float,
    time_major: bool,
    diagonal_recurrent: bool,
) -> Value:
    """x[batch, time, k] -> [batch, time, n]. Operands: weights of input, forget, cell and output gate, of the input and
    of the state; peepholes; biases; what a projection has; states; norms. States begin as zeros at every call."""
    if diagonal_recurrent:
        raise UnsupportedOp(f"{e.operator} with recurrent weights that are diagonals")
    steps = x if time_major else e.transpose(x, (1, 0, 2))
    weights, rest = operands[:15], operands[15:17]
    norms = [value for value in operands[19:] if value is not None]
    if any(value is not None for value in rest) or norms:
        raise UnsupportedOp(f"{e.operator} with a projection, or with norms")
    made = _direction(e, steps, weights, cell_clip, is_reverse=False)
    return made if time_major else e.transpose(made, (1, 0, 2))


def _both_ways(
    e: LiteEmitter,
    x: Value,
    *operands: Value | None,
    cell_clip: float,
    proj_clip: float,
    merge_outputs: bool,
    time_major: bool,
) -> tuple[Value, ...]:
    """As `_forward`, twice: 17 operands each, then states and what a further input has."""
    if any(value is not None for value in (*operands[15:17], *operands[32:34], *operands[38:])):
        raise UnsupportedOp(f"{e.operator} with a projection, or with a further input")
    steps = x if time_major else e.transpose(x, (1, 0, 2))
    made = [_direction(e, steps, operands[start : start + 15], cell_clip, is_reverse=start > 0) for start in (0, 17)]
    if merge_outputs:
        made = [e.emit("concat", *made, axis=2)]
    return tuple(value if time_major else e.transpose(value, (1, 0, 2)) for value in made)


def _direction(e: LiteEmitter, x: Value, operands: tuple[Value | None, ...], clip: float, *, is_reverse: bool) -> Value:
    inputs, states = (_joined(e, operands[start : start + _GATES]) for start in (0, 4))
    peepholes = operands[8:11]
    biases = [value for value in operands[11:15] if value is not None]
    if any(value is not None for value in peepholes):
        raise UnsupportedOp(f"{e.operator} with peepholes")
    bias = e.emit("concat", *biases, axis=0) if len(biases) == _GATES else None
    n = states.tensor.shape[1]
    if not isinstance(n, int):
        raise ImportFailed(f"{e.operator}: recurrent weights are {states.type}")
    gates = e.emit("linear", x, inputs, bias)
    nothing = e.emit("full", shape=(x.tensor.shape[1], n), value=0, dtype=x.tensor.dtype)
    step = partial(lstm_step, clip=clip)
    return run_steps(e, step, gates, [nothing, nothing], [states], is_reverse=is_reverse)[0]


def _joined(e: LiteEmitter, weights: tuple[Value | None, ...]) -> Value:
    """Weights of all gates, one after the other. A layer without the input gate's couples it to the forget gate's."""
    found = [value for value in weights if value is not None]
    if len(found) != _GATES:
        raise UnsupportedOp(f"{e.operator} with {len(found)} gates, expected {_GATES}")
    return e.emit("concat", *found, axis=0)
