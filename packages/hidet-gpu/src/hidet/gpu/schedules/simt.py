"""The product of two matrices without matrix units, for types that these do not compute exactly.

A thread computes 8 x 8 elements: what it reads from shared memory for each of them is half of what 4 x 4 would take,
which shared memory does not keep up with. They are two groups of 4 neighbouring rows and 4 neighbouring columns, half
a tile apart, so that both are read 16 bytes at once; a warp has 4 x 8 threads of the tile. Parts of 8 along k pass
through shared memory, where k is the slow axis: the next one is on its way from memory to registers while one is
multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hidet import dtypes
from hidet.dtypes import DType
from hidet.gpu.schedules.exchange import barrier, thread_in_block
from hidet.gpu.schedules.items import decode_item
from hidet.gpu.tile.lower.gather import GatheredRows, gathered_rows
from hidet.gpu.tile.templates.matmul import MatmulTiles
from hidet.gpu.tile.tensors import Gathered, GTensor
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function

_DEEP = 8
"""Elements of a part along k."""
_EACH, _GROUP = 8, 4
"""Rows, and columns, of a thread, and those of them that are neighbours."""
_LANES = (4, 8)
_TEAM = 32
"""Threads that share a part of a tile of 32 rows and 64 columns, and how they lie along its rows and columns."""
_OF_THREAD = 128
_CHUNK_BYTES = 16
_SLOTS = 2


def threads_of(tiles: MatmulTiles) -> int:
    """Threads of a block: teams of 32, whatever the warps of the device are."""
    return _TEAM * tiles.warps[0] * tiles.warps[1]


def simt_kernel(
    name: str,
    params: tuple[Var, ...],
    a: GTensor | Gathered,
    b: GTensor | Gathered,
    c: GTensor,
    tiles: MatmulTiles,
    *,
    a_is_transposed: bool,
    b_is_transposed: bool,
    epilogue: Callable[[Expr, Expr, Expr], Expr],
    accumulator: DType,
    registers: int,
    are_whole: tuple[bool, bool] = (False, False),
    batch: Var | None = None,
    steps: tuple[Expr, Expr] | None = None,
) -> Function:
    """c = epilogue(a b, row, column); operands and `steps` as in `hidet.gpu.tile.templates.matmul.matmul_kernel`.

    tiles: of a block, whose warps share them by 32 rows and 64 columns; 8 along k. are_whole: whether operands' rows
    are whole parts of 16 bytes, at multiples of as many. registers: of a multiprocessor. batch: a second index of
    blocks, which the matrices' pointers may mention. For each the grid has ceil(n / tiles.n) * ceil(m / tiles.m) ones.
    """
    block_column, block_row, block = (build.size_var(which) for which in ("block_column", "block_row", "block"))
    first_row, first_column = block_row * tiles.m, block_column * tiles.n
    threads, k = threads_of(tiles), IRBuilder()
    thread = k.let("thread", thread_in_block())
    columns = (c.columns + (tiles.n - 1)) // tiles.n
    decode_item(k, build.cast(block, dtypes.u64), (build.index(0), columns), (block_row, block_column))
    lane, warp = thread % _TEAM, thread // _TEAM
    row = k.let("row", (warp // tiles.warps[1] * _LANES[0] + lane // _LANES[1]) * _GROUP)
    column = k.let("column", (warp % tiles.warps[1] * _LANES[1] + lane % _LANES[1]) * _GROUP)
    whole_a, whole_b = are_whole
    fills = (
        _fill(k, "a", a, tiles.m, thread, threads, first_row, k_is_fast=not a_is_transposed, is_whole=whole_a),
        _fill(k, "b", b, tiles.n, thread, threads, first_column, k_is_fast=b_is_transposed, is_whole=whole_b),
    )
    totals = k.array("totals", accumulator, _EACH, _EACH)
    with _each_element(k) as own:
        k.store(totals, own, build.const(0, accumulator))
    depth = a.rows if a_is_transposed else a.columns
    _sum_parts(k, fills, totals, (row, column), steps or (build.index(0), (depth + (_DEEP - 1)) // _DEEP))
    with _each_element(k) as (i, j):
        at_row, at_column = first_row + row + _own(i, tiles.m), first_column + column + _own(j, tiles.n)
        with k.if_(build.logical_and(at_row < c.rows, at_column < c.columns)):
            value = k.let("value", build.load(totals, i, j))
            k.store(c.pointer, at_row * c.row_stride + at_column, epilogue(value, at_row, at_column))
    grid_vars = (block, *(() if batch is None else (batch,)))
    # Places of single elements and of matrices of a batch, and sums of f64, take more registers than are left where
    # many threads share them.
    is_lean = all(are_whole) and accumulator.nbytes == 4 and batch is None
    resident = (("min_blocks", registers // _OF_THREAD // threads),) if is_lean else ()
    attributes = (("block", (threads, 1, 1)), *resident)
    return Function(name, params, k.body, "kernel", grid_vars, None, attributes)


def _sum_parts(
    k: IRBuilder, fills: tuple[_Fill, _Fill], totals: Var, place: tuple[Expr, Expr], steps: tuple[Expr, Expr]
) -> None:
    """Add the products of parts along k, of which the next one is on its way while one is multiplied. place: a thread's
    first row and column in the tile. steps: (first, number of) parts."""
    first, count = steps
    left, right = ((fill.tile, at, fill.side) for fill, at in zip(fills, place, strict=True))
    for fill in fills:
        fill.find_rows(k)
    for fill in fills:
        fill.fetch(k, first * _DEEP)
    for fill in fills:
        fill.put(k, build.index(0))
    k.emit(barrier())
    with k.for_range("step", count) as step:
        has_next = step + 1 < count
        with k.if_(has_next):
            for fill in fills:
                fill.fetch(k, (first + (step + 1)) * _DEEP)
        _multiply(k, totals, left, right, step % _SLOTS)
        with k.if_(has_next):
            for fill in fills:
                fill.put(k, (step + 1) % _SLOTS)
        k.emit(barrier())


def _own(number: Expr, side: int) -> Expr:
    """Where one of a thread's rows or columns, of `side` in the tile, lies behind its first one."""
    return number // _GROUP * (side // 2) + number % _GROUP


@contextmanager
def _each_element(k: IRBuilder) -> Iterator[tuple[Var, Var]]:
    """The elements of a thread, by row and column."""
    with k.for_range("i", _EACH, kind="unroll") as i, k.for_range("j", _EACH, kind="unroll") as j:
        yield i, j


@dataclass(frozen=True, slots=True, eq=False)
class _Fill:
    """How an operand's parts come to shared memory: neighbouring threads read neighbours, `width` elements each, in
    some turns.

    tile: the parts there, [slot, k, line]. held: what a thread has of the next one, [turn, element]. first: the
    operand's first line in the block. rows: where the lines of a gathered operand lie, else None.
    """

    source: GTensor | Gathered
    tile: Var
    held: Var
    side: int
    width: int
    turns: int
    thread: Var
    threads: int
    first: Expr
    k_is_fast: bool
    rows: GatheredRows | None

    def find_rows(self, k: IRBuilder) -> None:
        """Compute what depends on the rows of a gathered operand alone."""
        if self.rows is not None:
            k.emit(*self.rows.declared(lambda turn: self.first + (turn * self.threads + self.thread) // _DEEP))

    def fetch(self, k: IRBuilder, at: Expr) -> None:
        """Bring the part from a place along k into registers, zero outside of the matrix."""
        width, zero = self.width, build.broadcast(build.const(0, self.source.dtype), self.width)
        own, columns = ([], {}) if self.rows is None else self.rows.columns(at + self.thread % _DEEP)
        k.emit(*own)
        with k.for_range("turn", self.turns, kind="unroll") as turn:
            inside, value = self._read(turn, at, columns)
            taken = k.let("taken", zero)
            with k.if_(inside):
                k.assign(taken, value)
            for n in range(width):
                k.store(self.held, (turn, n), build.extract(taken, n) if width > 1 else taken)

    def put(self, k: IRBuilder, slot: Expr) -> None:
        """Write what was fetched to a slot of the tile."""
        with k.for_range("turn", self.turns, kind="unroll") as turn:
            line, depth = self._place(turn)
            for n in range(self.width):
                place = (slot, depth + n, line) if self.k_is_fast else (slot, depth, line + n)
                k.store(self.tile, place, build.load(self.held, turn, n))

    def _place(self, turn: Expr) -> tuple[Expr, Expr]:
        """Line and k of the first element that a thread has in a turn."""
        # k stays the same in all turns, because parts of a row divide the threads.
        per_row = (_DEEP if self.k_is_fast else self.side) // self.width
        part = turn * self.threads + self.thread
        across, along = part // per_row, part % per_row * self.width
        return (across, along) if self.k_is_fast else (along, across)

    def _read(self, turn: Expr, at: Expr, columns: Mapping[Var, Expr]) -> tuple[Expr, Expr]:
        """Whether a turn's elements are inside of the matrix, and these. columns: values of a gathered operand's."""
        if self.rows is not None:
            start, inside = self.rows.part(turn, columns)
            return inside, build.load(start, 0)
        source = self.source
        assert isinstance(source, GTensor)
        line, depth = self._place(turn)
        row, column = (self.first + line, at + depth) if self.k_is_fast else (at + depth, self.first + line)
        inside = build.logical_and(row < source.rows, column < source.columns)
        return inside, build.load(source.pointer, row * source.row_stride + column, lanes=self.width)


def _fill(
    k: IRBuilder,
    name: str,
    source: GTensor | Gathered,
    side: int,
    thread: Var,
    threads: int,
    first: Expr,
    *,
    k_is_fast: bool,
    is_whole: bool,
) -> _Fill:
    """Up to 16 bytes a thread and turn where rows are whole parts of as many, else an element."""
    dtype = source.dtype
    width = _width(dtype) if is_whole and isinstance(source, GTensor) else 1
    pitch = side + _CHUNK_BYTES // dtype.nbytes
    turns = side * _DEEP // width // threads
    tile = k.array(f"tile_{name}", dtype, _SLOTS, _DEEP, pitch, space="shared")
    held = k.array(f"next_{name}", dtype, turns, width)
    rows = gathered_rows(source, turns) if isinstance(source, Gathered) else None
    return _Fill(source, tile, held, side, width, turns, thread, threads, first, k_is_fast, rows)


def _width(dtype: DType) -> int:
    """Elements that are read at once: those of 16 bytes, but neighbours of one group alone."""
    return min(_CHUNK_BYTES // dtype.nbytes, _GROUP)


def _multiply(k: IRBuilder, totals: Var, left: tuple[Var, Expr, int], right: tuple[Var, Expr, int], slot: Expr) -> None:
    """The products of one part: each value is read from shared memory once a thread."""
    with k.for_range("k", _DEEP, kind="unroll") as depth:

        def values(name: str, tile: Var, first: Expr, side: int) -> Iterator[Expr]:
            width = _width(tile.dtype)
            for n in range(0, _EACH, width):
                place = first + (n // _GROUP * (side // 2) + n % _GROUP)
                chunk = k.let(f"{name}{n}", build.load(tile, slot, depth, place, lanes=width))
                yield from (build.cast(build.extract(chunk, lane), totals.dtype) for lane in range(width))

        lefts, rights = list(values("left", *left)), list(values("right", *right))
        for i in range(_EACH):
            for j in range(_EACH):
                k.store(totals, (i, j), build.load(totals, i, j) + lefts[i] * rights[j])
