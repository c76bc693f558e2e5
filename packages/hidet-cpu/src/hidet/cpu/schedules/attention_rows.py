"""What attention does to a block of queries besides multiplying: finding its rows, reading, masking, writing them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from hidet import dtypes
from hidet.cpu.math.steps import like
from hidet.cpu.schedules.attention_softmax import SoftmaxState
from hidet.cpu.schedules.attention_tile import TileShape, local_array
from hidet.cpu.schedules.gemm_program import parameter
from hidet.cpu.schedules.transpose_tile import transpose_tile
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.schedule.attention_problem import Placement, exponent_of_two
from hidet.schedule.lowering import KernelScope


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A tensor inside a kernel: its first element for the work item's leading indices, and its strides.

    rows: local array of the offset of each query's row; None for tensors that are not read by query.
    """

    placement: Placement
    pointer: Expr
    group: Expr
    row: Expr
    inner: Expr
    rows: Var | None

    @property
    def is_contiguous(self) -> bool:
        """Whether neighbours along the last axis are neighbours in memory."""
        return self.placement.inner == 1

    def row_of(self, lane: Expr) -> Expr:
        """Offset of the row of the query in `lane`."""
        assert self.rows is not None
        return build.load(self.rows, lane)


def place_tensor(
    k: IRBuilder, scope: KernelScope, name: str, placement: Placement, leading: Sequence[Expr], queries: int
) -> Place:
    """Add the tensor's parameters to `scope` and find its start.

    queries: queries of a block, for tensors that are read by query; 0 for others.
    """
    given = scope.pointer(name, placement.dtype)
    strides = [parameter(scope, stride, f"{name}_stride{n}") for n, stride in enumerate(placement.leading)]
    start = k.let(f"{name}_start", build.address(given, build.flatten(leading, strides)))
    rows = local_array(k, f"{name}_rows", dtypes.i64, queries) if queries else None
    group, row = parameter(scope, placement.group, f"{name}_group"), parameter(scope, placement.row, f"{name}_row")
    return Place(placement, start, group, row, scope.size(placement.inner, f"{name}_inner"), rows)


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The queries of a work item.

    count: rows. vectors: vectors of the tile that holds them. lowest, highest: least and greatest query among them.
    positions: local array of the query in each lane; lanes from `count` on repeat the last row.
    """

    count: Expr
    vectors: Expr
    lowest: Expr
    highest: Expr
    positions: Var


def open_block(k: IRBuilder, shape: TileShape, item: Expr, rows: Expr, queries: Expr, places: Sequence[Place]) -> Block:
    """The block numbered `item`: all but the last one are full. Fills its tables."""
    first = k.let("first_row", item * shape.pitch)
    count = k.let("count", build.minimum(build.index(shape.pitch), rows - first))
    *fewer, most = sorted(shape.rows)
    covering = build.index(most)
    for vectors_of_tile in reversed(fewer):
        covering = build.select(count <= vectors_of_tile * shape.lanes, build.index(vectors_of_tile), covering)
    vectors = k.let("vectors", covering)
    last = first + count - 1
    is_grouped = rows is not queries
    lowest, highest = first, k.let("highest", last)
    if is_grouped:
        same_head = k.let("same_head", build.equal(first // queries, last // queries))
        lowest = k.let("lowest", build.select(same_head, first % queries, build.index(0)))
        highest = k.let("highest", build.select(same_head, last % queries, queries - 1))
    positions = local_array(k, "positions", dtypes.i32, shape.pitch)
    with k.for_range("lane", vectors * shape.lanes) as lane:
        row = k.let("row", first + build.minimum(lane, count - 1))
        head: Expr = row // queries if is_grouped else build.index(0)
        query = row % queries if is_grouped else row
        k.store(positions, lane, build.cast(query, dtypes.i32))
        for place in places:
            if place.rows is not None:
                k.store(place.rows, lane, head * place.group + query * place.row)
    return Block(count, vectors, lowest, highest, positions)


def number_parameter(scope: KernelScope, value: float) -> Expr:
    """A float that may differ between tasks of one kernel, passed as the bits of an f64."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return Bitcast(parameter(scope, bits, "number"), dtypes.f64)


def each_vector(k: IRBuilder, shape: TileShape, block: Block) -> AbstractContextManager[Var]:
    """A loop over the vectors of the block; gives the first lane of each."""
    return k.for_range("start", block.vectors * shape.lanes, step=shape.lanes)


def each_lane(k: IRBuilder, shape: TileShape, block: Block) -> AbstractContextManager[Var]:
    """A loop over the lanes of the block."""
    return k.for_range("lane", block.vectors * shape.lanes, kind="vectorize")


def load_queries(
    k: IRBuilder, shape: TileShape, block: Block, q: Place, depth: Expr, extent: int, factor: Expr, columns: Var
) -> None:
    """columns[d][query] = q[query][d] * factor. `extent` is the constant that `depth` stands for."""
    dtype, lanes, pitch = shape.dtype, shape.lanes, shape.pitch
    scale = k.let("scale", build.cast(factor, dtype))
    if not q.is_contiguous or extent < lanes:
        with k.for_range("d", depth) as d, each_lane(k, shape, block) as lane:
            value = build.cast(build.load(q.pointer, q.row_of(lane) + d * q.inner), dtype)
            k.store(columns, d * pitch + lane, value * scale)
        return
    with each_vector(k, shape, block) as start, k.for_range("step", depth, step=lanes) as step:
        d = k.let("d", build.minimum(step, depth - lanes))
        rows = [build.load(q.pointer, q.row_of(start + i) + d, lanes=lanes) for i in range(lanes)]
        turned = transpose_tile(k, [build.cast(row, dtype) * build.broadcast(scale, lanes) for row in rows])
        for i, column in enumerate(turned):
            k.store(columns, (d + i) * pitch + start, column)


def store_results(
    k: IRBuilder, shape: TileShape, block: Block, out: Place, width: Expr, extent: int, sums: Var, total: Var
) -> None:
    """out[query][e] = sums[e][query] / total, or 0 where no key had a weight. `extent` is the constant in `width`."""
    dtype, lanes, pitch = out.placement.dtype, shape.lanes, shape.pitch
    with each_vector(k, shape, block) as start:
        _normalise(k, shape, start, width, sums, total)
    if not out.is_contiguous or extent < lanes:
        with k.for_range("lane", block.count) as lane, k.for_range("e", width) as e:
            k.store(
                out.pointer, out.row_of(lane) + e * out.inner, build.cast(build.load(sums, e * pitch + lane), dtype)
            )
        return
    with each_vector(k, shape, block) as start, k.for_range("step", width, step=lanes) as step:
        e = k.let("e", build.minimum(step, width - lanes))
        turned = transpose_tile(k, [build.load(sums, (e + i) * pitch + start, lanes=lanes) for i in range(lanes)])
        for i, row in enumerate(turned):
            with k.if_(start + i < block.count):
                k.store(out.pointer, out.row_of(start + i) + e, build.cast(row, dtype))


def _normalise(k: IRBuilder, shape: TileShape, start: Var, width: Expr, sums: Var, total: Var) -> None:
    weights = k.let("weights", build.load(total, start, lanes=shape.lanes))
    zero = like(weights, 0.0)
    is_empty = k.let("is_empty", build.equal(weights, zero))
    inverse = k.let("inverse", like(weights, 1.0) / weights)
    with k.for_range("e", width) as e:
        place = e * shape.pitch + start
        k.store(sums, place, build.select(is_empty, zero, build.load(sums, place, lanes=shape.lanes) * inverse))


def store_logsumexp(k: IRBuilder, block: Block, out: Place, state: SoftmaxState) -> None:
    """out[query] = log(sum(exp(scores))), from the logarithm to base 2 of the largest and the sum relative to it."""
    with k.for_range("lane", block.count) as lane:
        exponent = build.load(state.top, lane) + build.unary("log2", build.load(state.total, lane))
        k.store(out.pointer, out.row_of(lane), build.cast(exponent * math.log(2), out.placement.dtype))


def apply_mask(k: IRBuilder, shape: TileShape, block: Block, mask: Place, scores: Var, first: Expr, keys: Expr) -> None:
    """Hide or shift the scores of `keys` keys from key `first` on, as the task's mask says."""
    if mask.placement.group == 0 and mask.placement.row == 0:
        _mask_shared(k, shape, block, mask, scores, first, keys)
        return
    dtype, lanes = shape.dtype, shape.lanes
    done: Expr = build.index(0)
    if mask.is_contiguous:
        done = k.let("whole", keys // lanes * lanes)
        with k.for_range("step", done, step=lanes) as step, each_vector(k, shape, block) as start:
            places = [mask.row_of(start + i) + (first + step) for i in range(lanes)]
            rows = [build.cast(build.load(mask.pointer, place, lanes=lanes), dtype) for place in places]
            for i, entry in enumerate(transpose_tile(k, rows)):
                place = (step + i) * shape.pitch + start
                shown = build.binary("ne", entry, like(entry, 0.0)) if mask.placement.dtype.is_bool else entry
                k.store(scores, place, mask_score(build.load(scores, place, lanes=lanes), shown, dtype))
    with k.for_range("key", keys - done, start=done) as key, each_lane(k, shape, block) as lane:
        place = key * shape.pitch + lane
        score = k.let("score", build.load(scores, place))
        entry = k.let("entry", build.load(mask.pointer, mask.row_of(lane) + (first + key) * mask.inner))
        k.store(scores, place, mask_score(score, entry, dtype))


def _mask_shared(
    k: IRBuilder, shape: TileShape, block: Block, mask: Place, scores: Var, first: Expr, keys: Expr
) -> None:
    with k.for_range("key", keys) as key:
        entry = k.let("entry", build.load(mask.pointer, (first + key) * mask.inner))
        with each_vector(k, shape, block) as start:
            place = key * shape.pitch + start
            score = build.load(scores, place, lanes=shape.lanes)
            k.store(scores, place, mask_score(score, build.broadcast(entry, shape.lanes), shape.dtype))


def mask_score(score: Expr, entry: Expr, dtype: DType) -> Expr:
    """A score to base 2 under a mask's entry: bool shows or hides, a number is added."""
    if entry.dtype.is_bool:
        return build.select(entry, score, like(score, -math.inf))
    return score + exponent_of_two(build.cast(entry, dtype))


def apply_band(
    k: IRBuilder,
    shape: TileShape,
    block: Block,
    scores: Var,
    first: Expr,
    keys: Expr,
    low: Expr | None,
    high: Expr | None,
) -> None:
    """Hide, of `keys` keys from key `first` on, those outside of i + low to i + high for query i."""
    none = build.const(False, dtypes.boolean)
    behind = none if high is None else first + keys - 1 > block.lowest + high
    before = none if low is None else first < block.highest + low
    with (
        k.if_(build.binary("lor", behind, before)),
        k.for_range("key", keys) as key,
        each_vector(k, shape, block) as start,
    ):
        place = key * shape.pitch + start
        position = build.load(block.positions, start, lanes=shape.lanes)

        def seen(number: Expr, is_first: bool) -> Expr:
            bounded = build.maximum(build.minimum(number, int(dtypes.i32.max)), int(dtypes.i32.min))
            shown = build.broadcast(build.cast(bounded, dtypes.i32), shape.lanes)
            return shown >= position if is_first else position >= shown

        bounds = [*([] if high is None else [seen(first + key - high, False)])]
        bounds += [] if low is None else [seen(first + key - low, True)]
        score: Expr = k.let("score", build.load(scores, place, lanes=shape.lanes))
        for is_seen in bounds:
            score = build.select(is_seen, score, like(score, -math.inf))
        k.store(scores, place, score)
