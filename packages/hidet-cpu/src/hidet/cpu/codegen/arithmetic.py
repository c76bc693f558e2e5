"""Unary and binary operations on registers: what LLVM has an instruction or intrinsic for, with numpy's meaning.

LLVM leaves division by zero, division of the smallest integer by -1 and shifts beyond the width undefined, and x86
traps on the divisions. Here a division by zero gives 0, the smallest integer divided by -1 itself, and shifts act as
on an unbounded number. Guards against constants are decided here and cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hidet import dtypes
from hidet.cpu.codegen import spelling
from hidet.cpu.codegen.spelling import intrinsic_suffix, register_type
from hidet.errors import CodegenError
from hidet.ir.types import Type, element_dtype, lanes_of, with_lanes

if TYPE_CHECKING:
    from hidet.cpu.codegen.lines import LineEmitter


def condition_type(type_: Type) -> str:
    """The LLVM type of a comparison of two values of `type_`."""
    return register_type(with_lanes(dtypes.boolean, lanes_of(type_)))


def emit_unary(emit: LineEmitter, op: str, a: str, type_: Type) -> str:
    """One operation on register `a` of `type_`, which computes in itself."""
    llvm, dtype = register_type(type_), element_dtype(type_)
    if not dtype.is_float:
        return _integer_unary(emit, op, a, type_)
    if op == "neg":
        return emit.instruction(f"fneg {llvm} {a}")
    if op == "isnan":
        return emit.instruction(f"fcmp uno {llvm} {a}, {a}")
    if op in ("isinf", "isfinite"):
        magnitude = emit.intrinsic(f"llvm.fabs.{intrinsic_suffix(type_)}", [(llvm, a)], llvm)
        infinity = emit.constant(float("inf"), type_)
        return emit.instruction(f"fcmp {'oeq' if op == 'isinf' else 'olt'} {llvm} {magnitude}, {infinity}")
    name = spelling.INTRINSIC_UNARY.get(op)
    if name is not None:
        return emit.intrinsic(f"llvm.{name}.{intrinsic_suffix(type_)}", [(llvm, a)], llvm)
    raise CodegenError(f"scalar function {op} of {dtype} reached code generation; expand_math must replace it")


def _integer_unary(emit: LineEmitter, op: str, a: str, type_: Type) -> str:
    llvm, dtype = register_type(type_), element_dtype(type_)
    if op in ("not", "lnot"):
        return emit.instruction(f"xor {llvm} {a}, {emit.constant(True if dtype.is_bool else -1, type_)}")
    if op == "neg":
        return emit.instruction(f"sub {llvm} {emit.constant(0, type_)}, {a}")
    if op == "abs":
        if not dtype.is_signed:
            return a
        return emit.intrinsic(f"llvm.abs.{intrinsic_suffix(type_)}", [(llvm, a), ("i1", "false")], llvm)
    if op in ("floor", "ceil", "round", "trunc"):
        return a
    if op in ("isnan", "isinf", "isfinite"):
        return emit.constant(op == "isfinite", with_lanes(dtypes.boolean, lanes_of(type_)))
    raise CodegenError(f"scalar function {op} of {dtype} reached code generation; cast the operand to a float first")


def emit_binary(emit: LineEmitter, op: str, a: str, b: str, type_: Type, known: int | None, wraps: bool) -> str:
    """One operation on registers of `type_`, which computes in itself.

    known: the value of an integer `b` that is a constant, else None. wraps: whether i64 sums and products may overflow,
    which those of index arithmetic never do.
    """
    llvm, dtype = register_type(type_), element_dtype(type_)
    if dtype.is_float:
        return _float_binary(emit, op, a, b, type_)
    if dtype.is_bool:
        op = spelling.BOOL_BINARY.get(op, op)
    if op in spelling.INT_BINARY:
        flags = "" if wraps or dtype is not dtypes.i64 or op not in ("add", "sub", "mul") else "nsw "
        return emit.instruction(f"{spelling.INT_BINARY[op]} {flags}{llvm} {a}, {b}")
    unsigned = dtype.kind in ("uint", "bool")
    if op in spelling.SIGNED_COMPARE:
        table = spelling.UNSIGNED_COMPARE if unsigned else spelling.SIGNED_COMPARE
        return emit.instruction(f"icmp {table[op]} {llvm} {a}, {b}")
    if op in ("min", "max"):
        name = f"llvm.{'u' if unsigned else 's'}{op}.{intrinsic_suffix(type_)}"
        return emit.intrinsic(name, [(llvm, a), (llvm, b)], llvm)
    if op in ("shl", "shr"):
        return _shift(emit, op, a, b, type_, known)
    if op in ("truncdiv", "rem", "floordiv", "mod"):
        return _division(emit, op, a, b, type_, known)
    raise CodegenError(f"scalar operation {op} of {dtype} reached code generation")


def _shift(emit: LineEmitter, op: str, a: str, b: str, type_: Type, known: int | None) -> str:
    llvm, dtype = register_type(type_), element_dtype(type_)
    arithmetic = op == "shr" and dtype.is_signed
    instruction = "shl" if op == "shl" else "ashr" if arithmetic else "lshr"
    if known is not None and 0 <= known < dtype.bits:
        return emit.instruction(f"{instruction} {llvm} {a}, {b}")
    if arithmetic:
        # All higher counts shift out everything but the sign. Negative ones are large when read as unsigned.
        last = emit.constant(dtype.bits - 1, type_)
        limited = emit.intrinsic(f"llvm.umin.{intrinsic_suffix(type_)}", [(llvm, b), (llvm, last)], llvm)
        return emit.instruction(f"ashr {llvm} {a}, {limited}")
    shifted = emit.instruction(f"{instruction} {llvm} {a}, {b}")
    inside = emit.instruction(f"icmp ult {llvm} {b}, {emit.constant(dtype.bits, type_)}")
    return emit.select(inside, shifted, emit.constant(0, type_), type_)


def _division(emit: LineEmitter, op: str, a: str, b: str, type_: Type, known: int | None) -> str:
    llvm, dtype = register_type(type_), element_dtype(type_)
    zero = emit.constant(0, type_)
    if known == 0:
        return zero
    is_zero = None
    if known is None:
        is_zero = emit.instruction(f"icmp eq {llvm} {b}, {zero}")
        unsafe = is_zero
        if dtype.is_signed:
            lowest = emit.instruction(f"icmp eq {llvm} {a}, {emit.constant(dtype.min, type_)}")
            minus = emit.instruction(f"icmp eq {llvm} {b}, {emit.constant(-1, type_)}")
            overflow = emit.instruction(f"and {condition_type(type_)} {lowest}, {minus}")
            unsafe = emit.instruction(f"or {condition_type(type_)} {is_zero}, {overflow}")
        b = emit.select(unsafe, emit.constant(1, type_), b, type_)
    elif known == -1:
        return zero if op in ("rem", "mod") else emit.instruction(f"sub {llvm} {zero}, {a}")
    sign = "s" if dtype.is_signed else "u"
    if op in ("floordiv", "mod") and dtype.is_signed:
        result = _floor_division(emit, op, a, b, type_)
    else:
        result = emit.instruction(f"{sign}{'div' if op in ('truncdiv', 'floordiv') else 'rem'} {llvm} {a}, {b}")
    # A remainder by the 1 that took the place of 0 is 0 already.
    return result if is_zero is None or op in ("rem", "mod") else emit.select(is_zero, zero, result, type_)


def _floor_division(emit: LineEmitter, op: str, a: str, b: str, type_: Type) -> str:
    """Signed division rounding down: the truncated result is off by one where the signs differ."""
    llvm, condition = register_type(type_), condition_type(type_)
    remainder = emit.instruction(f"srem {llvm} {a}, {b}")
    zero = emit.constant(0, type_)
    inexact = emit.instruction(f"icmp ne {llvm} {remainder}, {zero}")
    signs = emit.instruction(f"xor {llvm} {remainder}, {b}")
    opposite = emit.instruction(f"icmp slt {llvm} {signs}, {zero}")
    adjust = emit.instruction(f"and {condition} {inexact}, {opposite}")
    if op == "mod":
        return emit.select(adjust, emit.instruction(f"add {llvm} {remainder}, {b}"), remainder, type_)
    quotient = emit.instruction(f"sdiv {llvm} {a}, {b}")
    step = emit.instruction(f"sext {condition} {adjust} to {llvm}")
    return emit.instruction(f"add {llvm} {quotient}, {step}")


def _float_binary(emit: LineEmitter, op: str, a: str, b: str, type_: Type) -> str:
    llvm, flags = register_type(type_), emit.flags
    if op in spelling.FLOAT_BINARY:
        return emit.instruction(f"{spelling.FLOAT_BINARY[op]} {flags}{llvm} {a}, {b}")
    if op in spelling.FLOAT_COMPARE:
        return emit.instruction(f"fcmp {spelling.FLOAT_COMPARE[op]} {llvm} {a}, {b}")
    if op in ("min", "max"):
        # The sign of zero is left open, as numpy leaves it; NaN of either operand goes to the result.
        name = f"llvm.{op}imum.{intrinsic_suffix(type_)}"
        return emit.intrinsic(name, [(llvm, a), (llvm, b)], llvm, "nsz " + flags.replace("nsz ", ""))
    if op == "copysign":
        return _copysign(emit, a, b, type_)
    raise CodegenError(f"scalar operation {op} on floats reached code generation; expand_math must replace it")


def _copysign(emit: LineEmitter, a: str, b: str, type_: Type) -> str:
    """The size of `a` with the sign of `b`.

    Not llvm.copysign: where `b` was rounded from f64 to f16 on its way, LLVM takes the sign of the f64 and rounds that
    to the f16 of the result, by a call of `__truncdfhf2`, which nothing defines.
    """
    llvm, words = (
        register_type(type_),
        with_lanes(dtypes.i32 if element_dtype(type_).bits == 32 else dtypes.i64, lanes_of(type_)),
    )
    integer = register_type(words)
    size = emit.intrinsic(f"llvm.fabs.{intrinsic_suffix(type_)}", [(llvm, a)], llvm)
    bits = emit.instruction(f"bitcast {llvm} {b} to {integer}")
    is_below = emit.instruction(f"icmp slt {integer} {bits}, {emit.constant(0, words)}")
    return emit.select(is_below, emit.instruction(f"fneg {llvm} {size}"), size, type_)


def clamp_to_constant(emit: LineEmitter, op: str, x: str, bound: str, type_: Type) -> str:
    """min or max of register `x` and a constant that is not NaN: one comparison, which is false for NaN.

    x86's vmaxps and vminps are exactly this; its other instruction sequences for a NaN-preserving maximum are longer.
    """
    predicate = "olt" if op == "min" else "ogt"
    better = emit.instruction(f"fcmp {predicate} {register_type(type_)} {bound}, {x}")
    return emit.select(better, bound, x, type_)


def emit_fma(emit: LineEmitter, operands: Sequence[str], type_: Type) -> str:
    """a * b + c of three operands with one rounding; on x86 before FMA3 its exact value may be rounded twice."""
    a, b, c = operands
    llvm, dtype = register_type(type_), element_dtype(type_)
    arch = emit.module.arch
    if arch.has("fma") or arch.isa == "aarch64":
        return emit.intrinsic(f"llvm.fma.{intrinsic_suffix(type_)}", [(llvm, a), (llvm, b), (llvm, c)], llvm)
    if dtype is dtypes.f32:
        wide = with_lanes(dtypes.f64, lanes_of(type_))
        a, b, c = (emit.convert(text, type_, wide) for text in (a, b, c))
        product = emit.instruction(f"fmul {register_type(wide)} {a}, {b}")
        return emit.convert(emit.instruction(f"fadd {register_type(wide)} {product}, {c}"), wide, type_)
    return _double_fma(emit, a, b, c, type_)


def _double_fma(emit: LineEmitter, a: str, b: str, c: str, type_: Type) -> str:
    """By halves of 26 and 27 bits, whose products are exact (Dekker 1971, with the halves cut by a bit mask)."""
    llvm, bits = register_type(type_), register_type(with_lanes(dtypes.i64, lanes_of(type_)))
    mask = emit.constant(-(2**27), with_lanes(dtypes.i64, lanes_of(type_)))

    def operate(instruction: str, x: str, y: str) -> str:
        return emit.instruction(f"{instruction} {llvm} {x}, {y}")

    def halves(x: str) -> tuple[str, str]:
        kept = emit.instruction(f"and {bits} {emit.instruction(f'bitcast {llvm} {x} to {bits}')}, {mask}")
        high = emit.instruction(f"bitcast {bits} {kept} to {llvm}")
        return high, operate("fsub", x, high)

    product = operate("fmul", a, b)
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    error = operate("fsub", operate("fmul", a_high, b_high), product)
    for x, y in ((a_high, b_low), (a_low, b_high), (a_low, b_low)):
        error = operate("fadd", error, operate("fmul", x, y))
    total = operate("fadd", product, c)
    other = operate("fsub", total, product)
    lost = operate("fadd", operate("fsub", product, operate("fsub", total, other)), operate("fsub", c, other))
    return operate("fadd", total, operate("fadd", lost, error))
