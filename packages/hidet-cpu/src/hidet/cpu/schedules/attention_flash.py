"""Attention for many queries: one work item computes a block of queries against all keys.

Tiling and rescaling as in Dao et al., "FlashAttention", 2022, with queries in the lanes of vectors:

    columns[d][query] = q * scale * log2(e), transposed                    once
    for block of keys:
      scores[key][query] = k @ columns
      mask, where the task has one
      weights = 2 ** (scores - top), decay of what is summed already
      sums[e][query] = sums * decay + v.T @ weights
    out[query][e] = sums / total, transposed back                          once

The softmax needs no exchange between lanes, and k and v are read where they are: both products take one of their
elements at a time. Only half precision is converted, a block at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hidet import dims
from hidet.cpu.schedules.attention_kernel import AttentionKernel, array_extent
from hidet.cpu.schedules.attention_rows import (
    LOG2_E,
    Block,
    Place,
    apply_causal,
    apply_mask,
    load_queries,
    number_parameter,
    open_block,
    place_tensor,
    store_logsumexp,
    store_results,
)
from hidet.cpu.schedules.attention_softmax import ROWS_TOGETHER, SoftmaxState, update
from hidet.cpu.schedules.attention_tile import Product, TileShape, local_array, product_functions
from hidet.cpu.schedules.gemm_program import parameter
from hidet.ir import build
from hidet.ir.expr import Expr, Var
from hidet.ir.func import COMPACT, Function
from hidet.ir.stmt import Declare, For, Stmt, Store
from hidet.schedule.attention_problem import AttentionProblem, Placement
from hidet.schedule.lowering import KernelScope

# Multiply-adds of one core in a nanosecond, for the estimate of a work item's cost.
_MULTIPLY_ADDS_PER_NANOSECOND = 50


@dataclass(frozen=True, slots=True, eq=False)
class _Arrays:
    """Local arrays of rows of `pitch` queries; see the top of this file. copied: a block of k or v, converted."""

    columns: Var
    scores: Var
    sums: Var
    state: SoftmaxState
    copied: Var | None

    def declarations(self) -> list[Stmt]:
        state = (self.state.top, self.state.total, self.state.decay)
        copied = () if self.copied is None else (self.copied,)
        return [Declare(array) for array in (self.columns, self.scores, self.sums, *state, *copied)]


def flash_kernel(problem: AttentionProblem, shape: TileShape, key_block: int) -> AttentionKernel:
    """The kernel for `problem`, scoring `key_block` keys at a time. Rows of k and v have up to LARGEST_ROW elements."""
    scope = KernelScope()
    leading = [build.size_var(f"lead{n}") for n in range(len(problem.leading))]
    item = build.size_var("item")
    stmts: list[Stmt] = []
    places: dict[str, Place] = {}
    for name, placement in problem.tensors().items():
        by_query = 0 if name in ("k", "v") else shape.pitch
        places[name], found = place_tensor(scope, name, placement, leading, by_query)
        stmts += found
    arrays = _local_arrays(problem, shape, key_block)
    blocks = dims.ceildiv(problem.rows, shape.pitch)
    queries = parameter(scope, problem.queries, "queries")
    rows = queries if problem.group == 1 else parameter(scope, problem.rows, "rows")
    block, opened = open_block(shape, item, rows, queries, list(places.values()))
    stmts += [*arrays.declarations(), *opened]
    depth, width = parameter(scope, problem.depth, "depth"), parameter(scope, problem.width, "width")
    factor = number_parameter(scope, problem.scale * LOG2_E)
    stmts.append(load_queries(shape, block, places["q"], depth, problem.depth, factor, arrays.columns))
    stmts += _start(shape, block, arrays, width)
    keys = parameter(scope, problem.keys, "keys")
    limit = build.minimum(keys, block.highest + 1) if problem.is_causal else keys
    loop = _KeyLoop(problem, shape, key_block, places, arrays, block, depth, width)
    stmts.append(loop.over(limit))
    stmts.append(store_results(shape, block, places["out"], width, problem.width, arrays.sums, arrays.state.total))
    if "logsumexp" in places:
        stmts.append(store_logsumexp(shape, block, places["logsumexp"], arrays.state))
    grid_vars = (*leading, item)
    function = Function("attention", scope.params, build.seq(stmts), "kernel", grid_vars, attributes=(COMPACT,))
    products = problem.keys * (shape.pitch * (problem.depth + problem.width))
    cost = dims.floordiv(products, _MULTIPLY_ADDS_PER_NANOSECOND) + 1
    return AttentionKernel(function, product_functions(shape), scope, (*problem.leading, blocks), cost)


def _local_arrays(problem: AttentionProblem, shape: TileShape, key_block: int) -> _Arrays:
    def array(name: str, rows: int) -> Var:
        return local_array(name, shape.dtype, rows * shape.pitch)

    spare = shape.spare_rows
    longest = array_extent(max(problem.depth, problem.width))
    needs_copy = _is_copied(problem, problem.k) or _is_copied(problem, problem.v)
    return _Arrays(
        columns=array("columns", longest),
        scores=array("scores", key_block + spare),
        sums=array("sums", longest + spare),
        state=SoftmaxState(array("top", 1), array("total", 1), array("decay", 1)),
        copied=local_array("copied", shape.dtype, key_block * longest) if needs_copy else None,
    )


def _is_copied(problem: AttentionProblem, place: Placement) -> bool:
    """Whether blocks of k or v are copied first: to convert them, or because they are strided in both axes."""
    return place.dtype != problem.compute or (place.inner != 1 and place.row != 1)


def _start(shape: TileShape, block: Block, arrays: _Arrays, width: Expr) -> list[Stmt]:
    lane = build.size_var("lane")
    zero, lowest = build.const(0, shape.dtype), build.const(-float("inf"), shape.dtype)
    clear: list[Stmt] = [Store(arrays.state.top, (lane,), lowest), Store(arrays.state.total, (lane,), zero)]
    lanes = build.index(shape.pitch)
    place = build.size_var("place")
    return [
        For(lane, build.index(0), lanes, build.seq(clear), kind="vectorize"),
        For(place, build.index(0), width * lanes, Store(arrays.sums, (place,), zero), kind="vectorize"),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _KeyLoop:
    problem: AttentionProblem
    shape: TileShape
    key_block: int
    places: dict[str, Place]
    arrays: _Arrays
    block: Block
    depth: Expr
    width: Expr

    def over(self, limit: Expr) -> Stmt:
        """All blocks of keys below `limit`."""
        first = build.size_var("first_key")
        keys, padded = Var("keys", build.INDEX), Var("padded", build.INDEX)
        arrays, shape, block = self.arrays, self.shape, self.block
        together = (keys + (ROWS_TOGETHER - 1)) // ROWS_TOGETHER * ROWS_TOGETHER
        stmts: list[Stmt] = [
            Declare(keys, build.minimum(build.index(self.key_block), limit - first)),
            Declare(padded, together),
            *self._scores(first, keys),
        ]
        mask = self.places.get("mask")
        if mask is not None:
            stmts.append(apply_mask(shape, block, mask, arrays.scores, first, keys))
        if self.problem.is_causal:
            stmts.append(apply_causal(shape, block, arrays.scores, first, keys))
        stmts.append(self._hide_padding(keys, padded))
        stmts.append(update(shape, arrays.state, arrays.scores, padded, block.vectors))
        stmts += self._sums(first, keys)
        return For(first, build.index(0), limit, build.seq(stmts), step=self.key_block)

    def _hide_padding(self, keys: Expr, padded: Expr) -> Stmt:
        place = build.size_var("place")
        pitch = build.index(self.shape.pitch)
        hidden = Store(self.arrays.scores, (place,), build.const(-float("inf"), self.shape.dtype))
        return For(place, keys * pitch, (padded - keys) * pitch, hidden, kind="vectorize")

    def _scores(self, first: Expr, keys: Expr) -> list[Stmt]:
        arrays = self.arrays
        stmts, element, inner, row = self._operand("k", first, keys, self.depth)
        product = Product(element, row, inner, arrays.columns, arrays.scores, keys, self.depth, None)
        return [*stmts, product.compute(self.shape, self.block.vectors)]

    def _sums(self, first: Expr, keys: Expr) -> list[Stmt]:
        arrays = self.arrays
        stmts, element, inner, row = self._operand("v", first, keys, self.width)
        product = Product(element, inner, row, arrays.scores, arrays.sums, self.width, keys, arrays.state.decay)
        return [*stmts, product.compute(self.shape, self.block.vectors)]

    def _operand(self, name: str, first: Expr, keys: Expr, extent: Expr) -> tuple[list[Stmt], Expr, Expr, Expr]:
        """Statements, and then the first element of a block of k or v and its strides within and between rows."""
        place = self.places[name]
        start = Var(f"{name}_block", place.pointer.type)
        stmts: list[Stmt] = [Declare(start, build.address(place.pointer, first * place.row))]
        if not _is_copied(self.problem, place.placement):
            return stmts, start, place.inner, place.row
        copied = self.arrays.copied
        assert copied is not None
        pitch = build.index(array_extent(self.problem.depth if name == "k" else self.problem.width))
        key, inner = build.size_var("key"), build.size_var("inner")
        value = build.cast(build.load(start, key * place.row + inner * place.inner), self.shape.dtype)
        store = Store(copied, (key * pitch + inner,), value)
        row = For(inner, build.index(0), extent, store, kind="vectorize")
        return [*stmts, For(key, build.index(0), keys, row)], copied, build.index(1), pitch
