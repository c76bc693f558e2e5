"""Extents of tensors that one script passes to another: which fit, which never do, and which must be looked at when the
program runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hidet import dims, dtypes
from hidet.dims import Dim, DimExpr, Symbol
from hidet.errors import DTypeError, ShapeError
from hidet.ir import build
from hidet.ir.expr import Binary, Cast, Const, Expr, Size, Var
from hidet.ir.expr_text import print_expr
from hidet.ir.node import IRNode
from hidet.ir.stmt import Assert, Seq, Stmt
from hidet.ir.visit import rewrite, substitute
from hidet.lang import operators
from hidet.lang.types import Extent, TensorKind, shown_extent
from hidet.lang.values import TensorValue

_ALGEBRA: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": dims.floordiv,
    "mod": dims.mod,
    "min": dims.minimum,
    "max": dims.maximum,
}


def extent_of(extent: int | DimExpr | Expr, size_of: Callable[[Symbol], Expr]) -> Expr:
    """An extent as an expression, in which `size_of` says what stands for symbols."""
    return dims.fold(extent, _OfSizes(size_of)) if isinstance(extent, DimExpr) else operators.index(extent)


@dataclass(frozen=True, slots=True, eq=False)
class _OfSizes:
    """The algebra of extents over expressions; see `hidet.dims.fold`."""

    size_of: Callable[[Symbol], Expr]

    def integer(self, value: int) -> Expr:
        return build.index(value)

    def symbol(self, symbol: Symbol) -> Expr:
        return self.size_of(symbol)

    def add(self, a: Expr, b: Expr) -> Expr:
        return a + b

    def multiply(self, a: Expr, b: Expr) -> Expr:
        return a * b

    def floordiv(self, a: Expr, b: Expr) -> Expr:
        return a // b

    def mod(self, a: Expr, b: Expr) -> Expr:
        return a % b

    def minimum(self, a: Expr, b: Expr) -> Expr:
        return build.minimum(a, b)

    def maximum(self, a: Expr, b: Expr) -> Expr:
        return build.maximum(a, b)


@dataclass(frozen=True, slots=True, eq=False)
class PassedTensor:
    """A tensor that a call passes for a parameter of `callee`, which declares it as `kind`."""

    callee: str
    parameter: str
    kind: TensorKind
    tensor: TensorValue

    @property
    def what(self) -> str:
        return f"argument {self.parameter} of {self.callee}"

    def extents(self) -> list[tuple[Extent, Expr]]:
        """The extent of each axis as it is declared and as it is: none of pointers to pointers, of which there are as
        many as the caller has. DTypeError for another number of axes."""
        if self.kind.is_pointer:
            return []
        if len(self.kind.shape) != len(self.tensor.shape):
            raise DTypeError(f"{self.what} has {len(self.tensor.shape)} dims, expected {self.kind}")
        return list(zip(self.kind.shape, map(operators.index, self.tensor.shape), strict=True))


def sizes_from(passed: Sequence[PassedTensor]) -> dict[Symbol, Expr]:
    """The values of symbols of a callee: each the extent of the first axis that is declared as it alone."""
    found: dict[Symbol, Expr] = {}
    for tensor in passed:
        for declared, actual in tensor.extents():
            symbol = sole_symbol(declared)
            if symbol is not None:
                found.setdefault(symbol, actual)
    return found


def sole_symbol(extent: Extent) -> Symbol | None:
    """The symbol that an extent is; None where it is anything else."""
    symbols = dims.symbols(extent) if isinstance(extent, DimExpr) else ()
    return symbols[0] if len(symbols) == 1 and extent == dims.as_dim(symbols[0]) else None


def checks_of(
    passed: Sequence[PassedTensor],
    sizes: Mapping[Symbol, Expr],
    values: Mapping[Var, Expr],
    known: Mapping[Var, Expr],
) -> list[Assert]:
    """What has to hold when the program runs so that extents are as the callee declares them.

    sizes: the callee's symbols. values: its parameters that are numbers. known: variables of the caller that never
    change. ShapeError for an extent that differs from what is expected whatever the program gets.
    """
    checks = []
    for tensor in passed:
        for axis, (declared, actual) in enumerate(tensor.extents()):
            expected = substitute(extent_of(declared, sizes.__getitem__), values)
            terms = _Terms(known)
            is_equal = terms.are_equal(expected, actual)
            place = f"axis {axis} of {tensor.what}"
            declaration = f"{tensor.parameter} is declared as {tensor.kind}"
            if is_equal is False:
                raise ShapeError(
                    f"{place} has extent {terms.text(actual)}, expected {terms.text(expected)}", hint=declaration
                )
            if is_equal is None:
                message = f"{place} does not have {shown_extent(declared)} elements: {declaration}"
                checks.append(Assert(build.binary("eq", expected, actual), message))
    return checks


def without_checks(stmt: Stmt, conditions: Collection[Expr]) -> Stmt:
    """`stmt` without the assertions of some conditions."""

    def change(node: IRNode) -> IRNode | None:
        if isinstance(node, Assert) and node.condition in conditions:
            return Seq(())
        return build.seq(node.stmts) if isinstance(node, Seq) else None

    return rewrite(stmt, change) if conditions else stmt


@dataclass(frozen=True, slots=True, eq=False)
class _Terms:
    """Index expressions as sizes, which can be compared. What is no arithmetic of i64 is a symbol of its own."""

    known: Mapping[Var, Expr]
    symbols: dict[Expr, Dim] = field(default_factory=dict)

    def are_equal(self, a: Expr, b: Expr) -> bool | None:
        """Whether they are equal for all values of what they are made of, or for none; None where that differs."""
        try:
            return dims.prove_equal(self._size(a), self._size(b))
        except ShapeError:
            # Sizes are limited in length, and have no quotients by what may not be positive.
            return None

    def text(self, expr: Expr) -> str:
        """An expression that `are_equal` has compared."""
        return print_expr(expr) if self.symbols else str(self._size(expr))

    def _size(self, expr: Expr) -> Dim:
        if isinstance(expr, Const) and isinstance(expr.value, int):
            return int(expr.value)
        if isinstance(expr, Size):
            return expr.dim
        if isinstance(expr, Var) and expr in self.known:
            return self._size(self.known[expr])
        if isinstance(expr, Cast) and expr.dtype.is_int and expr.a.dtype.is_int:
            return self._size(expr.a)
        if isinstance(expr, Binary) and expr.op in _ALGEBRA and expr.dtype == dtypes.i64:
            return _ALGEBRA[expr.op](self._size(expr.a), self._size(expr.b))
        if expr not in self.symbols:
            self.symbols[expr] = dims.symbol(f"value{len(self.symbols)}", lower=int(dtypes.i64.min))
        return self.symbols[expr]
