"""Where `gemm` finds its columns: in panels that are packed already, or in memory of any order, packed on the way.

Columns that are no constants are packed by each work item for itself, a chunk of the sum at a time, into memory of its
own that stays in the first-level cache until all its rows are multiplied. Nothing is kept from one call to the next.
A square of `lanes` columns and steps is transposed in registers, about a quarter of a cycle an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from hidet import dims
from hidet.cpu.schedules.gemm_blocking import LINE_BYTES
from hidet.cpu.schedules.gemm_tile import AHEAD_STEPS, TileShape
from hidet.cpu.schedules.pack import Axis, Order, axes_offset
from hidet.cpu.schedules.transpose_tile import panel_square_function
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.types import BufferType, PointerType
from hidet.schedule.lowering import KernelScope

ProblemOffset = Callable[[KernelScope, Expr], Expr]
"""Elements from the first problem's columns to those of a problem, by its number."""

# More rows than this are several work items, which would all pack the same columns.
_MOST_ROWS = 512
# A chunk with all taps of more than these would not stay in the cache.
_MOST_TAPS = 64


@dataclass(frozen=True, slots=True, eq=False)
class PackedColumns:
    """Panels [n // lanes][tap][k][n % lanes], those of a problem next to each other. pointer: of the entry function."""

    pointer: Var
    offset: ProblemOffset

    @property
    def order(self) -> None:
        """No order to be packed."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class StridedColumns:
    """Element (n, *taps, k) lies at n * column + taps * their strides + k * step from where a problem's columns begin.

    pointer: of the entry function; its elements are converted. taps: (extent, stride) of each axis of taps.
    """

    pointer: Var
    offset: ProblemOffset
    column: Dim
    taps: tuple[Axis, ...]
    step: Dim

    @property
    def order(self) -> Order:
        """What lies next to each other, as far as that is known."""
        return order_of(self.column, self.taps, self.step)


Columns = PackedColumns | StridedColumns


def order_of(column: Dim, taps: Sequence[Axis], step: Dim) -> Order:
    """What lies next to each other of columns with these strides, as far as that is known. taps: (extent, stride) of
    each axis of taps."""
    count: Dim = 1
    for extent, stride in reversed(taps):
        if extent != 1 and stride != count:
            count = 0
        count = count * extent
    if step == 1:
        return "steps"
    if count not in (0, 1) and step == count:
        return "taps"
    return "columns" if column == 1 else "any"


def is_packed_on_the_way(rows: Dim, taps: int = 1) -> bool:
    """Whether columns that so many rows share are packed by each work item, instead of once before for all; of as many
    as a call tells, work items pack them: calls of few rows need no more than a part of the time."""
    has_many = dims.prove_lt(_MOST_ROWS, rows) is True
    return not has_many and can_be_packed_on_the_way(taps)


def can_be_packed_on_the_way(taps: int) -> bool:
    """Whether a work item has memory for a chunk of so many taps."""
    return taps <= _MOST_TAPS


@dataclass(frozen=True, slots=True, eq=False)
class SumSizes:
    """How a sum is cut, as parameters of the kernel: all taps and steps, and those of a whole chunk."""

    taps: Expr
    run: Expr
    chunk_taps: Expr
    chunk_steps: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ChunkPlace:
    """A chunk of a column group: the group, the vectors that it has, and the part of the sum."""

    group: Expr
    vectors: Expr
    first_tap: Expr
    first_step: Expr
    taps: Expr
    steps: Expr


class PanelReader(Protocol):
    """How the kernel comes to the vectors of a chunk.

    panel_type, ahead_type: of pointers to the vectors, and to what is fetched. vector_stride: elements between the
    vectors of a step. run: steps between taps. functions: that it calls.
    """

    panel_type: PointerType
    ahead_type: PointerType
    vector_stride: Expr
    run: Expr
    functions: tuple[Function, ...]

    def declare(self, k: IRBuilder) -> None:
        """What a work item begins with."""

    def begin(self, k: IRBuilder, chunk: ChunkPlace, following: ChunkPlace) -> None:
        """What precedes the multiplications of a chunk. following: the chunk to be fetched meanwhile."""

    def panel(self, chunk: ChunkPlace) -> Expr:
        """Where step 0 of the chunk's first tap lies, or would."""

    def ahead(self, tile: Expr) -> tuple[Expr, Expr, Expr]:
        """`ahead`, `ahead_step` and `ahead_rate` of `TileArguments` for the tile with this number."""


class PackedReader:
    """Reads packed panels where they are. ahead_*: see `Blocking`."""

    def __init__(
        self,
        scope: KernelScope,
        columns: PackedColumns,
        shape: TileShape,
        problem: Expr,
        sizes: SumSizes,
        ahead_tiles: Expr,
        ahead_step: Expr,
    ) -> None:
        self.shape, self.sizes = shape, sizes
        self.panels = scope.pointer("packed", shape.dtype) + columns.offset(scope, problem)
        self.panel_type = self.ahead_type = PointerType(shape.dtype)
        self.vector_stride = sizes.taps * sizes.run * shape.lanes
        self.run = sizes.run
        self.functions: tuple[Function, ...] = ()
        self._ahead_tiles, self._ahead_step = ahead_tiles, ahead_step
        self._next = Var("ahead", self.panels.type)

    def declare(self, k: IRBuilder) -> None:
        """Nothing."""

    def begin(self, k: IRBuilder, chunk: ChunkPlace, following: ChunkPlace) -> None:
        """Where the following chunk lies."""
        k.declare(self._next, self.panel(following) + following.first_step * self.shape.lanes)

    def panel(self, chunk: ChunkPlace) -> Expr:
        """In the group's panels."""
        return (
            self.panels
            + chunk.group * (self.vector_stride * self.shape.vectors)
            + chunk.first_tap * self.run * self.shape.lanes
        )

    def ahead(self, tile: Expr) -> tuple[Expr, Expr, Expr]:
        """So many tiles share one vector's part of the chunk."""
        vector = build.binary("truncdiv", tile, self._ahead_tiles)
        share = build.binary("rem", tile, self._ahead_tiles) * (self.sizes.chunk_taps * self.sizes.chunk_steps)
        first = vector * self.vector_stride + share * self._ahead_step
        return self._next + first, self._ahead_step, build.index(AHEAD_STEPS)


class ChunkPacker:
    """Packs chunks of strided columns into a buffer of the work item, [vector][tap][k][lane].

    most: taps * steps of a chunk, at most. ahead_*: see `Blocking`.
    """

    def __init__(
        self,
        scope: KernelScope,
        columns: StridedColumns,
        shape: TileShape,
        problem: Expr,
        sizes: SumSizes,
        column_count: Expr,
        most: int,
        ahead_tiles: Expr,
        ahead_step: Expr,
    ) -> None:
        self.shape, self.columns, self.order = shape, columns, columns.order
        self.scope, self.column_count = scope, column_count
        self.chunk_taps, self.chunk_steps = sizes.chunk_taps, sizes.chunk_steps
        self.run = sizes.chunk_steps
        self.panel_type = PointerType(shape.dtype, "local")
        self.ahead_type = PointerType(columns.pointer.dtype)
        self.vector_stride = sizes.chunk_taps * sizes.chunk_steps * shape.lanes
        self.source = scope.pointer("columns", columns.pointer.dtype)
        self.start = columns.offset(scope, problem)
        self._ahead_tiles, self._ahead_step = ahead_tiles, ahead_step
        self._next, self._rate = Var("ahead", self.source.type), build.size_var("rate")
        self.buffer = Var("panel_chunk", BufferType(shape.dtype, (build.index(most * shape.columns),), space="local"))
        self.column_stride = scope.size(columns.column, "column_stride")
        self.step_stride = scope.size(columns.step, "step_stride")
        self.is_scattered = self.order == "taps"
        self.places = Var("places", BufferType(build.INDEX, (build.index(most),), space="local"))
        self.square: Function | None = None
        if self.order in ("steps", "taps"):
            self.square = panel_square_function(
                shape.lanes, columns.pointer.dtype, shape.dtype, is_scattered=self.is_scattered
            )
        self.functions: tuple[Function, ...] = () if self.square is None else (self.square,)

    def declare(self, k: IRBuilder) -> None:
        """The buffer, and where elements of squares go."""
        k.declare(self.buffer)
        if not self.is_scattered:
            return
        k.declare(self.places)
        with k.for_range("flat", self.chunk_taps * self.chunk_steps) as flat:
            step, tap = build.binary("truncdiv", flat, self.chunk_taps), build.binary("rem", flat, self.chunk_taps)
            k.store(self.places, flat, (tap * self.chunk_steps + step) * self.shape.lanes)

    def begin(self, k: IRBuilder, chunk: ChunkPlace, following: ChunkPlace) -> None:
        """Fill the buffer."""
        lanes = self.shape.lanes
        with k.for_range("vector", chunk.vectors) as vector:
            column = (chunk.group * self.shape.vectors + vector) * lanes
            here = k.let("here", build.minimum(build.index(lanes), self.column_count - column))
            first = k.let("first", self.start + column * self.column_stride)
            target = k.let("target", vector * self.vector_stride)
            self._pack_vector(k, first, here, target, chunk)
        first_ahead = self.start + following.group * self.shape.columns * self.column_stride
        place = first_ahead + self._tap(following.first_tap) + following.first_step * self.step_stride
        k.declare(self._next, build.address(self.source, place))
        count = build.maximum(self.chunk_taps * self.chunk_steps, build.index(1))
        k.declare(self._rate, build.binary("truncdiv", self._ahead_step * AHEAD_STEPS, count))

    def panel(self, chunk: ChunkPlace) -> Expr:
        """The buffer, whose step 0 is the chunk's first one."""
        return build.address(self.buffer, build.index(0)) - chunk.first_step * self.shape.lanes

    def ahead(self, tile: Expr) -> tuple[Expr, Expr, Expr]:
        """So many tiles share one cache line of all columns, or of all steps where columns are neighbours.

        Lines are asked for one by one over all tiles: the few requests that a core may have on the way would hold up
        the rows' own loads.
        """
        line = max(1, LINE_BYTES // self.columns.pointer.dtype.nbytes)
        number = build.binary("truncdiv", tile, self._ahead_tiles)
        share = build.binary("rem", tile, self._ahead_tiles) * self._ahead_step
        stride = self.step_stride if self.order == "columns" else self.column_stride
        return self._next + (number * line + share * stride), stride, self._rate

    def _pack_vector(self, k: IRBuilder, first: Expr, here: Expr, target: Expr, chunk: ChunkPlace) -> None:
        if self.order == "taps":
            # All taps of some steps are one run.
            begin = first + chunk.first_step * self.step_stride
            with self._squares(k, begin, here, target, chunk.taps * chunk.steps):
                self._slow(k, first, here, target, chunk)
        elif self.order == "steps":
            with k.for_range("tap", chunk.taps) as tap:
                begin = first + self._tap(chunk.first_tap + tap) + chunk.first_step
                place = target + tap * self.chunk_steps * self.shape.lanes
                one = replace(chunk, first_tap=chunk.first_tap + tap, taps=build.index(1))
                with self._squares(k, begin, here, place, chunk.steps):
                    self._slow(k, first, here, place, one)
        else:
            self._slow(k, first, here, target, chunk)

    @contextmanager
    def _squares(self, k: IRBuilder, begin: Expr, here: Expr, target: Expr, count: Expr) -> Iterator[None]:
        """`count` neighbours of each column, a square at a time; the last square is moved back to end with them. The
        body of the `with` is for fewer than a square has."""
        lanes, square = self.shape.lanes, self.square
        assert square is not None
        with k.if_(count >= lanes), k.for_range("number", count, step=lanes) as number:
            at = build.minimum(number, count - lanes)
            arguments = (
                build.address(self.source, begin + at),
                self.column_stride,
                here - 1,
                build.address(self.buffer, target if self.is_scattered else target + at * lanes),
                build.address(self.places, at) if self.is_scattered else build.index(lanes),
            )
            k.run(build.call(square.name, *arguments, type=build.INDEX))
        with k.else_():
            yield

    def _slow(self, k: IRBuilder, first: Expr, here: Expr, target: Expr, chunk: ChunkPlace) -> None:
        """Element by element, or by vectors where columns are neighbours."""
        dtype, lanes = self.shape.dtype, self.shape.lanes
        with k.for_range("tap", chunk.taps) as tap, k.for_range("step", chunk.steps) as step, ExitStack() as parts:
            begin = first + self._tap(chunk.first_tap + tap) + (chunk.first_step + step) * self.step_stride
            at = target + (tap * self.chunk_steps + step) * lanes
            if self.order == "columns":
                with k.if_(build.equal(here, lanes)):
                    k.store(self.buffer, at, build.cast(build.load(self.source, begin, lanes=lanes), dtype))
                parts.enter_context(k.else_())
            with k.for_range("lane", here, kind="vectorize") as lane:
                element = build.load(self.source, begin + lane * self.column_stride)
                k.store(self.buffer, at + lane, build.cast(element, dtype))
            with k.for_range("rest", build.index(lanes) - here, start=here) as rest:
                k.store(self.buffer, at + rest, build.const(0, dtype))

    def _tap(self, number: Expr) -> Expr:
        if self.order == "taps":
            return number
        has_taps = any(extent != 1 for extent, _ in self.columns.taps)
        return axes_offset(self.scope, number, self.columns.taps) if has_taps else build.index(0)
