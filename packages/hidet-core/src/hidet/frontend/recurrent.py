"""Recurrent layers: the steps of a sequence, one after the other.

What the input contributes to the gates of all steps is one product, which callers write before. A short sequence of
known length is written out, any other is a `scan`. A sequence that ends early keeps its state from there on, and makes
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.frontend.emitter import Emitter
from hidet.graph import GraphBuilder, TensorType, Value

Step = Callable[[GraphBuilder, Value, Sequence[Value], Sequence[Value]], list[Value]]
"""Builder, gates[batch, ...] of a step, states, weights -> the states behind it, the first of which is its output."""

# Steps that are written out: compiling that many takes no longer than compiling a loop.
_MOST_UNROLLED = 8


def run_steps(
    e: Emitter,
    step: Step,
    gates: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    lengths: Value | None = None,
    *,
    is_reverse: bool = False,
) -> tuple[Value, list[Value]]:
    """All outputs [steps, batch, hidden] and the last states of gates[steps, batch, ...].

    lengths: i64[batch], how many steps each sequence has; None for all. is_reverse: steps run from the end, where
    those that a sequence does not have are passed over.
    """
    steps = gates.tensor.shape[0]
    times = None if lengths is None else e.emit("arange", start=0, stop=steps, dtype=dtypes.i64)
    if isinstance(steps, int) and 0 < steps <= _MOST_UNROLLED:
        order = range(steps)[::-1] if is_reverse else range(steps)
        return _unrolled(e, step, order, gates, times, list(states), weights, lengths)
    if is_reverse:
        gates = e.emit("flip", gates, axes=(0,))
        times = None if times is None else e.emit("flip", times, axes=(0,))
    body = e.builder.nested("step")
    inner_states = [body.input(value.type) for value in states]
    scanned = [value for value in (gates, times) if value is not None]
    slices = [body.input(TensorType(value.tensor.dtype, value.tensor.shape[1:])) for value in scanned]
    inner_weights = [body.input(value.type) for value in weights]
    inner_lengths = None if lengths is None else body.input(lengths.type)
    time = None if times is None else slices[1]
    made, output = _masked(step, body, slices[0], time, inner_states, inner_weights, inner_lengths)
    captures = [*weights, *([] if lengths is None else [lengths])]
    *last, outputs = e.emit_all(
        "scan",
        [*states, *scanned, *captures],
        {"body": body.build([*made, output]), "carried": len(states), "scanned": len(scanned)},
    )
    return (e.emit("flip", outputs, axes=(0,)) if is_reverse else outputs), last


def _unrolled(
    e: Emitter,
    step: Step,
    order: Sequence[int],
    gates: Value,
    times: Value | None,
    states: list[Value],
    weights: Sequence[Value],
    lengths: Value | None,
) -> tuple[Value, list[Value]]:
    outputs: dict[int, Value] = {}
    for number in order:
        time = None if times is None else e.emit("select", times, axis=0, index=number)
        now = e.emit("select", gates, axis=0, index=number)
        states, outputs[number] = _masked(step, e.builder, now, time, states, weights, lengths)
    return e.emit("stack", *(outputs[number] for number in sorted(outputs)), axis=0), states


def _masked(
    step: Step,
    b: GraphBuilder,
    gates: Value,
    time: Value | None,
    states: Sequence[Value],
    weights: Sequence[Value],
    lengths: Value | None,
) -> tuple[list[Value], Value]:
    """States and output behind a step; sequences that are over at `time` keep their state and make zeros."""
    new = step(b, gates, states, weights)
    if time is None or lengths is None:
        return new, new[0]
    is_on = b.emit("unsqueeze", b.emit("less", time, lengths), axes=(1,))
    kept = [b.emit("where", is_on, after, before) for after, before in zip(new, states, strict=True)]
    return kept, b.emit("where", is_on, new[0], b.constant(0, new[0].tensor.dtype))
