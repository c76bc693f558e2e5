"""What random graphs are made of: functions that add an operator or a few, and how often each is taken."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.graph import TensorType, Value
from hidet.graph.control import emit_if
from hidet.testing.random_maker import EXTENTS, GraphMaker

_UNARY = ("relu", "neg", "tanh", "sigmoid", "abs", "gelu", "silu", "square", "copy", "erf")
_BINARY = ("add", "sub", "maximum", "minimum")


def _unary(m: GraphMaker) -> Value | None:
    x = m.pick()
    return None if x is None else m.emit(m.rng.choice(_UNARY), x)


def _binary(m: GraphMaker) -> Value | None:
    x = m.pick()
    y = None if x is None else m.partner(x, m.values)
    if x is None or y is None:
        return None
    a, b = (x, y) if m.rng.random() < 0.5 else (y, x)
    return m.emit(m.rng.choice(_BINARY), a, b)


def _scale(m: GraphMaker) -> Value | None:
    """Products with values between -1.5 and 1.5 only, so that nothing grows fast."""
    x = m.pick()
    y = None if x is None else m.partner(x, m.bounded)
    return None if x is None or y is None else m.emit("mul", x, y)


def _neutral(m: GraphMaker) -> Value | None:
    """Arithmetic that changes nothing or little, which algebra may or may not remove."""
    x = m.pick()
    if x is None:
        return None
    number = m.builder.constant(m.rng.choice((0.0, -0.0, 1.0, 2.0)), m.dtype)
    return m.emit(m.rng.choice(("add", "mul", "sub")), x, number)


def _where(m: GraphMaker) -> Value | None:
    x = m.pick()
    y = None if x is None else m.partner(x, m.values)
    if x is None or y is None:
        return None
    return m.emit("where", m.emit("greater", x, y), x, y)


def _permuted(m: GraphMaker) -> Value | None:
    x = m.pick(least=2)
    return None if x is None else m.emit("transpose", x, perm=tuple(m.rng.sample(range(x.tensor.rank), x.tensor.rank)))


def _reshaped(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    if x is None:
        return None
    shape = list(x.tensor.shape)
    if len(shape) > 1 and m.rng.random() < 0.6:
        place = m.rng.randrange(len(shape) - 1)
        shape[place : place + 2] = [shape[place] * shape[place + 1]]
    else:
        place = m.rng.randrange(len(shape) + 1)
        last = shape[place] if place < len(shape) else 1
        factor = next((f for f in (2, 3) if isinstance(last, int) and last % f == 0), 1)
        if factor > 1 and isinstance(last, int):
            shape[place : place + 1] = [last // factor, factor]
        else:
            shape.insert(place, 1)
    return m.emit("reshape", x, shape=tuple(shape))


def _slice_of(m: GraphMaker, x: Value) -> dict[str, tuple[int | None, ...]]:
    """Attributes of a slice of x that is not empty; symbolic axes are taken from 0 or 1 to their end."""
    starts: list[int | None] = []
    stops: list[int | None] = []
    steps: list[int] = []
    for extent in x.tensor.shape:
        if not isinstance(extent, int) or m.rng.random() < 0.5:
            starts.append(None if isinstance(extent, int) else m.rng.choice((None, 1)))
            stops.append(None)
            steps.append(1)
            continue
        start = m.rng.randrange(extent)
        starts.append(start)
        stops.append(m.rng.randint(start + 1, extent))
        steps.append(m.rng.choice((1, 1, 2)))
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}


def _sliced(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    return None if x is None else m.emit("slice", x, **_slice_of(m, x))


def _selected(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    return None if x is None else m.emit("select", x, axis=m.rng.randrange(x.tensor.rank), index=0)


def _expanded(m: GraphMaker) -> Value | None:
    x = m.pick(most=3)
    if x is None:
        return None
    shape = [m.rng.choice(EXTENTS) if extent == 1 else extent for extent in x.tensor.shape]
    return m.emit("expand", x, shape=(m.rng.choice(EXTENTS), *shape))


def _updated(m: GraphMaker) -> Value | None:
    """A slice of a value replaced, by numbers or by what the slice becomes."""
    x = m.pick(least=1)
    if x is None:
        return None
    if m.rng.random() < 0.3:
        part = m.emit("select", x, axis=0, index=0)
        return m.emit("select_scatter", x, m.emit("tanh", part), axis=0, index=0)
    place = _slice_of(m, x)
    part = m.emit("slice", x, **place)
    if m.rng.random() < 0.5:
        part = m.emit("neg", part)
    else:
        inner = _slice_of(m, part)
        part = m.emit("slice_scatter", part, m.emit("sigmoid", m.emit("slice", part, **inner)), **inner)
    return m.emit("slice_scatter", x, part, **place)


def _put(m: GraphMaker) -> Value | None:
    x = m.pick(least=1, most=3)
    if x is None or not isinstance(x.tensor.shape[0], int):
        return None
    rows = m.builder.constant([m.rng.randrange(x.tensor.shape[0]) for _ in range(2)], dtypes.i64)
    taken = m.emit("index_select", x, rows, axis=0)
    return m.emit("index_put", x, m.emit("tanh", taken), rows, accumulate=m.rng.random() < 0.5)


def _reduced(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    if x is None:
        return None
    axis = m.rng.randrange(x.tensor.rank)
    return m.emit(m.rng.choice(("mean", "amax")), x, axes=(axis,), keepdim=m.rng.random() < 0.5)


def _normalised(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    if x is None:
        return None
    if m.rng.random() < 0.5 or not isinstance(x.tensor.shape[-1], int):
        return m.emit("softmax", x, axis=m.rng.randrange(x.tensor.rank))
    return m.emit("rms_norm", x, m.steady(x.tensor.shape[-1:]), rank=1, eps=0.1)


def _linear(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    if x is None or not isinstance(x.tensor.shape[-1], int):
        return None
    width = m.rng.choice(EXTENTS)
    bias = m.steady((width,)) if m.rng.random() < 0.5 else None
    return m.emit("linear", x, m.steady((width, x.tensor.shape[-1])), bias)


def _product(m: GraphMaker) -> Value | None:
    x = m.pick(least=2)
    if x is None:
        return None
    y = m.emit("tanh", x)
    choice = m.rng.randrange(3)
    if choice == 0:
        return m.emit("addmm", m.steady(x.tensor.shape[-1:]), m.emit("matmul", x, y, trans_b=True), x, alpha=0.5)
    return m.emit("matmul", x, y, trans_b=True) if choice == 1 else m.emit("matmul", y, x, trans_a=True)


def _convolved(m: GraphMaker) -> Value | None:
    x = m.pick(least=4, most=4)
    if x is None or not all(isinstance(extent, int) for extent in x.tensor.shape[1:]):
        return None
    filters, channels = m.rng.choice((2, 4)), x.tensor.shape[1]
    is_constant = m.rng.random() < 0.5
    weight = m.constant if is_constant else m.parameter
    bias = weight((filters,)) if m.rng.random() < 0.5 else None
    y = m.emit("conv", x, weight((filters, channels, 3, 3)), bias, padding=1, stride=m.rng.choice((1, 2)))
    if m.rng.random() < 0.7:
        y = m.emit(
            "batch_norm",
            y,
            weight((filters,)),
            m.constant((filters,), low=0.5) if is_constant else m.parameter((filters,), "positive"),
            weight((filters,)),
            weight((filters,)) if m.rng.random() < 0.5 else None,
            eps=1e-3,
        )
    return y


def _pooled(m: GraphMaker) -> Value | None:
    x = m.pick(least=4, most=4)
    if x is None or not all(isinstance(extent, int) for extent in x.tensor.shape):
        return None
    return m.emit("max_pool", x, kernel=(3, 3), stride=(1, 1), padding=(1, 1))


def _joined(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    if x is None or not isinstance(x.tensor.shape[0], int):
        return None
    others = [v for v in m.values if v.tensor.shape == x.tensor.shape]
    return m.emit("concat", x, m.rng.choice(others), axis=m.rng.randrange(x.tensor.rank))


def _padded(m: GraphMaker) -> Value | None:
    x = m.pick(least=1)
    return None if x is None else m.emit("flip", x, axes=(x.tensor.rank - 1,))


def _counted(m: GraphMaker) -> Value | None:
    """Numbers made from nothing, as many as a value has columns, alone or times a parameter; then added."""
    x = m.pick(least=1)
    if x is None:
        return None
    steps = m.emit("cast", m.emit("arange", stop=x.tensor.shape[-1], dtype=dtypes.i64), dtype=m.dtype)
    return m.emit("add", x, m.emit("mul", steps, m.steady((1,))) if m.rng.random() < 0.4 else steps)


def _repeated(m: GraphMaker) -> Value | None:
    """A computation that is written down twice."""
    x = m.pick()
    if x is None:
        return None
    return m.emit("add", m.emit("sigmoid", x), m.emit("sigmoid", x))


def _spelled_out(m: GraphMaker) -> Value | None:
    """A chain that one operator could replace."""
    x = m.pick(least=1)
    if x is None:
        return None
    choice = m.rng.randrange(3)
    if choice == 0:
        return m.emit("mul", x, m.emit("sigmoid", x))
    if choice == 1:
        power = m.emit("mean", m.emit("square", x), axes=(-1,), keepdim=True)
        return m.emit("mul", x, m.emit("rsqrt", m.emit("add", power, m.builder.constant(0.1, m.dtype))))
    shifted = m.emit("exp", m.emit("sub", x, m.emit("amax", x, axes=(-1,), keepdim=True)))
    return m.emit("div", shifted, m.emit("sum", shifted, axes=(-1,), keepdim=True))


def _attended(m: GraphMaker) -> Value | None:
    """Attention, as one operator or written out, often with its heads merged afterwards."""
    x = m.pick(least=2)
    if x is None:
        return None
    keys = m.emit("tanh", x)
    if m.rng.random() < 0.5:
        y = m.emit("attention", x, keys, x)
    else:
        scores = m.emit("mul", m.emit("matmul", x, keys, trans_b=True), m.builder.constant(0.5, m.dtype))
        y = m.emit("matmul", m.emit("softmax", scores), x)
    if y.tensor.rank != 4 or m.rng.random() < 0.3:
        return y
    batch, heads, rows, width = y.tensor.shape
    return m.emit("reshape", m.emit("transpose", y, perm=(0, 2, 1, 3)), shape=(batch, rows, heads * width))


def _branched(m: GraphMaker) -> Value | None:
    """One of two computations, chosen by a constant or by what is computed."""
    x = m.pick()
    if x is None:
        return None
    if m.rng.random() < 0.5:
        total = m.emit("sum", x)
        condition = m.emit("less", total, m.builder.constant(0.0, m.dtype))
    else:
        condition = m.builder.constant(m.rng.random() < 0.5)
    branches = []
    for op in ("tanh", "relu"):
        inner = m.builder.nested(op)
        branches.append(inner.build([inner.emit(op, inner.input(TensorType(m.dtype, x.tensor.shape)))]))
    (y,) = emit_if(m.builder, condition, [x], *branches)
    return y


STEPS: dict[Callable[[GraphMaker], Value | None], int] = {
    _unary: 6,
    _binary: 6,
    _scale: 3,
    _neutral: 2,
    _where: 2,
    _permuted: 5,
    _reshaped: 5,
    _sliced: 3,
    _selected: 2,
    _expanded: 2,
    _updated: 3,
    _put: 2,
    _reduced: 2,
    _normalised: 2,
    _linear: 3,
    _product: 2,
    _convolved: 4,
    _pooled: 2,
    _joined: 2,
    _padded: 1,
    _counted: 2,
    _repeated: 1,
    _spelled_out: 2,
    _attended: 2,
    _branched: 2,
}
