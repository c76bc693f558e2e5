"""Constants and tensors made of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from hidet import dtypes
from hidet.dims import DimExpr
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.frontend.measured import measured_range
from hidet.graph import Value
from hidet.onnx.mapping import Key
from hidet.onnx.value_types import dtype_of


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("Constant", 1): _constant,
        ("ConstantOfShape", 9): _constant_of_shape,
        ("Range", 11): _range,
        ("EyeLike", 9): _eye_like,
        ("OneHot", 9): _one_hot,
    }


def _constant(e: Emitter, **attributes: Any) -> Value:
    """One attribute says the value and its kind."""
    kinds = {
        "value": None,
        "value_int": numpy.int64,
        "value_ints": numpy.int64,
        "value_float": numpy.float32,
        "value_floats": numpy.float32,
        "value_string": object,
        "value_strings": object,
    }
    if len(attributes) != 1:
        raise ImportFailed(f"Constant has {len(attributes)} values: expected one of {', '.join(kinds)}")
    ((name, value),) = attributes.items()
    if name not in kinds:
        raise UnsupportedOp(f"Constant with attribute {name!r}: expected one of {', '.join(kinds)}")
    kind: Any = kinds[name]
    return e.array(value if kind is None else numpy.asarray(value, dtype=kind))


def _constant_of_shape(e: Emitter, shape: Value, value: Any = None) -> Value:
    """Zeros of type f32 without `value`, which is a tensor of one element."""
    extents = e.sizes(shape, "the shape")
    e.require_size(extents, dtypes.f32 if value is None else dtypes.from_numpy(value.dtype))
    if value is None:
        return e.emit("full", shape=extents, value=0.0, dtype=dtypes.f32)
    if value.size != 1:
        raise ImportFailed(f"ConstantOfShape: the value has {value.size} elements, expected one")
    dtype = dtypes.from_numpy(value.dtype)
    return e.emit("full", shape=extents, value=value.reshape(-1)[0].item(), dtype=dtype)


def _range(e: Emitter, start: Value, limit: Value, delta: Value, stash_type: int = 1) -> Value:
    """Computed in f64 and rounded once, which is at least what `stash_type` asks for."""
    if not dtype_of(stash_type).is_float:
        raise ImportFailed(f"Range: stash_type is {dtype_of(stash_type)}, expected a floating-point type")
    dtype = start.tensor.dtype
    if e.reads_sizes and not e.is_known(start, limit, delta):
        return measured_range(e, start, limit, delta, dtype)
    first, stop, step = (
        e.number(value, what) for value, what in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    if isinstance(step, DimExpr):
        raise UnsupportedOp(f"Range with a step of symbolic size {step}")
    if step == 0:
        raise ImportFailed("Range: delta is 0")
    numbers = (first, stop)
    if not any(isinstance(number, DimExpr) for number in numbers):
        e.require_size((max(0, int((stop - first) / step)),), dtype)
        if (stop - first) / step <= 0:
            return e.emit("full", shape=(0,), value=0, dtype=dtype)
    return e.emit("arange", start=first, stop=stop, step=step, dtype=dtype)


def _eye_like(e: Emitter, x: Value, k: int, dtype: int | None = None) -> Value:
    if x.tensor.rank != 2:
        raise ImportFailed(f"EyeLike takes a matrix, got {x.type}")
    rows, columns = x.tensor.shape
    kind = x.tensor.dtype if dtype is None else dtype_of(dtype)
    return e.emit("eye", rows=rows, columns=columns, offset=k, dtype=kind)


def _one_hot(e: Emitter, indices: Value, depth: Value, values: Value, axis: int) -> Value:
    """The second of `values` where an index is the position on the new axis, else the first; a negative index counts
    from the end, and one outside [-depth, depth) is nowhere (ONNX operator specification, OneHot)."""
    classes = e.one_dim(depth, "the depth") if depth.tensor.dtype.is_int else int(e.number(depth, "the depth"))
    rank = indices.tensor.rank + 1
    place = axis % rank
    index = e.cast(indices, dtypes.i64)
    count = e.size(classes)
    wrapped = e.emit("where", e.emit("less", index, e.constant(0, dtypes.i64)), e.emit("add", index, count), index)
    positions = e.emit("arange", start=0, stop=classes, dtype=dtypes.i64)
    row = e.reshape(positions, tuple(classes if axis == place else 1 for axis in range(rank)))
    hit = e.emit("equal", e.unsqueeze(wrapped, (place,)), row)
    off, on = (e.emit("select", values, axis=0, index=number) for number in (0, 1))
    return e.emit("where", hit, on, off)
