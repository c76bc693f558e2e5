"""Attention for one query, or a few that share keys: bound by reading k and v, each of which is read once.

Lanes hold elements of rows: of k for the scores and of v for the weighted sum; between, for the softmax, keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hidet import dims, dtypes
from hidet.cpu.math.exponential import LOG2_E
from hidet.cpu.math.steps import like
from hidet.cpu.schedules.attention_kernel import AttentionKernel, array_extent
from hidet.cpu.schedules.attention_rows import Place, mask_score, number_parameter, place_tensor
from hidet.cpu.schedules.attention_softmax import exp2_of_nonpositive, larger, number_format
from hidet.cpu.schedules.attention_tile import local_array
from hidet.cpu.schedules.gemm_program import parameter
from hidet.cpu.schedules.transpose_tile import reduce_lanes, sum_lanes
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.lowering import KernelScope

MOST_ROWS = 4
"""With more rows the tiles of `attention_flash`, which compute sixteen at least, are no slower."""

DECODE_KEYS = 256
"""Keys scored at a time."""
_BYTES_PER_NANOSECOND = 10

# Vectors of a row of v that are summed together; two keys at a time when there are few, to have sums to wait for.
_VECTORS_TOGETHER = 4


def is_decode(problem: AttentionProblem) -> bool:
    """Whether `decode_kernel` can take the problem: few rows that see the first key, and rows of k and v contiguous."""
    if problem.packed is not None:
        return False
    is_small = isinstance(problem.rows, int) and problem.rows <= MOST_ROWS
    return is_small and problem.k.inner == 1 and problem.v.inner == 1


def vectors_together(width: int, lanes: int) -> int:
    """Vectors of a row of v, of `width` elements, that are summed together: a pass over the keys of a block."""
    return _VECTORS_TOGETHER if width % (_VECTORS_TOGETHER * lanes) == 0 else 1


def decode_kernel(problem: AttentionProblem, lanes: int, key_block: int) -> AttentionKernel:
    """The kernel for `problem`, scoring `key_block` keys at a time; a work item computes all rows that share keys."""
    scope = KernelScope()
    leading = [build.size_var(f"lead{n}") for n in range(len(problem.leading))]
    places: dict[str, Place] = {}
    k = IRBuilder()
    for name, placement in problem.tensors().items():
        places[name] = place_tensor(k, scope, name, placement, leading, 0)
    _Decode(k, problem, lanes, key_block, scope, places).write()
    function = Function("attention", scope.params, k.body, kind="kernel", grid_vars=tuple(leading))
    row_bytes = problem.depth * problem.k.dtype.nbytes + problem.width * problem.v.dtype.nbytes
    cost = dims.floordiv(problem.keys * row_bytes, _BYTES_PER_NANOSECOND) + 1
    return AttentionKernel(function, (), scope, problem.leading or (1,), cost)


class _Decode:
    """Writes the kernel. Local arrays hold row after row; a row's `top` is its largest score so far, its `total` the
    sum of its weights."""

    def __init__(
        self,
        k: IRBuilder,
        problem: AttentionProblem,
        lanes: int,
        key_block: int,
        scope: KernelScope,
        places: dict[str, Place],
    ) -> None:
        assert isinstance(problem.rows, int)
        self.k = k
        self.problem = problem
        self.lanes, self.key_block = lanes, key_block
        self.places = places
        self.rows = problem.rows
        self.dtype = problem.compute
        self.depth, self.width = parameter(scope, problem.depth, "depth"), parameter(scope, problem.width, "width")
        self.keys = parameter(scope, problem.keys, "keys")
        self.factor = number_parameter(scope, problem.scale * LOG2_E)
        self.query_pitch, self.sum_pitch = array_extent(problem.depth), array_extent(problem.width)
        self.score_pitch = key_block + lanes
        self.queries = local_array(k, "queries", self.dtype, self.rows * self.query_pitch)
        self.scores = local_array(k, "scores", self.dtype, self.rows * self.score_pitch)
        self.sums = local_array(k, "sums", self.dtype, self.rows * self.sum_pitch)
        self.lane_numbers = local_array(k, "lane_numbers", dtypes.i32, lanes)

    def write(self) -> None:
        k = self.k
        for lane in range(self.lanes):
            k.store(self.lane_numbers, lane, build.const(lane, dtypes.i32))
        self.top = k.let_each("top", [build.const(-float("inf"), self.dtype)] * self.rows)
        self.total = k.let_each("total", [build.const(0, self.dtype)] * self.rows)
        self._load_queries()
        self._key_loop()
        self._store_results()

    def _row_offset(self, place: Place, row: int) -> Expr:
        """Offset of row number `row` of a tensor that is read by query."""
        queries = self.problem.queries
        assert isinstance(queries, int)
        return place.group * (row // queries) + place.row * (row % queries)

    def _load_queries(self) -> None:
        k, q = self.k, self.places["q"]
        scale = k.let("scale", build.cast(self.factor, self.dtype))
        for array, elements in ((self.queries, self.rows * self.query_pitch), (self.sums, self.rows * self.sum_pitch)):
            with k.for_range("place", elements, kind="vectorize") as place:
                k.store(array, place, build.const(0, self.dtype))
        with k.for_range("d", self.depth, kind="vectorize") as d:
            for row in range(self.rows):
                value = build.cast(build.load(q.pointer, self._row_offset(q, row) + d * q.inner), self.dtype)
                k.store(self.queries, d + row * self.query_pitch, value * scale)

    # --- one block of keys -------------------------------------------------------------------------------------------

    def _key_loop(self) -> None:
        k, queries = self.k, self.problem.queries
        assert isinstance(queries, int)
        limit = build.minimum(self.keys, build.index(queries)) if self.problem.is_causal else self.keys
        with k.for_range("first_key", limit, step=self.key_block) as first:
            keys = k.let("keys", build.minimum(build.index(self.key_block), limit - first))
            padded = k.let("padded", (keys + (self.lanes - 1)) // self.lanes * self.lanes)
            self._score(first, keys)
            self._mask(first, keys)
            with k.for_range("key", padded - keys, start=keys) as key:
                for row in range(self.rows):
                    k.store(self.scores, key + row * self.score_pitch, build.const(-float("inf"), self.dtype))
            for row in range(self.rows):
                self._softmax(row, padded)
            self._sum_weighted(first, keys)

    def _score(self, first: Expr, keys: Expr) -> None:
        """As many keys at a time as there are lanes; all rows but the first find them in the first-level cache."""
        k, source, lanes = self.k, self.places["k"], self.lanes
        with k.for_range("group", keys, step=lanes) as group:
            numbers = [first + build.minimum(group + lane, keys - 1) for lane in range(lanes)]
            pointers = k.let_each("key", (build.address(source.pointer, number * source.row) for number in numbers))
            for row in range(self.rows):
                sums = k.let_each("dot", [self._zero()] * lanes)

                def add(d: Expr, mask: Expr | None, row: int = row, sums: Sequence[Var] = sums) -> None:
                    query = k.let("query", build.load(self.queries, d + row * self.query_pitch, lanes=lanes))
                    k.assign_each(
                        sums,
                        [fma(self._read(p, d, mask), query, total) for total, p in zip(sums, pointers, strict=True)],
                    )

                self._each_part(self.problem.depth, self.depth, 1, add)
                k.store(self.scores, group + row * self.score_pitch, sum_lanes(k, sums))

    def _mask(self, first: Expr, keys: Expr) -> None:
        k, mask, queries = self.k, self.places.get("mask"), self.problem.queries
        if mask is None and not self.problem.is_causal:
            return
        assert isinstance(queries, int)
        with k.for_range("key", keys, kind="vectorize") as key:
            for row in range(self.rows):
                place = key + row * self.score_pitch
                score: Expr = k.let("score", build.load(self.scores, place))
                if mask is not None:
                    offset = self._row_offset(mask, row) + (first + key) * mask.inner
                    score = mask_score(score, k.let("entry", build.load(mask.pointer, offset)), self.dtype)
                if self.problem.is_causal:
                    score = build.select(first + key <= row % queries, score, like(score, -math.inf))
                k.store(self.scores, place, score)

    def _softmax(self, row: int, padded: Expr) -> None:
        """Scores of one row become weights relative to the new maximum; what is summed already decays."""
        k, form, lanes = self.k, number_format(self.dtype), self.lanes
        top, total = self.top[row], self.total[row]
        highest = k.let("highest", build.broadcast(top, lanes))
        with k.for_range("group", padded, step=lanes) as group:
            score = build.load(self.scores, group + row * self.score_pitch, lanes=lanes)
            k.assign(highest, larger(highest, score))
        new_top = k.let("new_top", reduce_lanes(k, highest, larger))
        shift = k.let("shift", build.select(build.equal(new_top, -float("inf")), like(new_top, 0.0), new_top))
        decay = exp2_of_nonpositive(k, k.let("fall", top - shift), form)
        weights = k.let("weights", self._zero())
        with k.for_range("again", padded, step=lanes) as again:
            place = again + row * self.score_pitch
            x = k.let("x", build.load(self.scores, place, lanes=lanes) - build.broadcast(shift, lanes))
            weight = exp2_of_nonpositive(k, x, form)
            k.store(self.scores, place, weight)
            k.assign(weights, weights + weight)
        block = reduce_lanes(k, weights, lambda a, b: a + b)
        k.assign(total, total * decay + block)
        k.assign(top, new_top)
        with k.for_range("e", self.width, kind="vectorize") as e:
            place = e + row * self.sum_pitch
            k.store(self.sums, place, build.load(self.sums, place) * decay)

    def _sum_weighted(self, first: Expr, keys: Expr) -> None:
        k, v, lanes = self.k, self.places["v"], self.lanes
        vectors = vectors_together(self.problem.width, lanes)
        start = k.let("v_block", build.address(v.pointer, first * v.row))

        def add(e: Expr, mask: Expr | None) -> None:
            places = [[e + (r * self.sum_pitch + j * lanes) for j in range(vectors)] for r in range(self.rows)]
            sums = [
                k.let_each(f"sum{r}_", (build.load(self.sums, place, lanes=lanes) for place in row))
                for r, row in enumerate(places)
            ]
            with k.for_range("key", keys) as key:
                parts = [key * v.row + e + j * lanes for j in range(vectors)]
                values = k.let_each("value", (self._read(start, part, mask) for part in parts))
                for r, row in enumerate(sums):
                    scalar = build.load(self.scores, key + r * self.score_pitch)
                    weight = k.let("weight", build.broadcast(scalar, lanes))
                    k.assign_each(row, [fma(value, weight, total) for total, value in zip(row, values, strict=True)])
            for row, row_places in zip(sums, places, strict=True):
                for total, place in zip(row, row_places, strict=True):
                    k.store(self.sums, place, total)

        self._each_part(self.problem.width, self.width, vectors, add)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _store_results(self) -> None:
        k, out, lse = self.k, self.places["out"], self.places.get("logsumexp")
        inverses: list[tuple[Var, Var]] = []
        for row, (top, total) in enumerate(zip(self.top, self.total, strict=True)):
            is_empty = k.let("is_empty", build.equal(total, 0.0))
            inverses.append((is_empty, k.let("inverse", like(total, 1.0) / total)))
            if lse is not None:
                entry = build.cast((top + build.unary("log2", total)) * math.log(2), lse.placement.dtype)
                k.store(lse.pointer, self._row_offset(lse, row), entry)
        with k.for_range("e", self.width, kind="vectorize") as e:
            for row, (is_empty, inverse) in enumerate(inverses):
                summed = build.load(self.sums, e + row * self.sum_pitch)
                value = build.select(is_empty, like(inverse, 0.0), summed * inverse)
                place = self._row_offset(out, row) + e * out.inner
                k.store(out.pointer, place, build.cast(value, out.placement.dtype))

    # --- vectors -----------------------------------------------------------------------------------------------------

    def _zero(self) -> Expr:
        return build.broadcast(build.const(0, self.dtype), self.lanes)

    def _read(self, pointer: Expr, place: Expr, mask: Expr | None) -> Expr:
        return build.cast(build.load(pointer, place, lanes=self.lanes, mask=mask), self.dtype)

    def _each_part(self, extent: int, size: Expr, vectors: int, body: Callable[[Expr, Expr | None], None]) -> None:
        """`body(start, mask)` for every part of so many vectors of a row of `extent`; the last one may need a mask."""
        k, step = self.k, vectors * self.lanes
        if extent % step == 0:
            with k.for_range("start", size, step=step) as start:
                body(start, None)
            return
        assert vectors == 1
        whole = k.let("whole", size // self.lanes * self.lanes)
        with k.for_range("start", whole, step=self.lanes) as start:
            body(start, None)
        rest = build.broadcast(build.cast(size - whole, dtypes.i32), self.lanes)
        body(whole, k.let("mask", build.load(self.lane_numbers, 0, lanes=self.lanes) < rest))
