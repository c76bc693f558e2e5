"""What is known about index variables of a script, and division that uses it.

Tasks of a worker are sums such as w // 16 * 4 + i with i below 4. Layouts of registers divide these by 4 again: what
remains must be `i` alone, or registers would be indexed by what is known at run time only, which hardware cannot do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hidet import dtypes
from hidet.ir import build
from hidet.ir.expr import Binary, Const, Expr, Var

Index = int | Expr


@dataclass(slots=True)
class IndexFacts:
    """Facts gathered while a script is translated: values of variables that never change, and extents of counters,
    which run from 0."""

    values: dict[Var, Expr] = field(default_factory=dict)
    extents: dict[Var, int] = field(default_factory=dict)

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
        if isinstance(atom, Var) and atom in self.extents:
            return 0, self.extents[atom] - 1
        if isinstance(atom, Binary) and atom.op == "mod" and isinstance(atom.b, Const):
            assert isinstance(atom.b.value, int)
            return 0, atom.b.value - 1
        return None


def _times(atom: Expr | None, factor: int) -> Expr:
    return build.index(factor) if atom is None else atom * build.const(factor, dtypes.i64)
