"""Symbolic sizes: torch's SymInts as dims, with the ranges and divisibilities that dynamo guards.

torch writes sizes as sympy expressions. They are read by class name, so that neither sympy nor torch's own sympy
functions are imported. No question is asked that could add a guard, since each guard is a possible recompilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import lcm
from typing import Any

import torch
from hidet import dims
from hidet.dims import Dim
from hidet.torch import compat

# torch bounds sizes by the largest index of a tensor; beyond this a bound says nothing.
_UNBOUNDED = 2**62


class SizeTable:
    """The symbols of one graph, each made once, so that all sizes agree on its facts."""

    def __init__(self, bounds: Mapping[str, tuple[int | None, int | None]] | None = None) -> None:
        """bounds: smallest and largest value of symbols by name, None where there is none; those of torch's tracer
        count where it is silent. A tracer leaves out sizes of 0 and 1 that the program takes all the same."""
        self._bounds = bounds or {}
        self._symbols: dict[str, Dim] = {}
        self._made: dict[Any, Dim] = {}
        self._hints: dict[str, int | None] = {}

    def traced(self, dim: Dim) -> int | None:
        """The value that a dim had in the traced call; None where a symbol of it had none. Hints of the symbols
        in it may be those of other calls: equal dims are one, whatever they hint at."""
        names = [entry.name for entry in dims.symbols(dim)]
        known = {name: hint for name in names if (hint := self._hints.get(name)) is not None}
        return dims.evaluate(dim, known) if len(known) == len(names) else None

    def dim(self, size: int | torch.SymInt | torch.SymBool) -> Dim:
        """The dim of a size; of a comparison of sizes, 1 where it holds and else 0.

        What dims cannot hold is a symbol of its own, the same for equal expressions.
        """
        if isinstance(size, int):
            return int(size)
        expression, shape_env = compat.symbolic_expression(size)
        try:
            return self._convert(expression, shape_env)
        except _NoDim:
            return self._made_symbol(expression, shape_env)

    def own(self, size: torch.SymInt | torch.SymBool) -> Dim:
        """The dim of a size which is a symbol of its own, unless it is a symbol already."""
        expression, shape_env = compat.symbolic_expression(size)
        return self._symbol(expression, shape_env) if expression.is_Symbol else self._made_symbol(expression, shape_env)

    def shape(self, sizes: Iterable[int | torch.SymInt]) -> tuple[Dim, ...]:
        """The dims of several sizes."""
        return tuple(map(self.dim, sizes))

    def settle(self, name: str, size: Dim) -> None:
        """From now on the symbol `name`, which torch made for a size that it does not know, is `size`."""
        self._symbols[name] = size

    def _convert(self, expression: Any, shape_env: Any) -> Dim:
        """_NoDim for what dims cannot hold, unless it is whole: the smallest whole part of a size becomes a symbol."""
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float:
            raise _NoDim
        if expression.is_Symbol:
            return self._symbol(expression, shape_env)
        if compat.is_guarded_one(shape_env, expression):
            return 1
        try:
            return self._composed(expression, shape_env)
        except _NoDim:
            if not expression.is_integer:
                raise
            return self._made_symbol(expression, shape_env)

    def _composed(self, expression: Any, shape_env: Any) -> Dim:
        kind = type(expression).__name__
        if kind == "Mul":
            return self._product(expression, shape_env)
        if kind == "Piecewise":
            return self._choice(expression, shape_env)
        rule = _RULES.get(kind)
        if rule is None:
            raise _NoDim
        inner = _rounded_quotient(expression) if kind in _ROUNDED else expression.args
        return rule(*[self._convert(argument, shape_env) for argument in inner])

    def _product(self, expression: Any, shape_env: Any) -> Dim:
        """A product; rational factors come from divisions that sympy knows to be exact."""
        result: Dim = 1
        divisor = 1
        for factor in expression.args:
            if factor.is_Rational and not factor.is_Integer:
                result = result * int(factor.p)
                divisor *= int(factor.q)
            else:
                result = result * self._convert(factor, shape_env)
        return dims.floordiv(result, divisor)

    def _choice(self, expression: Any, shape_env: Any) -> Dim:
        """The value of the first condition that holds, of pairs of a value and its condition."""
        result: Dim = 0
        for value, condition in reversed(expression.args):
            holds = self._convert(condition, shape_env)
            result = holds * self._convert(value, shape_env) + (1 - holds) * result
        return result

    def _made_symbol(self, expression: Any, shape_env: Any) -> Dim:
        known = self._made.get(expression)
        if known is None:
            lower, upper = compat.expression_bounds(shape_env, expression)
            hint = compat.expression_hint(shape_env, expression)
            name = f"computed_{len(self._made)}"
            self._hints[name] = hint
            known = self._made[expression] = _bounded_symbol(name, lower, upper, hint=hint)
        return known

    def _symbol(self, symbol: Any, shape_env: Any) -> Dim:
        known = self._symbols.get(symbol.name)
        if known is None:
            traced = compat.symbol_bounds(shape_env, symbol)
            lower, upper = self._bounds.get(symbol.name, traced)
            divisors = [divisor for base, divisor in compat.known_divisible(shape_env) if base == symbol]
            if lower == 0 and compat.is_known_nonzero(shape_env, symbol):
                lower = 1
            hint = self._hints[symbol.name] = compat.expression_hint(shape_env, symbol)
            known = self._symbols[symbol.name] = _bounded_symbol(symbol.name, lower, upper, lcm(*divisors), hint)
        return known


class _NoDim(Exception):
    """An expression has a part that no dim can hold."""


def _bounded_symbol(name: str, lower: int | None, upper: int | None, divisor: int = 1, hint: int | None = None) -> Dim:
    """Numbers that a function is given, or reads from data, may be negative; sizes have a bound of torch's."""
    return dims.symbol(
        name,
        lower=-_UNBOUNDED if lower is None else max(lower, -_UNBOUNDED),
        upper=None if upper is None or upper >= _UNBOUNDED else upper,
        divisor=divisor,
        hint=hint,
    )


def _is_positive(number: Dim) -> Dim:
    """1 for a positive number, else 0."""
    return dims.minimum(dims.maximum(number, 0), 1)


def _differ(a: Dim, b: Dim) -> Dim:
    """1 where two numbers differ, else 0."""
    return dims.minimum(dims.maximum(a - b, b - a), 1)


def _fold(combine: Callable[[Dim, Dim], Dim]) -> Callable[..., Dim]:
    def rule(first: Dim, *others: Dim) -> Dim:
        for other in others:
            first = combine(first, other)
        return first

    return rule


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or exponent < 0:
        raise _NoDim
    result: Dim = 1
    for _ in range(exponent):
        result = result * base
    return result


def _is_never_negative(value: Dim) -> bool:
    lower, _ = dims.bounds(value)
    return lower is not None and lower >= 0


def _quotient(value: Dim, divisor: Dim) -> Dim:
    """Python's `//`; 0 as divisor ends the call with ZeroDivisionError, as eager mode does, when sizes are computed."""
    if _is_never_negative(divisor):
        return dims.floordiv_unchecked(value, divisor)
    # Dims divide by positive numbers only, and the square of the divisor is one.
    return dims.floordiv_unchecked(value * divisor, divisor * divisor)


def _remainder(value: Dim, divisor: Dim) -> Dim:
    """Python's `%`, which has the sign of the divisor."""
    if _is_never_negative(divisor):
        return dims.mod_unchecked(value, divisor)
    return value - divisor * _quotient(value, divisor)


def _rounded_up_quotient(value: Dim, divisor: Dim) -> Dim:
    return -_quotient(-value, divisor)


def _truncated_quotient(value: Dim, divisor: Dim) -> Dim:
    """Rounded towards 0."""
    return dims.maximum(_quotient(value, divisor), 0) + dims.minimum(_rounded_up_quotient(value, divisor), 0)


def _modular_indexing(base: Dim, divisor: Dim, modulus: Dim) -> Dim:
    return _remainder(_quotient(base, divisor), modulus)


def _rounded_quotient(expression: Any) -> tuple[Any, ...]:
    """The numerator and denominator of `round(a / b)`; _NoDim when something else is rounded."""
    (argument,) = expression.args
    if type(argument).__name__ not in ("IntTrueDiv", "FloatTrueDiv"):
        raise _NoDim
    return tuple(argument.args)


# Rounding of a true division of integers.
_ROUNDED = frozenset({"CeilToInt", "FloorToInt", "TruncToInt"})

_RULES: dict[str, Callable[..., Dim]] = {
    "Add": _fold(lambda a, b: a + b),
    "Max": _fold(dims.maximum),
    "Min": _fold(dims.minimum),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _quotient,
    "CleanDiv": _quotient,
    "CeilDiv": _rounded_up_quotient,
    "Mod": _remainder,
    "PythonMod": _remainder,
    "ModularIndexing": _modular_indexing,
    "Identity": lambda value: value,
    "LShift": lambda value, count: value * _power(2, count),
    "RShift": lambda value, count: dims.floordiv(value, _power(2, count)),
    "CeilToInt": _rounded_up_quotient,
    "FloorToInt": _quotient,
    "TruncToInt": _truncated_quotient,
    "Abs": lambda value: dims.maximum(value, -value),
    # Truths are 0 or 1.
    "BooleanTrue": lambda: 1,
    "BooleanFalse": lambda: 0,
    "Equality": lambda a, b: 1 - _differ(a, b),
    "Unequality": _differ,
    "StrictLessThan": lambda a, b: _is_positive(b - a),
    "LessThan": lambda a, b: 1 - _is_positive(a - b),
    "StrictGreaterThan": lambda a, b: _is_positive(a - b),
    "GreaterThan": lambda a, b: 1 - _is_positive(b - a),
    "And": _fold(dims.minimum),
    "Or": _fold(dims.maximum),
    "Xor": _fold(_differ),
    "Not": lambda value: 1 - value,
}
