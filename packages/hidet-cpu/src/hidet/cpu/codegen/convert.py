"""Value conversions between dtypes in LLVM IR, without library calls.

f16 and bf16 live in i16 registers. bf16 is widened by a shift and rounded to nearest even by integer arithmetic; f16
uses the hardware conversion where there is one (F16C, AVX-512, any aarch64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.cpu.codegen.small_float import single_to_small, small_to_single
from hidet.cpu.codegen.spelling import SMALL_FLOATS, register_type
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.ir.types import PointerType, Type, element_dtype, lanes_of, with_lanes

if TYPE_CHECKING:
    from hidet.cpu.codegen.lines import LineEmitter

_HALF = ("float16", "bfloat16")


def widen_dtype(dtype: DType) -> DType:
    """The dtype arithmetic on `dtype` is done in: f32 for the half types and smaller floats, itself otherwise."""
    return dtypes.f32 if dtype.name in (*_HALF, *SMALL_FLOATS) else dtype


def convert(emit: LineEmitter, text: str, source: Type, target: Type) -> str:
    """Convert register `text`; float to int truncates and saturates, anything to bool tests for non-zero."""
    if isinstance(source, PointerType) or isinstance(target, PointerType):
        return text
    a, b, lanes = element_dtype(source), element_dtype(target), lanes_of(source)
    if a is b:
        return text
    if a.name in _HALF:
        single = _half_to_single(emit, text, a, lanes)
        return convert(emit, single, with_lanes(dtypes.f32, lanes), target)
    if b.name in _HALF:
        single = convert(emit, text, source, with_lanes(dtypes.f32, lanes))
        return _single_to_half(emit, single, b, lanes)
    if a.name in SMALL_FLOATS:
        single = small_to_single(emit, text, a, lanes)
        return convert(emit, single, with_lanes(dtypes.f32, lanes), target)
    if b.name in SMALL_FLOATS:
        single = convert(emit, text, source, with_lanes(dtypes.f32, lanes))
        return single_to_small(emit, single, b, lanes)
    old, new = register_type(source), register_type(target)
    if b.kind == "bool":
        zero = emit.constant(0, source)
        return emit.instruction(f"{'fcmp une' if a.is_float else 'icmp ne'} {old} {text}, {zero}")
    if a.is_float and b.is_float:
        return emit.instruction(f"{'fpext' if a.bits < b.bits else 'fptrunc'} {old} {text} to {new}")
    if a.is_float:
        return _float_to_int(emit, text, source, target, b)
    unsigned = a.kind in ("uint", "bool")
    if b.is_float:
        return emit.instruction(f"{'uitofp' if unsigned else 'sitofp'} {old} {text} to {new}")
    bits = 1 if a.kind == "bool" else a.bits
    if bits == b.bits:
        return text
    return emit.instruction(f"{'trunc' if bits > b.bits else 'zext' if unsigned else 'sext'} {old} {text} to {new}")


def _float_to_int(emit: LineEmitter, text: str, source: Type, target: Type, dtype: DType) -> str:
    """x86 and aarch64 differ on values out of range; the saturating intrinsic gives one meaning (NaN becomes 0).

    Narrow integers go through i32 and keep its low bits, as C compilers do for torch.
    """
    lanes = lanes_of(source)
    wide = dtype if dtype.bits >= 32 else dtypes.i32
    wide_type = with_lanes(wide, lanes)
    name = f"llvm.fpto{'u' if wide.kind == 'uint' else 's'}i.sat"
    suffix = f"{_suffix(wide, lanes)}.{_suffix(element_dtype(source), lanes)}"
    result = emit.intrinsic(f"{name}.{suffix}", [(register_type(source), text)], register_type(wide_type))
    return convert(emit, result, wide_type, target)


def _suffix(dtype: DType, lanes: int) -> str:
    scalar = f"{'f' if dtype.is_float else 'i'}{dtype.bits}"
    return scalar if lanes == 1 else f"v{lanes}{scalar}"


def _half_to_single(emit: LineEmitter, text: str, dtype: DType, lanes: int) -> str:
    half, word, single = (register_type(with_lanes(d, lanes)) for d in (dtypes.i16, dtypes.i32, dtypes.f32))
    if dtype.name == "bfloat16":
        wide = emit.instruction(f"zext {half} {text} to {word}")
        shifted = emit.instruction(f"shl {word} {wide}, {emit.constant(16, with_lanes(dtypes.i32, lanes))}")
        return emit.instruction(f"bitcast {word} {shifted} to {single}")
    _require_half_conversion(emit)
    native = "half" if lanes == 1 else f"<{lanes} x half>"
    value = emit.instruction(f"bitcast {half} {text} to {native}")
    return emit.instruction(f"fpext {native} {value} to {single}")


def _single_to_half(emit: LineEmitter, text: str, dtype: DType, lanes: int) -> str:
    half, word, single = (register_type(with_lanes(d, lanes)) for d in (dtypes.i16, dtypes.i32, dtypes.f32))
    if dtype.name == "float16":
        _require_half_conversion(emit)
        native = "half" if lanes == 1 else f"<{lanes} x half>"
        value = emit.instruction(f"fptrunc {single} {text} to {native}")
        return emit.instruction(f"bitcast {native} {value} to {half}")
    words = with_lanes(dtypes.i32, lanes)
    bits = emit.instruction(f"bitcast {single} {text} to {word}")
    high = emit.instruction(f"lshr {word} {bits}, {emit.constant(16, words)}")
    odd = emit.instruction(f"and {word} {high}, {emit.constant(1, words)}")
    bias = emit.instruction(f"add {word} {odd}, {emit.constant(0x7FFF, words)}")
    moved = emit.instruction(f"add {word} {bits}, {bias}")
    rounded = emit.instruction(f"lshr {word} {moved}, {emit.constant(16, words)}")
    condition = register_type(with_lanes(dtypes.boolean, lanes))
    is_nan = emit.instruction(f"fcmp uno {single} {text}, {text}")
    quiet = emit.instruction(f"or {word} {high}, {emit.constant(0x40, words)}")
    chosen = emit.instruction(f"select {condition} {is_nan}, {word} {quiet}, {word} {rounded}")
    return emit.instruction(f"trunc {word} {chosen} to {half}")


def _require_half_conversion(emit: LineEmitter) -> None:
    arch = emit.module.arch
    if not (arch.has("f16c") or arch.has("avx512f") or arch.triple.startswith("aarch64")):
        raise CodegenError(
            f"CPU {arch.name} has no f16 conversion instructions (F16C)", hint="use bfloat16 or float32 on this machine"
        )
