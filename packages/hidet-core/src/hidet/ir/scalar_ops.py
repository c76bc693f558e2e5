"""Tables of the scalar operations an expression may use: result type rule and numpy meaning.

One row per operation; code generators keep their own spelling tables keyed by these names. Integer `floordiv` and
`mod` round toward minus infinity as Python does; `truncdiv` and `rem` round toward zero as C does. `min`/`max` on
floats return the other operand when one is NaN is NOT assumed: they propagate NaN, as numpy.minimum/maximum do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TypeRule = Literal["same", "bool"]


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """One scalar operation.

    `numpy` names its meaning in `hidet.ir.scalar_numpy` or numpy itself; `result` is "same" for the operands'
    type or "bool"; `symbol` is the infix or prefix spelling in printed text (None prints as a call).
    `is_costly`: takes tens of instructions, so that keeping the result is cheaper than computing it again.
    """

    name: str
    arity: int
    result: TypeRule
    numpy: str
    symbol: str | None = None
    is_costly: bool = False


def _table(*rows: ScalarOp) -> dict[str, ScalarOp]:
    return {row.name: row for row in rows}


UNARY_OPS = _table(
    ScalarOp("neg", 1, "same", "negative", "-"),
    ScalarOp("not", 1, "same", "invert", "~"),
    ScalarOp("lnot", 1, "bool", "logical_not", "not "),
    *(
        ScalarOp(name, 1, "same", numpy)
        for name, numpy in {
            "abs": "absolute",
            "sqrt": "sqrt",
            "rsqrt": "scalar.rsqrt",
            "floor": "floor",
            "ceil": "ceil",
            "round": "rint",
            "trunc": "trunc",
        }.items()
    ),
    *(
        ScalarOp(name, 1, "same", numpy, is_costly=True)
        for name, numpy in {
            "exp": "exp",
            "exp2": "exp2",
            "expm1": "expm1",
            "log": "log",
            "log2": "log2",
            "log10": "log10",
            "log1p": "log1p",
            "sin": "sin",
            "cos": "cos",
            "tan": "tan",
            "asin": "arcsin",
            "acos": "arccos",
            "atan": "arctan",
            "sinh": "sinh",
            "cosh": "cosh",
            "tanh": "tanh",
            "asinh": "arcsinh",
            "acosh": "arccosh",
            "atanh": "arctanh",
            "erf": "scalar.erf",
            "erfc": "scalar.erfc",
            "erfinv": "scalar.erfinv",
            "lgamma": "scalar.lgamma",
            "digamma": "scalar.digamma",
        }.items()
    ),
    ScalarOp("isnan", 1, "bool", "isnan"),
    ScalarOp("isinf", 1, "bool", "isinf"),
    ScalarOp("isfinite", 1, "bool", "isfinite"),
)

BINARY_OPS = _table(
    ScalarOp("add", 2, "same", "add", "+"),
    ScalarOp("sub", 2, "same", "subtract", "-"),
    ScalarOp("mul", 2, "same", "multiply", "*"),
    ScalarOp("div", 2, "same", "divide", "/"),
    ScalarOp("floordiv", 2, "same", "scalar.floordiv", "//"),
    ScalarOp("mod", 2, "same", "scalar.mod", "%"),
    ScalarOp("truncdiv", 2, "same", "scalar.truncdiv"),
    ScalarOp("rem", 2, "same", "fmod"),
    ScalarOp("min", 2, "same", "minimum"),
    ScalarOp("max", 2, "same", "maximum"),
    ScalarOp("pow", 2, "same", "scalar.power"),
    ScalarOp("atan2", 2, "same", "arctan2"),
    ScalarOp("hypot", 2, "same", "hypot"),
    ScalarOp("nextafter", 2, "same", "nextafter"),
    ScalarOp("copysign", 2, "same", "copysign"),
    ScalarOp("and", 2, "same", "bitwise_and", "&"),
    ScalarOp("or", 2, "same", "bitwise_or", "|"),
    ScalarOp("xor", 2, "same", "bitwise_xor", "^"),
    ScalarOp("shl", 2, "same", "left_shift", "<<"),
    ScalarOp("shr", 2, "same", "right_shift", ">>"),
    ScalarOp("eq", 2, "bool", "equal", "=="),
    ScalarOp("ne", 2, "bool", "not_equal", "!="),
    ScalarOp("lt", 2, "bool", "less", "<"),
    ScalarOp("le", 2, "bool", "less_equal", "<="),
    ScalarOp("gt", 2, "bool", "greater", ">"),
    ScalarOp("ge", 2, "bool", "greater_equal", ">="),
    ScalarOp("land", 2, "bool", "logical_and", "and"),
    ScalarOp("lor", 2, "bool", "logical_or", "or"),
)
