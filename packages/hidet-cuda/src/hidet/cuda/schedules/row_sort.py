"""Rows of records put in order, in scratch memory or as results: what sort, top-k and ordered updates have in common.

rows of up to 2048 records    one kernel: several rows a block, or a block a row
the best of longer rows       found digit by digit (`row_select.py`), then put in order
longer rows in order          each tile, then runs merged pairwise
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.compute.definition import Routine, Scatter
from hidet.cuda.schedules.row_records import BLOCK, Records, RowKernel, Rows
from hidet.cuda.schedules.row_select import MOST_SELECTED, write_selected
from hidet.cuda.schedules.scan_kernel import block_number, thread_in_block
from hidet.cuda.schedules.sort_kernels import (
    MOST,
    SPAN,
    Tile,
    bitonic_sort,
    greatest,
    rank_of,
    threads_of,
    tile_memory,
)
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.stmt import Assign, Declare, If, Launch, Stmt
from hidet.schedule.fallback import NestBuilder

_SHORT = 1024
"""Records of a row up to which it is ordered as a whole, however few are wanted."""
_LONGEST = 1 << 31
"""Records that a row of unknown length has at most."""


@dataclass(frozen=True, slots=True, eq=False)
class _Merging:
    """The kernel that merges runs. outer: pointers that are passed before those of records. width: which of the sizes
    is the length of runs."""

    kernel: str
    outer: tuple[Expr, ...]
    sizes: tuple[Dim, ...]
    width: int


class RowSort:
    """Adds the kernels that order rows to the nest of a stage."""

    def __init__(self, nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> None:
        self.nest, self.stage, self.rows = nest, stage, rows
        self._merging: _Merging | None = None

    def write_first(self, wanted: Dim) -> None:
        """Write the first records of every row, in order."""
        length = self.rows.length
        if isinstance(length, int) and length <= (MOST if wanted == length else _SHORT):
            self._tiles(_tile_of(length), None, wanted)
        elif isinstance(wanted, int) and wanted <= MOST_SELECTED:
            write_selected(self.nest, self.stage, self.rows, wanted)
        elif isinstance(length, int) and length <= MOST:
            self._tiles(_tile_of(length), None, wanted)
        else:
            self._write_merged(wanted)

    def in_order(self) -> Records:
        """All records of every row, in order. Only for rows of known length."""
        length = self.rows.length
        assert isinstance(length, int)
        source = self._records("source_", length)
        if length <= MOST:
            self._tiles(_tile_of(length), source, length)
            return source
        return self._merge_all(source, self._records("target_", length))[0]

    def _write_merged(self, wanted: Dim) -> None:
        length = self.rows.length
        source, target = self._records("source_", length), self._records("target_", length)
        source, target, is_moved = self._merge_all(source, target)
        if isinstance(length, int):
            self._write(source, wanted, None)
            return
        self._write(source, wanted, is_moved)
        self._write(target, wanted, build.unary("lnot", is_moved))

    def _merge_all(self, source: Records, target: Records) -> tuple[Records, Records, Expr]:
        """Sorted tiles, merged until a row is one run: where they are then, and where they were before.

        Where the length is known at the call, so is the number of passes, and which of the two it is: the first one if
        the condition holds.
        """
        self._tiles(MOST, source, MOST)
        longest = self.rows.length if isinstance(self.rows.length, int) else _LONGEST
        widths = [MOST << n for n in range(longest.bit_length()) if MOST << n < longest]
        length, passes = self.nest.argument(self.rows.length), build.cast(build.index(0), dtypes.i64)
        for width in widths:
            passes = passes + build.cast(length > width, dtypes.i64)
            self._merge(source, target, width, length)
            source, target = target, source
        # Passes that did not run have not moved the records.
        return source, target, build.equal(passes % 2, len(widths) % 2)

    def _records(self, name: str, count: Dim) -> Records:
        total = self.rows.count * count
        return Records(tuple(self.nest.scratch(f"{name}{n}", d, total) for n, d in enumerate(self.rows.parts)), count)

    # --- kernels -------------------------------------------------------------------------------------------------

    def _kernel(self) -> RowKernel:
        return RowKernel(self.nest, self.stage, self.rows)

    def _tiles(self, elements: int, target: Records | None, keep: Dim) -> None:
        """Order tiles of the rows, and keep the first of each, in memory or, without a target, as results."""
        kernel = self._kernel()
        kept = None if target is None else kernel.memory(target)
        count, tiles = kernel.size(self.rows.length), dims.ceildiv(self.rows.length, elements)
        ends = kernel.size(keep)
        kept_count = build.index(0) if target is None else kernel.size(target.count)
        threads = threads_of(elements)
        teams = threads // (elements // 2)
        thread, item, number = build.size_var("thread"), build.size_var("item"), build.size_var("tile")
        is_there, member = Var("is_there", dtypes.boolean), build.size_var("member")
        parts = tile_memory(self.rows.parts, elements * teams)
        tile = Tile(parts, elements, (thread // (elements // 2)) * elements, member)
        items = kernel.size(self.rows.count * tiles)
        load: list[Stmt] = []
        store: list[Stmt] = []
        for half in range(2):
            place, position = build.size_var(f"place{half}"), build.size_var(f"position{half}")
            record = [Var(f"record{half}_{n}", dtype) for n, dtype in enumerate(self.rows.parts)]
            read = self.rows.record(kernel, position)
            present = [build.cast(value, var.dtype) for var, value in zip(record, read, strict=True)]
            load += [
                Declare(place, member + half * (elements // 2)),
                Declare(position, number * elements + place),
                *(Declare(v, x) for v, x in zip(record, greatest(self.rows.parts), strict=True)),
                If(
                    build.logical_and(is_there, position < count),
                    build.seq([Assign(v, x) for v, x in zip(record, present, strict=True)]),
                ),
                *tile.store(place, record),
            ]
            wanted = build.logical_and(is_there, place < ends)
            if kept is None:
                written = self.rows.write(kernel, place, tile.load(place))
            else:
                # Full runs end where the row does.
                target_place = number * ends + place
                wanted = build.logical_and(wanted, target_place < kept_count)
                written = kernel.store(kept, target_place, kept_count, tile.load(place))
            store.append(If(wanted, build.seq(written)))
        body = [
            *map(Declare, parts),
            Declare(thread, thread_in_block()),
            Declare(member, thread % (elements // 2)),
            Declare(item, block_number() * teams + thread // (elements // 2)),
            Declare(is_there, item < items),
            *kernel.row_of(build.minimum(item, items - 1), tiles, number),
            *load,
            *bitonic_sort(tile),
            *store,
        ]
        kernel.launch(body, self.rows.count * tiles, teams, threads)

    def _merge(self, source: Records, target: Records, width: int, length: Expr) -> None:
        """Merge neighbouring runs of `width` records; only where a row has several. All passes share a kernel."""
        items = self.rows.count * self.rows.length
        if self._merging is None:
            kernel = self._kernel()
            given, kept = kernel.memory(source), kernel.memory(target)
            run = kernel.scope.size(width, "width")
            name = kernel.add(kernel.each(items, self._merged(kernel, given, kept, run)))
            number = next(n for n, size in enumerate(kernel.scope.sizes) if size is run)
            self._merging = _Merging(name, kernel.shared_outer, tuple(kernel.scope.arguments), number)
        shared = self._merging
        sizes = [width if n == shared.width else size for n, size in enumerate(shared.sizes)]
        arguments = (*shared.outer, *source.parts, *target.parts, *map(self.nest.argument, sizes))
        launch = Launch(shared.kernel, (self._blocks(items, BLOCK),), arguments, block=(build.index(BLOCK),))
        self.nest.launches.append(launch if isinstance(self.rows.length, int) else If(length > width, launch))

    def _merged(self, kernel: RowKernel, given: Sequence[Var], kept: Sequence[Var], run: Expr) -> list[Stmt]:
        """What becomes of one record."""
        count = kernel.size(self.rows.length)
        position = build.size_var("position")
        start, middle, end = (build.size_var(name) for name in ("start", "middle", "end"))
        record = [Var(f"record{n}", dtype) for n, dtype in enumerate(self.rows.parts)]
        is_left = position < middle
        search, smaller = rank_of(
            record,
            lambda place: kernel.load(given, place, count),
            build.select(is_left, middle, start),
            build.select(is_left, end, middle),
            "other",
        )
        moved = build.select(is_left, position + smaller, position - middle + start + smaller)
        return [
            *kernel.row_of(kernel.item, self.rows.length, position),
            Declare(start, position // (run * 2) * (run * 2)),
            Declare(middle, build.minimum(start + run, count)),
            Declare(end, build.minimum(middle + run, count)),
            *(Declare(v, x) for v, x in zip(record, kernel.load(given, position, count), strict=True)),
            *search,
            *kernel.store(kept, moved, count, record),
        ]

    def _write(self, source: Records, wanted: Dim, when: Expr | None) -> None:
        """Results at the first places of the rows."""
        kernel = self._kernel()
        given = kernel.memory(source)
        place = build.size_var("place")
        record = kernel.load(given, place, kernel.size(source.count))
        inside = [*kernel.row_of(kernel.item, wanted, place), *self.rows.write(kernel, place, record)]
        items = self.rows.count * wanted
        kernel.launch(kernel.each(items, inside), items, BLOCK, BLOCK, when)

    def _blocks(self, items: Dim, per_block: int) -> Expr:
        return (self.nest.argument(items) + (per_block - 1)) // per_block


def _tile_of(length: int) -> int:
    """The tile that holds so many records."""
    return max(SPAN, 1 << (length - 1).bit_length()) if length else SPAN
