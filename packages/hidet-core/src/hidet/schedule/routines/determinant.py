"""determinant: a work item factors one matrix by elimination with partial pivoting (Golub and Van Loan, "Matrix
Computations", 4th edition, 3.4.1); the determinant is the product of the pivots."""

from __future__ import annotations

from collections.abc import Callable

from hidet import dims
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
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

    k = IRBuilder()
    with k.for_range("i", n) as i, k.for_range("j", n) as j:
        k.store(work, place(i, j), build.cast(site.read(x, (*outer, i, j)), result.dtype))
    product = k.let("product", build.const(1, result.dtype))
    with k.for_range("k", n) as step:
        _bring_up_pivot(k, work, place, product, step, n)
        _eliminate(k, work, place, product, step, n)
    k.emit(site.write(result, outer, product))
    return RoutineKernel(item, matrices, k.body)


def _bring_up_pivot(k: IRBuilder, work: Var, place: Place, product: Var, step: Expr, n: Expr) -> None:
    """Exchange row `step` with the one below that has the largest element in column `step`."""
    pivot = k.let("pivot", step)
    largest = k.let("largest", build.unary("abs", build.load(work, place(step, step))))
    with k.for_range("row", n - step - 1, start=step + 1) as row:
        size = k.let("size", build.unary("abs", build.load(work, place(row, step))))
        with k.if_(size > largest):
            k.assign(largest, size)
            k.assign(pivot, row)
    with k.if_(build.binary("ne", pivot, step)):
        with k.for_range("column", n - step, start=step) as column:
            upper = k.let("upper", build.load(work, place(step, column)))
            k.store(work, place(step, column), build.load(work, place(pivot, column)))
            k.store(work, place(pivot, column), upper)
        k.assign(product, -product)


def _eliminate(k: IRBuilder, work: Var, place: Place, product: Var, step: Expr, n: Expr) -> None:
    """Multiply by the pivot, and subtract multiples of its row from those below; a pivot of 0 has none to subtract."""
    pivot = k.let("divisor", build.load(work, place(step, step)))
    k.assign(product, product * pivot)
    with k.if_(build.binary("ne", pivot, 0)), k.for_range("row", n - step - 1, start=step + 1) as row:
        factor = k.let("factor", build.load(work, place(row, step)) / pivot)
        with k.for_range("column", n - step - 1, start=step + 1) as column:
            rest = build.load(work, place(row, column)) - factor * build.load(work, place(step, column))
            k.store(work, place(row, column), rest)
