"""One element in, one element out: arithmetic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hidet import dtypes
from hidet.dtypes import DType
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Handler
from hidet.graph import Value
from hidet.stablehlo.emitter import StableHloEmitter as Emitter

# StableHLO or CHLO -> core, where both mean the same for every type.
_PLAIN = {
    "abs": "abs",
    "add": "add",
    "atan2": "atan2",
    "ceil": "ceil",
    "cosine": "cos",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "floor": "floor",
    "is_finite": "isfinite",
    "log": "log",
    "log_plus_one": "log1p",
    "logistic": "sigmoid",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "negate": "neg",
    "power": "pow",
    "remainder": "fmod",
    "round_nearest_even": "round",
    "rsqrt": "rsqrt",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "sub",
    "tan": "tan",
    "tanh": "tanh",
    "chlo.acos": "acos",
    "chlo.acosh": "acosh",
    "chlo.asin": "asin",
    "chlo.asinh": "asinh",
    "chlo.atan": "atan",
    "chlo.atanh": "atanh",
    "chlo.bessel_i1e": "i1e",
    "chlo.conj": "positive",
    "chlo.cosh": "cosh",
    "chlo.digamma": "digamma",
    "chlo.erf": "erf",
    "chlo.erf_inv": "erfinv",
    "chlo.erfc": "erfc",
    "chlo.is_inf": "isinf",
    "chlo.is_neg_inf": "isneginf",
    "chlo.is_pos_inf": "isposinf",
    "chlo.lgamma": "lgamma",
    "chlo.next_after": "nextafter",
    "chlo.sinh": "sinh",
    "chlo.square": "square",
    "chlo.tan": "tan",
    "chlo.zeta": "zeta",
}

# Bits, and what they are for booleans.
_BITS = {
    "and": ("bitwise_and", "logical_and"),
    "or": ("bitwise_or", "logical_or"),
    "xor": ("bitwise_xor", "logical_xor"),
    "not": ("bitwise_not", "logical_not"),
}

_COMPARISONS = {
    "EQ": "equal",
    "NE": "not_equal",
    "GE": "greater_equal",
    "GT": "greater",
    "LE": "less_equal",
    "LT": "less",
}


def handlers() -> Mapping[str, Handler]:
    """The handlers of this family."""
    return {
        **{name: _plain(core) for name, core in _PLAIN.items()},
        # As composites, which portable artifacts keep, they are what they are as operators.
        **{f"composite {name}": _plain(core) for name, core in _PLAIN.items() if name.startswith("chlo.")},
        **{name: _bits(*pair) for name, pair in _BITS.items()},
        "bitcast_convert": _bitcast,
        "cbrt": _cube_root,
        "clamp": lambda e, low, x, high, **_: e.emit("clamp_tensor", x, low, high),
        "compare": _compare,
        "convert": lambda e, x, **_: _convert(e, x, e.result.dtype),
        "count_leading_zeros": _leading_zeros,
        "divide": _divide,
        "map": lambda e, *xs, regions, **_: regions[0].inline(xs),
        "popcnt": _population,
        "reduce_precision": _reduce_precision,
        "round_nearest_afz": _round_away,
        "select": lambda e, flags, x, y, **_: e.emit("where", flags, x, y),
        "shift_right_logical": _shift_right_logical,
        "sign": _sign,
    }


def is_elementwise(name: str) -> bool:
    """Whether an operator does the same to the elements of any tensors."""
    return name in handlers() or name == "constant"


def _plain(core: str) -> Handler:
    def handler(e: Emitter, *operands: Value, **_: Any) -> Value:
        return e.emit(core, *operands)

    return handler


def _bits(core: str, of_flags: str) -> Handler:
    def handler(e: Emitter, *operands: Value, **_: Any) -> Value:
        if operands[0].tensor.dtype != dtypes.boolean:
            return e.emit(core, *operands)
        neutral = _NEUTRAL.get(of_flags)
        # Masks begin as flags that are all true, and would lose that they repeat what is smaller.
        left = [value for value in operands if neutral is None or _flag(e, value) != neutral]
        return left[0] if len(left) == 1 < len(operands) else e.emit(of_flags, *operands)

    return handler


_NEUTRAL = {"logical_and": True, "logical_or": False}
_VIEWS = ("expand", "reshape", "unsqueeze", "transpose")


def _flag(e: Emitter, value: Value) -> bool | None:
    """What every element of flags is known to be, where they repeat one."""
    while node := next((made for view in _VIEWS if (made := e.made_by(value, view)) is not None), None):
        value = node.values[0]
    known = e.contents(value) if value.tensor.rank == 0 else None
    return bool(known.reshape(-1)[0]) if known is not None else None


def _convert(e: Emitter, x: Value, dtype: DType) -> Value:
    """To booleans: whether a number is not 0."""
    if dtype == dtypes.boolean and x.tensor.dtype != dtype:
        return e.emit("not_equal", x, e.constant(0, x.tensor.dtype))
    return e.cast(x, dtype)


def _divide(e: Emitter, x: Value, y: Value, **_: Any) -> Value:
    return e.emit("div" if x.tensor.dtype.is_float else "trunc_divide", x, y)


def _compare(e: Emitter, x: Value, y: Value, comparison_direction: str, compare_type: str = "", **_: Any) -> Value:
    """The total order of floats differs from the usual one in NaN and the sign of zero alone: it is compared as
    integers are whose order is the same."""
    if comparison_direction not in _COMPARISONS:
        raise ImportFailed(f"compare by {comparison_direction!r}, expected one of {', '.join(_COMPARISONS)}")
    if compare_type == "TOTALORDER" and x.tensor.dtype.is_float:
        x, y = _ordered(e, x), _ordered(e, y)
    return e.emit(_COMPARISONS[comparison_direction], x, y)


_INTEGERS: Mapping[int, DType] = {8: dtypes.i8, 16: dtypes.i16, 32: dtypes.i32, 64: dtypes.i64}
_WHOLE: Mapping[int, DType] = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}


def _ordered(e: Emitter, x: Value) -> Value:
    """Integers in the total order of floats: those of negative ones have their bits below the sign flipped."""
    dtype = _INTEGERS[x.tensor.dtype.bits]
    bits = e.emit("bitcast", x, dtype=dtype)
    flipped = e.emit("bitwise_xor", bits, e.constant(int(dtype.max), dtype))
    return e.emit("where", e.emit("less", bits, e.constant(0, dtype)), flipped, bits)


def _sign(e: Emitter, x: Value, **_: Any) -> Value:
    """NaN stays NaN."""
    sign = e.emit("sign", x)
    return e.emit("where", e.emit("isnan", x), x, sign) if x.tensor.dtype.is_float else sign


def _round_away(e: Emitter, x: Value, **_: Any) -> Value:
    """Halves go away from zero."""
    whole = e.emit("trunc", x)
    rest = e.emit("abs", e.emit("sub", x, whole))
    away = e.emit("add", whole, e.emit("copysign", e.constant(1, x.tensor.dtype), x))
    return e.emit("where", e.emit("greater_equal", rest, e.constant(0.5, x.tensor.dtype)), away, whole)


def _cube_root(e: Emitter, x: Value, **_: Any) -> Value:
    root = e.emit("pow", e.emit("abs", x), e.constant(1 / 3, x.tensor.dtype))
    return e.emit("copysign", root, x)


def _shift_right_logical(e: Emitter, x: Value, count: Value, **_: Any) -> Value:
    dtype = x.tensor.dtype
    whole = _WHOLE[dtype.bits]
    shifted = e.emit("shift_right", e.emit("bitcast", x, dtype=whole), e.emit("bitcast", count, dtype=whole))
    return e.emit("bitcast", shifted, dtype=dtype)


def _bitcast(e: Emitter, x: Value, **_: Any) -> Value:
    """A last axis has the parts of a wider element."""
    old, new = x.tensor.dtype, e.result.dtype
    if old == new:
        return x
    if old.bits % 8 or new.bits % 8:
        raise UnsupportedOp(f"{e.operator} from {old.name} to {new.name}")
    if old.bits == new.bits:
        return e.emit("bitcast", x, dtype=new)
    if old.bits > new.bits:
        return e.emit("bitcast", e.unsqueeze(x, (x.tensor.rank,)), dtype=new)
    made = e.emit("bitcast", x, dtype=new)
    return e.squeeze(made, (made.tensor.rank - 1,))


def _population(e: Emitter, x: Value, **_: Any) -> Value:
    """The bits that are set: counted in pairs, then in fours, then in bytes."""
    dtype = x.tensor.dtype
    whole = _WHOLE[dtype.bits]
    bits = e.emit("bitcast", x, dtype=whole)
    total = None
    for place in range(dtype.bits):
        bit = e.emit("bitwise_and", e.emit("shift_right", bits, e.constant(place, whole)), e.constant(1, whole))
        total = bit if total is None else e.emit("add", total, bit)
    assert total is not None
    return e.emit("bitcast", total, dtype=dtype)


def _leading_zeros(e: Emitter, x: Value, **_: Any) -> Value:
    """The bits above the highest that is set: all below it are set first."""
    dtype = x.tensor.dtype
    whole = _WHOLE[dtype.bits]
    bits = e.emit("bitcast", x, dtype=whole)
    step = 1
    while step < dtype.bits:
        bits = e.emit("bitwise_or", bits, e.emit("shift_right", bits, e.constant(step, whole)))
        step *= 2
    return _population(e, e.emit("bitcast", e.emit("bitwise_not", bits), dtype=dtype))


def _reduce_precision(e: Emitter, x: Value, exponent_bits: int, mantissa_bits: int, **_: Any) -> Value:
    formats = {(8, 7): dtypes.bf16, (5, 10): dtypes.f16, (8, 23): dtypes.f32, (11, 52): dtypes.f64}
    narrow = formats.get((int(exponent_bits), int(mantissa_bits)))
    if narrow is None:
        raise UnsupportedOp(f"{e.operator} to {exponent_bits} bits of exponent and {mantissa_bits} of mantissa")
    return x if narrow.bits >= x.tensor.dtype.bits else e.cast(e.cast(x, narrow), x.tensor.dtype)
