"""Cells of recurrent layers as one operator: LSTMBlockCell, GRUBlockCell, and BlockLSTM, a cell for all steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter, Handler, run_steps
from hidet.graph import GraphBuilder, Value


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "BlockLSTM": lambda e, *operands, **attrs: _block(e, operands, _cell(operands, ("i", "c", "f", "o"), **attrs)),
        "BlockLSTMV2": lambda e, *operands, **attrs: _block(
            e, operands, _cell(operands, ("i", "f", "c", "o"), **attrs)
        ),
        "GRUBlockCell": _gru_cell,
        "LSTMBlockCell": _lstm_cell,
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """A cell of an LSTM with what it holds. weight: [k + n, 4 * n], of input and state together, by gates in `order`.
    peepholes: [n] of input, forget and output gate. clip: limit of the cell, none if not positive."""

    order: Sequence[str]
    weight: Value
    bias: Value
    peepholes: tuple[Value, ...]
    forget_bias: float
    clip: float

    @property
    def values(self) -> list[Value]:
        return [self.weight, self.bias, *self.peepholes]

    def of(self, values: Sequence[Value]) -> _Cell:
        """The same cell in another graph."""
        weight, bias, *peepholes = values
        return replace(self, weight=weight, bias=bias, peepholes=tuple(peepholes))


def _cell(
    operands: Sequence[Value],
    order: Sequence[str],
    forget_bias: float = 0.0,
    cell_clip: float = 0.0,
    use_peephole: bool = False,
) -> _Cell:
    weight, *peepholes, bias = operands[-5:]
    return _Cell(order, weight, bias, tuple(peepholes) if use_peephole else (), forget_bias, cell_clip)


def _step(b: GraphBuilder, cell: _Cell, x: Value, memory: Value, hidden: Value) -> tuple[Value, ...]:
    """Input gate, cell, forget gate, output gate, new values, tanh of the cell and output, all [..., n]."""
    axis, n = x.tensor.rank - 1, hidden.tensor.shape[-1]
    total = b.emit("add", b.emit("matmul", b.emit("concat", x, hidden, axis=axis), cell.weight), cell.bias)

    def gate(name: str) -> Value:
        start, zeros = cell.order.index(name) * n, (0,) * axis
        return b.emit("slice", total, starts=(*zeros, start), stops=(*total.tensor.shape[:-1], start + n))

    def seen(name: Value, place: int, state: Value) -> Value:
        return b.emit("add", name, b.emit("mul", cell.peepholes[place], state)) if cell.peepholes else name

    forget = b.emit("add", gate("f"), b.constant(cell.forget_bias, x.tensor.dtype))
    enter = b.emit("sigmoid", seen(gate("i"), 0, memory))
    forget = b.emit("sigmoid", seen(forget, 1, memory))
    new = b.emit("tanh", gate("c"))
    after = b.emit("add", b.emit("mul", new, enter), b.emit("mul", memory, forget))
    if cell.clip > 0:
        after = b.emit("clamp", after, min=-cell.clip, max=cell.clip)
    leave = b.emit("sigmoid", seen(gate("o"), 2, after))
    shown = b.emit("tanh", after)
    return enter, after, forget, leave, new, shown, b.emit("mul", shown, leave)


def _lstm_cell(e: Emitter, x: Value, memory: Value, hidden: Value, *operands: Value, **attrs: Any) -> tuple[Value, ...]:
    return _step(e.builder, _cell(operands, ("i", "c", "f", "o"), **attrs), x, memory, hidden)


def _block(e: Emitter, operands: Sequence[Value], cell: _Cell) -> tuple[Value, ...]:
    """All that `_step` gives for the steps of x[time, batch, k], each [time, batch, n]. The number of steps, which
    comes first, is that of x."""
    count, x, memory, hidden, *_ = operands
    steps = e.one_dim(count, "the number of steps")
    if steps != x.tensor.shape[0]:
        raise UnsupportedOp(f"{e.operator} of {steps} of {x.tensor.shape[0]} steps")

    def step(b: GraphBuilder, now: Value, states: Sequence[Value], values: Sequence[Value]) -> list[Value]:
        made = _step(b, cell.of(values), now, states[1], states[2])
        return [b.emit("stack", made[1], made[6], axis=0), made[1], made[6]]

    both = e.emit("stack", memory, hidden, axis=0)
    found, _ = run_steps(e, step, x, [both, memory, hidden], cell.values)
    # The rest is of interest to a gradient alone, and needs no loop.
    before = [
        e.emit("concat", e.unsqueeze(first, (0,)), e.emit("select", found, axis=1, index=place), axis=0)
        for place, first in enumerate((memory, hidden))
    ]
    stops = (steps, *hidden.tensor.shape)
    before = [e.emit("slice", value, starts=(0, 0, 0), stops=stops) for value in before]
    made = list(_step(e.builder, cell, x, *before))
    made[1], made[6] = (e.emit("select", found, axis=1, index=place) for place in range(2))
    return tuple(made)


def _gru_cell(
    e: Emitter, x: Value, hidden: Value, weight: Value, last: Value, bias: Value, last_bias: Value
) -> tuple[Value, ...]:
    """Reset, update, new values and output, [batch, n] each."""
    batch, n = hidden.tensor.shape
    both = e.emit("add", e.emit("matmul", e.emit("concat", x, hidden, axis=1), weight), bias)
    reset, update = (
        e.emit("sigmoid", e.emit("slice", both, starts=(0, place * n), stops=(batch, (place + 1) * n)))
        for place in range(2)
    )
    inner = e.emit("concat", x, e.emit("mul", hidden, reset), axis=1)
    new = e.emit("tanh", e.emit("add", e.emit("matmul", inner, last), last_bias))
    kept = e.emit("mul", update, e.emit("sub", hidden, new))
    return reset, update, new, e.emit("add", new, kept)
