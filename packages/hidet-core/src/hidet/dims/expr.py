"""Integer expressions over symbolic sizes, in a normal form.

A `Dim` is an int or a `DimExpr`: a sum of coefficient * monomial, plus a constant. A monomial is a sorted product of
atoms, an atom is a `Symbol` or one of the nodes `FloorDiv`, `Mod`, `Min`, `Max`. Equal normal forms are equal for every
value of the symbols, so `==` and `hash` on a DimExpr are structural; whether two different forms are equal, or never
are, is for `hidet.dims.prove` to find out.

A coefficient is a Fraction p/q only where the monomial is known to be divisible by q: with s0 divisible by 4,
floordiv(s0, 4) is the term 1/4 * s0, and four of them add up to s0.

Nodes are made by the functions in `divide` and `extrema`, which simplify; the classes here hold data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd
from typing import Self, Union

from hidet.dims import interval
from hidet.dims.atom import Atom, Symbol
from hidet.dims.interval import Interval
from hidet.errors import ShapeError

Coefficient = int | Fraction
Monomial = tuple[Atom, ...]
Term = tuple[Monomial, Coefficient]
Dim = Union[int, "DimExpr"]

# Products of many sums would grow without bound, and deep nesting would exhaust Python's stack.
MAX_TERMS = 2000
MAX_DEPTH = 150


@dataclass(frozen=True, slots=True, eq=False)
class FloorDiv(Atom):
    """The quotient rounded towards minus infinity; the denominator is at least 1."""

    numerator: DimExpr | int
    denominator: DimExpr | int

    def __post_init__(self) -> None:
        lower, upper = interval.floordiv(bounds(self.numerator), bounds(self.denominator))
        _complete(self, "floordiv", (self.numerator, self.denominator), (lower, upper), divisor=1)


@dataclass(frozen=True, slots=True, eq=False)
class Mod(Atom):
    """The remainder of `FloorDiv`, at least 0 and below the modulus, which is at least 1."""

    value: DimExpr | int
    modulus: DimExpr | int

    def __post_init__(self) -> None:
        divisor = gcd(divisibility(self.value), divisibility(self.modulus))
        span = interval.modulo(bounds(self.value), bounds(self.modulus), divisor)
        _complete(self, "mod", (self.value, self.modulus), span, divisor)


@dataclass(frozen=True, slots=True, eq=False)
class Min(Atom):
    """The smallest of two or more operands, none of which is provably never the only smallest."""

    operands: tuple[DimExpr | int, ...]

    def __post_init__(self) -> None:
        span = interval.minimum([bounds(operand) for operand in self.operands])
        _complete(self, "min", self.operands, span, gcd(*map(divisibility, self.operands)))


@dataclass(frozen=True, slots=True, eq=False)
class Max(Atom):
    """The largest of two or more operands, none of which is provably never the only largest."""

    operands: tuple[DimExpr | int, ...]

    def __post_init__(self) -> None:
        span = interval.maximum([bounds(operand) for operand in self.operands])
        _complete(self, "max", self.operands, span, gcd(*map(divisibility, self.operands)))


def _complete(atom: Atom, name: str, operands: Iterable[Dim], span: Interval, divisor: int) -> None:
    """Fill in the derived fields of a node."""
    operands = tuple(operands)
    depth = 1 + max(_depth(operand) for operand in operands)
    if depth > MAX_DEPTH:
        raise ShapeError(
            f"a symbolic size nests {depth} levels of floordiv, mod, min and max: at most {MAX_DEPTH} are supported",
            hint="compile for fixed sizes, or name the intermediate size as a symbol of its own",
        )
    key = f"{name}({','.join(map(structural_key, operands))})"
    atom._set(key=key, lower=span[0], upper=span[1], divisor=divisor, depth=depth)


@dataclass(frozen=True, slots=True, eq=False)
class DimExpr:
    """A symbolic integer in normal form; supports + - * // % with ints and other DimExprs.

    terms: at least one, coefficients not 0, ordered by falling degree and then by atoms.
    constant: the summand without atoms.

    An operation whose result does not depend on a symbol returns a plain int. A DimExpr has no truth value and no
    order: use `hidet.dims.prove_equal`, `prove_le`, `prove_lt`.
    """

    terms: tuple[Term, ...]
    constant: int
    _bounds: Interval | None = field(default=None, init=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, DimExpr) and self.constant == other.constant and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((self.terms, self.constant))

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __bool__(self) -> bool:
        raise ShapeError(
            f"the symbolic size {self} has no truth value",
            hint="compare with hidet.dims.prove_equal, prove_le or prove_lt",
        )

    def __add__(self, other: Dim) -> Dim:
        return add(self, other) if _is_dim(other) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return multiply(self, -1)

    def __pos__(self) -> Dim:
        return self

    def __sub__(self, other: Dim) -> Dim:
        return add(self, multiply(other, -1)) if _is_dim(other) else NotImplemented

    def __rsub__(self, other: int) -> Dim:
        return add(multiply(self, -1), other) if _is_dim(other) else NotImplemented

    def __mul__(self, other: Dim) -> Dim:
        return multiply(self, other) if _is_dim(other) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        from hidet.dims.divide import floordiv

        return floordiv(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> Dim:
        from hidet.dims.divide import floordiv

        return floordiv(other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        from hidet.dims.divide import mod

        return mod(self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> Dim:
        from hidet.dims.divide import mod

        return mod(other, self) if _is_dim(other) else NotImplemented

    def __str__(self) -> str:
        from hidet.dims.text import dim_text

        return dim_text(self)

    def __repr__(self) -> str:
        return f"<dim {self}>"


def _is_dim(value: object) -> bool:
    return isinstance(value, int | DimExpr)


def symbol(name: str, lower: int = 0, upper: int | None = None, divisor: int = 1, hint: int | None = None) -> Dim:
    """A new `Symbol` as a Dim; a plain int when the facts leave one value only."""
    return as_dim(Symbol(name, lower, upper, divisor, hint))


def as_dim(value: Symbol | Dim) -> Dim:
    """A Symbol, int or DimExpr as a Dim; a Symbol with one possible value only becomes that int."""
    if isinstance(value, Symbol):
        return value.lower if value.lower == value.upper else DimExpr((((value,), 1),), 0)
    return value


def atom_dim(atom: Atom) -> Dim:
    """One atom as a Dim; a plain int when it has one possible value only."""
    if atom.lower is not None and atom.lower == atom.upper:
        return atom.lower
    return DimExpr((((atom,), 1),), 0)


def dim_from_terms(terms: Mapping[Monomial, Coefficient], constant: int) -> Dim:
    """The normal form of a sum whose monomials are sorted already; zero coefficients are dropped."""
    kept = [(monomial, _whole(coefficient)) for monomial, coefficient in terms.items() if coefficient]
    if not kept:
        return constant
    if len(kept) > MAX_TERMS:
        raise ShapeError(
            f"a symbolic size has {len(kept)} terms: at most {MAX_TERMS} are supported",
            hint="compile for fixed sizes, or name the intermediate size as a symbol of its own",
        )
    if len(kept) > 1:
        kept.sort(key=_term_order)
    return DimExpr(tuple(kept), constant)


def _term_order(term: Term) -> tuple[int, list[str]]:
    return (-len(term[0]), [atom.key for atom in term[0]])


def _atom_key(atom: Atom) -> str:
    return atom.key


def _whole(coefficient: Coefficient) -> Coefficient:
    if isinstance(coefficient, Fraction) and coefficient.denominator == 1:
        return coefficient.numerator
    return coefficient


def add(a: Dim, b: Dim) -> Dim:
    """a + b in normal form."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        a, b = b, a
    if isinstance(b, int):
        return DimExpr(a.terms, a.constant + b) if b else a
    terms = dict(a.terms)
    for monomial, coefficient in b.terms:
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return dim_from_terms(terms, a.constant + b.constant)


def multiply(a: Dim, b: Dim) -> Dim:
    """a * b in normal form; sums are multiplied out. Raises ShapeError when that needs more than MAX_TERMS terms."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        a, b = b, a
    if isinstance(b, int):
        if b == 1:
            return a
        return scale(a, b) if b else 0
    if len(a.terms) * len(b.terms) > MAX_TERMS:
        raise ShapeError(
            f"the product of two symbolic sizes with {len(a.terms)} and {len(b.terms)} terms is too large",
            hint="compile for fixed sizes, or name the intermediate size as a symbol of its own",
        )
    terms: dict[Monomial, Coefficient] = {}
    for left, left_coefficient in a.terms:
        for right, right_coefficient in b.terms:
            monomial = tuple(sorted(left + right, key=_atom_key))
            terms[monomial] = terms.get(monomial, 0) + left_coefficient * right_coefficient
        if b.constant:
            terms[left] = terms.get(left, 0) + left_coefficient * b.constant
    if a.constant:
        for right, right_coefficient in b.terms:
            terms[right] = terms.get(right, 0) + right_coefficient * a.constant
    return dim_from_terms(terms, a.constant * b.constant)


def scale(a: DimExpr, factor: int) -> DimExpr:
    """a * factor for a factor other than 0."""
    return DimExpr(tuple((m, _whole(c * factor)) for m, c in a.terms), a.constant * factor)


def product(shape: Iterable[Dim]) -> Dim:
    """The product of all sizes; 1 for an empty shape."""
    result: Dim = 1
    for dim in shape:
        result = multiply(result, dim)
    return result


def last_place(shape: Iterable[Dim], strides: Iterable[Dim]) -> Dim:
    """Where the last element of a tensor lies, counted from its first one in the unit of the strides; axes are not
    empty."""
    place: Dim = 0
    for extent, stride in zip(shape, strides, strict=True):
        place = place + (extent - 1) * stride
    return place


def bounds(dim: Dim) -> Interval:
    """(lower, upper) of all possible values, both included; None is unbounded. Sound, not always tight."""
    if isinstance(dim, int):
        return (dim, dim)
    if dim._bounds is None:
        total: Interval = (dim.constant, dim.constant)
        for monomial, coefficient in dim.terms:
            total = interval.add(total, term_bounds(monomial, coefficient))
        object.__setattr__(dim, "_bounds", total)
        return total
    return dim._bounds


def term_bounds(monomial: Monomial, coefficient: Coefficient) -> Interval:
    """Bounds of coefficient * monomial, rounded inwards to integers."""
    span: Interval = (monomial[0].lower, monomial[0].upper)
    for atom in monomial[1:]:
        span = interval.multiply(span, (atom.lower, atom.upper))
    if coefficient == 1:
        return span
    lower, upper = span if coefficient > 0 else (span[1], span[0])
    return (
        None if lower is None else -(-lower * coefficient // 1),
        None if upper is None else upper * coefficient // 1,
    )


def divisibility(dim: Dim) -> int:
    """The largest number known to divide every value; 0 for the int 0, which everything divides."""
    if isinstance(dim, int):
        return abs(dim)
    return gcd(dim.constant, *(term_divisibility(monomial, coefficient) for monomial, coefficient in dim.terms))


def term_divisibility(monomial: Monomial, coefficient: Coefficient) -> int:
    """The largest number known to divide every value of coefficient * monomial; at least 1."""
    known = abs(coefficient.numerator)
    for atom in monomial:
        known *= atom.divisor
    return known // coefficient.denominator


def structural_key(dim: Dim) -> str:
    """Text that two Dims share exactly when they are equal, the facts about their symbols included."""
    if isinstance(dim, int):
        return str(dim)
    terms = [f"{coefficient}*" + "*".join([atom.key for atom in monomial]) for monomial, coefficient in dim.terms]
    return "+".join([*terms, str(dim.constant)])


def has_nodes(dim: Dim) -> bool:
    """Whether `dim` is more than a polynomial of symbols."""
    return _depth(dim) > 0


def _depth(dim: Dim) -> int:
    if isinstance(dim, int):
        return 0
    return max(atom.depth for monomial, _ in dim.terms for atom in monomial)
