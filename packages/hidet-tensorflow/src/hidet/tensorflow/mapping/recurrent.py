"""Recurrent layers as cuDNN has them (CudnnRNN): several layers, both directions, all weights in one vector.

TensorFlow has these operators for GPUs alone; Keras writes them where it is traced on one. `lstm_step` serves TFLite's
layers as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler, run_steps
from hidet.graph import GraphBuilder, Value


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {"CudnnRNN": _cudnn, "CudnnRNNV2": _cudnn, "CudnnRNNV3": _cudnn}


# --- steps -----------------------------------------------------------------------------------------------------------


def lstm_step(
    b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value], *, clip: float = 0.0
) -> list[Value]:
    """Output and cell behind a step of an LSTM (Hochreiter and Schmidhuber, 1997), [batch, n] each.

    gates: what the input contributes, with all biases, [batch, 4 * n]: input, forget, cell, output. weights: the
    recurrent ones, [4 * n, n]. clip: limit of the cell, 0 for none.
    """
    (hidden, memory), (weight,) = states, weights
    enter, forget, new, leave = _gates(b, b.emit("add", gates, b.emit("linear", hidden, weight)), 4)
    kept = b.emit("mul", b.emit("sigmoid", forget), memory)
    after = b.emit("add", kept, b.emit("mul", b.emit("sigmoid", enter), b.emit("tanh", new)))
    if clip > 0:
        after = b.emit("clamp", after, min=-clip, max=clip)
    return [b.emit("mul", b.emit("sigmoid", leave), b.emit("tanh", after)), after]


def _gru_step(b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value]) -> list[Value]:
    """Gates: reset, update, new. The recurrent bias of all waits for the step, because reset multiplies its last part
    (Cho et al., 2014, with the product before the reset)."""
    (hidden,), (weight, bias) = states, weights
    reset, update, new = _gates(b, gates, 3)
    of_reset, of_update, of_new = _gates(b, b.emit("linear", hidden, weight, bias), 3)
    reset = b.emit("sigmoid", b.emit("add", reset, of_reset))
    update = b.emit("sigmoid", b.emit("add", update, of_update))
    candidate = b.emit("tanh", b.emit("add", new, b.emit("mul", reset, of_new)))
    kept = b.emit("mul", update, b.emit("sub", hidden, candidate))
    return [b.emit("add", candidate, kept)]


def _plain_step(
    b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value], *, activation: str
) -> list[Value]:
    return [b.emit(activation, b.emit("add", gates, b.emit("linear", states[0], weights[0])))]


def _gates(b: GraphBuilder, total: Value, count: int) -> Iterator[Value]:
    batch, width = total.tensor.shape
    n = int(width) // count  # type: ignore[arg-type]  # of weights
    return (b.emit("slice", total, starts=(0, gate * n), stops=(batch, (gate + 1) * n)) for gate in range(count))


# --- layers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """A kind of layer. gates: how many a step has. is_late: whether recurrent biases are weights of the step."""

    gates: int
    step: Callable[..., list[Value]]
    is_late: bool = False


_CELLS = {
    "lstm": _Cell(4, lstm_step),
    "gru": _Cell(3, _gru_step, is_late=True),
    "rnn_tanh": _Cell(1, partial(_plain_step, activation="tanh")),
    "rnn_relu": _Cell(1, partial(_plain_step, activation="relu")),
}


def _cudnn(
    e: Emitter,
    x: Value,
    hidden: Value,
    memory: Value,
    params: Value,
    lengths: Value | None = None,
    *,
    rnn_mode: str = "lstm",
    input_mode: str = "linear_input",
    direction: str = "unidirectional",
    dropout: float = 0.0,
    num_proj: int = 0,
    is_training: bool = True,
    time_major: bool = True,
    **_: Any,
) -> tuple[Value, ...]:
    """x[time, batch, k], states [layers * directions, batch, n], the first two axes the other way round unless
    time_major -> outputs [time, batch, directions * n], last states, and what training needs, which is empty."""
    directions = {"unidirectional": 1, "bidirectional": 2}.get(direction)
    cell = _CELLS.get(rnn_mode)
    if cell is None or directions is None:
        raise ImportFailed(f"{e.operator}: rnn_mode {rnn_mode!r} and direction {direction!r} are none of cuDNN's")
    hint = "build the layer for inference and without a projection, or with `use_cudnn=False` (Keras)"
    if num_proj or (dropout and is_training):
        what = "a projection" if num_proj else "dropout between layers"
        raise UnsupportedOp(f"{e.operator} with {what}", hint=hint)
    if not time_major:
        x, hidden = e.transpose(x, (1, 0, 2)), e.transpose(hidden, (1, 0, 2))
    layers, n, k = hidden.tensor.shape[0], hidden.tensor.shape[2], x.tensor.shape[2]
    if not isinstance(layers, int) or not isinstance(n, int) or not isinstance(k, int) or layers % directions:
        raise UnsupportedOp(f"{e.operator} of {x.type} with states {hidden.type}: layers and widths must be known")
    if input_mode != "linear_input" and not (input_mode == "auto_select" and n != k):
        raise UnsupportedOp(f"{e.operator} with the input mode {input_mode!r}: expected 'linear_input'", hint=hint)
    states = [hidden]
    if rnn_mode == "lstm":
        states.append(memory if time_major else e.transpose(memory, (1, 0, 2)))
    weights = _Weights(e, params, cell, [k, *[n * directions] * (layers // directions - 1)], n, directions)
    steps = None if lengths is None else e.cast(lengths, dtypes.i64)
    finals: list[list[Value]] = []
    for layer in range(layers // directions):
        made = []
        for number in range(layer * directions, (layer + 1) * directions):
            own, recurrent, bias, late = weights.of(number)
            first = [e.emit("select", state, axis=0, index=number) for state in states]
            gates = e.emit("linear", x, own, bias)
            is_reverse = number % directions == 1
            outputs, last = run_steps(e, cell.step, gates, first, [recurrent, *late], steps, is_reverse=is_reverse)
            made.append(outputs)
            finals.append(last)
        x = e.emit("concat", *made, axis=2) if directions > 1 else made[0]
    after = [e.emit("stack", *parts, axis=0 if time_major else 1) for parts in zip(*finals, strict=True)]
    nothing = e.emit("full", shape=(0,), value=0, dtype=x.tensor.dtype)
    # What is none of a GRU's states is a number that nobody reads.
    of_memory = after[1] if len(after) > 1 else e.constant(0, x.tensor.dtype)
    return x if time_major else e.transpose(x, (1, 0, 2)), after[0], of_memory, nothing, e.cast(nothing, dtypes.i8)


class _Weights:
    """A vector of weights: for every layer and direction the matrices of the input's gates and of the state's, row by
    row, and behind all of them the biases of both in the same order."""

    def __init__(self, e: Emitter, params: Value, cell: _Cell, widths: Sequence[int], n: int, directions: int) -> None:
        self._e, self._params, self._cell, self._n = e, params, cell, n
        self._widths = [width for width in widths for _ in range(directions)]
        self._rows = rows = cell.gates * n
        self._starts = [
            sum(rows * (width + n) for width in self._widths[:number]) for number in range(len(self._widths))
        ]
        self._biases = sum(rows * (width + n) for width in self._widths)
        have, expected = params.tensor.shape, self._biases + 2 * rows * len(self._widths)
        if len(have) != 1 or (isinstance(have[0], int) and have[0] != expected):
            raise ImportFailed(f"{e.operator}: the weights are {params.type}, expected {expected} numbers")

    def of(self, number: int) -> tuple[Value, Value, Value, list[Value]]:
        """Of one layer and direction: matrices of the input and the state, the bias of their sum, and what else the
        steps take."""
        rows, n, width, start = self._rows, self._n, self._widths[number], self._starts[number]
        own = self._e.reshape(self._part(start, rows * width), (rows, width))
        recurrent = self._e.reshape(self._part(start + rows * width, rows * n), (rows, n))
        at = self._biases + 2 * rows * number
        bias, late = self._part(at, rows), self._part(at + rows, rows)
        if self._cell.is_late:
            return own, recurrent, bias, [late]
        return own, recurrent, self._e.emit("add", bias, late), []

    def _part(self, start: int, count: int) -> Value:
        return self._e.emit("slice", self._params, starts=(start,), stops=(start + count,))
