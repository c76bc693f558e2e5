"""Recurrent layers: LSTM (Hochreiter and Schmidhuber, 1997), GRU (Cho et al., 2014) and RNN, as ONNX specifies them.

What the input contributes to all gates is one product for all steps, which `hidet.frontend.run_steps` goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hidet import dtypes
from hidet.dims import Dim, prove_equal
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler, run_steps
from hidet.graph import GraphBuilder, Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.gate_functions import Activation, gate_functions, number


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {("LSTM", 7): _lstm, ("GRU", 7): _gru, ("RNN", 7): _rnn}


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """One direction of a layer.

    functions: activations. clip: limit of their arguments, None for none. option: `input_forget` or
    `linear_before_reset`. step: `step(cell, builder, gates, states, weights) -> states`; gates is what the input
    contributes.
    """

    step: Callable[[_Cell, GraphBuilder, Value, Sequence[Value], Sequence[Value]], list[Value]]
    functions: Sequence[Activation]
    clip: float | None
    option: bool

    def activate(self, b: GraphBuilder, which: int, x: Value) -> Value:
        """Activation number `which` of x."""
        if self.clip is not None:
            x = b.emit("clamp", x, min=-self.clip, max=self.clip)
        return self.functions[which](b, x)


def _part(b: GraphBuilder, x: Value, axis: int, start: int, stop: int) -> Value:
    """Entries start to stop along an axis."""
    starts = tuple(start if a == axis else 0 for a in range(x.tensor.rank))
    stops = tuple(stop if a == axis else n for a, n in enumerate(x.tensor.shape))
    return b.emit("slice", x, starts=starts, stops=stops, steps=(1,) * x.tensor.rank)


def _width(x: Value) -> int:
    """The extent of the last axis, which weights fix."""
    extent = x.tensor.shape[-1]
    if not isinstance(extent, int):
        raise UnsupportedOp(f"a recurrent layer of symbolic width {extent}")
    return extent


def _lstm_step(
    cell: _Cell, b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value]
) -> list[Value]:
    """Gates come as input, output, forget, cell; further weights are the peepholes of the first three."""
    hidden, memory = states
    recurrence, *peepholes = weights
    n = _width(hidden)
    total = b.emit("add", gates, b.emit("linear", hidden, recurrence))
    i, o, f, c = (_part(b, total, 1, gate * n, (gate + 1) * n) for gate in range(4))

    def seen(gate: Value, which: int, state: Value) -> Value:
        return b.emit("add", gate, b.emit("mul", peepholes[which], state)) if peepholes else gate

    enter = cell.activate(b, 0, seen(i, 0, memory))
    if cell.option:
        forget = b.emit("sub", number(b, 1, enter), enter)
    else:
        forget = cell.activate(b, 0, seen(f, 2, memory))
    new = b.emit("add", b.emit("mul", forget, memory), b.emit("mul", enter, cell.activate(b, 1, c)))
    leave = cell.activate(b, 0, seen(o, 1, new))
    return [b.emit("mul", leave, cell.activate(b, 2, new)), new]


def _gru_step(
    cell: _Cell, b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value]
) -> list[Value]:
    """Gates come as update, reset, hidden; a further weight is the recurrent bias of the last one."""
    (hidden,) = states
    recurrence, *bias = weights
    n = _width(hidden)
    both = b.emit("linear", hidden, _part(b, recurrence, 0, 0, 2 * n))
    outer = b.emit("add", _part(b, gates, 1, 0, 2 * n), both)
    update = cell.activate(b, 0, _part(b, outer, 1, 0, n))
    reset = cell.activate(b, 0, _part(b, outer, 1, n, 2 * n))
    last = _part(b, recurrence, 0, 2 * n, 3 * n)
    if cell.option:
        linear = b.emit("linear", hidden, last, bias[0] if bias else None)
        inner = b.emit("mul", reset, linear)
    else:
        inner = b.emit("linear", b.emit("mul", reset, hidden), last)
    candidate = cell.activate(b, 1, b.emit("add", _part(b, gates, 1, 2 * n, 3 * n), inner))
    kept = b.emit("mul", update, b.emit("sub", hidden, candidate))
    return [b.emit("add", candidate, kept)]


def _rnn_step(
    cell: _Cell, b: GraphBuilder, gates: Value, states: Sequence[Value], weights: Sequence[Value]
) -> list[Value]:
    (hidden,) = states
    return [cell.activate(b, 0, b.emit("add", gates, b.emit("linear", hidden, weights[0])))]


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """What LSTM, GRU and RNN have in common. bias: [directions, 2 * gates]. states: [directions, batch, hidden] each.

    fused: for how many gates the recurrent bias is added to the input's; the rest is a weight of the step.
    """

    x: Value
    weight: Value
    recurrence: Value
    bias: Value | None
    lengths: Value | None
    states: Sequence[Value | None]
    peepholes: Value | None
    gates: int
    fused: int


def _layer(
    e: Emitter,
    layer: _Layer,
    cells: Sequence[_Cell],
    direction: str,
    hidden_size: int | None,
    is_batch_first: bool,
) -> tuple[Value, ...]:
    """Outputs [steps, directions, batch, hidden] and last states [directions, batch, hidden]."""
    x = e.transpose(layer.x, (1, 0, 2)) if is_batch_first else layer.x
    batch, n, dtype = x.tensor.shape[1], _width(layer.recurrence), x.tensor.dtype
    if len(cells) != layer.weight.tensor.shape[0]:
        raise ImportFailed(f"{e.operator}: direction is {direction!r}, but the weights are {layer.weight.type}")
    if hidden_size not in (None, n):
        raise ImportFailed(f"{e.operator}: hidden_size is {hidden_size}, but the weights are {layer.weight.type}")
    _check_shapes(e, layer, len(cells), n, batch, is_batch_first)
    lengths = None if layer.lengths is None else e.cast(layer.lengths, dtypes.i64)
    outputs, finals = [], []
    for place, cell in enumerate(cells):
        weight, recurrence = (e.emit("select", v, axis=0, index=place) for v in (layer.weight, layer.recurrence))
        bias, extra = _biases(e, layer, place, n)
        weights = [recurrence, *extra]
        if layer.peepholes is not None:
            whole = e.emit("select", layer.peepholes, axis=0, index=place)
            weights += [_part(e.builder, whole, 0, gate * n, (gate + 1) * n) for gate in range(3)]
        states = []
        for state in layer.states:
            given = None if state is None else e.transpose(state, (1, 0, 2)) if is_batch_first else state
            nothing = e.emit("full", shape=(batch, n), value=0, dtype=dtype) if given is None else given
            states.append(nothing if given is None else e.emit("select", given, axis=0, index=place))
        gates = e.emit("linear", x, weight, bias)
        is_reverse = direction == "reverse" or place == 1
        made, last = run_steps(e, partial(cell.step, cell), gates, states, weights, lengths, is_reverse=is_reverse)
        outputs.append(made)
        finals.append(last)
    y = e.emit("stack", *outputs, axis=1)
    stacked = [e.emit("stack", *states, axis=0) for states in zip(*finals, strict=True)]
    if is_batch_first:
        return e.transpose(y, (2, 0, 1, 3)), *(e.transpose(state, (1, 0, 2)) for state in stacked)
    return y, *stacked


def _check_shapes(e: Emitter, layer: _Layer, directions: int, n: int, batch: Dim, is_batch_first: bool) -> None:
    """ImportFailed for an input whose shape is provably another than the weights make it."""
    rows, state = layer.gates * n, (batch, directions, n) if is_batch_first else (directions, batch, n)
    expected: list[tuple[str, Value | None, tuple[Dim, ...]]] = [
        ("W", layer.weight, (directions, rows, layer.x.tensor.shape[-1])),
        ("R", layer.recurrence, (directions, rows, n)),
        ("B", layer.bias, (directions, 2 * rows)),
        ("sequence_lens", layer.lengths, (batch,)),
        ("P", layer.peepholes, (directions, 3 * n)),
        *(("initial state", value, state) for value in layer.states),
    ]
    for name, value, shape in expected:
        if value is not None and not _may_have(value, shape):
            text = ", ".join(map(str, shape))
            raise ImportFailed(f"{e.operator}: {name} is {value.type}, expected shape [{text}]")


def _may_have(value: Value, shape: Sequence[Dim]) -> bool:
    """Whether a value is not known to have another shape."""
    have = value.tensor.shape
    return len(have) == len(shape) and not any(prove_equal(a, b) is False for a, b in zip(have, shape, strict=True))


def _biases(e: Emitter, layer: _Layer, place: int, n: int) -> tuple[Value | None, list[Value]]:
    """The bias that the input's product gets, and the recurrent biases that have to wait for the step."""
    if layer.bias is None:
        return None, []
    whole = e.emit("select", layer.bias, axis=0, index=place)
    width, fused = layer.gates * n, layer.fused * n
    own, recurrent = (_part(e.builder, whole, 0, start, start + width) for start in (0, width))
    if layer.fused == layer.gates:
        return e.emit("add", own, recurrent), []
    early = e.emit("add", _part(e.builder, own, 0, 0, fused), _part(e.builder, recurrent, 0, 0, fused))
    joined = e.emit("concat", early, _part(e.builder, own, 0, fused, width), axis=0)
    return joined, [_part(e.builder, recurrent, 0, fused, width)]


_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def _recurrent(
    e: Emitter,
    layer: _Layer,
    step: Callable[..., list[Value]],
    defaults: Sequence[str],
    option: bool,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Value, ...]:
    """A layer in all its directions; the keywords are the attributes that the three operators have in common.

    defaults: the names of a cell's functions where `activations` gives none. option: what the operator alone has.
    """
    count = _DIRECTIONS.get(direction)
    if count is None:
        raise UnsupportedOp(f"{e.operator}: direction is {direction!r}, expected one of {', '.join(_DIRECTIONS)}")
    width = len(defaults)
    names = tuple(activations) or tuple(defaults) * count
    # The default of RNN's attribute names two functions whatever the direction.
    if len(names) < width * count:
        raise ImportFailed(f"{e.operator}: {len(names)} activations, expected {width * count}")
    found = gate_functions(e, names[: width * count], activation_alpha, activation_beta)
    cells = [_Cell(step, found[n * width : (n + 1) * width], clip, option) for n in range(count)]
    return _layer(e, layer, cells, direction, hidden_size, bool(layout))


def _lstm(
    e: Emitter,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    hidden: Value | None = None,
    memory: Value | None = None,
    peepholes: Value | None = None,
    *,
    input_forget: int = 0,
    **common: Any,
) -> tuple[Value, ...]:
    layer = _Layer(x, weight, recurrence, bias, lengths, (hidden, memory), peepholes, 4, 4)
    return _recurrent(e, layer, _lstm_step, ("Sigmoid", "Tanh", "Tanh"), bool(input_forget), **common)


def _gru(
    e: Emitter,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    hidden: Value | None = None,
    *,
    linear_before_reset: int = 0,
    **common: Any,
) -> tuple[Value, ...]:
    fused = 2 if linear_before_reset else 3
    layer = _Layer(x, weight, recurrence, bias, lengths, (hidden,), None, 3, fused)
    return _recurrent(e, layer, _gru_step, ("Sigmoid", "Tanh"), bool(linear_before_reset), **common)


def _rnn(
    e: Emitter,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value | None = None,
    lengths: Value | None = None,
    hidden: Value | None = None,
    **common: Any,
) -> tuple[Value, ...]:
    layer = _Layer(x, weight, recurrence, bias, lengths, (hidden,), None, 1, 1)
    return _recurrent(e, layer, _rnn_step, ("Tanh",), False, **common)
