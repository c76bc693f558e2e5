"""Changing the element type: by value, or by reading the same bits."""

from __future__ import annotations

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dims import floordiv, mod, prove_equal
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr
from hidet.ops.rules import map_elements, require_dtype


def _cast(x: Operand, *, dtype: DType) -> Definition:
    require_dtype("cast", x, "data")
    if dtype.is_host_only or (dtype != x.dtype and (dtype.is_complex or x.dtype.is_complex)):
        raise DTypeError(f"operator cast cannot convert {x.dtype} to {dtype}")
    return map_elements("cast", (x,), lambda element: build.cast(element, dtype))


def _bitcast(x: Operand, *, dtype: DType) -> Definition:
    """Types of other sizes split the elements of the last axis, or join neighbours; the first one has the low bits."""
    name = "bitcast"
    for element in (x.dtype, dtype):
        if element.is_host_only or element.is_subbyte or element.is_complex:
            raise DTypeError(f"operator {name} takes types of whole bytes that are not complex, got {element}")
    if dtype.bits == x.dtype.bits:
        return map_elements(name, (x,), lambda element: _reinterpreted(element, dtype))
    if x.rank == 0:
        raise ShapeError(f"operator {name}: a tensor without axes cannot become {dtype} of another size")
    *outer, last = x.shape
    if dtype.bits < x.dtype.bits:
        parts = x.dtype.bits // dtype.bits
        narrow, wide = _bits_of(dtype), _bits_of(x.dtype)

        def part(*axes: Expr) -> Expr:
            whole = _reinterpreted(x[(*axes[:-1], axes[-1] // parts)], wide)
            shifted = build.binary("shr", whole, build.cast(axes[-1] % parts * dtype.bits, wide))
            return _reinterpreted(build.cast(shifted, narrow), dtype)

        return single((x,), compute(name, (*outer, last * parts), part))
    parts = dtype.bits // x.dtype.bits
    if prove_equal(mod(last, parts), 0) is False:
        raise ShapeError(f"operator {name}: {last} elements of {x.dtype} are no whole number of elements of {dtype}")
    narrow, wide = _bits_of(x.dtype), _bits_of(dtype)

    def joined(*axes: Expr) -> Expr:
        whole: Expr = build.const(0, wide)
        for number in range(parts):
            bits = build.cast(_reinterpreted(x[(*axes[:-1], axes[-1] * parts + number)], narrow), wide)
            whole = build.binary("or", whole, build.binary("shl", bits, build.const(number * x.dtype.bits, wide)))
        return _reinterpreted(whole, dtype)

    return single((x,), compute(name, (*outer, floordiv(last, parts)), joined))


def _bits_of(dtype: DType) -> DType:
    """The unsigned integers of as many bits."""
    return next(each for each in (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64) if each.bits == dtype.bits)


def _reinterpreted(element: Expr, dtype: DType) -> Expr:
    """The bits of an element as another type of the same size. bool has the bytes 0 and 1."""
    if element.dtype == dtype:
        return element
    if element.dtype.is_bool:
        return _reinterpreted(build.cast(element, dtypes.u8), dtype)
    if dtype.is_bool:
        return build.binary("ne", _reinterpreted(element, dtypes.u8), 0)
    return Bitcast(element, dtype)


SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="cast",
        inputs=("x",),
        attributes=(Attribute("dtype", doc="the new DType"),),
        define=_cast,
        doc="x converted to another element type: floats are rounded to nearest even, floats to integers truncated "
        "towards 0, anything to bool by comparing with 0. Element-wise; torch.Tensor.to.",
    ),
    OperatorSpec(
        name="bitcast",
        inputs=("x",),
        attributes=(Attribute("dtype", doc="a DType of whole bytes"),),
        define=_bitcast,
        doc="The bytes of x read as another type; torch.Tensor.view(dtype). Where sizes differ, the last axis has as "
        "many times more or fewer elements.",
    ),
)
