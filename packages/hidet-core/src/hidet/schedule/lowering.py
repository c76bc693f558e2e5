"""Lowering compute definitions to thread IR inside a kernel: operand reads, sizes as parameters, reductions as loops.

A `KernelScope` owns the parameters of one kernel. Extents and strides other than 0 and 1 become i64 parameters, so that
kernels which differ only in sizes share one program. Parameters are added by position, never merged by value: whether
two sizes happen to be equal must not change the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hidet.compute.definition import Combiner, Compute, Operand
from hidet.dims import Dim, DimExpr
from hidet.dtypes import DType
from hidet.errors import ScheduleError
from hidet.ir import build
from hidet.ir.expr import Access, Binary, Const, Expr, Reduce, Size, Var
from hidet.ir.node import IRNode
from hidet.ir.stmt import Assign, Declare, For, Stmt
from hidet.ir.types import PointerType
from hidet.ir.visit import refold, rewrite

Reader = Callable[[Sequence[Expr]], Expr]


class KernelScope:
    """Parameters of one kernel under construction: pointers first, then the sizes met while lowering."""

    def __init__(self) -> None:
        self.pointers: list[Var] = []
        self.sizes: list[Var] = []
        self.arguments: list[Dim] = []
        self._symbolic: dict[DimExpr, Var] = {}

    def pointer(self, name: str, dtype: DType) -> Var:
        """A new pointer parameter."""
        var = Var(name, PointerType(dtype))
        self.pointers.append(var)
        return var

    def size(self, dim: Dim, name: str = "n") -> Expr:
        """`dim` inside the kernel: 0 and 1 stay constants, everything else is a parameter."""
        if isinstance(dim, DimExpr):
            known = self._symbolic.get(dim)
            if known is None:
                known = self._symbolic[dim] = self._add(dim, name)
            return known
        return build.index(dim) if dim in (0, 1) else self._add(dim, name)

    def argument(self, dim: Dim, name: str = "n") -> Expr:
        """`dim` as a parameter, whatever its value: where kernels that know 0 or 1 are hardly faster."""
        return self.size(dim, name) if isinstance(dim, DimExpr) else self._add(dim, name)

    def _add(self, dim: Dim, name: str) -> Var:
        var = build.size_var(f"{name}{len(self.sizes)}")
        self.sizes.append(var)
        self.arguments.append(dim)
        return var

    @property
    def params(self) -> tuple[Var, ...]:
        """All parameters in order."""
        return (*self.pointers, *self.sizes)


class Lowering:
    """Turns definition expressions into thread-IR expressions and the statements they need.

    `readers` says how each operand is read: a function from indices to an expression (a load, or an inlined producer).
    """

    def __init__(self, scope: KernelScope, readers: Mapping[Operand, Reader]) -> None:
        self.scope = scope
        self.readers = dict(readers)

    def buffer(self, operand: Operand, pointer: Expr, strides: Sequence[Dim], offset: Dim = 0) -> None:
        """Let `operand` be read from memory at `pointer` with `strides` in elements."""
        sizes = [self.scope.size(s, f"{operand.name}_stride") for s in strides]
        start = self.scope.size(offset, f"{operand.name}_offset")
        self.readers[operand] = lambda indices: build.load(pointer, build.flatten(indices, sizes) + start)

    def inline(self, stage: Compute) -> None:
        """Let the stage's result be computed where it is read. Its own reads must have readers already."""
        self.readers[stage.result] = lambda indices: self.at(stage, indices)

    def at(self, stage: Compute, indices: Sequence[Expr]) -> Expr:
        """The stage's value at `indices`, its accesses resolved."""
        return self.resolve(stage.value, dict(zip(stage.axes, indices, strict=True)))

    def resolve(self, value: Expr, bindings: Mapping[Var, Expr], reads: Mapping[Access, Expr] | None = None) -> Expr:
        """`value` with variables bound, accesses read and sizes as parameters; reductions stay for `statements`.

        reads: what stands for accesses whose operands have no reader, finished.
        """

        def change(n: IRNode) -> IRNode | None:
            if isinstance(n, Var):
                return bindings.get(n)
            if isinstance(n, Size):
                return self.scope.size(n.dim)
            if isinstance(n, Access):
                return self.read(n)
            lifted = self._lift(n)
            return refold(n) if lifted is None else lifted

        return rewrite(value, change, reads)

    def _lift(self, n: IRNode) -> IRNode | None:
        """Large constants of index arithmetic are sizes in disguise; they become parameters too."""
        if not isinstance(n, Binary) or n.a.type is not build.INDEX or not isinstance(n.b, Const):
            return None
        value = n.b.value
        if not isinstance(value, int) or -2 <= value <= 2 or n.op in ("shl", "shr", "and", "or", "xor"):
            return None
        return Binary(n.op, n.a, self.scope.size(value), n.type)

    def read(self, access: Access) -> Expr:
        """One element of an operand; ScheduleError when nobody said how the operand is read."""
        reader = self.readers.get(access.operand)
        if reader is None:
            raise ScheduleError(f"operand {access.operand.name} is read but is neither an input nor computed here")
        return reader(access.indices)

    def statements(self, value: Expr) -> tuple[list[Stmt], Expr]:
        """Loops for the reductions in a resolved expression, and the expression that reads their accumulators."""
        before: list[Stmt] = []
        done: dict[tuple[Var, ...], tuple[Var, ...]] = {}

        def change(n: IRNode) -> IRNode | None:
            if isinstance(n, Reduce):
                return self.reduction(n, before, done)
            return refold(n)

        return before, rewrite(value, change)

    def reduction(self, node: Reduce, before: list[Stmt], done: dict[tuple[Var, ...], tuple[Var, ...]]) -> Expr:
        """Serial loops over the reduced axes; results of one tuple-valued reduction share their loops."""
        known = done.get(node.axes)
        if known is not None:
            return known[node.result]
        dtypes = [v.dtype for v in node.values]
        accumulators = tuple(Var(f"acc{position}", dtype) for position, dtype in enumerate(dtypes))
        done[node.axes] = accumulators
        for var, start in zip(accumulators, node.combiner.identity(dtypes), strict=True):
            before.append(Declare(var, start))
        inner, values = self._nested(node.values)
        body = build.seq([*inner, *accumulate(node.combiner, accumulators, values)])
        before += self.loops(node, accumulators, body)
        return accumulators[node.result]

    def loops(self, node: Reduce, accumulators: Sequence[Var], body: Stmt) -> list[Stmt]:
        """Statements that run `body`, which reduces one index into the accumulators, for all indices of a reduction."""
        loop = body
        for axis, extent in reversed(list(zip(node.axes, node.extents, strict=True))):
            loop = For(axis, build.index(0), extent, loop)
        return [loop]

    def _nested(self, values: Sequence[Expr]) -> tuple[list[Stmt], list[Expr]]:
        stmts: list[Stmt] = []
        exprs: list[Expr] = []
        for value in values:
            inner, expr = self.statements(value)
            stmts += inner
            exprs.append(expr)
        return stmts, exprs


def accumulate(combiner: Combiner, accumulators: Sequence[Var], values: Sequence[Expr]) -> list[Stmt]:
    """Reduce `values` into the accumulators of a reduction."""
    combined = combiner.combine(accumulators, values)
    if len(accumulators) == 1:
        return [Assign(accumulators[0], combined[0])]
    fresh = [Var(f"next{position}", var.dtype) for position, var in enumerate(accumulators)]
    declared = [Declare(var, expr) for var, expr in zip(fresh, combined, strict=True)]
    return [*declared, *(Assign(var, new) for var, new in zip(accumulators, fresh, strict=True))]


def nest(axes: Sequence[Var], extents: Sequence[Expr], body: Stmt, innermost: str = "serial") -> Stmt:
    """Loops over `axes`, the last one innermost and of the given kind."""
    for position in reversed(range(len(axes))):
        kind = innermost if position == len(axes) - 1 else "serial"
        body = For(axes[position], build.index(0), extents[position], body, kind=kind)  # type: ignore[arg-type]  # a LoopKind
    return body
