"""Between real numbers and integers or small floats with a scale: what each code stands for is (code - zero) * scale.

A scale and its zero point have one of three shapes for x of any rank: one number, a vector along `axis`, or the shape
of x with `block_size` neighbours along `axis` sharing an entry. ONNX QuantizeLinear and DequantizeLinear; the types and
their ranges are those of the table in the operator specification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hidet import dtypes
from hidet.compute.definition import Definition, Operand, compute, single
from hidet.dims import ceildiv, prove_equal
from hidet.dtypes import DType
from hidet.errors import DTypeError, ShapeError
from hidet.graph.operator import Attribute, OperatorSpec
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr
from hidet.operators.rules import normalize_axis, present, require_dtype, same_extent, shape_text

Place = Callable[[Sequence[Expr]], tuple[Expr, ...]]

# More than any code and any zero point, and exact in f32: quotients beyond are cut to it before they become integers.
_FAR = float(1 << 20)


def _entry(name: str, x: Operand, scale: Operand, axis: int, block_size: int) -> Place:
    """Where the scale of an element of `x` is. ShapeError for a scale of none of the three shapes."""
    if scale.rank == 0:
        return lambda axes: ()
    if scale.rank == 1 and scale.shape[0] == 1 and block_size == 0:
        return lambda axes: (build.index(0),)
    cut = normalize_axis(name, axis, x.rank)
    if block_size == 0:
        if scale.rank != 1:
            raise ShapeError(f"operator {name}: scale of shape {shape_text(scale.shape)} without a block size")
        same_extent(scale.shape[0], x.shape[cut], f"operator {name}: scales against axis {cut} of x")
        return lambda axes: (axes[cut],)
    blocks = tuple(ceildiv(n, block_size) if a == cut else n for a, n in enumerate(x.shape))
    if scale.rank != x.rank or any(prove_equal(m, n) is False for m, n in zip(scale.shape, blocks, strict=True)):
        raise ShapeError(
            f"operator {name}: scale of shape {shape_text(scale.shape)}, expected {shape_text(blocks)} "
            f"for blocks of {block_size} along axis {cut} of x{shape_text(x.shape)}"
        )
    return lambda axes: tuple(i // block_size if a == cut else i for a, i in enumerate(axes))


def _require_alike(name: str, scale: Operand, zero: Operand | None) -> None:
    require_dtype(name, scale, "float")
    if zero is not None and (
        zero.rank != scale.rank or any(prove_equal(m, n) is False for m, n in zip(zero.shape, scale.shape, strict=True))
    ):
        raise ShapeError(
            f"operator {name}: zero point of shape {shape_text(zero.shape)} for a scale of {shape_text(scale.shape)}"
        )


def _quantize(
    x: Operand,
    scale: Operand,
    zero: Operand | None = None,
    *,
    dtype: DType,
    axis: int,
    block_size: int,
    saturate: bool,
    precision: DType | None,
) -> Definition:
    name = "quantize"
    require_dtype(name, x, "number")
    _require_alike(name, scale, zero)
    if zero is not None and zero.dtype != dtype:
        raise DTypeError(f"operator {name}: zero point of {zero.dtype} for results of {dtype}")
    if not (dtype.is_int or dtype.is_float) or dtype.bits > 16:
        raise DTypeError(f"operator {name} makes integers and floats of up to 16 bits, not {dtype}")
    entry = _entry(name, x, scale, axis, block_size)
    common = scale.dtype if x.dtype == scale.dtype or not x.dtype.is_float else dtypes.f32
    quotient_dtype = common if precision is None else precision

    def value(*axes: Expr) -> Expr:
        place = entry(axes)
        quotient = build.cast(x[axes], quotient_dtype) / build.cast(scale[place], quotient_dtype)
        wide = build.cast(quotient, dtypes.f64 if quotient_dtype == dtypes.f64 else dtypes.f32)
        shift = None if zero is None else zero[place]
        return _integer_code(wide, shift, dtype) if dtype.is_int else _float_code(wide, shift, dtype, saturate)

    return single(present(x, scale, zero), compute(name, x.shape, value))


def _integer_code(quotient: Expr, zero: Expr | None, dtype: DType) -> Expr:
    near = build.minimum(build.maximum(build.unary("round", quotient), -_FAR), _FAR)
    code = build.cast(near, dtypes.i32)
    if zero is not None:
        code = code + build.cast(zero, dtypes.i32)
    return build.cast(build.minimum(build.maximum(code, dtype.min), dtype.max), dtype)


def _float_code(quotient: Expr, zero: Expr | None, dtype: DType, saturate: bool) -> Expr:
    if zero is not None:
        quotient = quotient + build.cast(zero, quotient.dtype)
    if saturate:
        quotient = build.minimum(build.maximum(quotient, dtype.min), dtype.max)
    return build.cast(quotient, dtype)


def _dequantize(
    x: Operand, scale: Operand, zero: Operand | None = None, *, axis: int, block_size: int, dtype: DType | None
) -> Definition:
    name = "dequantize"
    if not (x.dtype.is_int or x.dtype.is_float):
        raise DTypeError(f"operator {name} takes codes that are numbers, got {x.dtype}")
    _require_alike(name, scale, zero)
    target = scale.dtype if dtype is None else dtype
    wide = dtypes.f64 if scale.dtype == dtypes.f64 else dtypes.f32
    entry = _entry(name, x, scale, axis, block_size)

    def value(*axes: Expr) -> Expr:
        place = entry(axes)
        code = build.cast(x[axes], wide)
        if zero is not None:
            code = code - build.cast(zero[place], wide)
        return build.cast(code * build.cast(scale[place], wide), target)

    return single(present(x, scale, zero), compute(name, x.shape, value))


def _unpack(x: Operand, *, dtype: DType) -> Definition:
    name = "unpack"
    if x.dtype != dtypes.u8 or x.rank == 0:
        raise DTypeError(f"operator {name} takes u8[..., bytes], got {x.dtype}{shape_text(x.shape)}")
    if not dtype.is_subbyte or 8 % dtype.bits:
        raise DTypeError(f"operator {name} makes elements of 1, 2 or 4 bits, not {dtype}")
    count = 8 // dtype.bits
    unsigned = dtypes.dtype(f"u{dtype.bits}")

    def value(*axes: Expr) -> Expr:
        *outer, i = axes
        shift = build.cast((i % count) * dtype.bits, dtypes.u8)
        bits = build.cast(build.binary("shr", x[(*outer, i // count)], shift), unsigned)
        return bits if unsigned == dtype else Bitcast(bits, dtype)

    return single((x,), compute(name, (*x.shape[:-1], x.shape[-1] * count), value))


_AXIS = Attribute("axis", 1, "the axis that a vector of scales, or blocks, lie along")
_BLOCK = Attribute("block_size", 0, "how many neighbours along the axis share a scale; 0 for scales that are no blocks")

SPECS: tuple[OperatorSpec, ...] = (
    OperatorSpec(
        name="quantize",
        inputs=("x", "scale", "zero?"),
        attributes=(
            Attribute("dtype", dtypes.u8, "type of the codes: an integer or float of up to 16 bits"),
            _AXIS,
            _BLOCK,
            Attribute("saturate", True, "8-bit floats: whether what is too large becomes the largest, or as in a cast"),
            Attribute("precision", None, "type of the quotient; None is the common type of x and scale"),
        ),
        define=_quantize,
        doc="x / scale rounded to nearest even, plus the zero point, limited to the type of the codes; ONNX "
        "QuantizeLinear. Element-wise; the zero point has the type of the codes.",
    ),
    OperatorSpec(
        name="dequantize",
        inputs=("x", "scale", "zero?"),
        attributes=(_AXIS, _BLOCK, Attribute("dtype", None, "type of the result; None is the type of the scale")),
        define=_dequantize,
        expands=True,
        doc="(x - zero point) * scale, computed in f32; ONNX DequantizeLinear. Element-wise; x of any number type.",
    ),
    OperatorSpec(
        name="unpack",
        inputs=("x",),
        attributes=(Attribute("dtype", doc="the type of the elements, of 1, 2 or 4 bits"),),
        define=_unpack,
        expands=True,
        doc="The elements packed in bytes u8[..., n], low bits first -> [..., n * 8 / bits]; ONNX's packing of int4.",
    ),
)
