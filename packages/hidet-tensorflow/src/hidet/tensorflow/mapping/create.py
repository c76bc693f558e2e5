"""Constants, ranges, tensors of one number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from hidet import dims, dtypes
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.frontend.measured import measured_range
from hidet.graph import Value
from hidet.tensorflow.items import Complex, Item
from hidet.tensorflow.mapping.shape import normal_axis


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        "Const": _constant,
        "Empty": lambda e, shape, dtype, init=False: _filled(e, e.sizes(shape, "the shape"), 0, dtype),
        "Fill": _fill,
        "LinSpace": _line,
        "MatrixDiag": lambda e, x: e.emit("diag_embed", x),
        "MatrixDiagPart": _diagonal,
        "MatrixDiagPartV2": _diagonal,
        "MatrixDiagPartV3": _diagonal,
        "MatrixDiagV2": _as_diagonal,
        "MatrixDiagV3": _as_diagonal,
        "MatrixSetDiag": _with_diagonal,
        "MatrixSetDiagV2": _with_diagonal,
        "MatrixSetDiagV3": _with_diagonal,
        "OneHot": _one_hot,
        "OnesLike": lambda e, x: _filled(e, x.tensor.shape, 1, x.tensor.dtype),
        "Range": _range,
        "ZerosLike": lambda e, x: _filled(e, x.tensor.shape, 0, x.tensor.dtype),
    }


def _constant(e: Emitter, value: Any, dtype: DType) -> Item:
    if dtype.is_complex:
        return Complex(e.array(value.real), e.array(value.imag))
    return e.array(value)


def _filled(e: Emitter, shape: tuple[Dim, ...], value: float, dtype: DType) -> Value:
    return e.emit("full", shape=shape, value=bool(value) if dtype.is_bool else value, dtype=dtype)


def _fill(e: Emitter, shape: Value, value: Value, **_: Any) -> Value:
    return e.expand(value, e.sizes(shape, "the shape"))


def _range(e: Emitter, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta, … before limit."""
    dtype = start.tensor.dtype
    if e.reads_sizes and not e.is_known(start, limit, delta):
        return measured_range(e, start, limit, delta, dtype)
    first, last, step = (e.number(v, w) for v, w in ((start, "start"), (limit, "limit"), (delta, "delta")))
    if step == 0:
        raise ImportFailed("Range: delta is 0")
    if dtype.is_float:
        return e.array(numpy.arange(first, last, step).astype(dtype.numpy()))
    return e.emit("arange", start=first, stop=last, step=step, dtype=dtype)


def _line(e: Emitter, start: Value, stop: Value, count: Value) -> Value:
    """`count` numbers evenly spaced from start to stop, both included."""
    number = e.one_size(count, "the number of elements")
    dtype = start.tensor.dtype
    steps = e.cast(e.emit("arange", start=0, stop=number, dtype=dtypes.i64), dtype)
    gaps = e.cast(e.size(dims.maximum(number - 1, 1)), dtype)
    line = e.emit("add", e.emit("mul", steps, e.emit("div", e.emit("sub", stop, start), gaps)), start)
    # The last one is exact.
    is_last = e.emit("equal", steps, e.cast(e.size(number - 1), dtype))
    is_end = e.emit("logical_and", is_last, e.emit("greater", steps, e.constant(0, dtype)))
    return e.emit("where", is_end, stop, line)


def _one_hot(e: Emitter, index: Value, depth: Value, on: Value, off: Value, axis: int = -1) -> Value:
    place = normal_axis(e, axis, index.tensor.rank + 1)
    count = e.one_size(depth, "the depth")
    numbers = e.emit("arange", start=0, stop=count, dtype=index.tensor.dtype)
    numbers = e.unsqueeze(numbers, tuple(range(1, index.tensor.rank - place + 1)))
    is_here = e.emit("equal", e.unsqueeze(index, (place,)), numbers)
    return e.emit("where", is_here, on, off)


def _one_diagonal(e: Emitter, k: Value | None) -> int:
    if k is None:
        return 0
    numbers = set(e.ints(k, "the diagonals"))
    if len(numbers) != 1:
        raise UnsupportedOp(f"{e.operator} of several diagonals, {sorted(numbers)}")
    return numbers.pop()


def _diagonal(
    e: Emitter, x: Value, k: Value | None = None, padding: Value | None = None, align: str = "RIGHT_LEFT"
) -> Value:
    return e.emit("diagonal", x, offset=_one_diagonal(e, k), axis1=x.tensor.rank - 2, axis2=x.tensor.rank - 1)


def _with_diagonal(e: Emitter, x: Value, diagonal: Value, k: Value | None = None, align: str = "RIGHT_LEFT") -> Value:
    axes = {"axis1": x.tensor.rank - 2, "axis2": x.tensor.rank - 1}
    return e.emit("diagonal_scatter", x, diagonal, offset=_one_diagonal(e, k), **axes)


def _as_diagonal(
    e: Emitter, x: Value, k: Value, rows: Value, columns: Value, padding: Value, align: str = "RIGHT_LEFT"
) -> Value:
    """Only square matrices, filled with zeros."""
    extents = (e.one_int(rows, "the number of rows"), e.one_int(columns, "the number of columns"))
    if extents != (-1, -1) or e.number(padding, "the padding") != 0:
        raise UnsupportedOp(f"{e.operator} with {extents} rows and columns, or padding: expected a square of zeros")
    return e.emit("diag_embed", x, offset=_one_diagonal(e, k))
