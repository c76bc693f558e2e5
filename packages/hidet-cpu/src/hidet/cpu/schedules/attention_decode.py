"""Attention for one query, or a few that share keys: bound by reading k and v, each of which is read once.

Lanes hold elements of rows: of k for the scores and of v for the weighted sum; between, for the softmax, keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.cpu.math.steps import Steps, like
from hidet.cpu.schedules.attention_kernel import AttentionKernel, array_extent
from hidet.cpu.schedules.attention_rows import LOG2_E, Place, mask_score, number_parameter, place_tensor
from hidet.cpu.schedules.attention_softmax import exp2_of_nonpositive, larger, number_format
from hidet.cpu.schedules.attention_tile import local_array
from hidet.cpu.schedules.gemm_program import parameter
from hidet.cpu.schedules.transpose_tile import reduce_lanes, sum_lanes
from hidet.dtypes import DType
from hidet.ir import build
from hidet.ir.common_intrinsics import fma
from hidet.ir.expr import Expr, Var
from hidet.ir.func import Function
from hidet.ir.stmt import Assign, Declare, For, Stmt, Store
from hidet.ir.types import VectorType
from hidet.schedule.attention_problem import AttentionProblem
from hidet.schedule.lowering import KernelScope

MOST_ROWS = 4
"""With more rows the tiles of `attention_flash`, which compute sixteen at least, are no slower."""

_KEY_BLOCK = 256
_BYTES_PER_NANOSECOND = 10

# Vectors of a row of v that are summed together; two keys at a time when there are few, to have sums to wait for.
_VECTORS_TOGETHER = 4


def is_decode(problem: AttentionProblem) -> bool:
    """Whether `decode_kernel` can take the problem: few rows, and rows of k and v contiguous."""
    is_small = isinstance(problem.rows, int) and problem.rows <= MOST_ROWS
    return is_small and problem.k.inner == 1 and problem.v.inner == 1


def decode_kernel(problem: AttentionProblem, lanes: int) -> AttentionKernel:
    """The kernel for `problem`; a work item computes all rows that share keys."""
    scope = KernelScope()
    leading = [build.size_var(f"lead{n}") for n in range(len(problem.leading))]
    stmts: list[Stmt] = []
    places: dict[str, Place] = {}
    for name, placement in problem.tensors().items():
        places[name], found = place_tensor(scope, name, placement, leading, 0)
        stmts += found
    assert isinstance(problem.rows, int)
    arrays = _Arrays(
        queries=local_array("queries", problem.compute, problem.rows * array_extent(problem.depth)),
        scores=local_array("scores", problem.compute, problem.rows * (_KEY_BLOCK + lanes)),
        sums=local_array("sums", problem.compute, problem.rows * array_extent(problem.width)),
        top=[Var(f"top{r}", problem.compute) for r in range(problem.rows)],
        total=[Var(f"total{r}", problem.compute) for r in range(problem.rows)],
    )
    kernel = _Decode(problem, lanes, scope, places, arrays)
    stmts += kernel.body()
    function = Function("attention", scope.params, build.seq(stmts), kind="kernel", grid_vars=tuple(leading))
    row_bytes = problem.depth * problem.k.dtype.nbytes + problem.width * problem.v.dtype.nbytes
    cost = dims.floordiv(problem.keys * row_bytes, _BYTES_PER_NANOSECOND) + 1
    return AttentionKernel(function, (), scope, problem.leading or (1,), cost)


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    """Local arrays, row after row, and one variable a row: the largest score so far and the weights' sum."""

    queries: Var
    scores: Var
    sums: Var
    top: list[Var]
    total: list[Var]


class _Decode:
    def __init__(
        self, problem: AttentionProblem, lanes: int, scope: KernelScope, places: dict[str, Place], arrays: _Arrays
    ) -> None:
        assert isinstance(problem.rows, int)
        self.problem = problem
        self.lanes = lanes
        self.places = places
        self.arrays = arrays
        self.rows = problem.rows
        self.dtype = problem.compute
        self.vector = VectorType(problem.compute, lanes)
        self.depth, self.width = parameter(scope, problem.depth, "depth"), parameter(scope, problem.width, "width")
        self.keys = parameter(scope, problem.keys, "keys")
        self.factor = number_parameter(scope, problem.scale * LOG2_E)
        self.query_pitch, self.sum_pitch = array_extent(problem.depth), array_extent(problem.width)
        self.score_pitch = _KEY_BLOCK + lanes
        self.lane_numbers = local_array("lane_numbers", dtypes.i32, lanes)

    def body(self) -> list[Stmt]:
        arrays = self.arrays
        stmts: list[Stmt] = [Declare(array) for array in (arrays.queries, arrays.scores, arrays.sums)]
        stmts.append(Declare(self.lane_numbers))
        stmts += [
            Store(self.lane_numbers, (build.index(lane),), build.const(lane, dtypes.i32)) for lane in range(self.lanes)
        ]
        stmts += [Declare(top, build.const(-float("inf"), self.dtype)) for top in arrays.top]
        stmts += [Declare(total, build.const(0, self.dtype)) for total in arrays.total]
        stmts += self._load_queries()
        stmts.append(self._key_loop())
        stmts += self._store_results()
        return stmts

    def _row_offset(self, place: Place, row: int) -> Expr:
        """Offset of row number `row` of a tensor that is read by query."""
        queries = self.problem.queries
        assert isinstance(queries, int)
        return place.group * (row // queries) + place.row * (row % queries)

    def _load_queries(self) -> list[Stmt]:
        q = self.places["q"]
        d = build.size_var("d")
        scale = Var("scale", self.dtype)
        stores: list[Stmt] = []
        for row in range(self.rows):
            value = build.cast(build.load(q.pointer, self._row_offset(q, row) + d * q.inner), self.dtype)
            stores.append(Store(self.arrays.queries, (d + row * self.query_pitch,), value * scale))
        read = For(d, build.index(0), self.depth, build.seq(stores), kind="vectorize")
        clear = [
            _fill(self.arrays.queries, self.rows * self.query_pitch, self.dtype),
            _fill(self.arrays.sums, self.rows * self.sum_pitch, self.dtype),
        ]
        return [Declare(scale, build.cast(self.factor, self.dtype)), *clear, read]

    # --- one block of keys -------------------------------------------------------------------------------------------

    def _key_loop(self) -> Stmt:
        first, s = build.size_var("first_key"), Steps()
        queries = self.problem.queries
        assert isinstance(queries, int)
        limit = build.minimum(self.keys, build.index(queries)) if self.problem.is_causal else self.keys
        keys = s.let("keys", build.minimum(build.index(_KEY_BLOCK), limit - first))
        padded = s.let("padded", (keys + (self.lanes - 1)) // self.lanes * self.lanes)
        s.statements.append(self._scores(first, keys))
        s.statements += self._mask(first, keys)
        s.statements += self._hide_padding(keys, padded)
        for row in range(self.rows):
            s.statements += self._softmax(row, padded)
        s.statements += self._weighted_sums(first, keys)
        return For(first, build.index(0), limit, build.seq(s.statements), step=_KEY_BLOCK)

    def _scores(self, first: Expr, keys: Expr) -> Stmt:
        """As many keys at a time as there are lanes; all rows but the first find them in the first-level cache."""
        k = self.places["k"]
        group = build.size_var("group")
        s = Steps()
        pointers: list[Expr] = []
        for lane in range(self.lanes):
            key = first + build.minimum(group + lane, keys - 1)
            pointer = Var(f"key{lane}", k.pointer.type)
            s.statements.append(Declare(pointer, build.address(k.pointer, key * k.row)))
            pointers.append(pointer)
        for row in range(self.rows):
            sums = [Var(f"dot{lane}", self.vector) for lane in range(self.lanes)]
            s.statements += [Declare(var, self._zero()) for var in sums]

            def add(d: Expr, mask: Expr | None, row: int = row, sums: Sequence[Var] = sums) -> Stmt:
                query = Var("query", self.vector)
                read = build.load(self.arrays.queries, d + row * self.query_pitch, lanes=self.lanes)
                stmts: list[Stmt] = [Declare(query, read)]
                for var, pointer in zip(sums, pointers, strict=True):
                    stmts.append(self._add_product(var, self._read(pointer, d, mask), query))
                return build.seq(stmts)

            s.statements += self._each_part(self.problem.depth, self.depth, 1, add)
            reduced, dots = sum_lanes(sums)
            s.statements += [*reduced, Store(self.arrays.scores, (group + row * self.score_pitch,), dots)]
        return For(group, build.index(0), keys, build.seq(s.statements), step=self.lanes)

    def _mask(self, first: Expr, keys: Expr) -> list[Stmt]:
        mask, queries = self.places.get("mask"), self.problem.queries
        if mask is None and not self.problem.is_causal:
            return []
        assert isinstance(queries, int)
        key = build.size_var("key")
        s = Steps()
        for row in range(self.rows):
            place = key + row * self.score_pitch
            score = s.let("score", build.load(self.arrays.scores, place))
            if mask is not None:
                offset = self._row_offset(mask, row) + (first + key) * mask.inner
                score = mask_score(score, s.let("entry", build.load(mask.pointer, offset)), self.dtype)
            if self.problem.is_causal:
                score = build.select(first + key <= row % queries, score, like(score, -math.inf))
            s.statements.append(Store(self.arrays.scores, (place,), score))
        return [For(key, build.index(0), keys, build.seq(s.statements), kind="vectorize")]

    def _hide_padding(self, keys: Expr, padded: Expr) -> list[Stmt]:
        key = build.size_var("key")
        hidden = build.const(-float("inf"), self.dtype)
        stores = [Store(self.arrays.scores, (key + row * self.score_pitch,), hidden) for row in range(self.rows)]
        return [For(key, keys, padded - keys, build.seq(stores))]

    def _softmax(self, row: int, padded: Expr) -> list[Stmt]:
        """Scores of one row become weights relative to the new maximum; what is summed already decays."""
        form, lanes, arrays = number_format(self.dtype), self.lanes, self.arrays
        top, total = arrays.top[row], arrays.total[row]
        group = build.size_var("group")
        place = group + row * self.score_pitch
        s = Steps()
        highest = Var("highest", self.vector)
        score = build.load(arrays.scores, place, lanes=lanes)
        s.statements.append(Declare(highest, build.broadcast(top, lanes)))
        s.statements.append(For(group, build.index(0), padded, Assign(highest, larger(highest, score)), step=lanes))
        found, new_top = reduce_lanes(highest, larger)
        s.statements += found
        new_top = s.let("new_top", new_top)
        shift = s.let("shift", build.select(build.equal(new_top, -float("inf")), like(new_top, 0.0), new_top))
        decay = exp2_of_nonpositive(s, s.let("fall", top - shift), form)
        sums = Var("weights", self.vector)
        s.statements.append(Declare(sums, self._zero()))
        weigh = Steps()
        again = build.size_var("again")
        place = again + row * self.score_pitch
        score = build.load(arrays.scores, place, lanes=lanes)
        weight = exp2_of_nonpositive(weigh, weigh.let("x", score - build.broadcast(shift, lanes)), form)
        weigh.statements += [Store(arrays.scores, (place,), weight), Assign(sums, sums + weight)]
        s.statements.append(For(again, build.index(0), padded, build.seq(weigh.statements), step=lanes))
        summed, block = reduce_lanes(sums, lambda a, b: a + b)
        e = build.size_var("e")
        old = e + row * self.sum_pitch
        scaled = Store(arrays.sums, (old,), build.load(arrays.sums, old) * decay)
        s.statements += [
            *summed,
            Assign(total, total * decay + block),
            Assign(top, new_top),
            For(e, build.index(0), self.width, scaled, kind="vectorize"),
        ]
        return s.statements

    def _weighted_sums(self, first: Expr, keys: Expr) -> list[Stmt]:
        v = self.places["v"]
        whole = self.problem.width % (_VECTORS_TOGETHER * self.lanes) == 0
        vectors = _VECTORS_TOGETHER if whole else 1
        start = Var("v_block", v.pointer.type)

        def add(e: Expr, mask: Expr | None) -> Stmt:
            sums = [[Var(f"sum{r}_{j}", self.vector) for j in range(vectors)] for r in range(self.rows)]
            places = [[e + (r * self.sum_pitch + j * self.lanes) for j in range(vectors)] for r in range(self.rows)]
            flat = [pair for row in zip(sums, places, strict=True) for pair in zip(*row, strict=True)]
            key = build.size_var("key")
            body: list[Stmt] = []
            values = [Var(f"value{j}", self.vector) for j in range(vectors)]
            for j, value in enumerate(values):
                body.append(Declare(value, self._read(start, key * v.row + e + j * self.lanes, mask)))
            for r, row in enumerate(sums):
                weight = Var("weight", self.vector)
                scalar = build.load(self.arrays.scores, key + r * self.score_pitch)
                body.append(Declare(weight, build.broadcast(scalar, self.lanes)))
                body += [self._add_product(var, value, weight) for var, value in zip(row, values, strict=True)]
            return build.seq(
                [
                    *(Declare(var, build.load(self.arrays.sums, place, lanes=self.lanes)) for var, place in flat),
                    For(key, build.index(0), keys, build.seq(body)),
                    *(Store(self.arrays.sums, (place,), var) for var, place in flat),
                ]
            )

        declared = Declare(start, build.address(v.pointer, first * v.row))
        return [declared, *self._each_part(self.problem.width, self.width, vectors, add)]

    # --- the end -----------------------------------------------------------------------------------------------------

    def _store_results(self) -> list[Stmt]:
        out, lse = self.places["out"], self.places.get("logsumexp")
        e = build.size_var("e")
        s = Steps()
        stores: list[Stmt] = []
        for row in range(self.rows):
            total = self.arrays.total[row]
            is_empty = s.let("is_empty", build.equal(total, 0.0))
            inverse = s.let("inverse", like(total, 1.0) / total)
            summed = build.load(self.arrays.sums, e + row * self.sum_pitch)
            value = build.select(is_empty, like(total, 0.0), summed * inverse)
            place = self._row_offset(out, row) + e * out.inner
            stores.append(Store(out.pointer, (place,), build.cast(value, out.placement.dtype)))
            if lse is not None:
                exponent = self.arrays.top[row] + build.unary("log2", total)
                entry = build.cast(exponent * math.log(2), lse.placement.dtype)
                s.statements.append(Store(lse.pointer, (self._row_offset(lse, row),), entry))
        return [*s.statements, For(e, build.index(0), self.width, build.seq(stores), kind="vectorize")]

    # --- vectors -----------------------------------------------------------------------------------------------------

    def _zero(self) -> Expr:
        return build.broadcast(build.const(0, self.dtype), self.lanes)

    def _add_product(self, total: Var, a: Expr, b: Expr) -> Stmt:
        return Assign(total, fma(a, b, total))

    def _read(self, pointer: Expr, place: Expr, mask: Expr | None) -> Expr:
        return build.cast(build.load(pointer, place, lanes=self.lanes, mask=mask), self.dtype)

    def _each_part(
        self, extent: int, size: Expr, vectors: int, body: Callable[[Expr, Expr | None], Stmt]
    ) -> list[Stmt]:
        """`body(start, mask)` for every part of so many vectors of a row of `extent`; the last one may need a mask."""
        step = vectors * self.lanes
        start = build.size_var("start")
        if extent % step == 0:
            return [For(start, build.index(0), size, body(start, None), step=step)]
        assert vectors == 1
        whole = Var("whole", build.INDEX)
        rest = build.broadcast(build.cast(size - whole, dtypes.i32), self.lanes)
        mask = build.load(self.lane_numbers, 0, lanes=self.lanes) < rest
        last = Var("mask", VectorType(dtypes.boolean, self.lanes))
        return [
            Declare(whole, size // self.lanes * self.lanes),
            For(start, build.index(0), whole, body(start, None), step=self.lanes),
            Declare(last, mask),
            body(whole, last),
        ]


def _fill(array: Var, elements: int, dtype: DType) -> Stmt:
    place = build.size_var("place")
    zero = Store(array, (place,), build.const(0, dtype))
    return For(place, build.index(0), build.index(elements), zero, kind="vectorize")
