"""Rows of records put in order, in scratch memory or as results: what sort, top-k and ordered updates have in common.

rows of up to 1024 records      compared in shared memory, several rows a block or a block a row
the best few of longer rows     found digit by digit, then put in order (`row_select.py`)
longer rows in order            by radix sort, a block a row or in passes over memory (`row_radix.py`)
"""

from __future__ import annotations

import sys

from hidet import dtypes
from hidet.compute.definition import Routine, Scatter
from hidet.cuda.schedules.exchange import block_number, thread_in_block
from hidet.cuda.schedules.row_radix import RadixPasses, most_in_tile, order_in_tile
from hidet.cuda.schedules.row_records import Records, RowKernel, Rows
from hidet.cuda.schedules.row_select import MOST_SELECTED, write_selected
from hidet.cuda.schedules.sort_kernels import SPAN, Tile, bitonic_sort, greatest, threads_of, tile_memory
from hidet.dims import Dim
from hidet.ir import build
from hidet.ir.expr import Var
from hidet.ir.stmt import Assign, Declare, If, Stmt
from hidet.schedule.fallback import NestBuilder

_SHORT = 1024
"""Records of a row up to which it is ordered by comparing."""
_MANY = 8
"""A row that a block can put in order is, where more than one of so many elements are wanted."""


def write_first(nest: NestBuilder, stage: Routine | Scatter, rows: Rows, wanted: Dim) -> None:
    """Add the kernels that write the first records of every row, in order, as results."""
    length = rows.length if isinstance(rows.length, int) else sys.maxsize
    fits = length <= most_in_tile(rows)
    if length <= _SHORT:
        _order_short(nest, stage, rows, length, None, wanted)
    elif isinstance(wanted, int) and wanted <= MOST_SELECTED and not (fits and _MANY * wanted > length):
        write_selected(nest, stage, rows, wanted)
    elif fits:
        order_in_tile(nest, stage, rows, length, None, wanted)
    else:
        RadixPasses(nest, stage, rows).write_first(wanted)


def in_order(nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> Records:
    """Add the kernels that put all records of every row in order, in scratch memory. Only for rows of known length."""
    length = rows.length
    assert isinstance(length, int)
    if length > most_in_tile(rows):
        return RadixPasses(nest, stage, rows).in_order()
    total = rows.count * length
    target = Records(tuple(nest.scratch(f"ordered{n}", dtype, total) for n, dtype in enumerate(rows.parts)), length)
    order = _order_short if length <= _SHORT else order_in_tile
    order(nest, stage, rows, length, target, length)
    return target


def _order_short(
    nest: NestBuilder, stage: Routine | Scatter, rows: Rows, length: int, target: Records | None, wanted: Dim
) -> None:
    """Order short rows, and keep the first records of each, in memory or, without a target, as results."""
    kernel = RowKernel(nest, stage, rows)
    kept = None if target is None else kernel.memory(target)
    # The tile that holds so many records.
    elements = max(SPAN, 1 << max(length - 1, 0).bit_length())
    half_tile, threads = elements // 2, threads_of(elements)
    teams = threads // half_tile
    count, ends, items = kernel.size(length), kernel.size(wanted), kernel.size(rows.count)
    kept_count = build.index(0) if target is None else kernel.size(target.count)
    thread, item, number, member = (build.size_var(name) for name in ("thread", "item", "number", "member"))
    is_there = Var("is_there", dtypes.boolean)
    parts = tile_memory(rows.parts, elements * teams)
    tile = Tile(parts, elements, (thread // half_tile) * elements, member)
    load: list[Stmt] = []
    store: list[Stmt] = []
    for half in range(2):
        place = build.size_var(f"place{half}")
        record = [Var(f"record{half}_{n}", dtype) for n, dtype in enumerate(rows.parts)]
        read = rows.record(kernel, place)
        present = [Assign(var, build.cast(value, var.dtype)) for var, value in zip(record, read, strict=True)]
        load += [
            Declare(place, member + half * half_tile),
            *(Declare(v, x) for v, x in zip(record, greatest(rows.parts), strict=True)),
            If(build.logical_and(is_there, place < count), build.seq(present)),
            *tile.store(place, record),
        ]
        if kept is None:
            written = kernel.finish(place, tile.load(place))
        else:
            written = kernel.store(kept, place, kept_count, tile.load(place))
        store.append(If(build.logical_and(is_there, place < ends), build.seq(written)))
    body = [
        *map(Declare, parts),
        Declare(thread, thread_in_block()),
        Declare(member, thread % half_tile),
        Declare(item, block_number() * teams + thread // half_tile),
        Declare(is_there, item < items),
        *kernel.row_of(build.minimum(item, items - 1), 1, number),
        *load,
        *bitonic_sort(tile),
        *store,
    ]
    kernel.launch(body, rows.count, teams, threads)
