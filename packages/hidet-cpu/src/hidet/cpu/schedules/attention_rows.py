"""What attention does to a block of queries besides multiplying: finding its rows, reading, masking, writing them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dtypes
from hidet.cpu.math.steps import Steps, like
from hidet.cpu.schedules.attention_softmax import SoftmaxState
from hidet.cpu.schedules.attention_tile import TileShape, local_array
from hidet.cpu.schedules.gemm_program import parameter
from hidet.cpu.schedules.transpose_tile import transpose_tile
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.expr import Bitcast, Expr, Var
from hidet.ir.stmt import Declare, For, If, Stmt, Store
from hidet.schedule.attention_problem import Placement
from hidet.schedule.lowering import KernelScope

LOG2_E = 1 / math.log(2)


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
    scope: KernelScope, name: str, placement: Placement, leading: Sequence[Expr], queries: int
) -> tuple[Place, list[Stmt]]:
    """The tensor's parameters in `scope` and the statements that find its start.

    queries: queries of a block, for tensors that are read by query; 0 for others.
    """
    given = scope.pointer(name, placement.dtype)
    strides = [parameter(scope, stride, f"{name}_stride{n}") for n, stride in enumerate(placement.leading)]
    start = Var(f"{name}_start", given.type)
    stmts: list[Stmt] = [Declare(start, build.address(given, build.flatten(leading, strides)))]
    rows = None
    if queries:
        rows = local_array(f"{name}_rows", dtypes.i64, queries)
        stmts.append(Declare(rows))
    group, row = parameter(scope, placement.group, f"{name}_group"), parameter(scope, placement.row, f"{name}_row")
    return Place(placement, start, group, row, scope.size(placement.inner, f"{name}_inner"), rows), stmts


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


def open_block(
    shape: TileShape, item: Expr, rows: Expr, queries: Expr, places: Sequence[Place]
) -> tuple[Block, list[Stmt]]:
    """The block numbered `item`: all but the last one are full. Fills its tables."""
    s = Steps()
    first = s.let("first_row", item * shape.pitch)
    count = s.let("count", build.minimum(build.index(shape.pitch), rows - first))
    *fewer, most = sorted(shape.rows)
    covering = build.index(most)
    for vectors_of_tile in reversed(fewer):
        covering = build.select(count <= vectors_of_tile * shape.lanes, build.index(vectors_of_tile), covering)
    vectors = s.let("vectors", covering)
    last = first + count - 1
    is_grouped = rows is not queries
    lowest, highest = first, s.let("highest", last)
    if is_grouped:
        same_head = s.let("same_head", build.equal(first // queries, last // queries))
        lowest = s.let("lowest", build.select(same_head, first % queries, build.index(0)))
        highest = s.let("highest", build.select(same_head, last % queries, queries - 1))
    positions = local_array("positions", dtypes.i32, shape.pitch)
    lane = build.size_var("lane")
    row = Var("row", dtypes.i64)
    head: Expr = row // queries if is_grouped else build.index(0)
    query = row % queries if is_grouped else row
    fill: list[Stmt] = [Declare(row, first + build.minimum(lane, count - 1))]
    fill.append(Store(positions, (lane,), build.cast(query, dtypes.i32)))
    for place in places:
        if place.rows is not None:
            fill.append(Store(place.rows, (lane,), head * place.group + query * place.row))
    s.statements += [Declare(positions), For(lane, build.index(0), vectors * shape.lanes, build.seq(fill))]
    return Block(count, vectors, lowest, highest, positions), s.statements


def number_parameter(scope: KernelScope, value: float) -> Expr:
    """A float that may differ between tasks of one kernel, passed as the bits of an f64."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return Bitcast(parameter(scope, bits, "number"), dtypes.f64)


def each_vector(shape: TileShape, block: Block, body: Callable[[Var], Stmt]) -> Stmt:
    """`body` for the first lane of every vector of the block."""
    start = build.size_var("start")
    return For(start, build.index(0), block.vectors * shape.lanes, body(start), step=shape.lanes)


def each_lane(shape: TileShape, block: Block, body: Callable[[Var], Stmt]) -> Stmt:
    """`body` for every lane of the block."""
    lane = build.size_var("lane")
    return For(lane, build.index(0), block.vectors * shape.lanes, body(lane), kind="vectorize")


def load_queries(
    shape: TileShape, block: Block, q: Place, depth: Expr, extent: int, factor: Expr, columns: Var
) -> Stmt:
    """columns[d][query] = q[query][d] * factor. `extent` is the constant that `depth` stands for."""
    scale = Var("scale", shape.dtype)
    declared = Declare(scale, build.cast(factor, shape.dtype))
    if not q.is_contiguous or extent < shape.lanes:
        d = build.size_var("d")

        def element(lane: Var) -> Stmt:
            value = build.cast(build.load(q.pointer, q.row_of(lane) + d * q.inner), shape.dtype)
            return Store(columns, (d * shape.pitch + lane,), value * scale)

        return build.seq([declared, For(d, build.index(0), depth, each_lane(shape, block, element))])

    def vector(start: Var) -> Stmt:
        step, d = build.size_var("step"), build.size_var("d")
        rows = []
        for i in range(shape.lanes):
            row = build.load(q.pointer, q.row_of(start + i) + d, lanes=shape.lanes)
            rows.append(build.cast(row, shape.dtype) * build.broadcast(scale, shape.lanes))
        stmts, turned = transpose_tile(rows)
        stmts = [Declare(d, build.minimum(step, depth - shape.lanes)), *stmts]
        stmts += [Store(columns, ((d + i) * shape.pitch + start,), column) for i, column in enumerate(turned)]
        return For(step, build.index(0), depth, build.seq(stmts), step=shape.lanes)

    return build.seq([declared, each_vector(shape, block, vector)])


def store_results(shape: TileShape, block: Block, out: Place, width: Expr, extent: int, sums: Var, total: Var) -> Stmt:
    """out[query][e] = sums[e][query] / total, or 0 where no key had a weight. `extent` is the constant in `width`."""
    dtype, lanes = out.placement.dtype, shape.lanes
    normalise = each_vector(shape, block, lambda start: _normalise(shape, start, width, sums, total))
    if not out.is_contiguous or extent < lanes:
        e, lane = build.size_var("e"), build.size_var("lane")
        value = build.cast(build.load(sums, e * shape.pitch + lane), dtype)
        copy = For(e, build.index(0), width, Store(out.pointer, (out.row_of(lane) + e * out.inner,), value))
        return build.seq([normalise, For(lane, build.index(0), block.count, copy)])

    def vector(start: Var) -> Stmt:
        step, e = build.size_var("step"), build.size_var("e")
        rows = [build.load(sums, (e + i) * shape.pitch + start, lanes=lanes) for i in range(lanes)]
        stmts, turned = transpose_tile(rows)
        stmts = [Declare(e, build.minimum(step, width - lanes)), *stmts]
        for i, row in enumerate(turned):
            store = Store(out.pointer, (out.row_of(start + i) + e,), build.cast(row, dtype))
            stmts.append(If(start + i < block.count, store))
        return For(step, build.index(0), width, build.seq(stmts), step=lanes)

    return build.seq([normalise, each_vector(shape, block, vector)])


def _normalise(shape: TileShape, start: Var, width: Expr, sums: Var, total: Var) -> Stmt:
    s = Steps()
    weights = s.let("weights", build.load(total, start, lanes=shape.lanes))
    zero = like(weights, 0.0)
    is_empty = s.let("is_empty", build.equal(weights, zero))
    inverse = s.let("inverse", like(weights, 1.0) / weights)
    e = build.size_var("e")
    place = e * shape.pitch + start
    value = build.select(is_empty, zero, build.load(sums, place, lanes=shape.lanes) * inverse)
    s.statements.append(For(e, build.index(0), width, Store(sums, (place,), value)))
    return build.seq(s.statements)


def store_logsumexp(shape: TileShape, block: Block, out: Place, state: SoftmaxState) -> Stmt:
    """out[query] = log(sum(exp(scores))), from the logarithm to base 2 of the largest and the sum relative to it."""
    lane = build.size_var("lane")
    exponent = build.load(state.top, lane) + build.unary("log2", build.load(state.total, lane))
    value = build.cast(exponent * math.log(2), out.placement.dtype)
    return For(lane, build.index(0), block.count, Store(out.pointer, (out.row_of(lane),), value))


def apply_mask(shape: TileShape, block: Block, mask: Place, scores: Var, first: Expr, keys: Expr) -> Stmt:
    """Hide or shift the scores of `keys` keys from key `first` on, as the task's mask says."""
    is_shared = mask.placement.group == 0 and mask.placement.row == 0
    if is_shared:
        return _mask_shared(shape, block, mask, scores, first, keys)
    key = build.size_var("key")

    def element(lane: Var) -> Stmt:
        s = Steps()
        place = key * shape.pitch + lane
        score = s.let("score", build.load(scores, place))
        entry = s.let("entry", build.load(mask.pointer, mask.row_of(lane) + (first + key) * mask.inner))
        return build.seq([*s.statements, Store(scores, (place,), mask_score(score, entry, shape.dtype))])

    if not mask.is_contiguous:
        return For(key, build.index(0), keys, each_lane(shape, block, element))
    lanes = shape.lanes
    whole = Var("whole", dtypes.i64)
    step = build.size_var("step")

    def tile(start: Var) -> Stmt:
        rows = [
            build.cast(build.load(mask.pointer, mask.row_of(start + i) + (first + step), lanes=lanes), shape.dtype)
            for i in range(lanes)
        ]
        stmts, turned = transpose_tile(rows)
        for i, entry in enumerate(turned):
            place = (step + i) * shape.pitch + start
            shown = build.binary("ne", entry, like(entry, 0.0)) if mask.placement.dtype.is_bool else entry
            score = build.load(scores, place, lanes=lanes)
            stmts.append(Store(scores, (place,), mask_score(score, shown, shape.dtype)))
        return build.seq(stmts)

    return build.seq(
        [
            Declare(whole, keys // lanes * lanes),
            For(step, build.index(0), whole, each_vector(shape, block, tile), step=lanes),
            For(key, whole, keys - whole, each_lane(shape, block, element)),
        ]
    )


def _mask_shared(shape: TileShape, block: Block, mask: Place, scores: Var, first: Expr, keys: Expr) -> Stmt:
    key, entry = build.size_var("key"), Var("entry", mask.placement.dtype)

    def vector(start: Var) -> Stmt:
        place = key * shape.pitch + start
        score = build.load(scores, place, lanes=shape.lanes)
        return Store(scores, (place,), mask_score(score, build.broadcast(entry, shape.lanes), shape.dtype))

    read = Declare(entry, build.load(mask.pointer, (first + key) * mask.inner))
    return For(key, build.index(0), keys, build.seq([read, each_vector(shape, block, vector)]))


def mask_score(score: Expr, entry: Expr, dtype: DType) -> Expr:
    """A score to base 2 under a mask's entry: bool shows or hides, a number is added."""
    if entry.dtype.is_bool:
        return build.select(entry, score, like(score, -math.inf))
    return score + build.cast(entry, dtype) * like(score, LOG2_E)


def apply_causal(shape: TileShape, block: Block, scores: Var, first: Expr, keys: Expr) -> Stmt:
    """Hide the keys after each query."""
    key = build.size_var("key")

    def vector(start: Var) -> Stmt:
        place = key * shape.pitch + start
        position = build.load(block.positions, start, lanes=shape.lanes)
        number = build.broadcast(build.cast(first + key, dtypes.i32), shape.lanes)
        score = build.load(scores, place, lanes=shape.lanes)
        return Store(scores, (place,), build.select(position >= number, score, like(score, -math.inf)))

    hide = For(key, build.index(0), keys, each_vector(shape, block, vector))
    return If(first + keys - 1 > block.lowest, hide)
