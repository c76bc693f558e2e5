"""Rows of sort keys put in order, in scratch memory or as results: what sort, top-k and ordered updates have in common.

rows of up to 1024 sort keys  compared in shared memory, several rows a block or a block a row
the best few of longer rows   found digit by digit, then put in order (`row_select.py`)
longer rows in order          by radix sort, a block a row or in passes over memory (`row_radix.py`)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal

from hidet.compute.definition import Routine, Scatter
from hidet.dims import Dim
from hidet.dtypes import DType
from hidet.gpu.schedules.exchange import block_number, has_warps, thread_in_block
from hidet.gpu.schedules.row_radix import RadixPasses, most_in_tile, order_in_tile
from hidet.gpu.schedules.row_select import MOST_SELECTED, write_selected
from hidet.gpu.schedules.row_sort_keys import RowKernel, Rows, SortKeys
from hidet.gpu.schedules.sort_kernels import MOST, SPAN, Tile, bitonic_sort, greatest, threads_of, tile_memory
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Var
from hidet.ir.stmt import Declare
from hidet.schedule.fallback import NestBuilder
from hidet.target import GpuTarget

Method = Literal["compare", "select", "radix in a block", "radix in memory"]
_METHODS: tuple[Method, ...] = ("compare", "select", "radix in a block", "radix in memory")

_SHORT = 1024
"""Sort keys of a row up to which it is ordered by comparing."""
_MANY = 8
"""A row that a block can put in order is, where more than one of so many elements are wanted."""


def can_order(target: GpuTarget) -> bool:
    """Whether a target's warps and blocks are those that these kernels are written for."""
    return has_warps(target) and target.block_threads >= MOST // 2


def methods(length: Dim, wanted: Dim, parts: Sequence[DType]) -> tuple[Method, ...]:
    """The ways in which the first `wanted` of `length` sort keys of these parts can be written in order."""
    known = length if isinstance(length, int) else sys.maxsize
    possible = {
        "compare": known <= MOST,
        "select": isinstance(wanted, int) and wanted <= MOST_SELECTED,
        "radix in a block": known <= most_in_tile(parts),
        "radix in memory": True,
    }
    return tuple(method for method in _METHODS if possible[method])


def usual_method(length: Dim, wanted: Dim, parts: Sequence[DType]) -> Method:
    """The fastest of them, by sizes."""
    known = length if isinstance(length, int) else sys.maxsize
    possible = methods(length, wanted, parts)
    if known <= _SHORT:
        return "compare"
    fits = "radix in a block" in possible
    if "select" in possible and isinstance(wanted, int) and not (fits and _MANY * wanted > known):
        return "select"
    return "radix in a block" if fits else "radix in memory"


def write_first(nest: NestBuilder, stage: Routine | Scatter, rows: Rows, wanted: Dim, method: Method) -> None:
    """Add the kernels that write the first sort keys of every row, in order, as results; by one of `methods`."""
    if method == "compare":
        assert isinstance(rows.length, int)
        _order_short(nest, stage, rows, rows.length, None, wanted)
    elif method == "select":
        assert isinstance(wanted, int)
        write_selected(nest, stage, rows, wanted)
    elif method == "radix in a block":
        assert isinstance(rows.length, int)
        order_in_tile(nest, stage, rows, rows.length, None, wanted)
    else:
        RadixPasses(nest, stage, rows).write_first(wanted)


def in_order(nest: NestBuilder, stage: Routine | Scatter, rows: Rows) -> SortKeys:
    """Add the kernels that put all sort keys of every row in order, in scratch memory. Only for rows of known
    length."""
    length = rows.length
    assert isinstance(length, int)
    if length > most_in_tile(rows.parts):
        return RadixPasses(nest, stage, rows).in_order()
    total = rows.count * length
    target = SortKeys(tuple(nest.scratch(f"ordered{n}", dtype, total) for n, dtype in enumerate(rows.parts)), length)
    order = _order_short if length <= _SHORT else order_in_tile
    order(nest, stage, rows, length, target, length)
    return target


def _order_short(
    nest: NestBuilder, stage: Routine | Scatter, rows: Rows, length: int, target: SortKeys | None, wanted: Dim
) -> None:
    """Order short rows, and keep the first sort keys of each, in memory or, without a target, as results."""
    kernel = RowKernel(nest, stage, rows)
    kept = None if target is None else kernel.memory(target)
    # The tile that holds so many sort keys.
    elements = max(SPAN, 1 << max(length - 1, 0).bit_length())
    half_tile, threads = elements // 2, threads_of(elements)
    teams = threads // half_tile
    count, ends, items = kernel.size(length), kernel.size(wanted), kernel.size(rows.count)
    kept_count = build.index(0) if target is None else kernel.size(target.count)
    k, parts = IRBuilder(), tile_memory(rows.parts, elements * teams)
    k.emit(*map(Declare, parts))
    thread = k.let("thread", thread_in_block())
    member = k.let("member", thread % half_tile)
    item = k.let("item", block_number() * teams + thread // half_tile)
    is_there = k.let("is_there", item < items)
    kernel.row_of(k, build.minimum(item, items - 1), 1, "number")
    tile = Tile(parts, elements, (thread // half_tile) * elements, member)
    places: list[Var] = []
    for half in range(2):
        place = k.let(f"place{half}", member + half * half_tile)
        sort_key = k.let_each(f"sort_key{half}_", greatest(rows.parts))
        with k.if_(build.logical_and(is_there, place < count)):
            for var, value in zip(sort_key, rows.sort_key(kernel, place), strict=True):
                k.assign(var, build.cast(value, var.dtype))
        tile.store(k, place, sort_key)
        places.append(place)
    bitonic_sort(k, tile)
    for place in places:
        with k.if_(build.logical_and(is_there, place < ends)):
            if kept is None:
                kernel.finish(k, place, tile.load(place))
            else:
                kernel.store(k, kept, place, kept_count, tile.load(place))
    kernel.launch(k.body, rows.count, teams, threads)
