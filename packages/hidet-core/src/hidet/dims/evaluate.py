"""Giving dims values: `fold` over their structure, evaluation, substitution, and compiled evaluation for hot paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from hidet.dims.atom import Atom, Symbol
from hidet.dims.divide import floordiv, floordiv_unchecked, mod, mod_unchecked
from hidet.dims.expr import Dim, FloorDiv, Max, Min, Mod, add, as_dim, multiply
from hidet.dims.extrema import maximum, minimum
from hidet.errors import ShapeError, SizeDivisionError, suggestion

T = TypeVar("T")


class Algebra(Protocol[T]):
    """A meaning for the operations of a Dim; divisors are positive."""

    def integer(self, value: int) -> T: ...
    def symbol(self, symbol: Symbol) -> T: ...
    def add(self, a: T, b: T) -> T: ...
    def multiply(self, a: T, b: T) -> T: ...
    def floordiv(self, a: T, b: T) -> T: ...
    def mod(self, a: T, b: T) -> T: ...
    def minimum(self, a: T, b: T) -> T: ...
    def maximum(self, a: T, b: T) -> T: ...


def fold(dim: Dim, algebra: Algebra[T]) -> T:
    """The value of `dim` in an algebra: integers, Dims, program expressions, text, ..."""
    if isinstance(dim, int):
        return algebra.integer(dim)
    total: T | None = None
    for monomial, coefficient in dim.terms:
        value = _fold_atom(monomial[0], algebra)
        for atom in monomial[1:]:
            value = algebra.multiply(value, _fold_atom(atom, algebra))
        if coefficient.denominator != 1:
            value = algebra.floordiv(value, algebra.integer(coefficient.denominator))
        if coefficient.numerator != 1:
            value = algebra.multiply(value, algebra.integer(coefficient.numerator))
        total = value if total is None else algebra.add(total, value)
    assert total is not None
    return algebra.add(total, algebra.integer(dim.constant)) if dim.constant else total


def _fold_atom(atom: Atom, algebra: Algebra[T]) -> T:
    match atom:
        case Symbol():
            return algebra.symbol(atom)
        case FloorDiv(numerator, denominator):
            return algebra.floordiv(fold(numerator, algebra), fold(denominator, algebra))
        case Mod(value, modulus):
            return algebra.mod(fold(value, algebra), fold(modulus, algebra))
        case Min(operands) | Max(operands):
            combine = algebra.minimum if isinstance(atom, Min) else algebra.maximum
            first, *others = (fold(operand, algebra) for operand in operands)
            for other in others:
                first = combine(first, other)
            return first
    raise AssertionError(f"unknown atom {atom!r}")


class _Integers:
    """Python integers, symbols by name."""

    def __init__(self, bindings: Mapping[str, int], dim: Dim) -> None:
        self.bindings = bindings
        self.dim = dim

    def integer(self, value: int) -> int:
        return value

    def symbol(self, symbol: Symbol) -> int:
        try:
            return self.bindings[symbol.name]
        except KeyError:
            raise _unbound(symbol, self.dim, self.bindings) from None

    def add(self, a: int, b: int) -> int:
        return a + b

    def multiply(self, a: int, b: int) -> int:
        return a * b

    def floordiv(self, a: int, b: int) -> int:
        return a // _positive(b, self.dim)

    def mod(self, a: int, b: int) -> int:
        return a % _positive(b, self.dim)

    def minimum(self, a: int, b: int) -> int:
        return min(a, b)

    def maximum(self, a: int, b: int) -> int:
        return max(a, b)


class Substitution:
    """The algebra of dims, some symbols replaced."""

    def __init__(self, replacements: Mapping[str, Dim]) -> None:
        self.replacements = replacements

    integer = staticmethod(int)
    add = staticmethod(add)
    multiply = staticmethod(multiply)
    floordiv = staticmethod(floordiv)
    mod = staticmethod(mod)
    minimum = staticmethod(minimum)
    maximum = staticmethod(maximum)

    def symbol(self, symbol: Symbol) -> Dim:
        return self.replacements.get(symbol.name, as_dim(symbol))


class Reparametrization(Substitution):
    """Dims again with replacements that have the values of the symbols they replace: divisors stay positive."""

    floordiv = staticmethod(floordiv_unchecked)
    mod = staticmethod(mod_unchecked)


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The value of `dim` with the symbols bound by name; bindings are trusted to fit the symbols' facts.

    Raises ShapeError for a symbol without a binding, and for a division by a number below 1.
    """
    return dim if isinstance(dim, int) else fold(dim, _Integers(bindings, dim))


def hint_value(dim: Dim) -> int | None:
    """The value of `dim` at the symbols' hints; None when one has no hint."""
    hints = {entry.name: entry.hint for entry in symbols(dim)}
    known = {name: hint for name, hint in hints.items() if hint is not None}
    return evaluate(dim, known) if len(known) == len(hints) else None


def substitute(dim: Dim, replacements: Mapping[str, Dim]) -> Dim:
    """`dim` with the named symbols replaced, simplified anew; replacements are trusted to fit the symbols' facts.

    Raises ShapeError when a divisor is no longer provably positive.
    """
    if isinstance(dim, int) or not any(entry.name in replacements for entry in symbols(dim)):
        return dim
    algebra: Algebra[Dim] = Substitution(replacements)
    return fold(dim, algebra)


def reparametrize(dim: Dim, replacements: Mapping[str, Dim]) -> Dim:
    """`substitute` for replacements that have the values of the symbols they replace: divisors stay positive."""
    algebra: Algebra[Dim] = Reparametrization(replacements)
    return fold(dim, algebra)


def symbols(dim: Dim) -> tuple[Symbol, ...]:
    """The symbols in `dim`, each once, sorted by name."""
    found: dict[Symbol, None] = {}
    _collect(dim, found)
    return tuple(sorted(found, key=lambda entry: entry.key))


def _collect(dim: Dim, found: dict[Symbol, None]) -> None:
    if isinstance(dim, int):
        return
    for monomial, _ in dim.terms:
        for atom in monomial:
            match atom:
                case Symbol():
                    found[atom] = None
                case FloorDiv(one, other) | Mod(one, other):
                    _collect(one, found)
                    _collect(other, found)
                case Min(operands) | Max(operands):
                    for operand in operands:
                        _collect(operand, found)


class _Source:
    """Python source of `dim`, which is number `number` of its function, over the variables v0, v1, ..., one for each
    of `names`. Every operation has parentheses."""

    def __init__(self, names: Sequence[str], dim: Dim, number: int) -> None:
        self.variables = {name: f"v{index}" for index, name in enumerate(names)}
        self.dim = dim
        self.number = number

    def integer(self, value: int) -> str:
        return str(value) if value >= 0 else f"({value})"

    def symbol(self, symbol: Symbol) -> str:
        if symbol.name not in self.variables:
            raise _unbound(symbol, self.dim, self.variables)
        return self.variables[symbol.name]

    def add(self, a: str, b: str) -> str:
        # Nothing binds less than a sum, and Python takes 200 parentheses inside each other at most.
        return f"({a[1:-1] if a.startswith('(') else a}+{b})"

    def multiply(self, a: str, b: str) -> str:
        return f"({a}*{b})"

    def floordiv(self, a: str, b: str) -> str:
        return f"({a}//{self._positive(b)})"

    def mod(self, a: str, b: str) -> str:
        return f"({a}%{self._positive(b)})"

    def _positive(self, divisor: str) -> str:
        """Numbers are positive; what is computed may have been taken to be (`floordiv_unchecked`)."""
        return divisor if divisor.isdecimal() else f"positive({divisor},{self.number})"

    def minimum(self, a: str, b: str) -> str:
        return f"min({a},{b})"

    def maximum(self, a: str, b: str) -> str:
        return f"max({a},{b})"


def compile_evaluator(dims: Sequence[Dim], names: Sequence[str]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """A function from the values of the symbols `names`, in that order, to the values of all `dims`.

    It is one generated Python function for the calls of a compiled graph. It does not check that the values fit the
    symbols' facts; their number has to be that of the names. It raises ShapeError for a division by a number below 1.
    Raises ShapeError here for a symbol that `names` lacks.
    """
    # Symbol names stay out of the source: it has only integers, operators and the variables made here.
    unpack = "".join(f"v{index}," for index in range(len(names)))
    results = "".join(f"{fold(dim, _Source(names, dim, number))}," for number, dim in enumerate(dims))
    source = f"def evaluator(values):\n {f'({unpack}) = values' if names else 'pass'}\n return ({results})"
    namespace: dict[str, Callable[[Sequence[int]], tuple[int, ...]]] = {}
    functions = {"min": min, "max": max, "positive": lambda divisor, number: _positive(divisor, dims[number])}
    exec(source, {**functions, "__builtins__": {}}, namespace)
    return namespace["evaluator"]


def _positive(divisor: int, dim: object) -> int:
    """A divisor of the size `dim`. ShapeError when it is below 1, SizeDivisionError when it is 0."""
    if divisor < 1:
        error = ShapeError if divisor else SizeDivisionError
        raise error(f"{dim} divides by {divisor} for the sizes of this call: expected a positive number")
    return divisor


def _unbound(symbol: Symbol, dim: Dim, known: Mapping[str, object]) -> ShapeError:
    return ShapeError(f"symbol {symbol.name} of the size {dim} has no value", hint=suggestion(symbol.name, known))
