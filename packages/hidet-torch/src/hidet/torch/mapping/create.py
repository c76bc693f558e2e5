"""New tensors: constants, ranges. Their element type is always that of the result."""

from __future__ import annotations

from collections.abc import Mapping

from hidet.dims import DimExpr
from hidet.frontend import Handler, Number
from hidet.graph import Value
from hidet.torch.emitter import Operand, TorchEmitter


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    found: dict[str, Handler] = {}
    for form in ("", "new_"):
        overload = "default" if form else "memory_format"
        found |= {
            f"aten.{form}zeros.default": _filled(0),
            f"aten.{form}ones.default": _filled(1),
            # Memory that is not initialised may hold anything: zeros are as good.
            f"aten.{form}empty.{overload}": _filled(0),
            f"aten.{form}empty_strided.default": _filled(0),
        }
    for name, number in (("zeros", 0), ("ones", 1), ("empty", 0)):
        found[f"aten.{name}_like.default"] = _filled(number)
    found["aten.empty_permuted.default"] = _filled(0)
    found["aten.zero.default"] = _filled(0)
    return found | _SINGLE


def _filled(number: int) -> Handler:
    return lambda e, *args, **layout: _fill(e, number)


def _fill(e: TorchEmitter, value: Operand) -> Value:
    """A tensor of the result's shape; numbers that are known at run time only are broadcast."""
    shape, dtype = e.result.shape, e.result.dtype
    if isinstance(value, bool | int | float):
        return e.emit("full", shape=shape, value=value, dtype=dtype)
    return e.expand(e.operand(value, dtype), shape)


def _full(e: TorchEmitter, size: object, fill_value: Operand, **layout: object) -> Value:
    return _fill(e, fill_value)


def _new_full(e: TorchEmitter, x: Value, size: object, fill_value: Operand, **layout: object) -> Value:
    return _fill(e, fill_value)


def _fill_like(e: TorchEmitter, x: Value, value: Operand, **layout: object) -> Value:
    return _fill(e, value)


def _scalar_tensor(e: TorchEmitter, s: Operand, **layout: object) -> Value:
    return _fill(e, s)


def _arange(e: TorchEmitter, start: Number, end: Number, step: Number = 1, **layout: object) -> Value:
    dtype = e.result.dtype
    if isinstance(step, DimExpr) and dtype.is_int:
        places = e.emit("arange", stop=e.result.shape[0], dtype=dtype)
        return e.emit("add", e.emit("mul", places, e.operand(step, dtype)), e.operand(start, dtype))
    return e.emit("arange", start=start, stop=end, step=step, dtype=dtype)


def _iota(e: TorchEmitter, length: Number, *, start: Number, step: Number, **layout: object) -> Value:
    """prims.iota: `length` integers from `start`."""
    return e.emit("arange", start=start, stop=start + length * step, step=step, dtype=e.result.dtype)


def _linspace(e: TorchEmitter, start: Number, end: Number, steps: Number, **layout: object) -> Value:
    return e.emit("linspace", start=start, stop=end, steps=steps, dtype=e.result.dtype)


def _eye(e: TorchEmitter, *size: object, **layout: object) -> Value:
    rows, columns = e.result.shape
    return e.emit("eye", rows=rows, columns=columns, dtype=e.result.dtype)


_SINGLE: dict[str, Handler] = {
    "aten.full.default": _full,
    "aten.new_full.default": _new_full,
    "aten.full_like.default": _fill_like,
    "aten.fill.Scalar": _fill_like,
    "aten.fill.Tensor": _fill_like,
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.start_step": _arange,
    "prims.iota.default": _iota,
    "aten.linspace.default": _linspace,
    "aten.eye.default": _eye,
    "aten.eye.m": _eye,
}
