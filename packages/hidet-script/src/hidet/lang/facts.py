"""What is known about index variables of a script, and division that uses it.

Tasks of a worker are sums such as w // 16 * 4 + i with i below 4. Layouts of registers divide these by 4 again: what
remains must be `i` alone, or registers would be indexed by what is known at run time only, which hardware cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Binary, Cast, Const, Expr, Var

Index = int | Expr


@dataclass(slots=True)
class IndexFacts:
    """Facts gathered while a script is translated: values of variables that never change, and extents of counters,
    which run from 0."""

    values: dict[Var, Expr] = field(default_factory=dict)
    extents: dict[Var, int] = field(default_factory=dict)

    def assume(self, condition: Expr, may_change: Callable[[Var], bool]) -> None:
        """Take a condition for granted: `0 <= i and i < 4`, of a variable that does not change, gives its extent."""
        lower: set[Var] = set()
        upper: dict[Var, int] = {}
        for var, op, number in _comparisons(condition):
            if op in ("ge", "gt") and number + (op == "gt") >= 0:
                lower.add(var)
            elif op in ("lt", "le"):
                upper[var] = min(upper.get(var, number + 1), number + (op == "le"))
        known = {var: extent for var, extent in upper.items() if var in lower and extent > 0 and not may_change(var)}
        self.extents.update({var: min(extent, self.extents.get(var, extent)) for var, extent in known.items()})

    def divide(self, a: Index, b: Index) -> tuple[Index, Index]:
        """a // b and a % b of indices, b positive."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b, a % b
        dividend = build.index(a)
        if isinstance(b, Const) and isinstance(b.value, int):
            b = b.value
        if isinstance(b, int) and b > 1:
            split = self._split(dividend, b)
            if split is not None:
                return split
        return dividend // b, dividend % b

    def _split(self, dividend: Expr, divisor: int) -> tuple[Expr, Expr] | None:
        """Multiples of the divisor apart from a rest that is proved to be smaller; None where it is not."""
        terms = self.terms(dividend)
        zero = build.index(0)
        quotient = rest = zero
        lower = upper = 0
        for atom, factor in terms.items():
            if factor % divisor == 0:
                quotient = quotient + _times(atom, factor // divisor)
                continue
            limits = self._limits(atom)
            if limits is None:
                return None
            ends = [factor * limit for limit in limits]
            lower, upper = lower + min(ends), upper + max(ends)
            rest = rest + _times(atom, factor)
        return (quotient, rest) if lower >= 0 and upper < divisor else None

    def terms(self, expr: Expr) -> Mapping[Expr | None, int]:
        """`expr` as a sum of atoms times integers; the atom of the constant is None."""
        found: dict[Expr | None, int] = {}
        self._collect(expr, 1, found)
        return {atom: factor for atom, factor in found.items() if factor}

    def _collect(self, expr: Expr, factor: int, found: dict[Expr | None, int]) -> None:
        value = self.values.get(expr) if isinstance(expr, Var) else None
        if value is not None:
            self._collect(value, factor, found)
        elif isinstance(expr, Const) and isinstance(expr.value, int):
            found[None] = found.get(None, 0) + factor * expr.value
        elif isinstance(expr, Binary) and expr.op in ("add", "sub"):
            self._collect(expr.a, factor, found)
            self._collect(expr.b, factor if expr.op == "add" else -factor, found)
        elif isinstance(expr, Binary) and expr.op == "mul" and isinstance(expr.b, Const):
            assert isinstance(expr.b.value, int)
            self._collect(expr.a, factor * expr.b.value, found)
        else:
            found[expr] = found.get(expr, 0) + factor

    def _limits(self, atom: Expr | None) -> tuple[int, int] | None:
        """Smallest and largest value; None when they are not known."""
        if atom is None:
            return 1, 1
        plain = atom.a if isinstance(atom, Cast) else atom
        if isinstance(plain, Var) and plain in self.extents:
            return 0, self.extents[plain] - 1
        if isinstance(atom, Binary) and atom.op == "mod" and isinstance(atom.b, Const):
            assert isinstance(atom.b.value, int)
            return 0, atom.b.value - 1
        return None


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _comparisons(condition: Expr) -> Iterator[tuple[Var, str, int]]:
    """The comparisons of integer variables with numbers of which a condition says that all hold."""
    if not isinstance(condition, Binary):
        return
    if condition.op == "land":
        yield from _comparisons(condition.a)
        yield from _comparisons(condition.b)
    elif condition.op in _MIRRORED:
        for a, b, op in ((condition.a, condition.b, condition.op), (condition.b, condition.a, _MIRRORED[condition.op])):
            var, number = a.a if isinstance(a, Cast) else a, getattr(b, "value", None)
            if isinstance(var, Var) and var.dtype.is_int and isinstance(number, int):
                yield var, op, number


def _times(atom: Expr | None, factor: int) -> Expr:
    return build.index(factor) if atom is None else atom * build.const(factor, dtypes.i64)
