"""Reductions along axes, and scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hidet import dims, dtypes
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.mapping.shape import normal_axis

Reduction = Callable[[Emitter, Value, tuple[int, ...], bool], Value]


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    found: dict[Key, Handler] = {}
    for name, reduce in _REDUCTIONS.items():
        found[name, 1] = _by_attribute(reduce)
        found[name, _AXES_AS_INPUT.get(name, 18)] = _by_input(reduce)
    return {
        **found,
        ("ArgMax", 1): lambda e, x, axis, keepdims: _position(e, x, "argmax", axis, keepdims, 0),
        ("ArgMin", 1): lambda e, x, axis, keepdims: _position(e, x, "argmin", axis, keepdims, 0),
        ("ArgMax", 12): lambda e, x, axis, keepdims, select_last_index: _position(
            e, x, "argmax", axis, keepdims, select_last_index
        ),
        ("ArgMin", 12): lambda e, x, axis, keepdims, select_last_index: _position(
            e, x, "argmin", axis, keepdims, select_last_index
        ),
        ("CumSum", 11): _running("cumsum"),
        ("CumProd", 26): _running("cumprod"),
    }


def _plain(core: str) -> Reduction:
    return lambda e, x, axes, keepdim: e.emit(core, x, axes=axes, keepdim=keepdim)


def _same_type(core: str) -> Reduction:
    """Core sums narrow integers in i64; ONNX keeps the type."""

    def reduce(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
        return e.cast(e.emit(core, x, axes=axes, keepdim=keepdim), x.tensor.dtype)

    return reduce


def _mean(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    """Integers are divided towards zero."""
    if x.tensor.dtype.is_float:
        return e.emit("mean", x, axes=axes, keepdim=keepdim)
    count = e.size(dims.product([x.tensor.shape[axis] for axis in axes]))
    total = e.cast(e.emit("sum", x, axes=axes, keepdim=keepdim), dtypes.i64)
    return e.cast(e.emit("trunc_divide", total, count), x.tensor.dtype)


def _norm(p: int) -> Reduction:
    def reduce(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
        dtype = x.tensor.dtype
        if dtype.is_float:
            return e.emit("norm", x, p=p, axes=axes, keepdim=keepdim)
        return e.cast(e.emit("norm", e.cast(x, dtypes.f64), p=p, axes=axes, keepdim=keepdim), dtype)

    return reduce


def _sum_square(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    return e.cast(e.emit("sum", e.emit("square", x), axes=axes, keepdim=keepdim), x.tensor.dtype)


def _in_float(reduce: Reduction) -> Reduction:
    """Integers by way of f64."""

    def wide(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
        dtype = x.tensor.dtype
        return (
            reduce(e, x, axes, keepdim)
            if dtype.is_float
            else e.cast(reduce(e, e.cast(x, dtypes.f64), axes, keepdim), dtype)
        )

    return wide


def _log_sum(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    return e.emit("log", e.emit("sum", x, axes=axes, keepdim=keepdim))


def _extreme(core: str, is_max: bool) -> Reduction:
    """Of no elements: the least, or greatest, value of the type (ONNX operator specification, ReduceMax)."""

    def reduce(e: Emitter, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
        dtype = x.tensor.dtype
        if not any(x.tensor.shape[axis] == 0 for axis in axes):
            return e.emit(core, x, axes=axes, keepdim=keepdim)
        shape = [1 if axis in axes else n for axis, n in enumerate(x.tensor.shape) if keepdim or axis not in axes]
        if dtype.is_float:
            value = float("-inf") if is_max else float("inf")
        else:
            value = dtype.min if is_max else dtype.max
        return e.emit("full", shape=tuple(shape), value=bool(value) if dtype.is_bool else value, dtype=dtype)

    return reduce


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _same_type("sum"),
    "ReduceProd": _same_type("prod"),
    "ReduceMean": _mean,
    "ReduceMax": _extreme("amax", True),
    "ReduceMin": _extreme("amin", False),
    "ReduceL1": _norm(1),
    "ReduceL2": _norm(2),
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": _in_float(_log_sum),
    "ReduceLogSumExp": _in_float(_plain("logsumexp")),
}

_AXES_AS_INPUT = {"ReduceSum": 13}


def _by_attribute(reduce: Reduction) -> Handler:
    def handler(e: Emitter, x: Value, keepdims: int, axes: Sequence[int] | None = None) -> Value:
        return _reduced(e, x, reduce, axes, keepdims, False)

    return handler


def _by_input(reduce: Reduction) -> Handler:
    def handler(
        e: Emitter, x: Value, axes: Value | None = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        numbers = None if axes is None else e.ints(axes, "the axes")
        return _reduced(e, x, reduce, numbers, keepdims, bool(noop_with_empty_axes))

    return handler


def _reduced(e: Emitter, x: Value, reduce: Reduction, axes: Sequence[int] | None, keepdims: int, noop: bool) -> Value:
    """Without axes all are reduced; with `noop` none, which still applies what is done to each element."""
    rank = x.tensor.rank
    if axes:
        chosen = tuple(sorted({normal_axis(e, axis, rank) for axis in axes}))
    elif noop:
        return reduce(e, e.unsqueeze(x, (rank,)), (rank,), False)
    else:
        chosen = tuple(range(rank))
    if not chosen:
        return reduce(e, e.unsqueeze(x, (0,)), (0,), False)
    return reduce(e, x, chosen, bool(keepdims))


def _position(e: Emitter, x: Value, core: str, axis: int, keepdims: int, last: int) -> Value:
    place = normal_axis(e, axis, x.tensor.rank)
    if not last:
        return e.emit(core, x, axes=(place,), keepdim=bool(keepdims))
    found = e.emit(core, e.emit("flip", x, axes=(place,)), axes=(place,), keepdim=bool(keepdims))
    return e.emit("sub", e.size(x.tensor.shape[place] - 1), found)


def _running(core: str) -> Handler:
    def handler(e: Emitter, x: Value, axis: Value, exclusive: int, reverse: int) -> Value:
        place = e.one_int(axis, "the axis")
        result = e.emit(
            core, x, axis=normal_axis(e, place, x.tensor.rank), exclusive=bool(exclusive), reverse=bool(reverse)
        )
        return e.cast(result, x.tensor.dtype)

    return handler
