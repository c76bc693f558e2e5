"""Scalar operations in C and C++: for each, its spelling by kind of element type.

Narrow floats are computed in f32 and rounded once. For + - * / and square roots that is the exact rounding, because f32
has more than twice their digits.
"""

from __future__ import annotations

from collections.abc import Callable

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import CodegenError
from hidet.gpu.codegen.prelude import Prelude
from hidet.gpu.codegen.text import (
    AND,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    CHOICE,
    EQUALITY,
    OR,
    ORDER,
    PRODUCT,
    SHIFT,
    SUM,
    Text,
    call,
    cast,
    infix,
    prefix,
)

Spell = Callable[[Prelude, DType, tuple[Text, ...]], Text]

_INFIX = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "eq": ("==", EQUALITY),
    "ne": ("!=", EQUALITY),
    "lt": ("<", ORDER),
    "le": ("<=", ORDER),
    "gt": (">", ORDER),
    "ge": (">=", ORDER),
    "land": ("&&", AND),
    "lor": ("||", OR),
    "and": ("&", BIT_AND),
    "or": ("|", BIT_OR),
    "xor": ("^", BIT_XOR),
}
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_WHOLE_NUMBERS_STAY = frozenset({"floor", "ceil", "round", "trunc"})


def widened(prelude: Prelude, dtype: DType, a: Text) -> Text:
    """A narrow float as f32; other values as they are."""
    if dtype not in prelude.spelling.structs:
        return a
    if a.wide is not None and dtype is dtypes.bf16 and prelude.has("rounded_to_bf16"):
        prelude.use("rounded_to_bf16")
        return call("rounded_to_bf16", Text(a.wide))
    if a.place is not None and dtype is dtypes.bf16 and prelude.has("bf16_at"):
        prelude.use("bf16_at")
        return call("bf16_at", Text(a.place))
    prelude.use(dtype.short)
    return call("to_f32", a)


def narrowed(prelude: Prelude, dtype: DType, a: Text) -> Text:
    """An f32 rounded to a narrow float; other values as they are, small integers cut to their width."""
    if dtype in prelude.spelling.structs:
        prelude.use(dtype.short)
        return call(f"to_{dtype.short}", a)._replace(wide=a.text)
    if dtype is dtypes.tf32:
        prelude.use("tf32")
        return call("to_tf32", a)
    return a


def spell_unary(prelude: Prelude, op: str, dtype: DType, a: Text) -> Text:
    """A row of UNARY_OPS on a value of element type `dtype`."""
    if dtype.is_float:
        wide = dtypes.f64 if dtype is dtypes.f64 else dtypes.f32
        result = _float_unary(prelude, op, wide, widened(prelude, dtype, a))
        return result if op in ("isnan", "isinf", "isfinite") else narrowed(prelude, dtype, result)
    return _integer_unary(prelude, op, dtype, a)


def _float_unary(prelude: Prelude, op: str, wide: DType, a: Text) -> Text:
    if op == "neg":
        return prefix("-", a)
    if op in ("isnan", "isinf", "isfinite"):
        return _classify(prelude, op, wide, a)
    if op == "digamma":
        prelude.use("digamma")
        types = prelude.spelling.types
        result = call("digamma", a if wide is dtypes.f64 else cast(types[dtypes.f64], a))
        return result if wide is dtypes.f64 else cast(types[dtypes.f32], result)
    return call(_library_function(prelude, op, wide), a)


def _library_function(prelude: Prelude, op: str, dtype: DType) -> str:
    name = prelude.spelling.function(op, dtype)
    if name is None:
        raise _unspelled(prelude, op, dtype)
    return name


def _unspelled(prelude: Prelude, op: str, dtype: DType, hint: str | None = None) -> CodegenError:
    return CodegenError(f"scalar operation {op!r} of {dtype} has no {prelude.spelling.name} spelling", hint=hint)


def _classify(prelude: Prelude, op: str, wide: DType, a: Text) -> Text:
    infinity = Text(prelude.spelling.literal(float("inf"), wide))
    magnitude = call(_library_function(prelude, "abs", wide), a)
    if op == "isnan":
        # A NaN is the only value that is not at most infinite.
        return prefix("!", Text(f"({magnitude.text} <= {infinity.text})"))
    return infix(magnitude, "==" if op == "isinf" else "<", infinity, EQUALITY if op == "isinf" else ORDER)


def _integer_unary(prelude: Prelude, op: str, dtype: DType, a: Text) -> Text:
    if op == "lnot" or (op == "not" and dtype.is_bool):
        return prefix("!", a)
    if op == "neg":
        return _cut(prelude, dtype, prefix("-", a))
    if op == "not":
        return _cut(prelude, dtype, prefix("~", a))
    if op == "abs":
        if dtype.kind == "uint":
            return a
        return _cut(prelude, dtype, call(_library_function(prelude, "abs", dtype), a))
    if op in _WHOLE_NUMBERS_STAY:
        return a
    raise CodegenError(
        f"scalar operation {op!r} of {dtype} has no {prelude.spelling.name} spelling", hint="cast to a float first"
    )


def _cut(prelude: Prelude, dtype: DType, a: Text) -> Text:
    """C computes small integers as int; their results are cut to their width again."""
    return cast(prelude.spelling.scalar_type(dtype), a) if dtype.is_int and dtype.bits < 32 else a


def spell_binary(prelude: Prelude, op: str, dtype: DType, a: Text, b: Text, *, wraps: bool = False) -> Text:
    """A row of BINARY_OPS on values of element type `dtype`.

    wraps: whether signed integers are data, whose sums and products may overflow, not indices.
    """
    if dtype.is_float:
        return _float_binary(prelude, op, dtype, a, b)
    if dtype.is_complex:
        raise CodegenError(f"{prelude.spelling.name} kernels do not compute in {dtype.name}")
    if op in _INFIX:
        return _integer_infix(prelude, op, dtype, a, b, wraps)
    spelled = _INTEGER.get(op)
    if spelled is None:
        raise CodegenError(
            f"scalar operation {op!r} of {dtype} has no {prelude.spelling.name} spelling", hint="cast to a float first"
        )
    return _cut(prelude, dtype, spelled(prelude, dtype, a, b))


def _integer_infix(prelude: Prelude, op: str, dtype: DType, a: Text, b: Text, wraps: bool) -> Text:
    symbol, precedence = _INFIX[op]
    if dtype.is_bool and op in ("add", "mul"):
        symbol, precedence = ("||", OR) if op == "add" else ("&&", AND)
    if wraps and op in ("add", "sub", "mul") and dtype in (dtypes.i32, dtypes.i64):
        # Signed overflow has no meaning in C, that of unsigned numbers wraps.
        unsigned = prelude.spelling.types[dtypes.u32 if dtype is dtypes.i32 else dtypes.u64]
        result = infix(cast(unsigned, a), symbol, cast(unsigned, b), precedence)
        return cast(prelude.spelling.scalar_type(dtype), Text(result.text, precedence))
    result = infix(a, symbol, b, precedence)
    if op in ("land", "lor") or op in _COMPARISONS:
        return result
    return (
        cast(prelude.spelling.types[dtypes.boolean], result)
        if dtype.is_bool and op in ("and", "or", "xor")
        else _cut(prelude, dtype, result)
    )


def _float_binary(prelude: Prelude, op: str, dtype: DType, a: Text, b: Text) -> Text:
    if op == "nextafter" and dtype in dtypes.FLOATS_OF_16_BITS:
        prelude.use("next_after")
        return call("next_after", a, b)
    wide = dtypes.f64 if dtype is dtypes.f64 else dtypes.f32
    x, y = widened(prelude, dtype, a), widened(prelude, dtype, b)
    if op in _COMPARISONS:
        symbol, precedence = _INFIX[op]
        return infix(x, symbol, y, precedence)
    if op == "div" and dtype in dtypes.FLOATS_OF_16_BITS:
        return spell_quotient(prelude, dtype, x, y)
    if op in ("add", "sub", "mul", "div"):
        symbol, precedence = ("/", PRODUCT) if op == "div" else _INFIX[op]
        result = infix(x, symbol, y, precedence)
    elif op in ("min", "max"):
        prelude.use("min_max")
        result = call(f"{op}_nan", x, y)
    elif op in ("mod", "floordiv"):
        prelude.use("float_floor")
        result = call("floor_mod" if op == "mod" else "floor_div", x, y)
    elif op == "truncdiv":
        result = call(_library_function(prelude, "trunc", wide), infix(x, "/", y, PRODUCT))
    else:
        result = call(_library_function(prelude, op, wide), x, y)
    return narrowed(prelude, dtype, result)


def spell_quotient(prelude: Prelude, dtype: DType, a: Text, b: Text) -> Text:
    """A quotient of f32 rounded to 16 bits at once, in half the instructions of a / b where
    the hardware has that."""
    if not prelude.has("quotient"):
        return narrowed(prelude, dtype, infix(a, "/", b, PRODUCT))
    prelude.use("quotient")
    return narrowed(prelude, dtype, call("quotient", a, b))


def _helper(piece: str, function: str) -> Callable[[Prelude, DType, Text, Text], Text]:
    def spell(prelude: Prelude, dtype: DType, a: Text, b: Text) -> Text:
        return call(prelude.dialect.typed(prelude, piece, function, dtype), a, b)

    return spell


def _pick(symbol: str) -> Callable[[Prelude, DType, Text, Text], Text]:
    def spell(prelude: Prelude, dtype: DType, a: Text, b: Text) -> Text:
        return Text(f"{infix(a, symbol, b, ORDER).text} ? {a.inside(CHOICE + 1)} : {b.inside(CHOICE + 1)}", CHOICE)

    return spell


_INTEGER: dict[str, Callable[[Prelude, DType, Text, Text], Text]] = {
    "floordiv": _helper("floor_div", "floor_div"),
    "mod": _helper("floor_mod", "floor_mod"),
    "truncdiv": _helper("safe_div", "safe_div"),
    "rem": _helper("safe_div", "safe_rem"),
    "min": _pick("<"),
    "max": _pick(">"),
    "pow": _helper("integer_power", "integer_power"),
    "shl": _helper("shifts", "shift_left"),
    "shr": _helper("shifts", "shift_right"),
}


def spell_natural_division(op: str, a: Text, b: Text) -> Text:
    """`floordiv` or `mod` of numbers that are not negative, by one that is not zero."""
    return infix(a, "/" if op == "floordiv" else "%", b, PRODUCT)


def spell_shift(prelude: Prelude, op: str, dtype: DType, a: Text, amount: int) -> Text:
    """A shift by a constant below the width of the type."""
    if op == "shl" and dtype.kind == "int":
        unsigned = prelude.spelling.types[dtypes.u64 if dtype.bits == 64 else dtypes.u32]
        return cast(prelude.spelling.scalar_type(dtype), infix(cast(unsigned, a), "<<", Text(str(amount)), SHIFT))
    return _cut(prelude, dtype, infix(a, "<<" if op == "shl" else ">>", Text(str(amount)), SHIFT))


def spell_cast(prelude: Prelude, source: DType, target: DType, a: Text) -> Text:
    """A value conversion."""
    prelude.use_type(source)
    prelude.use_type(target)
    if source.is_complex or target.is_complex:
        raise CodegenError(f"{prelude.spelling.name} kernels do not convert {source.name} to {target.name}")
    if target.is_bool:
        return infix(widened(prelude, source, a), "!=", Text("0"), EQUALITY)
    if target.is_int:
        return _to_integer(prelude, source, target, a)
    if source in prelude.spelling.structs:
        single = widened(prelude, source, a)
        return (
            cast(prelude.spelling.types[dtypes.f64], single)
            if target is dtypes.f64
            else narrowed(prelude, target, single)
        )
    if target in prelude.spelling.structs:
        wide = source is dtypes.f64 and target in dtypes.FLOATS_OF_16_BITS
        given = a if wide or source in (dtypes.f32, dtypes.tf32) else cast(prelude.spelling.types[dtypes.f32], a)
        return narrowed(prelude, target, given)
    if target is dtypes.tf32:
        return narrowed(prelude, target, a if source is dtypes.f32 else cast(prelude.spelling.types[dtypes.f32], a))
    return cast(prelude.spelling.scalar_type(target), a)


def _to_integer(prelude: Prelude, source: DType, target: DType, a: Text) -> Text:
    if source.is_float:
        prelude.use("truncate")
        word = dtypes.i32 if target.bits < 32 else target
        value = call(f"to_{word.short}", widened(prelude, source, a))
        return value if word is target else low_bits(prelude, target, value)
    return low_bits(prelude, target, a)


def low_bits(prelude: Prelude, target: DType, a: Text) -> Text:
    """The low bits of an integer; elements below a byte keep them in a byte, extended by their sign."""
    types = prelude.spelling.types
    if target.is_subbyte:
        rest, unsigned = 32 - target.bits, types[dtypes.u32]
        if target.kind == "int":
            shifted = f"(({types[dtypes.i32]})(({unsigned}){a.inside(15)} << {rest}) >> {rest})"
            return cast(types[dtypes.i8], Text(shifted))
        return cast(types[dtypes.u8], Text(f"(({unsigned}){a.inside(15)} & {(1 << target.bits) - 1}u)"))
    return cast(prelude.spelling.scalar_type(target), a)
