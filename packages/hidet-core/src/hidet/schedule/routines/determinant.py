"""determinant: a work item factors one matrix by elimination with partial pivoting (Golub and Van Loan, "Matrix
Computations", 4th edition, 3.4.1); the determinant is the product of the pivots."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dims
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, For, If, Stmt, Store
from hidet.schedule.routines.site import RoutineKernel, RoutineSite, unflatten

Place = Callable[[Expr, Expr], Expr]


def determinant_program(site: RoutineSite) -> RoutineKernel:
    """Result: one number a matrix."""
    (x,), (result,) = site.stage.operands, site.stage.results
    *batch, size, _ = x.shape
    item, n = build.size_var("item"), site.size(size)
    outer = unflatten(item, [site.size(extent) for extent in batch])
    matrices = dims.product(batch)
    work = site.scratch("work", result.dtype, matrices * size * size)
    start = item * (n * n)

    def place(row: Expr, column: Expr) -> Expr:
        return start + row * n + column

    i, j, k = (build.size_var(name) for name in "ijk")
    product = Var("product", result.dtype)
    copy = Store(work, (place(i, j),), build.cast(site.read(x, (*outer, i, j)), result.dtype))
    step = [*_bring_up_pivot(work, place, product, k, n), *_eliminate(work, place, product, k, n)]
    body = [
        For(i, build.index(0), n, For(j, build.index(0), n, copy)),
        Declare(product, build.const(1, result.dtype)),
        For(k, build.index(0), n, build.seq(step)),
        site.write(result, outer, product),
    ]
    return RoutineKernel(item, matrices, build.seq(body))


def _bring_up_pivot(work: Var, place: Place, product: Var, k: Expr, n: Expr) -> list[Stmt]:
    """Exchange row `k` with the one below that has the largest element in column `k`."""
    row, column, pivot = build.size_var("row"), build.size_var("column"), build.size_var("pivot")
    largest, size, upper = (Var(name, work.dtype) for name in ("largest", "size", "upper"))
    find = [
        Declare(size, build.unary("abs", build.load(work, place(row, k)))),
        If(size > largest, build.seq([Assign(largest, size), Assign(pivot, row)])),
    ]
    exchange = [
        Declare(upper, build.load(work, place(k, column))),
        Store(work, (place(k, column),), build.load(work, place(pivot, column))),
        Store(work, (place(pivot, column),), upper),
    ]
    swap = [For(column, k, n - k, build.seq(exchange)), Assign(product, -product)]
    return [
        Declare(pivot, k),
        Declare(largest, build.unary("abs", build.load(work, place(k, k)))),
        For(row, k + 1, n - k - 1, build.seq(find)),
        If(build.binary("ne", pivot, k), build.seq(swap)),
    ]


def _eliminate(work: Var, place: Place, product: Var, k: Expr, n: Expr) -> list[Stmt]:
    """Multiply by the pivot, and subtract multiples of its row from those below; a pivot of 0 has none to subtract."""
    row, column = build.size_var("row"), build.size_var("column")
    pivot, factor = Var("divisor", work.dtype), Var("factor", work.dtype)
    rest = build.load(work, place(row, column)) - factor * build.load(work, place(k, column))
    subtract = [
        Declare(factor, build.load(work, place(row, k)) / pivot),
        For(column, k + 1, n - k - 1, Store(work, (place(row, column),), rest)),
    ]
    return [
        Declare(pivot, build.load(work, place(k, k))),
        Assign(product, product * pivot),
        If(build.binary("ne", pivot, 0), For(row, k + 1, n - k - 1, build.seq(subtract))),
    ]
