"""Loops over a region that reads along another axis than it writes: squares are transposed in registers.

Reading column by column takes one element from every cache line it touches. Here squares of the input are read along
its rows and transposed; a plain copy stores them at once, any other formula finds them in a small local array.

    for j, by lanes                     the axis along which the input lies
      for i, by one or four squares     the axis along which the result lies
        turned[j][i] = x[i][j]
        result[j][i] = value(turned[j][i], ...)

The last square of an axis is moved back to end with it, but no result is computed twice, which matters where it
replaces what it is computed from.
"""

from __future__ import annotations

from contextlib import ExitStack

from hidet import dims, dtypes
from hidet.cpu.schedules.elementwise_access import RegionAccess, stays_inside, unconditional
from hidet.cpu.schedules.elementwise_nest import ElementwiseKernel, finish
from hidet.cpu.schedules.transpose_tile import square_function
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Access, Bitcast, Cast, Expr, Var
from hidet.ir.func import Function
from hidet.ir.types import PointerType

_SQUARES_TOGETHER = 4
_MOST_LANES = 16


def turned_axis(access: RegionAccess) -> Var | None:
    """The loop along which most inputs lie that do not lie along the innermost one; None if there is none."""
    votes = {loop: len(_turned_reads(access, loop)) for loop in access.loops[:-1]}
    best = max(votes, key=lambda loop: votes[loop], default=None)
    return best if best is not None and votes[best] else None


def _turned_reads(access: RegionAccess, loop: Var) -> list[Access]:
    """Inputs that lie along `loop`. A square reads all of its elements, so that no condition may stand before one."""
    always = unconditional(access.region.value)
    return [
        read
        for read, offset in access.maps.items()
        if offset.coefficient(loop) == 1
        and offset.coefficient(access.loops[-1]) not in (0, 1)
        and (read in always or stays_inside(read, access.region))
    ]


def transposed_kernel(
    access: RegionAccess, turned: Var, vector_bits: int, item_elements: int, item_columns: int
) -> ElementwiseKernel | None:
    """The kernel of a region of which `turned` is the turned axis; None where that is shorter than a square.

    A work item covers `item_columns` elements along the result's axis, and about `item_elements` altogether.
    """
    return _Transposition(access, turned, vector_bits).kernel(item_elements, item_columns)


class _Transposition:
    def __init__(self, access: RegionAccess, turned: Var, vector_bits: int) -> None:
        self.access = access
        self.i, self.j = access.loops[-1], turned
        self.reads = _turned_reads(access, turned)
        widest = max(read.dtype.bits for read in self.reads)
        self.lanes = min(_MOST_LANES, vector_bits // max(widest, 8))
        sizes = dict(zip(access.loops, access.sizes, strict=True))
        self.columns, self.rows = sizes[self.i], sizes[self.j]
        is_long = isinstance(self.columns, int) and self.columns >= _SQUARES_TOGETHER * self.lanes
        self.width = self.lanes * (_SQUARES_TOGETHER if is_long else 1)
        self.copied = self._copied()
        self.squares: dict[str, Function] = {}

    def kernel(self, item_elements: int, item_columns: int) -> ElementwiseKernel | None:
        access, lanes = self.access, self.lanes
        fits = (dims.prove_le(lanes, self.rows), dims.prove_le(self.width, self.columns))
        if False in fits or lanes < 2:
            return None
        columns, rows = access.size(self.i), access.size(self.j)
        covered = dims.maximum(1, dims.minimum(self.columns, item_columns))
        block = dims.maximum(1, dims.floordiv(item_elements // lanes, covered)) * lanes
        item_i, item_j = build.size_var("item_i"), build.size_var("item_j")
        step = access.scope.size(block, "block")
        k = IRBuilder()
        first_j, first_i = k.let("first_j", item_j * step), k.let("first_i", item_i * item_columns)
        end_j = k.let("end_j", build.minimum(first_j + step, rows))
        end_i = k.let("end_i", build.minimum(first_i + item_columns, columns))
        with ExitStack() as otherwise:
            if not all(fits):
                with k.if_(build.logical_and(rows >= lanes, columns >= self.width)):
                    self._tiles(k, first_j, first_i, end_j, end_i)
                otherwise.enter_context(k.else_())
                otherwise.enter_context(k.loop(self.j, end_j - first_j, first_j))
                with k.loop(self.i, end_i - first_i, first_i, kind="vectorize"):
                    k.emit(*access.compute())
            else:
                self._tiles(k, first_j, first_i, end_j, end_i)
        others = [(v, n) for v, n in zip(access.loops, access.sizes, strict=True) if v not in (self.i, self.j)]
        grid = (*(n for _, n in others), dims.ceildiv(self.rows, block), dims.ceildiv(self.columns, item_columns))
        grid_vars = [*(v for v, _ in others), item_j, item_i]
        squares = tuple(self.squares.values())
        return finish(access, grid_vars, grid, k.body, dims.product(access.sizes), squares)

    def _copied(self) -> Access | None:
        """The turned access that the result is a copy of, converted perhaps; None for any other formula, and for a
        result that does not lie along the innermost loop, into which squares cannot be stored."""
        value = self.access.region.value
        if self.access.result_map.coefficient(self.i) != 1:
            return None
        if isinstance(value, Cast) and not value.dtype.is_bool and not value.a.dtype.is_bool:
            value = value.a
        return value if isinstance(value, Access) and value in self.reads else None

    def _tiles(self, k: IRBuilder, first_j: Expr, first_i: Expr, end_j: Expr, end_i: Expr) -> None:
        with (
            k.for_range("tile_j", end_j - first_j, first_j, self.lanes) as tile_j,
            k.for_range("tile_i", end_i - first_i, first_i, self.width) as tile_i,
        ):
            self._tile(k, tile_j, tile_i, end_j, end_i)

    def _tile(self, k: IRBuilder, tile_j: Var, tile_i: Var, end_j: Expr, end_i: Expr) -> None:
        access, lanes = self.access, self.lanes
        from_j = k.let("from_j", build.minimum(tile_j, access.size(self.j) - lanes))
        from_i = k.let("from_i", build.minimum(tile_i, access.size(self.i) - self.width))
        if self.copied is not None:
            self._copy_squares(k, self.copied, from_j, from_i)
            return
        turned: dict[Access, Var] = {}
        for number, read in enumerate(self.reads):
            stored = _moved_as(read.dtype)
            turned[read] = k.array(f"turned{number}", stored, lanes * self.width, space="global")
            self._turn_squares(k, read, turned[read], from_j, from_i)

        def read_turned(read: Access) -> Expr | None:
            if read not in turned:
                return None
            element = build.load(turned[read], (self.j - from_j) * self.width + (self.i - from_i))
            return build.cast(element, read.dtype)

        body = access.compute(read_turned)
        with k.loop(self.j, build.minimum(build.index(lanes), end_j - tile_j), tile_j):
            # A constant length spares the usual, whole tile the remainders of a vectorised loop.
            with k.if_(tile_i + self.width <= end_i), k.loop(self.i, self.width, tile_i, kind="vectorize"):
                k.emit(*body)
            with k.else_(), k.loop(self.i, end_i - tile_i, tile_i, kind="vectorize"):
                k.emit(*body)

    def _turn_squares(self, k: IRBuilder, read: Access, turned: Var, from_j: Expr, from_i: Expr) -> None:
        """Squares of an input, from (from_j, from_i) on, into a local array."""
        with k.for_range("square", self.width, step=self.lanes) as square:
            place = build.address(turned, square)
            k.run(self._turn(read, from_j, from_i + square, place, build.index(self.width), _moved_as(read.dtype)))

    def _copy_squares(self, k: IRBuilder, read: Access, from_j: Expr, from_i: Expr) -> None:
        """Squares of an input, from (from_j, from_i) on, into the result."""
        access, target = self.access, self.access.region.value.dtype
        with k.for_range("square", self.width, step=self.lanes) as square:
            i = from_i + square
            place = self._address(access.result, target, access.result_offset({self.i: i, self.j: from_j}))
            stride = access.result_stride(self.j)
            k.run(self._turn(read, from_j, i, place, stride, _moved_as(target)))

    def _turn(self, read: Access, j: Expr, i: Expr, place: Expr, stride: Expr, target: DType) -> Expr:
        """A call that writes the square at (j, i) of an input, turned and converted, to `place`, whose rows lie
        `stride` apart."""
        access = self.access
        function = square_function(self.lanes, _moved_as(read.dtype), target)
        self.squares[function.name] = function
        offset = access.offset_of(read, {self.i: i, self.j: j})
        source = self._address(access.pointers[read.operand], read.dtype, offset)
        arguments = (source, access.stride_of(read, self.i), place, stride)
        return build.call(function.name, *arguments, type=build.INDEX)

    @staticmethod
    def _address(pointer: Expr, dtype: DType, offset: Expr) -> Expr:
        moved = _moved_as(dtype)
        return build.address(pointer if moved is dtype else Bitcast(pointer, PointerType(moved)), offset)


def _moved_as(dtype: DType) -> DType:
    """The type in which vectors of `dtype` are moved: bool takes a byte in memory and a bit in a register."""
    return dtypes.u8 if dtype.is_bool else dtype
