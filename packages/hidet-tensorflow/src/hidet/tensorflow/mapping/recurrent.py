"""Recurrent layers as loops over what the input contributes: LSTM (Hochreiter and Schmidhuber, 1997) and GRU (Cho et
al., 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet.errors import UnsupportedOp
from hidet.frontend import Emitter
from hidet.graph import GraphBuilder, TensorType, Value


@dataclass(frozen=True, slots=True)
class Cell:
    """What a step computes. kind: "lstm": gates are input, forget, cell, output. clip: of its cell, 0 for none."""

    kind: str
    clip: float = 0.0

    def step(self, b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value]) -> list[Value]:
        """States behind a step, the first of which is its output. gates[batch, 4 * n]: what the input contributes."""
        hidden, memory = states
        n = hidden.tensor.shape[-1]
        if not isinstance(n, int):
            raise UnsupportedOp(f"a recurrent layer of symbolic width {n}")
        total = b.emit("add", gates, b.emit("linear", hidden, weights[0]))
        enter, forget, new, leave = (_part(b, total, gate * n, (gate + 1) * n) for gate in range(4))
        kept = b.emit("mul", b.emit("sigmoid", forget), memory)
        after = b.emit("add", kept, b.emit("mul", b.emit("sigmoid", enter), b.emit("tanh", new)))
        if self.clip > 0:
            after = b.emit("clamp", after, min=-self.clip, max=self.clip)
        return [b.emit("mul", b.emit("sigmoid", leave), b.emit("tanh", after)), after]


def _part(b: GraphBuilder, x: Value, start: int, stop: int) -> Value:
    """Entries start to stop of the last axis."""
    return b.emit("slice", x, starts=(0,) * (x.tensor.rank - 1) + (start,), stops=(*x.tensor.shape[:-1], stop))


def run_cell(
    e: Emitter, cell: Cell, gates: Value, states: Sequence[Value], weights: Sequence[Value], *, is_reverse: bool
) -> tuple[Value, Sequence[Value]]:
    """All outputs [steps, batch, n] and the last states; steps run from the end if `is_reverse`.

    gates[steps, batch, gates * n]: what the input contributes to all gates, of all steps at once.
    """
    if is_reverse:
        gates = e.emit("flip", gates, axes=(0,))
    body = e.builder.nested("step")
    inner = [body.input(value.type) for value in states]
    now = body.input(TensorType(gates.tensor.dtype, gates.tensor.shape[1:]))
    held = [body.input(value.type) for value in weights]
    made = cell.step(body, now, inner, held)
    *last, outputs = e.emit_all(
        "scan",
        [*states, gates, *weights],
        {"body": body.build([*made, made[0]]), "carried": len(states), "scanned": 1},
    )
    return (e.emit("flip", outputs, axes=(0,)) if is_reverse else outputs), last
