"""The register tile of attention: a few rows by a few vectors of accumulators.

    acc[i][j] += broadcast(row[i][step]) * column[step][j]

Lanes hold queries, so that the softmax of a query never leaves its lane. Both products of attention have this form:
scores take rows of k and columns of q transposed, weighted sums take columns of v and the weights.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.stmt import Assign, Declare, Evaluate, For, If, Return, Stmt, Store
from hidet.ir.types import BufferType, PointerType, VectorType
from hidet.schedule.shared_functions import share_functions

# Rows of a tile of so many vectors. 24 accumulators leave 8 of 32 registers for factors; six rows by four vectors load
# least per multiply-add, and more than eight rows need more addresses than x86 has general registers.
_ROWS_OF_32 = {1: 8, 2: 8, 4: 6}
_ROWS_OF_16 = {1: 6, 2: 6}


@dataclass(frozen=True, slots=True)
class TileShape:
    """How queries are laid out: `vectors` vectors of `lanes` elements of `dtype` at most.

    rows: rows of the register tile for each number of vectors.
    """

    dtype: DType
    lanes: int
    rows: Mapping[int, int]

    @property
    def vectors(self) -> int:
        """Most vectors of queries in a block."""
        return max(self.rows)

    @property
    def pitch(self) -> int:
        """Elements between rows of a buffer whose lanes are queries."""
        return self.vectors * self.lanes

    @property
    def spare_rows(self) -> int:
        """Rows that the last tile may touch beyond the end of a buffer."""
        return max(self.rows.values())

    @property
    def vector(self) -> VectorType:
        """One vector of queries."""
        return VectorType(self.dtype, self.lanes)


def tile_shape(dtype: DType, vector_bits: int, vector_registers: int) -> TileShape:
    """The shape for a machine with so many vector registers."""
    return TileShape(dtype, vector_bits // dtype.bits, _ROWS_OF_32 if vector_registers >= 32 else _ROWS_OF_16)


def local_array(name: str, dtype: DType, elements: int) -> Var:
    """A local array; declare it before use."""
    return Var(name, BufferType(dtype, (build.index(elements),)))


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Arguments of a product of rows and columns, which the functions of `product_functions` compute.

        result[row][query] = sum over step < steps of element[row][step] * columns[step][query]

    element: first element of the rows. row_stride, step_stride: between rows, and between the elements of one.
    columns, result: arrays of rows of `pitch` queries. rows, steps: how many of each.
    factor: an array of one element a query: what `result` held, times that, is added; None where it held nothing.
    """

    element: Expr
    row_stride: Expr
    step_stride: Expr
    columns: Expr
    result: Expr
    rows: Expr
    steps: Expr
    factor: Expr | None

    def compute(self, shape: TileShape, vectors: Expr) -> Stmt:
        """Call the function for the least number of vectors that covers `vectors`."""
        start = build.address(self.columns, 0)
        factor = self.factor if self.factor is not None else self.columns
        arguments = (
            build.address(self.element, 0),
            self.row_stride,
            self.step_stride,
            start,
            build.address(self.result, 0),
            self.rows,
            self.steps,
            build.address(factor, 0),
            build.index(0 if self.factor is None else 1),
        )
        functions = dict(zip(shape.rows, product_functions(shape), strict=True))
        *fewer, most = sorted(shape.rows)
        stmt: Stmt = Evaluate(build.call(functions[most].name, *arguments, type=build.INDEX))
        for count in reversed(fewer):
            smaller = Evaluate(build.call(functions[count].name, *arguments, type=build.INDEX))
            stmt = If(vectors <= count, smaller, stmt)
        return stmt


def product_functions(shape: TileShape) -> tuple[Function, ...]:
    """The functions that `Product.compute` calls, in the order of `shape.rows`."""
    return _product_group(shape.dtype, shape.lanes, tuple(shape.rows.items()))


@functools.cache
def _product_group(dtype: DType, lanes: int, rows: tuple[tuple[int, int], ...]) -> tuple[Function, ...]:
    shape = TileShape(dtype, lanes, dict(rows))
    return share_functions([_product_function(shape, vectors) for vectors in shape.rows])


def _product_function(shape: TileShape, vectors: int) -> Function:
    pointer = PointerType(shape.dtype)
    element, columns, result, factor = (Var(n, pointer) for n in ("element", "columns", "result", "factor"))
    row_stride, step_stride, rows, steps, is_added = map(
        build.size_var, ("row_stride", "step_stride", "rows", "steps", "is_added")
    )
    height = shape.rows[vectors]
    first = build.size_var("first")
    accumulators = [[Var(f"acc{i}_{j}", shape.vector) for j in range(vectors)] for i in range(height)]
    places = [[(first + i) * shape.pitch + j * shape.lanes for j in range(vectors)] for i in range(height)]
    zero = build.broadcast(build.const(0, shape.dtype), shape.lanes)
    stmts: list[Stmt] = [Declare(acc, zero) for row in accumulators for acc in row]
    factors = [Var(f"factor{j}", shape.vector) for j in range(vectors)]
    added: list[Stmt] = [
        Declare(var, build.load(factor, j * shape.lanes, lanes=shape.lanes)) for j, var in enumerate(factors)
    ]
    for row, row_places in zip(accumulators, places, strict=True):
        for acc, place, var in zip(row, row_places, factors, strict=True):
            added.append(Assign(acc, build.load(result, place, lanes=shape.lanes) * var))
    stmts.append(If(build.equal(is_added, 1), build.seq(added)))
    pointers = [Var(f"row{i}", pointer) for i in range(height)]
    for i, var in enumerate(pointers):
        # The last tile repeats the last row; what it writes beyond `rows` is never read.
        stmts.append(Declare(var, build.address(element, build.minimum(first + i, rows - 1) * row_stride)))
    step = build.size_var("step")
    body = _step(shape, accumulators, pointers, columns, step, step_stride)
    stmts.append(For(step, build.index(0), steps, body))
    for row, row_places in zip(accumulators, places, strict=True):
        stmts += [Store(result, (place,), acc) for acc, place in zip(row, row_places, strict=True)]
    loop = For(first, build.index(0), rows, build.seq(stmts), step=height)
    parameters = (element, row_stride, step_stride, columns, result, rows, steps, factor, is_added)
    return Function(
        f"product_of_{vectors}",
        parameters,
        build.seq([loop, Return(build.index(0))]),
        result=build.INDEX,
        attributes=APART,
    )


def _step(
    shape: TileShape,
    accumulators: Sequence[Sequence[Var]],
    pointers: Sequence[Var],
    columns: Var,
    step: Var,
    step_stride: Expr,
) -> Stmt:
    stmts: list[Stmt] = []
    column = [Var(f"column{j}", shape.vector) for j in range(len(accumulators[0]))]
    for j, var in enumerate(column):
        stmts.append(Declare(var, build.load(columns, step * shape.pitch + j * shape.lanes, lanes=shape.lanes)))
    for row, pointer in zip(accumulators, pointers, strict=True):
        element = Var("factor", shape.vector)
        stmts.append(Declare(element, build.broadcast(build.load(pointer, step * step_stride), shape.lanes)))
        for acc, var in zip(row, column, strict=True):
            stmts.append(Assign(acc, fma(element, var, acc)))
    return build.seq(stmts)
