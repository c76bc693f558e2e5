"""The register tile of attention: a few rows by a few vectors of accumulators.

    acc[i][j] += broadcast(row[i][step]) * column[step][j]

Lanes hold queries, so that the softmax of a query never leaves its lane. Both products of attention have this form:
scores take rows of k and columns of q transposed, weighted sums take columns of v and the weights.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Var
from hidet.ir.func import APART, Function
from hidet.ir.types import PointerType, VectorType
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


def local_array(k: IRBuilder, name: str, dtype: DType, elements: int) -> Var:
    """A local array. It may stand where k and v do, so that pointers to it are of the same type."""
    return k.array(name, dtype, elements, space="global")


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

    def compute(self, k: IRBuilder, shape: TileShape, vectors: Expr) -> None:
        """Call the function for the least number of vectors that covers `vectors`."""
        factor = self.factor if self.factor is not None else self.columns
        arguments = (
            build.address(self.element, 0),
            self.row_stride,
            self.step_stride,
            build.address(self.columns, 0),
            build.address(self.result, 0),
            self.rows,
            self.steps,
            build.address(factor, 0),
            build.index(0 if self.factor is None else 1),
        )
        functions = dict(zip(shape.rows, product_functions(shape), strict=True))
        *fewer, most = sorted(shape.rows)
        with ExitStack() as larger:
            for count in fewer:
                with k.if_(vectors <= count):
                    k.run(build.call(functions[count].name, *arguments, type=build.INDEX))
                larger.enter_context(k.else_())
            k.run(build.call(functions[most].name, *arguments, type=build.INDEX))


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
    height, lanes = shape.rows[vectors], shape.lanes
    k = IRBuilder()
    with k.for_range("first", rows, step=height) as first:
        places = [[(first + i) * shape.pitch + j * lanes for j in range(vectors)] for i in range(height)]
        zero = build.broadcast(build.const(0, shape.dtype), lanes)
        accumulators = [k.let_each(f"acc{i}_", [zero] * vectors) for i in range(height)]
        with k.if_(build.equal(is_added, 1)):
            factors = k.let_each("factor", (build.load(factor, j * lanes, lanes=lanes) for j in range(vectors)))
            for row, row_places in zip(accumulators, places, strict=True):
                k.assign_each(
                    row, [build.load(result, p, lanes=lanes) * f for p, f in zip(row_places, factors, strict=True)]
                )
        # The last tile repeats the last row; what it writes beyond `rows` is never read.
        offsets = [build.minimum(first + i, rows - 1) * row_stride for i in range(height)]
        pointers = k.let_each("row", (build.address(element, offset) for offset in offsets))
        with k.for_range("step", steps) as step:
            places_of_step = [step * shape.pitch + j * lanes for j in range(vectors)]
            column = k.let_each("column", (build.load(columns, place, lanes=lanes) for place in places_of_step))
            for row, start in zip(accumulators, pointers, strict=True):
                own = k.let("factor", build.broadcast(build.load(start, step * step_stride), lanes))
                k.assign_each(row, [fma(own, var, acc) for acc, var in zip(row, column, strict=True)])
        for row, row_places in zip(accumulators, places, strict=True):
            for acc, place in zip(row, row_places, strict=True):
                k.store(result, place, acc)
    k.return_(build.index(0))
    parameters = (element, row_stride, step_stride, columns, result, rows, steps, factor, is_added)
    return Function(f"product_of_{vectors}", parameters, k.body, result=build.INDEX, attributes=APART)
