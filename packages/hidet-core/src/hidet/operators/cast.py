"""Changing the element type: by value, or by reading the same bits."""

from __future__ import annotations

from typing import Literal

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dims import floordiv, mod, prove_equal
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError, UnsupportedOp
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr
from hidet.operators.rules import map_elements, require_dtype, widen

OutOfRange = Literal["nearest", "lowest"]


def _cast(x: Operand, *, dtype: DType, out_of_range: OutOfRange) -> Definition:
    require_dtype("cast", x, "data")
    if dtype.is_host_only or (dtype != x.dtype and (dtype.is_complex or x.dtype.is_complex)):
        raise DTypeError(f"operator cast cannot convert {x.dtype} to {dtype}")
    if out_of_range not in ("nearest", "lowest"):
        raise UnsupportedOp(f"attribute out_of_range of cast is 'nearest' or 'lowest', got {out_of_range!r}")
    if out_of_range == "lowest" and x.dtype.is_float and dtype.is_int and dtype.bits >= 8:
        return map_elements("cast", (x,), lambda element: _or_lowest(widen(element), dtype))
    return map_elements("cast", (x,), lambda element: build.cast(element, dtype))


def _or_lowest(x: Expr, dtype: DType) -> Expr:
    """An f32 or f64 as an integer as x86 processors convert: through i32 or i64, whose lowest value stands for all that
    they do not hold. Compilers for x86 take i64 for unsigned types, of which those below 16 bits are torch's choice."""
    if dtype == dtypes.u64:
        # The upper half is converted with its first value taken off.
        is_upper = x >= 2.0**63
        whole = _whole(build.select(is_upper, x - 2.0**63, x), dtypes.i64)
        return build.cast(build.select(is_upper, build.binary("xor", whole, dtypes.i64.min), whole), dtype)
    through = dtypes.i64 if dtype in (dtypes.i64, dtypes.u32, dtypes.u8) else dtypes.i32
    return build.cast(_whole(x, through), dtype)


def _whole(x: Expr, dtype: DType) -> Expr:
    """A float truncated, or the lowest value of `dtype` where it is not in its range."""
    end = 2.0 ** (dtype.bits - 1)
    inside = build.logical_and(x >= -end, x < end)
    return build.select(inside, build.cast(x, dtype), build.const(dtype.min, dtype))


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
        attributes=(
            Attribute("dtype", doc="the new DType"),
            Attribute("out_of_range", "nearest", "what becomes of floats that the integer type has no value for"),
        ),
        define=_cast,
        doc="x converted to another element type: floats are rounded to nearest even, floats to integers truncated "
        "towards 0, anything to bool by comparing with 0. Floats out of the range of an integer type become its "
        "nearest value and NaN 0, where types below 32 bits take the low bits of i32; with out_of_range='lowest' the "
        "lowest value, as on x86 processors (through i32, for u8, u32 and i64 through i64). Element-wise; "
        "torch.Tensor.to.",
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
