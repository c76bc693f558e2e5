"""Tensors made from attributes alone. Attribute `device` is where the result lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hidet import dtypes
from hidet.compute.definition import Definition, compute, number, single
from hidet.dims import Dim, DimExpr, as_dim, ceildiv
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.graph.attrs import Attrs
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.graph.types import TensorType, ValueType
from hidet.ir import build
from hidet.ir.expr import Expr

Scalar = bool | int | float | DimExpr


def _full(*, shape: Sequence[Dim], value: Scalar, dtype: DType, device: str) -> Definition:
    return single((), compute("full", shape, lambda *axes: number(value, dtype)))


def arange_length(start: Scalar, stop: Scalar, step: int | float) -> Dim:
    """Number of elements of start, start + step, … before stop. ShapeError for a step of 0 or a negative number."""
    if step == 0:
        raise ShapeError("operator arange: the step is 0")
    if isinstance(start, DimExpr) or isinstance(stop, DimExpr):
        if not isinstance(step, int) or isinstance(start, float) or isinstance(stop, float):
            raise ShapeError(f"operator arange takes whole steps between symbolic sizes, got {start}, {stop}, {step}")
        distance = (stop - start) if step > 0 else (start - stop)
        return ceildiv(distance, abs(step))
    if all(isinstance(number_, int) for number_ in (start, stop, step)):
        return max(0, -(-(int(stop) - int(start)) // int(step)))
    return max(0, math.ceil((stop - start) / step))


def _arange(*, start: Scalar, stop: Scalar, step: int | float, dtype: DType, device: str) -> Definition:
    # Float sequences are computed in f64 and rounded once, as torch does on the CPU.
    wide = dtypes.f64 if dtype.is_float else dtypes.i64

    def value(i: Expr) -> Expr:
        return build.cast(build.cast(i, wide) * number(step, wide) + number(start, wide), dtype)

    return single((), compute("arange", (arange_length(start, stop, step),), value))


def _linspace(*, start: float, stop: float, steps: Dim, dtype: DType, device: str) -> Definition:
    """Counted from the nearer end, so that both ends are met exactly; in f64, rounded once."""
    wide = dtypes.f64
    last = build.index(as_dim(steps) - 1)

    def value(i: Expr) -> Expr:
        width = number(stop - start, wide) / build.cast(build.maximum(last, 1), wide)
        low = number(start, wide) + build.cast(i, wide) * width
        high = number(stop, wide) - build.cast(last - i, wide) * width
        return build.cast(build.select(i < (last + 1) // 2, low, high), dtype)

    return single((), compute("linspace", (steps,), lambda i: value(i) if steps != 1 else number(start, dtype)))


def _eye(*, rows: Dim, columns: Dim | None, offset: int, dtype: DType, device: str) -> Definition:
    shape = (rows, rows if columns is None else columns)
    one, zero = number(1, dtype), number(0, dtype)
    return single((), compute("eye", shape, lambda i, j: build.select(build.equal(j, i + offset), one, zero)))


def _tri(*, rows: Dim, columns: Dim | None, offset: int, dtype: DType, device: str) -> Definition:
    shape = (rows, rows if columns is None else columns)
    one, zero = number(1, dtype), number(0, dtype)
    return single((), compute("tri", shape, lambda i, j: build.select(j <= i + offset, one, zero)))


def on_device(define: Callable[..., Definition]) -> Callable[[Sequence[Any], Attrs], Sequence[ValueType]]:
    """The type rule of operators without inputs: the definition's outputs on the attribute's device."""

    def infer(types: Sequence[Any], attrs: Attrs) -> Sequence[ValueType]:
        if attrs["dtype"].is_host_only:
            raise DTypeError(f"an operator that creates tensors cannot make {attrs['dtype']} values")
        operands: list[None] = []
        outputs = define(*operands, **attrs).outputs
        return tuple(TensorType(output.dtype, output.shape, device=attrs["device"]) for output in outputs)

    return infer


DEVICE = Attribute("device", "cpu")
_DTYPE = Attribute("dtype", dtypes.f32)


def _spec(name: str, define: Callable[..., Definition], doc: str, *attributes: Attribute) -> OperatorSpec:
    return OperatorSpec(
        name=name,
        inputs=(),
        attributes=(*attributes, DEVICE),
        define=define,
        infer=on_device(define),
        doc=doc,
    )


SPECS: tuple[OperatorSpec, ...] = (
    _spec(
        "full",
        _full,
        "A tensor of one number, which may be a symbolic size; torch.full.",
        Attribute("shape"),
        Attribute("value"),
        _DTYPE,
    ),
    _spec(
        "arange",
        _arange,
        "start, start + step, … before stop; floats are computed in f64 and rounded once; torch.arange.",
        Attribute("start", 0),
        Attribute("stop"),
        Attribute("step", 1),
        Attribute("dtype", dtypes.i64),
    ),
    _spec(
        "linspace",
        _linspace,
        "`steps` numbers evenly spaced from start to stop, both included; torch.linspace.",
        Attribute("start"),
        Attribute("stop"),
        Attribute("steps"),
        _DTYPE,
    ),
    *(
        _spec(
            name,
            define,
            doc,
            Attribute("rows"),
            Attribute("columns", None, "None is as many as rows"),
            Attribute("offset", 0),
            dtype,
        )
        for name, define, doc, dtype in (
            ("eye", _eye, "1 where column = row + offset, else 0; ONNX EyeLike, torch.eye.", _DTYPE),
            ("tri", _tri, "1 where column <= row + offset, else 0; numpy.tri.", Attribute("dtype", dtypes.boolean)),
        )
    ),
)
