"""Symbolic sizes: integer expressions over symbols in a normal form, with ranges, divisibility and provers.

`Dim` is an int or a `DimExpr`. Make symbols with `symbol`, combine with + - * // % or the functions here.
"""

from hidet.dims.atom import Symbol
from hidet.dims.divide import ceildiv, floordiv, floordiv_unchecked, mod, mod_unchecked
from hidet.dims.evaluate import (
    Algebra,
    Reparametrization,
    compile_evaluator,
    evaluate,
    fold,
    hint_value,
    substitute,
    symbols,
)
from hidet.dims.expr import (
    Dim,
    DimExpr,
    FloorDiv,
    Max,
    Min,
    Mod,
    as_dim,
    bounds,
    divisibility,
    last_place,
    product,
    symbol,
)
from hidet.dims.extrema import maximum, minimum
from hidet.dims.prove import prove_equal, prove_le, prove_lt
from hidet.dims.text import parse_dim

__all__ = [
    "Algebra",
    "Dim",
    "DimExpr",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Reparametrization",
    "Symbol",
    "as_dim",
    "bounds",
    "ceildiv",
    "compile_evaluator",
    "divisibility",
    "evaluate",
    "floordiv",
    "floordiv_unchecked",
    "fold",
    "hint_value",
    "last_place",
    "maximum",
    "minimum",
    "mod",
    "mod_unchecked",
    "parse_dim",
    "product",
    "prove_equal",
    "prove_le",
    "prove_lt",
    "substitute",
    "symbol",
    "symbols",
]
