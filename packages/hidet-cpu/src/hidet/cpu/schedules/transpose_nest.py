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

from hidet import dims, dtypes
from hidet.cpu.schedules.elementwise_access import RegionAccess, stays_inside, unconditional
from hidet.cpu.schedules.elementwise_nest import ElementwiseKernel, finish
from hidet.cpu.schedules.transpose_tile import square_function
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Access, Bitcast, Cast, Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Declare, Evaluate, For, If, Stmt
from hidet.ir.types import BufferType, PointerType

_SQUARES_TOGETHER = 4
_MOST_LANES = 16

# A work item covers so many elements along the result's axis, and about so many altogether.
_ITEM_COLUMNS = 1024
_ITEM_ELEMENTS = 16384


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


def transposed_kernel(access: RegionAccess, turned: Var, vector_bits: int) -> ElementwiseKernel | None:
    """The kernel of a region of which `turned` is the turned axis; None where that is shorter than a square."""
    return _Transposition(access, turned, vector_bits).kernel()


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

    def kernel(self) -> ElementwiseKernel | None:
        access, lanes = self.access, self.lanes
        fits = (dims.prove_le(lanes, self.rows), dims.prove_le(self.width, self.columns))
        if False in fits or lanes < 2:
            return None
        columns, rows = access.size(self.i), access.size(self.j)
        covered = dims.maximum(1, dims.minimum(self.columns, _ITEM_COLUMNS))
        block = dims.maximum(1, dims.floordiv(_ITEM_ELEMENTS // lanes, covered)) * lanes
        item_i, item_j = build.size_var("item_i"), build.size_var("item_j")
        step = access.scope.size(block, "block")
        first_j, first_i, end_j, end_i = (Var(n, build.INDEX) for n in ("first_j", "first_i", "end_j", "end_i"))
        stmts: list[Stmt] = [
            Declare(first_j, item_j * step),
            Declare(first_i, item_i * _ITEM_COLUMNS),
            Declare(end_j, build.minimum(first_j + step, rows)),
            Declare(end_i, build.minimum(first_i + _ITEM_COLUMNS, columns)),
        ]
        tile_j, tile_i = build.size_var("tile_j"), build.size_var("tile_i")
        tile = self._tile(tile_j, tile_i, end_j, end_i)
        inner = For(tile_i, first_i, end_i - first_i, tile, step=self.width)
        tiles: Stmt = For(tile_j, first_j, end_j - first_j, inner, step=lanes)
        if not all(fits):
            plain = For(self.i, first_i, end_i - first_i, build.seq(access.compute()), kind="vectorize")
            large = build.logical_and(rows >= lanes, columns >= self.width)
            tiles = If(large, tiles, For(self.j, first_j, end_j - first_j, plain))
        stmts.append(tiles)
        others = [(v, n) for v, n in zip(access.loops, access.sizes, strict=True) if v not in (self.i, self.j)]
        grid = (*(n for _, n in others), dims.ceildiv(self.rows, block), dims.ceildiv(self.columns, _ITEM_COLUMNS))
        grid_vars = [*(v for v, _ in others), item_j, item_i]
        squares = tuple(self.squares.values())
        return finish(access, grid_vars, grid, build.seq(stmts), dims.product(access.sizes), squares)

    def _copied(self) -> Access | None:
        """The turned access that the result is a copy of, converted perhaps; None for any other formula, and for a
        result that does not lie along the innermost loop, into which squares cannot be stored."""
        value = self.access.region.value
        if self.access.result_map.coefficient(self.i) != 1:
            return None
        if isinstance(value, Cast) and not value.dtype.is_bool and not value.a.dtype.is_bool:
            value = value.a
        return value if isinstance(value, Access) and value in self.reads else None

    def _tile(self, tile_j: Var, tile_i: Var, end_j: Expr, end_i: Expr) -> Stmt:
        access, lanes = self.access, self.lanes
        from_j, from_i = Var("from_j", build.INDEX), Var("from_i", build.INDEX)
        stmts: list[Stmt] = [
            Declare(from_j, build.minimum(tile_j, access.size(self.j) - lanes)),
            Declare(from_i, build.minimum(tile_i, access.size(self.i) - self.width)),
        ]
        if self.copied is not None:
            return build.seq([*stmts, self._copy_squares(self.copied, from_j, from_i)])
        turned: dict[Access, Var] = {}
        for number, read in enumerate(self.reads):
            stored = _moved_as(read.dtype)
            turned[read] = Var(f"turned{number}", BufferType(stored, (build.index(lanes * self.width),)))
            stmts += [Declare(turned[read]), self._turn_squares(read, turned[read], from_j, from_i)]

        def read_turned(read: Access) -> Expr | None:
            if read not in turned:
                return None
            element = build.load(turned[read], (self.j - from_j) * self.width + (self.i - from_i))
            return build.cast(element, read.dtype)

        body = build.seq(access.compute(read_turned))
        # A constant length spares the usual, whole tile the remainders of a vectorised loop.
        whole = For(self.i, tile_i, build.index(self.width), body, kind="vectorize")
        part = For(self.i, tile_i, end_i - tile_i, body, kind="vectorize")
        row = If(tile_i + self.width <= end_i, whole, part)
        count = build.minimum(build.index(lanes), end_j - tile_j)
        return build.seq([*stmts, For(self.j, tile_j, count, row)])

    def _turn_squares(self, read: Access, turned: Var, from_j: Expr, from_i: Expr) -> Stmt:
        """Squares of an input, from (from_j, from_i) on, into a local array."""
        square = build.size_var("square")
        place = build.address(turned, square)
        turn = self._turn(read, from_j, from_i + square, place, build.index(self.width), _moved_as(read.dtype))
        return For(square, build.index(0), build.index(self.width), turn, step=self.lanes)

    def _copy_squares(self, read: Access, from_j: Expr, from_i: Expr) -> Stmt:
        """Squares of an input, from (from_j, from_i) on, into the result."""
        access, square = self.access, build.size_var("square")
        target = access.region.value.dtype
        place = self._address(access.result, target, access.result_offset({self.i: from_i + square, self.j: from_j}))
        stride = access.result_stride(self.j)
        turn = self._turn(read, from_j, from_i + square, place, stride, _moved_as(target))
        return For(square, build.index(0), build.index(self.width), turn, step=self.lanes)

    def _turn(self, read: Access, j: Expr, i: Expr, place: Expr, stride: Expr, target: DType) -> Stmt:
        """The square at (j, i) of an input, turned and converted, to `place`, whose rows lie `stride` apart."""
        access = self.access
        function = square_function(self.lanes, _moved_as(read.dtype), target)
        self.squares[function.name] = function
        offset = access.offset_of(read, {self.i: i, self.j: j})
        source = self._address(access.pointers[read.operand], read.dtype, offset)
        arguments = (source, access.stride_of(read, self.i), place, stride)
        return Evaluate(build.call(function.name, *arguments, type=build.INDEX))

    @staticmethod
    def _address(pointer: Expr, dtype: DType, offset: Expr) -> Expr:
        moved = _moved_as(dtype)
        return build.address(pointer if moved is dtype else Bitcast(pointer, PointerType(moved)), offset)


def _moved_as(dtype: DType) -> DType:
    """The type in which vectors of `dtype` are moved: bool takes a byte in memory and a bit in a register."""
    return dtypes.u8 if dtype.is_bool else dtype
